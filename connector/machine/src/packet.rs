//! What the machine needs of a message (RFC 3), whatever type carries it.

/// RFC 3's message types, as far as the connector distinguishes them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A request to a service.
    Request,
    /// A response of a service.
    Response,
    /// An event, published to all subscribers.
    Event,
    /// Any other type: it is passed on unchanged.
    Other,
}

/// `FLUX_MATCHTAG_NONE`: no request has this matchtag (RFC 6).
pub const NO_TAG: u32 = 0;
/// `FLUX_NODEID_ANY`: the nearest broker that has the service.
pub const ANY_RANK: u32 = u32::MAX;

/// The fields of a message that decide how it is handled.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// Its type.
    pub kind: Kind,
    /// Its topic; empty if it has none.
    pub topic: &'a str,
    /// The matchtag, which pairs a response with its request.
    pub matchtag: u32,
    /// POSIX errno of a response; 0 for success, and for other types.
    pub errnum: i32,
    /// The sender of the request does not expect a response.
    pub noresponse: bool,
    /// There may be many responses; the last one is an error.
    pub streaming: bool,
    /// The rank that a request is sent to: [`ANY_RANK`], or a broker rank.
    pub rank: u32,
}

/// A message. Clones are cheap: they share their content.
pub trait Packet: Clone {
    /// The fields that decide how it is handled.
    fn header(&self) -> Header<'_>;
    /// The payload, without the NUL that ends a text; empty if there is none.
    fn payload(&self) -> &[u8];
    /// Encoded size in bytes.
    fn size(&self) -> usize;
    /// A request of the connector's own.
    fn request(topic: &str, matchtag: u32, rank: u32, payload: &str) -> Self;
    /// The same message with another payload.
    #[must_use]
    fn with_payload(&self, payload: &str) -> Self;
    /// The same request, for this rank.
    #[must_use]
    fn to_rank(&self, rank: u32) -> Self;
    /// A successful response to this request, as from the broker.
    #[must_use]
    fn answer(&self, payload: &str) -> Self;
    /// An error response to this request, as from the broker.
    #[must_use]
    fn refusal(&self, errnum: i32, text: &str) -> Self;
    /// The response to this request that says what `response` says.
    #[must_use]
    fn respond(&self, response: &Self) -> Self;
    /// The hops of the route, from the sender on.
    fn hops(&self) -> Vec<String>;
    /// The first of [`Packet::hops`].
    fn first_hop(&self) -> Option<String>;
    /// The same message with another route.
    #[must_use]
    fn with_hops(&self, hops: &[String]) -> Self;
    /// Whether the broker says that this process's user or the instance owner has sent it.
    fn is_trusted(&self) -> bool;
    /// Adds a hop to the route, also of clones. A response to this request brings it back.
    fn push_hop(&mut self, hop: &str);
    /// Removes the last hop of the route if it begins with `prefix`, and returns the rest of it.
    fn pop_hop(&mut self, prefix: &str) -> Option<String>;
}

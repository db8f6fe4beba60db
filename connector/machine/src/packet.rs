//! What the machine has to know of a message (RFC 3), whoever carries it.

/// RFC 3's message types, as far as they are treated differently here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// To a service.
    Request,
    /// Of a service.
    Response,
    /// Published to everybody.
    Event,
    /// Anything else: it passes through.
    Other,
}

/// `FLUX_MATCHTAG_NONE`: nobody waits by number (RFC 6).
pub const NO_TAG: u32 = 0;
/// `FLUX_NODEID_ANY`: the nearest broker that has the service.
pub const ANY_RANK: u32 = u32::MAX;

/// The fields of a message that decide what happens to it.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// Its type.
    pub kind: Kind,
    /// Its topic; empty where there is none.
    pub topic: &'a str,
    /// Which request a response answers.
    pub matchtag: u32,
    /// POSIX errno of a response; 0 for success, and for all others.
    pub errnum: i32,
    /// Nobody waits for an answer.
    pub noresponse: bool,
    /// There may be many answers, the last of them an error.
    pub streaming: bool,
}

/// A message. Clones are cheap: they share what they hold.
pub trait Packet: Clone {
    /// What it is.
    fn header(&self) -> Header<'_>;
    /// The payload, without the NUL that ends a text; empty without one.
    fn payload(&self) -> &[u8];
    /// Encoded size in bytes.
    fn size(&self) -> usize;
    /// A request of our own.
    fn request(topic: &str, matchtag: u32, rank: u32, payload: &str) -> Self;
    /// The same message with another payload.
    #[must_use]
    fn with_payload(&self, payload: &str) -> Self;
    /// A successful answer to this request, in the broker's name.
    #[must_use]
    fn answer(&self, payload: &str) -> Self;
    /// An error as the answer to this request, in the broker's name.
    #[must_use]
    fn refusal(&self, errnum: i32, text: &str) -> Self;
    /// Puts a hop on the route, which a response to this request will bring back.
    fn push_hop(&mut self, hop: &str);
    /// Takes the last hop off the route if it begins with `prefix`, and returns the rest of it.
    fn pop_hop(&mut self, prefix: &str) -> Option<String>;
}

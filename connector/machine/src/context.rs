//! What every part of the connector is given.

use crate::client::Client;
use crate::packet::Packet;
use crate::wire::Wire;

/// The time, the client, and the way out.
#[derive(Clone, Debug)]
pub(crate) struct Context<P> {
    /// When that happens which is being handled, in seconds.
    pub(crate) now: f64,
    pub(crate) client: Client,
    pub(crate) wire: Wire<P>,
}

impl<P: Packet> Context<P> {
    pub(crate) fn new(client: Client, now: f64) -> Self {
        Self { now, client, wire: Wire::default() }
    }
}

//! What every part of the connector is given.

use crate::client::Client;
use crate::packet::Packet;
use crate::wire::Wire;

/// The time, the client, and the way out.
#[derive(Clone, Debug)]
pub(crate) struct Context<P> {
    /// When that happens which is being handled, in seconds.
    pub(crate) now: f64,
    /// After a restart of the broker, services and namespaces may be missing until then.
    pub(crate) patient_until: f64,
    pub(crate) client: Client,
    pub(crate) wire: Wire<P>,
}

impl<P: Packet> Context<P> {
    pub(crate) fn new(client: Client, now: f64) -> Self {
        Self { now, patient_until: 0.0, client, wire: Wire::default() }
    }

    /// Whether what is missing may only just be coming back.
    pub(crate) fn is_patient(&self) -> bool {
        self.now < self.patient_until
    }
}

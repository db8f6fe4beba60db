//! Messages from the client to the broker.

use serde_json::Value;

use crate::connector::{Connector, Phase};
use crate::errnum::NO_DATA;
use crate::flight::{Again, Flight};
use crate::inbox::ARRIVED;
use crate::ledgers::Commit;
use crate::packet::{Header, Kind, NO_TAG, Packet};
use crate::policy::Policy;
use crate::standing::ends_shell;

/// Prefix of the hop that the connector adds to requests to the client.
pub(crate) const HOP: &str = "resume-";

impl<P: Packet> Connector<P> {
    /// Sends a message of the client over a live connection.
    pub(crate) fn dispatch(&mut self, packet: P) {
        match packet.header().kind {
            Kind::Request => self.request(packet),
            Kind::Response => self.response(packet),
            Kind::Event | Kind::Other => self.cx.wire.send(packet),
        }
    }

    /// The client has answered a request.
    pub(crate) fn response(&mut self, mut packet: P) {
        if let Some(name) = packet.pop_hop(ARRIVED) {
            return self.answer_arrived(&name, packet);
        }
        match packet.pop_hop(HOP) {
            // The request came over an earlier connection, and its sender has had an error.
            Some(number) if number != self.losses.to_string() => {}
            // Without a connection as well.
            _ if matches!(self.phase, Phase::Down { .. }) => {}
            _ => self.cx.wire.send(packet),
        }
    }

    fn request(&mut self, packet: P) {
        let Header { topic, matchtag, noresponse, streaming, .. } = packet.header();
        let policy = Policy::of(topic);
        if matchtag == NO_TAG || noresponse {
            match policy {
                Policy::Refuse if self.sent_in_channel(&packet, None) => {}
                Policy::Barrier => self.barrier.enter(&mut self.cx, packet),
                Policy::Cancel => {
                    self.cancel(&packet);
                    self.cx.wire.send(packet);
                }
                _ => self.cx.wire.send(packet),
            }
            return;
        }
        if self.sent_in_channel(&packet, Some(matchtag)) {
            return;
        }
        let mut flight = self.new_flight(&packet);
        match policy {
            Policy::Watch(kind) => {
                flight.seen = kind.seen(packet.payload(), streaming);
                // Without the streaming flag it is answered once.
                if flight.seen.is_none() {
                    flight.policy = Policy::Repeat;
                }
            }
            Policy::Commit => match self.ledgers.commit(&mut self.cx, matchtag, &packet) {
                Commit::Repeat => flight.policy = Policy::Repeat,
                Commit::Refuse => flight.policy = Policy::Refuse,
                Commit::Kept(namespace, sent) => {
                    // If it were repeated by itself, it would be applied after later commits.
                    (flight.policy, flight.again) = (Policy::Refuse, None);
                    (flight.commit, flight.request) = (Some(namespace), sent);
                }
            },
            _ => {}
        }
        self.kept += flight.request.size();
        let request = flight.request.clone();
        let is_sent = flight.commit.is_some();
        self.flights.insert(matchtag, flight);
        self.settle();
        if !is_sent && !self.spare_other_run(matchtag) {
            self.cx.wire.send(request);
        }
        if ends_shell(&packet) {
            self.ledgers.bequeath(&mut self.cx);
        }
    }

    /// The client waits for the answer to this request.
    pub(crate) fn new_flight(&mut self, request: &P) -> Flight<P> {
        self.orders += 1;
        let policy = Policy::of(request.header().topic);
        let mut flight = Flight::new(request.clone(), policy, self.orders);
        if self.cx.now < self.patient_until {
            flight.again = Some(Again::new(self.patient_until, false));
        }
        flight
    }

    /// The client cancels a watch. The service answers the watch, not this request (flux-core
    /// `modules/kvs-watch`, `modules/job-info`).
    fn cancel(&mut self, packet: &P) {
        let payload: Value = serde_json::from_slice(packet.payload()).unwrap_or_default();
        let tag = payload["matchtag"].as_u64().and_then(|tag| u32::try_from(tag).ok());
        let Some(tag) = tag else { return };
        let Some(flight) = self.flights.get_mut(&tag) else { return };
        flight.is_cancelled = true;
        // Between two tries the broker has no such watch, and will not answer.
        if flight.again.is_some_and(|again| again.retry_at.is_some())
            && let Some(flight) = self.finish(tag)
        {
            self.cx.wire.give(flight.request.refusal(NO_DATA, ""));
        }
    }
}

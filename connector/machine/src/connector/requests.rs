//! Messages from the client to the broker.

use serde_json::Value;

use crate::connector::{Connector, Phase};
use crate::errnum::NO_DATA;
use crate::flight::{Again, Flight};
use crate::inbox::ARRIVED;
use crate::ledger::{Ledger, Settling, Treatment, treatment};
use crate::packet::{ANY_RANK, Header, Kind, NO_TAG, Packet};
use crate::policy::Policy;
use crate::standing::ends_shell;

/// Prefix of the hop that the connector adds to requests to the client.
pub(crate) const HOP: &str = "resume-";

impl<P: Packet> Connector<P> {
    /// Sends a message of the client over a live connection.
    pub(crate) fn dispatch(&mut self, now: f64, packet: P) {
        match packet.header().kind {
            Kind::Request => self.request(now, packet),
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

    fn request(&mut self, now: f64, packet: P) {
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
            Policy::Commit => {
                self.commit(&mut flight);
                // If it were repeated by itself, it would be applied after later commits.
                if flight.commit.is_some() {
                    flight.again = None;
                }
            }
            _ => {}
        }
        self.kept += flight.request.size();
        let request = flight.request.clone();
        let namespace = flight.commit.as_ref().map(|(namespace, _)| namespace.clone());
        self.flights.insert(matchtag, flight);
        if self.spare_other_run(matchtag) {
            return;
        }
        let is_kept = |this: &mut Self, namespace: String| {
            this.is_unknown(now, &namespace) || this.discard(&namespace)
        };
        if !namespace.is_some_and(|namespace| is_kept(self, namespace)) {
            self.cx.wire.send(request);
        }
        if ends_shell(&packet) {
            self.bequeath_all();
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

    /// Whether this is the first commit to a namespace since the broker is back. If the namespace
    /// were restored between two commits, the second would be done and not the first. So the
    /// connector first waits until the namespace answers, and then sends this commit with those
    /// that have to be done again.
    fn is_unknown(&mut self, now: f64, namespace: &str) -> bool {
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return false };
        if ledger.settling != Settling::Unknown {
            return false;
        }
        ledger.settling = Settling::Due(now);
        self.phase = Phase::Settling;
        self.settle(now);
        true
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

    fn commit(&mut self, flight: &mut Flight<P>) {
        flight.policy = Policy::Refuse;
        match treatment(flight.request.payload()) {
            Treatment::Refuse => {}
            Treatment::Repeat => flight.policy = Policy::Repeat,
            Treatment::Ledger(namespace) => {
                let known =
                    if self.doubts(&namespace) { Settling::Unknown } else { Settling::Done };
                let new = Ledger::new(&namespace, self.cx.client.id, known);
                let request = match flight.request.header().rank {
                    ANY_RANK => flight.request.to_rank(self.cx.client.home()),
                    _ => flight.request.clone(),
                };
                let ledger = self.ledgers.entry(namespace.clone()).or_insert(new);
                if let Some((number, request)) = ledger.enter(&request) {
                    flight.commit = Some((namespace.clone(), number));
                    flight.request = request;
                }
                self.bound_commits(&namespace);
            }
        }
    }
}

//! Which machine a message goes to.

use crate::channel::{NEEDED, Peer, RECEIVED, channel_of};
use crate::connector::Connector;
use crate::flight::Flight;
use crate::flights::Answered;
use crate::inbox::ARRIVED;
use crate::outbox::Turn;
use crate::packet::{Header, Kind, NO_TAG, Packet};
use crate::policy::Policy;
use crate::standing::ends_shell;
use crate::wire::{Own, is_own};

/// Prefix of the hop that the connector adds to requests to the client.
const HOP: &str = "resume-";

/// Whether this is a commit.
fn is_commit<P: Packet>(packet: &P) -> bool {
    Policy::of(packet.header().topic) == Policy::Commit
}

/// Whether a client that closes its connection waits until this was sent, though not for an answer.
pub(super) fn is_needed<P: Packet>(packet: &P) -> bool {
    is_commit(packet) || packet.header().noresponse && Peer::of(packet).is_some()
}

impl<P: Packet> Connector<P> {
    /// Sends a message of the client over a live connection.
    pub(super) fn dispatch(&mut self, packet: P) {
        let Header { kind, topic, matchtag, noresponse, .. } = packet.header();
        match kind {
            Kind::Request if matchtag == NO_TAG || noresponse => match Policy::of(topic) {
                Policy::Refuse if self.sent_in_channel(&packet, None) => {}
                Policy::Barrier => self.barrier.enter(&mut self.cx, packet),
                Policy::Cancel => {
                    let cancel = self.flights.cancel(&mut self.cx, packet);
                    self.cx.wire.send(cancel);
                }
                _ => self.cx.wire.send(packet),
            },
            Kind::Request if self.sent_in_channel(&packet, Some(matchtag)) => {}
            Kind::Request => self.request(packet),
            Kind::Response => self.response(packet),
            Kind::Event | Kind::Other => self.cx.wire.send(packet),
        }
    }

    /// Sends a request of the client through a channel. `tag` is none if it gets no answer. Returns
    /// false if it does not go through one.
    fn sent_in_channel(&mut self, request: &P, tag: Option<u32>) -> bool {
        let Some(peer) = Peer::of(request) else { return false };
        self.leader.meet(&mut self.cx, &peer);
        self.outboxes.send(&mut self.cx, &peer, request, tag)
    }

    /// Sends a request to which the client waits for an answer.
    fn request(&mut self, packet: P) {
        let matchtag = packet.header().matchtag;
        let mut flight = Flight::new(packet);
        if flight.policy == Policy::Commit {
            self.ledgers.commit(&mut self.cx, &mut flight);
        }
        if flight.commit.is_some() {
            self.flights.begin(&self.cx, flight);
            return self.settle();
        }
        flight.ask_above(&self.cx.client);
        let request = flight.request.clone();
        let is_foreign = self.foreign_job().is_some_and(|job| flight.changes(job));
        self.flights.begin(&self.cx, flight);
        if is_foreign {
            // It is not done, and answered as if it were, like a commit.
            return self.flights.end(&mut self.cx, matchtag, |request| request.answer("{}"));
        }
        let is_end = ends_shell(&request);
        self.cx.wire.send(request);
        if is_end {
            self.ledgers.bequeath(&mut self.cx);
        }
    }

    /// The client has answered a request.
    pub(super) fn response(&mut self, mut packet: P) {
        let arrived = packet.pop_hop(ARRIVED);
        let packet = match arrived {
            Some(name) => self.inboxes.answer(&name, packet),
            None => match packet.pop_hop(HOP) {
                // The request came over an earlier connection, and its sender has had an error.
                Some(number) if number != self.link.losses().to_string() => None,
                _ => Some(packet),
            },
        };
        // Without a connection an answer to a channel is sent when there is one, and others are not.
        if !self.link.is_down() {
            packet.into_iter().for_each(|packet| self.cx.wire.send(packet));
        }
    }

    /// A message arrived on the socket.
    pub fn receive(&mut self, now: f64, mut packet: P) {
        self.cx.now = now;
        let Header { kind, matchtag, .. } = packet.header();
        match kind {
            Kind::Response if is_own(matchtag) => self.own_answer(&packet),
            Kind::Response if matchtag == NO_TAG => self.cx.wire.give(packet),
            Kind::Response => self.answer(matchtag, packet),
            Kind::Request if self.arrived(&packet) => {}
            Kind::Request => {
                packet.push_hop(&format!("{HOP}{}", self.link.losses()));
                self.cx.wire.give(packet);
            }
            Kind::Event | Kind::Other => self.cx.wire.give(packet),
        }
    }

    /// A request from the broker. Returns false if it is not one of a channel.
    fn arrived(&mut self, packet: &P) -> bool {
        match packet.header().topic {
            topic if topic.ends_with(RECEIVED) => self.inboxes.asked(&mut self.cx, packet),
            topic if topic.ends_with(NEEDED) => self.outboxes.asked(&mut self.cx, packet),
            _ => self.inboxes.arrived(&mut self.cx, packet),
        }
    }

    /// An answer to a request of the client.
    fn answer(&mut self, tag: u32, packet: P) {
        match self.flights.get(tag) {
            None => {
                let turn = self.outboxes.answered(&mut self.cx, tag, &packet);
                self.turned(turn);
            }
            Some(flight) => {
                // An answer through a channel is to an earlier request, whose matchtag is in use again.
                // But a client that passes on requests of others gets their routes back.
                let channel = channel_of(&packet).filter(|_| flight.request.first_hop().is_none());
                if channel.is_none_or(|from| self.outboxes.is_plain(&from)) {
                    let answered = self.flights.answered(&mut self.cx, tag, packet);
                    self.answered(answered);
                }
            }
        }
    }

    fn answered(&mut self, answered: Answered<P>) {
        match answered {
            Answered::Taken => {}
            Answered::Early => self.link.await_run(&mut self.cx),
            Answered::Last(Flight { request, policy, commit, .. }, errnum) => {
                if policy == Policy::Standing && errnum == 0 {
                    self.standing.granted(&request);
                    self.cx.client.is_shell = self.standing.is_shell();
                    self.cx.client.was_shell |= self.cx.client.is_shell;
                }
                if let Some(namespace) = commit {
                    let tag = request.header().matchtag;
                    self.ledgers.answered(&mut self.cx, &namespace, tag, errnum);
                }
            }
        }
    }

    /// Requests may go on without a channel.
    fn turned(&mut self, turn: Turn<P>) {
        if let Turn::Plain(waiting) = turn {
            for request in waiting {
                self.flights.begin(&self.cx, Flight::new(request));
            }
        }
    }

    /// An answer to a request of the connector's own.
    fn own_answer(&mut self, packet: &P) {
        let Header { matchtag, errnum, .. } = packet.header();
        let Some(own) = self.cx.wire.answered(matchtag) else { return };
        match own {
            Own::Barrier => self.barrier.answered(&mut self.cx, packet),
            Own::Greeting if errnum == 0 => self.restore(),
            // The broker is shutting down again, and will close the connection.
            Own::Greeting => {}
            Own::InRun => {
                for answered in self.flights.in_run_answered(&mut self.cx, errnum) {
                    self.answered(answered);
                }
            }
            Own::Standing(item) => {
                self.standing.answered(&self.cx, item, errnum);
                self.settle();
            }
            Own::Ledger(_) | Own::Cover(..) | Own::Replay(_) => {
                let is_whole = !self.unsent.iter().any(is_commit);
                self.ledgers.heard(&mut self.cx, &own, packet, is_whole);
                self.settle();
            }
            Own::Farewell => {}
            Own::Watch(tag) => self.flights.namespace_found(&mut self.cx, tag, errnum),
            Own::Leader => self.leader.answered(packet),
            Own::Receiver(peer, step) => {
                match self.outboxes.heard(&mut self.cx, &peer, step, packet) {
                    Turn::Gone => self.leader.gone(&peer),
                    turn => self.turned(turn),
                }
            }
            Own::Sender(client, step) => {
                let has_leader = self.leader.is_known();
                if self.inboxes.heard(&mut self.cx, (&client, step), packet, has_leader) {
                    self.leader.ask(&mut self.cx);
                }
            }
        }
    }
}

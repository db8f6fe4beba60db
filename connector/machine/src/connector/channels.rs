//! Which messages go through channels between shells.

use crate::channel::{NEEDED, Peer, RECEIVED};
use crate::connector::{Connector, Phase};
use crate::outbox::Turn;
use crate::packet::Packet;
use crate::wire::Step;

impl<P: Packet> Connector<P> {
    /// Sends a request of the client through a channel. `tag` is none if it gets no answer. Returns
    /// false if it does not go through one.
    pub(crate) fn sent_in_channel(&mut self, request: &P, tag: Option<u32>) -> bool {
        let Some(peer) = Peer::of(request) else { return false };
        self.leader.meet(&mut self.cx, &peer);
        self.outboxes.send(&mut self.cx, &peer, request, tag)
    }

    /// Takes a request from the broker. Returns false if it is not one of a channel.
    pub(crate) fn arrived(&mut self, packet: &P) -> bool {
        match packet.header().topic {
            topic if topic.ends_with(RECEIVED) => self.inboxes.asked(&mut self.cx, packet),
            topic if topic.ends_with(NEEDED) => self.outboxes.asked(&mut self.cx, packet),
            _ => self.inboxes.arrived(&mut self.cx, packet),
        }
    }

    /// The client has answered the request that was delivered with this name.
    pub(crate) fn answer_arrived(&mut self, name: &str, answer: P) {
        let response = self.inboxes.answer(name, answer);
        // Without a connection, it is sent when there is one.
        if !matches!(self.phase, Phase::Down { .. })
            && let Some(response) = response
        {
            self.cx.wire.send(response);
        }
    }

    /// There is an answer about the receiver of a channel.
    pub(crate) fn receiver_heard(&mut self, peer: &Peer, step: Step, answer: &P) {
        match self.outboxes.heard(&mut self.cx, peer, step, answer) {
            Turn::Gone => self.leader.gone(peer),
            turn => self.turned(turn),
        }
    }

    /// Requests go on without a channel.
    pub(crate) fn turned(&mut self, turn: Turn<P>) {
        let Turn::Plain(waiting) = turn else { return };
        for request in waiting {
            let flight = self.new_flight(&request);
            self.kept += request.size();
            self.flights.insert(request.header().matchtag, flight);
        }
    }

    /// There is an answer about the sender of a channel.
    pub(crate) fn sender_heard(&mut self, client: &str, step: Step, answer: &P) {
        if self.inboxes.heard(&mut self.cx, (client, step), answer, self.leader.is_known()) {
            self.leader.ask(&mut self.cx);
        }
    }

    /// The client is about to close the connection. Asks all senders that may need an answer.
    pub(crate) fn leave(&mut self) {
        self.cx.client.is_closing = true;
        self.inboxes.leave(&self.cx);
        if self.phase == Phase::Live && self.is_owing() {
            self.inboxes.ask_due(&mut self.cx);
        }
    }

    /// Whether senders may need answers of a client that closes. The leader shell ends when all tasks
    /// have ended, or are not waited for: nobody needs any then.
    pub(crate) fn is_owing(&self) -> bool {
        self.cx.client.is_closing && !self.leader.has_ended() && self.inboxes.is_owing()
    }

    /// Asks the shells at the other ends of channels whose time has come.
    pub(crate) fn ask_shells(&mut self) {
        self.outboxes.ask_due(&mut self.cx);
        if self.is_owing() {
            self.inboxes.ask_due(&mut self.cx);
        }
    }

    /// The connection is restored. Answers that were not sent, or not delivered, are sent.
    pub(crate) fn resume_channels(&mut self) {
        self.inboxes.send_again(&mut self.cx);
        self.outboxes.ask_due(&mut self.cx);
    }

    /// Whether receivers do not have messages of the client to which it does not wait for an
    /// answer.
    pub(crate) fn has_undelivered(&self) -> bool {
        let one_way = |packet: &P| packet.header().noresponse && Peer::of(packet).is_some();
        self.outboxes.has_one_way() || self.unsent.iter().any(one_way)
    }
}

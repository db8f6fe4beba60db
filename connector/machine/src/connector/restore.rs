//! What the connector asks a broker that is back, before the client's own requests.

use crate::connector::{Connector, Phase};
use crate::packet::{ANY_RANK, Packet};
use crate::question::PAUSE_MAX;
use crate::standing::Item;
use crate::wire::Own;

impl<P: Packet> Connector<P> {
    pub(crate) fn own_answer(&mut self, now: f64, packet: &P) {
        let header = packet.header();
        let Some(own) = self.cx.wire.answered(header.matchtag) else { return };
        let ok = header.errnum == 0;
        match own {
            Own::Barrier => {
                let is_patient = now < self.patient_until;
                self.barrier.answered(&mut self.cx, packet, is_patient);
            }
            // It was only just starting when the client connected: nothing was lost.
            Own::Greeting if ok && self.lost_at.is_none() => self.go_live(now),
            Own::Greeting if ok => self.restore(now),
            // The broker is shutting down again, and will close the connection.
            Own::Greeting => {}
            Own::InRun if ok => self.release_held_back(),
            Own::InRun => self.ask_in_run_later(now),
            Own::Standing(item) => {
                if !ok {
                    self.standing.refused(item, header.errnum);
                }
                self.stand(now);
            }
            Own::Ledger(_) | Own::Cover(..) | Own::Replay(_) => {
                let is_whole = !self.has_unsent_commits();
                self.ledgers.heard(&mut self.cx, &own, packet, is_whole);
                self.settle();
            }
            Own::Farewell => {}
            Own::Watch(tag) => self.namespace_found(now, tag, header.errnum),
            Own::Leader => self.leader.answered(packet),
            Own::Receiver(peer, step) => self.receiver_heard(&peer, step, packet),
            Own::Sender(client, step) => self.sender_heard(&client, step, packet),
        }
    }

    /// The broker is in RUN: makes subscriptions, services and groups again.
    fn restore(&mut self, now: f64) {
        self.phase = Phase::Restoring;
        self.standing.begin();
        self.ask_standing(now, self.standing.all());
    }

    fn ask_standing(&mut self, now: f64, items: Vec<Item>) {
        for item in items {
            let (topic, payload) = item.clone();
            self.cx.wire.ask(Own::Standing(item), topic, &payload, ANY_RANK);
        }
        self.stand(now);
    }

    /// Asks again for items that were refused: a connection that is just ending may still hold
    /// them. After the last attempt the connection ends, because the client would otherwise rely
    /// on a service that it does not have.
    pub(crate) fn stand_again(&mut self, now: f64) {
        if self.standing.retry_at.is_none_or(|at| at > now) {
            return;
        }
        let tries_max = (self.cx.client.limits.patience / PAUSE_MAX) as u32;
        match self.standing.retry(tries_max) {
            Ok(items) => self.ask_standing(now, items),
            Err(((topic, payload), errnum)) => {
                let why = format!("the restarted broker refuses {topic} {payload}");
                self.end(errnum, why);
            }
        }
    }

    fn stand(&mut self, now: f64) {
        let left = self.cx.wire.asked().any(|own| matches!(own, Own::Standing(_)));
        if self.phase != Phase::Restoring || left {
            return;
        }
        if self.standing.is_refused() {
            self.standing.retry_at = Some(now + PAUSE_MAX);
        } else {
            self.phase = Phase::Settling;
            self.settle();
        }
    }

    /// Asks each namespace which commits it holds, and goes on when all are known.
    pub(crate) fn settle(&mut self) {
        for (tag, answer) in self.ledgers.take_answers() {
            if self.finish(tag).is_some() {
                self.cx.wire.give(answer);
            }
        }
        let is_settled = self.ledgers.are_settled();
        match self.phase {
            Phase::Live if !is_settled => self.phase = Phase::Settling,
            Phase::Settling if is_settled => return self.go_live(self.cx.now),
            _ => {}
        }
        if self.phase == Phase::Settling {
            self.ledgers.settle(&mut self.cx);
        }
    }

    /// Whether commits wait for the broker.
    pub(crate) fn has_unsent_commits(&self) -> bool {
        self.unsent.iter().any(|packet| packet.header().topic == "kvs.commit")
    }
}

//! Messages from the broker to the client.

use crate::channel::channel_of;
use crate::connector::Connector;
use crate::connector::repeat::EVENTLOG_WATCH;
use crate::connector::requests::HOP;
use crate::errnum::{NO_HOST, NO_SERVICE, is_offline};
use crate::packet::{ANY_RANK, Header, Kind, NO_TAG, Packet};
use crate::policy::Policy;
use crate::wire::{Own, is_own};

/// Seconds between an error that a lost parent of the broker may have caused, and the question
/// whether the broker is in RUN.
const ASK_IN_RUN_AFTER: f64 = 1.0;

impl<P: Packet> Connector<P> {
    /// A message arrived on the socket.
    pub fn receive(&mut self, now: f64, mut packet: P) {
        self.cx.now = now;
        let Header { kind, matchtag, .. } = packet.header();
        match kind {
            Kind::Response if is_own(matchtag) => self.own_answer(now, &packet),
            Kind::Response if matchtag == NO_TAG => self.cx.wire.give(packet),
            Kind::Response => self.answer(now, matchtag, packet),
            Kind::Request if self.arrived(&packet) => {}
            Kind::Request => {
                packet.push_hop(&format!("{HOP}{}", self.losses));
                self.cx.wire.give(packet);
            }
            Kind::Event | Kind::Other => self.cx.wire.give(packet),
        }
    }

    fn answer(&mut self, now: f64, tag: u32, packet: P) {
        let errnum = packet.header().errnum;
        let is_shell = self.cx.client.is_shell;
        if self.is_of_other_request(tag, &packet) {
            return;
        }
        let Some(flight) = self.flights.get_mut(&tag) else {
            let turn = self.outboxes.answered(&mut self.cx, tag, &packet);
            return self.turned(turn);
        };
        if is_offline(&packet) {
            flight.is_early = true;
            return self.await_run(now);
        }
        if errnum == 0
            && let Some(seen) = &mut flight.seen
        {
            if seen.admit(packet.payload()) {
                self.cx.wire.give(packet);
            }
            return;
        }
        let is_log = flight.request.header().topic == EVENTLOG_WATCH;
        let is_doubtful = is_log && flight.doubt_end(errnum, now);
        if (is_doubtful || flight.is_premature(errnum, now, is_shell))
            && let Some(again) = &mut flight.again
        {
            return again.pause(now);
        }
        let repeated = flight.policy != Policy::Refuse || flight.commit.is_some();
        // The broker, or its parent, may be shutting down. The request was not done.
        if errnum == NO_SERVICE || errnum == NO_HOST && repeated {
            flight.held_back = Some(packet);
            let at = if errnum == NO_SERVICE { now } else { now + ASK_IN_RUN_AFTER };
            self.ask_in_run_at = Some(self.ask_in_run_at.map_or(at, |known| known.min(at)));
            self.live_timeout(now);
            return;
        }
        self.last_answer(tag, packet);
    }

    /// Whether this answers an earlier request, which went through a channel: its matchtag is in use
    /// again, for one that does not.
    fn is_of_other_request(&self, tag: u32, packet: &P) -> bool {
        let Some(from) = channel_of(packet) else { return false };
        // A client that passes on requests of others gets their routes back.
        let is_own =
            self.flights.get(&tag).is_some_and(|flight| flight.request.first_hop().is_none());
        is_own && !self.outboxes.is_plain(&from)
    }

    /// The answer that ends a request.
    pub(crate) fn last_answer(&mut self, tag: u32, packet: P) {
        let errnum = packet.header().errnum;
        // A stream continues after a success.
        let goes_on = packet.header().streaming && errnum == 0;
        if goes_on {
            return self.cx.wire.give(packet);
        }
        let Some(flight) = self.finish(tag) else { return };
        if flight.policy == Policy::Standing && errnum == 0 {
            self.standing.granted(&flight.request);
            self.cx.client.is_shell = self.standing.is_shell();
            self.cx.client.was_shell |= self.cx.client.is_shell;
        }
        if let Some(namespace) = flight.commit {
            self.ledgers.answered(&mut self.cx, &namespace, tag, errnum);
        }
        self.cx.wire.give(packet);
    }

    /// Repeats requests to services that were not ready, and asks whether the broker is in RUN if
    /// errors are held back.
    pub(crate) fn live_timeout(&mut self, now: f64) {
        let due = self.flights.iter_mut().filter_map(|(tag, flight)| {
            let again = flight.again.as_mut()?;
            again.retry_at.take_if(|at| *at <= now)?;
            Some(*tag)
        });
        let due: Vec<u32> = due.collect();
        for tag in due {
            self.repeat(tag);
        }
        self.ask_shells();
        self.ledgers.timeout(&mut self.cx);
        self.barrier.timeout(&mut self.cx);
        if self.ask_in_run_at.is_some_and(|at| at <= now) {
            self.ask_in_run_at = None;
            let asked = self.cx.wire.asked().any(|own| *own == Own::InRun);
            if !asked {
                self.cx.wire.ask(Own::InRun, "state-machine.wait", "{}", ANY_RANK);
            }
        }
    }

    /// The broker is in RUN. What it has refused before that is sent again.
    pub(crate) fn send_early(&mut self) {
        let early = self.flights.values_mut().filter(|flight| flight.is_early);
        let mut early: Vec<(u64, P)> = early
            .map(|flight| {
                flight.is_early = false;
                if let Some(seen) = &mut flight.seen {
                    seen.resume();
                }
                (flight.order, flight.request.clone())
            })
            .collect();
        early.sort_unstable_by_key(|(order, _)| *order);
        for (_, request) in early {
            self.cx.wire.send(request);
        }
    }

    /// The broker is in RUN, so it did not fail the requests by shutting down: their errors go to
    /// the client.
    pub(crate) fn release_held_back(&mut self) {
        let held_back = self.flights.iter_mut();
        let held_back =
            held_back.filter_map(|(tag, flight)| Some((*tag, flight.held_back.take()?)));
        let held_back: Vec<(u32, P)> = held_back.collect();
        for (tag, packet) in held_back {
            self.last_answer(tag, packet);
        }
    }

    /// The broker is not in RUN any more and is shutting down.
    pub(crate) fn ask_in_run_later(&mut self, now: f64) {
        self.ask_in_run_at = Some(now + ASK_IN_RUN_AFTER);
    }
}

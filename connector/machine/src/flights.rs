//! Requests of the client that wait for their answers, and what becomes of them when the broker is
//! gone, or its services are.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::channel::is_numbered;
use crate::context::Context;
use crate::errnum::{NO_DATA, NO_HOST, NO_NAMESPACE, NO_SERVICE, RESET, is_offline};
use crate::flight::{Again, Asked, Flight};
use crate::packet::{ANY_RANK, Header, Kind, Packet};
use crate::policy::Policy;
use crate::question::Question;
use crate::wire::{Own, Queue, is_own};

/// Seconds between an error that a lost parent of the broker may have caused, and the question
/// whether the broker is in RUN.
const ASK_IN_RUN_AFTER: f64 = 1.0;

/// What an answer means.
pub(crate) enum Answered<P> {
    /// No more than that it has come.
    Taken,
    /// The broker is only just starting. Nothing more is to be sent before it is in RUN.
    Early,
    /// The request has ended, with this errno.
    Last(Flight<P>, i32),
}

/// All requests that wait for an answer, other than those in channels.
#[derive(Clone, Debug)]
pub(crate) struct Flights<P> {
    /// By matchtag.
    flights: BTreeMap<u32, Flight<P>>,
    /// Encoded size of the requests.
    bytes: usize,
    /// How many there have been.
    orders: u64,
    /// Whether the broker is still in RUN: errors are held back until it has said so.
    in_run: Question,
}

impl<P> Default for Flights<P> {
    fn default() -> Self {
        Self { flights: BTreeMap::new(), bytes: 0, orders: 0, in_run: Question::default() }
    }
}

impl<P: Packet> Flights<P> {
    /// The client waits for the answer to this request.
    pub(crate) fn begin(&mut self, cx: &Context<P>, mut flight: Flight<P>) {
        self.orders += 1;
        flight.order = self.orders;
        // If a commit were repeated by itself, it would be applied after later ones.
        if cx.is_patient() && flight.commit.is_none() {
            flight.again = Some(Again::new(cx.patient_until, false));
        }
        self.bytes += flight.request.size();
        self.flights.insert(flight.request.header().matchtag, flight);
    }

    pub(crate) fn get(&self, tag: u32) -> Option<&Flight<P>> {
        self.flights.get(&tag)
    }

    /// Forgets a request that has had its last answer.
    pub(crate) fn finish(&mut self, cx: &mut Context<P>, tag: u32) -> Option<Flight<P>> {
        let mut flight = self.flights.remove(&tag)?;
        if let Some(again) = &mut flight.again {
            again.question.withdraw(cx);
        }
        self.bytes -= flight.request.size();
        Some(flight)
    }

    /// Ends a request with this answer of the connector's own.
    pub(crate) fn end(&mut self, cx: &mut Context<P>, tag: u32, answer: impl FnOnce(&P) -> P) {
        if let Some(flight) = self.finish(cx, tag) {
            cx.wire.give(answer(&flight.request));
        }
    }

    /// Ends requests with an error.
    pub(crate) fn refuse(
        &mut self,
        cx: &mut Context<P>,
        errnum: i32,
        why: &str,
        which: impl Fn(&Flight<P>) -> bool,
    ) {
        for tag in self.tags(which) {
            if let Some(flight) = self.finish(cx, tag) {
                cx.wire.refuse(&flight.request, errnum, why);
            }
        }
    }

    /// Matchtags in the order in which the client has sent the requests.
    fn tags(&self, which: impl Fn(&Flight<P>) -> bool) -> Vec<u32> {
        let flights = self.flights.iter().filter(|(_, flight)| which(flight));
        let mut tags: Vec<(u64, u32)> = flights.map(|(tag, flight)| (flight.order, *tag)).collect();
        tags.sort_unstable();
        tags.into_iter().map(|(_, tag)| tag).collect()
    }

    /// The client cancels a watch. The service answers the watch, not this request (flux-core
    /// `modules/kvs-watch`, `modules/job-info`). Returns the request as it is to be sent: to where
    /// the watch is.
    pub(crate) fn cancel(&mut self, cx: &mut Context<P>, packet: P) -> P {
        let payload: Value = serde_json::from_slice(packet.payload()).unwrap_or_default();
        let tag = payload["matchtag"].as_u64().and_then(|tag| u32::try_from(tag).ok());
        let Some(tag) = tag else { return packet };
        let Some(flight) = self.flights.get_mut(&tag) else { return packet };
        flight.is_cancelled = true;
        let to = flight.request.header().rank;
        let packet = if flight.asked == Asked::Own { packet } else { packet.to_rank(to) };
        // Between two tries the broker has no such watch, and will not answer.
        if flight.again.is_some_and(|again| again.question.is_planned()) {
            self.end(cx, tag, |request| request.refusal(NO_DATA, ""));
        }
        packet
    }

    /// A response has arrived.
    pub(crate) fn answered(&mut self, cx: &mut Context<P>, tag: u32, packet: P) -> Answered<P> {
        let errnum = packet.header().errnum;
        let Some(flight) = self.flights.get_mut(&tag) else { return Answered::Taken };
        if is_offline(&packet) {
            flight.is_early = true;
            return Answered::Early;
        }
        if errnum == 0
            && let Some(seen) = &mut flight.seen
        {
            if seen.admit(packet.payload()) {
                cx.wire.give(packet);
            }
            return Answered::Taken;
        }
        let has_failed = errnum != 0 && errnum != NO_DATA;
        if has_failed && flight.ask_another(errnum, &cx.client) {
            if flight.is_cancelled {
                self.end(cx, tag, |request| request.refusal(NO_DATA, ""));
            } else {
                self.send_again(cx, tag);
            }
            return Answered::Taken;
        }
        let is_premature = flight.doubt_end(errnum, cx.now)
            || flight.is_premature(errnum, cx.now, cx.client.is_shell);
        if is_premature && let Some(again) = &mut flight.again {
            again.question.fail(cx.now);
            return Answered::Taken;
        }
        let is_repeated = flight.policy != Policy::Refuse || flight.commit.is_some();
        // The broker, or its parent, may be shutting down. The request was not done.
        if errnum == NO_SERVICE || errnum == NO_HOST && is_repeated {
            flight.held_back = Some(packet);
            let is_asked = self.in_run.is_open();
            match errnum {
                NO_SERVICE if is_asked => {}
                NO_SERVICE => self.ask_in_run(cx),
                _ => self.in_run.plan(cx.now + ASK_IN_RUN_AFTER),
            }
            return Answered::Taken;
        }
        self.last(cx, tag, packet)
    }

    /// The answer may be the one that ends the request: a stream continues after a success.
    fn last(&mut self, cx: &mut Context<P>, tag: u32, packet: P) -> Answered<P> {
        let Header { streaming, errnum, .. } = packet.header();
        let ended = if streaming && errnum == 0 { None } else { self.finish(cx, tag) };
        cx.wire.give(packet);
        ended.map_or(Answered::Taken, |flight| Answered::Last(flight, errnum))
    }

    fn ask_in_run(&mut self, cx: &mut Context<P>) {
        self.in_run.ask(cx, Own::InRun, ("state-machine.wait", "{}".to_string(), ANY_RANK));
    }

    /// The broker has said whether it is in RUN. If so, it did not fail the requests by shutting down:
    /// their errors go to the client.
    pub(crate) fn in_run_answered(&mut self, cx: &mut Context<P>, errnum: i32) -> Vec<Answered<P>> {
        self.in_run.answered();
        if errnum != 0 {
            self.in_run.plan(cx.now + ASK_IN_RUN_AFTER);
            return Vec::new();
        }
        self.in_run.cancel();
        let held_back = self.flights.iter_mut();
        let held_back =
            held_back.filter_map(|(tag, flight)| Some((*tag, flight.held_back.take()?)));
        let held_back: Vec<(u32, P)> = held_back.collect();
        held_back.into_iter().map(|(tag, packet)| self.last(cx, tag, packet)).collect()
    }

    /// The connection was lost. Requests that cannot be repeated end. Returns what counts as not sent:
    /// what failed because the service was missing or the broker was not ready, and what was not
    /// written to the socket.
    pub(crate) fn lost(&mut self, cx: &mut Context<P>) -> Queue<P> {
        self.in_run = Question::default();
        let mut unsent = Queue::default();
        for tag in self.tags(|flight| flight.is_undone() && !flight.is_repeated()) {
            self.finish(cx, tag).into_iter().for_each(|flight| unsent.push(flight.request));
        }
        let mut unwritten = cx.wire.lost();
        while let Some(packet) = unwritten.pop() {
            let Header { kind, matchtag, .. } = packet.header();
            let flight = self.flights.get(&matchtag).filter(|_| kind == Kind::Request);
            // The connector keeps a copy of these, and sends it again.
            let is_kept = flight.is_some_and(Flight::is_repeated);
            if kind == Kind::Response || is_kept || is_own(matchtag) || is_numbered(&packet) {
                continue;
            }
            if flight.is_some() {
                self.finish(cx, matchtag);
            }
            unsent.push(packet);
        }
        for flight in self.flights.values_mut() {
            (flight.held_back, flight.is_early) = (None, false);
        }
        let why = "the broker was restarted: the request may or may not have been done";
        self.refuse(cx, RESET, why, |flight| !flight.is_repeated());
        unsent
    }

    /// The connection is restored: repeats the unanswered requests, in the order in which the client
    /// sent them. `foreign`: the job of the client, if it is another run's.
    pub(crate) fn ask_again(&mut self, cx: &mut Context<P>, foreign: Option<u64>) {
        for tag in self.tags(|_| true) {
            let Some(flight) = self.flights.get_mut(&tag) else { continue };
            flight.come_home();
            if foreign.is_some_and(|job| flight.changes(job)) {
                self.end(cx, tag, |request| request.answer("{}"));
            } else if flight.commit.is_some() {
                // The ledger repeats it.
            } else if flight.is_cancelled {
                self.end(cx, tag, |request| request.refusal(NO_DATA, ""));
            } else {
                flight.again = Some(Again::new(cx.patient_until, true));
                self.repeat(cx, tag);
            }
        }
    }

    /// The broker is in RUN. What it has refused before that is sent again.
    pub(crate) fn send_early(&mut self, cx: &mut Context<P>) {
        for tag in self.tags(|flight| flight.is_early) {
            self.send_again(cx, tag);
        }
    }

    /// Sends a request again. For a watch of the client's own job it asks first whether the job's guest
    /// namespace is there, which the job's leader sees to: flux-core's job-info logs an error for each
    /// watch that finds none (`modules/job-info/guest_watch.c`, `main_namespace_watch_continuation()`).
    fn repeat(&mut self, cx: &mut Context<P>, tag: u32) {
        let Some(flight) = self.flights.get_mut(&tag) else { return };
        if let Some(run) = cx.client.run.as_ref().filter(|run| flight.watches(run.job))
            && let Some(again) = &mut flight.again
        {
            let payload = json!({ "namespace": run.namespace() }).to_string();
            let request = ("kvs.getroot", payload, cx.client.home());
            return again.question.ask(cx, Own::Watch(tag), request);
        }
        self.send_again(cx, tag);
    }

    fn send_again(&mut self, cx: &mut Context<P>, tag: u32) {
        let Some(flight) = self.flights.get_mut(&tag) else { return };
        flight.is_early = false;
        if let Some(again) = &mut flight.again {
            again.question.cancel();
        }
        if let Some(seen) = &mut flight.seen {
            seen.resume();
        }
        cx.wire.send(flight.request.clone());
    }

    /// The KVS has said whether there is the namespace that a watch needs.
    pub(crate) fn namespace_found(&mut self, cx: &mut Context<P>, tag: u32, errnum: i32) {
        let again = self.flights.get_mut(&tag).and_then(|flight| flight.again.as_mut());
        let Some(again) = again else { return };
        again.question.answered();
        if errnum == NO_NAMESPACE && cx.now < again.until {
            again.question.fail(cx.now);
        } else {
            self.send_again(cx, tag);
        }
    }

    /// When to call [`Flights::timeout`], if the connection is live.
    pub(crate) fn next(&self) -> Option<f64> {
        let again = self.flights.values().filter_map(|flight| flight.again?.question.next());
        again.chain(self.in_run.next()).reduce(f64::min)
    }

    /// Repeats requests to services that were not ready, and asks whether the broker is in RUN if
    /// errors are held back.
    pub(crate) fn timeout(&mut self, cx: &mut Context<P>) {
        let is_due =
            |flight: &Flight<P>| flight.again.is_some_and(|again| again.question.is_due(cx.now));
        for tag in self.tags(is_due) {
            self.repeat(cx, tag);
        }
        if self.in_run.is_due(cx.now) {
            self.ask_in_run(cx);
        }
    }

    /// Encoded size of the requests.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

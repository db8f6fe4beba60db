//! Requests to the services of job shells, and their answers, through channels.
//!
//! A channel is halted when a message may be lost: this client has lost its connection, or a
//! broker has answered that the receiver cannot be reached. Then the connector asks the receiver
//! what it has, until it answers, and sends the rest again. Requests without an answer give no sign
//! of a loss. So the receiver is also asked some time after each.

use serde::Deserialize;

use crate::channel::{Flow, Kept, NEEDED, Origin, Outbox, Peer, Question, RECEIVED, Received};
use crate::connector::{Connector, Phase};
use crate::errnum::{NO_HOST, NO_PROCESS, NO_SERVICE, TRY_AGAIN, is_unreachable};
use crate::inbox::{Admitted, Arrived};
use crate::packet::{Header, Packet};
use crate::run::Run;
use crate::wire::Own;

/// Prefix of the hop that is added to a request for the client; the rest names the request.
pub(crate) const ARRIVED: &str = "resume-channel-";
/// Seconds after a request without an answer until the receiver is asked whether it has it.
const ASK_AFTER: f64 = 2.0;
/// Seconds after a request with an answer until the receiver is asked whether it has it. A broker
/// that is lost on the way is told at once, so this should not be needed.
const ASK_TAGGED_AFTER: f64 = 30.0;
/// Seconds after the last answer until the receiver is told that it need not keep it.
const TELL_AFTER: f64 = 10.0;
/// The receiver is asked at once when requests of this many bytes were sent without an answer.
const UNASKED_MAX: usize = 1 << 20;
/// Seconds for which the receiver's broker may be in RUN before the receiver has its service
/// again, if its module cannot say whether it runs. Its connector tries to connect every 2 s.
pub(crate) const BACK_AFTER: f64 = 10.0;
/// When it counts as ended even if the module of its rank says that it runs: it has given its service
/// up, and hears nothing any more.
pub(crate) const SURELY_BACK_AFTER: f64 = 60.0;
/// The method of a shell's service that takes input.
const INPUT: &str = ".stdin";
/// Asks the module of a rank whether the job's shell runs there.
pub(crate) const SHELL_RUNS: &str = "job-exec.shell-runs";
/// How libflux answers for a client that does not know the method (flux-core
/// `libflux/msg_handler.c`). A broker without the service has another text.
const UNKNOWN_METHOD: &[u8] = b"Unknown service method";

/// Whether a client, and not a broker, has answered `ENOSYS`.
pub(crate) fn is_unknown_method<P: Packet>(answer: &P) -> bool {
    answer.payload().starts_with(UNKNOWN_METHOD)
}

/// The answer to `state-machine.get` (flux-core `broker/state_machine.c`).
#[derive(Deserialize)]
struct BrokerState {
    state: String,
    /// Seconds in this state.
    duration: f64,
}

/// The state in which a broker serves its clients.
const RUN: &str = "run";

/// For how many seconds the broker that has answered is in RUN; none if it is not.
pub(crate) fn runs_for<P: Packet>(answer: &P) -> Option<f64> {
    let answer = Some(answer).filter(|answer| answer.header().errnum == 0)?;
    let BrokerState { state, duration } = serde_json::from_slice(answer.payload()).ok()?;
    (state == RUN).then_some(duration)
}

/// Whether this is input for tasks (flux-core `shell/input/service.c`).
fn is_input<P: Packet>(request: &P) -> bool {
    request.header().topic.ends_with(INPUT)
}

/// Whether a shell has ended, by what the module of its rank has answered to [`SHELL_RUNS`].
pub(crate) fn has_ended<P: Packet>(answer: &P, is_back: bool) -> bool {
    match answer.header().errnum {
        // The module may just have been loaded.
        0 | NO_HOST | TRY_AGAIN => false,
        NO_PROCESS => true,
        _ => is_back,
    }
}

/// The payload of [`SHELL_RUNS`].
pub(crate) fn job_payload(id: u64) -> String {
    format!("{{\"id\":{id}}}")
}

impl<P: Packet> Connector<P> {
    /// Sends a request of the client through its channel. `tag` is none if it gets no answer.
    /// Returns its number; none if the receiver does not know channels.
    pub(crate) fn channel(
        &mut self,
        now: f64,
        peer: &Peer,
        request: &P,
        tag: Option<u32>,
    ) -> Option<u64> {
        let outbox = self.outbox(peer);
        if outbox.flow == Flow::Plain {
            return None;
        }
        let kept = tag.map_or_else(|| Kept::OneWay(request.clone()), Kept::Tagged);
        let number = outbox.enter(kept);
        outbox.inquiry.ask_by(now + outbox.patience());
        if outbox.flow == Flow::Open {
            let request = outbox.addressed(number, request);
            self.wire.send(request);
        }
        if tag.is_none() {
            self.kept += request.size();
        }
        Some(number)
    }

    fn outbox(&mut self, peer: &Peer) -> &mut Outbox<P> {
        if !self.outboxes.contains_key(peer) {
            self.channels += 1;
            let home = self.client.rank.filter(|_| self.client.is_shell);
            self.may_be_leader(peer);
            let run =
                self.client.run.as_ref().filter(|run| peer.job() == Some(run.job)).map(Run::mark);
            self.outboxes
                .insert(peer.clone(), Outbox::new(self.client.id, self.channels, home, run));
        }
        self.outboxes.get_mut(peer).expect("it was just made")
    }

    /// A response to request `number` of a channel has arrived, with this matchtag.
    pub(crate) fn channel_answer(
        &mut self,
        now: f64,
        (peer, number): (Peer, u64),
        tag: u32,
        mut packet: P,
    ) {
        let errnum = packet.header().errnum;
        let Some(outbox) = self.outboxes.get_mut(&peer) else { return };
        match outbox.origin(number, &packet) {
            Origin::Receiver => self.heard(now, &peer, |outbox| outbox.answered(number)),
            Origin::Stale => return,
            Origin::Other if is_unreachable(&packet) => return self.unreachable(now, &peer),
            Origin::Other if errnum == NO_SERVICE && !is_unknown_method(&packet) => {
                return self.missing(now, &peer);
            }
            Origin::Other => {
                outbox.answered(number);
                self.give_up_numbers(&peer);
            }
        }
        packet = packet.with_hops(&[]);
        self.last_answer(tag, packet);
    }

    /// The receiver has answered.
    fn heard(&mut self, now: f64, peer: &Peer, what: impl FnOnce(&mut Outbox<P>)) {
        let is_closing = self.client.is_closing;
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        let before = outbox.bytes;
        what(outbox);
        outbox.trouble = false;
        outbox.inquiry.reached();
        if outbox.flow == Flow::Open {
            if !outbox.has_one_way() {
                outbox.inquiry.cancel();
            }
            let wait = if is_closing { 0.0 } else { outbox.patience() };
            if outbox.entries().next().is_some() || outbox.is_untold() {
                outbox.inquiry.ask_by(now + wait);
            }
        }
        self.kept -= before - outbox.bytes;
    }

    /// The receiver does not know channels. What was not sent yet is sent without a number. For the
    /// rest it is as without channels.
    fn give_up_numbers(&mut self, peer: &Peer) {
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        outbox.flow = Flow::Plain;
        outbox.inquiry.cancel();
        self.kept -= outbox.bytes;
        let (trouble, entries) = (outbox.trouble, outbox.take());
        let entries: Vec<(bool, Kept<P>)> =
            entries.into_iter().map(|(number, kept)| (outbox.was_sent(number), kept)).collect();
        for (was_sent, kept) in entries {
            match kept {
                Kept::OneWay(packet) if !was_sent => self.wire.send(packet),
                Kept::OneWay(_) => {}
                Kept::Tagged(tag) if was_sent && trouble => {
                    self.refuse(tag, NO_HOST, "the shell cannot be reached");
                }
                Kept::Tagged(tag) => {
                    let Some(flight) = self.flights.get_mut(&tag) else { continue };
                    flight.channel = None;
                    let request = flight.request.clone();
                    if !was_sent {
                        self.wire.send(request);
                    }
                }
            }
        }
    }

    fn unreachable(&mut self, now: f64, peer: &Peer) {
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        outbox.trouble = true;
        outbox.halt(now);
    }

    /// The broker does not have the service. It may be shutting down, or just be back, even if this
    /// client has not noticed.
    fn missing(&mut self, now: f64, peer: &Peer) {
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        outbox.flow = Flow::Halted;
        // The answer to the question that is under way comes first.
        if !outbox.inquiry.is_open() {
            outbox.inquiry.asked(now);
            let own = Own::PeerRuns(peer.clone());
            self.wire.ask(own, "state-machine.get", "{}", peer.rank);
        }
    }

    /// The broker of the receiver has said since when it is in RUN, because the service is missing.
    pub(crate) fn peer_runs(&mut self, now: f64, peer: &Peer, answer: &P) {
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        outbox.inquiry.answered();
        let Some(duration) = runs_for(answer) else { return self.unreachable(now, peer) };
        let is_back = duration >= BACK_AFTER;
        match peer.job().filter(|_| duration < SURELY_BACK_AFTER) {
            Some(id) => {
                outbox.inquiry.asked(now);
                let own = Own::PeerShell(peer.clone(), is_back);
                self.wire.ask(own, SHELL_RUNS, &job_payload(id), peer.rank);
            }
            None if is_back => self.gone(peer),
            None => outbox.halt(now),
        }
    }

    /// The module of the receiver's rank has said whether the receiver runs. On a busy node it can take
    /// long to be back. If the module does not know, a shell whose broker is back counts as ended.
    pub(crate) fn peer_shell(&mut self, now: f64, peer: &Peer, is_back: bool, answer: &P) {
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        outbox.inquiry.answered();
        if has_ended(answer, is_back) {
            self.gone(peer);
        } else {
            outbox.halt(now);
        }
    }

    /// The receiver has ended.
    fn gone(&mut self, peer: &Peer) {
        let Some(mut outbox) = self.outboxes.remove(peer) else { return };
        self.kept -= outbox.bytes;
        self.leader_ended |= self.leader.as_ref() == Some(peer);
        for (number, kept) in outbox.take() {
            let Kept::Tagged(tag) = kept else { continue };
            let may_have_it = outbox.trouble && outbox.was_sent(number);
            match self.flights.get(&tag).map(|flight| &flight.request) {
                Some(request) if may_have_it && is_input(request) => {
                    let taken = request.answer("{}");
                    self.last_answer(tag, taken);
                }
                _ => self.refuse(tag, NO_SERVICE, "the shell has ended"),
            }
        }
    }

    /// The receiver has said what it has.
    pub(crate) fn received(&mut self, now: f64, peer: &Peer, answer: &P) {
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        outbox.inquiry.answered();
        let Header { errnum, .. } = answer.header();
        let received = serde_json::from_slice::<Received>(answer.payload());
        match (errnum, received) {
            (0, Ok(Received { received })) => {
                let is_other = outbox.is_other(received);
                let is_behind = outbox.is_behind(received) || outbox.flow == Flow::Halted;
                self.heard(now, peer, |outbox| outbox.has(received));
                if is_other {
                    self.begin_again(now, peer);
                } else if is_behind {
                    self.send_again(now, peer);
                }
            }
            _ if is_unreachable(answer) => self.unreachable(now, peer),
            (NO_SERVICE, _) if !is_unknown_method(answer) => {
                self.missing(now, peer);
            }
            _ => self.give_up_numbers(peer),
        }
    }

    /// Another process has the service now, and none of the requests that the last one had.
    fn begin_again(&mut self, now: f64, peer: &Peer) {
        let Some(mut old) = self.outboxes.remove(peer) else { return };
        let entries = old.take();
        self.kept -= entries.iter().map(|(_, kept)| kept.size()).sum::<usize>();
        for (_, kept) in entries {
            match kept {
                Kept::OneWay(packet) => {
                    self.channel(now, peer, &packet, None);
                }
                Kept::Tagged(tag) => {
                    let request = self.flights.get(&tag).map(|flight| flight.request.clone());
                    let Some(request) = request else { continue };
                    let number = self.channel(now, peer, &request, Some(tag));
                    if let Some(flight) = self.flights.get_mut(&tag) {
                        flight.channel = number.map(|number| (peer.clone(), number));
                    }
                }
            }
        }
    }

    /// Sends all that is kept, in order. What the receiver has it drops, or answers again.
    fn send_again(&mut self, now: f64, peer: &Peer) {
        let Some(outbox) = self.outboxes.get_mut(peer) else { return };
        outbox.flow = Flow::Open;
        let entries: Vec<(u64, Kept<P>)> = outbox.entries().cloned().collect();
        let mut again = Vec::new();
        for (number, kept) in entries {
            let request = match kept {
                Kept::OneWay(packet) => Some(packet),
                Kept::Tagged(tag) => self.flights.get(&tag).map(|flight| flight.request.clone()),
            };
            again.extend(request.map(|request| outbox.addressed(number, &request)));
        }
        outbox.inquiry.ask_by(now + outbox.patience());
        for request in again {
            self.wire.send(request);
        }
    }

    /// The connection was lost: any message may be.
    pub(crate) fn halt_channels(&mut self, now: f64) {
        for outbox in self.outboxes.values_mut().filter(|outbox| outbox.flow != Flow::Plain) {
            (outbox.flow, outbox.trouble) = (Flow::Halted, true);
            outbox.inquiry.lost(now);
        }
    }

    /// The connection is restored. Answers that were not sent, or not delivered, are sent.
    pub(crate) fn resume_channels(&mut self, now: f64) {
        for answer in self.inboxes.answers() {
            self.wire.send(answer);
        }
        self.ask_receivers(now);
    }

    /// Asks the receivers whose time has come.
    pub(crate) fn ask_receivers(&mut self, now: f64) {
        let is_due = |outbox: &Outbox<P>| outbox.inquiry.next().is_some_and(|at| at <= now);
        let due = self.outboxes.iter_mut().filter(|(_, outbox)| is_due(outbox));
        let due = due.map(|(peer, outbox)| {
            outbox.inquiry.asked(now);
            (peer.clone(), outbox.question())
        });
        let due: Vec<(Peer, String)> = due.collect();
        for (peer, question) in due {
            // Only the answer to the last question counts.
            self.wire.retain(|own| own.receiver() != Some(&peer));
            let (topic, rank) = (format!("{}{RECEIVED}", peer.service), peer.rank);
            self.wire.ask(Own::Received(peer), &topic, &question, rank);
        }
    }

    /// When to ask a receiver next.
    pub(crate) fn next_question(&self) -> Option<f64> {
        self.outboxes.values().filter_map(|outbox| outbox.inquiry.next()).reduce(f64::min)
    }

    /// A request from the broker: false if it is not one of a channel.
    pub(crate) fn arrived(&mut self, packet: &P) -> bool {
        if packet.header().topic.ends_with(RECEIVED) {
            return self.asked(packet);
        }
        if packet.header().topic.ends_with(NEEDED) {
            return self.asked_what_it_needs(packet);
        }
        let Some(arrived) = Arrived::read(packet) else { return false };
        // Its sender hears that when it asks what has arrived.
        if self.client.is_of_other_run(arrived.run.as_deref()) {
            return true;
        }
        match self.inboxes.admit(arrived) {
            Admitted::Deliver(name, mut request) => {
                request.push_hop(&format!("{ARRIVED}{name}"));
                self.wire.give(request);
            }
            Admitted::Again(answer) => self.wire.send(answer),
            Admitted::Drop => {}
        }
        true
    }

    /// A sender asks what this client has received.
    fn asked(&mut self, packet: &P) -> bool {
        let question = serde_json::from_slice::<Question>(packet.payload()).ok();
        let Some(question) = question.filter(|_| packet.is_trusted()) else { return false };
        if self.client.is_of_other_run(question.run.as_deref()) {
            let text = "another run of the job has this service";
            self.wire.send(packet.refusal(NO_HOST, text));
            return true;
        }
        let Some(answer) = self.inboxes.received(&question) else { return false };
        let answer = serde_json::to_string(&answer).unwrap_or_default();
        self.wire.send(packet.answer(&answer));
        true
    }

    /// The client has answered the request that was delivered with this name.
    pub(crate) fn answer_arrived(&mut self, name: &str, answer: P) {
        let response = self.inboxes.answer(name, answer);
        // Without a connection, it is sent when there is one.
        if !matches!(self.phase, Phase::Down { .. })
            && let Some(response) = response
        {
            self.wire.send(response);
        }
    }

    /// Whether receivers do not have messages of the client to which it does not wait for an
    /// answer.
    pub(crate) fn has_undelivered(&self) -> bool {
        let one_way = |packet: &P| packet.header().noresponse && Peer::of(packet).is_some();
        self.outboxes.values().any(Outbox::has_one_way) || self.unsent.iter().any(one_way)
    }

    /// The client is about to close the connection: asks receivers at once.
    pub(crate) fn hurry_channels(&mut self, now: f64) {
        for outbox in self.outboxes.values_mut().filter(|outbox| outbox.has_one_way()) {
            outbox.inquiry.ask_by(now);
        }
        if self.phase == Phase::Live {
            self.ask_receivers(now);
        }
    }
}

impl<P: Packet> Outbox<P> {
    /// How long the receiver need not be asked what it has, in seconds.
    fn patience(&self) -> f64 {
        if self.unasked > UNASKED_MAX {
            0.0
        } else if self.has_one_way() {
            ASK_AFTER
        } else if self.entries().next().is_some() {
            ASK_TAGGED_AFTER
        } else {
            TELL_AFTER
        }
    }

    /// A message may be lost.
    fn halt(&mut self, now: f64) {
        self.flow = Flow::Halted;
        // The answer to the question that is under way comes first.
        if !self.inquiry.is_open() {
            self.inquiry.ask_later(now);
        }
    }
}

impl<P: Packet> Kept<P> {
    fn size(&self) -> usize {
        match self {
            Self::OneWay(packet) => packet.size(),
            Self::Tagged(_) => 0,
        }
    }
}

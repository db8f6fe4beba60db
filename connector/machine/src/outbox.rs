//! The sender's end of channels ([`crate::channel`]): requests of the client to the services of job
//! shells.
//!
//! A channel is halted when a message may be lost: this client has lost its connection, or a
//! broker has answered that the receiver cannot be reached. Then the connector asks the receiver
//! what it has, until it answers, and sends the rest again. Requests without an answer give no sign
//! of a loss. So the receiver is also asked some time after each.

use std::collections::{BTreeMap, VecDeque};

use crate::channel::{
    ALL_DONE, ASK, GOT, HOME, Needed, OF_RUN, Peer, RECEIVED, Received, WhichNeeded, WhichReceived,
    join_from,
};
use crate::context::{Client, Context};
use crate::errnum::{NO_HOST, NO_SERVICE, is_unreachable};
use crate::inquiry::{self, Heard, is_missing};
use crate::packet::Packet;
use crate::question::Question;
use crate::run::Run;
use crate::wire::{Own, Step};

/// Seconds after a request without an answer until the receiver is asked whether it has it.
const ASK_AFTER: f64 = 2.0;
/// Seconds after a request with an answer until the receiver is asked whether it has it. A broker
/// that is lost on the way is told at once, so this should not be needed.
const ASK_TAGGED_AFTER: f64 = 30.0;
/// Seconds after the last answer until the receiver is told that it need not keep it.
const TELL_AFTER: f64 = 10.0;
/// The receiver is asked at once when requests of this many bytes were sent without an answer.
const UNASKED_MAX: usize = 1 << 20;
/// The method of a shell's service that takes input for tasks (flux-core
/// `shell/input/service.c`).
const INPUT: &str = ".stdin";

/// A request that the sender keeps.
#[derive(Clone, Debug)]
struct Kept<P> {
    number: u64,
    request: P,
    /// Its matchtag: it is kept until it is answered. None if it is not: until the receiver has it.
    tag: Option<u32>,
}

/// Whether messages of the channel are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Flow {
    /// As they come.
    Open,
    /// Some may be lost: none is sent before the receiver has said what it has.
    Halted,
    /// As they come, without a number: the receiver does not know channels.
    Plain,
}

/// What has become of a channel.
pub(crate) enum Turn<P> {
    /// It goes on.
    Same,
    /// The receiver does not know channels. These requests wait for their answers without one.
    Plain(Vec<P>),
    /// The receiver has ended.
    Gone,
}

/// The sender's end of one channel.
#[derive(Clone, Debug)]
struct Outbox<P> {
    from: String,
    /// The hops that say where the sender can be asked, and of which run of the job it is.
    about: Vec<String>,
    /// The mark of that run.
    run: Option<String>,
    next: u64,
    entries: VecDeque<Kept<P>>,
    /// Encoded size of all that is kept.
    bytes: usize,
    /// Encoded size of those that were sent without an answer since the receiver was asked.
    unasked: usize,
    /// Requests up to here were sent at least once.
    sent: u64,
    /// The receiver has everything up to here.
    received: u64,
    flow: Flow,
    /// The question what the receiver has.
    question: Question,
    /// A connection was lost since the receiver was last heard.
    trouble: bool,
    /// The last number when the receiver was asked.
    asked_at: u64,
    /// The receiver knows that requests before this one need no answer any more.
    told: u64,
}

impl<P: Packet> Outbox<P> {
    fn new(client: &Client, number: u64, peer: &Peer) -> Self {
        let run = client.run.as_ref().filter(|_| client.is_of(peer.job())).map(Run::mark);
        let home = client.rank.filter(|_| client.is_shell).map(|rank| format!("{HOME}{rank}"));
        let of_run = run.as_ref().map(|run| format!("{OF_RUN}{run}"));
        Self {
            from: join_from(&client.name(), number),
            about: home.into_iter().chain(of_run).collect(),
            run,
            next: 1,
            entries: VecDeque::new(),
            bytes: 0,
            unasked: 0,
            sent: 0,
            received: 0,
            flow: Flow::Open,
            question: Question::default(),
            trouble: false,
            asked_at: 0,
            told: 1,
        }
    }

    fn send(&mut self, cx: &mut Context<P>, request: P, tag: Option<u32>) {
        let number = self.next;
        self.next += 1;
        if tag.is_none() {
            self.unasked += request.size();
        }
        self.bytes += request.size();
        self.entries.push_back(Kept { number, request: request.clone(), tag });
        self.question.plan(cx.now + self.patience());
        if self.flow == Flow::Open {
            cx.wire.send(self.addressed(number, &request));
        }
    }

    /// The request as it is sent.
    fn addressed(&mut self, number: u64, request: &P) -> P {
        self.told = self.done();
        self.sent = self.sent.max(number);
        let mut hops = vec![self.from.clone(), format!("{ASK}{number}.{}", self.told)];
        hops.extend(self.about.iter().cloned());
        request.with_hops(&hops)
    }

    /// All requests before this one need no answer any more.
    fn done(&self) -> u64 {
        let first = self.entries.iter().find(|kept| kept.tag.is_some());
        first.map_or(self.next, |kept| kept.number)
    }

    /// How long the receiver need not be asked what it has, in seconds.
    fn patience(&self) -> f64 {
        match &self.entries {
            _ if self.unasked > UNASKED_MAX => 0.0,
            _ if self.has_one_way() => ASK_AFTER,
            entries if !entries.is_empty() => ASK_TAGGED_AFTER,
            _ => TELL_AFTER,
        }
    }

    /// Asks the receiver what it has.
    fn ask(&mut self, cx: &mut Context<P>, peer: &Peer) {
        self.told = self.done();
        (self.asked_at, self.unasked) = (self.next - 1, 0);
        let from = self.from.clone();
        let payload = WhichReceived { from, done: self.told, run: self.run.clone() };
        let payload = serde_json::to_string(&payload).unwrap_or_default();
        let request = (&*format!("{}{RECEIVED}", peer.service), payload, peer.rank);
        let own = Own::Receiver(peer.clone(), Step::Shell);
        self.question.ask_patiently(cx, own, request);
    }

    /// This request has its answer.
    fn answered(&mut self, number: u64) {
        self.keep(|kept| kept.number != number);
        self.has(number);
    }

    /// The receiver has everything up to `number`.
    fn has(&mut self, number: u64) {
        self.received = self.received.max(number);
        self.keep(|kept| kept.tag.is_some() || kept.number > number);
    }

    fn keep(&mut self, is_kept: impl Fn(&Kept<P>) -> bool) {
        self.entries.retain(|kept| is_kept(kept));
        self.bytes = self.entries.iter().map(|kept| kept.request.size()).sum();
    }

    fn take(&mut self) -> VecDeque<Kept<P>> {
        self.bytes = 0;
        std::mem::take(&mut self.entries)
    }

    /// Whether a request without an answer has not arrived, as far as is known.
    fn has_one_way(&self) -> bool {
        self.entries.iter().any(|kept| kept.tag.is_none())
    }

    /// The receiver has answered.
    fn reached(&mut self, cx: &Context<P>) {
        self.trouble = false;
        self.question.succeed();
        if self.flow != Flow::Open {
            return;
        }
        if !self.has_one_way() {
            self.question.cancel();
        }
        // Whether the receiver may keep answers that it could drop.
        let is_untold = self.told < self.done() && self.next > 1;
        if !self.entries.is_empty() || is_untold {
            self.question.plan(cx.now + if cx.client.is_closing { 0.0 } else { self.patience() });
        }
    }

    /// A message may be lost.
    fn halt(&mut self, cx: &Context<P>) {
        self.flow = Flow::Halted;
        // The answer to the question that is under way comes first.
        if !self.question.is_open() {
            self.question.fail(cx.now);
        }
    }

    fn unreachable(&mut self, cx: &Context<P>) {
        self.trouble = true;
        self.halt(cx);
    }

    /// The receiver does not know channels. What was not sent yet is sent without a number. For the
    /// rest it is as without channels.
    fn give_up_numbers(&mut self, cx: &mut Context<P>) -> Turn<P> {
        self.flow = Flow::Plain;
        self.question.cancel();
        let mut waiting = Vec::new();
        for Kept { number, request, tag } in self.take() {
            let was_sent = number <= self.sent;
            if !was_sent {
                cx.wire.send(request.clone());
            }
            match tag {
                Some(_) if was_sent && self.trouble => {
                    cx.wire.refuse(&request, NO_HOST, "the shell cannot be reached");
                }
                Some(_) => waiting.push(request),
                None => {}
            }
        }
        Turn::Plain(waiting)
    }

    /// Sends all that is kept, in order. What the receiver has it drops, or answers again.
    fn send_again(&mut self, cx: &mut Context<P>) {
        self.flow = Flow::Open;
        for Kept { number, request, .. } in self.entries.clone() {
            cx.wire.send(self.addressed(number, &request));
        }
        self.question.plan(cx.now + self.patience());
    }

    /// The receiver has ended.
    fn end(self, cx: &mut Context<P>) {
        for Kept { number, request, .. } in self.entries.iter().filter(|kept| kept.tag.is_some()) {
            let may_have_it = self.trouble && *number <= self.sent;
            if may_have_it && request.header().topic.ends_with(INPUT) {
                cx.wire.give(request.answer("{}"));
            } else {
                cx.wire.refuse(request, NO_SERVICE, "the shell has ended");
            }
        }
    }
}

/// The sender's ends of all channels of this client.
#[derive(Clone, Debug)]
pub(crate) struct Outboxes<P> {
    boxes: BTreeMap<Peer, Outbox<P>>,
    /// How many channels there have been.
    opened: u64,
}

impl<P> Default for Outboxes<P> {
    fn default() -> Self {
        Self { boxes: BTreeMap::new(), opened: 0 }
    }
}

impl<P: Packet> Outboxes<P> {
    /// Sends a request of the client through its channel. `tag` is none if it gets no answer.
    /// Returns false if the receiver does not know channels.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<P>,
        peer: &Peer,
        request: &P,
        tag: Option<u32>,
    ) -> bool {
        if !self.boxes.contains_key(peer) {
            self.opened += 1;
            self.boxes.insert(peer.clone(), Outbox::new(&cx.client, self.opened, peer));
        }
        let open = self.boxes.get_mut(peer).filter(|outbox| outbox.flow != Flow::Plain);
        open.map(|outbox| outbox.send(cx, request.clone(), tag)).is_some()
    }

    /// A response with this matchtag has arrived.
    pub(crate) fn answered(&mut self, cx: &mut Context<P>, tag: u32, packet: &P) -> Turn<P> {
        let hops = packet.hops();
        let [from, second, ..] = &hops[..] else { return Turn::Same };
        let got = second.strip_prefix(GOT);
        let asked = || Some(second.strip_prefix(ASK)?.split_once('.')?.0);
        let number = got.or_else(asked).and_then(|number| number.parse::<u64>().ok());
        let found = self.boxes.iter_mut().find(|(_, outbox)| outbox.from == *from);
        let (Some((peer, outbox)), Some(number)) = (found, number) else { return Turn::Same };
        let is_asked = |kept: &Kept<P>| kept.number == number && kept.tag == Some(tag);
        if !outbox.entries.iter().any(is_asked) {
            // It has had its answer, and the matchtag may be in use again.
            return Turn::Same;
        }
        let mut turn = Turn::Same;
        if got.is_some() {
            outbox.answered(number);
            outbox.reached(cx);
        } else if is_unreachable(packet) {
            outbox.unreachable(cx);
            return turn;
        } else if is_missing(packet) {
            outbox.flow = Flow::Halted;
            let own = |step| Own::Receiver(peer.clone(), step);
            inquiry::ask_broker((&mut outbox.question, cx), peer, own);
            return turn;
        } else {
            // The receiver does not know channels.
            outbox.answered(number);
            turn = outbox.give_up_numbers(cx);
        }
        cx.wire.give(packet.with_hops(&[]));
        turn
    }

    /// There is an answer to the question to or about a receiver.
    pub(crate) fn heard(
        &mut self,
        cx: &mut Context<P>,
        peer: &Peer,
        step: Step,
        answer: &P,
    ) -> Turn<P> {
        let Some(outbox) = self.boxes.get_mut(peer) else { return Turn::Same };
        let own = |step| Own::Receiver(peer.clone(), step);
        let errnum = answer.header().errnum;
        let received = match inquiry::heard((&mut outbox.question, cx), peer, own, step, answer) {
            Heard::Answer if errnum == 0 => serde_json::from_slice(answer.payload()).ok(),
            Heard::Answer => None,
            Heard::Unreachable | Heard::NotInRun => {
                outbox.unreachable(cx);
                return Turn::Same;
            }
            Heard::Later => {
                outbox.flow = Flow::Halted;
                return Turn::Same;
            }
            Heard::Gone => {
                self.boxes.remove(peer).into_iter().for_each(|outbox| outbox.end(cx));
                return Turn::Gone;
            }
        };
        let Some(Received { received }) = received else { return outbox.give_up_numbers(cx) };
        // It has forgotten requests that it had: it is another process.
        let is_other = received < outbox.received;
        // Requests that were sent before the question have not arrived.
        let is_behind = received < outbox.asked_at || outbox.flow == Flow::Halted;
        outbox.has(received);
        outbox.reached(cx);
        if is_other {
            let entries = outbox.take();
            self.boxes.remove(peer);
            for Kept { request, tag, .. } in entries {
                self.send(cx, peer, &request, tag);
            }
        } else if is_behind {
            outbox.send_again(cx);
        }
        Turn::Same
    }

    /// Asks the receivers whose time has come.
    pub(crate) fn ask_due(&mut self, cx: &mut Context<P>) {
        for (peer, outbox) in &mut self.boxes {
            if outbox.question.is_due(cx.now) {
                outbox.ask(cx, peer);
            }
        }
    }

    /// When to call [`Outboxes::ask_due`].
    pub(crate) fn next(&self) -> Option<f64> {
        self.boxes.values().filter_map(|outbox| outbox.question.next()).reduce(f64::min)
    }

    /// The connection was lost: any message may be.
    pub(crate) fn lost(&mut self, cx: &Context<P>) {
        for outbox in self.boxes.values_mut().filter(|outbox| outbox.flow != Flow::Plain) {
            (outbox.flow, outbox.trouble) = (Flow::Halted, true);
            outbox.question.lost(cx.now);
        }
    }

    /// The client is about to close the connection: receivers are to be asked at once.
    pub(crate) fn hurry(&mut self, cx: &Context<P>) {
        for outbox in self.boxes.values_mut().filter(|outbox| outbox.has_one_way()) {
            outbox.question.plan(cx.now);
        }
    }

    /// The connection has ended: so have the requests that wait for an answer.
    pub(crate) fn end(&mut self, cx: &mut Context<P>, errnum: i32, why: &str) {
        let entries = self.boxes.values().flat_map(|outbox| &outbox.entries);
        for kept in entries.filter(|kept| kept.tag.is_some()) {
            cx.wire.refuse(&kept.request, errnum, why);
        }
        self.boxes.clear();
    }

    /// Whether receivers do not have requests to which the client does not wait for an answer.
    pub(crate) fn has_one_way(&self) -> bool {
        self.boxes.values().any(Outbox::has_one_way)
    }

    /// Whether this is a channel to a receiver that does not know channels.
    pub(crate) fn is_plain(&self, from: &str) -> bool {
        self.named(from).is_some_and(|outbox| outbox.flow == Flow::Plain)
    }

    /// A receiver asks which answers of this client's requests it has to keep. Returns false if it is
    /// not such a question.
    pub(crate) fn asked(&self, cx: &mut Context<P>, packet: &P) -> bool {
        let question = serde_json::from_slice(packet.payload()).ok();
        let Some(WhichNeeded { from }) = question.filter(|_| packet.is_trusted()) else {
            return false;
        };
        let needed = Needed { done: self.named(&from).map_or(ALL_DONE, Outbox::done) };
        cx.wire.send(packet.answer(&serde_json::to_string(&needed).unwrap_or_default()));
        true
    }

    fn named(&self, from: &str) -> Option<&Outbox<P>> {
        self.boxes.values().find(|outbox| outbox.from == from)
    }

    /// Encoded size of what is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.boxes.values().map(|outbox| outbox.bytes).sum()
    }
}

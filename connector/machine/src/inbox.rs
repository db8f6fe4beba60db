//! The receiver's end of channels ([`crate::channel`]).
//!
//! It takes requests in order, and keeps each answer until the sender needs it no more. An answer can
//! be lost with the sender's broker. So when the client closes its connection, each sender that is a
//! shell is asked whether it has its answers.

use std::collections::BTreeMap;

use serde_json::json;

use crate::channel::{
    ALL_DONE, ASK, GOT, HOME, NEEDED, Needed, OF_RUN, Peer, Received, WhichNeeded, WhichReceived,
    is_numbered, join_from, split_from,
};
use crate::context::Context;
use crate::errnum::NO_HOST;
use crate::inquiry::{self, Heard, SHELL_RUNS};
use crate::packet::Packet;
use crate::question::Question;
use crate::wire::{Own, Step};

/// Prefix of the hop that is added to a request for the client; the rest names the request.
pub(crate) const ARRIVED: &str = "resume-channel-";
/// Seconds for which senders are waited for: the default of `exec.peer-timeout`, after which job-exec
/// gives up a rank whose broker is away.
const WAIT: f64 = 120.0;
/// The method with which a broker says that a client is gone (RFC 6).
const DISCONNECT: &str = ".disconnect";

/// A request that has arrived.
struct Arrived<P> {
    client: String,
    channel: u64,
    number: u64,
    done: u64,
    /// Where its sender can be asked.
    home: Option<Peer>,
    /// The mark of its sender's run of the job.
    run: Option<String>,
    /// With a route that says that the receiver has it.
    request: P,
}

impl<P: Packet> Arrived<P> {
    /// Reads the route of a request. None if it does not come through a channel of the job's user
    /// or of the instance owner: others must not fill the receiver's memory.
    fn read(request: &P) -> Option<Self> {
        // A broker makes it from a request of a client that is gone, with the same route (flux-core
        // `librouter/disconnect.c`).
        let is_disconnect = request.header().topic.ends_with(DISCONNECT);
        if is_disconnect || !is_numbered(request) || !request.is_trusted() {
            return None;
        }
        let mut hops = request.hops();
        let (client, channel) = split_from(&hops[0])?;
        let (number, done) = hops.get(1)?.strip_prefix(ASK)?.split_once('.')?;
        let (number, done) = (number.parse().ok()?, done.parse().ok()?);
        let home = hops.get(2).and_then(|hop| home(hop, request));
        let run = hops[2..].iter().find_map(|hop| hop.strip_prefix(OF_RUN)).map(str::to_string);
        hops[1] = format!("{GOT}{number}");
        let request = request.with_hops(&hops);
        Some(Self { client, channel, number, done, home, run, request })
    }
}

/// The service of the shell that has sent the request: shells of a job have the same.
fn home<P: Packet>(hop: &str, request: &P) -> Option<Peer> {
    let rank = hop.strip_prefix(HOME)?.parse().ok()?;
    let (service, _) = request.header().topic.split_once('.')?;
    Some(Peer { service: service.to_string(), rank })
}

/// The receiver's end of one channel.
#[derive(Clone, Debug)]
struct Inbox<P> {
    /// The client's later channel replaces its earlier ones.
    channel: u64,
    next: u64,
    /// Requests that the client has not answered: as they came last.
    pending: BTreeMap<u64, P>,
    /// Answered requests with their answers, until the sender needs them no more.
    answered: BTreeMap<u64, (P, P)>,
    /// Where the sender can be asked, if it is a shell.
    home: Option<Peer>,
    /// The question which answers the sender needs.
    question: Question,
}

impl<P: Packet> Inbox<P> {
    fn new(channel: u64) -> Self {
        let mut question = Question::default();
        // As soon as this client closes.
        question.plan(0.0);
        Self {
            channel,
            next: 1,
            pending: BTreeMap::new(),
            answered: BTreeMap::new(),
            home: None,
            question,
        }
    }

    /// Whether it has answers that a shell may need.
    fn is_owing(&self) -> bool {
        self.home.is_some() && !self.answered.is_empty()
    }

    /// Asks the sender which answers it needs.
    fn ask(&mut self, cx: &mut Context<P>, client: &str) {
        let Some(Peer { service, rank }) = &self.home else { return };
        let payload = WhichNeeded { from: join_from(client, self.channel) };
        let payload = serde_json::to_string(&payload).unwrap_or_default();
        let request = (&*format!("{service}{NEEDED}"), payload, *rank);
        self.question.ask_patiently(cx, own(client)(Step::Shell), request);
    }

    fn answers(&self) -> impl Iterator<Item = P> {
        self.answered.values().map(|(asked, answer)| asked.respond(answer))
    }
}

/// The purpose of questions about a sender.
fn own(client: &str) -> impl Fn(Step) -> Own + use<'_> {
    move |step| Own::Sender(client.to_string(), step)
}

/// The receiver's ends of all channels to this client.
#[derive(Clone, Debug)]
pub(crate) struct Inboxes<P> {
    boxes: BTreeMap<String, Inbox<P>>,
    /// The client closes the connection, and waits until this time for those that may need answers.
    leaves_by: Option<f64>,
}

impl<P> Default for Inboxes<P> {
    fn default() -> Self {
        Self { boxes: BTreeMap::new(), leaves_by: None }
    }
}

impl<P: Packet> Inboxes<P> {
    fn inbox(&mut self, client: &str, channel: u64) -> Option<&mut Inbox<P>> {
        let new = || Inbox::new(channel);
        let inbox = self.boxes.entry(client.to_string()).or_insert_with(new);
        if inbox.channel < channel {
            *inbox = new();
        }
        (inbox.channel == channel).then_some(inbox)
    }

    /// Takes a request from the broker. Returns false if it does not come through a channel.
    pub(crate) fn arrived(&mut self, cx: &mut Context<P>, packet: &P) -> bool {
        let Some(arrived) = Arrived::read(packet) else { return false };
        // Its sender hears that when it asks what has arrived.
        if !cx.client.is_of_other_run(arrived.run.as_deref()) {
            self.admit(cx, arrived);
        }
        true
    }

    fn admit(&mut self, cx: &mut Context<P>, arrived: Arrived<P>) {
        let Arrived { client, channel, number, done, home, mut request, .. } = arrived;
        let Some(inbox) = self.inbox(&client, channel) else { return };
        inbox.home = home;
        inbox.answered.retain(|n, _| *n >= done);
        if number == inbox.next {
            inbox.next += 1;
            if !request.header().noresponse {
                // Only its route is needed, as it is now.
                inbox.pending.insert(number, request.with_payload(""));
            }
            request.push_hop(&format!("{ARRIVED}{client}.{channel}.{number}"));
            cx.wire.give(request);
        } else if let Some(pending) = inbox.pending.get_mut(&number) {
            *pending = request;
        } else if let Some((asked, answer)) = inbox.answered.get_mut(&number) {
            *asked = request;
            cx.wire.send(asked.respond(answer));
        }
    }

    /// The client has answered the request that was delivered with this name. Returns what to send.
    pub(crate) fn answer(&mut self, name: &str, answer: P) -> Option<P> {
        let (rest, number) = name.rsplit_once('.')?;
        let (client, channel) = rest.split_once('.')?;
        let number = number.parse().ok()?;
        let inbox = self.inbox(client, channel.parse().ok()?)?;
        let asked = inbox.pending.remove(&number)?;
        let response = asked.respond(&answer);
        inbox.answered.insert(number, (asked, answer));
        Some(response)
    }

    /// A sender asks what this client has received. Returns false if it is not such a question.
    pub(crate) fn asked(&mut self, cx: &mut Context<P>, packet: &P) -> bool {
        let question = serde_json::from_slice(packet.payload()).ok();
        let Some(WhichReceived { from, done, run }) = question.filter(|_| packet.is_trusted())
        else {
            return false;
        };
        if cx.client.is_of_other_run(run.as_deref()) {
            cx.wire.send(packet.refusal(NO_HOST, "another run of the job has this service"));
            return true;
        }
        let Some((name, channel)) = split_from(&from) else { return false };
        let Some(inbox) = self.inbox(&name, channel) else { return false };
        inbox.answered.retain(|n, _| *n >= done);
        let received = Received { received: inbox.next - 1 };
        cx.wire.send(packet.answer(&serde_json::to_string(&received).unwrap_or_default()));
        true
    }

    /// There is a new connection: sends all answers that senders may still need.
    pub(crate) fn send_again(&self, cx: &mut Context<P>) {
        self.boxes.values().flat_map(Inbox::answers).for_each(|answer| cx.wire.send(answer));
    }

    /// Whether a shell may need an answer.
    pub(crate) fn is_owing(&self) -> bool {
        self.boxes.values().any(Inbox::is_owing)
    }

    /// Asks all senders that may need an answer, from now on for [`WAIT`].
    pub(crate) fn leave(&mut self, cx: &Context<P>) {
        self.leaves_by = Some(cx.now + WAIT);
        let owing = self.boxes.values_mut().filter(|inbox| inbox.is_owing());
        owing.for_each(|inbox| inbox.question.lost(cx.now));
    }

    /// Gives up on senders if it has waited for long enough.
    pub(crate) fn give_up(&mut self, now: f64) {
        if self.leaves_by.is_some_and(|at| at <= now) {
            self.boxes.values_mut().for_each(|inbox| inbox.answered.clear());
        }
    }

    /// When to call [`Inboxes::give_up`], and [`Inboxes::ask_due`] if the connection is live.
    pub(crate) fn next(&self, is_live: bool) -> Option<f64> {
        let owing = self.boxes.values().filter(|inbox| is_live && inbox.is_owing());
        owing.filter_map(|inbox| inbox.question.next()).chain(self.leaves_by).reduce(f64::min)
    }

    /// Asks the senders whose time has come.
    pub(crate) fn ask_due(&mut self, cx: &mut Context<P>) {
        for (client, inbox) in &mut self.boxes {
            if inbox.is_owing() && inbox.question.is_due(cx.now) {
                inbox.ask(cx, client);
            }
        }
    }

    /// There is an answer to the question to or about a sender. Returns true if it cannot be reached,
    /// and it should be asked whether the leader shell runs, which this client knows (`has_leader`).
    pub(crate) fn heard(
        &mut self,
        cx: &mut Context<P>,
        (name, step): (&str, Step),
        answer: &P,
        has_leader: bool,
    ) -> bool {
        let Some(inbox) = self.boxes.get_mut(name) else { return false };
        let Some(home) = &inbox.home else { return false };
        let question = &mut inbox.question;
        let done = match inquiry::heard((question, cx), home, own(name), step, answer) {
            // One that cannot be read needs nothing more.
            Heard::Answer => {
                let needed = serde_json::from_slice(answer.payload());
                question.fail(cx.now);
                needed.map_or(ALL_DONE, |Needed { done }| done)
            }
            // Its rank may have been given up, and then it never can. So a follower asks whether the
            // leader shell has ended, and the leader shell asks its own module, which leads the job.
            Heard::Unreachable => {
                let own_job = cx.client.rank.filter(|_| !has_leader && cx.client.is_of(home.job()));
                match own_job.zip(home.job()) {
                    Some((rank, id)) => {
                        let payload = json!({ "id": id, "rank": home.rank }).to_string();
                        let step = Step::Module { is_back: false };
                        let request = (SHELL_RUNS, payload, rank);
                        question.ask_patiently(cx, own(name)(step), request);
                    }
                    None => drop(question.fail(cx.now)),
                }
                return has_leader;
            }
            Heard::NotInRun => {
                question.fail(cx.now);
                return false;
            }
            Heard::Later => return false,
            Heard::Gone => ALL_DONE,
        };
        inbox.answered.retain(|n, _| *n >= done);
        inbox.answers().for_each(|answer| cx.wire.send(answer));
        false
    }
}

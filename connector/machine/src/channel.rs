//! The two ends of a channel between a client and a job shell's service, so that each request is
//! delivered once and in order.
//!
//! The sender keeps a request until the receiver has it, or has answered it. The number of a
//! request is in its route: a response brings the route back, and a receiver without this
//! connector ignores it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::packet::{Header, Kind, Packet};

/// The method of a shell's service that the receiver's connector answers: what has it received?
pub(crate) const RECEIVED: &str = ".resume-received";
/// Prefix of the first hop: whose channel it is.
const FROM: &str = "resume:";
/// Prefix of the second hop of a request that no receiver's connector has seen.
const ASK: &str = "ask:";
/// Prefix of the second hop of a request that the receiver's connector has accepted.
const GOT: &str = "got:";
/// The method with which a broker says that a client is gone (RFC 6).
const DISCONNECT: &str = ".disconnect";
/// A tool that is started through a shell has a protocol of its own, with streams.
const TOOLS: &str = "rexec.";

/// A shell's service on one rank.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Peer {
    /// `USERID-shell-JOBID` (flux-core `shell/svc.c`, `build_topic`).
    pub(crate) service: String,
    /// The broker rank.
    pub(crate) rank: u32,
}

impl Peer {
    /// The receiver of a request that goes through a channel.
    pub(crate) fn of<P: Packet>(request: &P) -> Option<Self> {
        let Header { topic, rank, streaming, .. } = request.header();
        let (service, method) = topic.split_once('.')?;
        let (user, id) = service.split_once("-shell-")?;
        let is_shell = !user.is_empty()
            && user.bytes().all(|byte| byte.is_ascii_digit())
            && id.starts_with('f');
        let numbered = is_shell && !streaming && !method.starts_with(TOOLS);
        // A client that passes on requests of others has given this one a route already.
        let is_own = request.first_hop().is_none();
        let rank = (rank < u32::MAX - 1).then_some(rank)?;
        (numbered && is_own).then(|| Self { service: service.to_string(), rank })
    }
}

/// A request that the sender keeps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kept<P> {
    /// Until the receiver has it: it is not answered.
    OneWay(P),
    /// Until it is answered: this is its matchtag.
    Tagged(u32),
}

/// Whether messages of the channel are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flow {
    /// As they come.
    Open,
    /// Some may be lost: none is sent before the receiver has said what it has.
    Halted,
    /// As they come, without a number: the receiver does not know channels.
    Plain,
}

/// The sender's end.
#[derive(Clone, Debug)]
pub(crate) struct Outbox<P> {
    from: String,
    next: u64,
    entries: VecDeque<(u64, Kept<P>)>,
    /// Encoded size of the one-way requests that are kept.
    pub(crate) bytes: usize,
    /// Encoded size of those that were sent since the receiver was asked.
    pub(crate) unasked: usize,
    /// Requests up to here were sent at least once.
    sent: u64,
    /// The receiver has everything up to here.
    received: u64,
    pub(crate) flow: Flow,
    /// When to ask the receiver what it has.
    pub(crate) ask_at: Option<f64>,
    /// Such a question, or the one whether its broker runs, is under way.
    pub(crate) asking: bool,
    /// When to ask again, because the receiver has not answered.
    pub(crate) ask_again_at: Option<f64>,
    /// Questions in a row that failed.
    pub(crate) tries: u32,
    /// Questions in a row that nobody has answered, before the last one.
    pub(crate) unanswered: u32,
    /// A connection was lost since the receiver was last heard.
    pub(crate) trouble: bool,
    /// The last number when the receiver was asked.
    asked_at: u64,
    /// The receiver knows that requests before this one need no answer any more.
    told: u64,
}

impl<P: Packet> Outbox<P> {
    /// The channel with this number of the client that `client` identifies.
    pub(crate) fn new(client: u64, number: u64) -> Self {
        Self {
            from: format!("{FROM}{client:016x}.{number}"),
            next: 1,
            entries: VecDeque::new(),
            bytes: 0,
            unasked: 0,
            sent: 0,
            received: 0,
            flow: Flow::Open,
            ask_at: None,
            asking: false,
            ask_again_at: None,
            tries: 0,
            unanswered: 0,
            trouble: false,
            asked_at: 0,
            told: 1,
        }
    }

    /// Enters a request. Returns its number.
    pub(crate) fn enter(&mut self, kept: Kept<P>) -> u64 {
        let number = self.next;
        self.next += 1;
        if let Kept::OneWay(packet) = &kept {
            self.bytes += packet.size();
            self.unasked += packet.size();
        }
        self.entries.push_back((number, kept));
        number
    }

    /// The request as it is sent.
    pub(crate) fn addressed(&mut self, number: u64, request: &P) -> P {
        self.told = self.done();
        self.sent = self.sent.max(number);
        request.with_hops(&[self.from.clone(), format!("{ASK}{number}.{}", self.told)])
    }

    /// The payload of the question what the receiver has.
    pub(crate) fn question(&mut self) -> String {
        self.told = self.done();
        (self.asked_at, self.unasked) = (self.next - 1, 0);
        let from = self.from.clone();
        let question = Question { from, done: self.told };
        serde_json::to_string(&question).unwrap_or_default()
    }

    /// All requests before this one need no answer any more.
    fn done(&self) -> u64 {
        let first = self.entries.iter().find(|(_, kept)| matches!(kept, Kept::Tagged(_)));
        first.map_or(self.next, |(number, _)| *number)
    }

    /// Who has sent a response to the request with this number.
    pub(crate) fn origin(&self, number: u64, response: &P) -> Origin {
        let hops = response.hops();
        let Some([from, second, ..]) = hops.get(..) else { return Origin::Stale };
        let asked = |hop: &str| hop.split_once('.').map(|(number, _)| number.to_string());
        let (origin, answered) = match second.strip_prefix(GOT) {
            Some(answered) => (Origin::Receiver, Some(answered.to_string())),
            None => (Origin::Other, second.strip_prefix(ASK).and_then(asked)),
        };
        let is_own = *from == self.from && answered == Some(number.to_string());
        if is_own { origin } else { Origin::Stale }
    }

    /// Whether the receiver may keep answers that it could drop.
    pub(crate) fn is_untold(&self) -> bool {
        self.told < self.done() && self.next > 1
    }

    /// The receiver has everything up to `number`.
    pub(crate) fn has(&mut self, number: u64) {
        self.received = self.received.max(number);
        let mut freed = 0;
        self.entries.retain(|(n, kept)| match kept {
            Kept::OneWay(packet) if *n <= number => {
                freed += packet.size();
                false
            }
            _ => true,
        });
        self.bytes -= freed;
    }

    /// This request has its answer.
    pub(crate) fn answered(&mut self, number: u64) {
        self.entries.retain(|(n, _)| *n != number);
        self.has(number);
    }

    /// Whether the receiver has forgotten requests that it had: it is another process.
    pub(crate) fn is_other(&self, received: u64) -> bool {
        received < self.received
    }

    /// Whether requests that were sent before the question have not arrived.
    pub(crate) fn is_behind(&self, received: u64) -> bool {
        received < self.asked_at
    }

    /// Whether this request was sent at least once.
    pub(crate) fn was_sent(&self, number: u64) -> bool {
        number <= self.sent
    }

    /// Whether a one-way request has not arrived, as far as is known.
    pub(crate) fn has_one_way(&self) -> bool {
        self.bytes > 0
    }

    /// What is kept, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &(u64, Kept<P>)> {
        self.entries.iter()
    }

    /// Takes all that is kept.
    pub(crate) fn take(&mut self) -> VecDeque<(u64, Kept<P>)> {
        self.bytes = 0;
        std::mem::take(&mut self.entries)
    }
}

/// The payload of [`RECEIVED`].
#[derive(Deserialize, Serialize)]
pub(crate) struct Question {
    from: String,
    done: u64,
}

/// The answer to [`RECEIVED`].
#[derive(Deserialize, Serialize)]
pub(crate) struct Received {
    pub(crate) received: u64,
}

/// How the route of a response says who has answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// The receiver.
    Receiver,
    /// A broker, because the receiver cannot be reached; or a receiver that does not know channels.
    Other,
    /// Somebody, to another request: the matchtag is in use again.
    Stale,
}

/// Whether a request to the broker goes through a channel: its sender keeps it.
pub(crate) fn is_numbered<P: Packet>(request: &P) -> bool {
    request.header().kind == Kind::Request
        && request.first_hop().is_some_and(|hop| hop.starts_with(FROM))
}

/// A request that has arrived.
pub(crate) struct Arrived<P> {
    client: String,
    channel: u64,
    pub(crate) number: u64,
    done: u64,
    /// With a route that says that the receiver has it.
    pub(crate) request: P,
}

impl<P: Packet> Arrived<P> {
    /// Reads the route of a request. None if it does not come through a channel of the job's user
    /// or of the instance owner: others must not fill the receiver's memory.
    pub(crate) fn read(request: &P) -> Option<Self> {
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
        hops[1] = format!("{GOT}{number}");
        let request = request.with_hops(&hops);
        Some(Self { client, channel, number, done, request })
    }
}

fn split_from(from: &str) -> Option<(String, u64)> {
    let (client, channel) = from.strip_prefix(FROM)?.split_once('.')?;
    Some((client.to_string(), channel.parse().ok()?))
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
}

/// What becomes of a request that has arrived.
pub(crate) enum Admitted<P> {
    /// The client gets it. Its answer comes back with this name.
    Deliver(String, P),
    /// It was answered before: this is sent again.
    Again(P),
    /// Nothing: it has arrived before, or one before it has not.
    Drop,
}

/// The receiver's ends of all channels to this client.
#[derive(Clone, Debug)]
pub(crate) struct Inboxes<P>(BTreeMap<String, Inbox<P>>);

impl<P> Default for Inboxes<P> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<P: Packet> Inboxes<P> {
    fn inbox(&mut self, client: &str, channel: u64) -> Option<&mut Inbox<P>> {
        let new =
            || Inbox { channel, next: 1, pending: BTreeMap::new(), answered: BTreeMap::new() };
        let inbox = self.0.entry(client.to_string()).or_insert_with(new);
        if inbox.channel < channel {
            *inbox = new();
        }
        (inbox.channel == channel).then_some(inbox)
    }

    /// Takes a request that has arrived.
    pub(crate) fn admit(&mut self, arrived: Arrived<P>) -> Admitted<P> {
        let Arrived { client, channel, number, done, request } = arrived;
        let Some(inbox) = self.inbox(&client, channel) else { return Admitted::Drop };
        inbox.answered.retain(|n, _| *n >= done);
        let is_one_way = request.header().noresponse;
        if number == inbox.next {
            inbox.next += 1;
            if !is_one_way {
                // Only its route is needed, as it is now.
                inbox.pending.insert(number, request.with_payload(""));
            }
            return Admitted::Deliver(format!("{client}.{channel}.{number}"), request);
        }
        if let Some(pending) = inbox.pending.get_mut(&number) {
            *pending = request;
        } else if let Some((asked, answer)) = inbox.answered.get_mut(&number) {
            *asked = request;
            return Admitted::Again(asked.respond(answer));
        }
        Admitted::Drop
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

    /// Answers a [`RECEIVED`].
    pub(crate) fn received(&mut self, question: &[u8]) -> Option<Received> {
        let Question { from, done } = serde_json::from_slice(question).ok()?;
        let (client, channel) = split_from(&from)?;
        let inbox = self.inbox(&client, channel)?;
        inbox.answered.retain(|n, _| *n >= done);
        Some(Received { received: inbox.next - 1 })
    }

    /// All answers that senders may still need, for a new connection.
    pub(crate) fn answers(&self) -> Vec<P> {
        let answered = self.0.values().flat_map(|inbox| inbox.answered.values());
        answered.map(|(asked, answer)| asked.respond(answer)).collect()
    }
}

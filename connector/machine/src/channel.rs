//! The two ends of a channel between a client and a job shell's service, so that each request is
//! delivered once and in order.
//!
//! The sender keeps a request until the receiver has it, or has answered it. The number of a
//! request is in its route: a response brings the route back, and a receiver without this
//! connector ignores it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::inquiry::Inquiry;
use crate::packet::{Header, Kind, Packet};

/// The method of a shell's service that the receiver's connector answers: what has it received?
pub(crate) const RECEIVED: &str = ".resume-received";
/// The method of a shell's service that the sender's connector answers: which answers does it need?
pub(crate) const NEEDED: &str = ".resume-needed";
/// Prefix of the first hop: whose channel it is.
const FROM: &str = "resume:";
/// Prefix of the second hop of a request that no receiver's connector has seen.
pub(crate) const ASK: &str = "ask:";
/// Prefix of the second hop of a request that the receiver's connector has accepted.
pub(crate) const GOT: &str = "got:";
/// Prefix of the third hop, if the sender is a shell: its broker rank. It can be asked there.
pub(crate) const HOME: &str = "home:";
/// Prefix of the hop after those, if the sender belongs to a run of the receiver's job: which run.
pub(crate) const OF_RUN: &str = "run:";
/// A tool that is started through a shell has a protocol of its own, with streams.
const TOOLS: &str = "rexec.";

/// The digits of a job id (RFC 19).
const F58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

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

    /// The shell's job.
    pub(crate) fn job(&self) -> Option<u64> {
        let (_, id) = self.service.split_once("-shell-f")?;
        let digit = |byte| F58.iter().position(|known| *known == byte);
        let append = |id: u64, byte| id.checked_mul(58)?.checked_add(digit(byte)? as u64);
        id.bytes().try_fold(0, append)
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
    /// The hop that says where the sender can be asked.
    home: Option<String>,
    /// The mark of the sender's run of the job.
    run: Option<String>,
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
    /// The question what the receiver has.
    pub(crate) inquiry: Inquiry,
    /// A connection was lost since the receiver was last heard.
    pub(crate) trouble: bool,
    /// The last number when the receiver was asked.
    asked_at: u64,
    /// The receiver knows that requests before this one need no answer any more.
    told: u64,
}

impl<P: Packet> Outbox<P> {
    /// The channel with this number of the client that `client` identifies. `home` is the rank of a
    /// shell's broker, `run` the mark of the client's run of the receiver's job.
    pub(crate) fn new(client: u64, number: u64, home: Option<u32>, run: Option<String>) -> Self {
        Self {
            from: join_from(&format!("{client:016x}"), number),
            home: home.map(|rank| format!("{HOME}{rank}")),
            run,
            next: 1,
            entries: VecDeque::new(),
            bytes: 0,
            unasked: 0,
            sent: 0,
            received: 0,
            flow: Flow::Open,
            inquiry: Inquiry::default(),
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
        let mut hops = vec![self.from.clone(), format!("{ASK}{number}.{}", self.told)];
        hops.extend(self.home.clone());
        hops.extend(self.run.as_ref().map(|run| format!("{OF_RUN}{run}")));
        request.with_hops(&hops)
    }

    /// The payload of the question what the receiver has.
    pub(crate) fn question(&mut self) -> String {
        self.told = self.done();
        (self.asked_at, self.unasked) = (self.next - 1, 0);
        let from = self.from.clone();
        let question = Question { from, done: self.told, run: self.run.clone() };
        serde_json::to_string(&question).unwrap_or_default()
    }

    /// Whether this is the channel of that name.
    pub(crate) fn is_named(&self, from: &str) -> bool {
        self.from == from
    }

    /// All requests before this one need no answer any more.
    pub(crate) fn done(&self) -> u64 {
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
    pub(crate) from: String,
    pub(crate) done: u64,
    /// As in the hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
}

/// The answer to [`RECEIVED`].
#[derive(Deserialize, Serialize)]
pub(crate) struct Received {
    pub(crate) received: u64,
}

/// The payload of [`NEEDED`].
#[derive(Deserialize, Serialize)]
pub(crate) struct WhichNeeded {
    pub(crate) from: String,
}

/// The answer to [`NEEDED`]: requests of the channel before this one need no answer any more.
#[derive(Deserialize, Serialize)]
pub(crate) struct Needed {
    pub(crate) done: u64,
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
    request.header().kind == Kind::Request && channel_of(request).is_some()
}

/// The channel that a message belongs to.
pub(crate) fn channel_of<P: Packet>(message: &P) -> Option<String> {
    message.first_hop().filter(|hop| hop.starts_with(FROM))
}

/// The hop that names a channel.
pub(crate) fn join_from(client: &str, channel: u64) -> String {
    format!("{FROM}{client}.{channel}")
}

/// The client and the number of a channel.
pub(crate) fn split_from(from: &str) -> Option<(String, u64)> {
    let (client, channel) = from.strip_prefix(FROM)?.split_once('.')?;
    Some((client.to_string(), channel.parse().ok()?))
}

//! The receiver's end of channels ([`crate::channel`]).
//!
//! It takes requests in order, and keeps each answer until the sender needs it no more.

use std::collections::BTreeMap;

use crate::channel::{
    ASK, GOT, HOME, OF_RUN, Peer, Question, Received, WhichNeeded, is_numbered, join_from,
    split_from,
};
use crate::inquiry::Inquiry;
use crate::packet::Packet;

/// The method with which a broker says that a client is gone (RFC 6).
const DISCONNECT: &str = ".disconnect";

/// A request that has arrived.
pub(crate) struct Arrived<P> {
    client: String,
    channel: u64,
    number: u64,
    done: u64,
    /// Where its sender can be asked.
    home: Option<Peer>,
    /// The mark of its sender's run of the job.
    pub(crate) run: Option<String>,
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
    inquiry: Inquiry,
}

impl<P: Packet> Inbox<P> {
    fn new(channel: u64) -> Self {
        let mut inquiry = Inquiry::default();
        // As soon as this client closes.
        inquiry.ask_by(0.0);
        Self {
            channel,
            next: 1,
            pending: BTreeMap::new(),
            answered: BTreeMap::new(),
            home: None,
            inquiry,
        }
    }

    /// Whether it has answers that a shell may need.
    fn is_owing(&self) -> bool {
        self.home.is_some() && !self.answered.is_empty()
    }

    fn answers(&self) -> impl Iterator<Item = P> {
        self.answered.values().map(|(asked, answer)| asked.respond(answer))
    }
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
        let new = || Inbox::new(channel);
        let inbox = self.0.entry(client.to_string()).or_insert_with(new);
        if inbox.channel < channel {
            *inbox = new();
        }
        (inbox.channel == channel).then_some(inbox)
    }

    /// Takes a request that has arrived.
    pub(crate) fn admit(&mut self, arrived: Arrived<P>) -> Admitted<P> {
        let Arrived { client, channel, number, done, home, request, .. } = arrived;
        let Some(inbox) = self.inbox(&client, channel) else { return Admitted::Drop };
        inbox.home = home;
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
    pub(crate) fn received(&mut self, question: &Question) -> Option<Received> {
        let (client, channel) = split_from(&question.from)?;
        let inbox = self.inbox(&client, channel)?;
        inbox.answered.retain(|n, _| *n >= question.done);
        Some(Received { received: inbox.next - 1 })
    }

    /// All answers that senders may still need, for a new connection.
    pub(crate) fn answers(&self) -> Vec<P> {
        self.0.values().flat_map(Inbox::answers).collect()
    }

    /// Whether a shell may need an answer.
    pub(crate) fn is_owing(&self) -> bool {
        self.0.values().any(Inbox::is_owing)
    }

    fn owing(&mut self) -> impl Iterator<Item = (&String, &mut Inbox<P>)> {
        self.0.iter_mut().filter(|(_, inbox)| inbox.is_owing())
    }

    /// All shells that may need an answer are to be asked.
    pub(crate) fn ask_all(&mut self, now: f64) {
        self.owing().for_each(|(_, inbox)| inbox.inquiry.lost(now));
    }

    /// When to ask a shell next.
    pub(crate) fn next_question(&self) -> Option<f64> {
        let owing = self.0.values().filter(|inbox| inbox.is_owing());
        owing.filter_map(|inbox| inbox.inquiry.next()).reduce(f64::min)
    }

    /// The clients to be asked now, where, and the questions.
    pub(crate) fn ask_due(&mut self, now: f64) -> Vec<(String, Peer, WhichNeeded)> {
        let is_due = |inbox: &Inbox<P>| inbox.inquiry.next().is_some_and(|at| at <= now);
        let due = self.owing().filter(|(_, inbox)| is_due(inbox)).filter_map(|(client, inbox)| {
            inbox.inquiry.asked(now);
            let from = join_from(client, inbox.channel);
            Some((client.clone(), inbox.home.clone()?, WhichNeeded { from }))
        });
        due.collect()
    }

    /// The client needs no answers to requests before `done`. Returns the others.
    pub(crate) fn needed(&mut self, client: &str, done: u64) -> Vec<P> {
        let Some(inbox) = self.0.get_mut(client) else { return Vec::new() };
        inbox.answered.retain(|n, _| *n >= done);
        inbox.answers().collect()
    }

    /// The question to this client, and where it was asked.
    pub(crate) fn inquiry(&mut self, client: &str) -> Option<(&Peer, &mut Inquiry)> {
        let inbox = self.0.get_mut(client)?;
        Some((inbox.home.as_ref()?, &mut inbox.inquiry))
    }

    /// Nobody needs any answer.
    pub(crate) fn forget_answers(&mut self) {
        self.0.values_mut().for_each(|inbox| inbox.answered.clear());
    }
}

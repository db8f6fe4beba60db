//! What goes out: messages for the broker and for the client, and the connector's own questions.

use std::collections::{BTreeMap, VecDeque};

use crate::channel::Peer;
use crate::packet::{Header, Packet};

/// The connector's own requests have matchtags from here on. libflux gives clients the lowest
/// free matchtag, so a client would need two thousand million requests in flight to reach it.
const OWN_TAGS: u32 = 0x8000_0000;

/// Whether a request with this matchtag is the connector's own.
pub(crate) fn is_own(tag: u32) -> bool {
    tag >= OWN_TAGS
}

/// Something that the broker keeps for a connection: the topic and the payload of the request.
pub(crate) type Item = (&'static str, String);

/// The purpose of a request of the connector's own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Own {
    /// Enters the barrier for the shell.
    Barrier,
    /// Asks for a checkpoint with the commits of a namespace up to this number.
    Cover(String, u64),
    /// Removes the client's key, because the client has closed the connection.
    Farewell,
    /// Waits until the broker is in RUN.
    Greeting,
    /// Asks whether the broker is in RUN, because errors are held back.
    InRun,
    /// Whether the job's leader shell runs.
    Leader,
    /// What a namespace holds, or whether the rank's module keeps the client's commits to it.
    Ledger(String),
    /// What the receiver of a channel has, or whether it runs.
    Receiver(Peer, Step),
    /// Does a commit again that the client believes to be done.
    Replay(String),
    /// Which answers this client needs, that has sent requests through a channel, or whether it runs.
    Sender(String, Step),
    /// Makes a subscription, service or group again.
    Standing(Item),
    /// Whether there is the guest namespace that the watch with this matchtag needs.
    Watch(u32),
}

/// Who is asked about the other end of a channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// The shell itself.
    Shell,
    /// Its broker, whether that is in RUN.
    Broker,
    /// A module, whether the shell runs. `is_back`: its broker is in RUN for long enough.
    Module { is_back: bool },
}

/// Messages in order, and their encoded size.
#[derive(Clone, Debug)]
pub(crate) struct Queue<P> {
    messages: VecDeque<P>,
    bytes: usize,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), bytes: 0 }
    }
}

impl<P: Packet> Queue<P> {
    pub(crate) fn push(&mut self, packet: P) {
        self.bytes += packet.size();
        self.messages.push_back(packet);
    }

    pub(crate) fn push_front(&mut self, packet: P) {
        self.bytes += packet.size();
        self.messages.push_front(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<P> {
        let packet = self.messages.pop_front()?;
        self.bytes -= packet.size();
        Some(packet)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &P> {
        self.messages.iter()
    }

    /// Encoded size of all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The messages that the driver has not taken yet, and the questions that wait for an answer.
#[derive(Clone, Debug)]
pub(crate) struct Wire<P> {
    pub(crate) to_broker: Queue<P>,
    pub(crate) to_client: Queue<P>,
    /// The connector's own requests that wait for an answer, by matchtag.
    own: BTreeMap<u32, Own>,
    next_own: u32,
}

impl<P> Default for Wire<P> {
    fn default() -> Self {
        Self {
            to_broker: Queue::default(),
            to_client: Queue::default(),
            own: BTreeMap::new(),
            next_own: 0,
        }
    }
}

impl<P: Packet> Wire<P> {
    /// Sends a message to the broker.
    pub(crate) fn send(&mut self, packet: P) {
        self.to_broker.push(packet);
    }

    /// Gives a message to the client.
    pub(crate) fn give(&mut self, packet: P) {
        self.to_client.push(packet);
    }

    /// Answers a request of the client with an error.
    pub(crate) fn refuse(&mut self, request: &P, errnum: i32, why: &str) {
        let Header { topic, .. } = request.header();
        self.give(request.refusal(errnum, &format!("{topic}: {why}")));
    }

    /// Sends a request of the connector's own. Returns its matchtag.
    pub(crate) fn ask(&mut self, own: Own, topic: &str, payload: &str, rank: u32) -> u32 {
        self.next_own = (self.next_own + 1) % OWN_TAGS;
        let tag = OWN_TAGS + self.next_own;
        self.own.insert(tag, own);
        self.send(P::request(topic, tag, rank, payload));
        tag
    }

    /// What the answer with this matchtag answers. None if it is late: the question was asked over
    /// an earlier connection, or again since, or does not matter any more.
    pub(crate) fn answered(&mut self, tag: u32) -> Option<Own> {
        self.own.remove(&tag)
    }

    /// The answer to this question does not matter any more.
    pub(crate) fn withdraw(&mut self, tag: u32) {
        self.own.remove(&tag);
    }

    /// The connection was lost. Returns what was not written.
    pub(crate) fn lost(&mut self) -> Queue<P> {
        self.own.clear();
        std::mem::take(&mut self.to_broker)
    }
}

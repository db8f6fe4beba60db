//! The connection as the client sees it, and its life.

use std::collections::{BTreeMap, VecDeque};

use crate::barrier::Barrier;
use crate::channel::is_numbered;
use crate::client::Client;
use crate::context::Context;
use crate::errnum::{NO_DATA, NOT_PERMITTED, RESET, TIMED_OUT};
use crate::flight::{Again, Flight};
use crate::inbox::Inboxes;
use crate::leader::Leader;
use crate::ledgers::Ledgers;
use crate::limits::Limits;
use crate::outbox::Outboxes;
use crate::packet::{ANY_RANK, Header, Kind, NO_TAG, Packet};
use crate::policy::Policy;
use crate::question::doubled;
use crate::run::Run;
use crate::standing::Standing;
use crate::wire::{Own, Queue, is_own};

mod answers;
mod channels;
mod repeat;
mod requests;
mod restore;

/// First pause between two attempts to connect, in seconds; each is twice the last.
const RETRY_FIRST: f64 = 0.05;
/// The longest pause, in seconds.
const RETRY_MAX: f64 = 2.0;

/// The state of the connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// There is no socket. The next attempt to connect is made at this time.
    Down {
        /// When, in seconds.
        retry_at: f64,
        /// Attempts so far.
        tries: u32,
    },
    /// The connection has ended for good, with this errno and this message.
    Ended(i32, String),
    /// Connected. The connector waits until the broker is in RUN.
    Greeting,
    /// All messages are passed on.
    Live,
    /// Subscriptions, services and groups are made again.
    Restoring,
    /// The connector asks which commits the KVS holds.
    Settling,
}

/// A message that was not taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SendError {
    /// The connection has ended, with this errno.
    Ended(i32),
    /// [`Limits::retained_max`] is reached. There will be room again.
    Full,
}

/// One client's connection.
pub struct Connector<P> {
    pub(crate) cx: Context<P>,
    pub(crate) phase: Phase,
    /// How many times the connection was lost.
    pub(crate) losses: u64,
    /// Until this time, missing namespaces are expected to return.
    pub(crate) patient_until: f64,
    /// When the connection was lost; none while it is live.
    lost_at: Option<f64>,
    /// Since when a broker that is only just starting is waited for.
    starts_since: Option<f64>,
    /// Messages that the client has sent since the connection was lost.
    unsent: Queue<P>,
    /// Encoded size of the requests of `flights`.
    pub(crate) kept: usize,
    pub(crate) flights: BTreeMap<u32, Flight<P>>,
    pub(crate) orders: u64,
    pub(crate) standing: Standing,
    pub(crate) ledgers: Ledgers<P>,
    pub(crate) barrier: Barrier<P>,
    /// Channels to services of shells.
    pub(crate) outboxes: Outboxes<P>,
    /// Channels from other clients.
    pub(crate) inboxes: Inboxes<P>,
    pub(crate) leader: Leader,
    /// When to ask whether the broker is still in RUN, because errors are held back.
    pub(crate) ask_in_run_at: Option<f64>,
}

impl<P: Packet> Connector<P> {
    /// A new connection. `is_connected` is false if the broker is away.
    pub fn new(id: u64, limits: Limits, is_connected: bool, now: f64) -> Self {
        let phase =
            if is_connected { Phase::Live } else { Phase::Down { retry_at: now, tries: 0 } };
        Self {
            cx: Context::new(Client::new(id, limits), now),
            phase,
            losses: 0,
            patient_until: 0.0,
            lost_at: (!is_connected).then_some(now),
            starts_since: None,
            unsent: Queue::default(),
            kept: 0,
            flights: BTreeMap::new(),
            orders: 0,
            standing: Standing::default(),
            ledgers: Ledgers::new(!is_connected),
            barrier: Barrier::default(),
            outboxes: Outboxes::default(),
            inboxes: Inboxes::default(),
            leader: Leader::default(),
            ask_in_run_at: None,
        }
    }

    /// The state of the connection.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The client's broker has this rank, if that is known.
    #[must_use]
    pub fn on_rank(mut self, rank: Option<u32>) -> Self {
        self.cx.client.rank = rank;
        self
    }

    /// The client belongs to this run of a job.
    #[must_use]
    pub fn of_run(mut self, run: Option<Run>) -> Self {
        self.cx.client.run = run;
        self
    }

    /// Whether the client has met the broker that its run was started by, as far as is known. If
    /// not, the KVS may have gone back since, and the job runs a second time.
    #[must_use]
    pub fn met_its_broker(mut self, met: bool) -> Self {
        self.cx.client.met_its_broker = met;
        self
    }

    /// The next message to write to the socket.
    pub fn for_broker(&mut self) -> Option<P> {
        self.cx.wire.for_broker()
    }

    /// Takes back a message of [`Connector::for_broker`] that was not written to the socket as a
    /// whole: the broker has not received it.
    pub fn unwritten(&mut self, packet: P) {
        self.cx.wire.unwritten(packet);
    }

    /// Whether a message waits to be written to the socket.
    pub fn has_for_broker(&self) -> bool {
        self.cx.wire.has_for_broker()
    }

    /// The next message for the client.
    pub fn for_client(&mut self) -> Option<P> {
        self.cx.wire.for_client()
    }

    /// Whether a message waits for the client.
    pub fn has_for_client(&self) -> bool {
        self.cx.wire.has_for_client()
    }

    /// Whether the client may send.
    pub fn is_writable(&self) -> bool {
        self.bytes() + self.ledgers.kept() < self.cx.client.limits.retained_max
    }

    /// Bytes that are kept for the client, including commits.
    pub fn retained(&self) -> usize {
        self.bytes() + self.ledgers.bytes()
    }

    /// Encoded size of what waits to be sent, and of requests that may have to be sent again.
    fn bytes(&self) -> usize {
        self.cx.wire.bytes() + self.unsent.bytes() + self.kept + self.outboxes.bytes()
    }

    /// Whether the driver should try to connect now.
    pub fn wants_link(&self, now: f64) -> bool {
        matches!(self.phase, Phase::Down { retry_at, .. } if retry_at <= now)
    }

    /// Takes a message of the client.
    ///
    /// # Errors
    /// When there is no room for it, or the connection has ended.
    pub fn send(&mut self, now: f64, packet: P) -> Result<(), SendError> {
        self.cx.now = now;
        match &self.phase {
            Phase::Ended(errnum, _) => Err(SendError::Ended(*errnum)),
            _ if packet.header().kind == Kind::Response => {
                self.response(packet);
                Ok(())
            }
            _ if !self.is_writable() => Err(SendError::Full),
            Phase::Live => {
                self.dispatch(packet);
                Ok(())
            }
            _ => {
                self.unsent.push(packet);
                Ok(())
            }
        }
    }

    /// The socket is connected again, and the broker has accepted the client.
    pub fn connected(&mut self) {
        self.greet();
    }

    /// The broker is only just starting. Nothing more is sent before it is in RUN.
    pub(crate) fn await_run(&mut self, now: f64) {
        if self.phase == Phase::Live {
            self.starts_since = Some(now);
            self.greet();
        }
    }

    fn greet(&mut self) {
        self.phase = Phase::Greeting;
        // flux-core `broker/state_machine.c`: answered when the broker is in RUN.
        self.cx.wire.ask(Own::Greeting, "state-machine.wait", "{}", ANY_RANK);
    }

    /// The socket is closed.
    pub fn lost(&mut self, now: f64) {
        self.cx.now = now;
        if matches!(self.phase, Phase::Ended(..)) {
            return;
        }
        self.losses += 1;
        let since = self.starts_since.take().unwrap_or(now);
        self.lost_at.get_or_insert(since);
        let tries = if let Phase::Down { tries, .. } = self.phase { tries } else { 0 };
        self.phase = Phase::Down { retry_at: now + self.pause(tries), tries: tries + 1 };
        self.ask_in_run_at = None;
        self.take_back();
        self.outboxes.lost(&self.cx);
        self.ledgers.lost(&self.cx);
        self.refuse_what_cannot_be_repeated();
    }

    /// An attempt to connect has begun. It ends with [`Connector::connected`] or
    /// [`Connector::refused`], however long it takes.
    pub fn connecting(&mut self) {
        if let Phase::Down { tries, .. } = self.phase {
            self.phase = Phase::Down { retry_at: f64::INFINITY, tries };
        }
    }

    /// An attempt to connect failed, with this errno.
    pub fn refused(&mut self, now: f64, errnum: i32) {
        self.cx.now = now;
        if errnum == NOT_PERMITTED {
            self.end(errnum, "the broker refuses the connection".to_string());
            return;
        }
        if let Phase::Down { tries, .. } = self.phase {
            self.phase = Phase::Down { retry_at: now + self.pause(tries), tries: tries + 1 };
        }
    }

    /// The pause depends on the client's number, so that the clients of a node do not all connect
    /// at the same time.
    fn pause(&self, tries: u32) -> f64 {
        doubled(RETRY_FIRST, RETRY_MAX, tries) * (0.75 + (self.cx.client.id % 64) as f64 / 128.0)
    }

    /// Messages that were not written to the socket yet count as not sent.
    fn take_back(&mut self) {
        let mut unsent = Queue::default();
        self.take_undone().into_iter().for_each(|packet| unsent.push(packet));
        for packet in self.cx.wire.lost().iter() {
            let Header { kind, matchtag, .. } = packet.header();
            let flight = self.flights.get(&matchtag).filter(|_| kind == Kind::Request);
            // The connector keeps a copy of these, and sends it again.
            let repeated = |flight: &Flight<P>| flight.policy != Policy::Refuse || flight.is_kept();
            let is_kept = flight.is_some_and(repeated) || is_own(matchtag) || is_numbered(packet);
            if kind == Kind::Response || is_kept {
                continue;
            }
            if flight.is_some() {
                self.finish(matchtag);
            }
            unsent.push(packet.clone());
        }
        self.unsent.iter().for_each(|packet| unsent.push(packet.clone()));
        self.unsent = unsent;
    }

    /// Takes the requests that failed because their service was missing, or the broker was not ready:
    /// they were not done.
    fn take_undone(&mut self) -> VecDeque<P> {
        let undone = self.flights.iter().filter(|(_, flight)| {
            flight.is_undone() && flight.policy == Policy::Refuse && !flight.is_kept()
        });
        let mut undone: Vec<(u64, u32)> = undone.map(|(t, flight)| (flight.order, *t)).collect();
        undone.sort_unstable();
        let undone = undone.into_iter().filter_map(|(_, tag)| self.finish(tag));
        undone.map(|flight| flight.request).collect()
    }

    fn refuse_what_cannot_be_repeated(&mut self) {
        for flight in self.flights.values_mut() {
            (flight.held_back, flight.is_early) = (None, false);
        }
        let refused = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.policy == Policy::Refuse && !flight.is_kept());
        let tags: Vec<u32> = refused.map(|(tag, _)| *tag).collect();
        for tag in tags {
            self.refuse(
                tag,
                RESET,
                "the broker was restarted: the request may or may not have been done",
            );
        }
    }

    /// Answers a request of the client with an error.
    pub(crate) fn refuse(&mut self, tag: u32, errnum: i32, why: &str) {
        if let Some(flight) = self.finish(tag) {
            self.cx.wire.refuse(&flight.request, errnum, why);
        }
    }

    /// Forgets a request of the client that has had its last answer.
    pub(crate) fn finish(&mut self, tag: u32) -> Option<Flight<P>> {
        let flight = self.flights.remove(&tag)?;
        self.kept -= flight.request.size();
        Some(flight)
    }

    /// The connection is restored: messages that waited are sent.
    pub(crate) fn go_live(&mut self, now: f64) {
        self.phase = Phase::Live;
        self.starts_since = None;
        if self.lost_at.take().is_some() {
            self.ask_again(now);
            self.resume_channels();
        }
        self.send_early();
        // A message that is sent can end this phase; then the rest waits again.
        while self.phase == Phase::Live
            && let Some(packet) = self.unsent.pop()
        {
            self.dispatch(packet);
        }
        if self.cx.client.is_closing && self.phase == Phase::Live {
            self.leave();
            self.ledgers.bequeath(&mut self.cx);
        }
    }

    /// Repeats the unanswered requests, in the order in which the client sent them.
    fn ask_again(&mut self, now: f64) {
        let until = now + self.cx.client.limits.patience;
        self.patient_until = until;
        let mut tags: Vec<(u64, u32)> = self.flights.iter().map(|(t, f)| (f.order, *t)).collect();
        tags.sort_unstable();
        self.barrier.say(&mut self.cx);
        for (_, tag) in tags {
            if self.spare_other_run(tag) {
                continue;
            }
            let Some(flight) = self.flights.get_mut(&tag) else { continue };
            // The ledger and the channels repeat theirs.
            if flight.is_kept() {
                continue;
            }
            if flight.is_cancelled {
                let Some(flight) = self.finish(tag) else { continue };
                self.cx.wire.give(flight.request.refusal(NO_DATA, ""));
                continue;
            }
            flight.again = Some(Again::new(until, true));
            self.repeat(tag);
        }
    }

    /// Ends the connection for good. Each request that waits gets the error.
    pub fn end(&mut self, errnum: i32, why: String) {
        let tags: Vec<u32> = self.flights.keys().copied().collect();
        for tag in tags {
            self.refuse(tag, errnum, &why);
        }
        for packet in std::mem::take(&mut self.unsent).iter() {
            let Header { kind, matchtag, noresponse, .. } = packet.header();
            if kind == Kind::Request && matchtag != NO_TAG && !noresponse {
                self.cx.wire.refuse(packet, errnum, &why);
            }
        }
        self.barrier.end(&mut self.cx, errnum, &why);
        self.ledgers.clear();
        self.outboxes.end(&mut self.cx, errnum, &why);
        self.phase = Phase::Ended(errnum, why);
    }

    /// When to call [`Connector::timeout`] next, in seconds.
    pub fn next_timeout(&self) -> Option<f64> {
        if matches!(self.phase, Phase::Ended(..)) {
            return None;
        }
        let link = match self.phase {
            Phase::Down { retry_at, .. } => Some(retry_at).filter(|at| at.is_finite()),
            _ => None,
        };
        let deadline = self.away_since().map(|at| at + self.cx.client.limits.give_up_after);
        let live = self.phase == Phase::Live;
        let retries = self.flights.values().filter(|_| live);
        let retries = retries.filter_map(|flight| flight.again?.retry_at);
        let retries = retries.filter(|at| at.is_finite());
        let ledgers = self.ledgers.next(live).filter(|_| live || self.phase == Phase::Settling);
        let barrier = self.barrier.next().filter(|_| live);
        let doubt = self.ask_in_run_at.filter(|_| live);
        let stand = self.standing.retry_at.filter(|_| self.phase == Phase::Restoring);
        let question = self.outboxes.next().filter(|_| live);
        let answers = self.inboxes.next(live).filter(|_| self.is_owing());
        let one = [link, deadline, doubt, barrier, stand, question, answers, ledgers];
        let one = one.into_iter().flatten();
        one.chain(retries).reduce(f64::min)
    }

    /// The time of [`Connector::next_timeout`] has come.
    pub fn timeout(&mut self, now: f64) {
        self.cx.now = now;
        if let Some(at) = self.away_since()
            && now >= at + self.cx.client.limits.give_up_after
            && !matches!(self.phase, Phase::Ended(..))
        {
            let away = self.cx.client.limits.give_up_after;
            self.end(TIMED_OUT, format!("the broker has been away for {away} s"));
            return;
        }
        self.inboxes.give_up(now);
        match self.phase {
            Phase::Live => self.live_timeout(now),
            Phase::Settling => self.settle(),
            Phase::Restoring => self.stand_again(now),
            Phase::Down { .. } | Phase::Ended(..) | Phase::Greeting => {}
        }
    }

    /// Since when no broker has served the client.
    fn away_since(&self) -> Option<f64> {
        self.lost_at.or(self.starts_since)
    }

    /// The client is about to close the connection. It should wait while
    /// [`Connector::is_lingering`].
    pub fn closing(&mut self, now: f64) {
        self.cx.now = now;
        self.leave();
        self.outboxes.hurry(&self.cx);
        if self.phase == Phase::Live {
            self.outboxes.ask_due(&mut self.cx);
            self.ledgers.bequeath(&mut self.cx);
        }
    }

    /// Whether something that the client has sent is lost if the connection is closed now.
    pub fn is_lingering(&self) -> bool {
        !matches!(self.phase, Phase::Ended(..))
            && (self.has_undelivered()
                || self.has_unsent_commits()
                || self.cx.client.is_closing && self.ledgers.has_left()
                || self.is_owing())
    }

    /// The client closes the connection: removes its keys from namespaces that are no job's. The
    /// end of a job removes those in its guest namespace.
    pub fn farewell(&mut self) {
        if self.phase != Phase::Live {
            return;
        }
        self.ledgers.farewell(&mut self.cx);
    }
}

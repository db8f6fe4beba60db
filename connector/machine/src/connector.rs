//! The connection as the client sees it, and its life.
//!
//! It is composed of machines that do not know each other. This file and `connector/routes.rs` pass
//! messages and events on to them.

use crate::barrier::Barrier;
use crate::context::{Client, Context};
use crate::errnum::{NOT_PERMITTED, TIMED_OUT};
use crate::flights::Flights;
use crate::inbox::Inboxes;
use crate::leader::Leader;
use crate::ledgers::Ledgers;
use crate::link::{Link, Phase};
use crate::options::Limits;
use crate::outbox::Outboxes;
use crate::packet::{Header, Kind, NO_TAG, Packet};
use crate::run::Run;
use crate::standing::Standing;
use crate::wire::Queue;

use routes::is_needed;

mod routes;

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
    cx: Context<P>,
    link: Link,
    /// Messages that the client has sent while the connection was not live.
    unsent: Queue<P>,
    flights: Flights<P>,
    standing: Standing,
    ledgers: Ledgers<P>,
    barrier: Barrier<P>,
    /// Channels to services of shells.
    outboxes: Outboxes<P>,
    /// Channels from other clients.
    inboxes: Inboxes<P>,
    leader: Leader,
}

impl<P: Packet> Connector<P> {
    /// A new connection. `is_connected` is false if the broker is away.
    pub fn new(id: u64, limits: Limits, is_connected: bool, now: f64) -> Self {
        Self {
            cx: Context::new(Client::new(id, limits), now),
            link: Link::new(is_connected, now),
            unsent: Queue::default(),
            flights: Flights::default(),
            standing: Standing::default(),
            ledgers: Ledgers::new(!is_connected),
            barrier: Barrier::default(),
            outboxes: Outboxes::default(),
            inboxes: Inboxes::default(),
            leader: Leader::default(),
        }
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

    /// The client asks the job-info service of this rank about its job, if it is not its own rank.
    #[must_use]
    pub fn asks_about_its_job(mut self, rank: Option<u32>) -> Self {
        self.cx.client.info = rank.filter(|_| rank != self.cx.client.rank);
        self
    }

    /// Whether the client has met the broker that its run was started by, as far as is known. If
    /// not, the KVS may have gone back since, and the job runs a second time.
    #[must_use]
    pub fn met_its_broker(mut self, met: bool) -> Self {
        self.cx.client.met_its_broker = met;
        self
    }

    /// The state of the connection.
    pub fn phase(&self) -> &Phase {
        self.link.phase()
    }

    /// The next message to write to the socket.
    pub fn for_broker(&mut self) -> Option<P> {
        self.cx.wire.to_broker.pop()
    }

    /// Takes back a message of [`Connector::for_broker`] that was not written to the socket as a
    /// whole: the broker has not received it.
    pub fn unwritten(&mut self, packet: P) {
        self.cx.wire.to_broker.push_front(packet);
    }

    /// Whether a message waits to be written to the socket.
    pub fn has_for_broker(&self) -> bool {
        !self.cx.wire.to_broker.is_empty()
    }

    /// The next message for the client.
    pub fn for_client(&mut self) -> Option<P> {
        self.cx.wire.to_client.pop()
    }

    /// Whether a message waits for the client.
    pub fn has_for_client(&self) -> bool {
        !self.cx.wire.to_client.is_empty()
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
        let waiting = self.cx.wire.to_broker.bytes() + self.unsent.bytes();
        waiting + self.flights.bytes() + self.outboxes.bytes()
    }

    /// Whether the driver should try to connect now.
    pub fn wants_link(&self, now: f64) -> bool {
        self.link.is_wanted(now)
    }

    /// Takes a message of the client.
    ///
    /// # Errors
    /// When there is no room for it, or the connection has ended.
    pub fn send(&mut self, now: f64, packet: P) -> Result<(), SendError> {
        self.cx.now = now;
        match self.link.phase() {
            Phase::Ended(errnum, _) => return Err(SendError::Ended(*errnum)),
            _ if packet.header().kind == Kind::Response => self.response(packet),
            _ if !self.is_writable() => return Err(SendError::Full),
            Phase::Live => self.dispatch(packet),
            _ => self.unsent.push(packet),
        }
        Ok(())
    }

    /// The socket is connected again, and the broker has accepted the client.
    pub fn connected(&mut self) {
        self.link.greet(&mut self.cx);
    }

    /// The socket is closed.
    pub fn lost(&mut self, now: f64) {
        self.cx.now = now;
        if self.link.has_ended() {
            return;
        }
        self.link.lost(&self.cx);
        let mut unsent = self.flights.lost(&mut self.cx);
        while let Some(packet) = self.unsent.pop() {
            unsent.push(packet);
        }
        self.unsent = unsent;
        self.outboxes.lost(&self.cx);
        self.ledgers.lost(&self.cx);
    }

    /// An attempt to connect has begun. It ends with [`Connector::connected`] or
    /// [`Connector::refused`], however long it takes.
    pub fn connecting(&mut self) {
        self.link.connecting();
    }

    /// An attempt to connect failed, with this errno.
    pub fn refused(&mut self, now: f64, errnum: i32) {
        self.cx.now = now;
        if errnum == NOT_PERMITTED {
            self.end(errnum, "the broker refuses the connection".to_string());
        } else {
            self.link.refused(&self.cx);
        }
    }

    /// The broker is in RUN. If the connection was lost, subscriptions, services and groups are made
    /// again. Otherwise the broker was only just starting when the client connected, and nothing
    /// was lost.
    fn restore(&mut self) {
        if !self.link.was_lost() {
            return self.go_live();
        }
        self.link.enter(Phase::Restoring);
        self.standing.restore(&mut self.cx);
        self.settle();
    }

    /// Asks each namespace which commits it holds, and goes on when all are known.
    fn settle(&mut self) {
        for (tag, answer) in self.ledgers.take_answers() {
            self.flights.end(&mut self.cx, tag, |_| answer);
        }
        let is_settled = self.ledgers.are_settled();
        match self.link.phase() {
            Phase::Restoring if self.standing.is_restored() => {}
            Phase::Settling => {}
            Phase::Live if !is_settled => {}
            _ => return,
        }
        self.link.enter(Phase::Settling);
        self.ledgers.settle(&mut self.cx);
        if is_settled {
            self.go_live();
        }
    }

    /// The connection is restored: messages that waited are sent.
    fn go_live(&mut self) {
        if self.link.go_live() {
            self.cx.patient_until = self.cx.now + self.cx.client.limits.patience;
            self.barrier.say(&mut self.cx);
            let foreign = self.foreign_job();
            self.flights.ask_again(&mut self.cx, foreign);
            self.inboxes.send_again(&mut self.cx);
            self.outboxes.ask_due(&mut self.cx);
        }
        self.flights.send_early(&mut self.cx);
        // To dispatch a message can end this phase. The rest stays in `unsent` then.
        while self.link.is_live()
            && let Some(packet) = self.unsent.pop()
        {
            self.dispatch(packet);
        }
        if self.cx.client.is_closing && self.link.is_live() {
            self.leave();
        }
    }

    /// The job of the client, if its namespace is another run's.
    fn foreign_job(&self) -> Option<u64> {
        let run = self.cx.client.run.as_ref().filter(|run| self.ledgers.is_foreign(run));
        run.map(|run| run.job)
    }

    /// Ends the connection for good. Each request that waits gets the error.
    pub fn end(&mut self, errnum: i32, why: String) {
        self.flights.refuse(&mut self.cx, errnum, &why, |_| true);
        while let Some(packet) = self.unsent.pop() {
            let Header { kind, matchtag, noresponse, .. } = packet.header();
            if kind == Kind::Request && matchtag != NO_TAG && !noresponse {
                self.cx.wire.refuse(&packet, errnum, &why);
            }
        }
        self.barrier.end(&mut self.cx, errnum, &why);
        self.ledgers.clear();
        self.outboxes.end(&mut self.cx, errnum, &why);
        self.link.enter(Phase::Ended(errnum, why));
    }

    /// When to call [`Connector::timeout`] next, in seconds.
    pub fn next_timeout(&self) -> Option<f64> {
        // With many senders this takes long, and only a client that closes waits for them.
        let answers = self.is_owing().then(|| self.inboxes.next(self.link.is_live())).flatten();
        let parts = match self.link.phase() {
            Phase::Ended(..) => return None,
            Phase::Live => [
                self.flights.next(),
                self.barrier.next(),
                self.outboxes.next(),
                self.ledgers.next(true),
            ],
            Phase::Restoring => [self.standing.next(), None, None, None],
            Phase::Settling => [self.ledgers.next(false), None, None, None],
            Phase::Down { .. } | Phase::Greeting => [None; 4],
        };
        let parts = parts.into_iter().flatten();
        parts.chain(answers).chain(self.link.next(&self.cx)).reduce(f64::min)
    }

    /// The time of [`Connector::next_timeout`] has come.
    pub fn timeout(&mut self, now: f64) {
        self.cx.now = now;
        if self.link.is_given_up(&self.cx) {
            let away = self.cx.client.limits.give_up_after;
            self.end(TIMED_OUT, format!("the broker has been away for {away} s"));
            return;
        }
        self.inboxes.give_up(now);
        match self.link.phase() {
            Phase::Live => {
                self.flights.timeout(&mut self.cx);
                self.ask_shells();
                self.ledgers.timeout(&mut self.cx);
                self.barrier.timeout(&mut self.cx);
            }
            Phase::Settling => self.settle(),
            Phase::Restoring => {
                if let Err(((topic, payload), errnum)) = self.standing.timeout(&mut self.cx) {
                    let why = format!("the restarted broker refuses {topic} {payload}");
                    self.end(errnum, why);
                }
            }
            Phase::Down { .. } | Phase::Ended(..) | Phase::Greeting => {}
        }
    }

    /// The client is about to close the connection. It should wait while
    /// [`Connector::is_lingering`].
    pub fn closing(&mut self, now: f64) {
        self.cx.now = now;
        self.outboxes.hurry(&self.cx);
        self.leave();
    }

    /// The client is about to close the connection.
    fn leave(&mut self) {
        self.cx.client.is_closing = true;
        self.inboxes.leave(&self.cx);
        if self.link.is_live() {
            self.ask_shells();
            self.ledgers.bequeath(&mut self.cx);
        }
    }

    /// Asks the shells at the other ends of channels whose time has come.
    fn ask_shells(&mut self) {
        self.outboxes.ask_due(&mut self.cx);
        if self.is_owing() {
            self.inboxes.ask_due(&mut self.cx);
        }
    }

    /// Whether senders may still need answers of a client that closes. Nobody needs any once the leader
    /// shell has ended: by then each task has ended, or is not waited for.
    fn is_owing(&self) -> bool {
        self.cx.client.is_closing && !self.leader.has_ended() && self.inboxes.is_owing()
    }

    /// Whether something that the client has sent is lost if the connection is closed now.
    pub fn is_lingering(&self) -> bool {
        let is_bequeathing = self.cx.client.is_closing && self.ledgers.has_unsaved();
        let has_unsent = self.outboxes.has_one_way() || self.unsent.iter().any(is_needed);
        !self.link.has_ended() && (has_unsent || is_bequeathing || self.is_owing())
    }

    /// The client closes the connection: removes its keys from namespaces that are no job's. The
    /// end of a job removes those in its guest namespace.
    pub fn farewell(&mut self) {
        if self.link.is_live() {
            self.ledgers.farewell(&mut self.cx);
        }
    }
}

//! The leader of one job: from the start request to the final release.
//!
//! ```text
//!  Opening ────────▶ Launching ──all shells run──▶ Running
//!     │                  │                            │
//!     │                  └────── all shells gone ─────┴──▶ Finishing
//!     │                                                       │ data moved
//!     │                                                       ▼
//!     └── it had ended before ────────────────────────────▶ Ended ──covered──▶ Released
//! ```
//!
//! A fatal exception is no state of its own: it starts the kill escalation, and the job goes
//! on to its end as its shells do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::machine::Context;
use crate::machine::effect::{Effect, Effects, KvsOp, Role, StreamItem};
use crate::machine::event::{RequestId, StreamId};
use crate::machine::leader::barrier::{Barrier, Entered};
use crate::machine::leader::cover::Cover;
use crate::machine::leader::exec_log::{ExecLog, Logged};
use crate::machine::leader::kill::Kill;
use crate::machine::leader::release::Release;
use crate::machine::leader::timer::{Timer, TimerTable};
use crate::machine::tree;
use crate::proto::peer::{
    LeadNote, LeadReply, LeadRequest, Mode, Order, OrderRequest, OutputPosition, Reports,
    ShellCommand, ShellsRequest, StreamEnd, Version,
};
use crate::proto::{
    BrokerRank, Exception, ExecEvent, Idset, JobDigest, JobException, JobId, Jobspec,
    ReleasedRanks, Response, StartRequest, Stream, WaitStatus,
};

mod barrier;
mod cover;
mod ending;
mod exec_log;
mod kill;
pub(in crate::machine) mod launch;
mod opening;
mod release;
mod report;
mod timer;
mod trouble;

/// First pause before a rank whose module is away is asked again, in seconds.
const RETRY_FIRST: f64 = 0.1;
/// Longest such pause, in seconds.
const RETRY_MAX: f64 = 5.0;
/// How long a job's last events wait for `done`, in seconds.
const FLUSH_PAUSE: f64 = 0.05;

/// Where a job is between its start request and its final release.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The guest namespace is being made, or found.
    Opening,
    /// Shells are being started, or found.
    Launching,
    /// Every shell has started.
    Running,
    /// No process is left; the job's data moves to the primary namespace.
    Finishing,
    /// The final release was said, if anybody listens. Agents keep what they have until a
    /// checkpoint holds the job's end.
    Ended,
    /// Nothing is left to do.
    Released,
}

/// How far one rank's shell is, as its agent says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Pending,
    Running,
    Exited,
    /// Nothing is left of it, or nothing more can be learned.
    Gone,
}

/// One rank of the job.
#[derive(Clone, Debug, PartialEq)]
struct Rank {
    phase: Phase,
    /// It was seen running, once.
    started: bool,
    /// Its shell has left its unit, and that was told.
    left: bool,
    /// How its shell has ended, as its agent says.
    exit: Option<WaitStatus>,
    /// Bytes of stdout and stderr that were sent to the exec eventlog.
    output: [u64; 2],
    /// Bytes of them that are in it.
    durable: [u64; 2],
    /// It was said of stdout and stderr that they were cut off.
    truncated: [bool; 2],
    /// Since when its module has been away, in monotonic seconds.
    away_since: Option<f64>,
}

/// A fatal exception in progress.
#[derive(Clone, Debug, Default, PartialEq)]
struct Failure {
    /// Status that the exception asks for.
    wait_status: Option<WaitStatus>,
}

/// What was said to the job manager, to say it again to a new coordinator.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    started: bool,
    exceptions: Vec<Exception>,
    finish: Option<WaitStatus>,
}

/// The leader of one job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leader {
    id: JobId,
    start: StartRequest,
    jobspec: Jobspec,
    command: ShellCommand,
    coordinator: Option<RequestId>,
    said: Said,
    state: State,
    /// Which of the job's leaders this one is, counted from 1; 0 if the KVS does not tell.
    generation: u64,
    has_namespace: bool,
    /// Times that the guest namespace could not be opened.
    open_failures: u32,
    linked: bool,
    ranks: BTreeMap<BrokerRank, Rank>,
    /// Streams to agents, with the ranks that each answers for and its root.
    streams: BTreeMap<StreamId, (BrokerRank, Idset)>,
    critical: Idset,
    barrier: Barrier,
    /// A shell ended before the first barrier and before any exception.
    ended_before_barrier: bool,
    leader_exited: bool,
    done_posted: bool,
    /// Shells were asked for, or found: there is a status to tell.
    tried: bool,
    /// Ranks that the coordinator has given up on.
    lost: Idset,
    failure: Option<Failure>,
    kill: Option<Kill>,
    status: WaitStatus,
    /// The status that is posted as `complete`, by an earlier leader or by the job's user.
    completed: Option<WaitStatus>,
    /// The status that an earlier leader has told the job manager: it stays that.
    promised: Option<WaitStatus>,
    release: Release,
    log: ExecLog,
    cover: Cover,
    timers: TimerTable,
    retry_pause: f64,
    /// When the shells had started, wall time: the time limit counts from here.
    began: Option<f64>,
    /// The time limit in force, in seconds since the epoch; 0 is none.
    expires: f64,
}

impl Leader {
    /// Takes the lead of a job.
    pub(super) fn new(
        cx: Context,
        coordinator: RequestId,
        request: LeadRequest,
        out: &mut Effects,
    ) -> Self {
        let start = request.start;
        let ranks = start.r.ranks();
        let rank = Rank {
            phase: Phase::Pending,
            started: false,
            left: false,
            exit: None,
            output: [0, 0],
            durable: [0, 0],
            truncated: [false, false],
            away_since: None,
        };
        let mut job = Self {
            id: start.id,
            jobspec: Jobspec::default(),
            command: launch::adopting_command(cx, &start),
            coordinator: Some(coordinator),
            said: Said::default(),
            state: State::Opening,
            generation: 0,
            has_namespace: false,
            open_failures: 0,
            linked: false,
            ranks: ranks.ranks().map(|r| (r, rank.clone())).collect(),
            streams: BTreeMap::new(),
            critical: (0..ranks.len() as u32).collect(),
            barrier: Barrier::new(ranks),
            ended_before_barrier: false,
            leader_exited: false,
            done_posted: false,
            tried: false,
            lost: request.lost,
            failure: None,
            kill: None,
            status: request.status,
            release: Release::new(ranks, &request.released),
            log: ExecLog::default(),
            cover: Cover::default(),
            completed: None,
            promised: request.finish,
            timers: TimerTable::default(),
            retry_pause: RETRY_FIRST,
            began: None,
            expires: 0.0,
            start,
        };
        // What an earlier leader made is there, whatever this one thinks of the job.
        job.has_namespace = job.start.reattach;
        if job.check(cx, out) {
            job.has_namespace = true;
            let userid = job.start.userid;
            if job.start.reattach || request.again {
                job.open(out);
            } else {
                out.push(Effect::Kvs { id: job.id, op: KvsOp::Create { userid } });
            }
        } else {
            job.without_namespace(cx, out);
        }
        if let Some(exception) = &request.exception {
            job.exception(cx, exception, out);
        }
        job.advance(cx, out);
        job
    }

    /// For [`super::Position`].
    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            State::Opening => "opening",
            State::Launching => "launching",
            State::Running => "running",
            State::Finishing => "finishing",
            State::Ended => "ended",
            State::Released => "released",
        }
    }

    /// It is this very leader of this very job.
    pub(super) fn leads(&self, digest: &JobDigest, generation: u64) -> bool {
        self.command.digest == *digest && self.generation == generation
    }

    pub(super) fn is_released(&self) -> bool {
        self.state == State::Released
    }

    pub(super) fn next_timeout(&self) -> Option<f64> {
        self.timers.next()
    }

    /// Whether this is the job of the request: its id may have been issued again.
    pub(super) fn is_same(&self, start: &StartRequest) -> bool {
        self.command.digest == JobDigest::new(start.id, start.userid, &start.r)
    }

    /// Another coordinator asks for a job that is led here already. It is told everything
    /// again; what the job manager knows, it does not pass on.
    pub(super) fn lead(
        &mut self,
        cx: Context,
        coordinator: RequestId,
        reattach: bool,
        exception: Option<&JobException>,
        out: &mut Effects,
    ) {
        if let Some(to) = self.coordinator.replace(coordinator) {
            // Usually nobody is there any more; a coordinator that is asks again.
            out.end(to, StreamEnd::superseded("another coordinator has taken over"));
        }
        self.start.reattach = reattach;
        let said = self.said.clone();
        // A job that can live with an exception was told of it; a lost fatal one must be said.
        for exception in said.exceptions.into_iter().filter(|e| e.severity == 0) {
            self.say(Response::Exception(exception), out);
        }
        if said.started {
            self.say_started(out);
        }
        if let Some(status) = said.finish {
            self.say(Response::Finish { status }, out);
        }
        let released = self.release.released();
        if !released.is_empty() {
            let ranks = ReleasedRanks::These(released.clone());
            self.say(Response::Release { ranks, is_final: false }, out);
        }
        if let Some(mark) = self.cover.outstanding() {
            self.note(LeadNote::Changed { mark }, out);
        }
        if self.state == State::Ended {
            return self.say_ended(out);
        }
        if let Some(exception) = exception.filter(|_| self.failure.is_none()) {
            self.exception(cx, exception, out);
        }
        self.advance(cx, out);
    }

    /// Nobody listens to this request any more.
    pub(super) fn disconnected(&mut self, request: RequestId, out: &mut Effects) {
        if self.coordinator == Some(request) {
            self.coordinator = None;
            out.push(Effect::Drop { to: request });
        }
    }

    /// The rank that coordinated this job is gone; the job runs on.
    pub(super) fn shutdown(&mut self, out: &mut Effects) {
        if let Some(to) = self.coordinator.take() {
            out.end(to, StreamEnd::Unloaded);
        }
    }

    fn ask(&mut self, cx: Context, ranks: &Idset, mode: Mode, out: &mut Effects) {
        let Some(root) = ranks.first() else { return };
        let command = self.command.clone();
        let output = self.ranks.iter().filter(|(rank, _)| ranks.contains_rank(**rank));
        let output = output.flat_map(|(rank, known)| {
            [Stream::Stdout, Stream::Stderr].map(|stream| OutputPosition {
                rank: *rank,
                stream,
                offset: known.durable[stream as usize],
            })
        });
        let stream = out.stream();
        self.streams.insert(stream, (BrokerRank(root), ranks.clone()));
        out.push(Effect::Shells {
            owner: Role::Leader,
            stream,
            to: BrokerRank(root),
            request: Box::new(ShellsRequest {
                version: Version,
                id: self.id,
                parent: cx.facts.rank,
                leader: cx.facts.rank,
                issued: cx.now.wall,
                generation: self.generation,
                ranks: ranks.clone(),
                arity: cx.config.fanout,
                mode,
                command,
                output: output.filter(|position| position.offset > 0).collect(),
            }),
        });
    }

    /// A stream to an agent has brought reports, or has ended.
    pub(super) fn reported(
        &mut self,
        cx: Context,
        stream: StreamId,
        result: Result<Reports, StreamEnd>,
        out: &mut Effects,
    ) {
        let Some((root, ranks)) = self.streams.get(&stream).cloned() else { return };
        match result {
            Ok(reports) => self.reports(cx, &ranks, reports, out),
            Err(StreamEnd::Superseded { .. }) => {
                // Another leader's stream has taken its place.
                self.streams.remove(&stream);
            }
            Err(StreamEnd::AskedAgain) => {
                // A stream of its own has, perhaps for some of its ranks only.
                self.streams.remove(&stream);
                let newer = self.streams.range(stream..);
                let covered: Idset = newer.flat_map(|(_, (_, ranks))| ranks.iter()).collect();
                // After a pause: with another leader of the same generation it would never end.
                self.ask_later(cx, &ranks.difference(&covered));
            }
            Err(end) => {
                self.streams.remove(&stream);
                let mut below = ranks;
                below.remove(root.0);
                self.unreachable(cx, root, &end, out);
                self.ask_again(cx, &below, out);
            }
        }
        self.advance(cx, out);
    }

    /// The ranks below a lost parent: the leader talks to them itself, in subtrees.
    fn ask_subtrees(&mut self, cx: Context, ranks: &Idset, mode: Mode, out: &mut Effects) {
        for (_, ranks) in tree::split(ranks, cx.config.fanout) {
            self.ask(cx, &ranks, mode, out);
        }
    }

    /// Sends an order down the tree to the agents of `ranks`.
    fn order(&self, ranks: &Idset, order: &Order, out: &mut Effects) {
        for (root, subtree) in self.streams.values() {
            let ranks = ranks.intersection(subtree);
            if !ranks.is_empty() {
                let (generation, order) = (self.generation, order.clone());
                let request =
                    OrderRequest { version: Version, id: self.id, generation, ranks, order };
                out.push(Effect::Order { to: *root, request });
            }
        }
    }

    /// Output that is in the exec eventlog now need not be kept any more.
    fn acknowledge(&mut self, logged: Logged, out: &mut Effects) {
        if let Some(rank) = self.ranks.get_mut(&logged.rank) {
            let durable = &mut rank.durable[logged.stream as usize];
            *durable = logged.offset.max(*durable);
        }
        if let Some(mark) = self.cover.committed(logged) {
            self.note(LeadNote::Changed { mark }, out);
        }
        let Logged { rank, stream, offset } = logged;
        let checkpointed = self.cover.offset(rank, stream);
        let order = Order::Acknowledge { stream, offset, checkpointed };
        self.order(&Idset::from_iter([logged.rank]), &order, out);
    }

    /// Goes on as far as what is known allows.
    fn advance(&mut self, cx: Context, out: &mut Effects) {
        if self.state == State::Launching && self.all_started() && self.linked {
            self.enter(State::Running);
            self.began.get_or_insert(cx.now.wall);
            self.arm_expiration(cx);
            self.say_started(out);
        }
        let launched = self.linked && matches!(self.state, State::Launching | State::Running);
        let ended = self.all_in(&[Phase::Exited, Phase::Gone]);
        if launched && self.tried && self.said.finish.is_none() && ended {
            self.complete(cx, out);
        }
        if launched && self.all_in(&[Phase::Gone]) {
            self.enter(State::Finishing);
        }
        if self.state == State::Finishing {
            self.timers.keep_only(Timer::Commit);
            if self.has_namespace {
                self.finish_log(cx, out);
            } else {
                self.release_all(cx, out);
            }
        }
        if !self.has_namespace {
            return;
        }
        if self.said.finish.is_none() {
            self.log.flush(self.id, out);
        } else if launched && self.log.is_waiting() && !self.timers.is_armed(Timer::Flush) {
            // The last event usually follows at once: one commit for both.
            self.timers.arm(Timer::Flush, cx.now.mono + FLUSH_PAUSE);
        }
    }

    fn all_started(&self) -> bool {
        // A job can begin without a rank that it can do without.
        let counts = |rank: &Rank| rank.started || rank.phase == Phase::Gone;
        let any = self.ranks.values().any(|rank| rank.started);
        let all = self.ranks.values().all(|rank| rank.started);
        all || (any && self.failure.is_none() && self.ranks.values().all(counts))
    }

    fn all_in(&self, phases: &[Phase]) -> bool {
        self.ranks.values().all(|rank| phases.contains(&rank.phase))
    }

    /// Ranks whose shells run, as far as is known.
    fn active(&self) -> Idset {
        let active = self.ranks.iter().filter(|(_, rank)| rank.phase != Phase::Gone);
        let active = active.filter(|(_, rank)| rank.phase != Phase::Exited);
        active.map(|(rank, _)| *rank).collect()
    }

    /// Ranks that something of the job may be left on.
    fn unsettled(&self) -> Idset {
        let unsettled = self.ranks.iter().filter(|(_, rank)| rank.phase != Phase::Gone);
        unsettled.map(|(rank, _)| *rank).collect()
    }

    fn is_multiuser(&self) -> bool {
        self.command.multiuser
    }

    fn post(&mut self, cx: Context, name: &str) {
        self.log.post(ExecEvent::bare(cx.now.wall, name));
    }

    fn say_started(&mut self, out: &mut Effects) {
        self.said.started = true;
        let reattached = self.start.reattach;
        self.say(if reattached { Response::Reattached {} } else { Response::Start {} }, out);
    }

    fn say(&self, response: Response, out: &mut Effects) {
        self.reply(LeadReply::Response(response), out);
    }

    fn note(&self, note: LeadNote, out: &mut Effects) {
        self.reply(LeadReply::Note(note), out);
    }

    fn reply(&self, reply: LeadReply, out: &mut Effects) {
        if let Some(to) = self.coordinator {
            out.push(Effect::Stream { to, item: StreamItem::Reply(reply) });
        }
    }

    /// What `stats-get` shows of the job, under upstream's names.
    pub(super) fn stats(&self, config: &crate::config::Config, method: &str) -> Value {
        let active = self.active();
        let kill = self.kill.as_ref();
        json!({
            "implementation": method,
            "ns": self.id.namespace(),
            "critical_ranks": self.critical.to_string(),
            "multiuser": i32::from(self.is_multiuser()),
            "has_namespace": i32::from(self.has_namespace),
            "exception_in_progress": i32::from(self.failure.is_some()),
            "started": i32::from(!matches!(self.state, State::Opening)),
            "running": i32::from(self.state == State::Running),
            "finalizing": i32::from(self.state == State::Finishing),
            "expiration": self.expires,
            "kill_timeout": kill.map_or(config.kill_timeout, |kill| kill.pause),
            "kill_count": kill.map_or(0, |kill| kill.tasks),
            "kill_shell_count": kill.map_or(0, |kill| kill.shells),
            "total_shells": self.ranks.len(),
            "active_shells": active.len(),
            "active_ranks": active.to_string(),
        })
    }

    /// The only place where the state changes.
    fn enter(&mut self, state: State) {
        let legal = match (self.state, state) {
            (State::Opening, _) | (State::Launching, State::Running | State::Finishing) => true,
            (State::Running, State::Finishing) | (State::Finishing, State::Ended) => true,
            (State::Ended, State::Released) => true,
            (old, new) => old == new,
        };
        assert!(legal, "{}: {:?} to {state:?}", self.id, self.state);
        self.state = state;
    }
}

fn plural(noun: &str, count: usize) -> String {
    if count == 1 { noun.to_string() } else { format!("{noun}s") }
}

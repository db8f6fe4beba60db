//! The leader of one job: from the start request to the final release.
//!
//! ```text
//!  Opening ──namespace──▶ Launching ──all shells run──▶ Running
//!     │                       │                            │
//!     │                       └────── all shells gone ─────┤
//!     └── failed before launch ─────────────────────────▶ Finishing ──▶ Released
//! ```
//!
//! A fatal exception is no state of its own: it starts the kill escalation, and the job goes
//! on to its end as its shells do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::machine::Context;
use crate::machine::barrier::{Barrier, Entered};
use crate::machine::effect::{Effect, Effects, KvsOp, Owner};
use crate::machine::event::{Fault, KvsResult, Opened, RequestId, StreamId};
use crate::machine::exec_log::ExecLog;
use crate::machine::kill::{Kill, Step};
use crate::machine::launch;
use crate::machine::release::Release;
use crate::machine::timer::{Timer, TimerTable};
use crate::machine::tree;
use crate::port::supervisor::Stream;
use crate::proto::peer::{
    LeadRequest, Mode, Order, OrderRequest, OutputPosition, Reports, ShellCommand, ShellsRequest,
    VERSION,
};
use crate::proto::{
    BrokerRank, Exception, ExecEvent, Idset, JobException, JobId, Jobspec, Response, Signal,
    StartRequest, WaitStatus, format_fsd,
};

mod report;

/// First pause before a rank whose module is away is asked again, in seconds.
const RETRY_FIRST: f64 = 0.1;
/// Longest such pause, in seconds.
const RETRY_MAX: f64 = 5.0;

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
    /// The final release was said.
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
    /// Bytes of stdout and stderr that went to the exec eventlog.
    output: [u64; 2],
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
pub(super) struct Job {
    id: JobId,
    start: StartRequest,
    jobspec: Jobspec,
    command: Option<ShellCommand>,
    coordinator: Option<RequestId>,
    said: Said,
    state: State,
    has_namespace: bool,
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
    /// Ranks that the coordinator has given up on.
    lost: Idset,
    failure: Option<Failure>,
    kill: Option<Kill>,
    status: WaitStatus,
    release: Release,
    log: ExecLog,
    timers: TimerTable,
    retry_pause: f64,
    /// When the shells had started, wall time: the time limit counts from here.
    began: Option<f64>,
}

impl Job {
    /// Takes the lead of a job.
    pub(super) fn new(
        cx: Context,
        coordinator: RequestId,
        start: StartRequest,
        request: &LeadRequest,
        out: &mut Effects,
    ) -> Self {
        let ranks = start.r.ranks();
        let rank = Rank { phase: Phase::Pending, started: false, output: [0, 0], away_since: None };
        let mut job = Self {
            id: start.id,
            jobspec: Jobspec::default(),
            command: None,
            coordinator: Some(coordinator),
            said: Said::default(),
            state: State::Opening,
            has_namespace: false,
            linked: false,
            ranks: ranks.ranks().map(|r| (r, rank.clone())).collect(),
            streams: BTreeMap::new(),
            critical: (0..ranks.len() as u32).collect(),
            barrier: Barrier::new(ranks),
            ended_before_barrier: false,
            leader_exited: false,
            done_posted: false,
            lost: request.lost.clone(),
            failure: None,
            kill: None,
            status: WaitStatus::default(),
            release: Release::new(ranks),
            log: ExecLog::default(),
            timers: TimerTable::default(),
            retry_pause: RETRY_FIRST,
            began: None,
            start,
        };
        if job.check(cx, out) {
            job.has_namespace = true;
            let userid = job.start.userid;
            let op =
                if job.start.reattach { KvsOp::Open { userid } } else { KvsOp::Create { userid } };
            out.push(Effect::Kvs { id: job.id, op });
        }
        if let Some(exception) = &request.exception {
            job.exception(cx, exception, out);
        }
        job.advance(cx, out);
        job
    }

    /// Whether this configuration can run the job at all; if not, it ends here.
    fn check(&mut self, cx: Context, out: &mut Effects) -> bool {
        let expiration = self.start.r.expiration();
        let checked = Jobspec::from_json(&self.start.jobspec)
            .map_err(|error| error.to_string())
            .and_then(|jobspec| {
                if expiration < 0.0 {
                    return Err(format!("Invalid resource set expiration {expiration:.2}"));
                }
                let command = launch::shell_command(cx, &self.start, &jobspec)?;
                Ok((jobspec, command))
            });
        match checked {
            Ok((jobspec, command)) => {
                self.jobspec = jobspec;
                self.command = Some(command);
                true
            }
            Err(reason) => {
                let note = format!("failed to initialize implementation: {reason}");
                self.fatal(cx, note, out);
                false
            }
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.state == State::Released
    }

    pub(super) fn next_timeout(&self) -> Option<f64> {
        self.timers.next()
    }

    /// Whether this is the job of the request: its id may have been issued again.
    pub(super) fn is_same(&self, start: &StartRequest) -> bool {
        self.start.userid == start.userid && self.start.r.ranks() == start.r.ranks()
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
            let fault = Fault::new(libc::ECONNRESET, "another coordinator has taken over");
            out.push(Effect::End { to, fault });
        }
        self.start.reattach = reattach;
        let said = self.said.clone();
        for exception in said.exceptions {
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
            let ranks = released.to_string();
            self.say(Response::Release { ranks, is_final: false }, out);
        }
        if let Some(exception) = exception {
            self.exception(cx, exception, out);
        }
        self.advance(cx, out);
    }

    /// The rank that coordinated this job is gone; the job runs on.
    pub(super) fn shutdown(&mut self, out: &mut Effects) {
        if let Some(to) = self.coordinator.take() {
            let fault = Fault::new(libc::ECONNRESET, "job-exec-rs is being unloaded there");
            out.push(Effect::End { to, fault });
        }
    }

    /// A KVS operation has ended.
    pub(super) fn kvs(&mut self, cx: Context, result: KvsResult, out: &mut Effects) {
        let opens = matches!(result, KvsResult::Created(_) | KvsResult::Opened(_));
        if opens && self.state != State::Opening {
            return; // the answer to a question that this leader did not ask
        }
        match result {
            KvsResult::Created(Ok(())) => self.created(cx, out),
            KvsResult::Opened(Ok(opened)) => self.opened(cx, opened, out),
            // An earlier leader made it, and the job manager never heard of a start.
            KvsResult::Created(Err(fault)) if fault.errnum == libc::EEXIST => {
                let userid = self.start.userid;
                out.push(Effect::Kvs { id: self.id, op: KvsOp::Open { userid } });
            }
            KvsResult::Created(Err(fault)) | KvsResult::Opened(Err(fault)) => {
                self.has_namespace = false;
                self.fatal(cx, format!("failed to create guest ns: {fault}"), out);
            }
            KvsResult::Linked(result) => {
                self.linked = true;
                if let Err(fault) = result {
                    self.fatal(cx, format!("failed to link guest ns: {fault}"), out);
                }
            }
            KvsResult::Appended(result) => {
                if let Err(fault) = result {
                    let text = format!("{}: exec.eventlog commit failed: {fault}", self.id);
                    out.log(crate::machine::Level::Error, text);
                }
                self.acknowledge(out);
            }
            KvsResult::Finished(result) => {
                if let Err(fault) = result {
                    let text = format!("{}: moving the guest namespace failed: {fault}", self.id);
                    out.log(crate::machine::Level::Error, text);
                }
                self.finished(out);
            }
        }
        self.advance(cx, out);
    }

    fn created(&mut self, cx: Context, out: &mut Effects) {
        self.post(cx, "init");
        if self.failure.is_some() {
            return self.enter(State::Finishing);
        }
        self.post(cx, "starting");
        self.log.flush(self.id, out);
        out.push(Effect::Kvs { id: self.id, op: KvsOp::Link });
        self.enter(State::Launching);
        if self.jobspec.mock_exception.as_deref() == Some("init") {
            // Nothing was launched yet: as if the exception had come a moment earlier.
            self.enter(State::Finishing);
            return self.fatal(cx, "mock init exception generated", out);
        }
        self.launch(cx, Mode::Start, out);
    }

    fn opened(&mut self, cx: Context, opened: Opened, out: &mut Effects) {
        let mut status = None;
        for event in &opened.events {
            if let Some((rank, stream, bytes)) = event.logged() {
                if let Some(rank) = self.ranks.get_mut(&rank) {
                    rank.output[stream as usize] += bytes;
                }
            }
            match event.name.as_str() {
                "shell-exit" => self.leader_exited = true,
                "complete" => {
                    status = event.context.get("status").and_then(Value::as_i64);
                }
                _ => (), // RFC 50 names that say nothing about where the job is
            }
        }
        if opened.moved {
            return self.ended_before(status, out);
        }
        self.linked = true;
        let started = opened.events.iter().any(|event| event.name == "starting");
        if self.start.reattach {
            self.post(cx, "reattach");
        } else if !started {
            // An earlier leader made the namespace and came no further.
            self.post(cx, "starting");
        }
        self.log.flush(self.id, out);
        if self.failure.is_some() && !started {
            return self.enter(State::Finishing);
        }
        self.enter(State::Launching);
        self.launch(cx, if self.start.reattach { Mode::Adopt } else { Mode::Start }, out);
        if self.failure.is_some() {
            self.abort(cx, out);
        }
    }

    /// The job had ended while nobody could be told.
    fn ended_before(&mut self, status: Option<i64>, out: &mut Effects) {
        self.say_started(out);
        let status = status.and_then(|s| i32::try_from(s).ok()).unwrap_or(1 << 8);
        self.finish(WaitStatus(status), out);
        self.release_all(out);
    }

    /// Has agents run, or find, the shells of all ranks: one message, to this rank's agent,
    /// which is the root of the tree.
    fn launch(&mut self, cx: Context, mode: Mode, out: &mut Effects) {
        let lost = std::mem::take(&mut self.lost);
        for rank in lost.ranks() {
            self.node_failure(cx, rank, out);
        }
        let present = self.start.r.ranks().difference(&lost);
        self.ask(cx, &present, mode, out);
    }

    fn ask(&mut self, cx: Context, ranks: &Idset, mode: Mode, out: &mut Effects) {
        let (Some(root), Some(command)) = (ranks.first(), self.command.clone()) else { return };
        let output = self.ranks.iter().filter(|(rank, _)| ranks.contains_rank(**rank));
        let output = output.flat_map(|(rank, known)| {
            [Stream::Stdout, Stream::Stderr].map(|stream| OutputPosition {
                rank: *rank,
                stream,
                offset: known.output[stream as usize],
            })
        });
        let stream = out.stream();
        self.streams.insert(stream, (BrokerRank(root), ranks.clone()));
        out.push(Effect::Shells {
            owner: Owner::Leader,
            stream,
            to: BrokerRank(root),
            request: Box::new(ShellsRequest {
                version: VERSION,
                id: self.id,
                leader: self.start.r.first_rank(),
                ranks: ranks.clone(),
                arity: cx.config.fanout,
                mode,
                command,
                output: output.filter(|position| position.offset > 0).collect(),
            }),
        });
    }

    /// How to ask a rank again: what was never started may be, until the job has started.
    fn mode(&self) -> Mode {
        if self.state == State::Launching && !self.start.reattach && self.kill.is_none() {
            Mode::Start
        } else {
            Mode::Adopt
        }
    }

    /// A stream to an agent has brought reports, or has ended.
    pub(super) fn reported(
        &mut self,
        cx: Context,
        stream: StreamId,
        result: Result<Reports, Fault>,
        out: &mut Effects,
    ) {
        let Some((root, ranks)) = self.streams.get(&stream).cloned() else { return };
        match result {
            Ok(reports) => self.reports(cx, &ranks, reports, out),
            Err(fault) => {
                self.streams.remove(&stream);
                let mut below = ranks;
                below.remove(root.0);
                self.unreachable(cx, root, &fault, out);
                self.orphaned(cx, &below, out);
            }
        }
        self.advance(cx, out);
    }

    /// The ranks below a lost parent: the leader talks to them itself, in subtrees.
    fn orphaned(&mut self, cx: Context, orphans: &Idset, out: &mut Effects) {
        let mode = self.mode();
        for (_, ranks) in tree::split(orphans, cx.config.fanout) {
            self.ask(cx, &ranks, mode, out);
        }
    }

    /// The job manager published an exception of this job.
    pub(super) fn exception(&mut self, cx: Context, exception: &JobException, out: &mut Effects) {
        if exception.severity != 0 || matches!(self.state, State::Finishing | State::Released) {
            return;
        }
        if self.failure.is_some() {
            if self.kill.is_some() {
                self.signal_shells(cx.config.term_signal.number(), false, out);
            }
            return;
        }
        let wait_status = exception.wait_status.map(WaitStatus::to_shell_exit);
        self.failure = Some(Failure { wait_status });
        self.abort(cx, out);
        self.advance(cx, out);
    }

    /// The time limit has moved.
    pub(super) fn expiration(
        &mut self,
        cx: Context,
        expiration: f64,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        if expiration < 0.0 || !expiration.is_finite() {
            let message = format!("{}: invalid expiration {expiration}", self.id);
            return Err(Fault::new(libc::EINVAL, message));
        }
        self.start.r.set_expiration(expiration);
        if self.began.is_some() {
            self.arm_expiration(cx);
        }
        let text = format!("updated expiration of {} to {expiration:.2}", self.id);
        out.log(crate::machine::Level::Debug, text);
        Ok(())
    }

    pub(super) fn timeout(&mut self, cx: Context, out: &mut Effects) {
        while let Some(timer) = self.timers.pop_due(cx.now.mono) {
            match timer {
                Timer::Barrier => self.barrier_timeout(cx, out),
                Timer::Expiration => self.time_limit(cx, out),
                Timer::JobKill | Timer::MaxKill | Timer::ShellKill => {
                    self.kill_step(cx, timer, out);
                }
                Timer::Release => self.release_partial(out),
                Timer::Retry => self.retry(cx, out),
                Timer::ShellExit => self.shell_exit_timeout(cx, out),
            }
        }
        self.advance(cx, out);
    }

    fn barrier_timeout(&mut self, cx: Context, out: &mut Effects) {
        let pending = self.barrier.pending();
        let reason = format!("job {} start timeout: possible node hang", self.id);
        out.push(Effect::Drain { ranks: pending.clone(), reason });
        let note = format!(
            "start barrier timeout waiting for {}/{} nodes ({} {pending})",
            pending.len(),
            self.barrier.total(),
            plural("rank", pending.len()),
        );
        self.fatal(cx, note, out);
    }

    fn time_limit(&mut self, cx: Context, out: &mut Effects) {
        self.raise("timeout", 0, "resource allocation expired", out);
        self.failure.get_or_insert_default();
        self.signal_shells(Signal::ALRM.number(), false, out);
        self.start_kill(cx);
    }

    fn shell_exit_timeout(&mut self, cx: Context, out: &mut Effects) {
        let active = self.active();
        let note = format!(
            "job shells still active on {} ({} {active}) {} after leader shell exit",
            self.start.r.hosts(&active),
            plural("rank", active.len()),
            format_fsd(cx.config.shell_exit_timeout.unwrap_or_default()),
        );
        self.fatal(cx, note, out);
    }

    fn kill_step(&mut self, cx: Context, timer: Timer, out: &mut Effects) {
        let Some(kill) = &mut self.kill else { return };
        let kill_signal = cx.config.kill_signal.number();
        match kill.step(cx.now.mono, timer, cx.config, &mut self.timers) {
            Step::KillTasks => {
                out.push(Effect::KillJob { id: self.id, signal: kill_signal });
            }
            Step::KillShells { and_give_up } => {
                if self.is_multiuser() {
                    self.signal_shells(Signal::USR1.number(), false, out);
                } else {
                    self.signal_shells(kill_signal, true, out);
                }
                if and_give_up {
                    self.give_up(cx, out);
                }
            }
            Step::GiveUp => self.give_up(cx, out),
        }
    }

    /// What can't be killed is drained, and the job ends without it.
    fn give_up(&mut self, cx: Context, out: &mut Effects) {
        let active = self.active();
        if active.is_empty() {
            return;
        }
        let reason = format!("unkillable user processes for job {}", self.id);
        out.push(Effect::Drain { ranks: active.clone(), reason });
        self.status = self.status.max(WaitStatus(1));
        for rank in active.ranks() {
            self.set_gone(cx, rank);
        }
    }

    /// A fatal error that this leader has found.
    fn fatal(&mut self, cx: Context, note: impl Into<String>, out: &mut Effects) {
        if self.failure.is_none() {
            self.failure = Some(Failure::default());
            let exception = Exception::fatal(note);
            let text = format!("job-exception: id={}: {}", self.id, exception.note);
            out.log(crate::machine::Level::Info, text);
            self.said.exceptions.push(exception.clone());
            self.say(Response::Exception(exception), out);
        }
        self.abort(cx, out);
    }

    fn raise(&mut self, kind: &str, severity: i32, note: impl Into<String>, out: &mut Effects) {
        let exception = Exception { severity, kind: kind.to_string(), note: note.into() };
        let text = format!("job-exception: id={}: {}", self.id, exception.note);
        out.log(crate::machine::Level::Info, text);
        self.said.exceptions.push(exception.clone());
        self.say(Response::Exception(exception), out);
    }

    /// Ends what runs; what does not run yet is not started.
    fn abort(&mut self, cx: Context, out: &mut Effects) {
        match self.state {
            State::Opening if !self.has_namespace => self.enter(State::Finishing),
            State::Opening | State::Finishing | State::Released => (),
            State::Launching | State::Running => {
                self.timers.cancel(Timer::ShellExit);
                if self.kill.is_none() {
                    self.signal_shells(cx.config.term_signal.number(), false, out);
                    self.start_kill(cx);
                }
            }
        }
    }

    fn start_kill(&mut self, cx: Context) {
        if self.kill.is_none() {
            self.kill = Some(Kill::start(cx.now.mono, cx.config, &mut self.timers));
        }
    }

    fn signal_shells(&self, signal: i32, all: bool, out: &mut Effects) {
        self.order(&self.active(), &Order::Signal { signal, all }, out);
    }

    /// Sends an order down the tree to the agents of `ranks`.
    fn order(&self, ranks: &Idset, order: &Order, out: &mut Effects) {
        for (root, subtree) in self.streams.values() {
            let ranks = ranks.intersection(subtree);
            if !ranks.is_empty() {
                let request =
                    OrderRequest { version: VERSION, id: self.id, ranks, order: order.clone() };
                out.push(Effect::Order { to: *root, request });
            }
        }
    }

    /// Output that is in the exec eventlog now need not be kept any more.
    fn acknowledge(&mut self, out: &mut Effects) {
        for logged in self.log.committed() {
            let order = Order::Acknowledge { stream: logged.stream, offset: logged.offset };
            self.order(&Idset::from_iter([logged.rank]), &order, out);
        }
    }

    /// Goes on as far as what is known allows.
    fn advance(&mut self, cx: Context, out: &mut Effects) {
        if self.state == State::Launching && self.all_started() && self.linked {
            self.enter(State::Running);
            self.began.get_or_insert(cx.now.wall);
            self.arm_expiration(cx);
            self.say_started(out);
        }
        let launched = matches!(self.state, State::Launching | State::Running);
        if launched && self.said.finish.is_none() && self.all_in(&[Phase::Exited, Phase::Gone]) {
            self.complete(cx, out);
        }
        if launched && self.all_in(&[Phase::Gone]) {
            self.enter(State::Finishing);
        }
        if self.state == State::Finishing {
            self.timers = TimerTable::default();
            if self.has_namespace {
                self.finish_log(cx, out);
            } else {
                self.release_all(out);
            }
        }
        self.log.flush(self.id, out);
    }

    fn all_started(&self) -> bool {
        self.ranks.values().all(|rank| rank.started)
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

    fn is_multiuser(&self) -> bool {
        self.command.as_ref().is_some_and(|command| command.multiuser)
    }

    /// All shells have ended (RFC 32 `finish`, RFC 50 `complete`).
    fn complete(&mut self, cx: Context, out: &mut Effects) {
        self.timers.cancel(Timer::ShellExit);
        if let Some(failure) = &self.failure {
            if let Some(status) = failure.wait_status {
                self.status = status;
            } else if self.status == WaitStatus::default() {
                self.status = WaitStatus::exited(1);
            }
        }
        self.log.post(ExecEvent::complete(cx.now.wall, self.status));
        self.finish(self.status, out);
    }

    fn finish(&mut self, status: WaitStatus, out: &mut Effects) {
        self.said.finish = Some(status);
        self.say(Response::Finish { status }, out);
    }

    fn finish_log(&mut self, cx: Context, out: &mut Effects) {
        if !self.done_posted {
            self.done_posted = true;
            self.post(cx, "done");
        }
        self.log.finish(self.id, out);
    }

    /// The job's data is in place: give back what is left.
    fn finished(&mut self, out: &mut Effects) {
        if self.state == State::Finishing {
            self.release_all(out);
        }
    }

    fn release_all(&mut self, out: &mut Effects) {
        let ranks = self.release.last();
        self.say(Response::Release { ranks, is_final: true }, out);
        self.order(&self.start.r.ranks().clone(), &Order::Forget, out);
        if let Some(to) = self.coordinator.take() {
            out.push(Effect::End { to, fault: Fault::new(libc::ENODATA, "the job has ended") });
        }
        self.enter(State::Released);
    }

    fn release_partial(&mut self, out: &mut Effects) {
        let gone = self.ranks.iter().filter(|(_, rank)| rank.phase == Phase::Gone);
        let gone: Vec<BrokerRank> = gone.map(|(rank, _)| *rank).collect();
        if let Some(ranks) = self.release.partial(gone.into_iter()) {
            let ranks = ranks.to_string();
            self.say(Response::Release { ranks, is_final: false }, out);
        }
    }

    fn set_gone(&mut self, cx: Context, rank: BrokerRank) {
        if let Some(known) = self.ranks.get_mut(&rank) {
            known.phase = Phase::Gone;
            known.away_since = None;
            self.release.gone(cx.now.mono, &mut self.timers);
        }
    }

    /// (Re)arms the time limit. A job whose start was delayed by a good part of its duration
    /// gets the delay back (flux-core issue 6781).
    fn arm_expiration(&mut self, cx: Context) {
        self.timers.cancel(Timer::Expiration);
        let (starttime, mut expiration) = (self.start.r.starttime(), self.start.r.expiration());
        if expiration == 0.0 {
            return;
        }
        if let Some(began) = self.began.filter(|_| starttime > 0.0) {
            let delay = began - starttime;
            let percent = delay / (expiration - starttime) * 100.0;
            if !self.start.reattach && percent > cx.config.max_start_delay_percent {
                expiration += delay;
            }
        }
        let left = (expiration - cx.now.wall).max(0.0);
        self.timers.arm(Timer::Expiration, cx.now.mono + left);
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
        if let Some(to) = self.coordinator {
            out.push(Effect::Reply { to, response });
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
            "expiration": self.start.r.expiration(),
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
            (State::Running, State::Finishing) | (State::Finishing, State::Released) => true,
            (old, new) => old == new,
        };
        assert!(legal, "{}: {:?} to {state:?}", self.id, self.state);
        self.state = state;
    }
}

fn plural(noun: &str, count: usize) -> String {
    if count == 1 { noun.to_string() } else { format!("{noun}s") }
}

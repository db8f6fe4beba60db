//! The beginning: what can be run at all, the guest namespace, and what an earlier leader left.

use super::failure::Failure;
use super::journal::{GuestLink, Journal};
use super::state::{Launching, Listening, Opening, State};
use super::testexec::RECOVERABLE;
use super::timer::LeaderTimer;
use super::{Leader, launch};
use crate::machine::away::Away;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, KvsOp, Level};
use crate::machine::event::{Creation, Fault, KvsResult, Opened};
use crate::proto::peer::Mode;
use crate::proto::{ExecEvent, Idset, JobDigest, Response, WaitStatus};

/// Events by which a leader says that it takes over: RFC 50's, and one for when the job has not
/// started yet, or has ended. They are counted.
const TAKES_OVER: [&str; 2] = ["reattach", "debug.lead"];

/// What the exec eventlog says of how far the job was.
#[derive(Default)]
struct Found {
    /// The status that was posted as `complete`.
    complete: Option<WaitStatus>,
    has_init: bool,
    has_starting: bool,
    is_done: bool,
    /// Leaders that have taken over.
    leaders: u64,
}

impl Leader {
    /// Fails the job if this configuration cannot run it.
    pub(super) fn check(&mut self, cx: Context, out: &mut Effects) {
        let checked = launch::check(cx, &self.start);
        match checked {
            Ok((jobspec, command)) => {
                self.jobspec = jobspec;
                self.command = command;
            }
            Err(error) => {
                out.log(Level::Error, format!("{}: {error}", self.id));
                self.fail(cx, format!("failed to initialize implementation: {error}"), out);
            }
        }
    }

    /// A KVS operation has ended.
    pub(in crate::machine) fn handle_kvs(
        &mut self,
        cx: Context,
        result: KvsResult,
        out: &mut Effects,
    ) {
        match (result, &self.state) {
            (KvsResult::Appended(result), _) if self.journal.log.is_asked() => {
                self.handle_commit(cx, result, out);
            }
            (KvsResult::Created(Ok(Creation::Made)), State::Opening(_)) => self.begin(cx, out),
            // An earlier leader made it, and the job manager never heard of a start.
            (KvsResult::Created(Ok(Creation::Existed)), State::Opening(_)) => self.open(out),
            (KvsResult::Created(Err(fault)), State::Opening(_)) => {
                self.fail_without_namespace(cx, &fault, out);
            }
            (KvsResult::Opened(result), State::Opening(_)) => self.handle_opened(cx, result, out),
            (KvsResult::Moved(result), State::Moving(_)) => self.handle_moved(cx, result, out),
            (KvsResult::Linked(result), _) => {
                self.journal.link = GuestLink::Settled;
                if let Err(fault) = result {
                    self.fail(cx, format!("failed to link guest ns: {fault}"), out);
                }
            }
            // An agent's or the coordinator's, or to a question that this leader does not ask.
            _ => (),
        }
        self.advance(cx, out);
    }

    fn handle_opened(&mut self, cx: Context, result: Result<Opened, Fault>, out: &mut Effects) {
        let fault = match result {
            Ok(opened) => return self.take_over(cx, &opened, out),
            Err(fault) => fault,
        };
        // A job that runs is worth the same patience as a rank that is away.
        let State::Opening(Opening { away, .. }) = &mut self.state else { return };
        let is_first = away.is_none();
        let away = away.get_or_insert_with(|| Away::new(cx.now.mono));
        if away.is_over(cx.now.mono, cx.config.peer_timeout) {
            return self.fail_without_namespace(cx, &fault, out);
        }
        self.timers.try_again(LeaderTimer::Open, cx.now.mono);
        let level = if is_first { Level::Error } else { Level::Debug };
        out.log(level, format!("{}: cannot open its guest namespace: {fault}", self.id));
    }

    fn handle_commit(&mut self, cx: Context, result: Result<(), Fault>, out: &mut Effects) {
        let log = &mut self.journal.log;
        let batch = match result {
            Ok(()) => {
                self.timers.succeed(LeaderTimer::Commit);
                log.take_committed()
            }
            Err(fault) => {
                let text = format!("{}: exec.eventlog commit failed: {fault}", self.id);
                out.log(Level::Error, text);
                if self.timers.try_again(LeaderTimer::Commit, cx.now.mono) {
                    return log.put_back();
                }
                // Keeping it on the node would only hold up the job's end.
                let batch = log.give_up();
                self.log_given_up(cx, &batch);
                batch
            }
        };
        self.replies.ask_for_cover(self.journal.cover.handle_status(batch.status), out);
        for piece in batch.output {
            self.acknowledge(piece, out);
        }
    }

    fn handle_moved(&mut self, cx: Context, result: Result<(), Fault>, out: &mut Effects) {
        if let Err(fault) = result {
            let text = format!("{}: moving the guest namespace failed: {fault}", self.id);
            out.log(Level::Error, text);
            if self.timers.try_again(LeaderTimer::Commit, cx.now.mono) {
                return self.journal.log.move_again();
            }
        }
        self.end(cx, self.state.finish(), out);
    }

    /// Looks for the guest namespace of an earlier leader.
    pub(super) fn open(&self, out: &mut Effects) {
        let userid = self.start.userid;
        out.push(Effect::Kvs { id: self.id, op: KvsOp::Open { userid } });
    }

    /// The job has failed before it began. Shells of an earlier try may run all the same: they are
    /// found, ended, and only then is anything given back.
    fn fail_without_namespace(&mut self, cx: Context, fault: &Fault, out: &mut Effects) {
        self.fail(cx, format!("failed to create guest ns: {fault}"), out);
        let lost = self.enter_launching(true);
        self.adopt(cx, &lost, Mode::Adopt, out);
    }

    /// The first leader of the job: the guest namespace was made.
    fn begin(&mut self, cx: Context, out: &mut Effects) {
        let has_failed = self.failure.is_some();
        let link = if has_failed { GuestLink::Settled } else { GuestLink::Awaited };
        let mut journal = Journal::new(1, link, false, self.run(cx));
        journal.post(ExecEvent::bare(cx.now.wall, "init"));
        if !has_failed {
            for name in self.starting_events(cx) {
                journal.post(ExecEvent::bare(cx.now.wall, name));
            }
            journal.log.flush(self.id, out);
            out.push(Effect::Kvs { id: self.id, op: KvsOp::Link });
        }
        self.journal = journal;
        let lost = self.enter_launching(false);
        if has_failed {
            // Shells of an earlier try may run: its namespace can have gone with rank 0.
            return self.adopt(cx, &lost, Mode::Adopt, out);
        }
        if let Some(note) = self.mocks_at_init() {
            // Nothing was launched yet: as if the exception had come a moment earlier.
            self.state.enter(State::Moving(None));
            return self.fail(cx, note, out);
        }
        self.launch(cx, &lost, Mode::Start, out);
    }

    /// RFC 50. The job is recoverable as soon as it starts: each rank writes down what it is about
    /// to start. Of a mocked job `recoverable` says when it began, and comes later.
    fn starting_events(&self, cx: Context) -> impl Iterator<Item = &'static str> + use<> {
        let is_recoverable = self.shells_survive(cx) && self.test.is_none();
        std::iter::once("starting").chain(is_recoverable.then_some(RECOVERABLE))
    }

    /// What connectors need to know of whose namespace it is.
    fn run(&self, cx: Context) -> Option<JobDigest> {
        cx.facts.has_connector().then(|| self.command.digest.clone())
    }

    /// A later leader of the job: goes on from what earlier ones have written.
    fn take_over(&mut self, cx: Context, opened: &Opened, out: &mut Effects) {
        let found = self.read_log(&opened.events);
        self.say_exception_again(&opened.events, out);
        if opened.moved {
            return self.end_again(cx, found.complete, out);
        }
        // The eventlog is the user's: he can have made it shorter.
        let generation = (2 + found.leaders).max(opened.leaders.saturating_add(1));
        let mut journal = Journal::new(generation, GuestLink::Settled, found.is_done, self.run(cx));
        let mut post = |name| journal.post(ExecEvent::bare(cx.now.wall, name));
        if !found.has_init {
            post("init");
        }
        let has_failed = self.failure.is_some();
        if !found.has_starting && (self.start.reattach || !has_failed) {
            // It made the namespace and came no further, or a crash has undone what it wrote.
            self.starting_events(cx).for_each(&mut post);
        }
        let reattach = found.complete.is_none() && self.start.reattach;
        post(TAKES_OVER[usize::from(!reattach)]);
        self.journal = journal;
        self.status.posted = found.complete;
        let lost = self.enter_launching(true);
        if found.complete.is_some() {
            // All shells have ended, even if nothing is known of one any more: none is started.
            self.expect_status();
        }
        let is_fresh = !self.start.reattach && !has_failed && found.complete.is_none();
        self.adopt(cx, &lost, if is_fresh { Mode::Start } else { Mode::Adopt }, out);
    }

    /// Returns the ranks that are not asked. `listens`: an earlier leader may have led the job.
    fn enter_launching(&mut self, listens: bool) -> Idset {
        let lost = match &mut self.state {
            State::Opening(opening) => std::mem::take(&mut opening.lost),
            _ => Idset::new(),
        };
        let listening = listens.then(Listening::default);
        self.state.enter(State::Launching(Launching { listening, ..Launching::default() }));
        lost
    }

    fn adopt(&mut self, cx: Context, lost: &Idset, mode: Mode, out: &mut Effects) {
        self.launch(cx, lost, mode, out);
        if self.failure.is_some() {
            self.abort(cx, out);
        } else if let Some(seconds) =
            cx.config.shell_exit_timeout.filter(|_| self.first_shell_ended)
        {
            self.timers.arm(LeaderTimer::ShellExit, cx.now.mono + seconds);
        }
    }

    /// Learns from the exec eventlog how much output it holds and how far the job was.
    fn read_log(&mut self, events: &[ExecEvent]) -> Found {
        let mut found = Found::default();
        for event in events {
            self.read_output(event);
            match event.name.as_str() {
                "init" => found.has_init = true,
                "starting" => found.has_starting = true,
                "shell-exit" => {
                    self.first_shell_ended = true;
                    // Its rank may be gone for good, and its status with it.
                    self.status.add(event.raw_status("wait_status").unwrap_or_default());
                }
                "debug.status" => {
                    self.status.add(event.raw_status("wait_status").unwrap_or_default());
                }
                "complete" => {
                    let status = event.raw_status("status");
                    found.complete = Some(status.unwrap_or(WaitStatus::exited(1)));
                }
                "done" => found.is_done = true,
                RECOVERABLE => self.read_test(event.timestamp),
                name if TAKES_OVER.contains(&name) => found.leaders += 1,
                _ => (), // RFC 50 names that say nothing about where the job is
            }
        }
        found
    }

    fn read_output(&mut self, event: &ExecEvent) {
        if let Some((rank, stream, bytes)) = event.logged()
            && let Some(known) = self.ranks.get_mut(rank)
        {
            let logged = &mut known.in_log.streams[stream as usize];
            // The job's user can have written any number there.
            logged.sent = logged.sent.saturating_add(bytes);
            logged.durable = logged.sent;
        }
        if let Some((rank, stream)) = event.logged_truncation()
            && let Some(known) = self.ranks.get_mut(rank)
        {
            known.in_log.streams[stream as usize].truncated = true;
        }
        if let Some(known) = event.logged_missing().and_then(|rank| self.ranks.get_mut(rank)) {
            known.in_log.output_lost = true;
        }
        // The job's user can have named any ranks, and very many.
        let told = event.logged_oom().unwrap_or_default().intersection(self.start.r.ranks());
        for rank in told.ranks() {
            if let Some(known) = self.ranks.get_mut(rank) {
                known.in_log.oom_told = true;
            }
        }
        if let Some((rank, since)) = event.logged_silence()
            && let Some(known) = self.ranks.get_mut(rank)
        {
            known.in_log.silent_since = Some(since);
        }
    }

    /// An exception that an earlier leader has said may have reached nobody.
    fn say_exception_again(&mut self, events: &[ExecEvent], out: &mut Effects) {
        let raised = |event: &ExecEvent| Some((event.timestamp, event.logged_exception()?));
        if self.failure.is_none()
            && let Some((since, exception)) = events.iter().find_map(raised)
        {
            self.failure = Some(Failure::new((&exception).into(), since));
            self.say_exception(exception, out);
        }
    }

    /// The job had ended while nobody could be told. Agents may not have been told either.
    fn end_again(&mut self, cx: Context, status: Option<WaitStatus>, out: &mut Effects) {
        let status = status.unwrap_or(WaitStatus::exited(1));
        self.replies.say_started(self.start.reattach, out);
        self.replies.say(Response::Finish { status }, out);
        self.end(cx, Some(status), out);
    }
}

//! The beginning: what can be run at all, the guest namespace, and what an earlier leader left.

use serde_json::Value;

use super::{Cover, Failure, Leader, Phase, State};
use crate::machine::Context;
use crate::machine::effect::{Effect, Effects, KvsOp, Level};
use crate::machine::event::{Creation, KvsResult, Opened};
use crate::machine::leader::launch;
use crate::machine::leader::timer::Timer;
use crate::proto::peer::Mode;
use crate::proto::{ExecEvent, Idset, WaitStatus};

/// Times that opening the guest namespace is tried again, and pause between them in seconds.
const OPEN_TRIES: u32 = 5;
const OPEN_PAUSE: f64 = 2.0;

/// Pause before a commit that failed is tried again, in seconds.
const COMMIT_PAUSE: f64 = 1.0;

/// Events by which a leader says that it takes over: RFC 50's, and one for when the job has not
/// started yet, or has ended. They are counted.
const TAKES_OVER: [&str; 2] = ["reattach", "debug.lead"];

impl Leader {
    /// Whether this configuration can run the job at all. If not, the job ends; shells that an
    /// earlier leader started are found and ended first.
    pub(super) fn check(&mut self, cx: Context, out: &mut Effects) -> bool {
        let expiration = self.start.r.expiration();
        let jobspec = self.start.jobspec.clone();
        let checked = jobspec.map_err(|error| error.to_string()).and_then(|jobspec| {
            if expiration < 0.0 {
                return Err(format!("Invalid resource set expiration {expiration:.2}"));
            }
            let command = launch::shell_command(cx, &self.start, &jobspec)?;
            Ok((jobspec, command))
        });
        match checked {
            Ok((jobspec, command)) => {
                self.jobspec = jobspec;
                self.command = command;
                true
            }
            Err(reason) => {
                out.log(Level::Error, format!("{}: {reason}", self.id));
                let note = format!("failed to initialize implementation: {reason}");
                self.fatal(cx, note, out);
                self.start.reattach
            }
        }
    }

    /// A KVS operation has ended.
    pub(in crate::machine) fn kvs(&mut self, cx: Context, result: KvsResult, out: &mut Effects) {
        let opens = matches!(result, KvsResult::Created(_) | KvsResult::Opened(_));
        if opens && self.state != State::Opening {
            return; // the answer to a question that this leader did not ask
        }
        match result {
            KvsResult::Created(Ok(Creation::Made)) => self.created(cx, out),
            KvsResult::Opened(Ok(opened)) => self.opened(cx, &opened, out),
            // An earlier leader made it, and the job manager never heard of a start.
            KvsResult::Created(Ok(Creation::Existed)) => self.open(out),
            // A job that runs is worth some patience.
            KvsResult::Opened(Err(fault)) if self.open_failures < OPEN_TRIES => {
                self.open_failures += 1;
                let text = format!("{}: cannot open its guest namespace: {fault}", self.id);
                out.log(Level::Error, text);
                self.timers.arm(Timer::Open, cx.now.mono + OPEN_PAUSE);
            }
            KvsResult::Created(Err(fault)) | KvsResult::Opened(Err(fault)) => {
                self.fatal(cx, format!("failed to create guest ns: {fault}"), out);
                self.without_namespace(cx, out);
            }
            KvsResult::Linked(result) => {
                self.linked = true;
                if let Err(fault) = result {
                    self.fatal(cx, format!("failed to link guest ns: {fault}"), out);
                }
            }
            KvsResult::Appended(Ok(())) => {
                for logged in self.log.committed() {
                    self.acknowledge(logged, out);
                }
            }
            KvsResult::Appended(Err(fault)) => {
                let text = format!("{}: exec.eventlog commit failed: {fault}", self.id);
                out.log(Level::Error, text);
                match self.log.failed() {
                    None => self.timers.arm(Timer::Commit, cx.now.mono + COMMIT_PAUSE),
                    // Given up: keeping it on the node would only hold up the job's end.
                    Some(lost) => lost.into_iter().for_each(|l| self.acknowledge(l, out)),
                }
            }
            KvsResult::Finished(result) => {
                if let Err(fault) = result {
                    let text = format!("{}: moving the guest namespace failed: {fault}", self.id);
                    out.log(Level::Error, text);
                }
                self.finished(cx, out);
            }
        }
        self.advance(cx, out);
    }

    /// Finds the guest namespace of an earlier leader.
    pub(super) fn open(&self, out: &mut Effects) {
        let userid = self.start.userid;
        out.push(Effect::Kvs { id: self.id, op: KvsOp::Open { userid } });
    }

    fn created(&mut self, cx: Context, out: &mut Effects) {
        self.leads_as(1);
        self.post(cx, "init");
        if self.failure.is_some() {
            // Shells of an earlier try may run: its namespace can have gone with rank 0.
            self.linked = true;
            return self.adopt(cx, Mode::Adopt, out);
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

    fn leads_as(&mut self, generation: u64) {
        self.generation = generation;
        self.cover = Cover::new(generation);
    }

    /// Takes over from an earlier leader, from what it has written.
    fn opened(&mut self, cx: Context, opened: &Opened, out: &mut Effects) {
        let status = self.read_log(&opened.events);
        self.say_again(&opened.events, out);
        if opened.moved {
            return self.ended_before(cx, status, out);
        }
        self.linked = true;
        let has = |name: &str| opened.events.iter().any(|event| event.name == name);
        let started = has("starting");
        if !has("init") {
            self.post(cx, "init");
        }
        if !started && (self.start.reattach || self.failure.is_none()) {
            // It made the namespace and came no further, or a crash has undone what it wrote.
            self.post(cx, "starting");
        }
        let leaders = opened.events.iter().filter(|e| TAKES_OVER.contains(&e.name.as_str()));
        // The eventlog is the user's: he can have made it shorter.
        let by_log = 2 + leaders.count() as u64;
        self.leads_as(by_log.max(opened.leaders.saturating_add(1)));
        let reattach = status.is_none() && self.start.reattach;
        self.post(cx, TAKES_OVER[usize::from(!reattach)]);
        self.completed = status;
        let fresh = !self.start.reattach && self.failure.is_none();
        self.adopt(cx, if fresh { Mode::Start } else { Mode::Adopt }, out);
    }

    /// The job has failed before it began. Shells of an earlier try may run all the same: they
    /// are found, ended, and only then is anything given back.
    pub(super) fn without_namespace(&mut self, cx: Context, out: &mut Effects) {
        self.has_namespace = false;
        self.linked = true;
        self.adopt(cx, Mode::Adopt, out);
    }

    fn adopt(&mut self, cx: Context, mode: Mode, out: &mut Effects) {
        self.enter(State::Launching);
        self.launch(cx, mode, out);
        if self.failure.is_some() {
            self.abort(cx, out);
        } else if let Some(seconds) = cx.config.shell_exit_timeout.filter(|_| self.leader_exited) {
            self.timers.arm(Timer::ShellExit, cx.now.mono + seconds);
        }
    }

    /// Learns from the exec eventlog how much output it holds and how far the job was; returns
    /// the job's status, if it was complete.
    fn read_log(&mut self, events: &[ExecEvent]) -> Option<WaitStatus> {
        let mut status = None;
        for event in events {
            if let Some((rank, stream, bytes)) = event.logged()
                && let Some(rank) = self.ranks.get_mut(&rank)
            {
                // The job's user can have written any number there.
                for sent in [&mut rank.output, &mut rank.durable] {
                    sent[stream as usize] = sent[stream as usize].saturating_add(bytes);
                }
            }
            if let Some((rank, stream)) = event.logged_truncation()
                && let Some(rank) = self.ranks.get_mut(&rank)
            {
                rank.truncated[stream as usize] = true;
            }
            match event.name.as_str() {
                "shell-exit" => {
                    self.leader_exited = true;
                    // Its rank may be gone for good, and its status with it.
                    let raw = event.context.get("wait_status").and_then(Value::as_i64);
                    let raw = raw.and_then(|raw| i32::try_from(raw).ok()).unwrap_or(0);
                    self.status = self.status.max(WaitStatus(raw));
                }
                "complete" => {
                    let raw = event.context.get("status").and_then(Value::as_i64);
                    let raw = raw.and_then(|raw| i32::try_from(raw).ok()).unwrap_or(1 << 8);
                    status = Some(WaitStatus(raw));
                }
                "done" => self.done_posted = true,
                _ => (), // RFC 50 names that say nothing about where the job is
            }
        }
        status
    }

    /// What an earlier leader has said may have reached nobody.
    fn say_again(&mut self, events: &[ExecEvent], out: &mut Effects) {
        if self.failure.is_none()
            && let Some(exception) = events.iter().find_map(ExecEvent::logged_exception)
        {
            self.failure = Some(Failure::default());
            self.say_exception(exception, out);
        }
    }

    /// The job had ended while nobody could be told. Agents may not have been told either.
    fn ended_before(&mut self, cx: Context, status: Option<WaitStatus>, out: &mut Effects) {
        self.say_started(out);
        self.finish(status.unwrap_or(WaitStatus::exited(1)), out);
        self.release_all(cx, out);
    }

    /// Has agents run, or find, the shells of all ranks: one message, to this rank's agent,
    /// which is the root of the tree.
    fn launch(&mut self, cx: Context, mode: Mode, out: &mut Effects) {
        let lost = std::mem::take(&mut self.lost);
        for rank in lost.ranks() {
            self.drain_unseen(cx, rank, out);
            self.node_failure(cx, rank, out);
        }
        let present = self.start.r.ranks().difference(&lost);
        let mode = if self.failure.is_some() { Mode::Adopt } else { mode };
        self.tried |= mode == Mode::Start || self.start.reattach;
        self.ask(cx, &present, mode, out);
    }

    /// Asks ranks again. What never ran may be started as long as the job is; what was seen
    /// running is never started a second time.
    pub(super) fn ask_again(&mut self, cx: Context, ranks: &Idset, out: &mut Effects) {
        let may_start = |rank: &super::Rank| !rank.started && rank.phase == Phase::Pending;
        let launching = self.state == State::Launching && !self.start.reattach;
        let fresh: Idset = self
            .ranks
            .iter()
            .filter(|(rank, known)| {
                ranks.contains_rank(**rank)
                    && launching
                    && self.failure.is_none()
                    && may_start(known)
            })
            .map(|(rank, _)| *rank)
            .collect();
        self.ask_subtrees(cx, &fresh, Mode::Start, out);
        self.ask_subtrees(cx, &ranks.difference(&fresh), Mode::Adopt, out);
    }
}

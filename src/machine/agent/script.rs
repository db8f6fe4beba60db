//! One script on this rank: a prolog or an epilog, in a unit of its own.
//!
//! A script is told to end with SIGTERM, and never with SIGKILL: it may be in the middle of
//! something that another one would have to repair (flux-core issues 6323, 6330). One that goes on
//! is stuck: its rank is drained, and nobody waits for it. What a script leaves behind is not ended.

use serde_json::{Value, json};

use super::mark::Mark;
use crate::config;
use crate::machine::context::{Context, Now};
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::{Fault, RequestId};
use crate::planted::Bug;
use crate::port::Note;
use crate::port::supervisor::{UnitCommand, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::Report;
use crate::proto::{
    EndReason, JobId, ScriptFailure, ScriptStop, Stage, Stream, UnitName, WaitStatus,
};
use lines::Lines;

mod lines;

/// What is known of the unit.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// Asked for, or found on disk; the supervisor has not said more.
    Pending,
    Running,
    Ended(End),
}

#[derive(Clone, Debug, PartialEq)]
enum End {
    Status(WaitStatus),
    /// It did not run, or how it ended is not known: why.
    NotRun(String),
}

/// One script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    unit: UnitName,
    /// To start it again, if it was never started.
    spec: Box<UnitSpec>,
    phase: Phase,
    /// It was told to end.
    stop: Option<ScriptStop>,
    /// For this exception of its job.
    reason: Option<EndReason>,
    /// When it is told to end.
    ends_at: Option<f64>,
    /// When nobody waits for it any more.
    limit_at: Option<f64>,
    is_stuck: bool,
    lines: [Lines; 2],
    mark: Mark,
    /// Somebody has decided whether its rank is drained for it.
    is_judged: bool,
    /// Nothing of its unit is left.
    gone: bool,
    forgotten: bool,
}

impl Script {
    /// Asks for a script that never ran.
    pub(super) fn start(cx: Context, spec: UnitSpec, out: &mut Effects) -> Self {
        let script = Self::new(cx, spec);
        out.push(Effect::Unit(UnitCommand::Launch(script.spec.clone())));
        script
    }

    fn new(cx: Context, spec: UnitSpec) -> Self {
        let mut script = Self {
            unit: spec.unit.clone(),
            phase: Phase::Pending,
            stop: None,
            reason: None,
            ends_at: None,
            limit_at: None,
            is_stuck: false,
            lines: [Lines::default(), Lines::default()],
            mark: Mark::default(),
            is_judged: false,
            gone: false,
            forgotten: false,
            spec: Box::new(spec),
        };
        let began = script.spec.began.unwrap_or(cx.now.wall);
        // The clock can have been set back meanwhile.
        let ran = (cx.now.wall - began).max(0.0);
        let at = |seconds: f64| cx.now.mono + (seconds - ran).max(0.0);
        script.ends_at = script.config(cx).and_then(|config| config.timeout).map(at);
        let limit = cx.config.perilog.as_ref().and_then(|perilog| perilog.epilog_limit);
        script.limit_at = limit.filter(|_| script.stage() == Stage::Epilog).map(at);
        script
    }

    /// From the record of an earlier life. The supervisor says next what became of the unit.
    pub(super) fn found(cx: Context, record: &UnitRecord, out: &mut Effects) -> Self {
        let mut script = Self::new(cx, record.spec.clone());
        for note in Note::all(&record.notes) {
            if let Note::Degraded(reason) = note {
                script.mark.found(reason);
            } else if note == Note::GivenBack {
                script.is_judged = true;
            } else if let Note::EndReason(reason) = note {
                if reason.kind == script.stage().name() {
                    script.stop = Some(ScriptStop::TimedOut);
                } else {
                    script.stop = Some(ScriptStop::Canceled);
                    script.reason = Some(reason);
                }
                if Bug::ScriptStopLost.is_planted() {
                    script.ends_at = Some(cx.now.mono + script.kill_timeout(cx));
                } else {
                    script.tell_to_end(cx, out);
                }
            }
        }
        // The supervisor waits for this before it tells what the script has written.
        for stream in [Stream::Stdout, Stream::Stderr] {
            script.acknowledge(stream, 0, out);
        }
        script
    }

    /// This rank's configuration does not say what the script is.
    pub(super) fn not_configured(cx: Context, spec: UnitSpec) -> Self {
        let mut script = Self::new(cx, spec);
        let stage = script.stage().name();
        script.set_not_run(format!("this rank has no job-manager.{stage} configured"));
        script
    }

    pub(super) fn stage(&self) -> Stage {
        self.unit.stage()
    }

    /// For [`crate::machine::Position`].
    pub(super) fn state_name(&self) -> &'static str {
        match self.phase {
            _ if self.gone => "gone",
            Phase::Ended(_) => "ended",
            _ if self.is_stuck => "stuck",
            Phase::Running => "running",
            Phase::Pending => "pending",
        }
    }

    /// For `stats-get`. Times are seconds.
    pub(super) fn stats(&self, now: Now) -> Value {
        json!({
            "stage": self.stage().name(),
            "unit": self.unit,
            "state": self.state_name(),
            "runs_for": self.spec.began.map(|began| (now.wall - began).max(0.0)),
            "time_left": self.next_timeout().map(|at| (at - now.mono).max(0.0)),
        })
    }

    fn config<'a>(&self, cx: Context<'a>) -> Option<&'a config::Script> {
        of_stage(cx, self.stage())
    }

    fn kill_timeout(&self, cx: Context) -> f64 {
        self.config(cx).map_or(0.0, |config| config.kill_timeout)
    }

    /// It may be running.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::Ended(_))
    }

    /// The exception of its job for which it was told to end.
    pub(super) fn reason(&self) -> Option<EndReason> {
        self.reason.clone()
    }

    /// Nobody waits for it any more, as far as the job is concerned.
    pub(super) fn is_over(&self) -> bool {
        self.is_stuck || !self.is_active()
    }

    /// Nothing is left, and nobody wants to hear more.
    pub(super) fn is_done(&self) -> bool {
        self.forgotten && self.gone
    }

    /// What is wrong with it, once nobody waits for it.
    pub(super) fn failure(&self) -> Option<ScriptFailure> {
        let stop = self.stop.unwrap_or(ScriptStop::TimedOut);
        match &self.phase {
            Phase::Pending | Phase::Running => self.is_stuck.then_some(ScriptFailure::Stuck(stop)),
            Phase::Ended(End::NotRun(why)) => Some(ScriptFailure::NotRun(why.clone())),
            Phase::Ended(End::Status(status)) => match self.stop {
                Some(ScriptStop::TimedOut) => Some(ScriptFailure::Stopped(stop)),
                _ if *status == WaitStatus(0) => None,
                Some(ScriptStop::Canceled) => Some(ScriptFailure::Stopped(stop)),
                None => Some(ScriptFailure::Exited(*status)),
            },
        }
    }

    /// What is wrong with it, if nobody has decided yet whether its rank is drained for that.
    pub(super) fn take_failure(&mut self) -> Option<ScriptFailure> {
        let failure = self.failure().filter(|_| !self.is_judged)?;
        self.is_judged = true;
        Some(failure)
    }

    /// The leader is done with the job: it has decided. That must be known after a restart, too.
    pub(super) fn give_back(&mut self, out: &mut Effects) {
        if !std::mem::replace(&mut self.is_judged, true) && self.is_active() {
            let (unit, note) = (self.unit.clone(), Note::GivenBack);
            out.push(Effect::Unit(UnitCommand::Note { unit, note }));
        }
    }

    /// It marks its node as degraded, and is answered when that is kept.
    ///
    /// # Errors
    /// It is no reason.
    pub(super) fn mark(
        &mut self,
        id: JobId,
        to: RequestId,
        reason: &str,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        let (unit, note) = (self.unit.clone(), Note::Degraded(self.mark.add(id, to, reason)?));
        out.push(Effect::Unit(UnitCommand::Note { unit, note }));
        Ok(())
    }

    /// What it has said of its node, for the leader.
    pub(super) fn degraded(&self) -> Option<Report> {
        let reason = self.mark.reason()?.to_string();
        Some(Report::Degraded { reason })
    }

    /// A client does not wait any more. Returns whether it did.
    pub(super) fn is_left_by(&mut self, request: RequestId) -> bool {
        self.mark.is_left_by(request)
    }

    /// The module is being unloaded.
    pub(super) fn shut_down(&mut self, id: JobId, out: &mut Effects) {
        self.mark.shut_down(id, out);
    }

    pub(super) fn next_timeout(&self) -> Option<f64> {
        let limit = self.limit_at.filter(|_| !self.is_stuck);
        let times = [self.ends_at, limit].into_iter().flatten();
        times.filter(|_| self.is_active()).reduce(f64::min)
    }

    /// Tells it to end, or gives up on it, if it is time. Returns whether it is stuck now.
    pub(super) fn handle_timeout(&mut self, cx: Context, id: JobId, out: &mut Effects) -> bool {
        let is_due = |at: &mut f64| *at <= cx.now.mono;
        if !self.is_active() {
            return false;
        }
        let was_stuck = self.is_stuck;
        if self.ends_at.take_if(is_due).is_some() {
            if self.stop.is_none() {
                let reason = EndReason::new(self.stage().name(), "", None);
                self.stop(cx, ScriptStop::TimedOut, reason, out);
            } else if !self.is_stuck {
                let stage = self.stage().name();
                let text = format!("{id}: timed out waiting for SIGTERM to terminate {stage}");
                out.log(Level::Error, text);
                self.is_stuck = true;
                if Bug::ScriptKilled.is_planted() {
                    let (unit, signal) = (self.unit.clone(), libc::SIGKILL);
                    out.push(Effect::Unit(UnitCommand::Signal { unit, signal, all: true }));
                }
            }
        }
        self.is_stuck |= self.limit_at.take_if(is_due).is_some();
        self.is_stuck && !was_stuck
    }

    /// The job has failed, or nobody wants it.
    pub(super) fn cancel(&mut self, cx: Context, reason: Option<&EndReason>, out: &mut Effects) {
        let is_wanted = self.config(cx).is_none_or(|config| config.cancel_on_exception);
        if is_wanted && self.is_active() && self.stop.is_none() {
            let reason = reason.cloned().unwrap_or_else(|| EndReason::new("exec", "", None));
            self.reason = Some(reason.clone());
            self.stop(cx, ScriptStop::Canceled, reason, out);
        }
    }

    /// Ends it at once, because the administrator has said so. On SIGUSR1 the IMP kills what it has
    /// started (RFC 15).
    pub(super) fn kill(&mut self, cx: Context, out: &mut Effects) {
        if self.is_active() {
            let under_imp = self.config(cx).is_some_and(|config| config.under_imp);
            let signal = if under_imp { cx.config.stop_timer_signal } else { libc::SIGKILL };
            let (unit, all) = (self.unit.clone(), !under_imp);
            out.push(Effect::Unit(UnitCommand::Signal { unit, signal, all }));
        }
    }

    /// Why it is told to end is written down first: after a restart its end could not be explained.
    fn stop(&mut self, cx: Context, why: ScriptStop, reason: EndReason, out: &mut Effects) {
        self.stop = Some(why);
        let (unit, note) = (self.unit.clone(), Note::EndReason(reason));
        out.push(Effect::Unit(UnitCommand::Note { unit, note }));
        self.tell_to_end(cx, out);
    }

    /// Sends SIGTERM to a script that is known to run. Another one gets it as soon as it is: a signal
    /// that waits for it would be lost with the module. An earlier life may have sent it already, and
    /// may not.
    fn tell_to_end(&mut self, cx: Context, out: &mut Effects) {
        let kill_timeout = self.kill_timeout(cx);
        if self.phase != Phase::Running && !Bug::ScriptStopLost.is_planted() {
            // For as long as systemd may be away.
            self.ends_at = Some(cx.now.mono + cx.config.peer_timeout + kill_timeout);
            return;
        }
        self.ends_at = Some(cx.now.mono + kill_timeout);
        // The IMP passes the signal on.
        let (unit, all) = (self.unit.clone(), !self.config(cx).is_some_and(|c| c.under_imp));
        out.push(Effect::Unit(UnitCommand::Signal { unit, signal: libc::SIGTERM, all }));
    }

    /// Handles news of the unit. Returns whether it has ended just now.
    pub(super) fn handle_unit(
        &mut self,
        cx: Context,
        id: JobId,
        event: UnitEvent,
        out: &mut Effects,
    ) -> bool {
        let was_active = self.is_active();
        match event {
            UnitEvent::Started { .. } if self.phase == Phase::Pending => {
                self.phase = Phase::Running;
                if self.stop.is_some() && !Bug::ScriptStopLost.is_planted() {
                    self.tell_to_end(cx, out);
                }
            }
            UnitEvent::Output { stream, offset, data, .. } => {
                let end = offset.saturating_add(data.len() as u64);
                self.log(cx, id, stream, Some(&data), out);
                self.acknowledge(stream, end, out);
            }
            UnitEvent::Exited { status, .. } if was_active => {
                self.phase = Phase::Ended(End::Status(status));
                self.collect(out);
            }
            UnitEvent::Marked { is_written, .. } => self.mark.handle_written(id, is_written, out),
            UnitEvent::Failed { message, .. } => self.set_not_run(message),
            // The intent was written, and no more.
            UnitEvent::NeverStarted { .. } => {
                out.push(Effect::Unit(UnitCommand::Launch(self.spec.clone())));
            }
            UnitEvent::Lost { message, .. } if was_active => {
                self.phase = Phase::Ended(End::NotRun(message));
                self.collect(out);
            }
            UnitEvent::Gone { .. } => {
                for stream in [Stream::Stdout, Stream::Stderr] {
                    self.log(cx, id, stream, None, out);
                }
                self.gone = true;
                self.discard_if_done(out);
            }
            UnitEvent::Answers
            | UnitEvent::Exited { .. }
            | UnitEvent::Found(_)
            | UnitEvent::Kept { .. }
            | UnitEvent::Left { .. }
            | UnitEvent::Lost { .. }
            | UnitEvent::OutputLost { .. }
            | UnitEvent::OutputOverflow { .. }
            | UnitEvent::OutputTruncated { .. }
            | UnitEvent::Ready { .. }
            | UnitEvent::Silent { .. }
            | UnitEvent::Started { .. }
            | UnitEvent::Stopping { .. }
            | UnitEvent::Unreadable { .. }
            | UnitEvent::Unusable { .. } => (),
        }
        self.discard_if_done(out);
        was_active && !self.is_active()
    }

    fn set_not_run(&mut self, why: String) {
        self.phase = Phase::Ended(End::NotRun(why));
        self.gone = true;
    }

    fn collect(&self, out: &mut Effects) {
        out.push(Effect::Unit(UnitCommand::Collect { unit: self.unit.clone() }));
    }

    fn acknowledge(&self, stream: Stream, offset: u64, out: &mut Effects) {
        let unit = self.unit.clone();
        let ack = UnitCommand::OutputAck { unit, stream, offset, checkpointed: 0 };
        out.push(Effect::Unit(ack));
    }

    /// What it has written, for the administrator alone: it can hold what users must not see
    /// (flux-core issue 7022). Without data, the rest.
    fn log(
        &mut self,
        cx: Context,
        id: JobId,
        stream: Stream,
        data: Option<&[u8]>,
        out: &mut Effects,
    ) {
        let perilog = cx.config.perilog.as_ref();
        let (level, name) = match stream {
            Stream::Stdout => (Level::Info, "stdout"),
            Stream::Stderr => (Level::Error, "stderr"),
        };
        for line in self.lines[stream as usize].take(data) {
            if perilog.is_some_and(|perilog| perilog.log_ignore.matches(&line)) {
                continue;
            }
            let (stage, facts) = (self.stage().name(), cx.facts);
            let (host, rank) = (&facts.hostname, facts.rank);
            out.log(level, format!("{id}: {stage}: {host} (rank {rank}): {name}: {line}"));
        }
    }

    /// Nobody needs its record any more.
    pub(super) fn forget(&mut self, out: &mut Effects) {
        if !std::mem::replace(&mut self.forgotten, true) {
            self.discard_if_done(out);
        }
    }

    fn discard_if_done(&self, out: &mut Effects) {
        if self.is_done() {
            out.push(Effect::Unit(UnitCommand::Forget { unit: self.unit.clone() }));
        }
    }
}

/// What this rank's configuration says of a script.
pub(super) fn of_stage(cx: Context<'_>, stage: Stage) -> Option<&config::Script> {
    let perilog = cx.config.perilog.as_ref()?;
    match stage {
        Stage::Prolog => perilog.prolog.as_ref(),
        Stage::Epilog => perilog.epilog.as_ref(),
        Stage::Shell => None,
    }
}

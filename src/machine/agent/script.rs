//! One script on this rank: a prolog or an epilog, in a unit of its own.
//!
//! A script is told to end with SIGTERM, and never with SIGKILL: it may be in the middle of
//! something that another one would have to repair (flux-core issues 6323, 6330). One that goes on
//! is stuck: its rank is drained, and nobody waits for it. What a script leaves behind is not ended.

use serde_json::{Value, json};

use super::mark::Mark;
use super::recorded::{Recorded, Seen, UnitEnd};
use crate::config;
use crate::machine::context::{Context, Now};
use crate::machine::effect::{Effects, Level};
use crate::machine::event::{Fault, RequestId};
use crate::machine::mono_time::MonoTime;
use crate::port::Note;
use crate::port::supervisor::{StartFailure, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::Report;
use crate::proto::{
    EndReason, JobId, ScriptFailure, ScriptStop, Stage, Stream, UnitName, WaitStatus,
};
use lines::Lines;

mod lines;

/// A script that is found and has ended is told to have started, and then at once that it has ended.
/// So no limit of it is over before that, in seconds after the first.
const END_TOLD_SECONDS: f64 = 1.0;

/// A limit that is looked at so late, in seconds, says that this broker was stopped: what happened
/// meanwhile is told first.
const LATE_SECONDS: f64 = 2.0;

/// Why it was told to end.
#[derive(Clone, Debug, PartialEq)]
enum Stop {
    TimedOut,
    /// For this exception of its job.
    Canceled(EndReason),
}

/// How long the job waits for it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ScriptPatience {
    Endless,
    Until(MonoTime),
    /// It is stuck.
    Over,
}

/// One script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    unit: Recorded,
    /// To start it again, if it was never started.
    spec: Box<UnitSpec>,
    stop: Option<Stop>,
    /// When it is told to end, or when nobody waits any more for it to obey.
    ends_at: Option<MonoTime>,
    /// No limit of it is over before this.
    not_before: MonoTime,
    patience: ScriptPatience,
    lines: [Lines; 2],
    mark: Mark,
    /// Somebody has decided whether its rank is drained for it.
    is_judged: bool,
}

impl Script {
    /// Asks for a script that never ran.
    pub(super) fn start(cx: Context, spec: UnitSpec, out: &mut Effects) -> Self {
        let mut script = Self::new(cx, spec);
        script.unit.launch(script.spec.clone(), out);
        script
    }

    fn new(cx: Context, spec: UnitSpec) -> Self {
        let mut script = Self {
            unit: Recorded::found(spec.unit.clone()),
            stop: None,
            ends_at: None,
            not_before: cx.now.mono,
            patience: ScriptPatience::Endless,
            lines: [Lines::default(), Lines::default()],
            mark: Mark::default(),
            is_judged: false,
            spec: Box::new(spec),
        };
        let began = script.spec.began.unwrap_or(cx.now.wall);
        // The clock can have been set back meanwhile.
        let ran = (cx.now.wall - began).max(0.0);
        let at = |seconds: f64| cx.now.mono + (seconds - ran).max(0.0);
        script.ends_at = script.config(cx).and_then(|config| config.timeout).map(at);
        let limit = cx.config.perilog.as_ref().and_then(|perilog| perilog.epilog_limit);
        if let Some(limit) = limit.filter(|_| script.stage() == Stage::Epilog) {
            script.patience = ScriptPatience::Until(at(limit));
        }
        script
    }

    /// From the record of an earlier life. The supervisor says next what became of the unit.
    pub(super) fn found(cx: Context, record: &UnitRecord, out: &mut Effects) -> Self {
        let mut script = Self::new(cx, record.spec.clone());
        // It may have ended in time. That is told as soon as systemd is there.
        script.not_before = cx.now.mono + cx.config.peer_timeout;
        for note in Note::all(&record.notes) {
            if let Note::Degraded(reason) = note {
                script.mark.found(reason);
            } else if note == Note::GivenBack {
                script.is_judged = true;
            } else if let Note::EndReason(reason) = note {
                let is_own = reason.kind == script.stage().name();
                script.stop = Some(if is_own { Stop::TimedOut } else { Stop::Canceled(reason) });
                script.tell_to_end(cx, out);
            }
        }
        // The supervisor waits for this before it tells what the script has written.
        for stream in [Stream::Stdout, Stream::Stderr] {
            script.unit.acknowledge(stream, 0, 0, out);
        }
        script
    }

    /// This rank's configuration does not say what the script is.
    pub(super) fn not_configured(cx: Context, spec: UnitSpec) -> Self {
        let mut script = Self::new(cx, spec);
        let message = format!("this rank has no job-manager.{} configured", script.stage().name());
        script.unit.set_seen(Seen::Failed(StartFailure { errnum: libc::ENOENT, message }));
        script
    }

    pub(super) fn unit(&self) -> &UnitName {
        self.unit.name()
    }

    pub(super) fn stage(&self) -> Stage {
        self.unit().stage()
    }

    /// For `stats-get`, and for `coverage/`.
    pub(super) fn state_name(&self) -> &'static str {
        match self.unit.seen() {
            Seen::Failed(_) | Seen::Gone(_) => "gone",
            Seen::Ended(_) => "ended",
            _ if self.is_over() => "stuck",
            Seen::Running { .. } => "running",
            Seen::Waiting | Seen::Pending | Seen::NeverStarted => "pending",
        }
    }

    /// For `stats-get`. Times are seconds.
    pub(super) fn stats(&self, now: Now) -> Value {
        json!({
            "stage": self.stage().name(),
            "unit": self.spec.unit,
            "state": self.state_name(),
            "runs_for": self.spec.began.map(|began| (now.wall - began).max(0.0)),
            "time_left": self.next_timeout().map(|at| (at - now.mono).max(0.0)),
        })
    }

    fn config<'a>(&self, cx: Context<'a>) -> Option<&'a config::ScriptConfig> {
        of_stage(cx, self.stage())
    }

    fn kill_timeout(&self, cx: Context) -> f64 {
        self.config(cx).map_or(0.0, |config| config.kill_timeout)
    }

    /// It may be running.
    pub(super) fn is_active(&self) -> bool {
        !self.unit.has_ended()
    }

    /// The exception of its job for which it was told to end.
    pub(super) fn reason(&self) -> Option<EndReason> {
        let Some(Stop::Canceled(reason)) = &self.stop else { return None };
        Some(reason.clone())
    }

    /// Nobody waits for it any more, as far as the job is concerned.
    pub(super) fn is_over(&self) -> bool {
        self.patience == ScriptPatience::Over || !self.is_active()
    }

    /// Nothing is left, and nobody wants to hear more.
    pub(super) fn is_done(&self) -> bool {
        self.unit.is_done()
    }

    /// What is wrong with it, once nobody waits for it.
    pub(super) fn failure(&self) -> Option<ScriptFailure> {
        let stop = match self.stop {
            Some(Stop::Canceled(_)) => ScriptStop::Canceled,
            Some(Stop::TimedOut) | None => ScriptStop::TimedOut,
        };
        match (self.unit.seen(), &self.stop) {
            (Seen::Failed(StartFailure { message, .. }), _)
            | (Seen::Ended(UnitEnd::Lost(message)) | Seen::Gone(Some(UnitEnd::Lost(message))), _) => {
                Some(ScriptFailure::NotRun(message.clone()))
            }
            (
                Seen::Ended(UnitEnd::Status(status)) | Seen::Gone(Some(UnitEnd::Status(status))),
                why,
            ) => match why {
                Some(Stop::TimedOut) => Some(ScriptFailure::Stopped(stop)),
                _ if *status == WaitStatus(0) => None,
                Some(Stop::Canceled(_)) => Some(ScriptFailure::Stopped(stop)),
                None => Some(ScriptFailure::Exited(*status)),
            },
            _ => (self.patience == ScriptPatience::Over).then_some(ScriptFailure::Stuck(stop)),
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
            self.unit.keep(Note::GivenBack, out);
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
        self.unit.keep(Note::Degraded(self.mark.add(id, to, reason)?), out);
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

    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        let limit = match self.patience {
            ScriptPatience::Until(at) => Some(at),
            ScriptPatience::Endless | ScriptPatience::Over => None,
        };
        let times = [self.ends_at, limit].into_iter().flatten();
        times.filter(|_| self.is_active()).min().map(|at| at.max(self.not_before))
    }

    /// Tells it to end, or gives up on it, if it is time. Returns whether it is stuck now.
    pub(super) fn handle_timeout(&mut self, cx: Context, id: JobId, out: &mut Effects) -> bool {
        let Some(due) = self.next_timeout().filter(|due| *due <= cx.now.mono) else { return false };
        if cx.now.mono - due > LATE_SECONDS {
            self.not_before = cx.now.mono + END_TOLD_SECONDS;
            return false;
        }
        let was_stuck = self.is_over();
        if self.ends_at.take_if(|at| *at <= cx.now.mono).is_some() {
            if self.stop.is_none() {
                self.stop(cx, Stop::TimedOut, out);
            } else if !was_stuck {
                let stage = self.stage().name();
                let text = format!("{id}: timed out waiting for SIGTERM to terminate {stage}");
                out.log(Level::Error, text);
                self.patience = ScriptPatience::Over;
            }
        }
        if matches!(self.patience, ScriptPatience::Until(at) if at <= cx.now.mono) {
            self.patience = ScriptPatience::Over;
        }
        self.is_over() && !was_stuck
    }

    /// The job has failed, or nobody wants it.
    pub(super) fn cancel(&mut self, cx: Context, reason: Option<&EndReason>, out: &mut Effects) {
        let is_wanted = self.config(cx).is_none_or(|config| config.cancel_on_exception);
        if is_wanted && self.is_active() && self.stop.is_none() {
            let reason = reason.cloned().unwrap_or_else(|| EndReason::new("exec", "", None));
            self.stop(cx, Stop::Canceled(reason), out);
        }
    }

    /// Ends it at once, because the administrator has said so. On SIGUSR1 the IMP kills what it has
    /// started (RFC 15).
    pub(super) fn kill(&mut self, cx: Context, out: &mut Effects) {
        if self.is_active() {
            let under_imp = self.config(cx).is_some_and(|config| config.under_imp);
            let signal = if under_imp { cx.config.stop_timer_signal } else { libc::SIGKILL };
            self.unit.signal(signal, !under_imp, out);
        }
    }

    /// Why it is told to end is written down first: after a restart its end could not be explained.
    fn stop(&mut self, cx: Context, why: Stop, out: &mut Effects) {
        let reason = match &why {
            Stop::TimedOut => EndReason::new(self.stage().name(), "", None),
            Stop::Canceled(reason) => reason.clone(),
        };
        self.stop = Some(why);
        self.unit.keep(Note::EndReason(reason), out);
        self.tell_to_end(cx, out);
    }

    /// Sends SIGTERM to a script that is known to run. Another one gets it as soon as it is: a signal
    /// that waits for it would be lost with the module. An earlier life may have sent it already, and
    /// may not.
    fn tell_to_end(&mut self, cx: Context, out: &mut Effects) {
        let kill_timeout = self.kill_timeout(cx);
        if !self.is_running() {
            // For as long as systemd may be away.
            self.ends_at = Some(cx.now.mono + cx.config.peer_timeout + kill_timeout);
            return;
        }
        self.ends_at = Some(cx.now.mono + kill_timeout);
        // The IMP passes the signal on.
        let all = !self.config(cx).is_some_and(|config| config.under_imp);
        self.unit.signal(libc::SIGTERM, all, out);
    }

    fn is_running(&self) -> bool {
        matches!(self.unit.seen(), Seen::Running { .. })
    }

    /// Handles news of the unit. Returns whether it has ended just now.
    pub(super) fn handle_unit(
        &mut self,
        cx: Context,
        id: JobId,
        event: UnitEvent,
        out: &mut Effects,
    ) -> bool {
        let (was_active, was_running) = (self.is_active(), self.is_running());
        let stage = self.stage().name();
        self.unit.see(&event, out);
        match event {
            UnitEvent::Started { .. } if !was_running && self.is_running() => {
                self.not_before = self.not_before.min(cx.now.mono + END_TOLD_SECONDS);
                if self.stop.is_some() {
                    self.tell_to_end(cx, out);
                }
            }
            UnitEvent::Output { stream, offset, data } => {
                let end = offset.saturating_add(data.len() as u64);
                self.log(cx, id, stream, Some(&data), out);
                self.unit.acknowledge(stream, end, 0, out);
            }
            UnitEvent::Marked { is_written } => self.mark.handle_written(id, is_written, out),
            UnitEvent::Gone => {
                for stream in [Stream::Stdout, Stream::Stderr] {
                    self.log(cx, id, stream, None, out);
                }
            }
            // The intent was written, and no more.
            UnitEvent::NeverStarted => self.unit.launch(self.spec.clone(), out),
            // `see` has taken over all that they say.
            UnitEvent::Exited { .. }
            | UnitEvent::Failed(_)
            | UnitEvent::Lost { .. }
            | UnitEvent::Started { .. } => (),
            // What a script leaves behind is not ended.
            UnitEvent::Left | UnitEvent::Stopping => (),
            // Its output is for the log alone, and no job is ended for it.
            UnitEvent::OutputLost { message } => {
                let text = format!("{id}: output of its {stage} may be missing: {message}");
                out.log(Level::Warning, text);
            }
            UnitEvent::OutputTruncated { dropped, .. } => {
                let text = format!("{id}: output of its {stage} was cut off: {dropped} bytes more");
                out.log(Level::Warning, text);
            }
            UnitEvent::OutputOverflow { .. } => (), // the supervisor has logged it
            UnitEvent::Kept { .. } | UnitEvent::LeftOver { .. } | UnitEvent::Usage(_) => (), // a shell's
        }
        self.unit.discard_if_done(out);
        was_active && !self.is_active()
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
        self.unit.forget();
        self.unit.discard_if_done(out);
    }
}

/// What this rank's configuration says of a script.
pub(super) fn of_stage(cx: Context<'_>, stage: Stage) -> Option<&config::ScriptConfig> {
    let perilog = cx.config.perilog.as_ref()?;
    match stage {
        Stage::Prolog => perilog.prolog.as_ref(),
        Stage::Epilog => perilog.epilog.as_ref(),
        Stage::Shell => None,
    }
}

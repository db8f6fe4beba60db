//! What comes before the shell on this rank, and what comes behind it.
//!
//! ```text
//!  prolog ──ended well──▶ the shell waits ──the leader: all prologs have──▶ shell ──gone──▶ epilog
//!     └──────── the leader: no shell is going to be started ──────────────────────────────▶
//! ```
//!
//! An epilog runs where a prolog or a shell was begun, also if nobody leads the job any more. With
//! `exec.perilog.epilog-start = "job"` it waits for the leader, or for the end of the job.

use std::collections::BTreeMap;

use super::script::{Script, of_stage};
use super::shell::Shell;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects};
use crate::machine::event::RequestId;
use crate::machine::mono_time::MonoTime;
use crate::port::supervisor::{UnitCommand, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::{Mode, Report};
use crate::proto::{EndReason, JobId, Scripts, Stage, UnitName};

/// The scripts of one job on this rank, and the shell as long as it waits for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Perilog {
    /// Which scripts the job gets, if any.
    wanted: Option<Scripts>,
    /// Those that have begun.
    scripts: BTreeMap<Stage, Script>,
    go: Go,
    /// It was reported that only the epilog is to come.
    told_epilog: bool,
    /// The first fatal exception of the job, as far as this rank knows.
    reason: Option<EndReason>,
}

/// How far the leader lets this rank go.
#[derive(Clone, Debug, Default, PartialEq)]
enum Go {
    /// What runs goes on.
    #[default]
    On,
    /// To the end of the prolog. Then the shell waits, that is started with this.
    Prepare(Box<UnitSpec>),
    /// To the shell.
    Start(Box<UnitSpec>),
    /// To the end: no shell is going to be started.
    Conclude,
}

impl Perilog {
    /// A leader asks. `shell`: what it would be started with.
    pub(super) fn want(&mut self, mode: Mode, scripts: Option<&Scripts>, shell: Box<UnitSpec>) {
        if let Some(scripts) = scripts {
            self.wanted = Some(scripts.clone());
        }
        self.go = match mode {
            // It was run when an earlier leader had ended the job.
            _ if self.scripts.contains_key(&Stage::Epilog) => Go::Conclude,
            Mode::Adopt if self.go != Go::Conclude => Go::On,
            Mode::Adopt | Mode::Conclude => Go::Conclude,
            Mode::Prepare => Go::Prepare(shell),
            Mode::Start => Go::Start(shell),
        };
    }

    /// A shell is to be started, and was not yet.
    pub(super) fn awaits_shell(&self) -> bool {
        matches!(self.go, Go::Prepare(_) | Go::Start(_))
    }

    /// Learns from a record of an earlier life.
    pub(super) fn find(&mut self, cx: Context, record: &UnitRecord, out: &mut Effects) {
        if self.wanted.is_none() {
            self.wanted.clone_from(&record.spec.scripts);
        }
        let stage = record.spec.unit.stage();
        if stage != Stage::Shell {
            let script = Script::found(cx, record, out);
            let known = || script.reason().or_else(|| record.spec.end_reason.clone());
            self.reason = self.reason.take().or_else(known);
            self.scripts.insert(stage, script);
        }
    }

    /// All prologs of the job have ended well.
    pub(super) fn launch(&mut self) {
        self.go = match std::mem::take(&mut self.go) {
            Go::Prepare(shell) => Go::Start(shell),
            go => go,
        };
    }

    /// No shell is going to be started.
    pub(super) fn conclude(&mut self, cx: Context, reason: Option<&EndReason>, out: &mut Effects) {
        self.go = Go::Conclude;
        self.reason = self.reason.take().or_else(|| reason.cloned());
        if let Some(prolog) = self.scripts.get_mut(&Stage::Prolog) {
            prolog.cancel(cx, self.reason.as_ref(), out);
        }
    }

    /// The job has failed.
    pub(super) fn cancel(&mut self, cx: Context, reason: EndReason, out: &mut Effects) {
        let reason = self.reason.get_or_insert(reason);
        for script in self.scripts.values_mut() {
            script.cancel(cx, Some(reason), out);
        }
    }

    /// The administrator wants it.
    pub(super) fn kill(&mut self, cx: Context, out: &mut Effects) {
        for script in self.scripts.values_mut() {
            script.kill(cx, out);
        }
    }

    /// The job is over. [`Self::advance`] has the records removed.
    pub(super) fn forget(&mut self) {
        self.go = Go::Conclude;
    }

    /// Handles news of a script's unit. Returns what to report.
    pub(super) fn handle_unit(
        &mut self,
        cx: Context,
        unit: &UnitName,
        event: UnitEvent,
        out: &mut Effects,
    ) -> Vec<Report> {
        let (id, stage) = (unit.job(), unit.stage());
        if stage == Stage::Prolog && event == UnitEvent::NeverStarted {
            // A leader asks for it again, if it is still to run. Its epilog may be behind it already.
            out.push(Effect::Unit(unit.clone(), UnitCommand::Forget));
            self.scripts.remove(&stage);
            return Vec::new();
        }
        let script = self.scripts.get_mut(&stage);
        let has_ended = script.is_some_and(|script| script.handle_unit(cx, id, event, out));
        if has_ended { self.tell_end(stage) } else { Vec::new() }
    }

    /// Tells scripts to end whose time has come. Returns what to report.
    pub(super) fn handle_timeout(
        &mut self,
        cx: Context,
        id: JobId,
        out: &mut Effects,
    ) -> Vec<Report> {
        let mut stuck = Vec::new();
        for script in self.scripts.values_mut() {
            if script.handle_timeout(cx, id, out) {
                stuck.push(script.stage());
            }
        }
        stuck.into_iter().flat_map(|stage| self.tell_end(stage)).collect()
    }

    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        self.scripts.values().filter_map(Script::next_timeout).min()
    }

    /// Does what can be done now. Returns what to report.
    pub(super) fn advance(
        &mut self,
        cx: Context,
        id: JobId,
        shell: &mut Shell,
        out: &mut Effects,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        let wants_prolog = self.wants(cx, Stage::Prolog);
        let has_begun = |perilog: &Self, stage| perilog.scripts.contains_key(&stage);
        if shell.unit.is_waiting()
            && self.awaits_shell()
            && wants_prolog
            && !has_begun(self, Stage::Prolog)
        {
            reports.extend(self.begin(cx, id, shell, Stage::Prolog, out));
        }
        let is_prepared = !wants_prolog || self.has_prolog_ended_well();
        if shell.unit.is_waiting() && is_prepared && !has_begun(self, Stage::Epilog) {
            self.go = match std::mem::take(&mut self.go) {
                Go::Start(spec) => {
                    shell.unit.launch(spec, out);
                    Go::On
                }
                go => go,
            };
        }
        let awaits_epilog = self.awaits_epilog(cx, shell);
        if awaits_epilog && !std::mem::replace(&mut self.told_epilog, true) {
            reports.push(Report::Epilog);
        }
        if awaits_epilog && (self.go == Go::Conclude || !self.are_epilogs_together()) {
            reports.extend(self.begin(cx, id, shell, Stage::Epilog, out));
        }
        // The records of shell and prolog tell the next life of the epilog that is to follow, until that
        // has one. Its own tells that it has run, as long as one of the others is there.
        if shell.unit.is_done()
            && (has_begun(self, Stage::Epilog) || !self.may_get_epilog(cx, shell))
        {
            shell.unit.discard_if_done(out);
            self.forget_scripts(out);
        }
        reports
    }

    /// The leader is done with the job.
    pub(super) fn give_back(&mut self, out: &mut Effects) {
        for script in self.scripts.values_mut() {
            script.give_back(out);
        }
    }

    /// Why this rank is to be drained, if nobody but its agent does it. Each reason comes once.
    pub(super) fn take_drain_reasons(&mut self, id: JobId) -> Vec<String> {
        let wanted = self.wanted.as_ref();
        let reason = |script: &mut Script| {
            let (stage, failure) = (script.stage(), script.take_failure()?);
            failure.drain_reason(stage, wanted.and_then(|wanted| wanted.place(stage)), id)
        };
        self.scripts.values_mut().filter_map(reason).collect()
    }

    fn forget_scripts(&mut self, out: &mut Effects) {
        for script in self.scripts.values_mut() {
            script.forget(out);
            if !script.is_done() {
                return;
            }
        }
    }

    /// Begins a script. Returns what to report.
    fn begin(
        &mut self,
        cx: Context,
        id: JobId,
        shell: &Shell,
        stage: Stage,
        out: &mut Effects,
    ) -> Vec<Report> {
        let config = of_stage(cx, stage);
        let unit = shell.unit().of_stage(stage, config.is_some_and(|config| config.under_imp));
        let mut spec = UnitSpec::bare(unit, shell.digest().clone());
        spec.userid = shell.userid();
        spec.size = shell.size();
        spec.scripts.clone_from(&self.wanted);
        spec.began = Some(cx.now.wall);
        if stage == Stage::Epilog {
            spec.shell_failed = shell.start_failure();
            spec.end_reason.clone_from(&self.reason);
        }
        spec.description = format!("{} of Flux job {}", stage.title(), id.f58plain());
        spec.working_directory.clone_from(&cx.facts.working_directory);
        // As perilog.so sets them.
        let ranks = self.wanted.as_ref().map(|wanted| wanted.ranks.to_string());
        spec.environment = [
            ("FLUX_JOB_ID", id.to_string()),
            ("FLUX_JOB_RANKS", ranks.unwrap_or_default()),
            ("FLUX_JOB_USERID", shell.userid().to_string()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into();
        if !cx.facts.shell_uri.is_empty() {
            spec.environment.insert("FLUX_URI".to_string(), cx.facts.shell_uri.clone());
        }
        let script = match config {
            Some(config) => {
                spec.argv.clone_from(&config.command);
                Script::start(cx, spec, out)
            }
            None => Script::not_configured(cx, spec),
        };
        self.scripts.insert(stage, script);
        self.tell_end(stage)
    }

    fn wants(&self, cx: Context, stage: Stage) -> bool {
        // An administrator can have disabled scripts since the job began.
        let is_disabled = stage == Stage::Epilog && cx.config.perilog.is_none();
        let wanted = self.wanted.as_ref().filter(|_| !is_disabled);
        wanted.is_some_and(|wanted| wanted.runs(stage, cx.facts.rank))
    }

    fn has_prolog_ended_well(&self) -> bool {
        let prolog = self.script(Stage::Prolog);
        prolog.is_some_and(|prolog| prolog.is_over() && prolog.failure().is_none())
    }

    /// Nothing but the epilog is to come on this rank, and that has not begun.
    fn awaits_epilog(&self, cx: Context, shell: &Shell) -> bool {
        self.script(Stage::Epilog).is_none()
            && self.may_get_epilog(cx, shell)
            && self.script(Stage::Prolog).is_none_or(|prolog| !prolog.is_active())
            && self.is_shell_over(shell)
    }

    fn are_epilogs_together(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.epilogs_together)
    }

    /// Something was begun on this rank that an epilog follows.
    fn may_get_epilog(&self, cx: Context, shell: &Shell) -> bool {
        self.wants(cx, Stage::Epilog)
            && (self.script(Stage::Prolog).is_some() || !shell.unit.is_waiting())
    }

    /// No shell runs here, and none will.
    fn is_shell_over(&self, shell: &Shell) -> bool {
        shell.is_dead() || (self.go == Go::Conclude && shell.was_never_started())
    }

    /// The job has nothing to wait for on this rank any more.
    pub(super) fn is_over(&self, cx: Context, shell: &Shell) -> bool {
        let is_stuck = |script: &Script| script.is_active() && script.is_over();
        let prolog = self.script(Stage::Prolog);
        let is_epilog_over = match self.script(Stage::Epilog) {
            Some(epilog) => epilog.is_over(),
            None => !self.may_get_epilog(cx, shell) || prolog.is_some_and(is_stuck),
        };
        self.is_shell_over(shell) && prolog.is_none_or(Script::is_over) && is_epilog_over
    }

    /// Nothing of it is left on the node, and nobody wants to hear more.
    pub(super) fn is_done(&self, cx: Context, shell: &Shell) -> bool {
        let waits = self.script(Stage::Epilog).is_none() && self.may_get_epilog(cx, shell);
        !waits && self.scripts.values().all(Script::is_done)
    }

    pub(super) fn script(&self, stage: Stage) -> Option<&Script> {
        self.scripts.get(&stage)
    }

    /// Those that have begun and not ended.
    pub(super) fn active(&self) -> impl Iterator<Item = &Script> {
        self.scripts.values().filter(|script| script.is_active())
    }

    /// The prolog, if it may be running.
    pub(super) fn running_prolog(&mut self) -> Option<&mut Script> {
        self.scripts.get_mut(&Stage::Prolog).filter(|prolog| prolog.is_active())
    }

    /// A client does not wait any more. Returns whether it did.
    pub(super) fn is_left_by(&mut self, request: RequestId) -> bool {
        self.scripts.values_mut().any(|script| script.is_left_by(request))
    }

    /// The module is being unloaded.
    pub(super) fn shut_down(&mut self, id: JobId, out: &mut Effects) {
        self.scripts.values_mut().for_each(|script| script.shut_down(id, out));
    }

    /// Whether this service runs scripts for the job.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// How a script has ended, for the leader.
    fn tell_end(&self, stage: Stage) -> Vec<Report> {
        let Some(script) = self.script(stage).filter(|script| script.is_over()) else {
            return Vec::new();
        };
        match script.failure() {
            Some(failure) => vec![Report::ScriptFailed { stage, failure }],
            None if stage == Stage::Prolog => {
                script.degraded().into_iter().chain([Report::Prepared]).collect()
            }
            None => Vec::new(),
        }
    }

    /// Everything that a new leader has to know.
    pub(super) fn tell_again(&self, cx: Context) -> Vec<Report> {
        if !self.is_wanted() {
            return Vec::new();
        }
        let mut reports: Vec<Report> =
            self.reason.clone().map(Report::EndReason).into_iter().collect();
        reports.extend(self.tell_end(Stage::Prolog));
        if !self.wants(cx, Stage::Prolog) {
            reports.push(Report::Prepared);
        }
        if self.told_epilog || self.script(Stage::Epilog).is_some() {
            reports.push(Report::Epilog);
        }
        reports.extend(self.tell_end(Stage::Epilog));
        reports
    }
}

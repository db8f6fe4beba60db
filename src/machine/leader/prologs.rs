//! Prologs and epilogs, as the ranks' agents tell of them (flux-core `perilog.c` for the words).
//!
//! No shell is started before the prologs of all ranks have ended well. Then one order starts them
//! all. A rank with an epilog is gone when that has ended, or when nobody waits for it any more.

use std::collections::BTreeMap;

use super::Leader;
use super::rank::{Rank, ShellPhase};
use super::state::{Launching, State};
use super::timeline::LaunchStage;
use crate::machine::context::Context;
use crate::machine::effect::{Effects, Level};
use crate::machine::event::Fault;
use crate::proto::peer::{Mode, Order, Report};
use crate::proto::{
    BrokerRank, Exception, Idset, PerilogRelease, ScriptFailure, ScriptStop, Stage, WaitStatus,
};

impl Leader {
    /// Shells wait for prologs.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.state, State::Launching(Launching { prepares: true, .. }))
    }

    /// How ranks are asked first: to start shells, or to run prologs before that.
    pub(super) fn starting_mode(&self) -> Mode {
        let has_prolog =
            self.command.scripts.as_ref().is_some_and(|scripts| scripts.prolog.is_some());
        if has_prolog { Mode::Prepare } else { Mode::Start }
    }

    /// How ranks are asked that are to start no shell.
    pub(super) fn finding_mode(&self) -> Mode {
        let is_ending = self.has_failed() || self.state.finish().is_some();
        if is_ending && self.command.scripts.is_some() { Mode::Conclude } else { Mode::Adopt }
    }

    /// No shell is going to be started any more.
    pub(super) fn order_to_conclude(&self, out: &mut Effects) {
        if self.command.scripts.is_some() {
            self.order(self.start.r.ranks(), &self.no_shell_more(), out);
        }
    }

    fn no_shell_more(&self) -> Order {
        Order::Conclude { reason: self.end_reason() }
    }

    /// All shells have ended.
    pub(super) fn start_epilogs(&self, out: &mut Effects) {
        let scripts = self.command.scripts.as_ref();
        if scripts.is_some_and(|scripts| scripts.epilogs_together) {
            self.order_to_conclude(out);
        }
    }

    /// Starts the shells when all prologs have ended well, or fails the job. A rank that has lost the
    /// record of its prolog runs it again, and it can fail then.
    pub(super) fn judge_prologs(&mut self, cx: Context, out: &mut Effects) {
        if matches!(self.state, State::Running(_)) {
            // A later coordinator's KVS may not have it.
            self.tell_degraded(out);
        }
        let has_failed = self.has_failed();
        let State::Launching(launching) = &self.state else { return };
        if launching.prepares && !has_failed && self.ranks.any(Rank::is_in_prolog) {
            return;
        }
        let failures = self.failures(Stage::Prolog, |_| true);
        if has_failed {
            // The job has failed otherwise meanwhile. Of those to come the ranks are drained at once.
            if self.end_preparation() {
                self.drain_failed(Stage::Prolog, &failures, out);
            }
            return;
        }
        let intolerable = self.find_intolerable(cx);
        if failures.is_empty() && intolerable.is_none() {
            if self.tell_degraded(out) && self.end_preparation() {
                self.expect_status();
                self.order(self.start.r.ranks(), &Order::Launch, out);
            }
            return;
        }
        self.end_preparation();
        self.drain_failed(Stage::Prolog, &failures, out);
        let failed = (!failures.is_empty()).then(|| self.describe(Stage::Prolog, &failures));
        let note = failed.or(intolerable).unwrap_or_default();
        let kind = Stage::Prolog.name().to_string();
        let exception = Exception { severity: 0, kind, note };
        self.raise(cx, exception, out);
        self.abort(cx, out);
    }

    /// Shells wait for prologs no longer. Returns whether they did.
    fn end_preparation(&mut self) -> bool {
        let State::Launching(launching) = &mut self.state else { return false };
        std::mem::replace(&mut launching.prepares, false)
    }

    /// A rank has news of a script.
    pub(super) fn handle_script(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        report: &Report,
        out: &mut Effects,
    ) {
        let has_failed = self.has_failed();
        let Some(known) = self.ranks.get_mut(rank) else { return };
        match report {
            Report::Epilog if self.command.scripts.is_some() => {
                let was_pending = known.phase == ShellPhase::Pending;
                if was_pending || matches!(known.phase, ShellPhase::Exited(_)) {
                    known.set_epilog();
                }
                // Only of a job that has failed an epilog can follow the prolog.
                if was_pending && !has_failed {
                    self.fail_concluded(cx, rank, out);
                }
            }
            Report::Degraded { reason } => self.handle_degraded(rank, reason, out),
            Report::Prepared => {
                let was_prepared = std::mem::replace(&mut known.scripts.prepared, true);
                if !was_prepared && self.starting_mode() == Mode::Prepare {
                    self.reach(cx, LaunchStage::Prepared, rank);
                }
                self.tell_what_is_next(rank, out);
            }
            Report::ScriptFailed { stage, failure } => {
                if *stage == Stage::Prolog {
                    self.tell_what_is_next(rank, out);
                }
                self.handle_script_failure(rank, *stage, failure, out);
            }
            _ => (), // said again, or makes no sense
        }
    }

    /// A rank has run its prolog. It may have been asked before it was decided what comes next.
    fn tell_what_is_next(&self, rank: BrokerRank, out: &mut Effects) {
        let next = match &self.state {
            _ if self.has_failed() => self.no_shell_more(),
            State::Launching(Launching { prepares: false, .. }) | State::Running(_)
                if self.may_use(rank) =>
            {
                Order::Launch
            }
            _ => return,
        };
        self.order(&rank.into(), &next, out);
    }

    /// A rank that no shell was started on has its epilog behind it: an earlier leader has ended the
    /// job, and the KVS has forgotten why.
    fn fail_concluded(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        let host = self.start.r.hosts(&rank.into());
        let note = format!("epilog has begun on {host} (rank {rank}) before a shell was started");
        self.fail(cx, note, out);
    }

    /// A rank's script has not ended well.
    fn handle_script_failure(
        &mut self,
        rank: BrokerRank,
        stage: Stage,
        failure: &ScriptFailure,
        out: &mut Effects,
    ) {
        let has_failed = self.has_failed();
        let Some(known) = self.ranks.get_mut(rank) else { return };
        let is_released = stage == Stage::Epilog && known.is_gone();
        if is_released || stage == Stage::Shell {
            return; // nobody waits for it, and whether its rank is drained was said
        }
        // The first word counts. A stuck script that ends later must not drain its rank again: the
        // administrator may have given that back.
        let is_first = known.scripts.failures.insert(stage, failure.clone()).is_none();
        // Of prologs, the job is told when all have ended.
        let waits = stage == Stage::Prolog && !has_failed;
        if is_first && !waits && !self.release.released().contains_rank(rank) {
            let failures = BTreeMap::from([(rank, failure.clone())]);
            self.drain_failed(stage, &failures, out);
        }
    }

    /// Ranks whose prologs the job waits for, to start its shells or to end.
    pub(super) fn prolog_ranks(&self) -> Idset {
        let has_prologs = self.starting_mode() == Mode::Prepare;
        let waits = has_prologs && matches!(self.state, State::Launching(_));
        if waits { self.ranks.select(Rank::is_in_prolog) } else { Idset::new() }
    }

    /// Ranks whose epilogs the job waits for. As long as it runs, epilogs that begin together wait for
    /// its shells.
    pub(super) fn epilog_ranks(&self) -> Idset {
        let runs =
            matches!(self.state, State::Launching(_) | State::Running(_)) && !self.has_failed();
        if runs && self.command.scripts.as_ref().is_some_and(|scripts| scripts.epilogs_together) {
            return Idset::new();
        }
        self.ranks.select(|known| matches!(known.phase, ShellPhase::Epilog(_)))
    }

    /// The administrator does not want the job to wait for scripts on these ranks any more.
    ///
    /// # Errors
    /// `ENOENT`: it waits for none there.
    pub(in crate::machine) fn release_scripts(
        &mut self,
        cx: Context,
        release: &PerilogRelease,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        let wants = |rank| release.ranks.as_ref().is_none_or(|ranks| ranks.contains_rank(rank));
        let [epilogs, prologs] = [self.epilog_ranks(), self.prolog_ranks()]
            .map(|all| all.ranks().filter(|rank| wants(*rank)).collect::<Idset>());
        if epilogs.is_empty() && prologs.is_empty() {
            let message = format!("{}: the job waits for no prolog or epilog there", self.id);
            return Err(Fault::new(libc::ENOENT, message));
        }
        for (stage, ranks) in [(Stage::Prolog, &prologs), (Stage::Epilog, &epilogs)] {
            if ranks.is_empty() {
                continue;
            }
            let (id, stage) = (self.id, stage.name());
            out.log(
                Level::Warning,
                format!("{id}: {stage} on ranks {ranks} is not waited for: released"),
            );
            if release.drain {
                let reason = format!("{stage} released for job {id}");
                self.drain(ranks.clone(), reason, out);
            }
            if release.kill {
                self.order(ranks, &Order::KillScripts, out);
            }
        }
        for rank in epilogs.ranks() {
            self.set_gone(cx, rank);
        }
        let has_failed = self.has_failed();
        for rank in prologs.ranks() {
            if let Some(known) = self.ranks.get_mut(rank) {
                let canceled = ScriptFailure::Stopped(ScriptStop::Canceled);
                known.scripts.failures.insert(Stage::Prolog, canceled);
            }
            if has_failed {
                self.set_gone(cx, rank); // no shell follows, and the epilog comes when it can
            }
        }
        self.advance(cx, out);
        Ok(())
    }

    /// Epilogs that have not ended well are told when the last one is over.
    pub(super) fn tell_failed_epilogs(&mut self, out: &mut Effects) {
        let failures = self.failures(Stage::Epilog, |failure| !failure.is_canceled());
        if !failures.is_empty() {
            let note = self.describe(Stage::Epilog, &failures);
            self.say_exception(Exception::survivable(Stage::Epilog.name(), note), out);
        }
    }

    /// What is wrong with the scripts of all ranks, as far as it counts.
    fn failures(
        &self,
        stage: Stage,
        counts: impl Fn(&ScriptFailure) -> bool,
    ) -> BTreeMap<BrokerRank, ScriptFailure> {
        let failures = self.ranks.iter().filter_map(|(rank, known)| {
            let failure = known.scripts.failures.get(&stage).filter(|failure| counts(failure))?;
            Some((rank, failure.clone()))
        });
        failures.collect()
    }

    /// A node whose script has failed is not given to other jobs.
    fn drain_failed(
        &mut self,
        stage: Stage,
        failures: &BTreeMap<BrokerRank, ScriptFailure>,
        out: &mut Effects,
    ) {
        let place = self.command.scripts.as_ref().and_then(|scripts| scripts.place(stage));
        let mut reasons: BTreeMap<String, Idset> = BTreeMap::new();
        for (rank, failure) in failures {
            if let Some(reason) = failure.drain_reason(stage, place, self.id) {
                reasons.entry(reason).or_default().insert(rank.0);
            }
        }
        for (reason, ranks) in reasons {
            self.drain(ranks, reason, out);
        }
    }

    /// For the job's exception. The worst is told, and on which nodes anything is wrong.
    fn describe(&self, stage: Stage, failures: &BTreeMap<BrokerRank, ScriptFailure>) -> String {
        let ranks: Idset = failures.keys().copied().collect();
        let worst = failures.values().max_by_key(|failure| match failure {
            ScriptFailure::Stuck(_) => (3, WaitStatus(0)),
            ScriptFailure::Stopped(_) => (2, WaitStatus(0)),
            ScriptFailure::Exited(status) => (1, *status),
            ScriptFailure::NotRun(_) => (0, WaitStatus(0)),
        });
        let words = worst.map(failure_words).unwrap_or_default();
        format!("{} {words} on {} (rank {ranks})", stage.name(), self.start.r.hosts(&ranks))
    }

    /// The shell failed to start. Its rank is gone, unless an epilog follows.
    pub(super) fn set_not_started(&mut self, cx: Context, rank: BrokerRank) {
        if self.command.scripts.is_none() {
            return self.set_gone(cx, rank);
        }
        if let Some(known) = self.ranks.get_mut(rank).filter(|known| known.is_active()) {
            known.set_exited(None);
        }
    }
}

fn failure_words(failure: &ScriptFailure) -> String {
    match failure {
        ScriptFailure::Exited(status) => match script_signal(*status) {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("exited with code={}", status.code().unwrap_or(-1)),
        },
        ScriptFailure::NotRun(why) => format!("did not run ({why})"),
        ScriptFailure::Stopped(_) | ScriptFailure::Stuck(_) => failure.words().to_string(),
    }
}

/// The signal that has ended a script, or a command of it: most shells exit with 128 more.
fn script_signal(status: WaitStatus) -> Option<i32> {
    status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128))
}

//! The shell that is on a rank, and what is to be done about it.

use std::collections::BTreeSet;

use super::eviction::Eviction;
use super::perilog::Perilog;
use super::shell::Shell;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects};
use crate::machine::mono_time::MonoTime;
use crate::port::supervisor::{UnitCommand, UnitRecord};
use crate::proto::peer::{Mode, Order, Report, ShellsRequest};
use crate::proto::{JobId, Stage, UnitName};

/// The shell on this rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LocalShell {
    pub(super) shell: Shell,
    pub(super) claim: Claim,
    /// The shell, or what it has left behind, is being ended.
    pub(super) eviction: Option<Eviction>,
    /// What comes before the shell, and behind it.
    pub(super) perilog: Perilog,
    /// Units of another run of this id that were found here, and are left alone.
    others: BTreeSet<UnitName>,
    /// Whoever leads was told that nothing is left.
    told_gone: bool,
    /// Since when systemd or the disk does not answer, as whoever leads was told.
    told_silent: Option<u64>,
}

/// Which job the shell on this rank belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    /// The agent's job.
    Own,
    /// An earlier job with this id. The agent's job wants nothing here.
    Foreign,
    /// An earlier job. The request of the agent's job is obeyed when that shell is gone.
    Fenced(Box<ShellsRequest>),
    /// An earlier job, whose shell could not be ended. The leader was told so.
    Refused,
}

impl LocalShell {
    pub(super) fn new(shell: Shell, claim: Claim) -> Self {
        let perilog = Perilog::default();
        let others = BTreeSet::new();
        Self { shell, claim, eviction: None, perilog, others, told_gone: false, told_silent: None }
    }

    /// From the record of an earlier life.
    pub(super) fn found(cx: Context, record: &UnitRecord, out: &mut Effects) -> Self {
        let mut there = Self::new(Shell::found(record), Claim::Own);
        there.perilog.find(cx, record, out);
        there
    }

    /// Takes in another record of the same job. Returns false if another unit has its place.
    pub(super) fn find(&mut self, cx: Context, record: &UnitRecord, out: &mut Effects) -> bool {
        if self.shell.digest() != &record.spec.digest {
            return false;
        }
        if record.spec.unit.is_script() {
            self.shell.find_failure(record.spec.shell_failed.clone());
        } else {
            let failure = self.shell.start_failure();
            if failure.is_none() && !self.shell.unit.is_waiting() {
                return false;
            }
            self.shell = Shell::found(record);
            self.shell.find_failure(failure);
        }
        self.perilog.find(cx, record, out);
        true
    }

    /// Leaves a found unit alone: it belongs to another run.
    pub(super) fn leave_alone(&mut self, unit: UnitName) {
        self.others.insert(unit);
    }

    /// The unit is of another run of this id.
    pub(super) fn has_another(&self, unit: &UnitName) -> bool {
        match unit.stage() {
            Stage::Shell => self.shell.unit() != unit,
            stage => match self.perilog.script(stage) {
                Some(script) => script.unit() != unit,
                None => self.others.contains(unit),
            },
        }
    }

    /// Nothing of a unit of another run is left.
    pub(super) fn forget_another(&mut self, unit: &UnitName, out: &mut Effects) {
        self.others.remove(unit);
        out.push(Effect::Unit(unit.clone(), UnitCommand::Forget));
    }

    /// Does what can be done now. Returns what to report, as far as it is news.
    pub(super) fn advance(&mut self, cx: Context, id: JobId, out: &mut Effects) -> Vec<Report> {
        let mut reports = self.perilog.advance(cx, id, &mut self.shell, out);
        let is_gone = if self.perilog.is_wanted() {
            self.perilog.is_over(cx, &self.shell) && !self.shell.is_unsettled()
        } else {
            self.shell.is_gone()
        };
        if is_gone && !std::mem::replace(&mut self.told_gone, true) {
            reports.push(Report::Gone);
        }
        if !self.told_gone {
            reports.extend(self.tell_silence(cx));
        }
        reports
    }

    /// Reports that systemd or the disk, which the shell needs now, does not answer, if that is news.
    fn tell_silence(&mut self, cx: Context) -> Option<Report> {
        let (who, silent) = cx.silent.filter(|_| self.shell.needs_systemd())?;
        let since = silent.since.wall.0 as u64;
        let is_news = self.told_silent.replace(since) != Some(since);
        let (who, message) = (*who, silent.what.clone());
        is_news.then_some(Report::Silent { who, since, message })
    }

    /// Everything that a new leader has to know.
    pub(super) fn tell_again(
        &mut self,
        cx: Context,
        positions: [u64; 2],
        out: &mut Effects,
    ) -> Vec<Report> {
        (self.told_gone, self.told_silent) = (false, None);
        let mut reports = self.shell.tell_again(positions, out);
        reports.extend(self.perilog.tell_again(cx));
        reports
    }

    /// Obeys an order. The shell of another job is being ended anyway. Of the orders for this job only
    /// `Conclude` matters then: its request, which waits, is to start no shell.
    pub(super) fn handle_order(&mut self, cx: Context, order: &Order, out: &mut Effects) {
        match (&mut self.claim, order) {
            (Claim::Fenced(request), Order::Conclude { .. }) => request.mode = Mode::Conclude,
            (Claim::Foreign | Claim::Fenced(_) | Claim::Refused, _) => (),
            (_, Order::Conclude { reason }) => self.perilog.conclude(cx, reason.as_ref(), out),
            (_, Order::KillScripts) => self.perilog.kill(cx, out),
            (_, Order::Launch) => self.perilog.launch(),
            (_, order) => {
                self.shell.handle_order(order, out);
                if *order == Order::Forget {
                    self.perilog.give_back(out);
                    self.perilog.forget();
                }
            }
        }
    }

    /// Nobody wants the shell, or the scripts.
    pub(super) fn end(&mut self, cx: Context, out: &mut Effects) {
        self.perilog.conclude(cx, None, out);
        self.shell.end(out);
        self.perilog.forget();
    }

    /// Nothing is left, and nobody wants to hear more.
    pub(super) fn is_done(&self, cx: Context) -> bool {
        self.shell.unit.is_done() && self.perilog.is_done(cx, &self.shell)
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.claim != Claim::Own
    }

    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        let evict_at = self.eviction.as_ref().map(Eviction::next_timeout);
        // Its commits are not for the namespace of another job.
        let commit_at = if self.is_foreign() { None } else { self.shell.next_timeout() };
        [evict_at, commit_at, self.perilog.next_timeout()].into_iter().flatten().min()
    }

    /// The job is over: a request that waits behind another job's shell is dropped.
    pub(super) fn start_nothing(&mut self) {
        if self.is_foreign() {
            self.claim = Claim::Foreign;
        }
    }

    /// What is left gets a first signal after so many seconds.
    pub(super) fn evict_after(&mut self, first: f64, cx: Context) {
        self.eviction.get_or_insert_with(|| Eviction::start(cx.now.mono, first, cx.config));
    }
}

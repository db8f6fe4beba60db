//! Who an agent answers to, and what waits to be reported there.

use std::collections::BTreeMap;

use crate::machine::event::RequestId;
use crate::machine::mono_time::MonoTime;
use crate::proto::peer::{Question, RankReport, Report, Reports};
use crate::proto::{BrokerRank, Idset};

/// How long reports wait for those of the rest of the subtree, in seconds.
const GATHER_SECONDS: f64 = 0.01;

/// Whether somebody leads the job on this rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Upstream {
    Led(Led),
    Unled(Unled),
}

/// A leader, or a parent in the tree, waits for reports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Led {
    pub(super) to: RequestId,
    /// The rank at the other end of it.
    pub(super) parent: BrokerRank,
    /// What the parent is asked now and then: whether it still leads the job, or whether somebody
    /// still leads it there.
    pub(super) probe: Question,
    /// When the parent is asked.
    pub(super) ask_at: Option<MonoTime>,
    pub(super) reports: Gathering,
}

impl Led {
    /// Whether this is what its parent was asked.
    pub(super) fn has_asked(&self, to: BrokerRank, question: Question) -> bool {
        (to, question) == (self.parent, self.probe)
    }
}

/// Nobody waits for reports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unled {
    /// When rank 0 is asked about the job; none while it is being asked, or need not be.
    pub(super) ask_at: Option<MonoTime>,
    pub(super) over: Over,
}

/// Whether the job is over, as far as this rank was told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Over {
    /// No: a leader may come.
    No,
    /// The leader has said so.
    Forgotten,
    /// The job manager does not have it.
    Unwanted,
}

/// Reports that go up in one message: when the whole subtree has reached the same stage, else
/// after [`GATHER_SECONDS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gathering {
    outbox: Vec<RankReport>,
    /// How far each rank of the subtree is.
    stages: BTreeMap<BrokerRank, ShellStage>,
    /// The furthest stage, and how many ranks have reached it: a report costs no more in a large
    /// subtree.
    furthest: Option<(ShellStage, usize)>,
    /// A rank has reached a later stage since the last message.
    has_advanced: bool,
    send_at: Option<MonoTime>,
}

/// How far a shell is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ShellStage {
    Prepared,
    Runs,
    /// It has entered the barrier so many times.
    Entered(u32),
    Exited,
    /// Nothing more is to come.
    Over,
}

impl Upstream {
    /// When somebody is to be asked about the job, or reports are to be sent.
    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        match self {
            Self::Led(led) => [led.ask_at, led.reports.send_at].into_iter().flatten().min(),
            Self::Unled(unled) => unled.ask_at,
        }
    }

    pub(super) fn ask_at_mut(&mut self) -> &mut Option<MonoTime> {
        match self {
            Self::Led(led) => &mut led.ask_at,
            Self::Unled(unled) => &mut unled.ask_at,
        }
    }
}

impl Gathering {
    /// Puts a report into the outbox; the same news of several ranks is one report.
    pub(super) fn add(&mut self, now: MonoTime, rank: BrokerRank, report: Report) {
        if let Some(stage) = stage(&report) {
            self.advance(rank, stage);
        }
        let after = self.outbox.iter().rposition(|r| r.ranks.contains_rank(rank)).unwrap_or(0);
        let same = self.outbox.iter_mut().skip(after).find(|r| r.report == report);
        match same {
            Some(same) if !matches!(report, Report::Output { .. }) => {
                same.ranks.insert(rank.0);
            }
            Some(_) | None => {
                self.outbox.push(RankReport { ranks: Idset::from_iter([rank]), report });
            }
        }
        self.send_at.get_or_insert(now + GATHER_SECONDS);
    }

    fn advance(&mut self, rank: BrokerRank, stage: ShellStage) {
        if self.stages.get(&rank).is_some_and(|before| *before >= stage) {
            return;
        }
        self.stages.insert(rank, stage);
        self.has_advanced = true;
        match &mut self.furthest {
            Some((furthest, _)) if *furthest > stage => {}
            Some((furthest, reached)) if *furthest == stage => *reached += 1,
            furthest => *furthest = Some((stage, 1)),
        }
    }

    /// It is time to send: a leaf has nobody to wait for; others wait unless all ranks have got
    /// further. Most often the end of a shell is all that there is to its end, so both go in one
    /// message.
    pub(super) fn is_ready(&self, now: MonoTime, ranks: &Idset, is_leaf: bool) -> bool {
        let all_reached = self.furthest.is_some_and(|(_, reached)| reached >= ranks.len());
        let is_ending = self.furthest.is_some_and(|(stage, _)| stage == ShellStage::Exited);
        let has_all = is_leaf || (self.has_advanced && all_reached);
        (has_all && !is_ending) || self.is_due(now)
    }

    pub(super) fn is_due(&self, now: MonoTime) -> bool {
        self.send_at.is_some_and(|at| at <= now)
    }

    /// Takes what is to be sent now.
    pub(super) fn take(&mut self) -> Option<Reports> {
        self.send_at = None;
        self.has_advanced = false;
        let reports = std::mem::take(&mut self.outbox);
        (!reports.is_empty()).then_some(Reports { reports })
    }
}

/// How far a shell is, or none if the report does not tell.
fn stage(report: &Report) -> Option<ShellStage> {
    match report {
        Report::Prepared => Some(ShellStage::Prepared),
        Report::Running => Some(ShellStage::Runs),
        Report::Barrier { entered, .. } => Some(ShellStage::Entered(*entered)),
        Report::Exited { .. } => Some(ShellStage::Exited),
        Report::Failed { .. }
        | Report::Gone
        | Report::Lost { .. }
        | Report::NeverStarted
        | Report::Orphaned
        | Report::Unreachable { .. } => Some(ShellStage::Over),
        Report::CriticalRanks { .. }
        | Report::Degraded { .. }
        | Report::EndReason(_)
        | Report::Epilog
        | Report::Left
        | Report::LeftOver { .. }
        | Report::Output { .. }
        | Report::OutputLost { .. }
        | Report::OutputOverflow { .. }
        | Report::OutputTruncated { .. }
        | Report::Pending
        | Report::RecordLost { .. }
        | Report::ScriptFailed { .. }
        | Report::Silent { .. }
        | Report::Unkillable
        | Report::Usage(_) => None,
    }
}

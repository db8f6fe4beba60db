//! The ranks of a job, as their agents report them.

use std::collections::BTreeMap;

use super::scripts::RankScripts;
use crate::machine::away::Away;
use crate::proto::{BrokerRank, Idset, Usage, WaitStatus};

/// How far one rank's shell is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum ShellPhase {
    #[default]
    Pending,
    Running,
    Exited(ShellEnd),
    /// Nothing is left of it, or it never was, and the rank's epilog runs, or waits for the other shells.
    Epilog(ShellEnd),
    /// Nothing is left of it, or nothing more can be learned.
    Gone(ShellEnd),
}

/// What is known of a shell that does not run any more, or never did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ShellEnd {
    /// It was seen running, once.
    has_run: bool,
    /// Its status, if its agent saw one.
    status: Option<WaitStatus>,
}

/// What the rank's agent has told this leader of its shell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Heard {
    #[default]
    Nothing,
    /// It was started before, and the agent has not learned yet what has become of it.
    Unsure,
    /// What the agent knows, or nothing more can be learned.
    Known,
}

/// What the exec eventlog has of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InLog {
    /// Standard output and standard error.
    pub(super) streams: [LoggedStream; 2],
    /// It says that output of the shell may be missing, because it was lost on its node.
    pub(super) output_lost: bool,
    /// It says that systemd has not answered on the node since then.
    pub(super) silent_since: Option<u64>,
    /// It says that memory was short.
    pub(super) oom_told: bool,
}

/// How much of one stream is in the exec eventlog.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LoggedStream {
    /// Bytes that were sent to it.
    pub(super) sent: u64,
    /// Bytes that are in it.
    pub(super) durable: u64,
    /// It says that the stream was cut off.
    pub(super) truncated: bool,
}

/// One rank of the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rank {
    pub(super) phase: ShellPhase,
    pub(super) heard: Heard,
    /// Nobody looks after it at the moment.
    pub(super) away: Option<Away>,
    /// Its record says why its shell was ended: that has had its first signal.
    pub(super) ended_before: bool,
    /// The shell has left its unit, and that was told.
    pub(super) left: bool,
    /// The processes of its shell that signals have not ended, as they were named last.
    pub(super) left_over: Option<String>,
    /// Why nobody can tell how its shell has ended, or what it has used.
    pub(super) lost: Option<String>,
    /// What its processes have used. None of them is left.
    pub(super) usage: Option<Box<Usage>>,
    pub(super) in_log: InLog,
    pub(super) scripts: RankScripts,
}

impl Rank {
    /// The shell runs, as far as is known.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.phase, ShellPhase::Pending | ShellPhase::Running)
    }

    pub(super) fn is_heard(&self) -> bool {
        self.heard != Heard::Nothing
    }

    /// Its agent, which has the request, has not told that its shell runs.
    pub(super) fn has_never_run(&self) -> bool {
        self.phase == ShellPhase::Pending && self.heard != Heard::Unsure && self.away.is_none()
    }

    /// Something of its shell may be left.
    pub(super) fn is_unsettled(&self) -> bool {
        !matches!(self.phase, ShellPhase::Epilog(_) | ShellPhase::Gone(_))
    }

    /// Its prolog has not ended, as far as the job waits for it.
    pub(super) fn is_in_prolog(&self) -> bool {
        self.phase == ShellPhase::Pending && self.scripts.is_prolog_awaited()
    }

    /// Whether its shell is active can be said.
    pub(super) fn is_known(&self) -> bool {
        self.heard == Heard::Known && self.away.is_none()
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.phase, ShellPhase::Gone(_))
    }

    /// Its shell was seen running. Returns whether it is one that was expected.
    pub(super) fn set_running(&mut self) -> bool {
        match &mut self.phase {
            ShellPhase::Pending => {
                self.phase = ShellPhase::Running;
                return true;
            }
            ShellPhase::Running => (),
            ShellPhase::Exited(end) | ShellPhase::Epilog(end) | ShellPhase::Gone(end) => {
                end.has_run = true
            }
        }
        false
    }

    /// Its shell has ended, with this status if its agent saw one.
    pub(super) fn set_exited(&mut self, status: Option<WaitStatus>) {
        self.phase = ShellPhase::Exited(ShellEnd { status, ..self.end() });
    }

    /// An earlier leader has released it: its shell has run, and nothing more is known of that.
    pub(super) fn set_released(&mut self) {
        self.phase = ShellPhase::Exited(ShellEnd { has_run: true, status: None });
    }

    /// Only the epilog is to come, or runs.
    pub(super) fn set_epilog(&mut self) {
        self.phase = ShellPhase::Epilog(self.end());
    }

    pub(super) fn set_gone(&mut self) {
        self.phase = ShellPhase::Gone(self.end());
        if self.heard == Heard::Nothing {
            self.heard = Heard::Known;
        }
        self.away = None;
    }

    /// Its shell was seen running, once.
    pub(super) fn has_run(&self) -> bool {
        self.end().has_run
    }

    /// Its end, as it would be if nothing more were heard.
    fn end(&self) -> ShellEnd {
        match self.phase {
            ShellPhase::Pending => ShellEnd::default(),
            ShellPhase::Running => ShellEnd { has_run: true, status: None },
            ShellPhase::Exited(end) | ShellPhase::Epilog(end) | ShellPhase::Gone(end) => end,
        }
    }
}

/// All ranks of the job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ranks(BTreeMap<BrokerRank, Rank>);

impl Ranks {
    pub(super) fn new(ranks: &Idset) -> Self {
        Self(ranks.ranks().map(|rank| (rank, Rank::default())).collect())
    }

    pub(super) fn get(&self, rank: BrokerRank) -> Option<&Rank> {
        self.0.get(&rank)
    }

    pub(super) fn get_mut(&mut self, rank: BrokerRank) -> Option<&mut Rank> {
        self.0.get_mut(&rank)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Rank> {
        self.0.values_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BrokerRank, &Rank)> {
        self.0.iter().map(|(rank, known)| (*rank, known))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Ranks for which `is` holds.
    pub(super) fn select(&self, is: impl Fn(&Rank) -> bool) -> Idset {
        self.iter().filter(|(_, known)| is(known)).map(|(rank, _)| rank).collect()
    }

    pub(super) fn any(&self, is: impl Fn(&Rank) -> bool) -> bool {
        self.0.values().any(is)
    }

    pub(super) fn all(&self, are: impl Fn(&Rank) -> bool) -> bool {
        self.0.values().all(are)
    }

    /// Ranks whose shells run, as far as is known.
    pub(super) fn active(&self) -> Idset {
        self.select(Rank::is_active)
    }

    /// Every shell has been seen running. A job that has not failed can begin without a rank that
    /// it can do without.
    pub(super) fn all_started(&self, has_failed: bool) -> bool {
        let counts = |known: &Rank| known.has_run() || (!has_failed && known.is_gone());
        self.any(Rank::has_run) && self.all(counts)
    }

    /// The largest status, if that of every rank was seen.
    pub(super) fn largest_status(&self) -> Option<WaitStatus> {
        let seen = self.0.values().map(|known| known.end().status).collect::<Option<Vec<_>>>();
        seen.and_then(|statuses| statuses.into_iter().max())
    }
}

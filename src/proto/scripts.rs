//! The scripts of a job: its prologs and epilogs.

use serde::{Deserialize, Serialize};

use super::{BrokerRank, Idset, JobId, Stage, WaitStatus};

/// flux-core's jobtap plugin that runs the same scripts from rank 0.
pub const PERILOG_PLUGIN: &str = "perilog.so";

/// Which scripts a job gets. Its leader's configuration decides that; what the scripts are, the
/// configuration of each rank says.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Scripts {
    /// All ranks of the job: scripts find them in `FLUX_JOB_RANKS`.
    pub ranks: Idset,
    /// Where its prolog runs; none if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prolog: Option<Place>,
    /// Where its epilog runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epilog: Option<Place>,
    /// Epilogs begin when all shells of the job have ended.
    #[serde(default)]
    pub epilogs_together: bool,
}

/// On which ranks of a job a script runs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On each.
    EachRank,
    /// On its first one.
    FirstRank,
}

impl Scripts {
    /// Where this script runs; none if there is none.
    pub fn place(&self, stage: Stage) -> Option<Place> {
        match stage {
            Stage::Prolog => self.prolog,
            Stage::Epilog => self.epilog,
            Stage::Shell => None,
        }
    }

    /// Whether this script runs on this rank.
    pub fn runs(&self, stage: Stage, rank: BrokerRank) -> bool {
        match self.place(stage) {
            Some(Place::EachRank) => self.ranks.contains_rank(rank),
            Some(Place::FirstRank) => self.ranks.first() == Some(rank.0),
            None => false,
        }
    }
}

/// What a prolog says that runs on a degraded node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DegradedNode {
    /// The job.
    pub id: JobId,
    /// What is wrong with the node, in one line.
    pub reason: String,
}

/// What an administrator wants who does not want a job to wait for scripts any more.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PerilogRelease {
    /// The job.
    pub id: JobId,
    /// On which of its ranks; none is on all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Idset>,
    /// These ranks are drained.
    #[serde(default = "yes")]
    pub drain: bool,
    /// What still runs is killed.
    #[serde(default)]
    pub kill: bool,
}

fn yes() -> bool {
    true
}

/// Why a script was told to end.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScriptStop {
    /// The job has had a fatal exception (`cancel-on-exception`), or nobody wants the job.
    Canceled,
    /// It has run for longer than its `timeout`.
    TimedOut,
}

/// What is wrong with a script.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScriptFailure {
    /// It was told to end, and has.
    Stopped(ScriptStop),
    /// It goes on, although it was told to end, or is past its limit. Nobody waits for it any more.
    Stuck(ScriptStop),
    /// It has ended with this status.
    Exited(WaitStatus),
    /// It did not run, or how it ended is not known.
    NotRun(String),
}

impl ScriptFailure {
    /// It has ended because the job was to end.
    pub fn is_canceled(&self) -> bool {
        *self == Self::Stopped(ScriptStop::Canceled)
    }

    /// What `perilog.so` says of it.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Stuck(ScriptStop::Canceled) => "canceled then timed out",
            Self::Stopped(_) | Self::Stuck(ScriptStop::TimedOut) => "timed out",
            Self::Exited(_) | Self::NotRun(_) => "failed",
        }
    }

    /// Why its rank is drained, if it is. One script for the whole job says nothing of its node, as
    /// long as it ends.
    pub fn drain_reason(&self, stage: Stage, place: Option<Place>, job: JobId) -> Option<String> {
        let is_of_node = matches!(self, Self::Stuck(_)) || place == Some(Place::EachRank);
        let is_drained = is_of_node && !self.is_canceled();
        is_drained.then(|| format!("{} {} for job {job}", stage.name(), self.words()))
    }
}

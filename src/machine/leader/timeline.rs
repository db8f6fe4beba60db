//! How a job was launched: when the last rank reached each stage, and which rank that was.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::machine::mono_time::MonoTime;
use crate::proto::{BrokerRank, ResourceSet};

/// What every rank goes through until its tasks run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum LaunchStage {
    /// Its prolog has ended.
    Prepared,
    /// Its shell runs.
    Running,
    /// Its shell has entered the barrier for this time, 1 or 2.
    Barrier(u32),
}

/// One rank for each stage, however large the job is. The times are those at which the leader has heard of
/// it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timeline {
    /// When the leader took the lead.
    since: MonoTime,
    last: BTreeMap<LaunchStage, (MonoTime, BrokerRank)>,
}

impl Timeline {
    pub(super) fn new(since: MonoTime) -> Self {
        Self { since, last: BTreeMap::new() }
    }

    /// A rank has reached the stage, now.
    pub(super) fn reach(&mut self, stage: LaunchStage, now: MonoTime, rank: BrokerRank) {
        if !matches!(stage, LaunchStage::Barrier(3..)) {
            self.last.insert(stage, (now, rank));
        }
    }

    /// The context of `debug.timeline`: seconds, in milliseconds, and the host. `None` if there is nothing.
    pub(super) fn show(&self, r: &ResourceSet) -> Option<Value> {
        let name = |stage: LaunchStage| match stage {
            LaunchStage::Prepared => "prepared".to_string(),
            LaunchStage::Running => "running".to_string(),
            LaunchStage::Barrier(number) => format!("barrier-{number}"),
        };
        let seconds = |time: MonoTime| ((time - self.since) * 1000.0).round() / 1000.0;
        let stages = self.last.iter();
        let shown: BTreeMap<String, Value> = stages
            .map(|(stage, (time, rank))| (name(*stage), json!([seconds(*time), r.hostname(*rank)])))
            .collect();
        (!shown.is_empty()).then(|| json!(shown))
    }
}

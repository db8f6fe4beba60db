//! What a job has used, as the kernel has counted it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{BrokerRank, Idset, format_fsd, show_size};

/// What the processes of one shell have used, those that it has left behind included. `None`: the
/// node's kernel does not count it, or does not let the instance owner see it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Usage {
    /// The most memory in use at one time, in bytes. The page cache and tmpfs count, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The job's limit of memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// CPU time in user mode, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u64>,
    /// CPU time in the kernel, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<u64>,
    /// The most processes and threads at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes read from block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// Bytes written to block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// Processes that the kernel has killed because memory was short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Of these some, or all, because the job had reached its own limit.
    #[serde(skip_serializing_if = "is_false")]
    pub at_own_limit: bool,
}

/// The key `usage` beside a job: a column for each figure, with a place for each rank that is known.
/// Figures mean what those of [`Usage`] do.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct JobUsage {
    /// 1. It is another one when what is here means something else.
    pub version: u32,
    /// The ranks of the columns, in their order.
    pub ranks: Idset,
    /// Bytes.
    #[serde(skip_serializing_if = "is_empty")]
    pub memory: Vec<Option<u64>>,
    /// Bytes.
    #[serde(skip_serializing_if = "is_empty")]
    pub limit: Vec<Option<u64>>,
    /// Seconds.
    #[serde(skip_serializing_if = "is_empty")]
    pub user: Vec<Option<f64>>,
    /// Seconds.
    #[serde(skip_serializing_if = "is_empty")]
    pub system: Vec<Option<f64>>,
    /// Processes.
    #[serde(skip_serializing_if = "is_empty")]
    pub processes: Vec<Option<u64>>,
    /// Bytes.
    #[serde(skip_serializing_if = "is_empty")]
    pub read: Vec<Option<u64>>,
    /// Bytes.
    #[serde(skip_serializing_if = "is_empty")]
    pub written: Vec<Option<u64>>,
    /// Processes.
    #[serde(skip_serializing_if = "is_empty")]
    pub oom_kills: Vec<Option<u64>>,
    /// Ranks of which nothing is known, with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<BrokerRank, String>,
}

impl JobUsage {
    /// Puts together what is known of each rank. The others have a reason.
    pub fn new<'a>(
        known: impl Iterator<Item = (BrokerRank, &'a Usage)>,
        unknown: BTreeMap<BrokerRank, String>,
    ) -> Self {
        let known: Vec<(BrokerRank, &Usage)> = known.collect();
        let column = |of: fn(&Usage) -> Option<u64>| {
            known.iter().map(|(_, usage)| of(usage)).collect::<Vec<_>>()
        };
        let seconds = |of| column(of).into_iter().map(|us| us.map(|us| us as f64 / 1e6)).collect();
        Self {
            version: 1,
            ranks: known.iter().map(|(rank, _)| *rank).collect(),
            memory: column(|usage| usage.memory),
            limit: column(|usage| usage.limit),
            user: seconds(|usage| usage.user),
            system: seconds(|usage| usage.system),
            processes: column(|usage| usage.processes),
            read: column(|usage| usage.read),
            written: column(|usage| usage.written),
            oom_kills: column(|usage| usage.oom_kills),
            unknown,
        }
    }

    /// What `flux jobs` can show of it, as `user.usage`.
    pub fn memo(&self) -> Value {
        let mut memo = json!({ "cpu": format_fsd(self.cpu()) });
        if let Some(most) = self.most_memory() {
            memo["mem"] = json!(show_size(most));
        }
        json!({ "usage": memo })
    }

    /// The most memory of one rank, in bytes.
    pub fn most_memory(&self) -> Option<u64> {
        self.memory.iter().flatten().max().copied()
    }

    /// CPU time of all ranks that are known, in seconds.
    pub fn cpu(&self) -> f64 {
        self.user.iter().chain(&self.system).flatten().sum()
    }
}

fn is_empty<T>(column: &[Option<T>]) -> bool {
    column.iter().all(Option::is_none)
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_columns_and_what_no_rank_has_is_left_out() {
        let first = Usage { memory: Some(7), user: Some(1_500_000), ..Usage::default() };
        let second = Usage { user: Some(250_000), oom_kills: Some(1), ..Usage::default() };
        let known = [(BrokerRank(3), &first), (BrokerRank(6), &second)];
        let unknown = BTreeMap::from([(BrokerRank(5), "node was rebooted".to_string())]);
        let job = JobUsage::new(known.into_iter(), unknown);
        let expected = r#"{"version":1,"ranks":"3,6","memory":[7,null],"user":[1.5,0.25],"oom-kills":[null,1],"unknown":{"5":"node was rebooted"}}"#;
        let text = serde_json::to_string(&job).expect("text");
        assert_eq!(text, expected);
        let read: JobUsage = serde_json::from_str(&text).expect("a usage");
        assert_eq!((&read.ranks, read.most_memory()), (&job.ranks, Some(7)));
        assert!((job.cpu() - 1.75).abs() < 1e-9);
    }
}

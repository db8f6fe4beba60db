//! What the job has used, and that the kernel has killed processes of it because memory was short.

use std::collections::BTreeMap;

use super::rank::Rank;
use super::{Leader, plural};
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::proto::{BrokerRank, Exception, ExecEvent, Idset, JobUsage, Usage, show_size};

impl Leader {
    /// Says once of each rank that processes were killed because memory was short there, and at whose
    /// limit. The kernel has counted them: a status does not tell who has sent a SIGKILL.
    pub(super) fn tell_oom(&mut self, cx: Context, ranks: &Idset, out: &mut Effects) {
        for at_own_limit in [true, false] {
            let is_news = |known: &Rank| {
                let is_one =
                    |usage: &Usage| usage.oom_kills > Some(0) && usage.at_own_limit == at_own_limit;
                !known.in_log.oom_told && known.usage.as_deref().is_some_and(is_one)
            };
            let told: Idset =
                ranks.ranks().filter(|rank| self.ranks.get(*rank).is_some_and(is_news)).collect();
            if told.is_empty() {
                continue;
            }
            let note = self.describe_oom(&told, at_own_limit);
            for rank in told.ranks() {
                if let Some(known) = self.ranks.get_mut(rank) {
                    known.in_log.oom_told = true;
                }
            }
            self.post(ExecEvent::oom(cx.now.wall, &told));
            self.say_exception(Exception::survivable("oom", note), out);
        }
    }

    fn describe_oom(&self, ranks: &Idset, at_own_limit: bool) -> String {
        let usages: Vec<&Usage> =
            ranks.ranks().filter_map(|rank| self.ranks.get(rank)?.usage.as_deref()).collect();
        let kills = usages.iter().filter_map(|usage| usage.oom_kills).fold(0, u64::saturating_add);
        let most =
            |of: fn(&Usage) -> Option<u64>| usages.iter().filter_map(|usage| of(usage)).max();
        let why = if at_own_limit {
            let limit = most(|usage| usage.limit).map(|limit| format!(" of {}", show_size(limit)));
            format!("at the job's limit{}", limit.unwrap_or_default())
        } else {
            let peak = most(|usage| usage.memory);
            let peak = peak.map(|peak| format!(", while the job's peak was {}", show_size(peak)));
            format!("for the node, or a limit above the job{}", peak.unwrap_or_default())
        };
        let processes =
            if kills == 1 { "1 process".to_string() } else { format!("{kills} processes") };
        let (hosts, rank) = (self.start.r.hosts(ranks), plural("rank", ranks.len()));
        format!("out of memory on {hosts} ({rank} {ranks}): {processes} killed {why}")
    }

    /// What all ranks have used, for the job's directory. `None`: there is no figure, and no reason but
    /// that nothing was measured.
    pub(super) fn job_usage(&self, cx: Context) -> Option<Box<JobUsage>> {
        if !cx.config.usage || !self.ranks.any(|of| of.usage.is_some() || of.lost.is_some()) {
            return None;
        }
        let known = self.ranks.iter().filter_map(|(rank, of)| Some((rank, of.usage.as_deref()?)));
        let others = self.ranks.iter().filter(|(_, of)| of.usage.is_none());
        let unknown: BTreeMap<BrokerRank, String> =
            others.map(|(rank, of)| (rank, why_unknown(of))).collect();
        Some(Box::new(JobUsage::new(known, unknown)))
    }
}

fn why_unknown(rank: &Rank) -> String {
    match &rank.lost {
        Some(why) => why.clone(),
        None if !rank.has_run() => "no shell has run".to_string(),
        None => "not measured".to_string(),
    }
}

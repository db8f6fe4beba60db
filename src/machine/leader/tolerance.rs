//! Degraded nodes: those that their prologs have marked.
//!
//! Every shell is needed for the others to start, so a job starts on all of its nodes or on none. It
//! starts with degraded ones if its user has said that it bears so many, and if it does not begin on
//! one of them. Before that, its eventlog says which nodes they are: a nested instance reads it when
//! it comes up, and drains them.

use super::Leader;
use super::timer::LeaderTimer;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::{Fault, Role};
use crate::proto::peer::Order;
use crate::proto::{BrokerRank, DegradedNodes, Exception, Idset, Stage};

/// Of which degraded nodes the job's eventlog tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    ranks: Idset,
    /// The job manager is being told of these.
    asked: Option<Idset>,
}

impl Told {
    /// The KVS may have gone back.
    pub(super) fn forget(&mut self) {
        self.ranks = Idset::new();
    }
}

impl Leader {
    /// A prolog has ended well, and has marked its node. The node is given to no other job.
    pub(super) fn handle_degraded(&mut self, rank: BrokerRank, reason: &str, out: &mut Effects) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        if known.scripts.degraded.replace(reason.to_string()).as_deref() != Some(reason) {
            let reason = format!("degraded for job {}: {reason}", self.id);
            self.drain(rank, reason, out);
        }
    }

    /// Why the job cannot start with its degraded nodes, for its exception.
    pub(super) fn find_intolerable(&self, cx: Context) -> Option<String> {
        let degraded = self.degraded_ranks();
        let asked = self.jobspec.prolog_tolerance.unwrap_or(0);
        let most = cx.config.perilog.as_ref().map_or(0, |perilog| perilog.max_tolerance);
        let is_first = self.start.r.ranks().first().is_some_and(|first| degraded.contains(first));
        if degraded.is_empty() || (!is_first && degraded.len() as u64 <= u64::from(asked.min(most)))
        {
            return None;
        }
        let what = self.describe_degraded(&degraded);
        let why = if is_first {
            "the job's first node is never tolerated".to_string()
        } else {
            format!(
                "the job tolerates {} (system.exec.prolog-tolerance={asked}, \
                 exec.perilog.max-tolerance={most})",
                asked.min(most)
            )
        };
        Some(format!("prolog: {what}; {why}"))
    }

    /// Has the job's eventlog say which nodes are degraded. Returns whether it does.
    pub(super) fn tell_degraded(&mut self, out: &mut Effects) -> bool {
        let news = self.degraded_ranks().difference(&self.told.ranks);
        if news.is_empty() {
            return true;
        }
        if self.told.asked.is_none() && !self.timers.is_armed(LeaderTimer::Tell) {
            let reasons = self.reasons(&news).map(str::to_string).collect();
            let nodes = Box::new(DegradedNodes::new(&self.start.r, news.clone(), reasons));
            out.push(Effect::Tell { asker: Role::Leader, id: self.id, nodes });
            self.told.asked = Some(news);
        }
        false
    }

    /// The job's eventlog tells of degraded nodes, or the job manager could not be told. `Ok(true)`:
    /// it did not tell before.
    pub(in crate::machine) fn handle_told(
        &mut self,
        cx: Context,
        result: &Result<bool, Fault>,
        out: &mut Effects,
    ) {
        let Some(asked) = self.told.asked.take() else { return };
        match result {
            Ok(is_news) => {
                if *is_news {
                    let what = self.describe_degraded(&asked);
                    let note = format!("prolog: {what}; the job starts all the same");
                    self.say_exception(Exception::survivable(Stage::Prolog.name(), note), out);
                }
                self.told.ranks = self.told.ranks.union(&asked);
                if !self.is_preparing() && !self.has_failed() {
                    // These have run their prologs again.
                    self.order(&asked, &Order::Launch, out);
                }
            }
            Err(fault) => {
                let text = format!("{}: cannot post node-degraded: {fault}", self.id);
                out.log(Level::Error, text);
                self.timers.try_again(LeaderTimer::Tell, cx.now.mono);
            }
        }
        self.advance(cx, out);
    }

    /// A shell may be started there, as far as the node's mark is concerned.
    pub(super) fn may_use(&self, rank: BrokerRank) -> bool {
        let is_marked = self.ranks.get(rank).is_some_and(|known| known.scripts.degraded.is_some());
        !is_marked || self.told.ranks.contains_rank(rank)
    }

    pub(super) fn degraded_ranks(&self) -> Idset {
        self.ranks.select(|known| known.scripts.degraded.is_some())
    }

    /// In the order of the ranks.
    fn reasons(&self, ranks: &Idset) -> impl Iterator<Item = &str> {
        let degraded = self.ranks.iter().filter(|(rank, _)| ranks.contains_rank(*rank));
        degraded.filter_map(|(_, known)| known.scripts.degraded.as_deref())
    }

    fn describe_degraded(&self, ranks: &Idset) -> String {
        let host = |rank| self.start.r.hosts(&Idset::from(rank));
        let each = ranks.ranks().zip(self.reasons(ranks));
        let each = each.map(|(rank, reason)| format!("{}: {reason}", host(rank)));
        let hosts = self.start.r.hosts(ranks);
        let each = each.collect::<Vec<_>>().join(", ");
        format!("degraded nodes {hosts} (rank {ranks}): {each}")
    }
}

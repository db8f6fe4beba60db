//! Nodes that are drained while jobs run there (`rfc/0012-perilog.md`, 12.5).
//!
//! A job that is an instance would go on using a node that its parent has drained. So the job's
//! eventlog tells of it, and the coordinator of the nested instance, which watches that log, drains
//! the node there.

use std::collections::BTreeMap;

use super::{Coordinated, Coordinator};
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::{Fault, Role};
use crate::proto::{
    BrokerRank, DegradedNodes, Exception, Idset, JobId, NodeChange, ResourceNews, WallTime,
};

/// The type of the exception that tells of drained nodes.
const KIND: &str = "drain";

/// What the instance says of its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Nodes {
    /// The last change of each node, and when it was. No more nodes than the instance has.
    last: BTreeMap<BrokerRank, (WallTime, Option<String>)>,
    /// All was heard that happened before this coordinator came up.
    is_up_to_date: bool,
    /// What the parent instance has said before that.
    early: Vec<(WallTime, Idset, String)>,
}

impl Nodes {
    /// Takes a change. Returns the nodes that it has drained: a reason that replaces another is no
    /// news.
    fn take(&mut self, change: &NodeChange) -> Idset {
        let mut news = Idset::new();
        for rank in change.ranks.ranks() {
            let is_drained = matches!(self.last.get(&rank), Some((_, Some(_))));
            if is_drained != change.drained.is_some() {
                self.last.insert(rank, (change.at, change.drained.clone()));
                news.insert(rank.0);
            }
        }
        if change.drained.is_some() { news } else { Idset::new() }
    }

    /// The nodes among these that are drained since `time`: those of one event together, so that they
    /// are the same whenever this is asked.
    fn drained_since(&self, time: WallTime, ranks: &Idset) -> Vec<(Idset, &str)> {
        let mut found: Vec<(WallTime, Idset, &str)> = Vec::new();
        for (rank, (at, reason)) in &self.last {
            let Some(reason) = reason.as_deref().filter(|_| *at > time) else { continue };
            if !ranks.contains_rank(*rank) {
                continue;
            }
            match found.iter_mut().find(|(time, _, why)| time == at && *why == reason) {
                Some((_, together, _)) => drop(together.insert(rank.0)),
                None => found.push((*at, Idset::from_iter([*rank]), reason)),
            }
        }
        found.into_iter().map(|(_, ranks, reason)| (ranks, reason)).collect()
    }
}

impl Coordinator {
    /// The instance has drained nodes, or uses them again.
    pub(in crate::machine) fn handle_resources(&mut self, news: &ResourceNews, out: &mut Effects) {
        for change in &news.changes {
            let drained = self.nodes.take(change);
            if !self.nodes.is_up_to_date || drained.is_empty() {
                continue;
            }
            let reason = change.drained.as_deref().unwrap_or_default();
            for job in self.jobs.values() {
                job.tell(&drained, reason, out);
            }
        }
        if news.is_up_to_date && !self.nodes.is_up_to_date {
            self.nodes.is_up_to_date = true;
            for job in self.jobs.values() {
                job.tell_all(&self.nodes, out);
            }
            for (at, ranks, reason) in std::mem::take(&mut self.nodes.early) {
                self.drain_for_parent(at, &ranks, reason, out);
            }
        }
    }

    /// The job runs now, for the job manager: it is told of the nodes that were drained since it was
    /// allocated.
    pub(super) fn tell_started(&self, id: JobId, out: &mut Effects) {
        if let Some(job) = self.jobs.get(&id).filter(|_| self.nodes.is_up_to_date) {
            job.tell_all(&self.nodes, out);
        }
    }

    /// The job's eventlog tells of nodes, or could not be written.
    pub(in crate::machine) fn handle_told(
        &self,
        id: JobId,
        nodes: &DegradedNodes,
        result: Result<bool, Fault>,
        out: &mut Effects,
    ) {
        match result {
            Ok(true) => {
                let (ranks, hosts) = (&nodes.ranks, &nodes.nodelist);
                let reason = nodes.reasons.first().filter(|reason| !reason.is_empty());
                let reason = reason.map_or("no reason was given", String::as_str);
                let note = format!("drained: {hosts} (rank {ranks}): {reason}");
                let exception = Exception::survivable(KIND, note);
                out.push(Effect::Raise { id, exception });
            }
            Ok(false) => (),
            // It has ended meanwhile.
            Err(fault) if fault.errnum == libc::ENOENT => (),
            Err(fault) => {
                let ranks = &nodes.ranks;
                let text = format!("{id}: cannot post that ranks {ranks} were drained: {fault}");
                out.log(Level::Error, text);
            }
        }
    }

    /// The parent instance tells of degraded nodes of this one.
    pub(in crate::machine) fn handle_parent(
        &mut self,
        at: WallTime,
        nodes: Vec<(Idset, String)>,
        out: &mut Effects,
    ) {
        for (ranks, reason) in nodes {
            if self.nodes.is_up_to_date {
                self.drain_for_parent(at, &ranks, reason, out);
            } else {
                self.nodes.early.push((at, ranks, reason));
            }
        }
    }

    /// Drains them, but not those that are drained, or that the user has taken back since.
    fn drain_for_parent(&self, at: WallTime, ranks: &Idset, reason: String, out: &mut Effects) {
        let is_new = |rank: &BrokerRank| match self.nodes.last.get(rank) {
            None => true,
            Some((_, Some(_))) => false,
            Some((undrained, None)) => *undrained < at,
        };
        let ranks: Idset = ranks.ranks().filter(is_new).collect();
        if !ranks.is_empty() {
            out.drain(ranks, reason);
        }
    }
}

impl Coordinated {
    fn tell_all(&self, nodes: &Nodes, out: &mut Effects) {
        for (ranks, reason) in nodes.drained_since(self.start.r.starttime(), self.start.r.ranks()) {
            self.tell(&ranks, reason, out);
        }
    }

    /// Has the job's eventlog tell of drained nodes, if it runs and wants to know.
    fn tell(&self, ranks: &Idset, reason: &str, out: &mut Effects) {
        let wants_to_know = self.start.jobspec.as_ref().is_ok_and(|jobspec| jobspec.tell_degraded);
        let ranks = ranks.intersection(self.start.r.ranks());
        if !wants_to_know || !self.is_running() || ranks.is_empty() {
            return;
        }
        let id = self.start.id;
        // Its leader has told of these.
        if reason.starts_with(&format!("degraded for job {id}: ")) {
            return;
        }
        let reasons = vec![reason.to_string(); ranks.len()];
        let nodes = Box::new(DegradedNodes::new(&self.start.r, ranks, reasons));
        out.push(Effect::Tell { asker: Role::Coordinator, id, nodes });
    }

    /// The job manager has it in RUN, and knows that it has started.
    fn is_running(&self) -> bool {
        self.start.reattach && !self.is_cleaned_up()
    }
}

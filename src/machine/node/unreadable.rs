//! Jobs whose record on this rank was written by a later release. What their shells do is unknown
//! here, and unknown is not dead: nothing is started, ended or said to be lost. Who asks for such a
//! shell is told that nothing is known yet, and waits until a release is loaded that can tell.

use std::collections::BTreeMap;

use crate::machine::effect::{Effect, Effects, StreamItem};
use crate::machine::event::RequestId;
use crate::proto::peer::{RankReport, Report, Reports, ShellsRequest, StreamEnd};
use crate::proto::{BrokerRank, Idset, JobId};

/// These jobs, with the request that waits and the generation of its leader.
#[derive(Debug, Default)]
pub(super) struct Unreadable(BTreeMap<JobId, Option<(RequestId, u64)>>);

impl Unreadable {
    /// This rank has such a record of the job.
    pub(super) fn insert(&mut self, id: JobId) {
        self.0.entry(id).or_default();
    }

    /// Answers a leader or parent, if the job is one of these and this rank is asked for its shell.
    /// Returns false if not. The ranks below are left to the leader.
    pub(super) fn answer(
        &mut self,
        here: BrokerRank,
        to: RequestId,
        request: &ShellsRequest,
        out: &mut Effects,
    ) -> bool {
        let Some(waiting) = self.0.get_mut(&request.id) else { return false };
        if !request.ranks.contains_rank(here) {
            return false;
        }
        let generation = request.generation;
        let superseded = || StreamEnd::superseded("another leader has taken over");
        if let Some((old, before)) = *waiting {
            if generation != 0 && generation < before {
                out.end(to, superseded());
                return true;
            }
            let is_newer = generation > before;
            out.end(old, if is_newer { superseded() } else { StreamEnd::AskedAgain });
        }
        *waiting = Some((to, generation));
        let here = Idset::from_iter([here]);
        let below = request.ranks.difference(&here);
        let mut reports = vec![RankReport { ranks: here, report: Report::Pending }];
        if !below.is_empty() {
            reports.push(RankReport { ranks: below, report: Report::Orphaned });
        }
        let item = StreamItem::Reports(Reports { reports });
        out.push(Effect::Stream { to, item });
        true
    }

    /// The job is over. Its record stays for a release that can read it.
    pub(super) fn forget(&mut self, id: JobId, out: &mut Effects) {
        if let Some((to, _)) = self.0.get_mut(&id).and_then(Option::take) {
            out.end(to, StreamEnd::Forgotten);
        }
    }

    /// Nobody listens to this request any more.
    pub(super) fn handle_disconnect(&mut self, request: RequestId, out: &mut Effects) {
        for waiting in self.0.values_mut() {
            if waiting.take_if(|(to, _)| *to == request).is_some() {
                out.push(Effect::Drop { to: request });
            }
        }
    }

    /// The module is being unloaded.
    pub(super) fn shut_down(&mut self, out: &mut Effects) {
        for (to, _) in self.0.values_mut().filter_map(Option::take) {
            out.end(to, StreamEnd::Unloaded);
        }
    }
}

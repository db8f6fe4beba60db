//! Output and statuses that are committed, and those that a checkpoint holds.
//!
//! When rank 0's broker is killed, the KVS loses commits that no checkpoint holds. A later leader
//! asks the nodes for that output again. So a node discards only output that is covered, and a rank
//! is released only when what is known of the job's status is covered.

use std::collections::BTreeMap;

use super::exec_log::Logged;
use crate::proto::{BrokerRank, Stream, WaitStatus};

/// What was committed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Committed {
    offsets: BTreeMap<(BrokerRank, Stream), u64>,
    /// The largest one.
    status: WaitStatus,
}

/// How far the output and the status of one job are covered by checkpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cover {
    mark: u64,
    /// Committed since the coordinator was last asked.
    fresh: Committed,
    /// The coordinator was asked, with the current mark.
    asked: Option<Committed>,
    covered: Committed,
}

impl Cover {
    /// For the leader of this generation. Marks include the generation, so an answer meant for a
    /// previous leader is ignored.
    pub(super) fn new(generation: u64) -> Self {
        Self { mark: generation << 32, ..Self::default() }
    }

    /// Output was committed. Returns the mark to ask the coordinator with, if it is time.
    pub(super) fn handle_commit(&mut self, logged: Logged) -> Option<u64> {
        self.fresh.offsets.insert((logged.rank, logged.stream), logged.offset);
        self.ask()
    }

    /// A status was committed. Returns as [`Self::handle_commit`].
    pub(super) fn handle_status(&mut self, status: WaitStatus) -> Option<u64> {
        self.fresh.status = self.fresh.status.max(status);
        self.ask()
    }

    fn ask(&mut self) -> Option<u64> {
        if self.asked.is_some() || self.fresh == Committed::default() {
            return None;
        }
        self.mark += 1;
        self.asked = Some(std::mem::take(&mut self.fresh));
        Some(self.mark)
    }

    /// What a new coordinator has to be asked.
    pub(super) fn outstanding(&self) -> Option<u64> {
        self.asked.as_ref().map(|_| self.mark)
    }

    /// A checkpoint holds all up to `mark`. Returns the next mark to ask with.
    pub(super) fn handle_covered(&mut self, mark: u64) -> Option<u64> {
        if mark == self.mark
            && let Some(asked) = self.asked.take()
        {
            self.covered.offsets.extend(asked.offsets);
            self.covered.status = self.covered.status.max(asked.status);
        }
        self.ask()
    }

    /// The largest status that a checkpoint holds.
    pub(super) fn status(&self) -> WaitStatus {
        self.covered.status
    }

    /// Bytes of this stream that a checkpoint holds.
    pub(super) fn offset(&self, rank: BrokerRank, stream: Stream) -> u64 {
        self.covered.offsets.get(&(rank, stream)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_at_a_time_and_nothing_is_covered_before_its_answer() {
        let mut cover = Cover::default();
        let (rank, stream) = (BrokerRank(3), Stream::Stdout);
        let logged = |offset| Logged { rank, stream, offset };
        assert_eq!(Cover::new(2).handle_commit(logged(5)), Some((2 << 32) + 1));
        assert_eq!(cover.handle_commit(logged(5)), Some(1));
        assert_eq!(cover.handle_commit(logged(9)), None);
        assert_eq!((cover.offset(rank, stream), cover.outstanding()), (0, Some(1)));
        assert_eq!(cover.handle_covered(0), None, "an answer to nobody's question");
        assert_eq!(cover.handle_covered(1), Some(2));
        assert_eq!(cover.offset(rank, stream), 5);
        assert_eq!(cover.handle_covered(2), None);
        assert_eq!((cover.offset(rank, stream), cover.outstanding()), (9, None));
    }
}

//! What would bring a job to CLEANUP while a checkpoint is being prepared.
//!
//! The checkpoint would have the job in CLEANUP, and not held: after a crash the job manager would
//! free it. So the job manager hears of its end a moment later, when the commit that makes the
//! checkpoint was sent. Its own commits come after that one.

use std::collections::BTreeMap;

use crate::machine::context::Context;
use crate::machine::event::StreamId;
use crate::machine::mono_time::MonoTime;
use crate::proto::JobId;
use crate::proto::peer::{LeadReply, StreamEnd};

/// How long an answer waits, in seconds. It waits longer than some milliseconds only if the KVS hangs.
/// Then the job manager cannot keep what it hears either.
const PATIENCE: f64 = 60.0;

/// An answer of a job's leader on this stream, or the stream's end.
pub(super) type LeaderReply = (StreamId, Result<LeadReply, StreamEnd>);

/// What the leaders of jobs have said meanwhile, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Delayed {
    replies: BTreeMap<JobId, Vec<LeaderReply>>,
    /// Until when they wait.
    until: Option<MonoTime>,
}

impl Delayed {
    /// Whether this answer has to wait. `closed`: a checkpoint is being prepared, and the job is not
    /// in CLEANUP.
    pub(super) fn holds_back(
        &self,
        cx: Context,
        id: JobId,
        (_, result): &LeaderReply,
        closed: bool,
    ) -> bool {
        let ends = matches!(result, Ok(LeadReply::Response(said)) if said.is_end_of_run());
        // What comes later from the same leader stays behind.
        let is_behind = self.replies.contains_key(&id);
        cx.shells_survive && (closed && ends || is_behind)
    }

    pub(super) fn push(&mut self, cx: Context, id: JobId, reply: LeaderReply) {
        self.until.get_or_insert(cx.now.mono + PATIENCE);
        self.replies.entry(id).or_default().push(reply);
    }

    /// Takes all that waits.
    pub(super) fn take(&mut self) -> BTreeMap<JobId, Vec<LeaderReply>> {
        self.until = None;
        std::mem::take(&mut self.replies)
    }

    /// When they wait no longer.
    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        self.until
    }

    /// The jobs that wait.
    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.replies.keys().copied().collect()
    }
}

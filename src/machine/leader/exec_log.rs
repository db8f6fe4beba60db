//! What goes to the exec eventlog. One commit is in flight; events that come meanwhile go with the
//! next one. So order is kept, a quiet job is not delayed, and a busy job costs few commits.

use std::collections::BTreeMap;

use crate::machine::effect::{Effect, Effects, KvsOp};
use crate::proto::{BrokerRank, ExecEvent, JobDigest, JobId, Stream, WaitStatus, WallTime};

/// A piece of output, durable once its commit is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Logged {
    pub(super) rank: BrokerRank,
    pub(super) stream: Stream,
    /// End of what is logged, in bytes from the stream's beginning.
    pub(super) offset: u64,
}

/// What a commit holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Batch {
    events: Vec<ExecEvent>,
    /// The output in them.
    pub(super) output: Vec<Logged>,
    /// Bytes that an earlier commit had, and that this one says are missing.
    pub(super) missing: BTreeMap<(BrokerRank, Stream), u64>,
    /// The largest status that `debug.status` says there.
    pub(super) status: WaitStatus,
}

/// How far the last commit is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Last {
    #[default]
    ToCome,
    Asked,
    /// It is durable, or was given up.
    Over,
}

/// The events that are not durable yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ExecLog {
    waiting: Batch,
    in_flight: Option<Batch>,
    last: Last,
    /// The run of the job, which no commit has said yet.
    run: Option<JobDigest>,
}

impl ExecLog {
    /// The first commit says whose namespace it is.
    pub(super) fn of_run(run: Option<JobDigest>) -> Self {
        Self { run, ..Self::default() }
    }

    pub(super) fn post(&mut self, event: ExecEvent) {
        self.waiting.events.push(event);
    }

    pub(super) fn post_output(&mut self, event: ExecEvent, logged: Logged) {
        self.waiting.events.push(event);
        self.waiting.output.push(logged);
    }

    /// So many bytes of a stream were in a commit that was given up.
    pub(super) fn post_missing(&mut self, event: ExecEvent, of: (BrokerRank, Stream), bytes: u64) {
        self.waiting.events.insert(0, event);
        self.waiting.missing.insert(of, bytes);
    }

    pub(super) fn post_status(&mut self, now: WallTime, status: WaitStatus) {
        self.waiting.events.push(ExecEvent::status(now, status));
        self.waiting.status = status;
    }

    /// Events wait that no commit holds yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.in_flight.is_none() && !self.waiting.events.is_empty()
    }

    /// A commit is under way.
    pub(super) fn is_asked(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Commits what waits, unless a commit is under way.
    pub(super) fn flush(&mut self, id: JobId, out: &mut Effects) {
        if self.in_flight.is_none() && self.last == Last::ToCome && !self.waiting.events.is_empty()
        {
            self.commit(id, out);
        }
    }

    fn commit(&mut self, id: JobId, out: &mut Effects) {
        let batch = std::mem::take(&mut self.waiting);
        let (events, run) = (batch.events.clone(), self.run.clone());
        out.push(Effect::Kvs { id, op: KvsOp::Append { events, run } });
        self.in_flight = Some(batch);
    }

    /// The commit under way is durable; returns what it held.
    pub(super) fn take_committed(&mut self) -> Batch {
        self.run = None;
        self.give_up()
    }

    /// The commit under way has failed for good; returns what it held.
    pub(super) fn give_up(&mut self) -> Batch {
        self.in_flight.take().unwrap_or_default()
    }

    /// The commit under way has failed. What it holds goes with the next one.
    pub(super) fn put_back(&mut self) {
        let mut batch = self.in_flight.take().unwrap_or_default();
        batch.events.append(&mut self.waiting.events);
        batch.output.append(&mut self.waiting.output);
        batch.missing.append(&mut self.waiting.missing);
        batch.status = batch.status.max(self.waiting.status);
        self.waiting = batch;
    }

    /// The move of the namespace has failed, and is to be tried again.
    pub(super) fn move_again(&mut self) {
        self.last = Last::Asked;
    }

    /// Commits the last events, once nothing else is under way. Returns true once, when the
    /// namespace can be moved. There is a last commit without events, too: when it is answered, its
    /// rank has seen what other ranks had committed (`rfc/0003-machines.md`, done-last).
    pub(super) fn finish(&mut self, id: JobId, out: &mut Effects) -> bool {
        if self.in_flight.is_some() || self.last == Last::Over {
            return false;
        }
        let is_over = self.last == Last::Asked && self.waiting.events.is_empty();
        self.last = if is_over { Last::Over } else { Last::Asked };
        if !is_over {
            self.commit(id, out);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The run that the commit under way says.
    fn said(log: &mut ExecLog) -> Option<JobDigest> {
        let mut out = Effects::default();
        log.post(ExecEvent::bare(WallTime(1.0), "init"));
        log.flush(JobId(1), &mut out);
        match &out.list[..] {
            [Effect::Kvs { op: KvsOp::Append { run, .. }, .. }] => run.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_run_is_said_until_a_commit_holds_it() {
        let run = Some(JobDigest::default());
        let mut log = ExecLog::of_run(run.clone());
        assert_eq!(said(&mut log), run);
        log.put_back();
        assert_eq!(said(&mut log), run);
        log.take_committed();
        assert_eq!(said(&mut log), None);
    }
}

//! What goes to the exec eventlog: one commit in flight, all that comes meanwhile in the
//! next. Order is kept, a quiet job is never delayed, a busy one costs few commits.

use crate::machine::effect::{Effect, Effects, KvsOp};
use crate::port::supervisor::Stream;
use crate::proto::{BrokerRank, ExecEvent, JobId};

/// A piece of output, durable once its commit is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Logged {
    pub(super) rank: BrokerRank,
    pub(super) stream: Stream,
    /// End of what is logged, in bytes from the stream's beginning.
    pub(super) offset: u64,
}

/// The exec eventlog's end that is not durable yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ExecLog {
    waiting: Vec<ExecEvent>,
    waiting_output: Vec<Logged>,
    in_flight: Option<Vec<Logged>>,
    finishing: bool,
}

impl ExecLog {
    pub(super) fn post(&mut self, event: ExecEvent) {
        self.waiting.push(event);
    }

    pub(super) fn post_output(&mut self, event: ExecEvent, logged: Logged) {
        self.waiting.push(event);
        self.waiting_output.push(logged);
    }

    /// Commits what waits, unless a commit is under way.
    pub(super) fn flush(&mut self, id: JobId, out: &mut Effects) {
        if self.in_flight.is_some() || self.waiting.is_empty() || self.finishing {
            return;
        }
        let events = std::mem::take(&mut self.waiting);
        self.in_flight = Some(std::mem::take(&mut self.waiting_output));
        out.push(Effect::Kvs { id, op: KvsOp::Append(events) });
    }

    /// The commit under way has ended; returns the output that it held.
    pub(super) fn committed(&mut self) -> Vec<Logged> {
        self.in_flight.take().unwrap_or_default()
    }

    /// Commits the last events and moves the namespace, once nothing else is under way.
    pub(super) fn finish(&mut self, id: JobId, out: &mut Effects) {
        if self.in_flight.is_some() || self.finishing {
            return;
        }
        self.finishing = true;
        let events = std::mem::take(&mut self.waiting);
        out.push(Effect::Kvs { id, op: KvsOp::Finish(events) });
    }
}

//! Requests between ranks that are not answered yet.

use std::collections::BTreeMap;

use job_exec_rs::machine::{Event, RequestId, StreamId};
use job_exec_rs::proto::peer::{LeadReply, Reports, StreamEnd};
use job_exec_rs::proto::{BrokerRank, JobId, UnitName};

/// Who waits for the answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asker {
    /// A rank that has forwarded another request.
    Forwarded { rank: BrokerRank, request: RequestId },
    /// A coordinator, which waits for its leader's replies.
    Lead { rank: BrokerRank, stream: StreamId },
    /// The job manager.
    Manager(JobId),
    /// A leader or parent, which waits for reports of agents.
    Shells { rank: BrokerRank, stream: StreamId },
    /// A unit that stands in the barrier.
    Unit(UnitName),
}

impl Asker {
    /// The event that tells a peer that its stream has ended.
    pub(super) fn end_event(&self, end: StreamEnd) -> Option<(BrokerRank, Event)> {
        match self {
            Asker::Lead { rank, stream } => {
                Some((*rank, Event::Replied { stream: *stream, result: Err(end) }))
            }
            Asker::Shells { rank, stream } => {
                Some((*rank, Event::Reported { stream: *stream, result: Err(end) }))
            }
            Asker::Forwarded { .. } | Asker::Manager(_) | Asker::Unit(_) => None,
        }
    }
}

/// Open requests, by the number that their receivers use.
#[derive(Debug, Default)]
pub(super) struct Messages {
    open: BTreeMap<u64, Asker>,
    last: u64,
}

impl Messages {
    /// Adds a request.
    pub(super) fn open(&mut self, asker: Asker) -> RequestId {
        self.last += 1;
        self.open.insert(self.last, asker);
        RequestId::Remote(self.last)
    }

    /// Removes a request.
    pub(super) fn close(&mut self, request: RequestId) -> Option<Asker> {
        match request {
            RequestId::Remote(number) => self.open.remove(&number),
            // A node answers requests of its own roles itself.
            RequestId::Local(_) => None,
        }
    }

    fn asker(&self, request: RequestId) -> Option<&Asker> {
        match request {
            RequestId::Remote(number) => self.open.get(&number),
            RequestId::Local(_) => None,
        }
    }

    /// The event that brings a leader's reply to the rank that asked.
    pub(super) fn route_reply(
        &self,
        to: RequestId,
        reply: LeadReply,
    ) -> Option<(BrokerRank, Event)> {
        match self.asker(to)? {
            Asker::Lead { rank, stream } => {
                Some((*rank, Event::Replied { stream: *stream, result: Ok(reply) }))
            }
            Asker::Forwarded { .. } | Asker::Manager(_) | Asker::Shells { .. } | Asker::Unit(_) => {
                None
            }
        }
    }

    /// The event that brings an agent's reports to the rank that asked.
    pub(super) fn route_reports(
        &self,
        to: RequestId,
        reports: Reports,
    ) -> Option<(BrokerRank, Event)> {
        match self.asker(to)? {
            Asker::Shells { rank, stream } => {
                Some((*rank, Event::Reported { stream: *stream, result: Ok(reports) }))
            }
            Asker::Forwarded { .. } | Asker::Lead { .. } | Asker::Manager(_) | Asker::Unit(_) => {
                None
            }
        }
    }

    /// How many requests are open.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job_exec_rs::proto::Response;

    #[test]
    fn answers_find_the_rank_and_stream_that_asked() {
        let mut messages = Messages::default();
        let (rank, stream) = (BrokerRank(3), StreamId(9));
        let lead = messages.open(Asker::Lead { rank, stream });
        let shells = messages.open(Asker::Shells { rank, stream });
        assert_ne!(lead, shells);
        let start = LeadReply::Response(Response::Start {});
        let reply = messages.route_reply(lead, start.clone());
        let expected = Event::Replied { stream, result: Ok(start) };
        assert_eq!(reply, Some((rank, expected)));
        assert!(messages.route_reports(lead, Reports::default()).is_none());
        assert!(messages.route_reports(shells, Reports::default()).is_some());
        let ended = messages.close(shells).and_then(|asker| asker.end_event(StreamEnd::Forgotten));
        assert!(matches!(ended, Some((BrokerRank(3), Event::Reported { result: Err(_), .. }))));
        assert!(messages.route_reports(shells, Reports::default()).is_none(), "closed");
        assert_eq!(messages.len(), 1);
    }
}

//! Requests on their way between ranks.

use std::collections::BTreeMap;

use crate::machine::{Event, RequestId, StreamId};
use crate::proto::peer::{LeadReply, Reports, StreamEnd};
use crate::proto::{BrokerRank, JobId, UnitName};

/// Who waits for the answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asker {
    /// A rank that passes on another rank's request.
    Forwarded { rank: BrokerRank, request: RequestId },
    /// A coordinator, for its leader's responses.
    Lead { rank: BrokerRank, stream: StreamId },
    /// The job manager.
    Manager(JobId),
    /// A leader or parent, for its agents' reports.
    Shells { rank: BrokerRank, stream: StreamId },
    /// A unit that stands in the barrier.
    Unit(UnitName),
}

impl Asker {
    /// The event by which a peer hears that its stream has ended.
    pub(super) fn ended(&self, end: StreamEnd) -> Option<(BrokerRank, Event)> {
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

/// Open requests, by the number that their receivers know them by.
#[derive(Debug, Default)]
pub(super) struct Messages {
    open: BTreeMap<u64, Asker>,
    last: u64,
}

impl Messages {
    /// A new request.
    pub(super) fn open(&mut self, asker: Asker) -> RequestId {
        self.last += 1;
        self.open.insert(self.last, asker);
        RequestId::Remote(self.last)
    }

    /// Ends a request.
    pub(super) fn close(&mut self, request: RequestId) -> Option<Asker> {
        match request {
            RequestId::Remote(number) => self.open.remove(&number),
            // The node answers those itself.
            RequestId::Local(_) => None,
        }
    }

    fn asker(&self, request: RequestId) -> Option<&Asker> {
        match request {
            RequestId::Remote(number) => self.open.get(&number),
            RequestId::Local(_) => None,
        }
    }

    /// A leader's answer, for the rank that asked.
    pub(super) fn reply(&self, to: RequestId, reply: LeadReply) -> Option<(BrokerRank, Event)> {
        match self.asker(to)? {
            Asker::Lead { rank, stream } => {
                Some((*rank, Event::Replied { stream: *stream, result: Ok(reply) }))
            }
            Asker::Forwarded { .. } | Asker::Manager(_) | Asker::Shells { .. } | Asker::Unit(_) => {
                None
            }
        }
    }

    /// An agent's reports, for the rank that asked.
    pub(super) fn report(&self, to: RequestId, reports: Reports) -> Option<(BrokerRank, Event)> {
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
    use crate::proto::Response;

    #[test]
    fn answers_find_the_rank_and_stream_that_asked() {
        let mut messages = Messages::default();
        let (rank, stream) = (BrokerRank(3), StreamId(9));
        let lead = messages.open(Asker::Lead { rank, stream });
        let shells = messages.open(Asker::Shells { rank, stream });
        assert_ne!(lead, shells);
        let start = LeadReply::Response(Response::Start {});
        let reply = messages.reply(lead, start.clone());
        let expected = Event::Replied { stream, result: Ok(start) };
        assert_eq!(reply, Some((rank, expected)));
        assert!(messages.report(lead, Reports::default()).is_none());
        assert!(messages.report(shells, Reports::default()).is_some());
        let ended = messages.close(shells).and_then(|asker| asker.ended(StreamEnd::Forgotten));
        assert!(matches!(ended, Some((BrokerRank(3), Event::Reported { result: Err(_), .. }))));
        assert!(messages.report(shells, Reports::default()).is_none(), "closed");
        assert_eq!(messages.len(), 1);
    }
}

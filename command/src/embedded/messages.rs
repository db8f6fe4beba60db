//! Requests between ranks that are not answered yet.

use std::collections::BTreeMap;

use job_exec_rs::machine::{Awaited, Event, Fault, RequestId, StreamItem};
use job_exec_rs::proto::{BrokerRank, JobId, UnitName};

/// Who waits for the answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asker {
    /// A rank that has forwarded another request.
    Forwarded { rank: BrokerRank, request: RequestId },
    /// The job manager.
    Manager(JobId),
    /// A machine of a rank, which has asked another rank.
    Peer { rank: BrokerRank, awaited: Awaited },
    /// A unit that stands in the barrier.
    Unit(UnitName),
}

impl Asker {
    /// The event that brings a peer an answer, or the end of its stream.
    pub(super) fn event(&self, answer: Result<String, Fault>) -> Option<(BrokerRank, Event)> {
        match self {
            Asker::Peer { rank, awaited } => Some((*rank, awaited.hear(answer))),
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

    /// The event that brings an answer to the rank that asked.
    pub(super) fn route(&self, to: RequestId, item: &StreamItem) -> Option<(BrokerRank, Event)> {
        self.asker(to)?.event(Ok(item.encode()))
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
    use job_exec_rs::machine::StreamId;
    use job_exec_rs::proto::Response;
    use job_exec_rs::proto::peer::{LeadReply, Reports};

    #[test]
    fn answers_find_the_rank_and_stream_that_asked() {
        let mut messages = Messages::default();
        let (rank, stream) = (BrokerRank(3), StreamId(9));
        let lead = messages.open(Asker::Peer { rank, awaited: Awaited::Replies(stream) });
        let shells = messages.open(Asker::Peer { rank, awaited: Awaited::Reports(stream) });
        assert_ne!(lead, shells);
        let start = LeadReply::Response(Response::Start {});
        let reply = messages.route(lead, &StreamItem::Reply(start.clone()));
        let expected = Event::Replied { stream, result: Ok(start) };
        assert_eq!(reply, Some((rank, expected)));
        let reports = StreamItem::Reports(Reports::default());
        let reported = messages.route(shells, &reports);
        let expected = Event::Reported { stream, result: Ok(Reports::default()) };
        assert_eq!(reported, Some((rank, expected)));
        let end = Fault::new(libc::ENOENT, "gone");
        let ended = messages.close(shells).and_then(|asker| asker.event(Err(end)));
        assert!(matches!(ended, Some((BrokerRank(3), Event::Reported { result: Err(_), .. }))));
        assert!(messages.route(shells, &reports).is_none(), "closed");
        assert_eq!(messages.len(), 1);
    }
}

//! What the ranks of a world say to each other.

use super::{JOB, World};
use crate::machine::effect::StreamItem;
use crate::machine::event::{Event, Fault, RequestId};
use crate::machine::peer_request::{Awaited, PeerRequest};
use crate::proto::BrokerRank;
use crate::proto::peer::StreamEnd;

impl World {
    pub(super) fn send(&mut self, rank: usize, to: BrokerRank, request: PeerRequest) {
        match request.awaited(to) {
            Some(awaited) if awaited.is_stream() => {
                let id = self.hold(rank, to, awaited);
                self.ask(to, request.into_event(id));
            }
            Some(awaited) => self.question(rank, to, awaited, request),
            None => {
                self.messages += usize::from(matches!(request, PeerRequest::Order(_)));
                let event = request.into_event(RequestId::UNANSWERED);
                self.queue.push_back((to.0 as usize, event));
            }
        }
    }

    pub(super) fn ask(&mut self, to: BrokerRank, event: Event) {
        let event = (to.0 as usize, event);
        if self.hold_asked { &mut self.held } else { &mut self.queue }.push_back(event);
    }

    pub(super) fn stream(&mut self, rank: usize, to: RequestId, item: StreamItem) {
        match (to, item) {
            (_, StreamItem::Response { id, response }) => {
                assert_eq!(id, JOB);
                self.responses.push(response);
            }
            (_, StreamItem::Reply(_)) if self.hold_replies => (),
            (RequestId::Remote(to), item) => self.answer(rank, to, &item),
            (RequestId::Local(_), _) => panic!("what a rank says to itself left it"),
        }
    }

    pub(super) fn answer(&mut self, rank: usize, to: u64, item: &StreamItem) {
        self.messages += 1;
        if let Some((asker, awaited)) = self.requests.get(&(rank, to)) {
            let event = (*asker, awaited.hear(Ok(item.encode())));
            let is_held = self.hold_answers_of == Some(rank);
            if is_held { &mut self.held } else { &mut self.queue }.push_back(event);
        }
    }

    pub(super) fn question(
        &mut self,
        rank: usize,
        to: BrokerRank,
        awaited: Awaited,
        request: PeerRequest,
    ) {
        let number = RequestId::Remote(1_000_000 + self.questions.len() as u64);
        self.questions.push((rank, awaited.clone()));
        if self.nodes[to.0 as usize].is_some() {
            self.queue.push_back((to.0 as usize, request.into_event(number)));
        } else {
            let fault = Fault::new(libc::ENOSYS, "no such service");
            self.queue.push_back((rank, awaited.hear(Err(fault))));
        }
    }

    pub(super) fn hold(&mut self, asker: usize, to: BrokerRank, awaited: Awaited) -> RequestId {
        self.messages += 1;
        self.last_request += 1;
        self.requests.insert((to.0 as usize, self.last_request), (asker, awaited));
        RequestId::Remote(self.last_request)
    }

    pub(super) fn end(&mut self, rank: usize, to: RequestId, end: StreamEnd) {
        let RequestId::Remote(to) = to else { return };
        if let Some((asker, awaited)) = self.requests.remove(&(rank, to)) {
            self.queue.push_back((asker, awaited.hear(Err(end.into()))));
        }
    }
}

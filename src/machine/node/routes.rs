//! Where effects go: out of the rank, or to another role of it.

use std::collections::VecDeque;

use super::{Node, Route};
use crate::machine::context::Now;
use crate::machine::effect::{Answer, Effect, Effects, StreamItem};
use crate::machine::event::{Event, RequestId, Role};
use crate::machine::peer_request::PeerRequest;
use crate::proto::peer::KnownRequest;

impl Node {
    /// Sends an effect out, or turns it into an event for another role of this rank.
    pub(super) fn route(
        &mut self,
        now: Now,
        effect: Effect,
        queue: &mut VecDeque<Event>,
        out: &mut Effects,
    ) {
        let here = self.facts.rank;
        match effect {
            Effect::Send { to, mut request } => {
                let mut local = RequestId::UNANSWERED;
                if let Some((stream, role, id, name)) = request.stream() {
                    self.routes.insert(stream, Route { role, id, silent: None });
                    local = RequestId::Local(stream);
                    if to != here {
                        *name = self.expect_answer(now, stream, to);
                    }
                }
                if to != here {
                    return out.push(Effect::Send { to, request });
                }
                queue.push_back(match request {
                    PeerRequest::Known { asker, asked } => {
                        let result = self.answer_known(now, &asked);
                        let KnownRequest { id, digest, question, .. } = asked;
                        Event::KnownAnswered { id, asker, to, digest, question, result }
                    }
                    request => request.into_event(local),
                });
            }
            Effect::Stream { to: RequestId::Local(stream), item: StreamItem::Reply(reply) } => {
                queue.push_back(Event::Replied { stream, result: Ok(reply) });
            }
            Effect::Stream { to: RequestId::Local(stream), item: StreamItem::Reports(reports) } => {
                queue.push_back(Event::Reported { stream, result: Ok(reports) });
            }
            Effect::Answer { to: RequestId::Local(stream), answer: Answer::End(end) } => {
                match self.routes.get(&stream).map(|route| route.role) {
                    Some(Role::Coordinator) => {
                        queue.push_back(Event::Replied { stream, result: Err(end) });
                    }
                    Some(Role::Agent | Role::Leader) => {
                        queue.push_back(Event::Reported { stream, result: Err(end) });
                    }
                    None => (),
                }
            }
            Effect::Drop { to: RequestId::Local(stream) } => drop(self.take_answer(stream, true)),
            effect => {
                if let Effect::Answer { to, .. } | Effect::Drop { to } = &effect {
                    self.held.remove(to);
                }
                self.counts.leave(now, &effect);
                out.push(effect);
            }
        }
    }
}

//! Where effects go: out of the rank, or to another role of it.

use std::collections::VecDeque;

use super::{Node, Route};
use crate::machine::context::Now;
use crate::machine::effect::{Answer, Effect, Effects, StreamItem};
use crate::machine::event::{Event, RequestId, Role};
use crate::proto::peer::{KnownRequest, Version};

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
            Effect::Lead { stream, to, mut request } => {
                let id = request.start.id;
                self.routes.insert(stream, Route { role: Role::Coordinator, id, silent: None });
                if to != here {
                    request.stream = self.expect_answer(now, stream, to);
                    let effect = Effect::Lead { stream, to, request };
                    self.counters.count_effect(&effect);
                    return out.push(effect);
                }
                queue.push_back(Event::Lead { request: RequestId::Local(stream), lead: request });
            }
            Effect::Shells { role, stream, to, mut request } => {
                self.routes.insert(stream, Route { role, id: request.id, silent: None });
                if to != here {
                    request.stream = self.expect_answer(now, stream, to);
                    let effect = Effect::Shells { role, stream, to, request };
                    self.counters.count_effect(&effect);
                    return out.push(effect);
                }
                let local = RequestId::Local(stream);
                queue.push_back(Event::Shells { request: local, shells: request });
            }
            Effect::Cover { to, request } if to == here => {
                queue.push_back(Event::Covered(request));
            }
            Effect::Order { to, request } if to == here => {
                queue.push_back(Event::Order(request));
            }
            Effect::Known { to, question, asker, id, digest } if to == here => {
                let asked = KnownRequest { version: Version, id, digest, question };
                let result = self.answer_known(now, &asked);
                let digest = asked.digest;
                queue.push_back(Event::KnownAnswered { id, asker, to, digest, question, result });
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
                self.counters.count_effect(&effect);
                out.push(effect);
            }
        }
    }
}

//! What nodes want done, and messages between them.

use serde_json::json;

use super::{Item, World};
use crate::adapter::sim::request::{Asked, Life, Request};
use crate::adapter::sim::sent::Messages;
use crate::machine::{Effect, Event, Fault, Level, RequestId, Role};
use crate::proto::BrokerRank;
use crate::proto::peer::{KnownRequest, VERSION};

impl World {
    pub(super) fn perform(&mut self, from: Life, effect: Effect) {
        match effect {
            Effect::Answer { to: RequestId::Remote(to), result } => {
                self.answer(to, result);
            }
            Effect::Barrier { to: RequestId::Remote(to), result } => {
                self.barrier_answered(to, &result);
            }
            Effect::Checkpoint { jobs } => self.send(from.rank, 0, Item::KvsSync { from, jobs }),
            Effect::Cover { to, request } => {
                self.tell_rank(from, to, Event::Covered { payload: json!(request) });
            }
            Effect::Drain { ranks, reason } => self.drain(&ranks, &reason),
            Effect::Drop { to: RequestId::Remote(to) } => drop(self.requests.close(to)),
            Effect::End { to: RequestId::Remote(to), fault } => {
                if let Some(request) = self.requests.close(to) {
                    self.fail(request, fault);
                }
            }
            Effect::Expire { to, request: RequestId::Remote(number), id, expiration } => {
                let event = |request| Event::Expiration { request, id, expiration };
                self.ask(from, to.0, Asked::Expire(number), event);
            }
            Effect::KillJob { id, signal } => self.kill_job(id, signal),
            Effect::Known { to, question, asker, id, digest } => {
                let request = KnownRequest { version: VERSION, id, digest, question };
                self.ask_known(from, to.0, asker, &request);
            }
            Effect::KnownAnswer { to: RequestId::Remote(to), result } => {
                self.answer_known(from, to, result);
            }
            Effect::Kvs { id, op } => {
                self.send(from.rank, 0, Item::KvsApply { from, id, op: Box::new(op) });
            }
            Effect::Lead { stream, to, request } => {
                let payload = json!(request);
                let event = |request| Event::Lead { request, payload };
                self.ask(from, to.0, Asked::Lead(stream), event);
            }
            Effect::Log { level: Level::Error | Level::Warning, text } => self.note(&text),
            Effect::Order { to, request } => {
                self.tell_rank(from, to, Event::Order { payload: json!(request) });
            }
            Effect::Park { to: RequestId::Remote(to), entry, .. } => self.park(to, entry),
            Effect::Report { to: RequestId::Remote(to), reports } => {
                if let Some((asker, Asked::Shells(stream))) = self.requests.asker(to) {
                    self.post(from.rank, asker, Event::Reported { stream, result: Ok(reports) });
                }
            }
            Effect::Reply { to: RequestId::Remote(to), response } => {
                if let Some((asker, Asked::Lead(stream))) = self.requests.asker(to) {
                    self.post(from.rank, asker, Event::Replied { stream, result: Ok(response) });
                }
            }
            Effect::Raise { id, exception } => self.raise(id, &exception),
            Effect::Respond { id, response, .. } => self.respond(id, &response),
            Effect::Shells { stream, to, request, .. } => {
                let payload = json!(request);
                let event = |request| Event::Shells { request, payload };
                self.ask(from, to.0, Asked::Shells(stream), event);
            }
            Effect::Unit(command) => self.command(from, command),
            Effect::LostShell { .. } | Effect::Log { .. } => (),
            // What a role of the same rank has asked never leaves it.
            effect => self.violate("bounded", format!("{effect:?} left its rank")),
        }
    }

    pub(super) fn post(&mut self, from: u32, to: Life, event: Event) {
        self.send(from, to.rank, Item::Deliver { to, event: Box::new(event) });
    }

    fn tell_rank(&mut self, from: Life, to: BrokerRank, event: Event) {
        let to = self.life(to.0);
        self.post(from.rank, to, event);
    }

    fn ask(&mut self, from: Life, rank: u32, asked: Asked, event: impl FnOnce(RequestId) -> Event) {
        let holder = self.life(rank);
        let request = Request { asker: from, holder, asked };
        let state = &self.ranks[rank as usize];
        if !state.broker_up {
            return self.fail(request, Fault::new(libc::EHOSTUNREACH, "No route to host"));
        }
        if state.node.is_none() {
            return self.fail(request, Fault::new(libc::ENOSYS, "no such service"));
        }
        let number = self.requests.open(from, holder, asked);
        self.post(from.rank, holder, event(RequestId::Remote(number)));
    }

    /// The asker hears that nobody will answer.
    pub(super) fn fail(&mut self, request: Request, fault: Fault) {
        let event = match request.asked {
            Asked::Lead(stream) => Event::Replied { stream, result: Err(fault) },
            Asked::Shells(stream) => Event::Reported { stream, result: Err(fault) },
            Asked::Known { id, asker, question } => {
                Event::KnownAnswered { id, asker, question, result: Err(fault) }
            }
            Asked::Expire(number) => {
                match Messages::index(number) {
                    Some(index) => self.message_answered(index, Err(fault)),
                    None => drop(self.requests.close(number)),
                }
                return;
            }
            Asked::Intruder | Asked::Manager | Asked::Nothing => return,
        };
        self.post(request.holder.rank, request.asker, event);
    }

    fn answer(&mut self, to: u64, result: Result<(), Fault>) {
        if let Some(index) = Messages::index(to) {
            return self.message_answered(index, result);
        }
        if self.checkpoint_answered(to, &result) {
            self.requests.close(to);
            return;
        }
        self.check_intruder(to, result.is_ok());
        if let Some(Request { asked: Asked::Expire(number), .. }) = self.requests.close(to) {
            self.answer(number, result);
        }
    }

    fn ask_known(&mut self, from: Life, to: u32, asker: Role, payload: &KnownRequest) {
        let asked = Asked::Known { id: payload.id, asker, question: payload.question };
        let payload = json!(payload);
        let event = |request| Event::Known { request, payload };
        self.ask(from, to, asked, event);
    }

    fn answer_known(&mut self, from: Life, number: u64, result: Result<bool, Fault>) {
        if let Some(request) = self.requests.close(number)
            && let Asked::Known { id, asker, question } = request.asked
        {
            let event = Event::KnownAnswered { id, asker, question, result };
            self.post(from.rank, request.asker, event);
        }
    }
}

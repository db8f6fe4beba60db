//! What nodes want done.

use rand::Rng;
use serde_json::json;

use super::{Item, World};
use crate::adapter::sim::request::{Asked, Life, Request};
use crate::machine::{Effect, Event, Fault, KvsOp, Level, Owner, RequestId};
use crate::proto::peer::{KnownRequest, VERSION};
use crate::proto::{Exception, JobException, JobId, Response};

impl World {
    pub(super) fn perform(&mut self, from: Life, effect: Effect) {
        match effect {
            Effect::Barrier { to: RequestId::Remote(to), result } => {
                self.leave_barrier(to, result.is_ok());
            }
            Effect::Checkpoint { jobs } => {
                self.send(from.rank, 0, Item::KvsSync { from, jobs });
            }
            Effect::Cover { to, request } => {
                self.tell_rank(from, to.0, Event::Covered { payload: json!(request) });
            }
            Effect::Drain { ranks, reason } => self.drain(&ranks, &reason),
            Effect::Drop { to: RequestId::Remote(to) } => drop(self.requests.close(to)),
            Effect::End { to: RequestId::Remote(to), fault } => {
                if let Some(request) = self.requests.close(to) {
                    self.fail(request, fault);
                }
            }
            Effect::KillJob { id, signal } => self.kill_job(id, signal),
            Effect::Known { to, parent, asker, id, digest } => {
                let request = KnownRequest { version: VERSION, id, digest, parent };
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
                self.tell_rank(from, to.0, Event::Order { payload: json!(request) });
            }
            Effect::Park { to: RequestId::Remote(to), .. } => self.unpark(to),
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
            Effect::Answer { .. }
            | Effect::Barrier { .. }
            | Effect::Drop { .. }
            | Effect::End { .. }
            | Effect::Expire { .. }
            | Effect::KnownAnswer { .. }
            | Effect::Log { .. }
            | Effect::LostShell { .. }
            | Effect::Park { .. }
            | Effect::Reply { .. }
            | Effect::Report { .. } => (),
        }
    }

    fn post(&mut self, from: u32, to: Life, event: Event) {
        self.send(from, to.rank, Item::Deliver { to, event: Box::new(event) });
    }

    fn tell_rank(&mut self, from: Life, to: u32, event: Event) {
        let to = self.life(to);
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

    fn ask_known(&mut self, from: Life, to: u32, asker: Owner, payload: &KnownRequest) {
        let (to, id) = (self.life(to), payload.id);
        if !self.is_alive(to) {
            let result = Err(Fault::new(libc::ENOSYS, "no such service"));
            return self.post(from.rank, from, Event::KnownAnswered { id, asker, result });
        }
        let number = self.requests.open(from, to, Asked::Nothing);
        self.asked_for.insert(number, (id, asker));
        let (request, payload) = (RequestId::Remote(number), json!(payload));
        self.post(from.rank, to, Event::Known { request, payload });
    }

    fn answer_known(&mut self, from: Life, number: u64, result: Result<bool, Fault>) {
        let request = self.requests.close(number);
        if let (Some(request), Some((id, asker))) = (request, self.asked_for.remove(&number)) {
            self.post(from.rank, request.asker, Event::KnownAnswered { id, asker, result });
        }
    }

    /// The asker hears that nobody will answer.
    pub(super) fn fail(&mut self, request: Request, fault: Fault) {
        let event = match request.asked {
            Asked::Lead(stream) => Event::Replied { stream, result: Err(fault) },
            Asked::Shells(stream) => Event::Reported { stream, result: Err(fault) },
            Asked::Manager | Asked::Nothing => return,
        };
        self.post(request.holder.rank, request.asker, event);
    }

    pub(super) fn kvs_apply(&mut self, from: Life, id: JobId, op: KvsOp) {
        if !self.ranks[0].broker_up {
            return;
        }
        let result = Box::new(self.kvs.apply(id, op));
        self.send(0, from.rank, Item::KvsDone { to: from, id, result });
    }

    pub(super) fn kvs_sync(&mut self, from: Life, jobs: &[JobId]) {
        let odds = if self.healed { 0.0 } else { self.profile.failing_checkpoints };
        if self.rng.random_bool(odds) {
            self.faults += 1;
            let full = Fault::new(libc::ENOSPC, "No space left on device");
            let event = Box::new(Event::Checkpointed(Err(full)));
            return self.after(0.001, 0.05, Item::Deliver { to: from, event });
        }
        let number = self.kvs.sync(jobs);
        self.after(0.001, 0.05, Item::KvsWritten { to: from, number });
    }

    pub(super) fn kvs_written(&mut self, to: Life, number: u64) {
        if self.kvs.written(number) {
            self.note(&format!("checkpoint {number}"));
            self.send(0, 0, Item::Deliver { to, event: Box::new(Event::Checkpointed(Ok(()))) });
        }
    }

    fn respond(&mut self, id: JobId, response: &Response) {
        self.note(&format!("{id}: {response:?}"));
        self.check_response(id, response);
        self.manager_changed();
        if let Response::Exception(exception) = response
            && exception.severity == 0
        {
            self.publish(id, &exception.kind);
        }
    }

    fn raise(&mut self, id: JobId, exception: &Exception) {
        self.note(&format!("raise {id}: {}", exception.note));
        if let Some(job) = self.manager.jobs.get_mut(&id).filter(|_| exception.severity == 0) {
            job.failed = true;
            self.manager_changed();
            self.publish(id, &exception.kind);
        }
    }

    /// The job manager publishes an exception to all modules.
    pub(super) fn publish(&mut self, id: JobId, kind: &str) {
        let exception = JobException { id, kind: kind.to_string(), severity: 0, wait_status: None };
        for rank in 0..self.profile.ranks {
            let to = self.life(rank);
            self.post(0, to, Event::Exception(exception.clone()));
        }
    }

    fn drain(&mut self, ranks: &crate::proto::Idset, reason: &str) {
        self.note(&format!("drain {ranks}: {reason}"));
        // Reasons name their job.
        let jobs: Vec<JobId> = self.manager.jobs.keys().copied().collect();
        for id in jobs.into_iter().filter(|id| reason.contains(&id.to_string())) {
            self.drained.extend(ranks.iter().map(|rank| (id, rank)));
        }
    }
}

//! The services of rank 0: job manager, scheduler and KVS.

use job_exec_rs::machine::{Event, Fault, KvsOp, KvsResult, Listing, RequestId};
use job_exec_rs::proto::{Exception, Idset, JobEvent, JobException, JobId, Response, StartRequest};
use rand::Rng;

use super::{Item, World};
use crate::kind::FaultKind;
use crate::kvs::Roots;
use crate::rank::{GUESTS, OWNER};
use crate::request::{Asked, Life};

/// Least number of seconds between the start times of two allocations. So no two have the same
/// start time.
const TICK: f64 = 0.001;
/// How long a sync takes that a power cut ends, in seconds.
const SLOW_SYNC: f64 = 1.0;
/// How many jobs have to wait for resources.
const WAIT_FOR_RESOURCES: f64 = 0.2;
/// How long they wait at most, in seconds.
const WAIT_SECONDS: f64 = 60.0;
/// How many jobs that have not started wait for their prolog when the job manager was started again.
const WAIT_FOR_PROLOG: f64 = 0.3;
/// How long they wait at most, in seconds.
const PROLOG_SECONDS: f64 = 60.0;
/// How long a change of the KVS goes unseen at most, in seconds (`adapter/libflux/unsaved.rs`).
const LOOK_SECONDS: f64 = 4.1;

/// Ranks that the resource module is to drain.
pub(crate) struct AskedDrain {
    /// The module that has asked.
    to: Life,
    /// The job whose leader waits for the answer.
    waits: Option<JobId>,
    ranks: Idset,
    /// Of the jobs that the reason names.
    digests: Vec<String>,
}

impl World {
    /// A user submits a job. If rank 0's broker is down, the user tries again later.
    pub(super) fn submit(&mut self) {
        if !self.ranks[0].broker_up {
            return self.after(0.1, 5.0, Item::Submit);
        }
        let limited = self.rng.random_bool(self.profile.limited);
        let duration = if limited { self.rng.random_range(5.0..60.0) } else { 0.0 };
        let of_guest = self.rng.random_bool(self.profile.guests);
        let userid = if of_guest { self.rng.random_range(GUESTS) } else { OWNER };
        let id = self.manager.submit(userid, duration, self.now);
        note!(self, "{id} of user {userid} is submitted");
        self.schedule_commit();
        let waits = self.rng.random_bool(WAIT_FOR_RESOURCES);
        self.after(0.001, if waits { WAIT_SECONDS } else { 1.0 }, Item::Allocate(id));
    }

    /// The scheduler gives a job its ranks.
    pub(super) fn allocate(&mut self, id: JobId) {
        let ranks = match self.profile.planned.get((id.0 >> 24) as usize - 1) {
            Some(ranks) => Idset::from_range(ranks.clone()),
            None => {
                let first = self.rng.random_range(0..self.profile.ranks);
                let last = self.rng.random_range(first..self.profile.ranks);
                Idset::from_range(first..last + 1)
            }
        };
        if !self.ranks[0].broker_up {
            return;
        }
        self.last_allocation = self.wall(0).max(self.last_allocation + TICK);
        let wall = self.last_allocation;
        if let Some(allocation) = self.manager.allocate(id, ranks, wall) {
            self.allocations.insert(allocation.digest.clone(), allocation);
            self.schedule_commit();
            self.send_start_request(id);
        }
    }

    /// The ranks of a job. The world remembers them even if the job manager does not.
    pub(crate) fn ranks_of(&self, digest: &str) -> Idset {
        self.allocations.get(digest).map(|known| known.ranks.clone()).unwrap_or_default()
    }

    /// The user of a job.
    pub(super) fn user_of(&self, digest: &str) -> u32 {
        self.allocations.get(digest).map_or(OWNER, |known| known.userid)
    }

    pub(super) fn is_limited(&self, digest: &str) -> bool {
        self.allocations.get(digest).is_some_and(|known| known.limited)
    }

    /// Schedules a commit of the job manager's eventlogs, which have changed.
    pub(super) fn schedule_commit(&mut self) {
        let broker = self.ranks[0].brokers;
        self.after(0.000_1, 0.02, Item::ManagerCommits(broker));
    }

    pub(super) fn commit_manager(&mut self, broker: u32) {
        if self.ranks[0].broker_up && self.ranks[0].brokers == broker {
            self.kvs.commit(&self.manager);
            self.tell_change();
        }
    }

    /// The primary namespace has changed. The service looks for that after each checkpoint.
    fn tell_change(&mut self) {
        if let Some(to) = self.awaits_change.take() {
            let item = Item::Deliver { to, event: Box::new(Event::KvsChanged) };
            self.after(0.001, LOOK_SECONDS, item);
        }
    }

    /// The job manager sends the start request of a job, if the service is there and the job needs
    /// one.
    pub(super) fn send_start_request(&mut self, id: JobId) {
        if self.ranks[0].node.is_none() {
            return;
        }
        if let Some(payload) = self.manager.take_start_request(id) {
            note!(self, "start request for {id}");
            let life = self.life(0);
            let number = self.requests.open(life, life, Asked::Manager);
            let request = RequestId::Remote(number);
            let payload = payload.to_string();
            let start = StartRequest::read(payload.as_bytes());
            if let (Some(traffic), Ok(start)) = (&mut self.traffic, &start) {
                traffic.start(number, id, start.r.ranks().len(), &payload);
            }
            let start = Box::new(start);
            self.handle(0, Event::Start { request, start });
        }
    }

    pub(super) fn apply_kvs_op(&mut self, from: Life, id: JobId, op: KvsOp) {
        if !self.ranks[0].broker_up {
            return;
        }
        let failure = || Fault::new(libc::EIO, "commit failed");
        let may_fail = !matches!(op, KvsOp::Create { .. } | KvsOp::Link);
        let fails = may_fail && self.faults.draw(FaultKind::CommitFails).is_some();
        let result = match op {
            KvsOp::Append { .. } if fails => KvsResult::Appended(Err(failure())),
            KvsOp::Move { .. } if fails => KvsResult::Moved(Err(failure())),
            KvsOp::Open { .. } if fails => KvsResult::Opened(Err(failure())),
            KvsOp::Released if fails => KvsResult::Released(Err(failure())),
            KvsOp::Recommit(bequest) if fails => {
                let client = bequest.client.clone();
                KvsResult::Recommitted { client, result: Err(failure()) }
            }
            KvsOp::Move { usage } => {
                self.check_usage(id, usage.as_deref());
                let (root, broker) = (Box::new(self.kvs.roots(&[id])), self.ranks[0].brokers);
                return self.after(0.000_1, 0.01, Item::Graft { from, id, root, broker });
            }
            op => {
                self.check_events(id, &op);
                self.kvs.apply(id, op)
            }
        };
        if let KvsResult::Released(released) = &result {
            self.manager.set_told(id, released.clone().unwrap_or_default());
        }
        self.send(0, from.rank, Item::KvsDone { to: from, id, result: Box::new(result) });
    }

    /// The root of a guest namespace was looked up, and is put in the place of the link.
    pub(super) fn graft(&mut self, from: Life, id: JobId, root: Roots, broker: u32) {
        if !self.is_alive(from) || broker != self.ranks[0].brokers {
            return;
        }
        note!(self, "{id} is moved");
        let result = self.kvs.graft(root);
        self.tell_change();
        self.after(0.000_1, 0.01, Item::Grafted { from, id, result: Box::new(result), broker });
    }

    /// The namespace is removed when the commit of the graft was answered.
    pub(super) fn handle_grafted(&mut self, to: Life, id: JobId, result: KvsResult, broker: u32) {
        if self.is_alive(to) && broker == self.ranks[0].brokers {
            self.kvs.remove(id);
            self.deliver(to, Event::Kvs { id, result });
        }
    }

    /// The roots of guest namespaces are looked up before the commit that puts them there.
    pub(super) fn gather_checkpoint(&mut self, from: Life, jobs: &[JobId], ended: Vec<JobId>) {
        self.awaits_change = None;
        let (roots, broker) = (Box::new(self.kvs.roots(jobs)), self.ranks[0].brokers);
        self.after(0.000_1, 0.01, Item::CheckpointBegins { from, roots, ended, broker });
    }

    pub(super) fn begin_checkpoint(
        &mut self,
        from: Life,
        (roots, ended): (Roots, &[JobId]),
        broker: u32,
    ) {
        if broker != self.ranks[0].brokers {
            return;
        }
        if self.faults.draw(FaultKind::CheckpointFails).is_some() {
            self.unsteady_at = self.now;
            let full = Fault::new(libc::ENOSPC, "No space left on device");
            let event = Box::new(Event::Checkpointed(Err(full)));
            return self.after(0.001, 0.05, Item::Deliver { to: from, event });
        }
        self.check_held();
        let number = self.kvs.begin_checkpoint(roots, ended);
        self.after(0.001, 0.05, Item::CheckpointWritten { to: from, number });
        self.deliver(from, Event::CheckpointBegun);
    }

    /// It outlives the broker now. The service has it synced.
    pub(super) fn write_checkpoint(&mut self, to: Life, number: u64) {
        if self.kvs.write_checkpoint(number) {
            match self.faults.draw(FaultKind::PowerCutUnsynced) {
                Some(id) => self.at(self.now + SLOW_SYNC, Item::PowerCut(id)),
                None => self.after(0.001, 0.3, Item::CheckpointEnds { to, number }),
            }
        }
    }

    pub(super) fn end_checkpoint(&mut self, to: Life, number: u64) {
        if self.kvs.end_checkpoint(number) {
            note!(self, "checkpoint {number}");
            self.awaits_change = Some(to);
            if self.kvs.has_changed() {
                self.tell_change();
            }
            self.send(0, 0, Item::Deliver { to, event: Box::new(Event::Checkpointed(Ok(()))) });
        }
    }

    pub(super) fn handle_response(&mut self, id: JobId, response: &Response) {
        note!(self, "{id}: {response:?}");
        self.check_response(id, response);
        self.told.push((self.now, id, response.clone()));
        self.schedule_commit();
        if let Response::Exception(exception) = response
            && exception.severity == 0
        {
            self.publish(id, &exception.kind);
        }
    }

    /// The service posts an event itself.
    pub(super) fn post(&mut self, id: JobId, event: JobEvent) {
        match event {
            JobEvent::Response(response) => self.handle_response(id, &response),
            JobEvent::EpilogStart => self.set_holds(id, |holds| holds + 1),
            JobEvent::NodeDegraded(_) => (), // it is told, and not posted
            JobEvent::EpilogFinish => self.set_holds(id, |holds| holds.saturating_sub(1)),
        }
    }

    /// The job manager counts (flux-core `job-manager/event.c`, `event_handle_perilog()`).
    fn set_holds(&mut self, id: JobId, next: impl FnOnce(u32) -> u32) {
        if let Some(job) = self.manager.jobs.get_mut(&id) {
            job.holds = next(job.holds);
            let text = format!("{id}: holds: {}", job.holds);
            self.note(&text);
        }
        self.schedule_commit();
    }

    /// Tells the service that a job is held, when the KVS has it.
    pub(super) fn end_hold(&mut self, to: Life, id: JobId, broker: u32) {
        self.commit_manager(broker);
        self.deliver(to, Event::Held { id, result: Ok(()) });
    }

    /// Tells the service that the KVS has the release of a job.
    pub(super) fn keep_release(&mut self, to: Life, id: JobId, broker: u32) {
        self.commit_manager(broker);
        self.deliver(to, Event::ReleaseKept { id });
    }

    /// The service has just come up. The job manager asks it for the jobs that run, but for some that
    /// wait for their prolog. Then it lists its jobs, and the service reads those in CLEANUP.
    pub(super) fn say_hello(&mut self) {
        for id in self.manager.running() {
            let may_wait = self.manager.may_wait_for_prolog(id);
            if may_wait && self.rng.random_bool(WAIT_FOR_PROLOG) {
                self.after(0.001, PROLOG_SECONDS, Item::PrologEnded(id));
            } else {
                self.send_start_request(id);
            }
        }
        self.manager.handle_hello();
        self.handle(0, Event::KvsChanged);
        let cleanup = self.manager.cleaning();
        let listing = Listing { run: self.manager.running(), cleanup: cleanup.clone() };
        self.handle(0, Event::RunningAsked(listing));
        let to = self.life(0);
        for id in cleanup {
            self.send(0, 0, Item::Cleaning { to, id });
        }
    }

    /// The service has read a job that it has found.
    pub(super) fn read_cleaning(&mut self, to: Life, id: JobId) {
        if !self.is_alive(to) {
            return;
        }
        let event = match self.manager.read_cleaning(id) {
            Some(cleaning) => Event::Cleaning(Box::new(cleaning)),
            None => Event::NotCleaning { id },
        };
        self.deliver(to, event);
    }

    pub(super) fn raise(&mut self, id: JobId, exception: &Exception) {
        note!(self, "raise {id}: {}", exception.note);
        if let Some(job) = self.manager.jobs.get_mut(&id).filter(|_| exception.severity == 0) {
            job.fail(&exception.kind, self.now);
            self.schedule_commit();
            self.publish(id, &exception.kind);
        }
    }

    /// The job manager publishes an exception to all modules.
    pub(super) fn publish(&mut self, id: JobId, kind: &str) {
        let exception = JobException { id, kind: kind.to_string(), severity: 0, wait_status: None };
        for rank in 0..self.profile.ranks {
            let to = self.life(rank);
            self.send_event(0, to, Event::Exception(exception.clone()));
        }
    }

    /// The resource module is to drain ranks. The reason contains the id of the job.
    pub(super) fn drain(&mut self, from: Life, waits: Option<JobId>, ranks: Idset, reason: &str) {
        note!(self, "drain {ranks}: {reason}");
        self.check_stuck(&ranks, reason);
        self.check_unkillable(&ranks, reason);
        let digests = self.digests_in(reason);
        if reason.starts_with("lost contact") {
            self.check_given_up(from.rank, &ranks, &digests);
        }
        let is_for_script = reason.starts_with("prolog ") || reason.starts_with("epilog ");
        let drained = if is_for_script { &mut self.drained_for_script } else { &mut self.drained };
        for digest in &digests {
            drained.extend(ranks.iter().map(|rank| (digest.clone(), rank)));
        }
        let is_away = self.resource_away_until > self.now;
        if is_away && waits.is_some() {
            for digest in &digests {
                let keys = ranks.iter().map(|rank| ((digest.clone(), rank), from));
                self.undrained.extend(keys);
            }
        }
        let item = Item::Drained(Box::new(AskedDrain { to: from, waits, ranks, digests }));
        if is_away {
            self.at(self.resource_away_until, item);
        } else {
            self.handle_item(item);
        }
    }

    /// The resource module has drained ranks. A module that is gone has not asked it again while it was
    /// away.
    pub(super) fn answer_drain(&mut self, drain: AskedDrain) {
        if self.resource_away_until > self.now {
            return self.at(self.resource_away_until, Item::Drained(Box::new(drain)));
        }
        let AskedDrain { to, waits, ranks, digests } = drain;
        if self.is_alive(to) {
            for digest in digests {
                for rank in ranks.iter() {
                    self.undrained.remove(&(digest.clone(), rank));
                }
                self.drain_answered.extend(ranks.iter().map(|rank| (digest.clone(), rank)));
            }
            if let Some(id) = waits {
                self.send_event(0, to, Event::Drained { id, ranks });
            }
        }
    }

    /// The jobs whose ids are in a text.
    pub(crate) fn digests_in(&self, text: &str) -> Vec<String> {
        let known = self.allocations.iter();
        let named = known.filter(|(_, known)| text.contains(&known.id.to_string()));
        named.map(|(digest, _)| digest.clone()).collect()
    }
}

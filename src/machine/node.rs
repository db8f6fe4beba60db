//! All roles of one rank, and the way of messages between them.

use std::collections::{BTreeMap, VecDeque};

use crate::config::Config;
use crate::machine::agent::AgentJob;
use crate::machine::coordinator::Coordinator;
use crate::machine::effect::{Effect, Effects, Level, Owner};
use crate::machine::event::{Event, Fault, RequestId, StreamId};
use crate::machine::job::Job;
use crate::machine::stats::Counters;
use crate::machine::{Context, Now};
use crate::port::supervisor::{Method, UnitCommand, UnitEvent};
use crate::proto::peer::{self, LeadRequest, OrderRequest, ShellsRequest};
use crate::proto::{BrokerRank, InstanceId, JobId, StartRequest, UnitName};

/// What does not change while the module is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// This rank.
    pub rank: BrokerRank,
    /// The instance owner's user id: whose jobs need no IMP.
    pub owner: u32,
    /// Identity of the instance in unit names.
    pub instance: InstanceId,
    /// This broker's `local-uri`: what shells connect to. Empty without a broker.
    pub local_uri: String,
    /// flux-core's job shell.
    pub job_shell: String,
    /// Where shells start.
    pub working_directory: Option<String>,
}

/// Where the answers of a stream go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Route {
    Coordinator,
    Shells(Owner, JobId),
}

/// The roles of one rank.
pub struct Node {
    config: Config,
    facts: Facts,
    pub(super) coordinator: Coordinator,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) agents: BTreeMap<JobId, AgentJob>,
    routes: BTreeMap<StreamId, Route>,
    pub(super) counters: Counters,
    pub(super) method: Option<Method>,
    pub(super) notice: Option<String>,
}

impl Node {
    /// A node without jobs.
    pub fn new(config: Config, facts: Facts) -> Self {
        Self {
            config,
            facts,
            coordinator: Coordinator::default(),
            jobs: BTreeMap::new(),
            agents: BTreeMap::new(),
            routes: BTreeMap::new(),
            counters: Counters::default(),
            method: None,
            notice: None,
        }
    }

    /// The facts it was made with.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When [`Event::Timeout`] is due, in monotonic seconds.
    pub fn next_timeout(&self) -> Option<f64> {
        let jobs = self.jobs.values().filter_map(Job::next_timeout);
        let agents = self.agents.values().filter_map(AgentJob::next_timeout);
        jobs.chain(agents).chain(self.coordinator.next_timeout()).reduce(f64::min)
    }

    /// Handles one event, and all that its effects bring about on this rank.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Effects) {
        let owner = match &event {
            Event::Reported { stream, .. } => match self.routes.get(stream) {
                Some(Route::Shells(owner, _)) => Some(*owner),
                Some(Route::Coordinator) | None => None,
            },
            _ => None,
        };
        self.counters.count_event(&event, owner);
        let mut queue = VecDeque::from([event]);
        while let Some(event) = queue.pop_front() {
            let done = out.list.len();
            self.dispatch(now, event, out);
            self.jobs.retain(|_, job| !job.is_released());
            self.agents.retain(|_, agent| !agent.is_done());
            let fresh = out.list.split_off(done);
            for effect in fresh {
                self.route(effect, &mut queue, out);
            }
        }
    }

    /// The module is being unloaded: tell the peers, and keep what shells wait for.
    pub fn shutdown(&mut self, out: &mut Effects) {
        for job in self.jobs.values_mut() {
            job.shutdown(out);
        }
        for agent in self.agents.values_mut() {
            agent.shutdown(out);
        }
        out.list.retain(|effect| match effect {
            Effect::End { to, .. } | Effect::Park { to, .. } => matches!(to, RequestId::Remote(_)),
            _ => true,
        });
    }

    fn dispatch(&mut self, now: Now, event: Event, out: &mut Effects) {
        let cx = Context { now, config: &self.config, facts: &self.facts };
        match event {
            Event::Config(config) => self.config = *config,
            Event::CriticalRanks { request, credential, id, ranks } => {
                let result = match self.agents.get_mut(&id) {
                    None => Err(not_found(id)),
                    Some(agent) if !agent.may_be_asked_by(credential) => Err(not_owner(id)),
                    Some(agent) => {
                        agent.critical(cx, ranks, out);
                        Ok(())
                    }
                };
                out.push(Effect::Answer { to: request, result });
            }
            Event::Exception(exception) => {
                self.coordinator.exception(&exception);
                if let Some(job) = self.jobs.get_mut(&exception.id) {
                    job.exception(cx, &exception, out);
                }
            }
            Event::Expiration { request, id, expiration } => {
                self.expiration(now, request, id, expiration, out);
            }
            Event::Kvs { id, result } => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.kvs(cx, result, out);
                }
            }
            Event::Lead { request, payload } => self.lead(now, request, &payload, out),
            Event::Order { payload } => match peer::decode::<OrderRequest>(&payload) {
                Ok(order) => {
                    if let Some(agent) = self.agents.get_mut(&order.id) {
                        agent.order(cx, &order, out);
                    }
                }
                Err(reason) => out.log(Level::Error, format!("order: {reason}")),
            },
            Event::Parked { request, id, entry } => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.barrier(cx, request, Some(entry), out);
                }
            }
            Event::Replied { stream, result } => {
                if result.is_err() {
                    self.routes.remove(&stream);
                }
                self.coordinator.replied(cx, stream, result, out);
            }
            Event::Reported { stream, result } => self.reported(now, stream, result, out),
            Event::ShellBarrier { request, credential, id, rank } => {
                let fault = match self.agents.get_mut(&id) {
                    None => not_found(id),
                    Some(agent) if !agent.may_be_asked_by(credential) => not_owner(id),
                    Some(_) if rank != cx.facts.rank => {
                        let message = format!("{id}: rank {rank} is not pending in barrier");
                        Fault::new(libc::EINVAL, message)
                    }
                    Some(agent) => return agent.barrier(cx, request, None, out),
                };
                out.push(Effect::Barrier { to: request, result: Err(fault) });
            }
            Event::Shells { request, payload } => match peer::decode::<ShellsRequest>(&payload) {
                Ok(shells) => {
                    let userid = shells.command.userid;
                    let agent = self.agents.entry(shells.id);
                    let agent = agent.or_insert_with(|| AgentJob::new(shells.id, userid));
                    agent.shells(cx, request, shells, out);
                }
                Err(reason) => {
                    let fault = Fault::new(libc::EPROTO, reason);
                    out.push(Effect::End { to: request, fault });
                }
            },
            Event::Start { request, payload } => {
                self.coordinator.start(cx, request, &payload, out);
            }
            Event::Timeout => {
                self.coordinator.timeout(cx, out);
                for job in self.jobs.values_mut() {
                    job.timeout(cx, out);
                }
                for agent in self.agents.values_mut() {
                    agent.timeout(now.mono, out);
                }
            }
            Event::Unit(event) => self.unit(now, event, out),
        }
    }

    fn lead(
        &mut self,
        now: Now,
        request: RequestId,
        payload: &serde_json::Value,
        out: &mut Effects,
    ) {
        let cx = Context { now, config: &self.config, facts: &self.facts };
        let decoded = peer::decode::<LeadRequest>(payload).and_then(|lead| {
            let start = StartRequest::from_json(&lead.start).map_err(|e| e.to_string())?;
            Ok((lead, start))
        });
        let (lead, start) = match decoded {
            Ok(decoded) => decoded,
            Err(reason) => {
                let fault = Fault::new(libc::EPROTO, reason);
                return out.push(Effect::End { to: request, fault });
            }
        };
        match self.jobs.get_mut(&start.id) {
            Some(job) if job.is_same(&start) => {
                job.lead(cx, request, start.reattach, lead.exception.as_ref(), out);
            }
            Some(_) | None => {
                let id = start.id;
                let job = Job::new(cx, request, start, &lead, out);
                self.jobs.insert(id, job);
            }
        }
    }

    fn expiration(
        &mut self,
        now: Now,
        request: RequestId,
        id: JobId,
        expiration: f64,
        out: &mut Effects,
    ) {
        let cx = Context { now, config: &self.config, facts: &self.facts };
        self.coordinator.set_expiration(id, expiration);
        let leader = self.coordinator.leader_of(id);
        if let Some(job) = self.jobs.get_mut(&id) {
            let result = job.expiration(cx, expiration, out);
            out.push(Effect::Answer { to: request, result });
        } else if let Some(to) = leader.filter(|rank| *rank != self.facts.rank) {
            out.push(Effect::Expire { to, request, id, expiration });
        } else {
            out.push(Effect::Answer { to: request, result: Err(not_found(id)) });
        }
    }

    fn reported(
        &mut self,
        now: Now,
        stream: StreamId,
        result: Result<peer::Reports, Fault>,
        out: &mut Effects,
    ) {
        let cx = Context { now, config: &self.config, facts: &self.facts };
        let route = self.routes.get(&stream).copied();
        if result.is_err() {
            self.routes.remove(&stream);
        }
        match route {
            Some(Route::Shells(Owner::Leader, id)) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.reported(cx, stream, result, out);
                }
            }
            Some(Route::Shells(Owner::Agent, id)) => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.child(cx, stream, result, out);
                }
            }
            Some(Route::Coordinator) | None => (),
        }
    }

    fn unit(&mut self, now: Now, event: UnitEvent, out: &mut Effects) {
        let cx = Context { now, config: &self.config, facts: &self.facts };
        let unit = match &event {
            UnitEvent::Exited { unit, .. }
            | UnitEvent::Failed { unit, .. }
            | UnitEvent::Gone { unit }
            | UnitEvent::Lost { unit, .. }
            | UnitEvent::Output { unit, .. }
            | UnitEvent::Started { unit, .. } => unit.clone(),
            UnitEvent::Found(record) => {
                let agent = AgentJob::found(record);
                self.agents.entry(record.spec.job).or_insert(agent);
                return;
            }
            UnitEvent::Ready { method, notice } => {
                self.method = Some(*method);
                self.notice.clone_from(notice);
                if let Some(notice) = notice {
                    out.log(Level::Warning, notice.clone());
                }
                return;
            }
            UnitEvent::Unusable { message } => {
                self.notice = Some(message.clone());
                return out.log(Level::Error, message.clone());
            }
        };
        match self.agents.get_mut(&unit.job()) {
            Some(agent) => agent.unit(cx, event, out),
            None => self.nobodys_unit(&unit, &event, out),
        }
    }

    /// A unit whose job was forgotten in the meantime: it goes as soon as it may.
    fn nobodys_unit(&mut self, unit: &UnitName, event: &UnitEvent, out: &mut Effects) {
        if matches!(event, UnitEvent::Gone { .. }) {
            out.push(Effect::Unit(UnitCommand::Forget { unit: unit.clone() }));
        }
    }

    /// Sends an effect out, or, if it is for a role of this rank, back in.
    fn route(&mut self, effect: Effect, queue: &mut VecDeque<Event>, out: &mut Effects) {
        let here = self.facts.rank;
        match effect {
            Effect::Lead { stream, to, request } => {
                self.routes.insert(stream, Route::Coordinator);
                if to != here {
                    let effect = Effect::Lead { stream, to, request };
                    self.counters.count_effect(&effect);
                    return out.push(effect);
                }
                let payload = serde_json::json!(request);
                queue.push_back(Event::Lead { request: RequestId::Local(stream), payload });
            }
            Effect::Shells { owner, stream, to, request } => {
                self.routes.insert(stream, Route::Shells(owner, request.id));
                if to != here {
                    let effect = Effect::Shells { owner, stream, to, request };
                    self.counters.count_effect(&effect);
                    return out.push(effect);
                }
                let payload = serde_json::json!(request);
                queue.push_back(Event::Shells { request: RequestId::Local(stream), payload });
            }
            Effect::Order { to, request } if to == here => {
                queue.push_back(Event::Order { payload: serde_json::json!(request) });
            }
            Effect::Reply { to: RequestId::Local(stream), response } => {
                queue.push_back(Event::Replied { stream, result: Ok(response) });
            }
            Effect::Report { to: RequestId::Local(stream), reports } => {
                queue.push_back(Event::Reported { stream, result: Ok(reports) });
            }
            Effect::End { to: RequestId::Local(stream), fault } => match self.routes.get(&stream) {
                Some(Route::Coordinator) => {
                    queue.push_back(Event::Replied { stream, result: Err(fault) });
                }
                Some(Route::Shells(..)) => {
                    queue.push_back(Event::Reported { stream, result: Err(fault) });
                }
                None => (),
            },
            Effect::Drop { to: RequestId::Local(stream) } => {
                self.routes.remove(&stream);
            }
            effect => {
                self.counters.count_effect(&effect);
                out.push(effect);
            }
        }
    }
}

fn not_found(id: JobId) -> Fault {
    Fault::new(libc::ENOENT, format!("{id}: job not found"))
}

fn not_owner(id: JobId) -> Fault {
    Fault::new(libc::EPERM, format!("{id}: the job belongs to another user"))
}

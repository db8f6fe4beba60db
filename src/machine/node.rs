//! All roles of one rank, and the way of messages between them.

use std::collections::{BTreeMap, VecDeque};

use crate::config::Config;
use crate::machine::agent::Agent;
use crate::machine::coordinator::Coordinator;
use crate::machine::effect::{Answer, Effect, Effects, Level, Role, StreamItem};
use crate::machine::event::{Credential, Event, Fault, RequestId, StreamId};
use crate::machine::leader::Leader;
use crate::machine::recently_ended::RecentlyEnded;
use crate::machine::schedule::{Schedule, Waiter};
use crate::machine::stats::Counters;
use crate::machine::{Context, Now};
use crate::port::supervisor::{Method, UnitCommand, UnitEvent};
use crate::proto::peer::{
    KnownRequest, LeadReply, LeadRequest, Question, Reports, ShellsRequest, StreamEnd, Version,
};
use crate::proto::{BrokerRank, InstanceId, JobDigest, JobId, UnitName};

/// What does not change while the module is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// This rank.
    pub rank: BrokerRank,
    /// The instance owner's user id: whose jobs need no IMP.
    pub owner: u32,
    /// Identity of the instance in unit names.
    pub instance: InstanceId,
    /// What shells connect to. Empty without a broker.
    pub shell_uri: String,
    /// Why shells do without the resume connector, if they do.
    pub no_connector: Option<String>,
    /// flux-core's job shell.
    pub job_shell: String,
    /// This instance is itself a job, and ends with it for good: nobody will come back for a
    /// unit that failed.
    pub nested: bool,
    /// Where shells start.
    pub working_directory: Option<String>,
}

/// What machines may look at, without borrowing the whole node.
macro_rules! context {
    ($node:ident, $now:ident) => {
        Context {
            now: $now,
            born: $node.born.unwrap_or($now),
            config: &$node.config,
            facts: &$node.facts,
            shells_survive: $node.supervisor == SupervisorState::Ready(Method::Systemd),
        }
    };
}

/// Where the answers of a stream go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Route {
    Coordinator(JobId),
    Shells(Role, JobId),
}

/// The roles of one rank.
pub struct Node {
    config: Config,
    facts: Facts,
    pub(super) coordinator: Coordinator,
    pub(super) leaders: BTreeMap<JobId, Leader>,
    pub(super) agents: BTreeMap<JobId, Agent>,
    routes: BTreeMap<StreamId, Route>,
    /// Jobs that are over: a request for their shells can only be late.
    recently_ended: RecentlyEnded,
    schedule: Schedule,
    /// When the first event came: a coordinator knows its jobs only after a while.
    born: Option<Now>,
    /// Requests to lead that came before the supervisor had looked at what is on the node.
    early: Vec<(RequestId, Box<LeadRequest>)>,
    pub(super) counters: Counters,
    pub(super) supervisor: SupervisorState,
    pub(super) notice: Option<String>,
}

/// What the supervisor has said of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SupervisorState {
    /// Nothing yet: it looks at what is on the node.
    Starting,
    /// All that it has found was told.
    Ready(Method),
    /// It can do nothing.
    Unusable,
}

impl Node {
    /// A node without jobs.
    pub fn new(config: Config, facts: Facts) -> Self {
        Self {
            config,
            facts,
            coordinator: Coordinator::default(),
            leaders: BTreeMap::new(),
            agents: BTreeMap::new(),
            routes: BTreeMap::new(),
            recently_ended: RecentlyEnded::default(),
            schedule: Schedule::default(),
            born: None,
            early: Vec::new(),
            counters: Counters::default(),
            supervisor: SupervisorState::Starting,
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
        self.schedule.next()
    }

    /// Handles one event, and all that its effects bring about on this rank.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Effects) {
        self.counters.count_event(&event, self.role_of(&event));
        let mut queue = VecDeque::from([event]);
        while let Some(event) = queue.pop_front() {
            let done = out.list.len();
            let jobs = self.jobs_of(now, &event);
            self.dispatch(now, event, out);
            for id in jobs {
                self.settle(now, id);
            }
            self.schedule.set(Waiter::Checkpoint, self.coordinator.next_checkpoint());
            if self.supervisor != SupervisorState::Starting {
                let early = self.early.drain(..);
                queue.extend(early.map(|(request, lead)| Event::Lead { request, lead }));
            }
            let fresh = out.list.split_off(done);
            for effect in fresh {
                self.route(now, effect, &mut queue, out);
            }
        }
    }

    /// Whose stream an event is about, if it is about one of reports.
    pub(super) fn role_of(&self, event: &Event) -> Option<Role> {
        match event {
            Event::KnownAnswered { asker, .. } => Some(*asker),
            Event::Reported { stream, .. } => match self.routes.get(stream) {
                Some(Route::Shells(role, _)) => Some(*role),
                Some(Route::Coordinator(_)) | None => None,
            },
            _ => None,
        }
    }

    /// Who waits for a time that has come.
    pub(super) fn due(&self, now: Now) -> Vec<Waiter> {
        self.schedule.due(now.mono)
    }

    /// Streams whose answers are still routed.
    pub(super) fn routes(&self) -> usize {
        self.routes.len()
    }

    /// The jobs that an event can touch.
    pub(super) fn jobs_of(&self, now: Now, event: &Event) -> Vec<JobId> {
        let of_stream = |stream: &StreamId| match self.routes.get(stream)? {
            Route::Coordinator(id) | Route::Shells(_, id) => Some(*id),
        };
        let one = match event {
            Event::CheckpointAsked { id, .. }
            | Event::CriticalRanks { id, .. }
            | Event::Expiration { id, .. }
            | Event::KnownAnswered { id, .. }
            | Event::Kvs { id, .. }
            | Event::Parked { id, .. }
            | Event::ShellBarrier { id, .. } => Some(*id),
            Event::Exception(exception) => Some(exception.id),
            Event::Lead { lead, .. } => Some(lead.start.id),
            Event::Covered(covered) => Some(covered.id),
            Event::Order(order) => Some(order.id),
            Event::Shells { shells, .. } => Some(shells.id),
            Event::Start { start, .. } => (**start).as_ref().ok().map(|start| start.id),
            Event::Replied { stream, .. } | Event::Reported { stream, .. } => of_stream(stream),
            Event::Unit(event) => event.unit().map(UnitName::job),
            Event::Checkpointed(_) | Event::Config(_) | Event::Known { .. } => None,
            // A user can have many of these: no job is looked at for them.
            Event::Disconnected { request } if self.coordinator.has_asked(*request) => None,
            Event::Disconnected { .. } => return self.agents.keys().copied().collect(),
            Event::Timeout => {
                let due = self.schedule.due(now.mono).into_iter();
                return due
                    .filter_map(|waiter| match waiter {
                        Waiter::Agent(id) | Waiter::Coordinator(id) | Waiter::Leader(id) => {
                            Some(id)
                        }
                        Waiter::Checkpoint => None,
                    })
                    .collect();
            }
        };
        one.into_iter().collect()
    }

    /// Lets go of what has ended, and notes when the rest wants to be called.
    fn settle(&mut self, now: Now, id: JobId) {
        if self.leaders.get(&id).is_some_and(Leader::is_released) {
            self.leaders.remove(&id);
        }
        if self.agents.get(&id).is_some_and(Agent::is_done)
            && let Some(agent) = self.agents.remove(&id)
            && let Some(digest) = agent.over_digest()
        {
            self.recently_ended.insert(now.mono, id, digest);
        }
        let leader = self.leaders.get(&id).and_then(Leader::next_timeout);
        let agent = self.agents.get(&id).and_then(Agent::next_timeout);
        self.schedule.set(Waiter::Leader(id), leader);
        self.schedule.set(Waiter::Agent(id), agent);
        self.schedule.set(Waiter::Coordinator(id), self.coordinator.next_timeout(id));
    }

    /// The module is being unloaded: tell the peers, and keep what shells wait for.
    pub fn shut_down(&mut self, out: &mut Effects) {
        for leader in self.leaders.values_mut() {
            leader.shut_down(out);
        }
        for agent in self.agents.values_mut() {
            agent.shut_down(out);
        }
        self.coordinator.shut_down(out);
        for (to, _) in self.early.drain(..) {
            out.end(to, StreamEnd::Unloaded);
        }
        out.list.retain(|effect| match effect {
            Effect::Answer { to, .. } | Effect::Park { to, .. } => {
                matches!(to, RequestId::Remote(_))
            }
            _ => true,
        });
    }

    fn dispatch(&mut self, now: Now, event: Event, out: &mut Effects) {
        self.born.get_or_insert(now);
        let cx = context!(self, now);
        match event {
            Event::CheckpointAsked { request, credential, id } => {
                self.coordinator.handle_checkpoint_asked(cx, request, credential, id, out);
            }
            Event::Checkpointed(result) => self.coordinator.handle_checkpointed(cx, result, out),
            Event::Config(config) => self.reconfigure(*config, out),
            Event::Covered(covered) => {
                if let Some(leader) = self.leaders.get_mut(&covered.id) {
                    leader.handle_covered(&covered, out);
                }
            }
            Event::CriticalRanks { request, credential, id, ranks } => {
                let agent = of_user(self.agents.get_mut(&id), id, credential);
                let result = agent.and_then(|agent| agent.handle_critical_ranks(cx, &ranks, out));
                out.done(request, result);
            }
            Event::Disconnected { request } => self.handle_disconnect(now, request, out),
            Event::Exception(exception) => {
                self.coordinator.handle_exception(cx, &exception, out);
                if let Some(leader) = self.leaders.get_mut(&exception.id) {
                    leader.handle_exception(cx, &exception, out);
                }
            }
            Event::Expiration { request, id, expiration } => {
                self.handle_expiration(now, request, id, expiration, out);
            }
            Event::Known { request, asked } => {
                let answer = Answer::Known(self.answer_known(now, &asked));
                out.push(Effect::Answer { to: request, answer });
            }
            Event::KnownAnswered { id, asker: Role::Agent, question, result } => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.handle_known(cx, question, result, out);
                }
            }
            Event::KnownAnswered { id, asker: Role::Leader, result, .. } => {
                if let Some(leader) = self.leaders.get_mut(&id) {
                    leader.handle_known(result, out);
                }
            }
            Event::Kvs { id, result } => {
                if let Some(leader) = self.leaders.get_mut(&id) {
                    leader.handle_kvs(cx, result, out);
                }
            }
            Event::Lead { request, lead } => self.handle_lead(now, request, lead, out),
            Event::Order(order) => {
                if let Some(agent) = self.agents.get_mut(&order.id) {
                    agent.handle_order(cx, &order, out);
                }
            }
            Event::Parked { request, id, entry } => match self.agents.get_mut(&id) {
                Some(agent) => agent.handle_barrier(cx, request, Some(entry), out),
                None => out.push(Effect::Drop { to: request }),
            },
            Event::Replied { stream, result } => self.handle_reply(now, stream, result, out),
            Event::Reported { stream, result } => self.handle_reports(now, stream, result, out),
            Event::ShellBarrier { request, credential, id, rank, entry } => {
                self.handle_barrier(now, request, credential, (id, rank, entry), out);
            }
            Event::Shells { request, shells } => self.handle_shells(now, request, *shells, out),
            Event::Start { request, start } => {
                self.coordinator.handle_start(cx, request, *start, out)
            }
            Event::Timeout => {
                for waiter in self.schedule.due(now.mono) {
                    self.handle_timeout(now, waiter, out);
                }
            }
            Event::Unit(event) => self.handle_unit(now, event, out),
        }
    }

    fn handle_reply(
        &mut self,
        now: Now,
        stream: StreamId,
        result: Result<LeadReply, StreamEnd>,
        out: &mut Effects,
    ) {
        let Some(Route::Coordinator(id)) = self.routes.get(&stream).copied() else { return };
        if result.is_err() {
            self.routes.remove(&stream);
        }
        self.coordinator.handle_reply(context!(self, now), id, stream, result, out);
    }

    fn handle_disconnect(&mut self, now: Now, request: RequestId, out: &mut Effects) {
        if self.coordinator.has_asked(request) {
            return self.coordinator.handle_disconnect(request, out);
        }
        let early = self.early.len();
        self.early.retain(|(to, _)| *to != request);
        if self.early.len() < early {
            return out.push(Effect::Drop { to: request });
        }
        let cx = context!(self, now);
        for leader in self.leaders.values_mut() {
            leader.handle_disconnect(request, out);
        }
        for agent in self.agents.values_mut() {
            agent.handle_disconnect(cx, request, out);
        }
    }

    fn handle_barrier(
        &mut self,
        now: Now,
        request: RequestId,
        credential: Credential,
        (id, rank, entry): (JobId, BrokerRank, Option<u32>),
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        let agent = of_user(self.agents.get_mut(&id), id, credential);
        match agent.and_then(|agent| of_rank(agent, id, rank, cx.facts.rank)) {
            Ok(agent) => agent.handle_barrier(cx, request, entry, out),
            Err(fault) => out.barrier(request, Err(fault)),
        }
    }

    fn handle_timeout(&mut self, now: Now, waiter: Waiter, out: &mut Effects) {
        let cx = context!(self, now);
        match waiter {
            Waiter::Agent(id) => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.handle_timeout(cx, out);
                }
            }
            Waiter::Checkpoint => self.coordinator.handle_checkpoint_timeout(cx, out),
            Waiter::Coordinator(id) => self.coordinator.handle_timeout(cx, id, out),
            Waiter::Leader(id) => {
                if let Some(leader) = self.leaders.get_mut(&id) {
                    leader.handle_timeout(cx, out);
                }
            }
        }
    }

    /// Whether the job manager has a job running, as far as can be said yet.
    fn answer_known(&mut self, now: Now, request: &KnownRequest) -> Result<bool, Fault> {
        let leader = self.leaders.get(&request.id);
        match request.question {
            Question::Leader { generation } => {
                return Ok(leader.is_some_and(|job| job.leads(&request.digest, generation)));
            }
            Question::Manager => (),
            Question::Parent => {
                let agent = self.agents.get(&request.id);
                return Ok(leader.is_some() || agent.is_some_and(Agent::is_led));
            }
        }
        let cx = context!(self, now);
        if now.mono - cx.born.mono < self.config.peer_timeout / 2.0 {
            let message = "the coordinator was loaded a moment ago".to_string();
            return Err(Fault::new(libc::EAGAIN, message));
        }
        self.coordinator.has(cx, request.id, &request.digest).ok_or_else(|| {
            let message = "no checkpoint has been made since the coordinator was loaded";
            Fault::new(libc::EAGAIN, message.to_string())
        })
    }

    fn handle_shells(
        &mut self,
        now: Now,
        request: RequestId,
        shells: ShellsRequest,
        out: &mut Effects,
    ) {
        if self.recently_ended.contains(shells.id, &shells.command.digest) {
            return out.end(request, StreamEnd::superseded("the job has ended"));
        }
        let userid = shells.command.userid;
        let agent = self.agents.entry(shells.id);
        let agent = agent.or_insert_with(|| Agent::new(shells.id, userid));
        agent.handle_shells(context!(self, now), request, shells, out);
    }

    /// A leader has to know whether the job has run before. The coordinator can be wrong about
    /// that, because clocks can jump; so the leader's own rank is asked as well, once its
    /// supervisor has told what it has found.
    fn handle_lead(
        &mut self,
        now: Now,
        request: RequestId,
        mut lead: Box<LeadRequest>,
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        let id = lead.start.id;
        if self.supervisor == SupervisorState::Starting {
            return self.early.push((request, lead));
        }
        match self.leaders.get_mut(&id) {
            Some(leader) if leader.is_same(&lead.start) => {
                leader.handle_lead(cx, request, lead.start.reattach, lead.exception.as_ref(), out);
            }
            Some(_) | None => {
                let digest = JobDigest::new(id, lead.start.userid, &lead.start.r);
                let agent = self.agents.get(&id);
                lead.again |= agent.is_some_and(|agent| agent.has_shell_of(&digest));
                lead.again |= !lead.lost.is_empty();
                self.leaders.insert(id, Leader::new(cx, request, *lead, out));
            }
        }
    }

    fn reconfigure(&mut self, config: Config, out: &mut Effects) {
        let old = std::mem::replace(&mut self.config, config);
        let new = &self.config;
        let at_load = |config: &Config| (config.method, config.starts_in_flight, config.output);
        if at_load(&old) != at_load(new) {
            let text = "exec.method, exec.service, exec.starts-in-flight, exec.output-limit and \
                        exec.output-disk-limit take effect when the module is loaded again";
            out.log(Level::Warning, text);
        }
    }

    fn handle_expiration(
        &mut self,
        now: Now,
        request: RequestId,
        id: JobId,
        expiration: f64,
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        self.coordinator.set_expiration(id, expiration);
        let leader = self.coordinator.leader_of(id);
        if let Some(leader) = self.leaders.get_mut(&id) {
            let result = leader.handle_expiration(cx, expiration, out);
            out.done(request, result);
        } else if let Some(to) = leader.filter(|rank| *rank != self.facts.rank) {
            out.push(Effect::Expire { to, request, id, expiration });
        } else {
            out.done(request, Err(not_found(id)));
        }
    }

    fn handle_reports(
        &mut self,
        now: Now,
        stream: StreamId,
        result: Result<Reports, StreamEnd>,
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        let Some(Route::Shells(owner, id)) = self.routes.get(&stream).copied() else { return };
        if result.is_err() {
            self.routes.remove(&stream);
        }
        match owner {
            Role::Leader => {
                if let Some(leader) = self.leaders.get_mut(&id) {
                    leader.handle_reports(cx, stream, result, out);
                }
            }
            Role::Agent => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.handle_reports(cx, stream, result, out);
                }
            }
        }
    }

    fn handle_unit(&mut self, now: Now, event: UnitEvent, out: &mut Effects) {
        let cx = context!(self, now);
        let unit = match &event {
            UnitEvent::Exited { unit, .. }
            | UnitEvent::Failed { unit, .. }
            | UnitEvent::Gone { unit }
            | UnitEvent::Left { unit }
            | UnitEvent::Lost { unit, .. }
            | UnitEvent::NeverStarted { unit }
            | UnitEvent::Output { unit, .. }
            | UnitEvent::OutputOverflow { unit, .. }
            | UnitEvent::OutputTruncated { unit, .. }
            | UnitEvent::Started { unit, .. }
            | UnitEvent::Stopping { unit } => unit.clone(),
            UnitEvent::Found(record) => {
                let agent = Agent::found(cx, record);
                self.agents.entry(record.spec.job).or_insert(agent);
                return;
            }
            UnitEvent::Ready { method, notice } => {
                self.supervisor = SupervisorState::Ready(*method);
                self.notice.clone_from(notice);
                if let Some(notice) = notice {
                    out.log(Level::Warning, notice.clone());
                }
                return;
            }
            UnitEvent::Unusable { message } => {
                self.supervisor = SupervisorState::Unusable;
                self.notice = Some(message.clone());
                return out.log(Level::Error, message.clone());
            }
        };
        match self.agents.get_mut(&unit.job()) {
            Some(agent) => agent.handle_unit(cx, event, out),
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
    fn route(&mut self, now: Now, effect: Effect, queue: &mut VecDeque<Event>, out: &mut Effects) {
        let here = self.facts.rank;
        match effect {
            Effect::Lead { stream, to, request } => {
                self.routes.insert(stream, Route::Coordinator(request.start.id));
                if to != here {
                    let effect = Effect::Lead { stream, to, request };
                    self.counters.count_effect(&effect);
                    return out.push(effect);
                }
                queue.push_back(Event::Lead { request: RequestId::Local(stream), lead: request });
            }
            Effect::Shells { role, stream, to, request } => {
                self.routes.insert(stream, Route::Shells(role, request.id));
                if to != here {
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
                queue.push_back(Event::KnownAnswered { id, asker, question, result });
            }
            Effect::Stream { to: RequestId::Local(stream), item: StreamItem::Reply(reply) } => {
                queue.push_back(Event::Replied { stream, result: Ok(reply) });
            }
            Effect::Stream { to: RequestId::Local(stream), item: StreamItem::Reports(reports) } => {
                queue.push_back(Event::Reported { stream, result: Ok(reports) });
            }
            Effect::Answer { to: RequestId::Local(stream), answer: Answer::End(end) } => {
                match self.routes.get(&stream) {
                    Some(Route::Coordinator(_)) => {
                        queue.push_back(Event::Replied { stream, result: Err(end) });
                    }
                    Some(Route::Shells(..)) => {
                        queue.push_back(Event::Reported { stream, result: Err(end) });
                    }
                    None => (),
                }
            }
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

/// The agent, if it is there and the sender may ask it.
fn of_user(
    agent: Option<&mut Agent>,
    id: JobId,
    credential: Credential,
) -> Result<&mut Agent, Fault> {
    let agent = agent.ok_or_else(|| not_found(id))?;
    if agent.may_be_asked_by(credential) {
        Ok(agent)
    } else {
        Err(Fault::new(libc::EPERM, format!("{id}: the job belongs to another user")))
    }
}

/// The agent, if the shell that asks it is its own.
fn of_rank(
    agent: &mut Agent,
    id: JobId,
    rank: BrokerRank,
    here: BrokerRank,
) -> Result<&mut Agent, Fault> {
    if rank == here {
        return Ok(agent);
    }
    let message = format!("{id}: rank {rank} is not pending in barrier");
    Err(Fault::new(libc::EINVAL, message))
}

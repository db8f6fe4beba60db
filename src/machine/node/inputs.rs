//! To which role each event goes.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde_json::json;

use super::{Node, Route, context};
use crate::config::Config;
use crate::machine::agent::Agent;
use crate::machine::context::{Context, Now, SupervisorState};
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::{Credential, Event, Fault, KvsResult, RequestId, Role, StreamId};
use crate::machine::leader::Leader;
use crate::machine::peer_request::known_answer;
use crate::machine::request::Topic;
use crate::machine::schedule::Waiter;
use crate::port::supervisor::{Method, SupervisorEvent, UnitCommand, UnitEvent};
use crate::proto::peer::{
    CoveredRequest, KnownRequest, LeadReply, LeadRequest, Order, OrderRequest, Question, Reports,
    ShellsRequest, StreamEnd, Version,
};
use crate::proto::{
    BarrierEntry, Bequest, BrokerRank, DegradedNodes, Idset, JobDigest, JobException, JobId,
    WaitStatus, WallTime,
};

impl Node {
    /// Brings an event to the roles that it is for.
    pub(super) fn dispatch(&mut self, now: Now, event: Event, out: &mut Effects) {
        self.born.get_or_insert(now);
        let cx = context!(self, now);
        match event {
            Event::CheckpointAsked { request, credential, id } => {
                self.coordinator.handle_checkpoint_asked(cx, request, credential, id, out);
            }
            Event::CheckpointBegun => self.coordinator.handle_checkpoint_begun(cx, out),
            Event::Checkpointed(result) => self.coordinator.handle_checkpointed(cx, result, out),
            Event::Cleaning(cleaning) => self.coordinator.handle_cleaning(cx, *cleaning, out),
            Event::Config(config) => self.reconfigure(*config, out),
            Event::Covered(covered) => self.handle_covered(now, &covered, out),
            Event::CriticalRanks { request, credential, id, ranks } => {
                self.handle_critical_ranks(now, request, (id, credential), &ranks, out);
            }
            Event::Degraded { request, credential, degraded } => {
                self.mark(request, credential, &degraded, out);
            }
            Event::Disconnected { request } => self.handle_disconnect(now, request, out),
            Event::Exception(exception) => self.handle_exception(now, &exception, out),
            Event::Expiration { request, id, expiration } => {
                self.handle_expiration(now, request, id, expiration, out);
            }
            Event::KeepCommits { request, credential, id, bequest } => {
                self.handle_bequest(request, (id, credential), &bequest, out);
            }
            Event::Held { id, result } => self.coordinator.handle_held(cx, id, result, out),
            Event::Drained { id, ranks } => self.handle_drained(now, id, &ranks, out),
            Event::KillAnswered { id } => {
                self.leaders.get_mut(&id).into_iter().for_each(Leader::handle_kill_answered);
            }
            Event::Known { request, asked } => self.tell_known(now, request, &asked, out),
            Event::KnownAnswered { id, asker, to, digest, question, result } => {
                let asked = KnownRequest { version: Version, id, digest, question };
                self.handle_known(now, (asker, to, &asked), result, out);
            }
            Event::Kvs { id, result } => self.handle_kvs(now, id, result, out),
            Event::KvsChanged => self.coordinator.handle_kvs_changed(cx),
            Event::Lead { request, lead } => self.handle_lead(now, request, lead, out),
            Event::NotCleaning { id } => self.coordinator.handle_not_cleaning(id),
            Event::Order(order) => self.handle_order(now, &order, out),
            Event::Override { request, credential, id, event, status } => {
                self.handle_override(now, request, credential, (id, &event, status), out);
            }
            Event::ParentDegraded { at, nodes } => self.coordinator.handle_parent(at, nodes, out),
            Event::PerilogRelease { request, release } => self.release(now, request, &release, out),
            Event::ReleaseKept { id } => self.coordinator.handle_release_kept(cx, id, out),
            Event::Replied { stream, result } => self.handle_reply(now, stream, result, out),
            Event::Reported { stream, result } => self.handle_reports(now, stream, result, out),
            Event::Resources(news) => self.coordinator.handle_resources(&news, out),
            Event::RunningAsked(listing) => self.coordinator.handle_running_asked(listing),
            Event::ShellBarrier { request, credential, id, rank, entry } => {
                self.handle_barrier(now, request, credential, (id, rank, entry), out);
            }
            Event::ShellRuns { request, credential, id, rank } => {
                out.done(request, self.answer_shell_runs(id, rank, credential));
            }
            Event::Shells { request, shells } => self.handle_shells(now, request, *shells, out),
            Event::Start { request, start } => {
                self.coordinator.handle_start(cx, request, *start, out)
            }
            Event::Told { asker, id, nodes, result } => {
                self.handle_told(now, asker, (id, &nodes, result), out);
            }
            Event::Timeout => self.handle_due(now, out),
            Event::Supervisor(event) => self.handle_supervisor(now, event, out),
        }
    }

    /// The resource module has answered a leader.
    fn handle_drained(&mut self, now: Now, id: JobId, ranks: &Idset, out: &mut Effects) {
        let cx = context!(self, now);
        if let Some(leader) = self.leaders.get_mut(&id) {
            leader.handle_drained(cx, ranks, out);
        }
    }

    /// The coordinator tells what a checkpoint holds.
    fn handle_covered(&mut self, now: Now, covered: &CoveredRequest, out: &mut Effects) {
        let cx = context!(self, now);
        if let Some(leader) = self.leaders.get_mut(&covered.id) {
            leader.handle_covered(cx, covered, out);
        }
    }

    /// A nested instance says which of its ranks it cannot do without.
    fn handle_critical_ranks(
        &mut self,
        now: Now,
        request: RequestId,
        (id, credential): (JobId, Credential),
        ranks: &str,
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        let agent = self.agents.get_mut(&id);
        let result = if agent.is_none() && !credential.local {
            // The job's rank has passed it on, because the module is not loaded there.
            Err(Fault::new(libc::ENOSYS, format!("{id}: rank {} does not run it", cx.facts.rank)))
        } else {
            of_user(agent, id, credential)
                .and_then(|agent| agent.handle_critical_ranks(cx, ranks, out))
        };
        out.done(request, result);
    }

    /// The job's eventlog has the event that tells of degraded nodes, or it could not be written.
    fn handle_told(
        &mut self,
        now: Now,
        asker: Role,
        (id, nodes, result): (JobId, &DegradedNodes, Result<bool, Fault>),
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        if asker == Role::Coordinator {
            self.coordinator.handle_told(id, nodes, result, out);
        } else if let Some(leader) = self.leaders.get_mut(&id) {
            leader.handle_told(cx, &result, out);
        }
    }

    /// A client of a job on this rank leaves commits.
    fn handle_bequest(
        &mut self,
        request: RequestId,
        (id, credential): (JobId, Credential),
        bequest: &Arc<Bequest>,
        out: &mut Effects,
    ) {
        let owner = self.agents.get(&id).and_then(Agent::kept).map(|(userid, _)| userid);
        let others = self.agents.iter().filter(|(other, _)| **other != id);
        let others = others.filter_map(|(_, agent)| agent.kept());
        let others = others.filter(|(userid, _)| Some(*userid) == owner);
        let others = others.map(|(_, bytes)| bytes).sum();
        let agent = of_user(self.agents.get_mut(&id), id, credential);
        let kept = agent.and_then(|agent| agent.handle_keep_commits(request, bequest, others, out));
        if let Err(fault) = kept {
            out.done(request, Err(fault));
        }
    }

    fn handle_exception(&mut self, now: Now, exception: &JobException, out: &mut Effects) {
        let cx = context!(self, now);
        self.coordinator.handle_exception(cx, exception, out);
        if let Some(leader) = self.leaders.get_mut(&exception.id) {
            leader.handle_exception(cx, exception, out);
        }
        if let Some(agent) = self.agents.get_mut(&exception.id) {
            agent.handle_exception(cx, exception, out);
        }
    }

    fn handle_kvs(&mut self, now: Now, id: JobId, result: KvsResult, out: &mut Effects) {
        let cx = context!(self, now);
        match result {
            KvsResult::Recommitted { client, result } => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.handle_recommitted(cx, &client, result, out);
                }
            }
            KvsResult::Released(result) => self.coordinator.handle_released(cx, id, result, out),
            result => {
                if let Some(leader) = self.leaders.get_mut(&id) {
                    leader.handle_kvs(cx, result, out);
                }
            }
        }
    }

    fn handle_order(&mut self, now: Now, order: &OrderRequest, out: &mut Effects) {
        if order.order == Order::Forget {
            self.unreadable.forget(order.id, out);
        }
        if let Some(agent) = self.agents.get_mut(&order.id) {
            agent.handle_order(context!(self, now), order, out);
        }
    }

    fn handle_known(
        &mut self,
        now: Now,
        (asker, to, asked): (Role, BrokerRank, &KnownRequest),
        result: Result<bool, Fault>,
        out: &mut Effects,
    ) {
        if let Question::Request { stream, .. } = asked.question {
            return self.end_lost(stream, result, out);
        }
        let cx = context!(self, now);
        match (asker, self.agents.get_mut(&asked.id), self.leaders.get_mut(&asked.id)) {
            (Role::Agent, Some(agent), _) => agent.handle_known(cx, (to, asked), result, out),
            (Role::Leader, _, Some(leader)) => leader.handle_known(asked, result, out),
            (Role::Agent | Role::Coordinator | Role::Leader, ..) => (),
        }
    }

    fn handle_reply(
        &mut self,
        now: Now,
        stream: StreamId,
        result: Result<LeadReply, StreamEnd>,
        out: &mut Effects,
    ) {
        let Some(id) = self.take_answer(stream, result.is_err()).map(|route| route.id) else {
            return;
        };
        self.coordinator.handle_reply(context!(self, now), id, (stream, result), out);
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
        self.unreadable.handle_disconnect(request, out);
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
        (id, rank, entry): (JobId, BrokerRank, Option<BarrierEntry>),
        out: &mut Effects,
    ) {
        if rank != self.facts.rank {
            // The broker of that rank has passed it on, because the module is not loaded there.
            let message = format!("{id}: job-exec-rs is not loaded on rank {rank}");
            return out.barrier(request, Err(Fault::new(libc::ENOSYS, message)));
        }
        let cx = context!(self, now);
        match of_user(self.agents.get_mut(&id), id, credential) {
            Ok(agent) => agent.handle_barrier(cx, request, entry, out),
            Err(fault) => out.barrier(request, Err(fault)),
        }
    }

    /// Whether the job's shell on this rank, or on another one if this rank leads the job, runs, or is
    /// going to: `ESRCH` if it has ended, or was given up.
    fn answer_shell_runs(
        &mut self,
        id: JobId,
        rank: Option<BrokerRank>,
        credential: Credential,
    ) -> Result<(), Fault> {
        if self.is_starting() {
            let message = format!("{id}: this rank does not know its shells yet");
            return Err(Fault::new(libc::EAGAIN, message));
        }
        let agent = of_user(self.agents.get_mut(&id), id, credential)?;
        let rank = rank.unwrap_or(self.facts.rank);
        let has_ended = if rank == self.facts.rank {
            agent.shell_has_ended()
        } else {
            self.leaders.get(&id).is_some_and(|leader| leader.shell_has_ended(rank))
        };
        if has_ended {
            return Err(Fault::new(
                libc::ESRCH,
                format!("{id}: its shell on rank {rank} has ended"),
            ));
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Now, out: &mut Effects) {
        for waiter in self.schedule.due(now.mono) {
            self.handle_timeout(now, waiter, out);
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
            Waiter::Checkpoint => self.coordinator.advance_checkpoint(cx, out),
            Waiter::Coordinator(id) => self.coordinator.handle_timeout(cx, id, out),
            Waiter::Leader(id) => {
                if let Some(leader) = self.leaders.get_mut(&id) {
                    leader.handle_timeout(cx, out);
                }
            }
            Waiter::Ledger => self.tell_ledger(out),
            Waiter::Systemd => self.drain_silent(now, out),
            Waiter::Stream(stream) => self.ask_silent(now, stream, out),
        }
    }

    fn tell_known(&mut self, now: Now, to: RequestId, asked: &KnownRequest, out: &mut Effects) {
        out.reply(to, known_answer(self.answer_known(now, asked)));
    }

    /// Whether the job manager has a job running, as far as can be said yet.
    pub(super) fn answer_known(&mut self, now: Now, request: &KnownRequest) -> Result<bool, Fault> {
        let leader = self.leaders.get(&request.id);
        match request.question {
            Question::Leader { generation } => {
                return Ok(leader.is_some_and(|job| job.leads(&request.digest, generation)));
            }
            Question::Manager => (),
            Question::Request { from, stream } => return Ok(self.holds(from, stream)),
            Question::Parent => {
                // An id can have been issued again: only this very job counts.
                let agent = self.agents.get(&request.id);
                let is_led = agent.is_some_and(|agent| agent.is_led_as(&request.digest));
                return Ok(is_led || leader.is_some_and(|leader| leader.has(&request.digest)));
            }
        }
        let cx = context!(self, now);
        self.coordinator.has(cx, request.id, &request.digest)
    }

    fn handle_shells(
        &mut self,
        now: Now,
        request: RequestId,
        shells: ShellsRequest,
        out: &mut Effects,
    ) {
        self.hold(request, shells.parent, shells.stream);
        if self.recently_ended.contains(shells.id, &shells.command.digest) {
            return out.end(request, StreamEnd::superseded("the job has ended"));
        }
        if self.unreadable.answer(self.facts.rank, request, &shells, out) {
            return;
        }
        let userid = shells.command.userid;
        let agent = self.agents.entry(shells.id);
        let agent = agent.or_insert_with(|| Agent::new(shells.id, userid));
        agent.handle_shells(context!(self, now), request, shells, out);
    }

    /// A leader has to know whether the job has run before. The coordinator compares clocks, which
    /// can jump. So the shells on the leader's own rank count as well, once the supervisor has told
    /// which it has found.
    fn handle_lead(
        &mut self,
        now: Now,
        request: RequestId,
        mut lead: Box<LeadRequest>,
        out: &mut Effects,
    ) {
        self.hold(request, BrokerRank(0), lead.stream);
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
                let leader = Leader::new(cx, request, *lead, out);
                if let Some(mut old) = self.leaders.insert(id, leader) {
                    old.give_way(out);
                }
            }
        }
    }

    fn reconfigure(&mut self, mut config: Config, out: &mut Effects) {
        if self.config.perilog.is_none() && config.perilog.take().is_some() {
            // Whether perilog.so runs the scripts as well is looked at then.
            let text = "exec.perilog.enable takes effect when the module is loaded again";
            out.log(Level::Warning, text);
        }
        let old = std::mem::replace(&mut self.config, config);
        let new = &self.config;
        if let Some(text) = new.warning() {
            out.log(Level::Warning, text);
        }
        let needs = new.needs_units().filter(|_| self.supervisor.launcher() == "fork");
        if let Some(key) = needs
            && old.needs_units().is_none()
        {
            let text = format!("exec.{key} has no effect: jobs are children of the broker");
            out.log(Level::Warning, text);
        }
        for key in old.changed_at_load(new) {
            let text = format!("exec.{key} takes effect when the module is loaded again");
            out.log(Level::Warning, text);
        }
    }

    fn handle_expiration(
        &mut self,
        now: Now,
        request: RequestId,
        id: JobId,
        expiration: WallTime,
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        self.coordinator.set_expiration(id, expiration);
        let leader = self.coordinator.leader_of(id);
        if let Some(leader) = self.leaders.get_mut(&id) {
            let result = leader.handle_expiration(cx, expiration, out);
            out.done(request, result);
        } else if let Some(to) = leader.filter(|rank| *rank != self.facts.rank) {
            let payload = json!({ "id": id, "expiration": expiration });
            out.push(Effect::Pass { to, request, topic: Topic::Expiration, payload });
        } else {
            out.done(request, Err(not_found(id)));
        }
    }

    /// A mocked job is led on rank 0.
    fn handle_override(
        &mut self,
        now: Now,
        request: RequestId,
        credential: Credential,
        (id, event, status): (JobId, &str, WaitStatus),
        out: &mut Effects,
    ) {
        let cx = context!(self, now);
        if cx.facts.rank != BrokerRank(0) {
            let payload = json!({ "jobid": id, "event": event, "status": status,
                                  "userid": credential.userid });
            let (to, topic) = (BrokerRank(0), Topic::Override);
            return out.push(Effect::Pass { to, request, topic, payload });
        }
        let result = match self.leaders.get_mut(&id) {
            Some(leader) => leader.handle_override(cx, credential, (event, status), out),
            None => Err(not_found(id)),
        };
        out.done(request, result);
    }

    fn handle_reports(
        &mut self,
        now: Now,
        stream: StreamId,
        result: Result<Reports, StreamEnd>,
        out: &mut Effects,
    ) {
        let Some(Route { role, id, .. }) = self.take_answer(stream, result.is_err()) else {
            return;
        };
        let cx = context!(self, now);
        match role {
            Role::Coordinator => (), // it hears replies
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

    fn handle_supervisor(&mut self, now: Now, event: SupervisorEvent, out: &mut Effects) {
        let cx = context!(self, now);
        match event {
            SupervisorEvent::Found(record) => {
                match self.agents.entry(record.spec.job) {
                    Entry::Occupied(mut agent) => agent.get_mut().take_found(cx, &record, out),
                    Entry::Vacant(none) => drop(none.insert(Agent::found(cx, &record, out))),
                }
                self.find_shell(&record);
            }
            SupervisorEvent::Answers { who } => self.end_silence(now, who, out),
            SupervisorEvent::DiskFails { message } => self.drain_without_records(&message, out),
            SupervisorEvent::Silent { who, what } => self.begin_silence(now, who, what, out),
            SupervisorEvent::Ready { method, notice } => {
                self.supervisor = SupervisorState::Ready(method);
                if let Some(notice) = &notice {
                    // In a job it is as it should be.
                    let level = if cx.facts.nested { Level::Info } else { Level::Warning };
                    out.log(level, notice.clone());
                }
                self.notice = notice;
            }
            SupervisorEvent::Unreadable { unit, message } => {
                if !self.agents.contains_key(&unit.job()) {
                    self.unreadable.insert(unit.job());
                }
                out.log(Level::Error, message);
            }
            SupervisorEvent::Unusable { message } => {
                self.supervisor = SupervisorState::Unusable;
                self.notice = Some(message.clone());
                out.log(Level::Error, message);
            }
            SupervisorEvent::Unit(unit, event) => {
                self.counts.hear(now, &unit, &event);
                self.hear_of_shell(now, &unit, &event);
                let cx = context!(self, now);
                match self.agents.get_mut(&unit.job()) {
                    Some(agent) => agent.handle_unit(cx, &unit, event, out),
                    // Its job was forgotten in the meantime. Its record goes once nothing runs.
                    None if event == UnitEvent::Gone => {
                        out.push(Effect::Unit(unit, UnitCommand::Forget));
                    }
                    None => (),
                }
            }
        }
    }
}

pub(super) fn not_found(id: JobId) -> Fault {
    Fault::new(libc::ENOENT, format!("{id}: job not found"))
}

/// The job's agent.
///
/// # Errors
/// There is none, or the job is another user's.
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

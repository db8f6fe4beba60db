//! Delivers messages from outside, and checks the answers of nodes.

use job_exec_rs::machine::{
    Answer, Credential, Effect, Event, Fault, RequestId, StreamItem, Topic,
};
use job_exec_rs::proto::{JobId, Response, StartError, StartRequest, WallTime};
use serde_json::Value;

use super::{Item, World};
use crate::Heard;
use crate::sent::{Messages, Sent, SentState};

/// How far ahead a message may move a job's time limit, in seconds. A shell that runs until its
/// limit must end before the world does.
const EXPIRATION_MAX: f64 = 3600.0;
/// When users cancel the jobs that they have kept from ending, in seconds after the last fault.
const CANCEL_AFTER: f64 = 600.0;

impl World {
    /// Schedules all messages.
    pub(super) fn schedule_messages(&mut self) {
        for index in 0..self.messages.all.len() {
            let Sent { at, rank, .. } = self.messages.all[index].sent;
            if rank < self.profile.ranks {
                self.at(at, Item::Message(index));
            }
        }
    }

    /// A message arrives at its broker, which passes it on to the module. This follows
    /// `module::handlers` and `libflux::Driver::read`.
    pub(super) fn deliver_message(&mut self, index: usize) {
        let SentState { sent, .. } = &self.messages.all[index];
        let (sent, number) = (sent.clone(), Messages::number(index));
        let state = &self.ranks[sent.rank as usize];
        if state.node.is_none() {
            // A dead broker does not answer.
            let heard = if state.broker_up { Heard::Refused(libc::ENOSYS) } else { Heard::Silence };
            return self.messages.all[index].heard = heard;
        }
        if !sent.credential.owner && !sent.topic.is_for_users() {
            // libflux does not call the handler.
            return self.messages.all[index].heard = Heard::Refused(libc::EPERM);
        }
        let request = RequestId::Remote(number);
        match sent.topic.read(request, sent.credential, &sent.payload) {
            Err(fault) => self.messages.all[index].heard = Heard::Refused(fault.errnum),
            Ok(event) if self.deceives_own_instance(&sent, &event) => {
                self.messages.all[index].heard = Heard::NotSent;
            }
            Ok(event) => {
                let holder = self.life(sent.rank);
                let told = &mut self.messages.all[index];
                told.job = job_of(sent.topic, &event, &sent.payload);
                told.holder = sent.topic.is_answered().then_some(holder);
                if let Event::Start { start, .. } = &event
                    && let Ok(start) = &**start
                {
                    self.messages.started.insert(start.id);
                }
                if let Event::PerilogRelease { release, .. } = &event {
                    self.messages.released.insert(release.id);
                }
                self.messages.is_handled = true;
                self.handle(sent.rank, event);
                self.messages.is_handled = false;
                self.note_disturbance(index);
            }
        }
    }

    /// Whether the owner would deceive the owner's own instance with this message. The service
    /// believes well-formed messages that only the job manager and other modules send. So those are
    /// not sent, except for ones that the job manager could have sent (`doc/simulator.md`).
    fn deceives_own_instance(&self, sent: &Sent, event: &Event) -> bool {
        match sent.topic {
            Topic::Expiration => {
                let Event::Expiration { id, expiration, .. } = event else { return false };
                let latest = self.wall(sent.rank) + EXPIRATION_MAX;
                self.is_world_job(*id)
                    && !(*expiration < WallTime(latest) && *expiration != WallTime(0.0))
            }
            Topic::Covered | Topic::Lead | Topic::Order | Topic::Shells => true,
            Topic::Start => {
                let Event::Start { start, .. } = event else { return false };
                self.is_impossible_start(sent.rank, start)
            }
            Topic::Checkpoint
            | Topic::CriticalRanks
            | Topic::Degraded
            | Topic::KeepCommits
            | Topic::Known
            | Topic::Override
            | Topic::PerilogRelease
            | Topic::ShellBarrier
            | Topic::ShellRuns => false,
        }
    }

    /// Whether the job manager would never send this start request. It asks rank 0, once for each
    /// job, with ranks that the instance has. For the world's own jobs only the world's job manager
    /// asks.
    fn is_impossible_start(&self, rank: u32, start: &Result<StartRequest, StartError>) -> bool {
        match start {
            Ok(start) => {
                rank != 0
                    || self.is_world_job(start.id)
                    || self.messages.started.contains(&start.id)
                    || start.r.ranks().last().is_none_or(|last| last >= self.profile.ranks)
            }
            Err(StartError::Field { id, .. } | StartError::R { id, .. }) => self.is_world_job(*id),
            Err(StartError::Id(_)) => false,
        }
    }

    /// Whether the job manager issues this id.
    fn is_world_job(&self, id: JobId) -> bool {
        (1..=u64::from(self.profile.jobs)).any(|number| id == JobId(number << 24))
    }

    /// Whether the sender is the owner, or had a job with this id at any time.
    fn has_had_job(&self, credential: Credential, id: JobId) -> bool {
        let may = |userid| credential.may_act_for(userid);
        self.allocations.values().any(|known| known.id == id && may(known.userid))
    }

    /// Notes whether a message may have changed the run. A message of the owner can have an effect
    /// before it is refused. A job's user can say of the job's shells what is not true, if the
    /// message is not refused. No other message has an effect.
    fn note_disturbance(&mut self, index: usize) {
        let SentState { sent, heard, job, .. } = &self.messages.all[index];
        let his = job.filter(|id| self.has_had_job(sent.credential, *id));
        let taken = his.filter(|_| !matches!(heard, Heard::Refused(_)));
        self.messages.disturb |= sent.credential.owner || taken.is_some();
        if matches!(sent.topic, Topic::CriticalRanks | Topic::ShellBarrier) {
            self.messages.deceived.extend(taken);
        }
    }

    /// The index of the message from outside that an effect answers.
    pub(super) fn answered_by(effect: &Effect) -> Option<usize> {
        match effect {
            Effect::Answer { to: RequestId::Remote(to), .. }
            | Effect::Drop { to: RequestId::Remote(to) }
            | Effect::Stream { to: RequestId::Remote(to), item: StreamItem::Response { .. } } => {
                Messages::index(*to)
            }
            _ => None,
        }
    }

    pub(super) fn answer_message(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Answer { answer, .. } => {
                let result = match answer {
                    Answer::Barrier(result) => result,
                    Answer::Done(result) => result.map(drop),
                    Answer::End(end) => Err(end.into()),
                };
                self.record_answer(index, result);
            }
            Effect::Stream { item: StreamItem::Response { id, response }, .. } => {
                self.record_response(index, id, &response);
            }
            // The machine drops the request: what it waited for will not come any more.
            _ => self.messages.all[index].holder = None,
        }
    }

    /// Handles the last answer to a message.
    pub(super) fn record_answer(&mut self, index: usize, result: Result<(), Fault>) {
        let told = &mut self.messages.all[index];
        told.holder = None;
        match result {
            Err(fault) => {
                told.heard = Heard::Refused(fault.errnum);
                if told.sent.topic == Topic::Start && told.job.is_some() {
                    let seen = format!("a start request is answered with an error: {fault}");
                    self.violate("always-an-end", seen);
                }
            }
            Ok(()) => {
                told.heard = Heard::Granted;
                self.check_granted(index);
            }
        }
    }

    /// Handles one of the answers to a start request. It must be for the job that the request
    /// names.
    fn record_response(&mut self, index: usize, id: JobId, response: &Response) {
        note!(self, "message {index}: {id}: {response:?}");
        let told = &mut self.messages.all[index];
        told.heard = Heard::Granted;
        if told.job != Some(id) {
            let seen =
                format!("{:?} for {id} answers a start request for {:?}", response, told.job);
            return self.violate("always-an-end", seen);
        }
        if told.holder.is_none() {
            let seen = format!("{id}: {response:?} after the final release");
            return self.violate("always-an-end", seen);
        }
        if matches!(response, Response::Release { is_final: true, .. }) {
            told.holder = None;
        }
    }

    /// Checks that only the owner and a job's own user get what they ask for.
    fn check_granted(&mut self, index: usize) {
        let SentState { sent, job, .. } = &self.messages.all[index];
        let (credential, topic) = (sent.credential, sent.topic);
        if !credential.owner && !job.is_some_and(|id| self.has_had_job(credential, id)) {
            let seen = format!("{topic:?} of user {} succeeds", credential.userid);
            self.violate("nobody-gets-in", seen);
        }
    }

    /// Schedules that users cancel jobs which cannot end because of their own messages.
    pub(super) fn cancel_deceived_later(&mut self) {
        if !self.messages.deceived.is_empty() {
            self.at(self.now + CANCEL_AFTER, Item::CancelDeceived);
        }
    }

    pub(super) fn cancel_deceived(&mut self) {
        for id in self.messages.deceived.clone() {
            if self.manager.jobs.get(&id).is_some_and(|job| job.pending && !job.failed) {
                self.cancel_job(id);
            }
        }
    }

    /// Checks that every message was answered, unless the module that held it is gone.
    pub(crate) fn check_answers(&mut self) {
        for index in 0..self.messages.all.len() {
            let SentState { sent, holder, .. } = &self.messages.all[index];
            if holder.is_some_and(|life| self.is_alive(life)) {
                let seen = format!("{:?} of message {index} is not answered", sent.topic);
                self.violate("bounded", seen);
            }
        }
    }
}

/// The job that a request is about. If a start request cannot be read, the job is taken from its
/// JSON.
fn job_of(topic: Topic, event: &Event, payload: &[u8]) -> Option<JobId> {
    match event {
        Event::CheckpointAsked { id, .. }
        | Event::CriticalRanks { id, .. }
        | Event::KeepCommits { id, .. }
        | Event::Expiration { id, .. }
        | Event::Override { id, .. }
        | Event::ShellBarrier { id, .. }
        | Event::ShellRuns { id, .. } => Some(*id),
        Event::Degraded { degraded, .. } => Some(degraded.id),
        Event::PerilogRelease { release, .. } => Some(release.id),
        Event::Start { start, .. } => {
            let text = serde_json::from_slice::<Value>(payload).ok();
            let read = match &**start {
                Ok(StartRequest { id, .. }) => Some(*id),
                Err(StartError::Field { id, .. } | StartError::R { id, .. }) => Some(*id),
                Err(StartError::Id(_)) => None,
            };
            text.and_then(|text| text.get("id")?.as_u64()).map(JobId).or(read)
        }
        _ => {
            debug_assert!(!topic.is_for_users(), "{topic:?} names its job");
            None
        }
    }
}

//! Carries out the effects of nodes.

use job_exec_rs::machine::{
    Answer, Credential, Effect, Event, Fault, KvsOp, KvsResult, Level, PeerRequest, RequestId,
    Role, StreamItem, Topic,
};
use job_exec_rs::port::supervisor::{StartFailure, Supervisor, UnitCommand, UnitEvent};
use job_exec_rs::proto::peer::{KnownRequest, Question};
use job_exec_rs::proto::{BrokerRank, JobEvent, JobId, Response, UnitName};
use serde_json::Value;

use super::Instance;
use crate::embedded::event::Happening;
use crate::embedded::messages::Asker;
use crate::embedded::shell::LaunchError;

impl Instance<'_> {
    pub(super) fn perform(&mut self, from: BrokerRank, effect: Effect) {
        match effect {
            Effect::Answer { to, answer: Answer::Done(result) } => self.answer(to, result),
            Effect::Answer { to, answer: Answer::End(end) } => {
                let asker = self.messages.close(to);
                let ended = asker.and_then(|asker| asker.event(Err(end.into())));
                self.queue.extend(ended);
            }
            Effect::Answer { to, answer: Answer::Barrier(_) } | Effect::Drop { to } => {
                if let Some(Asker::Unit(unit)) = self.messages.close(to) {
                    self.leave_barrier(&unit);
                }
            }
            // The KVS has it at once.
            Effect::AwaitRelease { id } => self.queue.push_back((from, Event::ReleaseKept { id })),
            // The KVS is files, which do not roll back. So a checkpoint needs no work.
            Effect::Checkpoint { .. } => self.queue.push_back((from, Event::Checkpointed(Ok(())))),
            Effect::Drain { waits, ranks, reason } => {
                self.tell(None, Happening::Drain { ranks: ranks.clone(), reason });
                let drained = waits.map(|id| (from, Event::Drained { id, ranks }));
                self.queue.extend(drained);
            }
            Effect::Hold { id } => self.queue.push_back((from, Event::Held { id, result: Ok(()) })),
            Effect::KillJob { id, signal } => {
                let units = self.units.iter().filter(|unit| unit.job() == id);
                for unit in units.cloned().collect::<Vec<_>>() {
                    self.signal(unit, signal);
                }
                self.queue.push_back((from, Event::KillAnswered { id }));
            }
            Effect::Kvs { id, op } => self.run_kvs_op(from, id, op),
            Effect::Log { level, text } => self.log(from, level, text),
            Effect::LostShell { id, shell_rank, message, .. } => {
                self.tell(Some(id), Happening::LostShell { rank: shell_rank.0, message });
            }
            Effect::Pass { to, request, topic, payload } => {
                self.pass(from, to, request, topic, &payload);
            }
            Effect::Post { id, event: JobEvent::Response(response) } => {
                self.handle_response(id, response);
            }
            // The job manager goes on with all its jobs.
            Effect::Post { .. } => (),
            // Its eventlog is what is told.
            Effect::Tell { asker, id, nodes } => {
                self.queue.push_back((from, Event::Told { asker, id, nodes, result: Ok(true) }));
            }
            // This is the same as a response, because the coordinator is never unloaded.
            Effect::Raise { id, exception } => {
                self.handle_response(id, Response::Exception(exception))
            }
            Effect::Send { to, request } => self.send(from, to, request),
            Effect::Stream { to, item } => self.stream(to, item),
            Effect::Unit(unit, command) => self.forward_command(from, unit, command),
        }
    }

    fn send(&mut self, from: BrokerRank, to: BrokerRank, request: PeerRequest) {
        if let PeerRequest::Known { asker, asked: KnownRequest { id, digest, question, .. } } =
            request
        {
            let is_here = matches!(question, Question::Request { .. });
            let result = Ok(is_here || asker == Role::Agent && self.is_known(id, question));
            let answer = Event::KnownAnswered { id, asker, to, digest, question, result };
            return self.queue.push_back((from, answer));
        }
        let awaited = request.awaited(to);
        let number = awaited.map(|awaited| self.messages.open(Asker::Peer { rank: from, awaited }));
        self.queue.push_back((to, request.into_event(number.unwrap_or(RequestId::UNANSWERED))));
    }

    fn stream(&mut self, to: RequestId, item: StreamItem) {
        match item {
            StreamItem::Response { id, response } => self.handle_response(id, response),
            item => self.queue.extend(self.messages.route(to, &item)),
        }
    }

    /// No message is late here, and none is lost. So only the job manager can say no.
    fn is_known(&self, id: JobId, question: Question) -> bool {
        question != Question::Manager || self.manager.is_active(id)
    }

    fn pass(
        &mut self,
        from: BrokerRank,
        to: BrokerRank,
        request: RequestId,
        topic: Topic,
        payload: &Value,
    ) {
        let request = self.messages.open(Asker::Forwarded { rank: from, request });
        let owner =
            Credential { userid: nix::unistd::getuid().as_raw(), owner: true, local: false };
        match topic.read(request, owner, payload.to_string().as_bytes()) {
            Ok(event) => self.queue.push_back((to, event)),
            Err(fault) => self.answer(request, Err(fault)),
        }
    }

    fn log(&mut self, rank: BrokerRank, level: Level, text: String) {
        self.tell(None, Happening::Log { rank, level, text });
    }

    fn answer(&mut self, to: RequestId, result: Result<Option<String>, Fault>) {
        match self.messages.close(to) {
            Some(Asker::Forwarded { request, .. }) => self.answer(request, result),
            Some(Asker::Manager(id)) => {
                if let Err(fault) = result {
                    self.log(BrokerRank(0), Level::Error, format!("{id}: {fault}"));
                }
            }
            Some(asker @ Asker::Peer { .. }) => {
                self.queue.extend(asker.event(result.map(Option::unwrap_or_default)));
            }
            Some(Asker::Unit(_)) | None => (),
        }
    }

    fn run_kvs_op(&mut self, from: BrokerRank, id: JobId, op: KvsOp) {
        let result = self.kvs.run(id, &op, || self.manager.released(id));
        // If the commit failed, the leader logs that.
        if let (KvsResult::Appended(Ok(())), KvsOp::Append { events, .. }) = (&result, op) {
            for event in events {
                self.tell(Some(id), Happening::Exec(event));
            }
        }
        self.queue.push_back((from, Event::Kvs { id, result }));
    }

    fn handle_response(&mut self, id: JobId, response: Response) {
        if let Response::Exception(exception) = response {
            return self.raise(id, exception);
        }
        for what in self.manager.handle_response(id, response) {
            self.tell(Some(id), what);
        }
        self.keep(id);
        if !self.manager.is_active(id) {
            self.shells.remove(id);
        }
    }

    /// Writes down what a later instance needs to go on with the job.
    pub(super) fn keep(&mut self, id: JobId) {
        let written = match self.manager.kept(id) {
            Some(job) => self.files.keep(id, job),
            None => self.files.forget(id),
        };
        if let Err(error) = written {
            let text = format!("{id}: a later instance cannot go on with it: {error}");
            self.log(BrokerRank(0), Level::Error, text);
        }
    }

    fn forward_command(&mut self, rank: BrokerRank, unit: UnitName, mut command: UnitCommand) {
        match &mut command {
            UnitCommand::Launch(spec) => {
                if let Err(LaunchError { errnum, message }) = self.shells.complete_spec(spec) {
                    // A supervisor would report it in this way.
                    let failed = UnitEvent::Failed(StartFailure { errnum, message });
                    return self.handle_supervisor(rank, failed.of(&unit));
                }
                self.units.insert(unit.clone());
            }
            UnitCommand::Forget => {
                self.units.remove(&unit);
            }
            UnitCommand::Collect
            | UnitCommand::Note(_)
            | UnitCommand::OutputAck { .. }
            | UnitCommand::Signal { .. } => (),
        }
        if let Some(rank) = self.ranks.get_mut(rank.0 as usize) {
            rank.worker.submit(unit, command);
        }
    }

    /// Signals every process of a unit, as a shell would signal its tasks.
    pub(super) fn signal(&mut self, unit: UnitName, signal: i32) {
        let rank = unit.rank();
        self.forward_command(rank, unit, UnitCommand::Signal { signal, all: true });
    }
}

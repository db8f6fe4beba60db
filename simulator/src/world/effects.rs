//! Carries out the effects of nodes, and passes messages between them.

use job_exec_rs::machine::{
    Answer, Credential, Effect, Event, Fault, Level, PeerRequest, RequestId, StreamItem, Topic,
};
use job_exec_rs::proto::{BrokerRank, JobEvent};

use super::scripts::Step;
use super::{Item, World};
use crate::rank::OWNER;
use crate::request::{Asked, Life, Request};
use crate::sent::Messages;

/// What a module says that cannot read a request.
pub(crate) const OTHER_RELEASE: &str = "another job-exec-rs speaks protocol 9";

impl World {
    pub(super) fn perform(&mut self, from: Life, effect: Effect) {
        match effect {
            Effect::Answer { to: RequestId::Remote(to), answer } => {
                self.perform_answer(from, to, answer);
            }
            Effect::AwaitRelease { id } => {
                let broker = self.ranks[0].brokers;
                self.after(0.000_1, 0.02, Item::ReleaseKept { to: from, id, broker });
            }
            Effect::Checkpoint { jobs, ended } => {
                self.send(from.rank, 0, Item::CheckpointGathers { from, jobs, ended })
            }
            Effect::Drain { waits, ranks, reason } => self.drain(from, waits, ranks, &reason),
            Effect::Drop { to: RequestId::Remote(to) } => drop(self.requests.close(to)),
            Effect::Pass { to, request: RequestId::Remote(number), topic, payload } => {
                // What comes later has other delays.
                self.messages.disturb |= Messages::index(number).is_some();
                self.ask(from, to.0, Asked::Passed(number), topic, &payload.to_string());
            }
            Effect::Hold { id } => {
                self.post(id, JobEvent::EpilogStart);
                let broker = self.ranks[0].brokers;
                self.after(0.000_1, 0.02, Item::HoldEnds { to: from, id, broker });
            }
            Effect::KillJob { id, signal } => {
                self.send(from.rank, 0, Item::KillJob { from, id, signal });
            }
            Effect::Kvs { id, op } => {
                self.send(from.rank, 0, Item::KvsApply { from, id, op: Box::new(op) });
            }
            Effect::Log { level: Level::Error | Level::Warning, text } => self.note(&text),
            Effect::Post { id, event } => self.post(id, event),
            Effect::Raise { id, exception } => self.raise(id, &exception),
            Effect::Send { to, request } => self.send_to_peer(from, to, &request),
            Effect::Stream { to: RequestId::Remote(to), item } => {
                self.forward_answer(from, to, item)
            }
            Effect::Tell { id, nodes, .. } => {
                self.send(from.rank, 0, Item::Script(Step::Tell { from, id, nodes }));
            }
            Effect::Unit(unit, command) => self.forward_command(from, unit, command),
            Effect::LostShell { .. } | Effect::Log { level: Level::Debug | Level::Info, .. } => (),
            // A node answers the requests of its own roles itself, so no effect has their numbers.
            Effect::Answer { to: RequestId::Local(_), .. }
            | Effect::Drop { to: RequestId::Local(_) }
            | Effect::Pass { request: RequestId::Local(_), .. }
            | Effect::Stream { to: RequestId::Local(_), .. } => {
                self.violate("bounded", format!("{effect:?} left its rank"));
            }
        }
    }

    /// The modules of these ranks are different releases.
    pub(crate) fn are_different(&self, from: u32, to: u32) -> bool {
        let is_other = |rank: u32| self.ranks[rank as usize].is_other_release;
        is_other(from) != is_other(to)
    }

    /// A request of a module or of the job manager is answered.
    fn count_answer(&mut self, number: u64, payload: impl FnOnce() -> String) {
        if let Some(traffic) = &mut self.traffic {
            traffic.answer(number, &payload());
        }
    }

    fn perform_answer(&mut self, from: Life, to: u64, answer: Answer) {
        match answer {
            Answer::Barrier(result) => self.answer_barrier(to, &result),
            Answer::Done(result) => self.answer(from, to, result),
            Answer::End(end) => {
                if let Some(request) = self.requests.close(to) {
                    self.count_answer(to, String::new);
                    self.fail_request(request, end.into());
                }
            }
        }
    }

    fn forward_answer(&mut self, from: Life, to: u64, item: StreamItem) {
        self.count_answer(to, || item.encode());
        if let StreamItem::Response { id, response } = item {
            return self.handle_response(id, &response);
        }
        if let Some((asker, Asked::Peer(awaited))) = self.requests.asker(to) {
            let event = awaited.hear(Ok(item.encode()));
            self.send_event(from.rank, asker, event);
        }
    }

    pub(super) fn send_event(&mut self, from: u32, to: Life, event: Event) {
        self.send(from, to.rank, Item::Deliver { to, event: Box::new(event) });
    }

    fn send_to_peer(&mut self, from: Life, to: BrokerRank, request: &PeerRequest) {
        let (topic, payload) = (request.topic(), request.encode());
        if let PeerRequest::Lead { lead, .. } = request {
            self.check_leaders_given_up(lead);
        }
        match request.awaited(to) {
            Some(awaited) => self.ask(from, to.0, Asked::Peer(awaited), topic, &payload),
            None if self.are_different(from.rank, to.0) => (),
            None => {
                let to = self.life(to.0);
                self.request(from, to, topic, RequestId::UNANSWERED, &payload);
            }
        }
    }

    /// Sends a request of another module. It crosses the network as text, and is read as the
    /// receiver reads it.
    fn request(&mut self, from: Life, to: Life, topic: Topic, number: RequestId, payload: &str) {
        if let Some(traffic) = &mut self.traffic {
            let number = if let RequestId::Remote(number) = number { Some(number) } else { None };
            traffic.request(number, (from.rank, to.rank), topic, payload);
        }
        let owner = Credential { userid: OWNER, owner: true, local: false };
        match topic.read(number, owner, payload.as_bytes()) {
            Ok(event) => self.send_event(from.rank, to, event),
            Err(fault) => self.violate("bounded", format!("{topic:?} cannot be read: {fault}")),
        }
    }

    fn ask(&mut self, from: Life, rank: u32, asked: Asked, topic: Topic, payload: &str) {
        let holder = self.life(rank);
        let may_be_lost = !matches!(asked, Asked::Passed(_));
        let request = Request { asker: from, holder, asked: asked.clone() };
        let state = &mut self.ranks[rank as usize];
        if !state.broker_up {
            if may_be_lost && std::mem::take(&mut state.unnoticed) {
                return note!(self, "a request to rank {rank} is lost without an error");
            }
            return self.fail_request(request, Fault::new(libc::EHOSTUNREACH, "No route to host"));
        }
        if state.node.is_none() {
            return self.fail_request(request, Fault::new(libc::ENOSYS, "no such service"));
        }
        // What the job manager sends has no version.
        if topic != Topic::Expiration && self.are_different(from.rank, rank) {
            return self.fail_request(request, Fault::new(libc::EPROTO, OTHER_RELEASE));
        }
        let number = self.requests.open(from, holder, asked);
        self.request(from, holder, topic, RequestId::Remote(number), payload);
    }

    /// Tells the asker that nobody will answer its request.
    pub(super) fn fail_request(&mut self, request: Request, fault: Fault) {
        let event = match request.asked {
            Asked::Peer(awaited) => awaited.hear(Err(fault)),
            Asked::Passed(number) => {
                match Messages::index(number) {
                    Some(index) => self.record_answer(index, Err(fault)),
                    None => drop(self.requests.close(number)),
                }
                return;
            }
            Asked::Intruder | Asked::Manager | Asked::Nothing => return,
        };
        self.send_event(request.holder.rank, request.asker, event);
    }

    fn answer(&mut self, from: Life, to: u64, payload: Result<Option<String>, Fault>) {
        let result = payload.clone().map(drop);
        if let Some(index) = Messages::index(to) {
            return self.record_answer(index, result);
        }
        let is_shells = self.answer_bequest(to, &result) || self.answer_shell_runs(to, &result);
        if is_shells || self.answer_mark(to, &result) {
            return;
        }
        if self.answer_checkpoint(to, &result) {
            self.requests.close(to);
            return;
        }
        self.check_intruder(to, result.is_ok());
        match self.requests.close(to) {
            Some(Request { asked: Asked::Passed(number), .. }) => {
                self.answer(from, number, payload)
            }
            Some(Request { asker, asked: Asked::Peer(awaited), .. }) => {
                let payload = payload.map(Option::unwrap_or_default);
                self.count_answer(to, || payload.clone().unwrap_or_default());
                self.send_event(from.rank, asker, awaited.hear(payload));
            }
            Some(Request { asked: Asked::Intruder | Asked::Manager | Asked::Nothing, .. })
            | None => {}
        }
    }
}

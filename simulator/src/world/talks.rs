//! What shells of a job say to each other: requests to the services that they have registered with
//! their brokers, with and without an answer. Brokers pass them on to each other.

use job_exec_rs::machine::{Credential, Fault, RequestId, Topic};
use job_exec_rs::proto::WaitStatus;
use rand::Rng;
use resume_machine::{NO_TAG, Packet};
use serde_json::{Value, json};

use super::links::{SERVICE_ADD, SERVICE_REMOVE, Waiter};
use super::{Item, World};
use crate::packet::SimPacket;
use crate::rank::OWNER;
use crate::shell::{Shell, ShellId};

/// Asks a broker for how long it is in which state. A simulated broker is in RUN as soon as it is
/// up, or a moment later.
const STATE: &str = "state-machine.get";
/// Asks the module of a rank whether the job's shell runs there.
const SHELL_RUNS: &str = "job-exec.shell-runs";
/// Methods of a shell's service.
const WRITE: &str = "write";
const EXCHANGE: &str = "pmi-exchange";
const ENDED: &str = "tasks-complete";
/// Prefix of the hop that a broker adds to requests of its client: which connection has sent it.
const CLIENT: &str = "client-";
/// A shell gives its requests to others the lowest free matchtag from here on, as libflux does.
const FIRST_TAG: u32 = 100;
const REGISTER_TAG: u32 = 99;
const UNREGISTER_TAG: u32 = 98;

/// A shell, and which of its connections.
pub(super) type Asker = (ShellId, u64);

/// A message on its way from one broker to another.
pub(crate) struct Crossing {
    /// The ranks of both, and which broker of the rank it is. All brokers between them are above
    /// one of the two in the tree. So one of the two is killed with them, and this message is lost.
    from: (u32, u32),
    to: (u32, u32),
    /// Whom a response is for.
    asker: Option<Asker>,
    packet: SimPacket,
}

/// Whether brokers pass a request on to the rank that it names.
pub(super) fn is_between_shells(packet: &SimPacket) -> bool {
    let topic = packet.topic.as_str();
    packet.rank().is_some() && (topic.contains("-shell-") || [STATE, SHELL_RUNS].contains(&topic))
}

impl World {
    /// The name of the service of a job's shells (flux-core `shell/svc.c`).
    fn service_of(&self, id: ShellId) -> String {
        let shell = self.shell(id);
        format!("{}-shell-{}", self.user_of(&shell.digest), shell.unit.job().f58plain())
    }

    /// The rank of the leader shell.
    fn leader_of(&self, id: ShellId) -> Option<u32> {
        self.ranks_of(&self.shell(id).digest).first()
    }

    /// The shell registers its service. Then it enters the barrier.
    pub(super) fn register(&mut self, id: ShellId) {
        let payload = json!({ "service": self.service_of(id) });
        self.send_from_shell(id, SimPacket::ask(SERVICE_ADD, REGISTER_TAG, &payload));
    }

    /// The shell gives its service up (flux-core `shell/svc.c`, `shell_svc_destroy()`).
    pub(super) fn unregister(&mut self, id: ShellId) {
        let payload = json!({ "service": self.service_of(id) });
        self.send_from_shell(id, SimPacket::ask(SERVICE_REMOVE, UNREGISTER_TAG, &payload));
    }

    pub(super) fn handle_registered(&mut self, id: ShellId, errnum: i32) {
        if errnum == 0 {
            return self.come_to_barrier(id);
        }
        let seen = format!("{} cannot register its service: {errnum}", self.shell(id).unit);
        self.violate("channel-once", seen);
    }

    /// A shell that has left its barriers decides when to send something to others.
    pub(super) fn begin_to_speak(&mut self, id: ShellId) {
        if self.shell(id).released == 0 {
            return; // it is the only one of its job
        }
        for _ in 0..self.rng.random_range(0..6) {
            self.after(0.01, 20.0, Item::Speak { id, is_asking: false });
        }
        for _ in 0..self.rng.random_range(0..3) {
            self.after(0.01, 10.0, Item::Speak { id, is_asking: true });
        }
    }

    /// The shell asks another shell of its job, or tells the leader shell something.
    pub(super) fn speak(&mut self, id: ShellId, is_asking: bool) {
        let shell = self.shell(id);
        if !shell.works() || shell.talk.is_over {
            return;
        }
        if !is_asking {
            return self.tell_leader(id, WRITE);
        }
        let ranks = self.ranks_of(&self.shell(id).digest);
        let others: Vec<u32> = ranks.iter().filter(|rank| *rank != id.rank).collect();
        let to = others[self.rng.random_range(0..others.len())];
        let asked = &self.shell(id).talk.asked;
        let Some(tag) = (FIRST_TAG..).find(|tag| !asked.contains_key(tag)) else { return };
        let number = self.tell(id, to, EXCHANGE, tag);
        self.shell_mut(id).talk.asked.insert(tag, (to, number));
    }

    fn tell_leader(&mut self, id: ShellId, method: &str) {
        if let Some(leader) = self.leader_of(id).filter(|leader| *leader != id.rank) {
            self.tell(id, leader, method, NO_TAG);
        }
    }

    /// Sends a request. Returns its number.
    fn tell(&mut self, id: ShellId, to: u32, method: &str, tag: u32) -> u32 {
        let topic = format!("{}.{method}", self.service_of(id));
        let next = self.shell_mut(id).talk.sent.entry(to).or_default();
        let number = *next;
        *next += 1;
        let payload = json!({ "rank": id.rank, "index": id.index, "n": number }).to_string();
        let packet = SimPacket::request(&topic, tag, to, &payload);
        if !self.send_from_shell(id, packet) {
            let seen = format!("{} may not send request {number}", self.shell(id).unit);
            self.violate("channel-once", seen);
        }
        number
    }

    /// A request of another shell arrives. A shell that closes its connection does nothing else any
    /// more.
    pub(super) fn hear(&mut self, id: ShellId, packet: &SimPacket) {
        let payload = packet.json();
        let Some((from, number)) = sender(&payload).filter(|_| self.shell(id).works()) else {
            return;
        };
        self.check_heard(id, from, number);
        let (is_end, is_of_job) = (packet.topic.ends_with(ENDED), self.is_same_job(id, from));
        let talk = &mut self.shell_mut(id).talk;
        talk.heard.insert(from, number + 1);
        if is_end && is_of_job {
            talk.ended.insert(from.rank);
            self.end_if_over(id);
        }
        if packet.is_answered() {
            self.after(0.000_1, 0.5, Item::AnswerShell(id, packet.clone()));
        }
    }

    /// Shells of another job with the same id have the same service.
    pub(crate) fn is_same_job(&self, one: ShellId, other: ShellId) -> bool {
        self.shell(one).digest == self.shell(other).digest
    }

    pub(super) fn answer_as_shell(&mut self, id: ShellId, request: &SimPacket) {
        if self.shell(id).works() {
            self.shell_mut(id).talk.answered.extend(sender(&request.json()));
            self.send_from_shell(id, request.answer(&request.json().to_string()));
        }
    }

    /// The answer of another shell arrives.
    pub(super) fn hear_answer(&mut self, id: ShellId, packet: &SimPacket) {
        let asked = self.shell_mut(id).talk.asked.remove(&packet.matchtag());
        self.check_heard_answer(id, asked, packet);
        self.end_if_over(id);
    }

    /// A shell is about to end. It tells the leader shell that its tasks have ended, and waits for
    /// the answers that it lacks. The leader shell also waits until all others that live have said
    /// so. A signal ends a shell without these. Returns whether it waits.
    pub(super) fn waits_for_others(&mut self, id: ShellId, status: WaitStatus) -> bool {
        let shell = self.shell(id);
        if shell.released < 2 || !shell.works() {
            return false;
        }
        if !std::mem::replace(&mut self.shell_mut(id).talk.is_over, true) {
            self.tell_leader(id, ENDED);
        }
        if status.signal().is_some() || self.has_heard_all(id) {
            return false;
        }
        self.shell_mut(id).talk.ending = Some(status);
        true
    }

    /// The leader shell does not wait for a shell that has ended.
    pub(super) fn handle_shell_gone(&mut self, id: ShellId) {
        let Some(rank) = self.leader_of(id) else { return };
        for index in 0..self.ranks[rank as usize].shells.len() {
            let leader = ShellId { rank, index };
            if self.is_same_job(leader, id) {
                self.end_if_over(leader);
            }
        }
    }

    fn end_if_over(&mut self, id: ShellId) {
        if !self.shell(id).works() {
            return;
        }
        if self.shell(id).talk.ending.is_some()
            && self.has_heard_all(id)
            && let Some(status) = self.shell_mut(id).talk.ending.take()
        {
            self.after(0.000_1, 0.001, Item::EndShell { id, status });
        }
    }

    fn has_heard_all(&self, id: ShellId) -> bool {
        let Shell { talk, digest, .. } = self.shell(id);
        let mut others = self.ranks_of(digest);
        let is_leader = others.first() == Some(id.rank);
        others.remove(id.rank);
        let may_speak = |rank: u32| {
            let mut shells = self.ranks[rank as usize].shells_of(digest);
            !talk.ended.contains(&rank) && shells.any(Shell::runs)
        };
        talk.asked.is_empty() && !(is_leader && others.iter().any(may_speak))
    }

    /// The broker of a shell passes a request on.
    pub(super) fn pass_on(&mut self, waiter: Waiter) {
        let Waiter { shell, number, mut packet } = waiter;
        let Some(to) = packet.rank() else { return };
        if !self.ranks[to as usize].broker_up {
            return self.refuse(shell, number, &packet, libc::EHOSTUNREACH);
        }
        if packet.is_answered() && to != shell.rank {
            let key = ((shell, number), packet.matchtag());
            self.tracked.insert(key, (to, packet.clone()));
        }
        packet.push_hop(&format!("{CLIENT}{}.{}.{number}", shell.rank, shell.index));
        self.cross(shell.rank, to, None, packet);
    }

    /// The broker on `rank` passes a response on.
    pub(super) fn pass_back(&mut self, rank: u32, mut packet: SimPacket) {
        let Some(asker) = packet.pop_hop(CLIENT).as_deref().and_then(asker) else { return };
        self.cross(rank, asker.0.rank, Some(asker), packet);
    }

    fn cross(&mut self, from: u32, to: u32, asker: Option<Asker>, packet: SimPacket) {
        if !self.ranks[to as usize].broker_up {
            return;
        }
        let broker = |rank: u32| (rank, self.ranks[rank as usize].brokers);
        let crossing = Crossing { from: broker(from), to: broker(to), asker, packet };
        self.send(from, to, Item::Cross(Box::new(crossing)));
    }

    /// A message from another broker arrives, or is lost because one of the two was killed.
    pub(super) fn end_crossing(&mut self, crossing: Crossing) {
        let Crossing { from, to, asker, packet } = crossing;
        let is_there = |(rank, broker): (u32, u32)| self.ranks[rank as usize].brokers == broker;
        let is_lost = !is_there(from) || !is_there(to);
        if self.transcript.is_some() {
            let lost = if is_lost { "lost: " } else { "" };
            note!(self, "{lost}from rank {} to rank {}: {packet:?}", from.0, to.0);
        }
        if is_lost {
            return;
        }
        let rank = to.0;
        if let Some((id, number)) = asker {
            self.tracked.remove(&((id, number), packet.matchtag()));
            return self.send_to_link(id, number, packet);
        }
        if packet.topic == STATE {
            let duration = self.now - self.ranks[rank as usize].up_since;
            let answer = json!({ "state": "run", "duration": duration });
            return self.pass_back(rank, packet.answer(&answer.to_string()));
        }
        if packet.topic == SHELL_RUNS {
            return self.ask_whether_shell_runs(rank, packet);
        }
        let service = packet.topic.split('.').next().unwrap_or_default();
        match self.connection_of(rank, service) {
            Some((id, number)) => self.send_to_link(id, number, packet),
            None if packet.is_answered() => {
                self.pass_back(rank, packet.refusal(libc::ENOSYS, "no such service"));
            }
            None => (),
        }
    }

    /// The module answers at once.
    fn ask_whether_shell_runs(&mut self, rank: u32, packet: SimPacket) {
        if self.ranks[rank as usize].node.is_none() {
            return self.pass_back(rank, packet.refusal(libc::ENOSYS, "no such service"));
        }
        let number = self.open_shell_request(rank);
        let owner = Credential { userid: OWNER, owner: true, local: true };
        match Topic::ShellRuns.read(RequestId::Remote(number), owner, packet.payload()) {
            Ok(event) => {
                self.asked_shells.insert(number, (rank, packet));
                self.handle(rank, event);
            }
            Err(fault) => self.violate("bounded", format!("shell-runs cannot be read: {fault}")),
        }
    }

    /// Passes the module's answer on. Returns false if it is not one to such a question.
    pub(super) fn answer_shell_runs(&mut self, number: u64, result: &Result<(), Fault>) -> bool {
        let Some((rank, packet)) = self.asked_shells.remove(&number) else { return false };
        self.requests.close(number);
        let answer = match result {
            Ok(()) => packet.answer("{}"),
            Err(fault) => packet.refusal(fault.errnum, "no"),
        };
        self.pass_back(rank, answer);
        true
    }

    /// Answers the requests that were passed on to a rank whose broker is gone.
    pub(super) fn fail_tracked(&mut self, rank: u32) {
        let (lost, kept) = std::mem::take(&mut self.tracked)
            .into_iter()
            .partition(|(((asker, _), _), (to, _))| asker.rank == rank || *to == rank);
        self.tracked = kept;
        for (((id, number), _), (_, packet)) in lost {
            self.refuse(id, number, &packet, libc::EHOSTUNREACH);
        }
    }

    fn refuse(&mut self, id: ShellId, number: u64, packet: &SimPacket, errnum: i32) {
        if packet.is_answered() {
            self.send_to_link(id, number, packet.refusal(errnum, "no"));
        }
    }
}

/// Who has sent a request, and its number.
fn sender(payload: &Value) -> Option<(ShellId, u32)> {
    let number = |key: &str| payload[key].as_u64().and_then(|n| u32::try_from(n).ok());
    let id = ShellId { rank: number("rank")?, index: number("index")? as usize };
    Some((id, number("n")?))
}

fn asker(hop: &str) -> Option<Asker> {
    let mut parts = hop.split('.');
    let mut next = || parts.next()?.parse::<u64>().ok();
    let (rank, index, number) = (next()? as u32, next()? as usize, next()?);
    Some((ShellId { rank, index }, number))
}

//! The world: its time, and the queue of what happens next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use job_exec_rs::config;
use job_exec_rs::machine::{Effect, Event, KvsOp, KvsResult, MonoTime, Node};
use job_exec_rs::port::supervisor::UnitSpec;
use job_exec_rs::proto::{JobId, Response, UnitName, WaitStatus};
use job_exec_rs::supervisor::tracker::{Ask, News};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::Violation;
use super::coverage::Coverage;
use super::disk::SimDisk;
use super::fault::{FaultId, Faults};
use super::kind::FaultKind;
use super::kvs::{Kvs, Roots};
use super::manager::{Allocation, Manager};
use super::packet::SimPacket;
use super::profile::Profile;
use super::rank::Rank;
use super::request::{Life, Requests};
use super::script;
use super::sent::{Heard, Messages, Sent};
use super::shell::ShellId;
use super::traffic::{JobTraffic, Traffic};

mod disks;
mod effects;
mod faults;
mod links;
mod scripts;
mod sent;
mod service;
mod shells;
mod supervise;
mod talks;

pub(super) use effects::OTHER_RELEASE;
use links::{Link, Waiter};
use service::AskedDrain;
use talks::{Asker, Crossing};

/// How many file systems can reserve space.
const DISKS_THAT_RESERVE: f64 = 0.9;
/// Simulated seconds after the last fault in which everything must come to its end.
const HEAL_SECONDS: f64 = 4.0 * 3600.0;

/// When the first job of a quiet world is submitted, in seconds: a rank whose module was loaded just now
/// asks the leader once more ([late-confirmed]).
const SETTLED: f64 = 2.0;

/// What happened in the run of one seed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Invariants that were broken.
    pub violations: Vec<Violation>,
    /// A line for each thing that happened. The same seed gives the same bytes.
    pub transcript: Vec<String>,
    /// Faults that have struck, in order.
    pub faults: Vec<FaultId>,
    /// How many events the nodes handled.
    pub events: u64,
    /// Simulated seconds until the end.
    pub seconds: f64,
    /// Which inputs occurred in which states.
    pub coverage: Coverage,
    /// The responses to the job manager: when, for which job, and which.
    pub told: Vec<(f64, JobId, Response)>,
    /// The messages that each job took, if the profile has planned jobs.
    pub traffic: BTreeMap<JobId, JobTraffic>,
    /// What became of each message from outside.
    pub heard: Vec<Heard>,
    /// Whether every message from outside was refused at once. Then the run must be the same as
    /// without these messages.
    pub undisturbed: bool,
}

/// What can happen in the world. The queue has these with their times.
pub(super) enum Item {
    Alarm {
        rank: u32,
        manager: u32,
        unit: UnitName,
        number: u64,
    },
    Allocate(JobId),
    /// A shell answers a request of another.
    AnswerShell(ShellId, SimPacket),
    Ask {
        rank: u32,
        connection: u64,
        ask: Box<Ask>,
        spec: Option<Box<UnitSpec>>,
    },
    BusClosed(Life),
    /// The bus of a rank has no quotas any more.
    BusHasRoom(u32),
    CancelDeceived,
    CheckForgotten,
    /// The service has read what the KVS has of a job in CLEANUP.
    Cleaning {
        to: Life,
        id: JobId,
    },
    Connect(Life),
    Cross(Box<Crossing>),
    Deliver {
        to: Life,
        event: Box<Event>,
    },
    Disk(super::held_up::DiskItem),
    /// The resource module answers.
    Drained(Box<AskedDrain>),
    Execute {
        rank: u32,
        manager: u32,
        unit: UnitName,
        asked: script::Moment,
    },
    EndShell {
        id: ShellId,
        status: WaitStatus,
    },
    Fault(FaultId),
    FromBroker {
        id: ShellId,
        number: u64,
        packet: SimPacket,
    },
    Fork {
        rank: u32,
        manager: u32,
        unit: UnitName,
        asked: script::Moment,
    },
    OutputGrown(u32),
    Hangup {
        rank: u32,
        connection: u64,
    },
    Graft {
        from: Life,
        id: JobId,
        root: Box<Roots>,
        broker: u32,
    },
    /// The commit of a graft is answered.
    Grafted {
        from: Life,
        id: JobId,
        result: Box<KvsResult>,
        broker: u32,
    },
    KillJob {
        from: Life,
        id: JobId,
        signal: i32,
    },
    /// The KVS has the hold of a job.
    HoldEnds {
        to: Life,
        id: JobId,
        broker: u32,
    },
    ReleaseKept {
        to: Life,
        id: JobId,
        broker: u32,
    },
    KvsApply {
        from: Life,
        id: JobId,
        op: Box<KvsOp>,
    },
    KvsDone {
        to: Life,
        id: JobId,
        result: Box<KvsResult>,
    },
    CheckpointGathers {
        from: Life,
        jobs: Vec<JobId>,
        ended: Vec<JobId>,
    },
    CheckpointBegins {
        from: Life,
        roots: Box<Roots>,
        ended: Vec<JobId>,
        broker: u32,
    },
    CheckpointWritten {
        to: Life,
        number: u64,
    },
    CheckpointEnds {
        to: Life,
        number: u64,
    },
    /// Rank 0's node is powered off.
    PowerCut(FaultId),
    /// A job's prolog has ended: the job manager asks for the job.
    PrologEnded(JobId),
    PauseOver {
        rank: u32,
        connection: u64,
        number: u64,
    },
    LeftoverEnds(ShellId),
    LinkTried(ShellId),
    LinkTimer(ShellId),
    Load {
        rank: u32,
    },
    /// The job manager of this life of rank 0's broker commits its eventlogs.
    ManagerCommits(u32),
    /// A message from outside arrives.
    Message(usize),
    News {
        rank: u32,
        connection: u64,
        news: Box<News>,
    },
    CommitLine(ShellId),
    Ready {
        rank: u32,
        manager: u32,
        unit: UnitName,
    },
    /// A slow systemd sends its D-Bus signals.
    Signals(u32),
    /// A shell sends something to another. `is_asking`: it wants an answer.
    Speak {
        id: ShellId,
        is_asking: bool,
    },
    Signal {
        rank: u32,
        unit: UnitName,
        signal: i32,
        all: bool,
    },
    /// The module of a rank is the same release as the others again.
    ReleaseReturns(u32),
    Resume(u32),
    /// A script does something, or the job manager for one.
    Script(scripts::Step),
    PatienceOver(Life),
    ShutDown(u32, u32),
    Submit,
    SystemdAnswers(u32),
    SystemdLeaves(u32),
    SystemdReturns(u32),
    Timer(Life),
    /// The module has waited long enough for its last checkpoint.
    Unload(Life),
    ToBroker {
        id: ShellId,
        number: u64,
        packet: SimPacket,
    },
    ToRank0(Box<Waiter>),
    ToShell(Box<Waiter>, Result<Value, i32>),
    WriteLine(ShellId),
}

pub(super) struct World {
    pub(super) rng: ChaCha8Rng,
    pub(super) profile: Profile,
    pub(super) faults: Faults,
    /// The prologs and epilogs that all ranks have configured.
    pub(super) site: Option<config::PerilogConfig>,
    pub(super) now: f64,
    queue: BTreeMap<(u64, u64), Item>,
    sequence: u64,
    waiting: VecDeque<(Life, Event)>,
    busy: bool,
    pub(super) ranks: Vec<Rank>,
    pub(super) requests: Requests,
    pub(super) kvs: Kvs,
    pub(super) manager: Manager,
    /// When the service on rank 0 was loaded, or went on after a stall.
    pub(super) awake_since: f64,
    /// When a checkpoint has failed last.
    pub(super) unsteady_at: f64,
    /// The service that waits until the KVS has changed since its last checkpoint.
    awaits_change: Option<Life>,
    /// The last arrival from one place at another. No message overtakes another on the same way.
    ways: BTreeMap<(u32, u32), f64>,
    pub(super) violations: Vec<Violation>,
    /// Shells that the instance has forgotten, and since when it could know.
    pub(super) forgotten: BTreeMap<(ShellId, Life, Life), f64>,
    /// Ranks that the coordinator has given up on, each with the digest of the job.
    pub(super) given_up: BTreeSet<(String, u32)>,
    /// Until when the resource module is away.
    pub(super) resource_away_until: f64,
    /// Ranks that were to be drained, each with the digest of the job.
    pub(super) drained: BTreeSet<(String, u32)>,
    /// The same, once the resource module has answered.
    pub(super) drain_answered: BTreeSet<(String, u32)>,
    /// The same, while a leader waits for that: the life of its module.
    pub(super) undrained: BTreeMap<(String, u32), Life>,
    /// The same, if it was for a script that has failed or is stuck.
    pub(super) drained_for_script: BTreeSet<(String, u32)>,
    /// Jobs, and ranks on which a record of theirs was lost.
    pub(super) unrecorded: BTreeSet<(String, u32)>,
    /// Barriers that every shell has entered, and found what the others wrote before: the digest of the
    /// job, the number of the barrier, and how often the KVS had gone back.
    pub(super) entered: BTreeSet<(String, u32, u32)>,
    /// All allocations since the start, by digest.
    pub(super) allocations: BTreeMap<String, Allocation>,
    last_allocation: f64,
    /// The connections of shells to their brokers.
    links: BTreeMap<ShellId, Link>,
    /// Shells that wait in the barrier, by the number of their request.
    barriers: BTreeMap<u64, Waiter>,
    /// Shells that leave commits, by the number of their request. The module answers at once.
    bequests: BTreeMap<u64, Waiter>,
    /// Questions whether a shell runs: which rank was asked, and with what.
    asked_shells: BTreeMap<u64, (u32, SimPacket)>,
    /// Shells that wait for a checkpoint, by the number of their request.
    checkpoints: BTreeMap<u64, Waiter>,
    /// Requests of shells to other shells that are not answered yet: the rank that each was passed
    /// on to. The broker of the asker keeps them (flux-core `librouter/rpc_track.c`).
    tracked: BTreeMap<(Asker, u32), (u32, SimPacket)>,
    /// Prologs that mark their nodes, by the number of their request: rank and index.
    marks: BTreeMap<u64, (u32, usize)>,
    /// Numbers of requests that must be refused.
    pub(super) intruders: BTreeSet<u64>,
    /// Messages from outside to the nodes.
    pub(super) messages: Messages,
    /// None: nobody asks for it.
    pub(super) traffic: Option<Traffic>,
    told: Vec<(f64, JobId, Response)>,
    /// Jobs, and degraded nodes of theirs of which the KVS had an event.
    pub(super) told_degraded: BTreeSet<(String, u32)>,
    /// Of these ranks an exception has said that memory was short.
    pub(super) told_oom: BTreeSet<(String, u32)>,
    transcript: Option<Vec<String>>,
    events: u64,
    coverage: Coverage,
}

/// Runs one seed, without the faults in `left_out`. The transcript is long, so it is kept only if
/// `keep_transcript` is set.
pub fn run(
    seed: u64,
    profile: &Profile,
    left_out: &BTreeSet<FaultId>,
    keep_transcript: bool,
) -> Outcome {
    World::new(seed, profile.clone(), left_out.clone(), keep_transcript).run()
}

/// Runs one seed with these messages from outside. If all of them are refused, the run is the same
/// as without them. A message to a rank that does not exist reaches nobody.
pub fn run_with(
    seed: u64,
    profile: &Profile,
    messages: Vec<Sent>,
    keep_transcript: bool,
) -> Outcome {
    let mut world = World::new(seed, profile.clone(), BTreeSet::new(), keep_transcript);
    world.messages = Messages::new(messages);
    world.run()
}

impl World {
    fn new(
        seed: u64,
        profile: Profile,
        left_out: BTreeSet<FaultId>,
        keep_transcript: bool,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rank = |_| {
            let is_slow = rng.random_bool(profile.slow_systemd);
            let reserves = rng.random_bool(DISKS_THAT_RESERVE);
            let disk = if reserves { SimDisk::default() } else { SimDisk::without_reserves() };
            Rank::new(is_slow, disk)
        };
        let ranks = (0..profile.ranks).map(&mut rank).collect();
        let is_quiet = profile.is_quiet();
        // It has decided something once. Seeds that are known for what they find keep that.
        let _: u64 = rng.random();
        Self {
            faults: Faults::new(seed, &profile, left_out),
            ranks,
            site: rng.random_bool(profile.scripts).then(|| script::site(&mut rng)),
            rng,
            profile,
            now: 0.0,
            queue: BTreeMap::new(),
            sequence: 0,
            waiting: VecDeque::new(),
            busy: false,
            requests: Requests::default(),
            kvs: Kvs::default(),
            manager: Manager::new(is_quiet),
            awake_since: 0.0,
            unsteady_at: 0.0,
            awaits_change: None,
            ways: BTreeMap::new(),
            violations: Vec::new(),
            forgotten: BTreeMap::new(),
            given_up: BTreeSet::new(),
            resource_away_until: 0.0,
            drained: BTreeSet::new(),
            drain_answered: BTreeSet::new(),
            undrained: BTreeMap::new(),
            drained_for_script: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            entered: BTreeSet::new(),
            allocations: BTreeMap::new(),
            last_allocation: 0.0,
            links: BTreeMap::new(),
            barriers: BTreeMap::new(),
            bequests: BTreeMap::new(),
            asked_shells: BTreeMap::new(),
            marks: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            tracked: BTreeMap::new(),
            intruders: BTreeSet::new(),
            messages: Messages::default(),
            traffic: is_quiet.then(Traffic::default),
            told: Vec::new(),
            told_degraded: BTreeSet::new(),
            told_oom: BTreeSet::new(),
            transcript: keep_transcript.then(Vec::new),
            events: 0,
            coverage: Coverage::default(),
        }
    }

    fn run(mut self) -> Outcome {
        let seconds = self.profile.seconds;
        self.begin();
        self.play(seconds);
        if self.violations.is_empty() {
            self.heal();
            self.play(seconds + HEAL_SECONDS);
        }
        if self.violations.is_empty() {
            self.check_end();
        }
        Outcome {
            violations: self.violations,
            transcript: self.transcript.unwrap_or_default(),
            faults: self.faults.struck,
            events: self.events,
            seconds: self.now,
            coverage: self.coverage,
            told: self.told,
            traffic: self.traffic.map(|traffic| traffic.jobs).unwrap_or_default(),
            undisturbed: !self.messages.disturb,
            heard: self.messages.all.iter().map(|message| message.heard).collect(),
        }
    }

    fn begin(&mut self) {
        for rank in 0..self.profile.ranks {
            self.load(rank);
        }
        let first = if self.profile.is_quiet() { SETTLED } else { 0.0 };
        for _ in 0..self.profile.jobs {
            let at = self.rng.random_range(first..self.profile.seconds * 0.7);
            self.at(at, Item::Submit);
        }
        self.schedule_faults();
        self.schedule_messages();
    }

    /// Handles the items of the queue until `end`, or until the queue is empty or an invariant is
    /// broken.
    fn play(&mut self, end: f64) {
        while let Some((key, _)) = self.queue.first_key_value() {
            let at = f64::from_bits(key.0);
            if at > end || !self.violations.is_empty() {
                break;
            }
            let Some((_, item)) = self.queue.pop_first() else { break };
            self.now = self.now.max(at);
            match self.stopped_for(&item) {
                Some(until) => self.at(until, item),
                None => self.handle_item(item),
            }
        }
        if self.violations.is_empty() {
            self.now = self.now.max(self.queue.first_key_value().map_or(self.now, |_| end));
        }
    }

    pub(super) fn handle_item(&mut self, item: Item) {
        match item {
            Item::Allocate(id) => self.allocate(id),
            Item::BusClosed(life) => self.handle_bus_closed(life),
            Item::CancelDeceived => self.cancel_deceived(),
            Item::CheckForgotten => self.check_forgotten(),
            Item::Cleaning { to, id } => self.read_cleaning(to, id),
            Item::Connect(life) => self.connect_bus(life),
            Item::Deliver { to, event } => self.deliver(to, *event),
            Item::Disk(item) => self.handle_disk_item(item),
            Item::BusHasRoom(rank) => self.ranks[rank as usize].systemd.set_quotas(None, None),
            Item::Drained(drain) => self.answer_drain(*drain),
            Item::EndShell { id, status } => self.end_shell(id, status),
            Item::Fault(id) => self.handle_fault(id),
            Item::OutputGrown(rank) => self.handle_growth(rank),
            Item::PowerCut(id) => {
                let mut rng = self.faults.rng(id);
                self.reboot(0, &mut rng);
            }
            Item::PrologEnded(id) => self.send_start_request(id),
            Item::KillJob { from, id, signal } => self.kill_job(from, id, signal),
            Item::Graft { from, id, root, broker } => self.graft(from, id, *root, broker),
            Item::Grafted { from, id, result, broker } => {
                self.handle_grafted(from, id, *result, broker);
            }
            Item::HoldEnds { to, id, broker } => self.end_hold(to, id, broker),
            Item::ReleaseKept { to, id, broker } => self.keep_release(to, id, broker),
            Item::KvsApply { from, id, op } => self.apply_kvs_op(from, id, *op),
            Item::KvsDone { to, id, result } => {
                self.deliver(to, Event::Kvs { id, result: *result });
            }
            Item::CheckpointGathers { from, jobs, ended } => {
                self.gather_checkpoint(from, &jobs, ended);
            }
            Item::CheckpointBegins { from, roots, ended, broker } => {
                self.begin_checkpoint(from, (*roots, &ended), broker);
            }
            Item::CheckpointWritten { to, number } => self.write_checkpoint(to, number),
            Item::CheckpointEnds { to, number } => self.end_checkpoint(to, number),
            Item::LeftoverEnds(id) => self.end_leftover(id),
            Item::CommitLine(id) => drop(self.commit_line(id)),
            Item::Load { rank } => self.load(rank),
            Item::ManagerCommits(broker) => self.commit_manager(broker),
            Item::Message(index) => self.deliver_message(index),
            Item::ReleaseReturns(rank) => self.set_release(rank, false),
            Item::Resume(rank) => self.resume(rank),
            Item::Script(step) => self.handle_step(step),
            Item::ShutDown(rank, brokers) => self.end_shutdown(rank, brokers),
            Item::Submit => self.submit(),
            Item::Timer(life) => self.handle_timer(life),
            Item::Unload(life) => self.end_unload(life),
            Item::WriteLine(id) => self.write_line(id),
            other => self.handle_link_item(other),
        }
    }

    fn handle_link_item(&mut self, item: Item) {
        match item {
            Item::AnswerShell(id, packet) => self.answer_as_shell(id, &packet),
            Item::Cross(crossing) => self.end_crossing(*crossing),
            Item::FromBroker { id, number, packet } => self.handle_at_link(id, number, packet),
            Item::LinkTried(id) => self.end_connecting(id),
            Item::LinkTimer(id) => self.handle_link_timer(id),
            Item::Speak { id, is_asking } => self.speak(id, is_asking),
            Item::ToBroker { id, number, packet } => self.handle_at_broker(id, number, packet),
            Item::ToRank0(waiter) => self.handle_at_rank_0(*waiter),
            Item::ToShell(waiter, answer) => self.answer_shell(&waiter, answer),
            of_systemd => self.handle_systemd_item(of_systemd),
        }
    }

    pub(super) fn life(&self, rank: u32) -> Life {
        Life { rank, number: self.ranks[rank as usize].life }
    }

    pub(super) fn is_alive(&self, life: Life) -> bool {
        let rank = &self.ranks[life.rank as usize];
        rank.node.is_some() && rank.life == life.number
    }

    fn deliver(&mut self, to: Life, event: Event) {
        if self.is_alive(to) {
            self.handle(to.rank, event);
        }
    }

    fn handle_timer(&mut self, life: Life) {
        let rank = &self.ranks[life.rank as usize];
        let next = rank.node.as_ref().and_then(Node::next_timeout);
        if self.is_alive(life) && next.is_some_and(|at| at <= MonoTime(self.now)) {
            self.handle(life.rank, Event::Timeout);
        }
    }

    /// Has a node handle an event. Events that its effects cause at once are handled after it, as
    /// in a real broker.
    pub(super) fn handle(&mut self, rank: u32, event: Event) {
        let life = self.life(rank);
        let state = &mut self.ranks[rank as usize];
        if state.stalled_until > self.now {
            return state.held.push((life, event));
        }
        self.waiting.push_back((life, event));
        if std::mem::replace(&mut self.busy, true) {
            return;
        }
        while let Some((life, event)) = self.waiting.pop_front() {
            if self.is_alive(life) {
                self.handle_now(life.rank, event);
            }
        }
        self.busy = false;
    }

    /// A rank that stalled goes on, with the events that reached it meanwhile.
    fn resume(&mut self, rank: u32) {
        if self.ranks[rank as usize].stalled_until <= self.now {
            if rank == 0 {
                self.awake_since = self.now;
            }
            for (life, event) in std::mem::take(&mut self.ranks[rank as usize].held) {
                self.deliver(life, event);
            }
        }
    }

    /// Handles an event now. The broker can be killed before any of the effects.
    fn handle_now(&mut self, rank: u32, event: Event) {
        note!(self, "rank {rank} <- {event:?}");
        self.events += 1;
        let now = self.time(rank);
        let state = &mut self.ranks[rank as usize];
        let Some(node) = &mut state.node else { return };
        let coverage = &mut self.coverage;
        let watch = |node: &Node, event: &Event| coverage.meet(node, now, event);
        node.handle_watched(now, event, &mut state.effects, watch);
        let effects = std::mem::take(&mut state.effects.list);
        let life = self.life(rank);
        for effect in effects {
            let answered = Self::answered_by(&effect);
            // The answer to a message from outside, or a log line about it, is no occasion for a
            // fault. So the world's own occasions keep their numbers.
            let logged = self.messages.is_handled && matches!(effect, Effect::Log { .. });
            let occasion = answered.is_none() && !logged;
            if occasion && self.faults.draw(FaultKind::CrashBetweenEffects).is_some() {
                self.kill(rank);
            }
            if !self.is_alive(life) {
                return;
            }
            match answered {
                Some(index) => self.answer_message(index, effect),
                None => self.perform(life, effect),
            }
        }
        let state = &self.ranks[rank as usize];
        let Some(node) = &state.node else { return };
        if state.is_leaving && node.is_finished() {
            self.end_unload(life);
        } else if let Some(at) = node.next_timeout() {
            self.at(at.0, Item::Timer(life));
        }
    }

    pub(super) fn at(&mut self, at: f64, item: Item) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now).to_bits(), self.sequence), item);
    }

    pub(super) fn after(&mut self, least: f64, most: f64, item: Item) {
        let pause = self.rng.random_range(least..most);
        self.at(self.now + pause, item);
    }

    /// Sends something from one rank to another. It arrives after a delay, and in order.
    pub(super) fn send(&mut self, from: u32, to: u32, item: Item) {
        self.send_on(from, to, item);
    }

    /// Sends something on the way between two numbers, which need not be ranks. It arrives after a
    /// delay, and in order with the others on this way.
    pub(super) fn send_on(&mut self, from: u32, to: u32, item: Item) {
        let delay = self.rng.random_range(0.000_1..0.005);
        let way = self.ways.entry((from, to)).or_default();
        let arrival = (self.now + delay).max(*way + 1e-9);
        *way = arrival;
        self.at(arrival, item);
    }

    pub(super) fn has_transcript(&self) -> bool {
        self.transcript.is_some()
    }

    pub(super) fn note(&mut self, line: &str) {
        let now = self.now;
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{now:12.6} {line}"));
        }
    }

    pub(super) fn violate(&mut self, invariant: &'static str, seen: String) {
        note!(self, "VIOLATION {invariant}: {seen}");
        self.violations.push(Violation { invariant, seen });
    }
}

//! The world: time, messages, and what happens next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::Violation;
use super::coverage::Coverage;
use super::fault::{FaultId, Faults};
use super::kind::FaultKind;
use super::kvs::Kvs;
use super::manager::{Allocation, Manager};
use super::packet::SimPacket;
use super::profile::Profile;
use super::rank::{OWNER, Rank, instance};
use super::request::{Life, Requests};
use super::sent::{Heard, Messages, Sent};
use super::shell::ShellId;
use crate::config::Config;
use crate::machine::{Effect, Event, Facts, KvsOp, KvsResult, Node, Now};
use crate::port::supervisor::UnitSpec;
use crate::proto::{BrokerRank, JobId, Response, UnitName, WaitStatus};
use crate::supervisor::tracker::{Ask, News};

mod effects;
mod faults;
mod links;
mod sent;
mod service;
mod shells;
mod supervise;

use links::{Link, Waiter};

/// Simulated seconds after the last fault in which everything must come to its end.
const HEAL_SECONDS: f64 = 4.0 * 3600.0;

/// What one seed has shown.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Broken promises; none is the aim.
    pub violations: Vec<Violation>,
    /// What happened, a line each, byte-equal for the same seed.
    pub transcript: Vec<String>,
    /// Faults that have struck, in order.
    pub faults: Vec<FaultId>,
    /// Events that nodes handled.
    pub events: u64,
    /// Simulated seconds.
    pub seconds: f64,
    /// What was met in which state.
    pub coverage: Coverage,
    /// What the job manager was told of which job, and when.
    pub told: Vec<(f64, JobId, Response)>,
    /// What became of each message from outside.
    pub heard: Vec<Heard>,
    /// Every message from outside was refused at once, whoever it came from: all else must have
    /// gone as without them.
    pub undisturbed: bool,
}

/// What can happen.
pub(super) enum Item {
    Alarm {
        rank: u32,
        boot: u32,
        unit: UnitName,
        number: u64,
    },
    Allocate(JobId),
    Ask {
        rank: u32,
        connection: u64,
        ask: Box<Ask>,
        spec: Option<Box<UnitSpec>>,
    },
    BusClosed(Life),
    CancelDeceived,
    Connect(Life),
    Deliver {
        to: Life,
        event: Box<Event>,
    },
    DiskEmptied(u32),
    Execute {
        rank: u32,
        boot: u32,
        unit: UnitName,
    },
    Exit {
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
        boot: u32,
        unit: UnitName,
    },
    Grown {
        rank: u32,
    },
    Hangup {
        rank: u32,
        connection: u64,
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
    KvsSync {
        from: Life,
        jobs: Vec<JobId>,
    },
    KvsWritten {
        to: Life,
        number: u64,
    },
    Later {
        rank: u32,
        connection: u64,
        number: u64,
    },
    LeftoverEnds(ShellId),
    Linked(ShellId),
    LinkTimer(ShellId),
    Load {
        rank: u32,
    },
    /// The job manager of this life of rank 0's broker commits its eventlogs.
    ManagerCommits(u32),
    /// Somebody's message comes.
    Message(usize),
    News {
        rank: u32,
        connection: u64,
        news: Box<News>,
    },
    Note(ShellId),
    Ready {
        rank: u32,
        boot: u32,
        unit: UnitName,
    },
    /// A slow systemd sends its signals.
    Signals(u32),
    Signal {
        rank: u32,
        unit: UnitName,
        signal: i32,
        all: bool,
    },
    Resume(u32),
    Submit,
    SystemdLeaves(u32),
    SystemdReturns(u32),
    Timer(Life),
    ToBroker {
        id: ShellId,
        number: u64,
        packet: SimPacket,
    },
    ToRank0(Box<Waiter>),
    ToShell(Box<Waiter>, Result<Value, i32>),
    Write(ShellId),
}

/// The world of one seed.
pub(super) struct World {
    pub(super) rng: ChaCha8Rng,
    pub(super) profile: Profile,
    pub(super) faults: Faults,
    pub(super) nested: bool,
    pub(super) now: f64,
    queue: BTreeMap<(u64, u64), Item>,
    sequence: u64,
    waiting: VecDeque<(Life, Event)>,
    busy: bool,
    pub(super) ranks: Vec<Rank>,
    pub(super) requests: Requests,
    pub(super) kvs: Kvs,
    pub(super) manager: Manager,
    /// Last arrival on each way: nothing overtakes.
    ways: BTreeMap<(u32, u32), f64>,
    pub(super) violations: Vec<Violation>,
    /// Which ranks were drained for which jobs.
    pub(super) drained: BTreeSet<(String, u32)>,
    /// Every allocation there ever was, by digest.
    pub(super) allocations: BTreeMap<String, Allocation>,
    last_allocation: f64,
    /// Shells' connections.
    links: BTreeMap<ShellId, Link>,
    /// Who waits with which request, in the barrier or for a checkpoint.
    barriers: BTreeMap<u64, Waiter>,
    checkpoints: BTreeMap<u64, Waiter>,
    /// Requests in the barrier, with their entry, that an unloaded module has kept.
    parked: Vec<(Waiter, u32)>,
    /// Requests that must be refused.
    pub(super) intruders: BTreeSet<u64>,
    /// What somebody outside of the world says to its nodes.
    pub(super) messages: Messages,
    told: Vec<(f64, JobId, Response)>,
    transcript: Option<Vec<String>>,
    events: u64,
    coverage: Coverage,
}

/// Plays one seed, without some of its faults. The transcript is kept only if it is wanted: it
/// is long.
pub fn run(
    seed: u64,
    profile: &Profile,
    left_out: &BTreeSet<FaultId>,
    keep_transcript: bool,
) -> Outcome {
    World::new(seed, profile.clone(), left_out.clone(), keep_transcript).run()
}

/// Plays one seed, while these messages come. Where all of them are refused, the world goes its
/// way as without them. A message to a rank that is not there reaches nobody.
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

pub(super) fn config() -> Config {
    Config { fanout: 2, imp: Some("/bin/imp".to_string()), ..Config::default() }
}

pub(super) fn new_node(rank: u32, nested: bool) -> Node {
    let facts = Facts {
        rank: BrokerRank(rank),
        owner: OWNER,
        instance: instance(),
        shell_uri: String::new(),
        no_connector: None,
        job_shell: "/bin/shell".to_string(),
        nested,
        working_directory: None,
    };
    Node::new(config(), facts)
}

impl World {
    fn new(
        seed: u64,
        profile: Profile,
        left_out: BTreeSet<FaultId>,
        keep_transcript: bool,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let slow = |rng: &mut ChaCha8Rng| rng.random_bool(profile.slow_systemd);
        Self {
            faults: Faults::new(seed, &profile, left_out),
            ranks: (0..profile.ranks).map(|_| Rank::new(slow(&mut rng))).collect(),
            nested: rng.random_bool(profile.nested),
            rng,
            profile,
            now: 0.0,
            queue: BTreeMap::new(),
            sequence: 0,
            waiting: VecDeque::new(),
            busy: false,
            requests: Requests::default(),
            kvs: Kvs::default(),
            manager: Manager::default(),
            ways: BTreeMap::new(),
            violations: Vec::new(),
            drained: BTreeSet::new(),
            allocations: BTreeMap::new(),
            last_allocation: 0.0,
            links: BTreeMap::new(),
            barriers: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            parked: Vec::new(),
            intruders: BTreeSet::new(),
            messages: Messages::default(),
            told: Vec::new(),
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
            undisturbed: !self.messages.disturb,
            heard: self.messages.all.iter().map(|message| message.heard).collect(),
        }
    }

    fn begin(&mut self) {
        for rank in 0..self.profile.ranks {
            self.load(rank);
        }
        for _ in 0..self.profile.jobs {
            let at = self.rng.random_range(0.0..self.profile.seconds * 0.7);
            self.at(at, Item::Submit);
        }
        self.schedule_faults();
        self.schedule_messages();
    }

    /// Lets things happen until `end`, or until nothing more will.
    fn play(&mut self, end: f64) {
        while let Some((key, _)) = self.queue.first_key_value() {
            let at = f64::from_bits(key.0);
            if at > end || !self.violations.is_empty() {
                break;
            }
            let Some((_, item)) = self.queue.pop_first() else { break };
            self.now = self.now.max(at);
            self.happen(item);
        }
        if self.violations.is_empty() {
            self.now = self.now.max(self.queue.first_key_value().map_or(self.now, |_| end));
        }
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::Allocate(id) => self.allocate(id),
            Item::BusClosed(life) => self.bus_closed(life),
            Item::CancelDeceived => self.cancel_deceived(),
            Item::Connect(life) => self.connect(life),
            Item::Deliver { to, event } => self.deliver(to, *event),
            Item::DiskEmptied(rank) => self.disk_emptied(rank),
            Item::Exit { id, status } => self.exit(id, status),
            Item::Fault(id) => self.fault(id),
            Item::Grown { rank } => self.grown(rank),
            Item::KvsApply { from, id, op } => self.kvs_apply(from, id, *op),
            Item::KvsDone { to, id, result } => {
                self.deliver(to, Event::Kvs { id, result: *result });
            }
            Item::KvsSync { from, jobs } => self.kvs_sync(from, &jobs),
            Item::KvsWritten { to, number } => self.kvs_written(to, number),
            Item::LeftoverEnds(id) => self.leftover_ends(id),
            Item::Note(id) => self.note_down(id),
            Item::Load { rank } => self.load(rank),
            Item::ManagerCommits(broker) => self.manager_commits(broker),
            Item::Message(index) => self.message(index),
            Item::Resume(rank) => self.resume(rank),
            Item::Submit => self.submit(),
            Item::Timer(life) => self.timer(life),
            Item::Write(id) => self.write(id),
            other => self.happen_to_links(other),
        }
    }

    fn happen_to_links(&mut self, item: Item) {
        match item {
            Item::FromBroker { id, number, packet } => self.link_hears(id, number, packet),
            Item::Linked(id) => self.linked(id),
            Item::LinkTimer(id) => self.link_timer(id),
            Item::ToBroker { id, number, packet } => self.broker_hears(id, number, packet),
            Item::ToRank0(waiter) => self.rank_0_hears(*waiter),
            Item::ToShell(waiter, answer) => self.answer_shell(&waiter, answer),
            of_systemd => self.happen_to_systemd(of_systemd),
        }
    }

    fn happen_to_systemd(&mut self, item: Item) {
        match item {
            Item::Alarm { rank, boot, unit, number } => {
                let state = &mut self.ranks[rank as usize];
                state.systemd.alarm(&unit, if state.boot == boot { number } else { u64::MAX });
                self.stir(rank);
            }
            Item::Ask { rank, connection, ask, spec } => {
                self.ask_arrives(rank, connection, &ask, spec.as_deref());
            }
            Item::Execute { rank, boot, unit } => self.execute(rank, boot, &unit),
            Item::Fork { rank, boot, unit } => self.fork(rank, boot, &unit),
            Item::Hangup { rank, connection } => {
                self.ranks[rank as usize].systemd.disconnect(connection);
            }
            Item::Later { rank, connection, number } => {
                self.ranks[rank as usize].systemd.later(connection, number);
                self.stir(rank);
            }
            Item::News { rank, connection, news } => self.hear(rank, connection, *news),
            Item::Ready { rank, boot, unit } => self.ready(rank, boot, &unit),
            Item::Signals(rank) => {
                self.ranks[rank as usize].systemd.signal();
                self.stir(rank);
            }
            Item::Signal { rank, unit, signal, all } => self.signal(rank, &unit, signal, all),
            Item::SystemdLeaves(rank) => self.systemd_leaves(rank),
            Item::SystemdReturns(rank) => self.systemd_returns(rank),
            _ => (), // handled by the caller
        }
    }

    /// Seconds since the epoch, by a rank's clock.
    pub(super) fn wall(&self, rank: u32) -> f64 {
        1e9 + self.now + self.ranks[rank as usize].clock
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

    fn timer(&mut self, life: Life) {
        let rank = &self.ranks[life.rank as usize];
        let next = rank.node.as_ref().and_then(Node::next_timeout);
        if self.is_alive(life) && next.is_some_and(|at| at <= self.now) {
            self.handle(life.rank, Event::Timeout);
        }
    }

    /// A node handles an event. What its effects bring about at once waits its turn, as in a
    /// real broker.
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

    /// A rank that has stalled goes on where it was.
    fn resume(&mut self, rank: u32) {
        if self.ranks[rank as usize].stalled_until <= self.now {
            for (life, event) in std::mem::take(&mut self.ranks[rank as usize].held) {
                self.deliver(life, event);
            }
        }
    }

    /// A crash can fall before any effect.
    fn handle_now(&mut self, rank: u32, event: Event) {
        if self.transcript.is_some() {
            self.note(&format!("rank {rank} <- {event:?}"));
        }
        self.events += 1;
        let now = Now { mono: self.now, wall: self.wall(rank) };
        let state = &mut self.ranks[rank as usize];
        let Some(node) = &mut state.node else { return };
        let coverage = &mut self.coverage;
        let watch = |node: &Node, event: &Event| coverage.meet(node, now, event);
        node.handle_watched(now, event, &mut state.effects, watch);
        let effects = std::mem::take(&mut state.effects.list);
        let life = self.life(rank);
        for effect in effects {
            let answered = Self::answered_by(&effect);
            // An answer to somebody outside, or a line in the log about him, is no occasion for a
            // fault: the world's own keep their numbers.
            let logged = self.messages.is_handled && matches!(effect, Effect::Log { .. });
            let occasion = answered.is_none() && !logged;
            if occasion && self.faults.strikes(FaultKind::CrashBetweenEffects).is_some() {
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
        let next = self.ranks[rank as usize].node.as_ref().and_then(Node::next_timeout);
        if let Some(at) = next {
            self.at(at, Item::Timer(life));
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

    /// Sends something from one rank to another: delayed, in order.
    pub(super) fn send(&mut self, from: u32, to: u32, item: Item) {
        self.send_on(from, to, item);
    }

    /// Sends something on a way of its own: delayed, in order.
    pub(super) fn send_on(&mut self, from: u32, to: u32, item: Item) {
        let delay = self.rng.random_range(0.000_1..0.005);
        let way = self.ways.entry((from, to)).or_default();
        let arrival = (self.now + delay).max(*way + 1e-9);
        *way = arrival;
        self.at(arrival, item);
    }

    pub(super) fn note(&mut self, line: &str) {
        let now = self.now;
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{now:12.6} {line}"));
        }
    }

    pub(super) fn violate(&mut self, invariant: &'static str, seen: String) {
        self.note(&format!("VIOLATION {invariant}: {seen}"));
        self.violations.push(Violation { invariant, seen });
    }
}

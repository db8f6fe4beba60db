//! The world: time, messages, and what happens next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Violation;
use super::fault::Profile;
use super::kvs::Kvs;
use super::manager::Manager;
use super::rank::Rank;
use super::request::{Life, Requests};
use crate::config::Config;
use crate::machine::{Event, Facts, KvsOp, KvsResult, Node, Now, Owner};
use crate::proto::{BrokerRank, Idset, InstanceId, JobId, UnitName, WaitStatus};

mod effects;
mod faults;
mod units;

/// Simulated seconds after the last fault in which everything must come to its end.
const HEAL_SECONDS: f64 = 4.0 * 3600.0;

/// What one seed has shown.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Broken promises; none is the aim.
    pub violations: Vec<Violation>,
    /// What happened, a line each, byte-equal for the same seed.
    pub transcript: Vec<String>,
    /// Faults that were injected.
    pub faults: u64,
    /// Events that nodes handled.
    pub events: u64,
    /// Simulated seconds.
    pub seconds: f64,
}

/// What can happen.
pub(super) enum Item {
    Deliver {
        to: Life,
        event: Box<Event>,
    },
    ExitUnit {
        rank: u32,
        unit: UnitName,
        status: WaitStatus,
    },
    Fault(FaultKind),
    Allocate(JobId),
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
    LeftoverEnds {
        rank: u32,
        unit: UnitName,
    },
    Load {
        rank: u32,
    },
    /// The job manager of this life of rank 0's broker commits its eventlogs.
    ManagerCommits(u32),
    StartCall {
        from: Life,
        unit: UnitName,
        digest: String,
    },
    StartUnit {
        rank: u32,
        unit: UnitName,
    },
    Submit,
    Timer(Life),
    Write {
        rank: u32,
        unit: UnitName,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FaultKind {
    Cancel,
    Kill,
    KillAll,
    Reload,
}

/// The world of one seed.
pub(super) struct World {
    pub(super) rng: ChaCha8Rng,
    pub(super) profile: Profile,
    pub(super) now: f64,
    queue: BTreeMap<(u64, u64), Item>,
    sequence: u64,
    waiting: VecDeque<(Life, Event)>,
    busy: bool,
    pub(super) ranks: Vec<Rank>,
    pub(super) requests: Requests,
    pub(super) kvs: Kvs,
    pub(super) manager: Manager,
    /// Last arrival between two ranks: nothing overtakes on one way.
    ways: BTreeMap<(u32, u32), f64>,
    pub(super) violations: Vec<Violation>,
    pub(super) drained: BTreeSet<(JobId, u32)>,
    pub(super) healed: bool,
    transcript: Option<Vec<String>>,
    /// Which job each question to rank 0 is about.
    asked_for: BTreeMap<u64, (JobId, Owner)>,
    pub(super) faults: u64,
    events: u64,
}

/// Plays one seed. The transcript is kept only if it is wanted: it is long.
pub fn run(seed: u64, profile: &Profile, keep_transcript: bool) -> Outcome {
    let mut world = World::new(seed, profile.clone(), keep_transcript);
    world.schedule_jobs();
    world.schedule_faults();
    world.play(profile.seconds);
    world.heal();
    world.play(profile.seconds + HEAL_SECONDS);
    world.check_end();
    Outcome {
        violations: world.violations,
        transcript: world.transcript.unwrap_or_default(),
        faults: world.faults,
        events: world.events,
        seconds: world.now,
    }
}

pub(super) fn config() -> Config {
    Config { fanout: 2, ..Config::default() }
}

pub(super) fn new_node(rank: u32) -> Node {
    let facts = Facts {
        rank: BrokerRank(rank),
        owner: 1,
        instance: InstanceId::new("/sim", 1),
        local_uri: String::new(),
        job_shell: "/bin/shell".to_string(),
        nested: false,
        working_directory: None,
    };
    Node::new(config(), facts)
}

impl World {
    fn new(seed: u64, profile: Profile, keep_transcript: bool) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            ranks: (0..profile.ranks).map(|rank| Rank::new(new_node(rank))).collect(),
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
            healed: false,
            transcript: keep_transcript.then(Vec::new),
            asked_for: BTreeMap::new(),
            faults: 0,
            events: 0,
        }
    }

    fn schedule_jobs(&mut self) {
        for rank in 0..self.profile.ranks {
            self.ready(rank);
        }
        for _ in 0..self.profile.jobs {
            let at = self.rng.random_range(0.0..self.profile.seconds * 0.7);
            self.at(at, Item::Submit);
        }
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
            Item::Deliver { to, event } => self.deliver(to, *event),
            Item::ExitUnit { rank, unit, status } => self.exit_unit(rank, &unit, status),
            Item::Fault(kind) => self.fault(kind),
            Item::KvsApply { from, id, op } => self.kvs_apply(from, id, *op),
            Item::KvsDone { to, id, result } => {
                self.deliver(to, Event::Kvs { id, result: *result });
            }
            Item::KvsSync { from, jobs } => self.kvs_sync(from, &jobs),
            Item::KvsWritten { to, number } => self.kvs_written(to, number),
            Item::LeftoverEnds { rank, unit } => self.leftover_ends(rank, &unit),
            Item::Load { rank } => self.load(rank),
            Item::ManagerCommits(broker) => {
                if self.ranks[0].broker_up && self.ranks[0].brokers == broker {
                    self.kvs.commit(&self.manager);
                }
            }
            Item::StartCall { from, unit, digest } => self.start_call(from, unit, digest),
            Item::StartUnit { rank, unit } => self.start_unit(rank, &unit),
            Item::Submit => self.submit(),
            Item::Timer(life) => self.timer(life),
            Item::Write { rank, unit } => self.write(rank, &unit),
        }
    }

    /// A user submits a job, now or when rank 0 is back.
    fn submit(&mut self) {
        if !self.ranks[0].broker_up {
            return self.after(0.1, 5.0, Item::Submit);
        }
        let id = self.manager.submit(0.0);
        self.note(&format!("{id} is submitted"));
        self.manager_changed();
        self.after(0.001, 1.0, Item::Allocate(id));
    }

    fn allocate(&mut self, id: JobId) {
        let first = self.rng.random_range(0..self.profile.ranks);
        let last = self.rng.random_range(first..self.profile.ranks);
        let ranks = Idset::from_range(first..last + 1);
        if self.ranks[0].broker_up {
            self.manager.allocate(id, ranks, self.wall());
            self.manager_changed();
            self.ask_for(id);
        }
    }

    /// The job manager's eventlogs are committed a moment after they have changed.
    pub(super) fn manager_changed(&mut self) {
        let broker = self.ranks[0].brokers;
        self.after(0.000_1, 0.02, Item::ManagerCommits(broker));
    }

    /// Seconds since the epoch.
    pub(super) fn wall(&self) -> f64 {
        1e9 + self.now
    }

    /// The job manager sends a start request, if there is a service to send it to.
    pub(super) fn ask_for(&mut self, id: JobId) {
        if self.ranks[0].node.is_none() {
            return;
        }
        if let Some(payload) = self.manager.request(id) {
            self.note(&format!("start request for {id}"));
            let life = self.life(0);
            let number = self.requests.open(life, life, super::request::Asked::Manager);
            let request = crate::machine::RequestId::Remote(number);
            self.handle(0, Event::Start { request, payload });
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
        self.waiting.push_back((self.life(rank), event));
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

    /// A crash can fall before any effect.
    fn handle_now(&mut self, rank: u32, event: Event) {
        if self.transcript.is_some() {
            self.note(&format!("rank {rank} <- {event:?}"));
        }
        self.events += 1;
        let now = Now { mono: self.now, wall: self.wall() };
        let state = &mut self.ranks[rank as usize];
        let Some(node) = &mut state.node else { return };
        node.handle(now, event, &mut state.effects);
        let effects = std::mem::take(&mut state.effects.list);
        let life = self.life(rank);
        for effect in effects {
            let odds = self.profile.crash_between_effects;
            if !self.healed && odds > 0.0 && self.rng.random_bool(odds) {
                self.faults += 1;
                self.kill(rank);
            }
            if !self.is_alive(life) {
                return;
            }
            self.perform(life, effect);
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
}

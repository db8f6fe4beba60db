//! A client, its connector, and a broker that is killed again and again. All events follow from a
//! seed.

#[path = "support/broker.rs"]
mod broker;
#[path = "support/kvs.rs"]
mod kvs;
mod support;

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use resume_machine::{Connector, Kind, Limits, Phase, SendError};
use serde_json::json;

use broker::Broker;
use kvs::{append, stream};
use support::Message;

/// `RIDE_SEEDS` in the environment overrides it.
const SEEDS: u64 = 1000;
const STEPS: u64 = 400;
/// Each takes a tenth of a second on average.
const HEAL_STEPS: u64 = 10_000;
const NAMESPACE: &str = "job-1";

/// A request that the client waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asked {
    Commit,
    Lookup,
    Submit,
    Subscribe,
    Watch,
}

struct World {
    rng: ChaCha8Rng,
    now: f64,
    connector: Connector<Message>,
    broker: Broker,
    is_up: bool,
    is_linked: bool,
    /// Messages in flight on the socket.
    to_broker: Vec<Message>,
    next_tag: u32,
    waiting: BTreeMap<u32, Asked>,
    commits: u64,
    submits: u64,
    refused: u64,
    barriers_left: u64,
    in_barrier: bool,
    watched: Vec<u64>,
    /// Rank 0 was killed: entries that were written again may be in another order.
    rolled_back: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits { retained_max: 4000, commits_max: 1 << 20, ..Limits::default() };
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0.0,
            connector: Connector::new(seed, limits, true, 0.0),
            broker: Broker::new(&[NAMESPACE]),
            is_up: true,
            is_linked: true,
            to_broker: Vec::new(),
            next_tag: 1,
            waiting: BTreeMap::new(),
            commits: 0,
            submits: 0,
            refused: 0,
            barriers_left: 2,
            in_barrier: false,
            watched: Vec::new(),
            rolled_back: false,
        }
    }

    fn ask(&mut self, asked: Asked, message: impl Fn(u32) -> Message) -> bool {
        let tag = self.next_tag;
        match self.connector.send(self.now, message(tag)) {
            Ok(()) => {
                self.next_tag += 1;
                self.waiting.insert(tag, asked);
                true
            }
            Err(SendError::Full) => false,
            Err(SendError::Ended(errnum)) => panic!("ended: {errnum}"),
        }
    }

    fn client(&mut self) {
        match self.rng.random_range(0..12) {
            0..5 => {
                let payload = append(NAMESPACE, self.commits);
                if self.ask(Asked::Commit, |tag| Message::ask("kvs.commit", tag, &payload)) {
                    self.commits += 1;
                }
            }
            5..8 => {
                self.ask(Asked::Lookup, |tag| Message::ask("kvs.lookup", tag, &json!({})));
            }
            8 => {
                let payload = json!({ "n": self.submits });
                if self.ask(Asked::Submit, |tag| Message::ask("job-ingest.submit", tag, &payload)) {
                    self.submits += 1;
                }
            }
            9 if !self.waiting.values().any(|asked| *asked == Asked::Watch) => {
                let payload = json!({ "namespace": NAMESPACE, "flags": 260 });
                self.ask(Asked::Watch, |tag| stream("kvs-watch.lookup", tag, &payload));
            }
            10 if self.barriers_left > 0 && !self.in_barrier => {
                let request = Message::one_way("job-exec.shell-barrier", &json!({ "id": 1 }));
                self.in_barrier = self.connector.send(self.now, request).is_ok();
            }
            11 => {
                let payload = json!({ "topic": "job" });
                self.ask(Asked::Subscribe, |tag| Message::ask("event.subscribe", tag, &payload));
            }
            _ => {}
        }
    }

    fn hear(&mut self) {
        while let Some(message) = self.connector.for_client() {
            assert_eq!(message.kind, Kind::Response);
            if message.topic == "job-exec.shell-barrier" {
                assert!(self.in_barrier, "the barrier is answered twice");
                self.in_barrier = false;
                self.barriers_left -= 1;
                continue;
            }
            let asked = self.waiting.get(&message.tag).copied();
            let asked = asked.unwrap_or_else(|| panic!("answered twice: {message:?}"));
            match asked {
                Asked::Watch => {
                    assert_eq!(message.errnum, 0, "the watch goes on: {message:?}");
                    self.watched.extend(message.json()["entry"].as_u64());
                    continue;
                }
                Asked::Submit if message.errnum != 0 => self.refused += 1,
                _ => assert_eq!(message.errnum, 0, "{asked:?} is done: {message:?}"),
            }
            self.waiting.remove(&message.tag);
        }
    }

    /// Moves some messages.
    fn network(&mut self) {
        if !self.is_linked {
            return;
        }
        for _ in 0..self.rng.random_range(0..6) {
            self.to_broker.extend(self.connector.for_broker());
        }
        let arrived = self.rng.random_range(0..=self.to_broker.len());
        self.broker.inbox.extend(self.to_broker.drain(..arrived));
        for _ in 0..self.rng.random_range(0..6) {
            self.broker.step();
        }
        for _ in 0..self.rng.random_range(0..6) {
            self.broker.apply();
        }
        for _ in 0..self.rng.random_range(0..6) {
            if let Some(message) = self.broker.outbox.pop_front() {
                // A response that arrives twice must be delivered once.
                if !message.streaming && self.rng.random_ratio(1, 20) {
                    self.connector.receive(self.now, message.clone());
                }
                self.connector.receive(self.now, message);
            }
        }
    }

    fn kill(&mut self) {
        if self.rng.random() {
            self.broker.kill_rank_0();
            self.rolled_back = true;
        } else {
            self.broker.kill_follower();
        }
        // Messages in flight are lost; requests that the broker had passed on are done later.
        self.to_broker.clear();
        self.is_up = false;
        if self.is_linked {
            self.is_linked = false;
            self.connector.lost(self.now);
        }
    }

    fn fault(&mut self) {
        match self.rng.random_range(0..40) {
            0 if self.is_up => self.kill(),
            1 if self.is_up => self.broker.is_stopping = true,
            2..6 => self.is_up = true,
            6..9 if self.is_up => self.broker.restore(),
            9..12 if !self.broker.namespaces.is_empty() => self.broker.checkpoint(),
            _ => {}
        }
        if self.broker.is_stopping && self.rng.random_ratio(1, 8) {
            self.kill();
        }
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(0.0..0.2);
        if self.connector.next_timeout().is_some_and(|at| at <= self.now) {
            self.connector.timeout(self.now);
        }
        let idle = self.connector.next_timeout().is_none_or(|at| at > self.now);
        assert!(idle || self.connector.wants_link(self.now), "the driver would spin");
        if self.connector.wants_link(self.now) {
            self.connector.connecting();
            if self.is_up {
                self.broker.disconnect();
                self.is_linked = true;
                self.connector.connected();
            } else {
                self.connector.refused(self.now, 111);
            }
        }
        self.network();
        self.hear();
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            self.client();
            self.fault();
            self.step();
            assert!(self.connector.retained() < 1 << 20, "the limit on what is kept");
        }
        // Everything comes back, and the client sends no more requests.
        self.is_up = true;
        if self.broker.is_stopping {
            self.kill();
            self.is_up = true;
        }
        self.broker.restore();
        for _ in 0..HEAL_STEPS {
            self.step();
            if self.is_whole() {
                break;
            }
        }
        self.check();
    }

    fn watches(&self) -> bool {
        self.waiting.values().any(|asked| *asked == Asked::Watch)
    }

    /// All requests are done.
    fn is_whole(&self) -> bool {
        let log = self.broker.namespaces[NAMESPACE].log.len();
        let watched = !self.watches() || self.watched.len() >= log;
        let waiting = self.waiting.len() - usize::from(self.watches());
        *self.connector.phase() == Phase::Live && waiting == 0 && watched && !self.in_barrier
    }

    fn check(&self) {
        assert_eq!(*self.connector.phase(), Phase::Live);
        let mut waiting: Vec<Asked> = self.waiting.values().copied().collect();
        waiting.retain(|asked| *asked != Asked::Watch);
        assert_eq!(waiting, [], "everything is answered");
        let log = &self.broker.namespaces[NAMESPACE].log;
        assert_eq!(*log, (0..self.commits).collect::<Vec<u64>>(), "each once, in order");
        let mut submitted = self.broker.submitted.clone();
        submitted.dedup();
        assert_eq!(submitted, self.broker.submitted, "no job twice");
        assert!(
            submitted.len() as u64 + self.refused >= self.submits,
            "each submission is done or refused"
        );
        assert!(!self.in_barrier, "the barrier is answered");
        let entered = self.broker.barriers.last().copied().unwrap_or(0);
        assert_eq!(entered, 2 - self.barriers_left, "each entry has its number");
        if self.watches() {
            let mut watched = self.watched.clone();
            if self.rolled_back {
                watched.sort_unstable();
            }
            assert_eq!(watched, *log, "each entry once");
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_comes_twice() {
    let seeds = std::env::var("RIDE_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(SEEDS) {
        let result = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(result.is_ok(), "seed {seed}");
    }
}

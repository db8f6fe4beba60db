//! Shells that send to each other while their brokers are killed. All events follow from a seed.

mod support;

use std::collections::{BTreeMap, VecDeque};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use resume_machine::{ANY_RANK, Connector, Kind, Limits, NO_TAG, Packet, Phase};
use serde_json::json;

use support::Message;

/// `CHANNEL_SEEDS` in the environment overrides it.
const SEEDS: u64 = 300;
const STEPS: u64 = 400;
/// Each takes a tenth of a second on average.
const HEAL_STEPS: u64 = 5000;
const SIZE: usize = 3;
/// Prefix of the hop that a broker adds to requests of its client.
const CLIENT: &str = "client-";
const SERVICE: &str = "1000-shell-fA";
const NO_HOST: i32 = 113;
const NO_PROCESS: i32 = 3;
const NO_SERVICE: i32 = 38;
const NOT_RUNNING: i32 = 2;

/// A shell with its connector, and its broker.
struct Shell {
    connector: Connector<Message>,
    is_linked: bool,
    has_service: bool,
    is_up: bool,
    up_since: f64,
    /// The broker is shutting down: its clients are gone already.
    is_stopping: bool,
    /// To whom it has sent the message with each number.
    sent: Vec<usize>,
    next_tag: u32,
    /// Unanswered requests, by matchtag: what they ask.
    waiting: BTreeMap<u32, u64>,
    /// What it has received from each shell.
    received: [Vec<u64>; SIZE],
    /// Requests that it has not answered yet.
    to_answer: VecDeque<Message>,
    /// It closes its connection: it does nothing else any more.
    is_closing: bool,
    /// It has closed its connection.
    is_gone: bool,
}

impl Shell {
    fn new(id: u64, rank: u32) -> Self {
        Self {
            connector: Connector::new(id, Limits::default(), true, 0.0).on_rank(Some(rank)),
            is_linked: true,
            has_service: false,
            is_up: true,
            up_since: -1000.0,
            is_stopping: false,
            sent: Vec::new(),
            next_tag: 2,
            waiting: BTreeMap::new(),
            received: Default::default(),
            to_answer: VecDeque::new(),
            is_closing: false,
            is_gone: false,
        }
    }
}

impl Shell {
    /// Its broker is started, if it does not run.
    fn come_up(&mut self, now: f64) {
        if !std::mem::replace(&mut self.is_up, true) {
            self.up_since = now;
        }
    }
}

struct World {
    rng: ChaCha8Rng,
    now: f64,
    shells: Vec<Shell>,
    /// Messages on their way: from one shell's broker to another's.
    way: BTreeMap<(usize, usize), VecDeque<Message>>,
    /// Requests that a broker has passed on and that are not answered (flux-core
    /// `librouter/rpc_track.c`): from, to, request.
    tracked: Vec<(usize, usize, Message)>,
    /// The receivers do not know channels.
    is_plain: bool,
    /// Shells close their connections.
    closes: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0.0,
            shells: (0..SIZE as u32)
                .map(|rank| Shell::new(seed * 8 + u64::from(rank) + 1, rank))
                .collect(),
            way: BTreeMap::new(),
            tracked: Vec::new(),
            is_plain: false,
            closes: seed % 2 == 1,
        };
        for shell in &mut world.shells {
            let request = Message::ask("service.add", 1, &json!({ "service": SERVICE }));
            shell.waiting.insert(1, 0);
            shell.connector.send(0.0, request).expect("there is room");
        }
        for rank in 0..SIZE {
            world.write(rank, usize::MAX);
            world.hear(rank);
        }
        world
    }

    /// The broker takes up to `count` messages of its client.
    fn write(&mut self, rank: usize, count: usize) {
        for _ in 0..count {
            if !self.shells[rank].is_linked {
                return;
            }
            let Some(message) = self.shells[rank].connector.for_broker() else { return };
            self.route(rank, message);
        }
    }

    fn route(&mut self, rank: usize, mut message: Message) {
        if message.kind == Kind::Response {
            let to = message.pop_hop(CLIENT).and_then(|rank| rank.parse().ok());
            let to: usize = to.expect("a response has a way back");
            return self.way.entry((rank, to)).or_default().push_back(message);
        }
        let to = if message.rank == ANY_RANK { rank } else { message.rank as usize };
        if message.topic == "service.add" {
            self.shells[rank].has_service = true;
            let answer = message.answer("{}");
            return self.shells[rank].connector.receive(self.now, answer);
        }
        if !self.shells[to].is_up {
            return self.refuse(rank, &message, NO_HOST);
        }
        if to != rank && message.tag != NO_TAG && !message.noresponse {
            self.tracked.push((rank, to, message.clone()));
        }
        let mut message = message.with_payload(&message.payload);
        message.push_hop(&format!("{CLIENT}{rank}"));
        self.way.entry((rank, to)).or_default().push_back(message);
    }

    fn refuse(&mut self, to: usize, request: &Message, errnum: i32) {
        if request.tag != NO_TAG && !request.noresponse && self.shells[to].is_linked {
            let refusal = request.refusal(errnum, "no");
            self.shells[to].connector.receive(self.now, refusal);
        }
    }

    /// One message arrives.
    fn arrive(&mut self, from: usize, to: usize) {
        let Some(mut message) = self.way.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return;
        };
        if message.kind == Kind::Response {
            self.tracked
                .retain(|(f, t, request)| !(*f == to && *t == from && request.tag == message.tag));
            if self.shells[to].is_linked {
                self.shells[to].connector.receive(self.now, message);
            }
        } else if message.topic == "state-machine.get" {
            let state = if self.shells[to].is_stopping { "shutdown" } else { "run" };
            let duration = self.now - self.shells[to].up_since;
            let answer = json!({ "state": state, "duration": duration }).to_string();
            self.route(to, message.answer(&answer));
        } else if message.topic == "state-machine.wait" {
            let is_running = !self.shells[to].is_stopping;
            let errnum = if is_running { 0 } else { NOT_RUNNING };
            self.route(to, message.refusal(errnum, "{}"));
        } else if message.topic == "job-exec.shell-runs" {
            let errnum = if self.shells[to].is_gone { NO_PROCESS } else { 0 };
            self.route(to, message.refusal(errnum, "{}"));
        } else if !self.shells[to].has_service {
            if message.tag != NO_TAG && !message.noresponse {
                self.route(to, message.refusal(NO_SERVICE, "No service"));
            }
        } else if self.is_plain {
            self.take(to, message);
        } else {
            message.rank = ANY_RANK;
            self.shells[to].connector.receive(self.now, message);
        }
    }

    /// The shell takes a request.
    fn take(&mut self, rank: usize, message: Message) {
        if message.topic.ends_with(".resume-received") {
            return self.route(rank, message.refusal(NO_SERVICE, "Unknown service method 'x'"));
        }
        let payload = message.json();
        let from = payload["from"].as_u64().expect("a sender") as usize;
        self.shells[rank].received[from].extend(payload["n"].as_u64());
        if message.tag != NO_TAG && !message.noresponse {
            self.shells[rank].to_answer.push_back(message);
        }
    }

    /// The shell takes what its connector has for it.
    fn hear(&mut self, rank: usize) {
        while let Some(message) = self.shells[rank].connector.for_client() {
            if message.kind == Kind::Request {
                if !self.shells[rank].is_closing {
                    self.take(rank, message);
                }
                continue;
            }
            let asked = self.shells[rank].waiting.remove(&message.tag);
            let asked = asked.unwrap_or_else(|| panic!("answered twice: {message:?}"));
            if message.errnum == NO_SERVICE && message.topic != "service.add" {
                let receiver = &self.shells[self.shells[rank].sent[asked as usize]];
                assert!(receiver.is_gone, "it has ended: {message:?}");
                assert!(!receiver.received[rank].contains(&asked), "not answered: {message:?}");
                continue;
            }
            assert_eq!(message.errnum, 0, "it is answered: {message:?}");
            if message.topic != "service.add" {
                assert_eq!(message.json()["n"], asked, "with its own answer");
            }
        }
    }

    fn client(&mut self, rank: usize) {
        if self.shells[rank].is_closing {
            return;
        }
        let to = self.rng.random_range(0..SIZE);
        let shell = &mut self.shells[rank];
        let number = shell.sent.len() as u64;
        match self.rng.random_range(0..8) {
            0..3 => {
                let payload = json!({ "from": rank, "n": number });
                let message = Message::one_way(&format!("{SERVICE}.write"), &payload);
                let message = Message { rank: to as u32, ..message };
                shell.connector.send(self.now, message).expect("there is room");
                shell.sent.push(to);
            }
            3 => {
                // libflux uses a matchtag again as soon as its request is answered.
                let tag = (2..).find(|tag| !shell.waiting.contains_key(tag)).expect("there is one");
                let payload = json!({ "from": rank, "n": number });
                let message = Message::ask(&format!("{SERVICE}.exchange"), tag, &payload);
                let message = Message { rank: to as u32, ..message };
                shell.connector.send(self.now, message).expect("there is room");
                shell.next_tag = shell.next_tag.max(tag);
                shell.waiting.insert(tag, number);
                shell.sent.push(to);
            }
            4..7 => self.answer(rank),
            _ => {}
        }
    }

    fn answer(&mut self, rank: usize) {
        let Some(request) = self.shells[rank].to_answer.pop_front() else { return };
        let answer = request.answer(&request.payload);
        if self.is_plain {
            return self.route(rank, answer);
        }
        self.shells[rank].connector.send(self.now, answer).expect("answers are taken");
    }

    /// A shell that has all answers, and has answered all, closes its connection.
    fn close(&mut self, rank: usize) {
        while !self.shells[rank].to_answer.is_empty() {
            self.answer(rank);
        }
        let shell = &mut self.shells[rank];
        if shell.waiting.is_empty() && !std::mem::replace(&mut shell.is_closing, true) {
            shell.connector.closing(self.now);
        }
    }

    fn end_if_closed(&mut self, rank: usize) {
        let shell = &mut self.shells[rank];
        if shell.is_closing && !shell.connector.is_lingering() {
            (shell.is_gone, shell.is_linked, shell.has_service) = (true, false, false);
        }
    }

    fn kill(&mut self, rank: usize) {
        self.way.retain(|(from, to), _| *from != rank && *to != rank);
        let shell = &mut self.shells[rank];
        (shell.is_up, shell.is_stopping, shell.has_service) = (false, false, false);
        if std::mem::take(&mut shell.is_linked) {
            shell.connector.lost(self.now);
        }
        let (lost, kept) = std::mem::take(&mut self.tracked)
            .into_iter()
            .partition(|(from, to, _)| *from == rank || *to == rank);
        self.tracked = kept;
        for (from, _, request) in lost {
            self.refuse(from, &request, NO_HOST);
        }
    }

    /// What is on its way between two brokers is lost with one between them.
    fn cut(&mut self, one: usize, other: usize) {
        self.way.remove(&(one, other));
        self.way.remove(&(other, one));
        let between = |(from, to, _): &(usize, usize, Message)| {
            (*from, *to) == (one, other) || (*from, *to) == (other, one)
        };
        let (lost, kept) = std::mem::take(&mut self.tracked).into_iter().partition(between);
        self.tracked = kept;
        for (from, _, request) in lost {
            self.refuse(from, &request, NO_HOST);
        }
    }

    fn fault(&mut self) {
        let (rank, other) = (self.rng.random_range(0..SIZE), self.rng.random_range(0..SIZE));
        match self.rng.random_range(0..60) {
            0 if self.shells[rank].is_up => self.kill(rank),
            1 if self.shells[rank].is_up => {
                self.shells[rank].is_stopping = true;
                self.shells[rank].has_service = false;
            }
            2 if rank != other => self.cut(rank, other),
            3..8 => self.shells[rank].come_up(self.now),
            _ => {}
        }
        if self.shells[rank].is_stopping && self.rng.random_ratio(1, 6) {
            self.kill(rank);
        }
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(0.0..0.2);
        for rank in 0..SIZE {
            self.turn(rank);
            for to in 0..SIZE {
                for _ in 0..self.rng.random_range(0..4) {
                    self.arrive(rank, to);
                }
            }
        }
        for rank in 0..SIZE {
            self.hear(rank);
        }
    }

    /// The driver of a connector does what there is to be done.
    fn turn(&mut self, rank: usize) {
        let shell = &mut self.shells[rank];
        if shell.is_gone {
            return;
        }
        if shell.connector.next_timeout().is_some_and(|at| at <= self.now) {
            shell.connector.timeout(self.now);
        }
        let idle = shell.connector.next_timeout().is_none_or(|at| at > self.now);
        assert!(idle || shell.connector.wants_link(self.now), "the driver would spin");
        if shell.connector.wants_link(self.now) {
            shell.connector.connecting();
            if shell.is_up && !shell.is_stopping {
                shell.is_linked = true;
                shell.connector.connected();
            } else {
                shell.connector.refused(self.now, 111);
            }
        }
        let count = self.rng.random_range(0..6);
        self.write(rank, count);
        self.end_if_closed(rank);
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            for rank in 0..SIZE {
                self.client(rank);
            }
            if self.closes && self.rng.random_ratio(1, 60) {
                let rank = self.rng.random_range(0..SIZE);
                self.close(rank);
            }
            self.fault();
            self.step();
        }
        for rank in 0..SIZE {
            if self.shells[rank].is_stopping {
                self.kill(rank);
            }
            self.shells[rank].come_up(self.now);
        }
        for step in 0..HEAL_STEPS {
            for rank in 0..SIZE {
                self.answer(rank);
            }
            self.step();
            if self.is_whole() && step > 100 {
                break;
            }
        }
        self.check();
    }

    fn is_whole(&self) -> bool {
        self.shells.iter().all(|shell| {
            shell.is_gone
                || *shell.connector.phase() == Phase::Live
                    && shell.waiting.is_empty()
                    && !shell.is_closing
                    && !shell.connector.is_lingering()
                    && shell.connector.retained() == 0
        })
    }

    fn check(&self) {
        for (rank, shell) in self.shells.iter().enumerate() {
            if !shell.is_gone {
                assert_eq!(*shell.connector.phase(), Phase::Live);
                assert!(!shell.is_closing, "rank {rank}: it has ended");
            }
            assert!(shell.waiting.is_empty(), "rank {rank}: {:?} are answered", shell.waiting);
            assert!(!shell.connector.is_lingering(), "rank {rank}: all has arrived");
            assert!(shell.is_gone || shell.connector.retained() == 0, "rank {rank}: keeps nothing");
            for (to, receiver) in self.shells.iter().enumerate() {
                let received = &receiver.received[rank];
                let in_order = received.is_sorted_by(|one, next| one < next);
                assert!(in_order, "from {rank}: in order, each once: {received:?}");
                let mut sent = (0..).zip(&shell.sent).filter(|(_, target)| **target == to);
                let mut all = sent.all(|(number, _)| received.contains(&number));
                all |= receiver.is_gone;
                assert!(all, "from {rank}: all: {received:?}");
            }
        }
    }
}

#[test]
fn what_shells_send_to_each_other_arrives_once_and_in_order() {
    let seeds = std::env::var("CHANNEL_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(SEEDS) {
        let result = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(result.is_ok(), "seed {seed}");
    }
}

//! Random walks of a tracker and the simulated systemd. Messages between them take time, and both
//! meet faults. After the last fault every unit must come to its end. Its program must have been
//! executed once at most.

use std::collections::VecDeque;
use std::path::PathBuf;

use job_exec_rs::port::supervisor::Started;
use job_exec_rs::proto::{BrokerRank, InstanceId, JobId};
use job_exec_rs::supervisor::tracker::Tracker;
use job_exec_rs::supervisor::{Backend, BackendEvent, OutputPaths, UnrecordedUnit};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tests::{spec, tracker};
use super::*;

const SEEDS: u64 = 2000;
const UNITS: u64 = 4;
const STEPS: u32 = 400;
/// How many calls are refused in one walk. They are so few that the tracker gives up no unit.
const REFUSALS: u32 = 8;
/// Steps without faults within which all units must end.
const HEAL_STEPS: u32 = 20_000;

/// What the record on disk says about a unit.
#[derive(Debug, Default)]
struct Record {
    started: Option<Started>,
    exited: bool,
    /// Whether it was stopped before its exit was known.
    cancelled: bool,
    ended: bool,
    /// Whether the record was lost when the broker was killed, and its unit was not found since.
    lost: bool,
}

struct Walk {
    rng: ChaCha8Rng,
    /// The specification of all units, except for their names.
    model: UnitSpec,
    tracker: Tracker,
    systemd: SimSystemd,
    connection: Option<u64>,
    asks: VecDeque<Ask>,
    news: VecDeque<News>,
    acts: Vec<Act>,
    /// Units with a main process, and whether it has executed the program.
    processes: BTreeMap<UnitName, bool>,
    leftovers: BTreeSet<UnitName>,
    records: BTreeMap<UnitName, Record>,
    refusals: u32,
    transcript: Vec<String>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let model = UnitSpec { multiuser: rng.random_bool(0.3), ..spec() };
        let slow = rng.random_bool(0.5);
        Self {
            rng,
            model,
            tracker: tracker(),
            systemd: if slow { SimSystemd::slow() } else { SimSystemd::default() },
            connection: None,
            asks: VecDeque::new(),
            news: VecDeque::new(),
            acts: Vec::new(),
            processes: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            records: BTreeMap::new(),
            refusals: 0,
            transcript: Vec::new(),
        }
    }

    fn note(&mut self, line: String) {
        self.transcript.push(line);
    }

    #[track_caller]
    fn assert(&self, promise: bool, what: &str) {
        assert!(promise, "{what}\n{}", self.transcript.join("\n"));
    }

    fn step(&mut self, faults: bool) {
        match self.rng.random_range(0..131) {
            0..35 => self.deliver_ask(),
            35..70 => self.deliver_news(),
            70..80 => self.act(),
            80..90 => self.live(),
            90..92 => self.start(),
            92..102 if self.connection.is_none() => self.connect(),
            102..112 => self.systemd.come_back(),
            112..122 => self.systemd.send_signals(),
            122..124 if faults => self.systemd.reload(),
            124 if faults => self.leave(),
            125 if faults => self.bus_restart(),
            126 if faults => self.kill(),
            127 if faults => self.cancel(),
            128..130 if faults && self.refusals < REFUSALS => {
                self.refusals += 1;
                self.systemd.refuse_one();
            }
            130 => self.limit_bus(faults),
            _ => {}
        }
        self.take();
    }

    /// The bus grants few match rules, and does not pass on all calls, or it has no quotas.
    fn limit_bus(&mut self, faults: bool) {
        let rules = self.rng.random_range(0..UNITS as usize + 3);
        let calls = self.rng.random_range(1..4);
        let is_limited = faults && self.rng.random_bool(0.5);
        let quotas = is_limited.then_some((rules, calls));
        self.note(format!("quotas: {quotas:?}"));
        self.systemd.set_quotas(quotas.map(|quotas| quotas.0), quotas.map(|quotas| quotas.1));
    }

    /// Takes the news, acts, calls and events, and queues them.
    fn take(&mut self) {
        let connection = self.connection;
        for (to, news) in self.systemd.take_news() {
            if Some(to) == connection || matches!(news, News::Emptied { .. }) {
                self.news.push_back(news);
            }
        }
        self.acts.extend(self.systemd.take_acts());
        for ask in self.tracker.take_asks() {
            if ask.call == Call::Reconnect {
                self.hang_up();
            } else if ask.call != Call::Patience {
                self.asks.push_back(ask);
            }
        }
        while let Some(event) = self.tracker.next_event() {
            self.note(format!("{event:?}"));
            self.event(event);
        }
    }

    fn deliver_ask(&mut self) {
        let Some(ask) = self.asks.pop_front() else { return };
        self.note(format!("-> {ask:?}"));
        let spec = ask.call.unit().map(|unit| self.spec(unit));
        self.systemd.handle_ask(self.connection.unwrap_or(0), &ask, spec.as_ref());
    }

    fn deliver_news(&mut self) {
        let Some(news) = self.news.pop_front() else { return };
        self.note(format!("<- {news:?}"));
        self.tracker.handle_news(news);
    }

    fn start(&mut self) {
        let number = self.records.len() as u64;
        if number < UNITS {
            let spec = self.spec(&self.unit(number));
            self.records.insert(spec.unit.clone(), Record::default());
            self.tracker.start(
                &spec,
                &OutputPaths {
                    stdout: PathBuf::new(),
                    stderr: PathBuf::new(),
                    end: PathBuf::new(),
                },
            );
        }
    }

    fn act(&mut self) {
        if self.acts.is_empty() {
            return;
        }
        let act = self.acts.remove(0);
        self.note(format!("{act:?}"));
        match act {
            Act::Alarm { unit, number, .. } => self.systemd.handle_alarm(&unit, number),
            Act::Later { connection, number } => self.systemd.handle_pause_over(connection, number),
            Act::Run(unit) if self.rng.random_bool(0.1) => self.systemd.lose_job(&unit),
            Act::Run(unit) => {
                self.systemd.handle_forked(&unit);
                if self.systemd.lives(&unit) {
                    self.processes.entry(unit).or_insert(false);
                }
            }
            // Some processes ignore SIGTERM. For these systemd sends no SIGKILL if they are a
            // guest's.
            Act::Signal { signal: libc::SIGTERM, .. } if self.rng.random_bool(0.3) => {}
            Act::Signal { unit, signal, all } => {
                if self.processes.contains_key(&unit) {
                    self.exit(&unit, WaitStatus::signaled(signal));
                }
                if all && self.leftovers.remove(&unit) {
                    self.systemd.handle_emptied(&unit);
                }
            }
        }
    }

    /// Cancels a unit that runs.
    fn cancel(&mut self) {
        let running = self
            .records
            .iter_mut()
            .filter(|(_, record)| record.started.is_some() && !record.exited && !record.ended)
            .filter(|(_, record)| !record.lost);
        if let Some((unit, record)) = running.choose(&mut self.rng) {
            record.cancelled = true;
            self.transcript.push(format!("{unit} is cancelled"));
            self.tracker.collect(unit);
        }
    }

    /// A process executes its program, fails to, or ends.
    fn live(&mut self) {
        if let Some(unit) = self.leftovers.iter().choose(&mut self.rng).cloned() {
            self.leftovers.remove(&unit);
            return self.systemd.handle_emptied(&unit);
        }
        let Some(unit) = self.processes.keys().choose(&mut self.rng).cloned() else { return };
        self.note(format!("a process of {unit} does something"));
        let executed = self.processes[&unit];
        if self.rng.random_bool(if executed { 0.3 } else { 0.2 }) {
            let code = self.rng.random_range(0..2);
            self.exit(&unit, WaitStatus::exited(code));
        } else if !executed && self.rng.random_bool(0.1) {
            self.processes.remove(&unit);
            self.systemd.handle_exec_failed(&unit, 203);
        } else if !executed {
            self.processes.insert(unit.clone(), true);
            self.systemd.handle_executed(&unit);
        }
    }

    fn exit(&mut self, unit: &UnitName, status: WaitStatus) {
        self.processes.remove(unit);
        let populated = self.rng.random_bool(0.3);
        if populated {
            self.leftovers.insert(unit.clone());
        }
        self.systemd.handle_exited(unit, status, populated);
    }

    fn connect(&mut self) {
        self.connection = self.systemd.connect();
        if self.connection.is_some() {
            self.note("connected".to_string());
            self.tracker.handle_connected();
        }
    }

    fn hang_up(&mut self) {
        self.note("connection lost".to_string());
        if let Some(connection) = self.connection.take() {
            self.systemd.disconnect(connection);
        }
        self.asks.clear();
        self.news.retain(|news| matches!(news, News::Emptied { .. }));
    }

    fn bus_restart(&mut self) {
        self.send_some();
        self.systemd.restart_bus();
        self.hang_up();
        self.tracker.handle_lost();
    }

    /// systemd leaves, and some of its answers were not sent.
    fn leave(&mut self) {
        if !self.systemd.is_present() {
            return;
        }
        self.note("systemd leaves".to_string());
        // News of the bus and the kernel, and all news before them, were sent.
        let underway = self.news.iter().rposition(|news| {
            matches!(news, News::Emptied { .. } | News::ManagerAway | News::ManagerBack)
        });
        let least = underway.map_or(0, |at| at + 1);
        let sent = self.rng.random_range(least..=self.news.len());
        let unsent = self.news.split_off(sent);
        self.systemd.leave();
        self.take();
        for news in unsent {
            if let News::Answer { number, .. } = news {
                self.news.push_back(SimSystemd::no_reply(number));
            }
        }
    }

    /// Delivers some of the calls that were sent.
    fn send_some(&mut self) {
        for _ in 0..self.rng.random_range(0..=self.asks.len()) {
            self.deliver_ask();
        }
    }

    /// The broker is killed. The next one finds its records.
    fn kill(&mut self) {
        self.note("broker is killed".to_string());
        self.send_some();
        self.hang_up();
        self.news.clear();
        self.tracker = tracker();
        for (unit, record) in self.records.iter_mut().filter(|(_, record)| !record.ended) {
            record.lost |= self.rng.random_bool(0.3);
            if record.lost {
                continue;
            }
            self.tracker.find(unit, "digest", record.started.as_ref());
            if record.exited {
                self.tracker.collect(unit);
            }
        }
    }

    /// A unit whose record was lost is looked for. One whose record has its end is of no use.
    fn find_again(&mut self, found: &UnrecordedUnit) {
        let record = self.record(&found.unit);
        if record.ended {
            self.tracker.find(&found.unit, "digest", found.started.as_ref());
            return self.tracker.collect(&found.unit);
        }
        let (was_lost, exited) = (std::mem::take(&mut record.lost), record.exited);
        record.started.clone_from(&found.started);
        self.assert(was_lost, "a unit with a record is told as one without");
        self.tracker.find(&found.unit, "digest", found.started.as_ref());
        if exited {
            self.tracker.collect(&found.unit);
        }
    }

    /// All units without records were told: of the others nothing is left.
    fn end_lost(&mut self) {
        let lost = self.records.iter().filter(|(_, record)| record.lost && !record.ended);
        for unit in lost.map(|(unit, _)| unit.clone()).collect::<Vec<_>>() {
            let live = self.systemd.lives(&unit);
            self.end(&unit, live);
        }
    }

    fn event(&mut self, event: BackendEvent) {
        let (unit, live) = match &event {
            BackendEvent::Answers | BackendEvent::Silent { .. } => return,
            BackendEvent::Listed => return self.end_lost(),
            BackendEvent::Unrecorded(found) => return self.find_again(found),
            BackendEvent::Absent(unit)
            | BackendEvent::Empty(unit)
            | BackendEvent::Exists(unit)
            | BackendEvent::Exited { unit, .. }
            | BackendEvent::Failed { unit, .. }
            | BackendEvent::Left(unit)
            | BackendEvent::LeftOver { unit, .. }
            | BackendEvent::ManagerEnded(unit)
            | BackendEvent::Replaced(unit)
            | BackendEvent::Started { unit, .. }
            | BackendEvent::Stopping(unit) => (unit.clone(), self.systemd.lives(unit)),
        };
        let record = &self.records[&unit];
        let (started, exited) = (record.started.is_some(), record.exited);
        let cancelled = record.cancelled;
        let executed = self.systemd.executions(&unit) > 0;
        match event {
            BackendEvent::Absent(_) => {
                // Under the IMP the core reads in a file how it ended.
                let is_told = exited || (executed && unit.is_multiuser());
                self.assert(is_told || (!started && !executed) || cancelled, "lost");
                self.end(&unit, live);
            }
            BackendEvent::Empty(_) => {
                self.assert(exited, "empty before its exit");
                self.end(&unit, live);
            }
            BackendEvent::Exited { .. } => {
                self.assert(started, "exit before start");
                self.record(&unit).exited = true;
                self.tracker.collect(&unit);
            }
            BackendEvent::Failed { .. } => {
                self.assert(!started && !executed, "failed, but it ran");
                self.end(&unit, live);
            }
            BackendEvent::Started { started, .. } => {
                let before = self.record(&unit).started.replace(started.clone());
                self.assert(before.is_none_or(|before| before == started), "another invocation");
            }
            BackendEvent::Exists(_) | BackendEvent::Replaced(_) => {
                self.assert(false, "nobody else starts units");
            }
            BackendEvent::Left(_) => self.assert(false, "nobody leaves its unit"),
            BackendEvent::ManagerEnded(_) => {
                self.assert(false, "its systemd is the same all along")
            }
            BackendEvent::LeftOver { .. } => self.assert(false, "only the adapter names them"),
            BackendEvent::Answers
            | BackendEvent::Listed
            | BackendEvent::Silent { .. }
            | BackendEvent::Unrecorded(_) => {}
            BackendEvent::Stopping(_) => self.assert(started && !exited, "a stop of nothing"),
        }
    }

    fn end(&mut self, unit: &UnitName, live: bool) {
        self.assert(!live, "over, with a process left");
        self.record(unit).ended = true;
    }

    fn record(&mut self, unit: &UnitName) -> &mut Record {
        self.records.entry(unit.clone()).or_default()
    }

    fn spec(&self, unit: &UnitName) -> UnitSpec {
        UnitSpec { unit: unit.clone(), job: unit.job(), ..self.model.clone() }
    }

    fn unit(&self, number: u64) -> UnitName {
        let multiuser = self.model.multiuser;
        UnitName::new(multiuser, BrokerRank(0), JobId(number), InstanceId::new("/sim", 1))
    }

    fn is_over(&self) -> bool {
        self.records.len() as u64 == UNITS && self.records.values().all(|record| record.ended)
    }
}

#[test]
fn every_walk_comes_to_its_end() {
    for seed in 0..SEEDS {
        let mut walk = Walk::new(seed);
        walk.note(format!("seed {seed}"));
        (0..STEPS).for_each(|_| walk.step(true));
        walk.note("no more faults".to_string());
        walk.limit_bus(false);
        let mut steps = 0;
        while !walk.is_over() || walk.systemd.units().next().is_some() {
            walk.assert(steps < HEAL_STEPS, "a unit has no end, or is left");
            walk.step(false);
            steps += 1;
            if steps == HEAL_STEPS / 2 {
                // What was refused too often is removed after the next list.
                walk.systemd.reload();
                walk.take();
            }
        }
        for number in 0..UNITS {
            walk.assert(walk.systemd.executions(&walk.unit(number)) <= 1, "executed twice");
        }
    }
}

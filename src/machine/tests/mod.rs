//! The machines together, in a small world: ranks, messages in order, units that tests move
//! by hand, a KVS that says yes.

mod another_run;
mod barrier;
mod checkpoint;
mod degraded;
mod drained;
mod forgotten;
mod given_up;
mod hold;
mod hostile;
mod job_life;
mod kept;
mod kvs;
mod launch_stages;
mod leave;
mod ledger;
mod method;
mod peers;
mod perilog;
mod reason;
mod rebooted;
mod recovery;
mod reload;
mod review;
mod script_stop;
mod shell_runs;
mod silence;
mod silent;
mod stopped;
mod streams;
mod table;
mod testexec;
mod together;
mod trust;
mod unreadable;
mod unrecorded;
mod upgrade;
mod usage;

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use crate::config::Config;
use crate::machine::mono_time::MonoTime;
use crate::machine::{
    Answer, Awaited, Credential, Effect, Effects, Event, Facts, Fault, KvsOp, Level, Listing, Node,
    Now, RequestId, Topic,
};
use crate::port::Note;
use crate::port::supervisor::{
    Method, SupervisorEvent, UnitCommand, UnitEvent, UnitRecord, UnitSpec,
};
use crate::proto::peer::StreamEnd;
use crate::proto::{
    BrokerRank, ExecEvent, Idset, InstanceId, JobEvent, JobException, JobId, JobUsage, Response,
    Stage, Stream, UnitName, WaitStatus, WallTime,
};

pub(super) const JOB: JobId = JobId(77);
const OWNER: u32 = 500;

pub(super) fn facts(rank: u32) -> Facts {
    Facts {
        rank: BrokerRank(rank),
        hostname: format!("node{rank}"),
        owner: OWNER,
        directory: "/test".to_string(),
        instance: InstanceId::new("/test", OWNER),
        size: 100,
        uptime: f64::INFINITY,
        shell_uri: format!("local:///test/{rank}"),
        no_connector: None,
        job_shell: "/bin/flux-shell".to_string(),
        nested: false,
        brokers_return: true,
        confines: false,
        working_directory: None,
    }
}

/// A start request for a job on `ranks`.
pub(super) fn start(ranks: &str, reattach: bool) -> Value {
    let count = ranks.parse::<Idset>().map_or(0, |ranks| ranks.len());
    json!({"id": JOB, "userid": OWNER, "jobspec": {}, "reattach": reattach,
           "R": {"version": 1, "execution": {
               "R_lite": [{"rank": ranks, "children": {"core": "0"}}],
               "nodelist": [format!("n[0-{}]", count.max(1) - 1)],
               "starttime": 1e9 + 0.001, "expiration": 0.0}}})
}

/// The job manager's request with this payload.
pub(super) fn start_event(request: RequestId, payload: &Value) -> Event {
    let payload = payload.to_string();
    let owner = Credential { userid: OWNER, owner: true, local: true };
    Topic::Start.read(request, owner, payload.as_bytes()).expect("always an event")
}

/// What one rank keeps on disk.
#[derive(Default)]
struct Disk {
    records: BTreeMap<UnitName, UnitRecord>,
    dead: Vec<UnitName>,
    /// What is collected ends, also if it runs.
    stoppable: bool,
}

pub(super) struct World {
    nodes: Vec<Option<Node>>,
    effects: Vec<Effects>,
    disks: Vec<Disk>,
    queue: VecDeque<(usize, Event)>,
    /// Who asked, for each request that a rank holds.
    requests: BTreeMap<(usize, u64), (usize, Awaited)>,
    last_request: u64,
    pub(super) now: f64,
    pub(super) config: Config,
    /// The job is a guest's: its shells run under the IMP.
    pub(super) is_guests: bool,
    /// What the job manager was told.
    pub(super) responses: Vec<Response>,
    pub(super) events: Vec<ExecEvent>,
    moved: bool,
    /// What was put beside the job.
    pub(super) usage: Option<Box<JobUsage>>,
    leaders: u64,
    /// Clients whose commits were done again.
    recommitted: Vec<String>,
    has_namespace: bool,
    pub(super) drained: Vec<String>,
    pub(super) signals: Vec<(u32, i32)>,
    pub(super) launched: Vec<u32>,
    /// How many records the rank had when each epilog was asked for.
    pub(super) records_at_epilogs: Vec<usize>,
    pub(super) barrier: Vec<(u64, Result<(), i32>)>,
    /// Commits to the exec eventlog before the last.
    pub(super) commits: usize,
    pub(super) killed: Vec<i32>,
    /// Exceptions raised at the job manager directly.
    pub(super) raised: Vec<String>,
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// Messages that crossed from one rank to another.
    pub(super) messages: usize,
    /// What rank 0 hears and says.
    pub(super) at_rank_0: usize,
    pub(super) checkpoints: usize,
    /// How checkpoints end.
    pub(super) checkpoint: Result<(), Fault>,
    questions: Vec<(usize, Awaited)>,
    pub(super) answers: Vec<Result<(), i32>>,
    /// What leaders answer gets lost.
    pub(super) hold_replies: bool,
    /// Requests to lead, and for shells, stay on their way.
    pub(super) hold_asked: bool,
    /// The job manager does not answer.
    pub(super) hold_kills: bool,
    /// The resource module does not answer.
    pub(super) hold_drains: bool,
    /// What this rank answers stays on its way.
    pub(super) hold_answers_of: Option<usize>,
    held: VecDeque<(usize, Event)>,
    /// This operation is not answered, or by the test.
    pub(super) hold_op: Option<KvsOp>,
    /// So many of the next commits, or moves, fail.
    pub(super) fail_commits: u32,
    pub(super) fail_moves: u32,
    /// The guest namespace can't be opened.
    pub(super) lose_namespace: bool,
    /// The job's own eventlog can't be read, or it has gone back with the KVS.
    pub(super) lose_released: Option<Result<Idset, Fault>>,
    /// Lookups of released ranks stay on their way.
    pub(super) hold_released: bool,
    /// What a rank answers whose module is not loaded.
    pub(super) unloaded: StreamEnd,
    /// What was posted to the job's own eventlog.
    pub(super) posted: Vec<JobEvent>,
    /// Holds stay on their way.
    pub(super) hold_holds: bool,
    /// How holds end.
    pub(super) hold_result: Result<(), Fault>,
}

impl World {
    pub(super) fn new(size: usize) -> Self {
        Self::with(size, Config { fanout: 2, ..Config::default() })
    }

    /// The instance was not booted by configuration.
    pub(super) fn where_brokers_end(size: usize) -> Self {
        let mut world = Self::new(size);
        for (rank, node) in (0..).zip(&mut world.nodes) {
            let facts = Facts { brokers_return: false, ..facts(rank) };
            *node = Some(ready(Node::new(world.config.clone(), facts)));
        }
        world
    }

    pub(super) fn with(size: usize, config: Config) -> Self {
        let node = |rank: usize| Some(ready(Node::new(config.clone(), facts(rank as u32))));
        Self {
            nodes: (0..size).map(node).collect(),
            effects: (0..size).map(|_| Effects::default()).collect(),
            disks: (0..size).map(|_| Disk::default()).collect(),
            queue: VecDeque::new(),
            requests: BTreeMap::new(),
            last_request: 1000,
            now: 0.0,
            config,
            is_guests: false,
            responses: Vec::new(),
            events: Vec::new(),
            moved: false,
            usage: None,
            leaders: 0,
            recommitted: Vec::new(),
            has_namespace: false,
            drained: Vec::new(),
            signals: Vec::new(),
            launched: Vec::new(),
            records_at_epilogs: Vec::new(),
            barrier: Vec::new(),
            commits: 0,
            killed: Vec::new(),
            raised: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            messages: 0,
            at_rank_0: 0,
            checkpoints: 0,
            checkpoint: Ok(()),
            questions: Vec::new(),
            answers: Vec::new(),
            hold_replies: false,
            hold_asked: false,
            hold_kills: false,
            hold_drains: false,
            hold_answers_of: None,
            held: VecDeque::new(),
            hold_op: None,
            fail_commits: 0,
            fail_moves: 0,
            lose_namespace: false,
            lose_released: None,
            hold_released: false,
            unloaded: StreamEnd::NotLoaded { reason: "no such service".to_string() },
            posted: Vec::new(),
            hold_holds: false,
            hold_result: Ok(()),
        }
    }

    /// A job on some ranks, all of whose shells have passed both barriers.
    pub(super) fn running(size: usize, ranks: &str) -> Self {
        let members: Idset = ranks.parse().expect("ranks");
        let mut world = Self::new(size);
        world.start(ranks, false);
        for rank in members.iter() {
            world.started(rank as usize);
        }
        world.pass(0.02);
        for _ in 0..2 {
            for rank in members.iter() {
                world.enter_barrier(rank as usize);
            }
            world.pass(0.1);
        }
        assert_eq!(world.responses, [Response::Start {}]);
        world
    }

    /// Lets an event happen on a rank, and everything that follows from it.
    pub(super) fn happen(&mut self, rank: usize, event: Event) {
        self.queue.push_back((rank, event));
        self.settle();
    }

    /// The supervisor of `rank` has news of a unit.
    pub(super) fn report(&mut self, rank: usize, unit: &UnitName, event: UnitEvent) {
        self.happen(rank, Event::Supervisor(event.of(unit)));
    }

    fn settle(&mut self) {
        while let Some((rank, event)) = self.queue.pop_front() {
            let now = moment(self.now);
            let Some(node) = &mut self.nodes[rank] else {
                self.undeliverable(rank, &event);
                continue;
            };
            self.at_rank_0 += usize::from(rank == 0 && !matches!(event, Event::Timeout));
            node.handle(now, event, &mut self.effects[rank]);
            for effect in std::mem::take(&mut self.effects[rank].list) {
                self.at_rank_0 += usize::from(rank == 0 && !matches!(effect, Effect::Log { .. }));
                self.perform(rank, effect);
            }
        }
    }

    /// A request to a rank whose module is not loaded.
    fn undeliverable(&mut self, rank: usize, event: &Event) {
        if let Event::Lead { request, .. } | Event::Shells { request, .. } = event {
            self.end(rank, *request, self.unloaded.clone());
        }
    }

    pub(super) fn start(&mut self, ranks: &str, reattach: bool) {
        let (request, mut payload) = (self.request(), start(ranks, reattach));
        payload["userid"] = json!(OWNER + u32::from(self.is_guests));
        self.happen(0, start_event(request, &payload));
    }

    pub(super) fn request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId::Remote(self.last_request)
    }

    /// Time goes on, timer by timer.
    pub(super) fn pass(&mut self, seconds: f64) {
        let end = self.now + seconds;
        loop {
            let nodes = self.nodes.iter().enumerate();
            let next = nodes
                .filter_map(|(rank, node)| Some((rank, node.as_ref()?.next_timeout()?)))
                .filter(|(_, at)| *at <= MonoTime(end))
                .reduce(|a, b| if b.1 < a.1 { b } else { a });
            let Some((rank, at)) = next else { break };
            self.now = self.now.max(at.0);
            self.happen(rank, Event::Timeout);
        }
        self.now = end;
    }

    fn perform(&mut self, rank: usize, effect: Effect) {
        match effect {
            Effect::Pass { to, request, topic, payload } => {
                let owner = Credential { userid: OWNER, owner: true, local: false };
                match topic.read(request, owner, payload.to_string().as_bytes()) {
                    Ok(event) => self.queue.push_back((to.0 as usize, event)),
                    Err(fault) => self.answers.push(Err(fault.errnum)),
                }
            }
            Effect::Checkpoint { .. } => {
                self.checkpoints += 1;
                self.queue.push_back((rank, Event::Checkpointed(self.checkpoint.clone())));
            }
            Effect::Answer {
                to: RequestId::Remote(to @ 1_000_000..),
                answer: Answer::Done(answer),
            } => {
                let (rank, awaited) = self.questions[(to - 1_000_000) as usize].clone();
                self.queue.push_back((rank, awaited.hear(answer.map(Option::unwrap_or_default))));
            }
            Effect::Kvs { id, op } => {
                let is_same = |held| std::mem::discriminant(held) == std::mem::discriminant(&op);
                if self.hold_op.as_ref().is_some_and(is_same) {
                    return;
                }
                let is_held = self.hold_released && op == KvsOp::Released;
                let event = (rank, Event::Kvs { id, result: self.kvs(op) });
                if is_held { &mut self.held } else { &mut self.queue }.push_back(event);
            }
            Effect::Send { to, request } => self.send(rank, to, request),
            Effect::Stream { to, item } => self.stream(rank, to, item),
            Effect::Unit(unit, command) => self.unit(rank, unit, command),
            effect => self.note(rank, effect),
        }
    }

    /// Effects that end here.
    fn note(&mut self, rank: usize, effect: Effect) {
        match effect {
            Effect::Answer { answer: Answer::Done(result), .. } => {
                self.answers.push(result.map(drop).map_err(|f| f.errnum));
            }
            Effect::Answer { to: RequestId::Remote(to), answer: Answer::Barrier(result) } => {
                self.barrier.push((to, result.map_err(|fault| fault.errnum)));
            }
            Effect::Answer { to, answer: Answer::End(end) } => self.end(rank, to, end),
            Effect::AwaitRelease { id } => self.await_release(rank, id),
            Effect::Hold { .. } => self.begin_hold(rank),
            Effect::Post { event, .. } => self.post(event),
            Effect::Drain { waits, ranks, reason } => {
                self.drained.push(format!("{ranks} {reason}"));
                let answer = waits.map(|id| (rank, Event::Drained { id, ranks }));
                if self.hold_drains { &mut self.held } else { &mut self.queue }.extend(answer);
            }
            Effect::Tell { asker, nodes, .. } => self.tell(rank, asker, nodes),
            Effect::Raise { exception, .. } => self.raised.push(exception.note),
            Effect::KillJob { id, signal } => {
                self.killed.push(signal);
                let answer = (rank, Event::KillAnswered { id });
                if self.hold_kills { &mut self.held } else { &mut self.queue }.push_back(answer);
            }
            Effect::Log { level: Level::Error, text } => self.errors.push(text),
            Effect::Log { level: Level::Warning, text } => self.warnings.push(text),
            // Of no concern to these tests.
            Effect::Answer { to: RequestId::Local(_), .. }
            | Effect::Drop { .. }
            | Effect::Log { level: Level::Debug | Level::Info, .. }
            | Effect::LostShell { .. } => (),
            Effect::Checkpoint { .. }
            | Effect::Kvs { .. }
            | Effect::Pass { .. }
            | Effect::Send { .. }
            | Effect::Stream { .. }
            | Effect::Unit(..) => unreachable!("{effect:?}"),
        }
    }

    fn unit(&mut self, rank: usize, unit: UnitName, command: UnitCommand) {
        let disk = &mut self.disks[rank];
        match command {
            UnitCommand::Collect => {
                let status = WaitStatus::signaled(libc::SIGTERM);
                let exited = disk.stoppable.then_some(UnitEvent::Exited { status });
                let is_gone = disk.stoppable || disk.dead.contains(&unit);
                let told = exited.into_iter().chain(is_gone.then_some(UnitEvent::Gone));
                self.queue.extend(told.map(|event| (rank, Event::Supervisor(event.of(&unit)))));
            }
            UnitCommand::Forget => {
                disk.records.remove(&unit);
                let is_last = unit.stage() != Stage::Epilog || disk.records.is_empty();
                assert!(is_last, "else the next life takes it for one that has not run");
            }
            UnitCommand::Launch(spec) => {
                self.launched.push(rank as u32);
                if unit.stage() == Stage::Epilog {
                    self.records_at_epilogs.push(disk.records.len());
                }
                disk.records.insert(unit, record(&spec));
            }
            UnitCommand::Note(note) => {
                if let Note::Commits(bequest) = &note {
                    let kept = UnitEvent::Kept { client: bequest.client.clone(), is_written: true };
                    self.queue.push_back((rank, Event::Supervisor(kept.of(&unit))));
                }
                if let Some(record) = disk.records.get_mut(&unit) {
                    record.notes.insert(note.key(), note.value());
                }
            }
            UnitCommand::OutputAck { .. } => (),
            UnitCommand::Signal { signal, .. } => self.signals.push((rank as u32, signal)),
        }
    }

    pub(super) fn unit_of(&self, rank: usize) -> UnitName {
        let instance = InstanceId::new("/test", OWNER);
        UnitName::new(self.is_guests, BrokerRank(rank as u32), JOB, instance)
    }

    /// The shell on `rank` has started.
    pub(super) fn started(&mut self, rank: usize) {
        let unit = self.unit_of(rank);
        self.report(rank, &unit, UnitEvent::Started { pid: 100 + rank as u32 });
    }

    /// The shells on all these ranks have started.
    pub(super) fn all_started(&mut self, ranks: std::ops::Range<usize>) {
        for rank in ranks {
            self.started(rank);
        }
        self.pass(0.02);
    }

    pub(super) fn output(&mut self, rank: usize, offset: u64, text: &str) {
        let unit = self.unit_of(rank);
        let (stream, data) = (Stream::Stdout, text.as_bytes().to_vec());
        self.report(rank, &unit, UnitEvent::Output { stream, offset, data });
    }

    /// The shell on `rank` has exited, and nothing of it is left once it is collected.
    pub(super) fn exited(&mut self, rank: usize, status: WaitStatus) {
        let unit = self.unit_of(rank);
        self.disks[rank].dead.push(unit.clone());
        if let Some(record) = self.disks[rank].records.get_mut(&unit) {
            record.exited = Some(status);
        }
        self.report(rank, &unit, UnitEvent::Exited { status });
    }

    pub(super) fn enter_barrier(&mut self, rank: usize) -> u64 {
        let request = self.request();
        let credential = Credential { userid: OWNER, owner: true, local: true };
        let broker = BrokerRank(rank as u32);
        self.happen(
            rank,
            Event::ShellBarrier { request, credential, id: JOB, rank: broker, entry: None },
        );
        self.last_request
    }

    pub(super) fn cancel(&mut self) {
        let exception =
            JobException { id: JOB, kind: "cancel".into(), severity: 0, wait_status: None };
        for rank in 0..self.nodes.len() {
            self.happen(rank, Event::Exception(exception.clone()));
        }
    }

    /// The module of a rank is unloaded cleanly.
    pub(super) fn unload(&mut self, rank: usize) {
        let mut effects = Effects::default();
        if let Some(mut node) = self.nodes[rank].take() {
            node.shut_down(&mut effects);
        }
        for effect in effects.list {
            self.perform(rank, effect);
        }
        // What was on its way from there is not delivered to the next life.
        let asked: Vec<(usize, u64)> = self
            .requests
            .iter()
            .filter(|(_, (asker, _))| *asker == rank)
            .map(|(request, _)| *request)
            .collect();
        for (holder, number) in asked {
            self.requests.remove(&(holder, number));
            let request = RequestId::Remote(number);
            self.queue.push_back((holder, Event::Disconnected { request }));
        }
        self.settle();
    }

    /// The module of a rank is loaded again, and finds what is on disk.
    pub(super) fn load(&mut self, rank: usize) {
        for record in self.load_unseen(rank) {
            self.look_at_unit(rank, &record);
        }
    }

    /// The module is loaded again, and its supervisor has not looked at the units yet. Returns the
    /// records that it has found.
    pub(super) fn load_unseen(&mut self, rank: usize) -> Vec<UnitRecord> {
        let records: Vec<UnitRecord> = self.disks[rank].records.values().cloned().collect();
        self.load_found(rank, &records);
        records
    }

    /// The same. The supervisor finds these records, in this order.
    pub(super) fn load_found(&mut self, rank: usize, records: &[UnitRecord]) {
        let node = Node::new(self.config.clone(), facts(rank as u32));
        self.nodes[rank] = Some(ready(node));
        for record in records {
            self.happen(rank, Event::Supervisor(SupervisorEvent::Found(Box::new(record.clone()))));
        }
    }

    /// What was held on its way arrives.
    pub(super) fn deliver_held(&mut self) {
        for (rank, event) in std::mem::take(&mut self.held) {
            self.happen(rank, event);
        }
    }

    /// The shells of a rank outlive its broker, from now on.
    pub(super) fn make_lasting(&mut self, rank: usize) {
        let ready = SupervisorEvent::Ready { method: Method::Systemd, notice: None };
        self.happen(rank, Event::Supervisor(ready));
    }

    /// Collecting a unit of a rank stops it, from now on.
    pub(super) fn make_stoppable(&mut self, rank: usize) {
        self.disks[rank].stoppable = true;
    }

    pub(super) fn records(&self) -> usize {
        self.disks.iter().map(|disk| disk.records.len()).sum()
    }

    pub(super) fn event_names(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.name.as_str()).collect()
    }

    pub(super) fn released(&self) -> Vec<(String, bool)> {
        let release = |response: &Response| match response {
            Response::Release { ranks, is_final } => Some((ranks.to_string(), *is_final)),
            _ => None,
        };
        self.responses.iter().filter_map(release).collect()
    }

    /// What the job's own eventlog says.
    fn released_in_parts(&self) -> Idset {
        let parts = self.released().into_iter().filter(|(_, is_final)| !is_final);
        let parts: Vec<Idset> = parts.map(|(ranks, _)| ranks.parse().expect("ranks")).collect();
        Idset::union_of(parts.iter())
    }

    pub(super) fn status(&self) -> Option<WaitStatus> {
        self.responses.iter().find_map(|response| match response {
            Response::Finish { status } => Some(*status),
            _ => None,
        })
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let note = |response: &Response| match response {
            Response::Exception(exception) => Some(exception.note.clone()),
            _ => None,
        };
        self.responses.iter().filter_map(note).collect()
    }

    /// The job is over for everybody once a checkpoint holds its end, and RFC 32's order was
    /// kept.
    pub(super) fn assert_ended(&mut self) {
        self.pass(2.0);
        let last = self.responses.last();
        let is_final = |r: &Response| matches!(r, Response::Release { is_final: true, .. });
        assert!(last.is_some_and(is_final), "{:?}", self.responses);
        assert_eq!(self.responses.iter().filter(|r| is_final(r)).count(), 1);
        for (rank, node) in self.nodes.iter().enumerate() {
            if let Some(node) = node {
                assert!(node.leaders.is_empty(), "rank {rank} still leads");
                assert!(node.agents.is_empty(), "rank {rank} still has an agent");
                assert_eq!(node.next_timeout(), None, "rank {rank} has a timer left");
            }
        }
        for disk in &self.disks {
            assert!(disk.records.is_empty(), "a record was left behind");
        }
    }
}

/// So many seconds after a world's beginning.
fn moment(seconds: f64) -> Now {
    Now { mono: MonoTime(seconds), wall: WallTime(1e9 + seconds) }
}

/// Its supervisor is ready, and has found nothing. It was loaded a while ago, so that requests to it
/// are younger than it is.
fn ready(mut node: Node) -> Node {
    let ready = SupervisorEvent::Ready { method: Method::Fork, notice: None };
    let now = moment(-10.0);
    node.handle(now, Event::Supervisor(ready), &mut Effects::default());
    node.handle(now, Event::RunningAsked(Listing::default()), &mut Effects::default());
    node
}

fn record(spec: &UnitSpec) -> UnitRecord {
    UnitRecord::new(spec.clone(), "boot".into())
}

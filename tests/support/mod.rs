//! A worker with a directory of its own, and ways to wait for its events.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test binary uses its own part")]

mod bus;
pub mod contract;
mod gate;

pub use bus::bus;
use contract::{Program, Subject, WRITTEN};
pub use gate::{Gate, RUNS_ON};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use job_exec_rs::adapter::worker::{ANSWER_WITHIN, Worker, WorkerConfig};
use job_exec_rs::config::Config;
use job_exec_rs::port::supervisor::{
    Limits, Method, StartFailure, Supervisor, SupervisorEvent, UnitCommand, UnitEvent, UnitRecord,
    UnitSpec,
};
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::{BrokerRank, InstanceId, JobId, Stream, UnitName, Usage, WaitStatus};

/// Far longer than anything here takes, so only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// All tests run on this rank.
pub const RANK: BrokerRank = BrokerRank(3);

/// A worker and the events that it sent.
pub struct Harness {
    pub config: WorkerConfig,
    worker: Option<Worker>,
    events: mpsc::Receiver<SupervisorEvent>,
    /// Taken from the channel while waiting for something else.
    pending: Vec<SupervisorEvent>,
    /// What shells have used, as far as it was told.
    pub usage: RefCell<BTreeMap<UnitName, Usage>>,
}

/// The unit that an event is about.
pub fn unit_of(event: &SupervisorEvent) -> Option<&UnitName> {
    match event {
        SupervisorEvent::Found(record) => Some(&record.spec.unit),
        SupervisorEvent::Unit(unit, _) | SupervisorEvent::Unreadable { unit, .. } => Some(unit),
        _ => None,
    }
}

/// A configuration with a directory and an instance of its own.
pub fn config(method: ExecMethod, directory: &Path) -> WorkerConfig {
    WorkerConfig {
        method,
        instance: InstanceId::new(&directory.display().to_string(), 0),
        rank: RANK,
        directory: directory.to_path_buf(),
        outer_job: None,
        answer_within: ANSWER_WITHIN,
        confines: false,
        limits: Limits::default(),
        bus_address: None,
        dispatch: log(),
    }
}

fn log() -> tracing::Dispatch {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "off".to_string());
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).finish();
    tracing::Dispatch::new(subscriber)
}

impl Harness {
    /// Start a worker; does not wait for `Ready`.
    pub fn start(config: WorkerConfig) -> Self {
        let (sender, events) = mpsc::channel();
        let worker = Worker::start(config.clone(), move |event| {
            let _ = sender.send(event);
        })
        .expect("a thread");
        let usage = RefCell::default();
        Self { config, worker: Some(worker), events, pending: Vec::new(), usage }
    }

    /// Start a worker and wait until it is ready. Returns the records that it found, its method and
    /// its notice.
    pub fn ready(config: WorkerConfig) -> (Self, Vec<UnitRecord>, (Method, Option<String>)) {
        let mut harness = Self::start(config);
        let ready = harness.wait("Ready", |event| match event {
            SupervisorEvent::Ready { method, notice } => Some((*method, notice.clone())),
            SupervisorEvent::Unusable { message } => panic!("unusable: {message}"),
            _ => None,
        });
        let mut found = Vec::new();
        harness.pending.retain(|event| match event {
            SupervisorEvent::Found(record) => {
                found.push((**record).clone());
                false
            }
            _ => true,
        });
        (harness, found, ready)
    }

    pub fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        self.worker.as_mut().expect("not stopped").submit(unit, command);
    }

    pub fn start_unit(&mut self, spec: UnitSpec) {
        self.submit(spec.unit.clone(), UnitCommand::Launch(Box::new(spec)));
    }

    /// Stop the worker as the broker does, leaving the directory for the next.
    pub fn stop(&mut self) {
        self.worker.take().expect("not stopped").stop();
    }

    /// What was reported, and was not looked at yet.
    pub fn told(&mut self) -> Vec<SupervisorEvent> {
        self.pending.drain(..).chain(self.events.try_iter()).collect()
    }

    /// The worker's next life on the same directory.
    pub fn restart(mut self) -> (Self, Vec<UnitRecord>) {
        self.stop();
        let (harness, found, _) = Self::ready(self.config);
        (harness, found)
    }

    pub fn unit(&self, job: u64) -> UnitName {
        UnitName::new(false, self.config.rank, JobId(job), self.config.instance.clone())
    }

    /// A shell script as the unit's program.
    pub fn spec(&self, job: u64, script: &str) -> UnitSpec {
        UnitSpec {
            userid: nix::unistd::getuid().as_raw(),
            size: 1,
            description: format!("test job {job}"),
            argv: ["/bin/sh", "-c", script].map(str::to_string).to_vec(),
            environment: BTreeMap::from([("TEST_JOB".to_string(), job.to_string())]),
            unset_environment: vec!["UNWANTED".to_string()],
            working_directory: Some("/".to_string()),
            stop_timeout: Some(DEADLINE),
            ..UnitSpec::bare(self.unit(job), format!("digest-of-{job}").as_str().into())
        }
    }

    pub fn launch(&mut self, job: u64, script: &str) {
        let spec = self.spec(job, script);
        self.start_unit(spec);
    }

    pub fn collect(&mut self, job: u64) {
        let unit = self.unit(job);
        self.submit(unit, UnitCommand::Collect);
    }

    pub fn forget(&mut self, job: u64) {
        let unit = self.unit(job);
        self.submit(unit, UnitCommand::Forget);
    }

    pub fn signal(&mut self, job: u64, signal: i32, all: bool) {
        let unit = self.unit(job);
        self.submit(unit, UnitCommand::Signal { signal, all });
    }

    pub fn ack(&mut self, job: u64, stream: Stream, offset: u64) {
        let unit = self.unit(job);
        let checkpointed = if offset == u64::MAX { 0 } else { offset };
        self.submit(unit, UnitCommand::OutputAck { stream, offset, checkpointed });
    }

    /// The next event of any unit, in the order of sending.
    pub fn next(&mut self) -> SupervisorEvent {
        if !self.pending.is_empty() {
            return self.pending.remove(0);
        }
        self.receive("an event")
    }

    /// The next event of one job's unit; others stay for later.
    pub fn next_of(&mut self, job: u64) -> SupervisorEvent {
        let unit = self.unit(job);
        self.wait(&format!("an event of job {job}"), |event| {
            (unit_of(event) == Some(&unit)).then(|| event.clone())
        })
    }

    /// Wait for an event and take it; what comes before it stays for later.
    pub fn wait<T>(&mut self, what: &str, pick: impl Fn(&SupervisorEvent) -> Option<T>) -> T {
        for at in 0.. {
            if at == self.pending.len() {
                let event = self.receive(what);
                self.pending.push(event);
            }
            if let Some(picked) = pick(&self.pending[at]) {
                self.pending.remove(at);
                return picked;
            }
        }
        unreachable!("the loop has no end")
    }

    /// Whether there was such an event among those that were not waited for.
    pub fn saw(&self, matches: impl Fn(&SupervisorEvent) -> bool) -> bool {
        self.pending.iter().any(matches)
    }

    /// Something of all events that were not waited for, added up.
    pub fn count(&self, of: impl Fn(&SupervisorEvent) -> usize) -> usize {
        self.pending.iter().map(of).sum()
    }

    /// What a shell has used is kept aside: its figures are never the same.
    fn receive(&self, what: &str) -> SupervisorEvent {
        loop {
            match self.events.recv_timeout(DEADLINE) {
                Ok(SupervisorEvent::Unit(unit, UnitEvent::Usage(usage))) => {
                    self.usage.borrow_mut().insert(unit, *usage);
                }
                Ok(event) => return event,
                Err(e) => panic!("waiting for {what}: {e}; seen: {:?}", self.pending),
            }
        }
    }

    pub fn started(&mut self, job: u64) -> u32 {
        match self.next_of(job) {
            SupervisorEvent::Unit(_, UnitEvent::Started { pid }) => pid,
            other => panic!("expected Started of job {job}, got {other:?}"),
        }
    }

    pub fn exited(&mut self, job: u64) -> WaitStatus {
        match self.next_of(job) {
            SupervisorEvent::Unit(_, UnitEvent::Exited { status }) => status,
            other => panic!("expected Exited of job {job}, got {other:?}"),
        }
    }

    pub fn failed(&mut self, job: u64) -> (i32, String) {
        match self.next_of(job) {
            SupervisorEvent::Unit(_, UnitEvent::Failed(StartFailure { errnum, message })) => {
                (errnum, message)
            }
            other => panic!("expected Failed of job {job}, got {other:?}"),
        }
    }

    /// The record is of a later release.
    pub fn unreadable(&mut self, job: u64) {
        match self.next_of(job) {
            SupervisorEvent::Unreadable { .. } => (),
            other => panic!("expected Unreadable of job {job}, got {other:?}"),
        }
    }

    pub fn never_started(&mut self, job: u64) {
        match self.next_of(job) {
            SupervisorEvent::Unit(_, UnitEvent::NeverStarted) => (),
            other => panic!("expected NeverStarted of job {job}, got {other:?}"),
        }
    }

    pub fn lost(&mut self, job: u64) -> String {
        match self.next_of(job) {
            SupervisorEvent::Unit(_, UnitEvent::Lost { message }) => message,
            other => panic!("expected Lost of job {job}, got {other:?}"),
        }
    }

    /// A file of its output is not there.
    pub fn output_lost(&mut self, job: u64) {
        match self.next_of(job) {
            SupervisorEvent::Unit(_, UnitEvent::OutputLost { .. }) => (),
            other => panic!("expected OutputLost of job {job}, got {other:?}"),
        }
    }

    pub fn gone(&mut self, job: u64) {
        match self.next_of(job) {
            SupervisorEvent::Unit(_, UnitEvent::Gone) => {}
            other => panic!("expected Gone of job {job}, got {other:?}"),
        }
    }

    /// Take output from `offset` on until there are `length` bytes of it, acknowledging each
    /// piece. Pieces must follow each other without gap or overlap.
    pub fn output(&mut self, job: u64, stream: Stream, offset: u64, length: usize) -> Vec<u8> {
        let unit = self.unit(job);
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let (at, data) = self.wait("output", |event| match event {
                SupervisorEvent::Unit(u, UnitEvent::Output { stream: s, offset, data })
                    if *u == unit && *s == stream =>
                {
                    Some((*offset, data.clone()))
                }
                _ => None,
            });
            assert_eq!(at, offset + bytes.len() as u64, "offset of the next piece");
            bytes.extend(data);
            self.ack(job, stream, offset + bytes.len() as u64);
        }
        bytes
    }

    /// Launch, and wait for `Started` and `Exited`.
    pub fn run(&mut self, job: u64, script: &str) -> WaitStatus {
        self.launch(job, script);
        self.started(job);
        self.exited(job)
    }

    /// Remove a unit that has exited and whose output was taken.
    pub fn clean(&mut self, job: u64) {
        self.collect(job);
        self.gone(job);
        self.forget(job);
    }

    pub fn file(&self, job: u64, extension: &str) -> std::path::PathBuf {
        self.config.directory.join(format!("{}.{extension}", self.unit(job).stem()))
    }
}

impl Subject for Harness {
    fn spec_of(&mut self, job: u64, program: Program) -> UnitSpec {
        program_spec(Harness::spec(self, job, RUNS_ON), program)
    }

    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        Harness::submit(self, unit, command);
    }

    fn next(&mut self) -> SupervisorEvent {
        Harness::next(self)
    }
}

/// A specification with this program in place of its own.
pub fn program_spec(mut spec: UnitSpec, program: Program) -> UnitSpec {
    let script = match program {
        Program::RunsOn => RUNS_ON.to_string(),
        Program::Writes => format!("head -c {WRITTEN} /dev/zero | tr '\\0' x"),
        Program::Missing => {
            spec.argv = vec!["/nonexistent/program".to_string()];
            return spec;
        }
    };
    spec.argv = ["/bin/sh", "-c", &script].map(str::to_string).to_vec();
    spec
}

/// Names of this process's threads.
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_string())
        .collect()
}

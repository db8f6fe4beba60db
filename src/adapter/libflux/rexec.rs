//! Shells as children of the broker, through its own `rexec` service (RFC 42).
//!
//! This is the `fork` method inside a real broker. The broker reaps every child of its process, so
//! it could take the exit status of a child that this module starts; its `rexec` service always
//! reports the status. No shell survives the broker or this module, because a shell ends with the
//! stream that started it. So there are no records: what is kept with a unit is in the memory of its
//! agent, which lives as long.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine;
use serde_json::{Value, json};

use super::{Futures, Handle, RpcError, Timer};
use crate::port::supervisor::{
    Limits, OUTPUT_CHUNK_BYTES, StartFailure, Supervisor, SupervisorEvent, UnitCommand, UnitEvent,
    UnitSpec,
};
use crate::proto::{JobDigest, Stream, UnitName, WaitStatus};

/// One shell.
struct Process {
    /// The job that it was started for.
    digest: JobDigest,
    /// The program, for messages.
    program: String,
    pid: Option<u32>,
    offsets: [u64; 2],
    exited: bool,
    /// The stream has ended.
    ended: bool,
    collect: Collected,
    /// Signals that came before the process did, each once.
    signals: Vec<i32>,
    /// How long the processes that the shell left behind have between SIGTERM and SIGKILL, in
    /// seconds.
    stop_timeout: Option<f64>,
    /// Fires when the next signal is due.
    kill_timer: Option<Rc<Timer>>,
    /// The processes that the shell left behind were sent SIGTERM.
    terminated: bool,
}

/// How far its removal is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Collected {
    /// Not asked for.
    No,
    /// Asked for, or it has exited.
    Asked,
    /// `Gone` was reported.
    Gone,
}

impl Process {
    fn new(spec: &UnitSpec) -> Self {
        Self {
            digest: spec.digest.clone(),
            program: spec.argv.first().cloned().unwrap_or_default(),
            pid: None,
            offsets: [0, 0],
            exited: false,
            ended: false,
            collect: Collected::No,
            signals: Vec::new(),
            stop_timeout: spec.stop_timeout.map(|timeout| timeout.as_secs_f64()),
            kill_timer: None,
            terminated: false,
        }
    }

    /// It never ran.
    fn has_failed(&self) -> bool {
        self.ended && self.pid.is_none()
    }

    /// What a launch of the same name is answered with. `None`: it starts a process, or the one that
    /// is being started answers it.
    fn meet(&self, spec: &UnitSpec) -> Option<UnitEvent> {
        let runs = !self.exited && !self.ended && self.collect == Collected::No;
        if runs && self.digest == spec.digest {
            return self.pid.map(|pid| UnitEvent::Started { pid });
        }
        let state = if self.exited || self.ended { "has run" } else { "runs" };
        let message = format!("unit {} exists: it {state} and was not forgotten yet", spec.unit);
        Some(UnitEvent::Failed(StartFailure { errnum: libc::EEXIST, message }))
    }

    /// The events for new output. Bytes past the limit are counted and dropped.
    fn output(&mut self, (stream, limit): (Stream, u64), mut data: Vec<u8>) -> Vec<UnitEvent> {
        let position = &mut self.offsets[stream as usize];
        let begin = *position;
        *position = position.saturating_add(data.len() as u64);
        let room = limit.saturating_sub(begin);
        data.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let piece = |(index, data): (usize, &[u8])| {
            let offset = begin.saturating_add((index * OUTPUT_CHUNK_BYTES) as u64);
            UnitEvent::Output { stream, offset, data: data.to_vec() }
        };
        data.chunks(OUTPUT_CHUNK_BYTES).enumerate().map(piece).collect()
    }
}

/// How long a stream may outlast its shell before the processes that hold it open are sent SIGTERM,
/// in seconds.
const LEFTOVER_GRACE_SECONDS: f64 = 0.1;

type Processes = Rc<RefCell<BTreeMap<UnitName, Process>>>;
type EventSink = Rc<dyn Fn(SupervisorEvent)>;

/// The `fork` supervisor of a real broker.
#[derive(Clone)]
pub struct Rexec {
    handle: Handle,
    futures: Rc<Futures>,
    rank: u32,
    limits: Limits,
    processes: Processes,
    sink: EventSink,
}

impl Rexec {
    /// Starts shells on `rank`, which must be the broker's own. `sink` is called with each event.
    pub fn new(
        handle: Handle,
        futures: Rc<Futures>,
        rank: u32,
        limits: Limits,
        sink: impl Fn(SupervisorEvent) + 'static,
    ) -> Self {
        Self { handle, futures, rank, limits, processes: Rc::default(), sink: Rc::new(sink) }
    }

    fn launch(&self, spec: &UnitSpec) {
        let unit = spec.unit.clone();
        if let Some(known) = self.processes.borrow().get(&unit).filter(|known| !known.has_failed())
        {
            if let Some(event) = known.meet(spec) {
                (self.sink)(event.of(&unit));
            }
            return;
        }
        self.processes.borrow_mut().insert(unit.clone(), Process::new(spec));
        let stdout_and_stderr = 3;
        let request = json!({ "cmd": command(spec), "flags": stdout_and_stderr, "local_flags": 0 });
        let this = self.clone();
        self.futures.stream("rexec.exec", self.rank, &request.to_string(), move |result| {
            let events = match result {
                Ok(text) => handle_answer(&this.processes, &unit, this.limits.stream, &text),
                Err(error) => handle_end(&this.processes, &unit, &error).into_iter().collect(),
            };
            for event in events {
                this.handle(&unit, event);
            }
            this.report_gone(&unit);
        });
    }

    /// Reports an event, and does what waited for it.
    fn handle(&self, unit: &UnitName, event: UnitEvent) {
        if let UnitEvent::Started { pid } = event {
            let mut processes = self.processes.borrow_mut();
            let signals =
                processes.get_mut(unit).map(|process| std::mem::take(&mut process.signals));
            for signal in signals.unwrap_or_default() {
                kill(&self.futures, self.rank, pid, signal);
            }
        }
        let is_exit = matches!(event, UnitEvent::Exited { .. });
        (self.sink)(event.of(unit));
        let mut processes = self.processes.borrow_mut();
        let Some(process) = processes.get_mut(unit) else { return };
        if is_exit && process.collect == Collected::No {
            process.collect = Collected::Asked;
        }
        self.end_rest(unit, process);
    }

    fn collect(&self, unit: &UnitName) {
        let mut processes = self.processes.borrow_mut();
        let Some(process) = processes.get_mut(unit) else {
            drop(processes);
            // No process is left. The caller still waits for an answer.
            return (self.sink)(UnitEvent::Gone.of(unit));
        };
        if process.collect == Collected::No {
            process.collect = Collected::Asked;
        }
        self.end_rest(unit, process);
    }

    /// The stream ends when no process holds the shell's output open any more, usually at once. If
    /// it does not end, the processes that are left in the shell's process group get SIGTERM, and
    /// later SIGKILL.
    fn end_rest(&self, unit: &UnitName, process: &mut Process) {
        let is_due = process.collect == Collected::Asked && process.kill_timer.is_none();
        let (Some(pid), true, false) = (process.pid, is_due, process.ended) else { return };
        let (futures, rank) = (Rc::clone(&self.futures), self.rank);
        let (processes, name) = (Rc::clone(&self.processes), unit.clone());
        let timer = Timer::new(self.handle, move || {
            if let Some(signal) = next_signal(&processes, &name) {
                kill(&futures, rank, pid, signal);
            }
        });
        match timer {
            Ok(timer) => {
                timer.set(Some(LEFTOVER_GRACE_SECONDS));
                process.kill_timer = Some(Rc::new(timer));
            }
            Err(error) => self.handle.log(libc::LOG_ERR, &error.to_string()),
        }
    }

    fn signal(&self, unit: &UnitName, signal: i32, all: bool) {
        let mut processes = self.processes.borrow_mut();
        let Some(process) = processes.get_mut(unit).filter(|process| !process.ended) else {
            return;
        };
        match process.pid {
            Some(pid) if all || !process.exited => kill(&self.futures, self.rank, pid, signal),
            Some(_) => (),
            None if process.signals.contains(&signal) => (),
            None => process.signals.push(signal),
        }
    }

    /// Reports `Gone` once for a collected process whose stream has ended.
    fn report_gone(&self, unit: &UnitName) {
        let offsets = match self.processes.borrow_mut().get_mut(unit) {
            Some(process)
                if process.ended
                    && !process.has_failed()
                    && process.collect == Collected::Asked =>
            {
                process.collect = Collected::Gone;
                process.offsets
            }
            Some(_) | None => return,
        };
        let kept = self.limits.stream;
        for (stream, offset) in [Stream::Stdout, Stream::Stderr].into_iter().zip(offsets) {
            let dropped = offset.saturating_sub(kept);
            if dropped > 0 {
                (self.sink)(UnitEvent::OutputTruncated { stream, kept, dropped }.of(unit));
            }
        }
        (self.sink)(UnitEvent::Gone.of(unit));
    }
}

impl Supervisor for Rexec {
    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        match command {
            UnitCommand::Launch(spec) => self.launch(&spec),
            UnitCommand::Collect => {
                self.collect(&unit);
                self.report_gone(&unit);
            }
            UnitCommand::Forget => drop(self.processes.borrow_mut().remove(&unit)),
            UnitCommand::Note(note) => {
                // There is no record. The agent has it, and lives as long as the unit.
                let is_kept = self.processes.borrow().contains_key(&unit);
                if let Some(answer) = UnitEvent::of_note(&note, is_kept) {
                    (self.sink)(answer.of(&unit));
                }
            }
            UnitCommand::OutputAck { .. } => (), // there are no output files, and there is no window
            UnitCommand::Signal { signal, all } => self.signal(&unit, signal, all),
        }
    }
}

/// The next signal for processes that were left behind: SIGTERM, and SIGKILL after the stop
/// timeout.
fn next_signal(processes: &Processes, unit: &UnitName) -> Option<i32> {
    let mut processes = processes.borrow_mut();
    let process = processes.get_mut(unit)?;
    if std::mem::replace(&mut process.terminated, true) {
        return Some(libc::SIGKILL);
    }
    if let Some(timer) = &process.kill_timer {
        timer.set(process.stop_timeout);
    }
    Some(libc::SIGTERM)
}

/// The service signals the whole process group.
fn kill(futures: &Futures, rank: u32, pid: u32, signal: i32) {
    let request = json!({ "pid": pid, "signum": signal }).to_string();
    // An error means that the process has ended already.
    futures.rpc("rexec.kill", Some(rank), &request, |_| ());
}

/// Handles an answer of the stream. What cannot be read is passed over. `Gone` follows the end of the
/// stream.
fn handle_answer(processes: &Processes, unit: &UnitName, limit: u64, text: &str) -> Vec<UnitEvent> {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let mut processes = processes.borrow_mut();
    let Some(process) = processes.get_mut(unit) else { return Vec::new() };
    match answer["type"].as_str() {
        Some("started") => {
            process.pid = answer["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            process.pid.map(|pid| UnitEvent::Started { pid }).into_iter().collect()
        }
        Some("output") => match read_output(&answer["io"]) {
            Some((stream, data)) => process.output((stream, limit), data),
            None => Vec::new(),
        },
        Some("finished") => {
            process.exited = true;
            let status = answer["status"].as_i64().and_then(|status| i32::try_from(status).ok());
            let exit = |status| UnitEvent::Exited { status: WaitStatus(status) };
            status.map(exit).into_iter().collect()
        }
        _ => Vec::new(), // `stopped`, `add-credit`: nothing that a job's state depends on
    }
}

/// RFC 24 data.
fn read_output(io: &Value) -> Option<(Stream, Vec<u8>)> {
    let stream = match io["stream"].as_str()? {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return None,
    };
    let text = io["data"].as_str()?;
    let data = match io["encoding"].as_str() {
        Some("base64") => base64::engine::general_purpose::STANDARD.decode(text).ok()?,
        _ => text.as_bytes().to_vec(),
    };
    Some((stream, data))
}

/// Handles the end of the stream.
fn handle_end(processes: &Processes, unit: &UnitName, error: &RpcError) -> Option<UnitEvent> {
    let mut processes = processes.borrow_mut();
    let process = processes.get_mut(unit)?;
    process.ended = true;
    process.kill_timer = None;
    if process.pid.is_none() {
        let message = format!("{}: {}", process.program, error.message);
        return Some(UnitEvent::Failed(StartFailure { errnum: error.errnum, message }));
    }
    if !process.exited {
        let message = format!("the broker's rexec service lost it: {error}");
        return Some(UnitEvent::Lost { message });
    }
    None
}

/// RFC 42's command object. It carries the whole environment.
fn command(spec: &UnitSpec) -> Value {
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !spec.unset_environment.contains(name))
        .collect();
    environment.extend(spec.environment.clone());
    // Without `cwd` a child starts in the broker's directory, and the broker can use posix_spawn(3)
    // instead of fork(2).
    json!({
        "cmdline": spec.argv,
        "env": environment,
        "opts": {},
        "channels": [],
    })
}

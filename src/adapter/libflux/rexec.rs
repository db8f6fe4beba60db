//! Shells as children of the broker, through its own `rexec` service (RFC 42).
//!
//! This is the `fork` method inside a real broker. The broker reaps every child of its process, so
//! it could take the exit status of a child that this module starts; its `rexec` service always
//! reports the status. No shell survives the broker or this module, because a shell ends with the
//! stream that started it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine;
use serde_json::{Value, json};

use super::{Futures, Handle, RpcError, Timer};
use crate::port::supervisor::{
    OutputLimits, StartFailure, Supervisor, SupervisorEvent, UnitCommand, UnitEvent, UnitSpec,
};
use crate::proto::{Stream, UnitName, WaitStatus};

/// One shell.
#[derive(Default)]
struct Process {
    /// The program, for messages.
    program: String,
    pid: Option<u32>,
    offsets: [u64; 2],
    exited: bool,
    /// The stream has ended.
    ended: bool,
    collect: bool,
    /// Signals that came before the process did.
    signals: Vec<i32>,
    /// How long the processes that the shell left behind have between SIGTERM and SIGKILL, in
    /// seconds.
    stop_timeout: Option<f64>,
    /// Fires when the next signal is due.
    kill_timer: Option<Rc<Timer>>,
    /// The processes that the shell left behind were sent SIGTERM.
    terminated: bool,
}

impl Process {
    /// The event for new output. Bytes past the limit are counted and dropped.
    fn output(&mut self, (stream, limit): (Stream, u64), mut data: Vec<u8>) -> Option<UnitEvent> {
        let position = &mut self.offsets[stream as usize];
        let offset = *position;
        *position = position.saturating_add(data.len() as u64);
        let room = limit.saturating_sub(offset);
        data.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        (!data.is_empty()).then_some(UnitEvent::Output { stream, offset, data })
    }
}

/// How long a stream may outlast its shell before the processes that hold it open are sent SIGTERM,
/// in seconds.
const LEFTOVER_GRACE_SECONDS: f64 = 0.1;

type Processes = Rc<RefCell<BTreeMap<UnitName, Process>>>;
type Sink = Rc<dyn Fn(SupervisorEvent)>;

/// The `fork` supervisor of a real broker.
pub struct Rexec {
    handle: Handle,
    futures: Rc<Futures>,
    rank: u32,
    limits: OutputLimits,
    processes: Processes,
    sink: Sink,
}

impl Rexec {
    /// Starts shells on `rank`, which must be the broker's own. `sink` is called with each event.
    pub fn new(
        handle: Handle,
        futures: Rc<Futures>,
        rank: u32,
        limits: OutputLimits,
        sink: impl Fn(SupervisorEvent) + 'static,
    ) -> Self {
        Self { handle, futures, rank, limits, processes: Rc::default(), sink: Rc::new(sink) }
    }

    fn launch(&self, spec: &UnitSpec) {
        let unit = spec.unit.clone();
        let stop_timeout = spec.stop_timeout.map(|timeout| timeout.as_secs_f64());
        let program = spec.argv.first().cloned().unwrap_or_default();
        let process = Process { program, stop_timeout, ..Process::default() };
        self.processes.borrow_mut().insert(unit.clone(), process);
        let stdout_and_stderr = 3;
        let request = json!({ "cmd": command(spec), "flags": stdout_and_stderr, "local_flags": 0 });
        let (processes, sink) = (Rc::clone(&self.processes), Rc::clone(&self.sink));
        let (futures, rank, limits) = (Rc::clone(&self.futures), self.rank, self.limits);
        self.futures.stream("rexec.exec", self.rank, &request.to_string(), move |result| {
            let event = match result {
                Ok(text) => handle_answer(&processes, &unit, limits.stream, &text),
                Err(error) => handle_end(&processes, &unit, &error),
            };
            if let Some(UnitEvent::Started { pid }) = event {
                let signals =
                    processes.borrow_mut().get_mut(&unit).map(|p| std::mem::take(&mut p.signals));
                for signal in signals.unwrap_or_default() {
                    kill(&futures, rank, pid, signal);
                }
            }
            if let Some(event) = event {
                sink(event.of(&unit));
            }
            report_gone(&processes, &unit, limits.stream, &*sink);
        });
    }

    /// The stream ends when no process holds the shell's output open any more, usually at once. If
    /// it does not end, the processes that are left in the shell's process group get SIGTERM, and
    /// later SIGKILL.
    fn collect(&self, unit: &UnitName) {
        let mut processes = self.processes.borrow_mut();
        let Some(process) = processes.get_mut(unit) else { return };
        process.collect = true;
        let (Some(pid), false) = (process.pid, process.ended) else { return };
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
}

impl Supervisor for Rexec {
    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        match command {
            UnitCommand::Launch(spec) => self.launch(&spec),
            UnitCommand::Collect => {
                self.collect(&unit);
                report_gone(&self.processes, &unit, self.limits.stream, &*self.sink);
            }
            UnitCommand::Forget => drop(self.processes.borrow_mut().remove(&unit)),
            // There are no records, and no output files.
            UnitCommand::Note(_) | UnitCommand::OutputAck { .. } => (),
            UnitCommand::Signal { signal, .. } => {
                if let Some(process) = self.processes.borrow_mut().get_mut(&unit) {
                    match process.pid {
                        Some(pid) if !process.exited => {
                            kill(&self.futures, self.rank, pid, signal);
                        }
                        Some(_) => (),
                        None => process.signals.push(signal),
                    }
                }
            }
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

/// Handles an answer of the stream. `Gone` follows the end of the stream.
fn handle_answer(
    processes: &Processes,
    unit: &UnitName,
    limit: u64,
    text: &str,
) -> Option<UnitEvent> {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let mut processes = processes.borrow_mut();
    let process = processes.get_mut(unit)?;
    match answer["type"].as_str()? {
        "started" => {
            let pid = u32::try_from(answer["pid"].as_u64()?).ok()?;
            process.pid = Some(pid);
            Some(UnitEvent::Started { pid })
        }
        "output" => {
            let io = &answer["io"];
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
            process.output((stream, limit), data)
        }
        "finished" => {
            process.exited = true;
            let status = i32::try_from(answer["status"].as_i64()?).ok()?;
            Some(UnitEvent::Exited { status: WaitStatus(status) })
        }
        _ => None, // `stopped`, `add-credit`: nothing that a job's state depends on
    }
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
        process.collect = false;
        let message = format!("the broker's rexec service lost it: {error}");
        return Some(UnitEvent::Lost { message });
    }
    None
}

/// Reports `Gone` once for a collected process whose stream has ended.
fn report_gone(processes: &Processes, unit: &UnitName, kept: u64, sink: &dyn Fn(SupervisorEvent)) {
    if !is_gone(processes, unit) {
        return;
    }
    let offsets = processes.borrow().get(unit).map_or([0, 0], |process| process.offsets);
    for (stream, offset) in [Stream::Stdout, Stream::Stderr].into_iter().zip(offsets) {
        let dropped = offset.saturating_sub(kept);
        if dropped > 0 {
            sink(UnitEvent::OutputTruncated { stream, kept, dropped }.of(unit));
        }
    }
    sink(UnitEvent::Gone.of(unit));
}

/// Whether to report `Gone` now. True only once.
fn is_gone(processes: &Processes, unit: &UnitName) -> bool {
    let mut processes = processes.borrow_mut();
    match processes.get_mut(unit) {
        Some(process) if process.ended && process.collect => {
            process.collect = false;
            true
        }
        Some(_) | None => false,
    }
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

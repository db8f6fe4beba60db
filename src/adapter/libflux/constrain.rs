//! Confines shells to the resources of their jobs (`exec.sdexec-constrain-resources`).
//!
//! flux-core's module sdexec-mapper knows which CPUs, memory nodes and devices of this node a
//! resource set means. It is asked before a unit is started, and its answer becomes properties of
//! the unit. systemd takes `AllowedCPUs` without a word where it cannot keep it, so the cgroup is
//! looked at as soon as the shell runs (as flux-core `sdexec.c` does). A shell that is not confined
//! is ended before anybody hears of it. One of an earlier life of the module is not looked at again:
//! its leader may know it running.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Futures, RpcError};
use crate::config::Config;
use crate::port::supervisor::{
    NOT_CONFINED, StartFailure, Supervisor, SupervisorEvent, UnitCommand, UnitEvent, UnitSpec,
};
use crate::proto::{Idset, Stream, UnitName};
use crate::supervisor::cgroup2;

/// The property that is checked.
const ALLOWED_CPUS: &str = "AllowedCPUs";

/// The supervisor of units, and what is to be confined.
pub struct Constrain<U>(Rc<Inner<U>>);

struct Inner<U> {
    futures: Rc<Futures>,
    units: RefCell<U>,
    state: RefCell<Confining>,
    sink: Box<dyn Fn(SupervisorEvent)>,
    /// What makes the IMP kill the processes of its shell (`exec.sdexec-stop-timer-signal`).
    imp_kill_signal: i32,
}

#[derive(Default)]
struct Confining {
    /// The mapper was asked for these. Their commands wait.
    asked: BTreeMap<UnitName, Vec<UnitCommand>>,
    /// The CPUs of shells that are not seen running yet.
    expected: BTreeMap<UnitName, String>,
    /// Shells that are ended because they are not confined, and why they are not.
    refused: BTreeMap<UnitName, String>,
}

impl<U> Clone for Constrain<U> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<U: Supervisor + 'static> Constrain<U> {
    /// `units` starts what is confined. `sink` is called with what it cannot tell.
    pub fn new(
        units: U,
        config: &Config,
        futures: Rc<Futures>,
        sink: impl Fn(SupervisorEvent) + 'static,
    ) -> Self {
        let (units, state, sink) = (RefCell::new(units), RefCell::default(), Box::new(sink));
        let imp_kill_signal = config.stop_timer_signal;
        Self(Rc::new(Inner { futures, units, state, sink, imp_kill_signal }))
    }

    /// The event of a unit, as the node is to see it. `None`: it is not to see it.
    pub fn pass(&self, event: SupervisorEvent) -> Option<SupervisorEvent> {
        let SupervisorEvent::Unit(unit, event) = event else { return Some(event) };
        let refusal = self.0.state.borrow().refused.get(&unit).cloned();
        match (&event, refusal) {
            (UnitEvent::Gone, Some(message)) => {
                self.0.state.borrow_mut().refused.remove(&unit);
                Some(UnitEvent::Failed(StartFailure { errnum: NOT_CONFINED, message }).of(&unit))
            }
            (_, Some(_)) => None,
            (UnitEvent::Started { pid }, None) => {
                let expected = self.0.state.borrow_mut().expected.remove(&unit);
                match expected.map_or(Ok(()), |cpus| check_cpus(*pid, &cpus)) {
                    Ok(()) => Some(event.of(&unit)),
                    Err(why) => {
                        self.0.refuse(unit, why);
                        None
                    }
                }
            }
            (_, None) => Some(event.of(&unit)),
        }
    }

    fn launch(&self, mut spec: Box<UnitSpec>) {
        let Some(r) = spec.resources.take() else {
            return self.0.submit(spec.unit.clone(), UnitCommand::Launch(spec));
        };
        self.0.state.borrow_mut().asked.insert(spec.unit.clone(), Vec::new());
        // The mapper takes R as text, and finds this rank's part of it.
        let r = serde_json::Value::from(r).to_string();
        let request = serde_json::json!({ "R": r }).to_string();
        let inner = Rc::downgrade(&self.0);
        self.0.futures.rpc("sdexec-mapper.lookup", None, &request, move |result| {
            if let Some(inner) = inner.upgrade() {
                inner.handle_mapped(spec, result);
            }
        });
    }
}

impl<U: Supervisor + 'static> Supervisor for Constrain<U> {
    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        if let Some(waiting) = self.0.state.borrow_mut().asked.get_mut(&unit) {
            return waiting.push(command);
        }
        match command {
            UnitCommand::Launch(spec) => self.launch(spec),
            command => self.0.submit(unit, command),
        }
    }
}

impl<U: Supervisor> Inner<U> {
    fn submit(&self, unit: UnitName, command: UnitCommand) {
        if command == UnitCommand::Forget {
            self.state.borrow_mut().expected.remove(&unit);
        }
        self.units.borrow_mut().submit(unit, command);
    }

    fn handle_mapped(&self, mut spec: Box<UnitSpec>, result: Result<String, RpcError>) {
        let unit = spec.unit.clone();
        let waiting = self.state.borrow_mut().asked.remove(&unit).unwrap_or_default();
        match result.and_then(|text| read_properties(&text)) {
            Ok(properties) => {
                spec.properties.extend(properties);
                if let Some(cpus) = spec.properties.get(ALLOWED_CPUS) {
                    self.state.borrow_mut().expected.insert(unit.clone(), cpus.clone());
                }
                self.submit(unit.clone(), UnitCommand::Launch(spec));
                waiting.into_iter().for_each(|command| self.submit(unit.clone(), command));
            }
            // What waits is for a unit that there will not be.
            Err(RpcError { errnum, message }) => {
                let message = format!("sdexec-mapper.lookup: {message}");
                (self.sink)(UnitEvent::Failed(StartFailure { errnum, message }).of(&unit));
                for command in waiting {
                    if let UnitCommand::Note(note) = command
                        && let Some(answer) = UnitEvent::of_note(&note, false)
                    {
                        (self.sink)(answer.of(&unit));
                    }
                }
            }
        }
    }

    /// Ends a shell. The node hears of it when nothing of it is left.
    fn refuse(&self, unit: UnitName, why: String) {
        let (signal, all) = match unit.is_multiuser() {
            true => (self.imp_kill_signal, false),
            false => (libc::SIGKILL, true),
        };
        self.state.borrow_mut().refused.insert(unit.clone(), why);
        for stream in [Stream::Stdout, Stream::Stderr] {
            // Nobody acknowledges its output, and what is not acknowledged holds up `Gone`.
            let ack = UnitCommand::OutputAck { stream, offset: u64::MAX, checkpointed: 0 };
            self.submit(unit.clone(), ack);
        }
        self.submit(unit.clone(), UnitCommand::Signal { signal, all });
        self.submit(unit, UnitCommand::Collect);
    }
}

/// The mapper's answer: names and values of unit properties.
fn read_properties(text: &str) -> Result<BTreeMap<String, String>, RpcError> {
    serde_json::from_str(text).map_err(|error| RpcError {
        errnum: libc::EPROTO,
        message: format!("expected an object of strings, got {text}: {error}"),
    })
}

/// Whether the cgroup of a process has just these CPUs.
///
/// # Errors
/// Says what it has. A process that has ended has no cgroup, and is no error.
fn check_cpus(pid: u32, cpus: &str) -> Result<(), String> {
    let Some(group) = cgroup2::group_of(pid) else { return Ok(()) };
    let hint = "(is cpuset controller delegated to the user instance?)";
    let mount = cgroup2::mount().map_err(|error| format!("AllowedCPUs: {error}"))?;
    let found = match std::fs::read_to_string(cgroup2::file(&mount, &group, "cpuset.cpus")) {
        Ok(text) => text.trim().to_string(),
        Err(_) if cgroup2::group_of(pid).is_none() => return Ok(()),
        Err(_) => return Err(format!("AllowedCPUs not enforced: cpuset.cpus unavailable {hint}")),
    };
    let set = |text: &str| {
        let error = |error| format!("AllowedCPUs: failed to parse cpuset {text:?}: {error}");
        text.parse::<Idset>().map_err(error)
    };
    if set(cpus)? == set(&found)? {
        return Ok(());
    }
    Err(format!("AllowedCPUs not enforced: expected {cpus} got {found} {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_other_cpus_is_told_from_one_that_has_ended() {
        // No process has this many CPUs, and no pid is as large.
        let error = check_cpus(std::process::id(), "0-65535").expect_err("other CPUs, or none");
        assert!(error.starts_with("AllowedCPUs"), "{error}");
        assert_eq!(check_cpus(u32::MAX, "0"), Ok(()));
    }

    #[test]
    fn what_the_mapper_says_is_read_strictly() {
        let read = read_properties(r#"{"AllowedCPUs": "0-3", "DevicePolicy": "closed"}"#);
        assert_eq!(read.expect("properties")["AllowedCPUs"], "0-3");
        let error = read_properties(r#"{"AllowedCPUs": 3}"#).expect_err("a number");
        assert!(error.message.contains("AllowedCPUs"), "{error}");
    }
}

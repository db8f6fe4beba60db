//! The supervisor of method `fork` in a real broker: children of the broker, through its `rexec`
//! service.
//!
//! The test binary runs itself again under `flux start`. Without Flux its one line of output says
//! so, and nothing is tested.

mod support;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write;
use std::process::{Command, Stdio};
use std::rc::Rc;

use job_exec_rs::adapter::libflux::{Futures, Handle, Rexec, Timer};
use job_exec_rs::port::supervisor::{Limits, Supervisor, SupervisorEvent, UnitCommand, UnitSpec};
use job_exec_rs::proto::{BrokerRank, InstanceId, JobId, UnitName};
use support::contract::{self, Program, Subject};

/// Set for the test binary that runs under `flux start`.
const INSIDE: &str = "JOB_EXEC_RS_FLUX_START";

/// Far longer than anything here takes, so only a hang reaches it.
const DEADLINE_SECONDS: f64 = 30.0;

/// Whether this process has a broker. The first one runs itself again with one, and ends.
fn has_broker() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let started = Command::new("flux")
        .args(["start", "-Slog-stderr-level=3"])
        .arg(std::env::current_exe().expect("the test binary has a path"))
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .stdout(Stdio::inherit())
        .status();
    match started {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => {
            // Not print!: what tests print is only shown when they fail.
            let _ = writeln!(std::io::stderr(), "skipped: flux: {error}");
            false
        }
    }
}

/// The supervisor, and the reactor that it runs in.
struct InBroker {
    handle: Handle,
    rexec: Rexec,
    events: Rc<RefCell<VecDeque<SupervisorEvent>>>,
}

impl InBroker {
    fn new() -> Self {
        let handle = Handle::connect().expect("a broker");
        let events: Rc<RefCell<VecDeque<SupervisorEvent>>> = Rc::default();
        let queue = Rc::clone(&events);
        let futures = Rc::new(Futures::new(handle));
        let sink = move |event| {
            queue.borrow_mut().push_back(event);
            // Whoever waits for it runs the reactor.
            handle.stop_reactor_with_error();
        };
        let rexec = Rexec::new(handle, futures, 0, Limits::default(), sink);
        Self { handle, rexec, events }
    }
}

impl Subject for InBroker {
    fn spec_of(&mut self, job: u64, program: Program) -> UnitSpec {
        let unit = UnitName::new(false, BrokerRank(0), JobId(job), InstanceId::new("/test", 1));
        let digest = format!("digest-of-{job}").as_str().into();
        support::program_spec(UnitSpec::bare(unit, digest), program)
    }

    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        self.rexec.submit(unit, command);
    }

    fn next(&mut self) -> SupervisorEvent {
        let handle = self.handle;
        let limit = Timer::new(handle, move || handle.stop_reactor_with_error()).expect("a timer");
        limit.set(Some(DEADLINE_SECONDS));
        if self.events.borrow().is_empty() {
            // An event stops it, and so does the limit.
            let _ = handle.run_reactor();
        }
        self.events.borrow_mut().pop_front().expect("an event within the limit")
    }
}

/// [supervisor-contract]
#[test]
fn children_of_a_broker_keep_the_contract() {
    if has_broker() {
        contract::check(&mut InBroker::new());
    }
}

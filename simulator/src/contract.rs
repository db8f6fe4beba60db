//! The simulated world's supervisor keeps the contract of all supervisors: its real core and
//! tracker, on the simulated disk and systemd.

use std::collections::VecDeque;

use job_exec_rs::port::supervisor::{SupervisorEvent, UnitCommand, UnitSpec};
use job_exec_rs::proto::{BrokerRank, JobId, UnitName, WaitStatus};
use job_exec_rs::supervisor::Grown;
use job_exec_rs::supervisor::tracker::Call;

use super::disk::SimDisk;
use super::rank::{Supervisor, instance};
use super::sample;
use super::systemd::{Act, SimSystemd};
use check::{Program, Subject, WRITTEN, check};

#[path = "../../tests/support/contract.rs"]
#[allow(unreachable_pub, reason = "it is of the tests of all supervisors")]
mod check;

/// One rank without a node. Nothing takes time.
struct Rank {
    disk: SimDisk,
    systemd: SimSystemd,
    connection: u64,
    supervisor: Supervisor,
    events: VecDeque<SupervisorEvent>,
}

impl Rank {
    fn new() -> Self {
        let (disk, mut systemd) = (SimDisk::default(), SimSystemd::default());
        let connection = systemd.connect().expect("systemd is there");
        let supervisor =
            Supervisor::new(&disk, 0, BrokerRank(0), connection, systemd.slices()).expect("a disk");
        let events = VecDeque::new();
        let mut rank = Self { disk, systemd, connection, supervisor, events };
        while rank.step() {}
        assert!(rank.supervisor.core.is_settled());
        rank
    }

    /// Delivers what is on its way. Returns whether there was anything.
    fn step(&mut self) -> bool {
        self.supervisor.pass_events();
        self.events.extend(self.supervisor.take_events());
        let asks = self.supervisor.backend.tracker.take_asks();
        for ask in &asks {
            let unit = if let Call::Start(unit) = &ask.call { Some(unit) } else { None };
            let spec = unit.and_then(|unit| self.supervisor.backend.specs.get(unit)).cloned();
            self.systemd.handle_ask(self.connection, ask, spec.as_ref());
        }
        let news = self.systemd.take_news();
        let acts = self.systemd.take_acts();
        let is_done = asks.is_empty() && news.is_empty() && acts.is_empty();
        for (_, news) in news {
            self.supervisor.backend.tracker.handle_news(news);
        }
        acts.into_iter().for_each(|act| self.act(act));
        !is_done
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Run(unit) => self.run(&unit),
            Act::Signal { unit, signal, .. } if self.systemd.lives(&unit) => {
                self.systemd.handle_exited(&unit, WaitStatus::signaled(signal), false);
            }
            Act::Later { connection, number } => self.systemd.handle_pause_over(connection, number),
            Act::Alarm { .. } | Act::Signal { .. } => (),
        }
    }

    fn run(&mut self, unit: &UnitName) {
        let argv = &self.supervisor.backend.specs[unit].argv;
        let is = |program| *argv == command(program);
        let (is_missing, writes) = (is(Program::Missing), is(Program::Writes));
        for extension in ["out", "err"] {
            self.disk.open_output(&format!("{}.{extension}", unit.stem()));
        }
        self.systemd.handle_forked(unit);
        if is_missing {
            return self.systemd.handle_exec_failed(unit, 203);
        }
        self.systemd.handle_executed(unit);
        if writes {
            let path = format!("/state/{}.out", unit.stem());
            assert_eq!(self.disk.write_output(path.as_ref(), &vec![b'x'; WRITTEN]), WRITTEN);
            let Supervisor { core, backend, .. } = &mut self.supervisor;
            core.handle_growth(&Grown::Any, backend);
            self.systemd.handle_exited(unit, WaitStatus(0), false);
        }
    }
}

fn command(program: Program) -> Vec<String> {
    vec![format!("{program:?}")]
}

impl Subject for Rank {
    fn spec_of(&mut self, job: u64, program: Program) -> UnitSpec {
        let unit = UnitName::new(false, BrokerRank(0), JobId(job), instance());
        UnitSpec { argv: command(program), ..sample::spec(unit) }
    }

    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        let Supervisor { core, backend, .. } = &mut self.supervisor;
        core.handle_command(&unit, command, backend);
    }

    fn next(&mut self) -> SupervisorEvent {
        while self.events.is_empty() {
            assert!(self.step() || !self.events.is_empty(), "nothing comes any more");
        }
        self.events.pop_front().expect("an event")
    }
}

/// [supervisor-contract]
#[test]
fn the_simulated_supervisor_keeps_the_contract() {
    check(&mut Rank::new());
}

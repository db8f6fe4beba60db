//! Where each machine of a job is, and what can happen to it there. The simulator and the tests of
//! the machines report what they have met. The service itself does not have this.

mod impossible;

use crate::machine::Now;
use crate::machine::agent::Agent;
use crate::machine::event::Event;
use crate::machine::input::{Input, Machine};
use crate::machine::leader::Leader;
use crate::machine::node::Node;
use crate::machine::schedule::Waiter;
use crate::port::supervisor::SupervisorEvent;
use crate::proto::peer::Question;
use crate::proto::{BrokerRank, JobId, Stage, UnitName};

/// The machines, each with its states. `none`: this rank does not have it for the job. `no-shell`:
/// the job has an agent here, and no shell. An agent has two scripts: a prolog and an epilog.
pub const STATES: [(Machine, &[&str]); 4] = [
    (Machine::Coordinator, &["none", "unasked", "asked", "present", "away"]),
    (Machine::Leader, &["none", "opening", "launching", "running", "exited", "moving", "ended"]),
    (
        Machine::Agent,
        &[
            "none",
            "no-shell",
            "waiting",
            "pending",
            "running",
            "exited",
            "lost",
            "failed",
            "never-started",
            "gone",
        ],
    ),
    (Machine::Script, &["none", "pending", "running", "stuck", "ended", "gone"]),
];

/// A machine in one of its states.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// Which machine.
    pub machine: Machine,
    /// One of its [`STATES`].
    pub state: &'static str,
}

/// A machine that gets an input in one of its states.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Pair {
    /// Which machine, in which state.
    pub position: Position,
    /// What it gets.
    pub input: Input,
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Position { machine, state } = self.position;
        write!(f, "{:12} {state:14} {:17}", machine.name(), self.input.name())
    }
}

/// Every pair of a machine's state and an input that can reach the machine.
pub fn all_pairs() -> impl Iterator<Item = Pair> {
    STATES.iter().flat_map(|(machine, states)| {
        states.iter().flat_map(move |state| {
            let position = Position { machine: *machine, state };
            let inputs = Input::ALL.iter().filter(move |input| input.machines().contains(machine));
            inputs.map(move |input| Pair { position, input: *input })
        })
    })
}

impl Node {
    /// The machines that will get an event, and where they are now.
    pub fn pairs(&self, now: Now, event: &Event) -> Vec<Pair> {
        let input = event.input();
        let at = |position| Pair { position, input };
        let of_script = |unit: &UnitName| vec![at(self.script_at(unit.job(), unit.stage()))];
        match event {
            Event::Checkpointed(_) => self.of_all_jobs(input),
            Event::Disconnected { request } if self.coordinator.has_asked(*request) => {
                self.of_all_jobs(input)
            }
            Event::Disconnected { request } if self.early.iter().any(|(to, _)| to == request) => {
                Vec::new()
            }
            // Each looks whether the request was its own.
            Event::Disconnected { .. } => {
                let leaders = self.leaders.keys().map(|id| self.leader_at(*id));
                leaders.chain(self.agents.keys().map(|id| self.agent_at(*id))).map(at).collect()
            }
            Event::Known { asked, .. } => {
                let positions = match asked.question {
                    Question::Leader { .. } => vec![self.leader_at(asked.id)],
                    Question::Manager => self.coordinator_at(asked.id).into_iter().collect(),
                    Question::Parent => vec![self.leader_at(asked.id), self.agent_at(asked.id)],
                    Question::Request { .. } => Vec::new(),
                };
                positions.into_iter().map(at).collect()
            }
            // The end of the stream, if that follows, is an input of its own.
            Event::KnownAnswered { question: Question::Request { .. }, .. } => Vec::new(),
            // It waits for the supervisor. It comes again when that is ready.
            Event::Lead { .. } if self.is_starting() => Vec::new(),
            Event::Timeout => {
                let due = self.schedule.due(now.mono).into_iter();
                due.flat_map(|waiter| self.waits(waiter)).collect()
            }
            Event::Supervisor(SupervisorEvent::Found(record)) if record.spec.unit.is_script() => {
                of_script(&record.spec.unit)
            }
            // It says nothing of the units that the agent has.
            Event::Supervisor(SupervisorEvent::Unit(unit, _)) if self.is_of_another_run(unit) => {
                Vec::new()
            }
            Event::Supervisor(SupervisorEvent::Unit(unit, _))
                if unit.is_script() && input.machines().contains(&Machine::Script) =>
            {
                of_script(unit)
            }
            event => {
                let owner = self.role_of(event);
                let hears = |position: &Position| {
                    let machine = position.machine;
                    let is_asker = owner.is_none_or(|role| machine == Machine::from(role));
                    input.machines().contains(&machine) && machine != Machine::Script && is_asker
                };
                let jobs = self.jobs_of(now, event).into_iter();
                jobs.flat_map(|id| self.positions(id)).filter(hears).map(at).collect()
            }
        }
    }

    /// The id was given to two jobs, as the KVS had gone back.
    fn is_of_another_run(&self, unit: &UnitName) -> bool {
        self.agents.get(&unit.job()).is_some_and(|agent| agent.has_another(unit))
    }

    /// Who is called when this waiter's time has come.
    fn waits(&self, waiter: Waiter) -> Vec<Pair> {
        let at = |position| Pair { position, input: Input::Timeout };
        match waiter {
            Waiter::Agent(id) => vec![at(self.agent_at(id))],
            Waiter::Checkpoint => self.of_all_jobs(Input::CheckpointDue),
            Waiter::Coordinator(id) => self.coordinator_at(id).map(at).into_iter().collect(),
            Waiter::Leader(id) => vec![at(self.leader_at(id))],
            Waiter::Ledger | Waiter::Stream(_) | Waiter::Systemd => Vec::new(),
        }
    }

    /// What concerns the checkpoint concerns every job that the coordinator has.
    fn of_all_jobs(&self, input: Input) -> Vec<Pair> {
        let jobs = self.coordinator.jobs().filter_map(|(id, ..)| self.coordinator_at(id));
        let mut pairs: Vec<Pair> = jobs.map(|position| Pair { position, input }).collect();
        if pairs.is_empty() && self.facts().rank == BrokerRank(0) {
            let position = Position { machine: Machine::Coordinator, state: "none" };
            pairs.push(Pair { position, input });
        }
        pairs
    }

    /// Where all machines of a job are.
    pub(in crate::machine) fn positions(&self, id: JobId) -> Vec<Position> {
        let scripts = [Stage::Prolog, Stage::Epilog].map(|stage| self.script_at(id, stage));
        let others = [self.leader_at(id), self.agent_at(id)].into_iter().chain(scripts);
        self.coordinator_at(id).into_iter().chain(others).collect()
    }

    /// Only rank 0 is asked to coordinate jobs.
    fn coordinator_at(&self, id: JobId) -> Option<Position> {
        let position =
            Position { machine: Machine::Coordinator, state: self.coordinator.state_name(id) };
        (self.facts().rank == BrokerRank(0)).then_some(position)
    }

    fn leader_at(&self, id: JobId) -> Position {
        let state = self.leaders.get(&id).map_or("none", Leader::state_name);
        Position { machine: Machine::Leader, state }
    }

    fn agent_at(&self, id: JobId) -> Position {
        let state = match self.agents.get(&id) {
            Some(agent) if agent.shell().is_none() => "no-shell",
            agent => agent.map_or("none", Agent::state_name),
        };
        Position { machine: Machine::Agent, state }
    }

    /// A script of the job's agent.
    fn script_at(&self, id: JobId, stage: Stage) -> Position {
        let state = self.agents.get(&id).map_or("none", |agent| agent.script_state_name(stage));
        Position { machine: Machine::Script, state }
    }
}

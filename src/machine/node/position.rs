//! Where each role of a job is, and what can happen to it there: for reports on what was met.

use crate::machine::Now;
use crate::machine::agent::Agent;
use crate::machine::event::{Event, KvsResult, Role};
use crate::machine::leader::Leader;
use crate::machine::node::Node;
use crate::machine::schedule::Waiter;
use crate::port::supervisor::UnitEvent;
use crate::proto::peer::Question;
use crate::proto::{BrokerRank, JobId, Stage};

const COORDINATOR: &str = "coordinator";
const LEADER: &str = "leader";
const AGENT: &str = "agent";
const SCRIPT: &str = "script";

/// The roles, each with its states. `none`: this rank does not have the role for the job.
/// `no-shell`: the job has an agent here, and no shell. An agent has two scripts: a prolog and an
/// epilog.
pub const ROLES: [(&str, &[&str]); 4] = [
    (COORDINATOR, &["none", "unasked", "asked", "present", "away"]),
    (LEADER, &["none", "opening", "launching", "running", "exited", "moving", "ended"]),
    (
        AGENT,
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
    (SCRIPT, &["none", "pending", "running", "stuck", "ended", "gone"]),
];

/// A role in one of its states.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// One of [`ROLES`].
    pub role: &'static str,
    /// One of its states.
    pub state: &'static str,
}

/// A role that gets an input in one of its states.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Pair {
    /// Which role, in which state.
    pub position: Position,
    /// What it gets.
    pub input: Input,
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Position { role, state } = self.position;
        write!(f, "{role:12} {state:14} {:17}", self.input.name())
    }
}

/// Declares the inputs, each with its name in reports and the roles that it can reach.
macro_rules! inputs {
    ($($input:ident $name:literal [$($role:ident)*])*) => {
        /// What can happen to a role: an event, or one of its kinds.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Input {
            $(#[doc = $name] $input,)*
        }

        impl Input {
            /// Every input.
            pub const ALL: &'static [Self] = &[$(Self::$input),*];

            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$input => $name,)*
                }
            }

            /// The roles that it can reach. The node itself handles an input without any.
            pub fn roles(self) -> &'static [&'static str] {
                match self {
                    $(Self::$input => &[$($role),*],)*
                }
            }
        }
    };
}

inputs! {
    Answers "answers" []
    Appended "appended" [LEADER]
    CheckpointAsked "checkpoint-asked" [COORDINATOR]
    CheckpointBegun "checkpoint-begun" []
    CheckpointDue "checkpoint-due" [COORDINATOR]
    Checkpointed "checkpointed" [COORDINATOR]
    Cleaning "cleaning" [COORDINATOR]
    Config "config" []
    Covered "covered" [LEADER]
    Created "created" [LEADER]
    CriticalRanks "critical-ranks" [AGENT]
    Degraded "degraded" [AGENT]
    Disconnected "disconnected" [COORDINATOR LEADER AGENT]
    Exception "exception" [COORDINATOR LEADER AGENT]
    Exited "exited" [AGENT SCRIPT]
    Expiration "expiration" [COORDINATOR LEADER]
    Failed "failed" [AGENT SCRIPT]
    Found "found" [AGENT SCRIPT]
    Gone "gone" [AGENT SCRIPT]
    Held "held" [COORDINATOR]
    KeepCommits "keep-commits" [AGENT]
    Kept "kept" [AGENT]
    KillAnswered "kill-answered" [LEADER]
    Known "known" [COORDINATOR LEADER AGENT]
    KnownAnswered "known-answered" [LEADER AGENT]
    KvsChanged "kvs-changed" []
    Lead "lead" [LEADER]
    Left "left" [AGENT SCRIPT]
    Linked "linked" [LEADER]
    Lost "lost" [AGENT SCRIPT]
    Marked "marked" [AGENT SCRIPT]
    Moved "moved" [LEADER]
    NeverStarted "never-started" [AGENT SCRIPT]
    NotCleaning "not-cleaning" []
    Opened "opened" [LEADER]
    Order "order" [AGENT]
    Output "output" [AGENT SCRIPT]
    OutputLost "output-lost" [AGENT SCRIPT]
    OutputOverflow "output-overflow" [AGENT SCRIPT]
    OutputTruncated "output-truncated" [AGENT SCRIPT]
    Override "override" [LEADER]
    Parked "parked" [AGENT]
    ParentDegraded "parent-degraded" []
    PerilogRelease "perilog-release" [LEADER]
    Ready "ready" []
    Recommitted "recommitted" [AGENT]
    ReleaseKept "release-kept" []
    Released "released" [COORDINATOR]
    Replied "replied" [COORDINATOR]
    Reported "reported" [LEADER AGENT]
    Resources "resources" []
    RunningAsked "running-asked" []
    ShellBarrier "shell-barrier" [AGENT]
    ShellRuns "shell-runs" [AGENT]
    Shells "shells" [AGENT]
    Silent "silent" []
    Start "start" [COORDINATOR]
    Started "started" [AGENT SCRIPT]
    Stopping "stopping" [AGENT SCRIPT]
    Timeout "timeout" [COORDINATOR LEADER AGENT]
    Told "told" [COORDINATOR LEADER]
    Unreadable "unreadable" []
    Unusable "unusable" []
}

impl Event {
    /// Which input it is.
    pub fn input(&self) -> Input {
        match self {
            Self::CheckpointAsked { .. } => Input::CheckpointAsked,
            Self::CheckpointBegun => Input::CheckpointBegun,
            Self::Checkpointed(_) => Input::Checkpointed,
            Self::Cleaning(_) => Input::Cleaning,
            Self::Config(_) => Input::Config,
            Self::Covered(_) => Input::Covered,
            Self::CriticalRanks { .. } => Input::CriticalRanks,
            Self::Degraded { .. } => Input::Degraded,
            Self::Disconnected { .. } => Input::Disconnected,
            Self::Exception(_) => Input::Exception,
            Self::Expiration { .. } => Input::Expiration,
            Self::Held { .. } => Input::Held,
            Self::KeepCommits { .. } => Input::KeepCommits,
            Self::KillAnswered { .. } => Input::KillAnswered,
            Self::Known { .. } => Input::Known,
            Self::KnownAnswered { .. } => Input::KnownAnswered,
            Self::Kvs { result: KvsResult::Appended(_), .. } => Input::Appended,
            Self::Kvs { result: KvsResult::Created(_), .. } => Input::Created,
            Self::Kvs { result: KvsResult::Linked(_), .. } => Input::Linked,
            Self::Kvs { result: KvsResult::Moved(_), .. } => Input::Moved,
            Self::Kvs { result: KvsResult::Opened(_), .. } => Input::Opened,
            Self::Kvs { result: KvsResult::Recommitted { .. }, .. } => Input::Recommitted,
            Self::Kvs { result: KvsResult::Released(_), .. } => Input::Released,
            Self::KvsChanged => Input::KvsChanged,
            Self::Lead { .. } => Input::Lead,
            Self::NotCleaning { .. } => Input::NotCleaning,
            Self::Order(_) => Input::Order,
            Self::Override { .. } => Input::Override,
            Self::ParentDegraded { .. } => Input::ParentDegraded,
            Self::Parked { .. } => Input::Parked,
            Self::PerilogRelease { .. } => Input::PerilogRelease,
            Self::ReleaseKept { .. } => Input::ReleaseKept,
            Self::Replied { .. } => Input::Replied,
            Self::Reported { .. } => Input::Reported,
            Self::Resources(_) => Input::Resources,
            Self::RunningAsked(_) => Input::RunningAsked,
            Self::ShellBarrier { .. } => Input::ShellBarrier,
            Self::ShellRuns { .. } => Input::ShellRuns,
            Self::Shells { .. } => Input::Shells,
            Self::Start { .. } => Input::Start,
            Self::Timeout => Input::Timeout,
            Self::Told { .. } => Input::Told,
            Self::Unit(UnitEvent::Answers) => Input::Answers,
            Self::Unit(UnitEvent::Exited { .. }) => Input::Exited,
            Self::Unit(UnitEvent::Failed { .. }) => Input::Failed,
            Self::Unit(UnitEvent::Found(_)) => Input::Found,
            Self::Unit(UnitEvent::Gone { .. }) => Input::Gone,
            Self::Unit(UnitEvent::Kept { .. }) => Input::Kept,
            Self::Unit(UnitEvent::Left { .. }) => Input::Left,
            Self::Unit(UnitEvent::Lost { .. }) => Input::Lost,
            Self::Unit(UnitEvent::Marked { .. }) => Input::Marked,
            Self::Unit(UnitEvent::NeverStarted { .. }) => Input::NeverStarted,
            Self::Unit(UnitEvent::Output { .. }) => Input::Output,
            Self::Unit(UnitEvent::OutputLost { .. }) => Input::OutputLost,
            Self::Unit(UnitEvent::OutputOverflow { .. }) => Input::OutputOverflow,
            Self::Unit(UnitEvent::OutputTruncated { .. }) => Input::OutputTruncated,
            Self::Unit(UnitEvent::Ready { .. }) => Input::Ready,
            Self::Unit(UnitEvent::Silent { .. }) => Input::Silent,
            Self::Unit(UnitEvent::Started { .. }) => Input::Started,
            Self::Unit(UnitEvent::Stopping { .. }) => Input::Stopping,
            Self::Unit(UnitEvent::Unreadable { .. }) => Input::Unreadable,
            Self::Unit(UnitEvent::Unusable { .. }) => Input::Unusable,
        }
    }
}

/// Every pair of a role's state and an input that can reach the role.
pub fn all_pairs() -> impl Iterator<Item = Pair> {
    ROLES.iter().flat_map(|(role, states)| {
        states.iter().flat_map(move |state| {
            let position = Position { role, state };
            let inputs = Input::ALL.iter().filter(move |input| input.roles().contains(role));
            inputs.map(move |input| Pair { position, input: *input })
        })
    })
}

impl Node {
    /// The roles that will get an event, and where they are now.
    pub fn pairs(&self, now: Now, event: &Event) -> Vec<Pair> {
        let input = event.input();
        let at = |position| Pair { position, input };
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
            Event::Timeout => self.due(now).into_iter().flat_map(|w| self.waits(w)).collect(),
            Event::Unit(event)
                if input.roles().contains(&SCRIPT)
                    && let Some(unit) = event.unit().filter(|unit| unit.is_script()) =>
            {
                vec![at(self.script_at(unit.job(), unit.stage()))]
            }
            event => {
                let owner = self.role_of(event);
                let hears = |position: &Position| {
                    let is_told = input.roles().contains(&position.role);
                    is_told && position.role != SCRIPT && owns(owner, position.role)
                };
                let jobs = self.jobs_of(now, event).into_iter();
                jobs.flat_map(|id| self.positions(id)).filter(hears).map(at).collect()
            }
        }
    }

    /// Who is called when this waiter's time has come.
    fn waits(&self, waiter: Waiter) -> Vec<Pair> {
        let at = |position| Pair { position, input: Input::Timeout };
        match waiter {
            Waiter::Agent(id) => vec![at(self.agent_at(id))],
            Waiter::Checkpoint => self.of_all_jobs(Input::CheckpointDue),
            Waiter::Coordinator(id) => self.coordinator_at(id).map(at).into_iter().collect(),
            Waiter::Leader(id) => vec![at(self.leader_at(id))],
            Waiter::Stream(_) | Waiter::Systemd => Vec::new(),
        }
    }

    /// What concerns the checkpoint concerns every job that the coordinator has.
    fn of_all_jobs(&self, input: Input) -> Vec<Pair> {
        let jobs = self.coordinator.jobs().filter_map(|(id, _)| self.coordinator_at(id));
        let mut pairs: Vec<Pair> = jobs.map(|position| Pair { position, input }).collect();
        if pairs.is_empty() && self.facts().rank == BrokerRank(0) {
            let position = Position { role: COORDINATOR, state: "none" };
            pairs.push(Pair { position, input });
        }
        pairs
    }

    /// Where all roles of a job are.
    pub(in crate::machine) fn positions(&self, id: JobId) -> Vec<Position> {
        let scripts = [Stage::Prolog, Stage::Epilog].map(|stage| self.script_at(id, stage));
        let others = [self.leader_at(id), self.agent_at(id)].into_iter().chain(scripts);
        self.coordinator_at(id).into_iter().chain(others).collect()
    }

    /// Only rank 0 is asked to coordinate jobs.
    fn coordinator_at(&self, id: JobId) -> Option<Position> {
        let position = Position { role: COORDINATOR, state: self.coordinator.state_name(id) };
        (self.facts().rank == BrokerRank(0)).then_some(position)
    }

    fn leader_at(&self, id: JobId) -> Position {
        let state = self.leaders.get(&id).map_or("none", Leader::state_name);
        Position { role: LEADER, state }
    }

    fn agent_at(&self, id: JobId) -> Position {
        let state = match self.agents.get(&id) {
            Some(agent) if agent.shell().is_none() => "no-shell",
            agent => agent.map_or("none", Agent::state_name),
        };
        Position { role: AGENT, state }
    }

    /// A script of the job's agent.
    fn script_at(&self, id: JobId, stage: Stage) -> Position {
        let state = self.agents.get(&id).map_or("none", |agent| agent.script_state_name(stage));
        Position { role: SCRIPT, state }
    }

    /// What is still kept for jobs; empty when they are all over.
    pub fn left_over(&self) -> String {
        let list = |role: &str, ids: Vec<JobId>| {
            let ids: Vec<String> = ids.iter().map(JobId::to_string).collect();
            (!ids.is_empty()).then(|| format!("{role} {}", ids.join(",")))
        };
        [
            list(COORDINATOR, self.coordinator.jobs().map(|(id, _)| id).collect()),
            list(LEADER, self.leaders.keys().copied().collect()),
            list(AGENT, self.agents.keys().copied().collect()),
            (!self.routes.is_empty()).then(|| format!("{} streams", self.routes.len())),
            (!self.held.is_empty()).then(|| format!("{} requests", self.held.len())),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<String>>()
        .join(", ")
    }
}

/// Whether an event about somebody's stream or question is for this role.
fn owns(owner: Option<Role>, role: &str) -> bool {
    match owner {
        Some(Role::Agent) => role == AGENT,
        Some(Role::Coordinator) => role == COORDINATOR,
        Some(Role::Leader) => role == LEADER,
        None => true,
    }
}

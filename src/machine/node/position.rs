//! Where each role of a job is, and what an event is called: for reports on what was met where.

use crate::machine::Now;
use crate::machine::agent::Agent;
use crate::machine::event::Role;
use crate::machine::event::{Event, KvsResult};
use crate::machine::leader::Leader;
use crate::machine::node::Node;
use crate::machine::schedule::Waiter;
use crate::port::supervisor::UnitEvent;
use crate::proto::JobId;

/// A role in one of its states.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// `coordinator`, `leader` or `agent`.
    pub role: &'static str,
    /// `none` if this rank has the role for no such job.
    pub state: &'static str,
}

/// A role, its states, and the inputs that can reach it in each.
type RoleTable = (&'static str, &'static [&'static str], &'static [&'static str]);

/// All that can be met where.
pub const ROLES: [RoleTable; 3] = [
    (
        "coordinator",
        &["none", "asked", "present", "away"],
        &["start", "replied", "exception", "expiration", "timeout"],
    ),
    (
        "leader",
        &["none", "opening", "launching", "running", "exited", "moving", "ended"],
        &[
            "lead",
            "covered",
            "created",
            "opened",
            "linked",
            "appended",
            "finished",
            "reported",
            "exception",
            "expiration",
            "disconnected",
            "known-answered",
            "timeout",
        ],
    ),
    (
        "agent",
        &["none", "pending", "running", "exited", "failed", "never-started", "lost", "gone"],
        &[
            "shells",
            "order",
            "reported",
            "shell-barrier",
            "parked",
            "critical-ranks",
            "disconnected",
            "known-answered",
            "found",
            "started",
            "output",
            "exited",
            "failed",
            "left",
            "lost",
            "never-started",
            "gone",
            "timeout",
        ],
    ),
];

impl Event {
    /// What the event is called in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CheckpointAsked { .. } => "checkpoint-asked",
            Self::Checkpointed(_) => "checkpointed",
            Self::Config(_) => "config",
            Self::Covered(_) => "covered",
            Self::CriticalRanks { .. } => "critical-ranks",
            Self::Disconnected { .. } => "disconnected",
            Self::Exception(_) => "exception",
            Self::Expiration { .. } => "expiration",
            Self::Known { .. } => "known",
            Self::KnownAnswered { .. } => "known-answered",
            Self::Kvs { result: KvsResult::Appended(_), .. } => "appended",
            Self::Kvs { result: KvsResult::Created(_), .. } => "created",
            Self::Kvs { result: KvsResult::Finished(_), .. } => "finished",
            Self::Kvs { result: KvsResult::Linked(_), .. } => "linked",
            Self::Kvs { result: KvsResult::Opened(_), .. } => "opened",
            Self::Lead { .. } => "lead",
            Self::Order(_) => "order",
            Self::Parked { .. } => "parked",
            Self::Replied { .. } => "replied",
            Self::Reported { .. } => "reported",
            Self::ShellBarrier { .. } => "shell-barrier",
            Self::Shells { .. } => "shells",
            Self::Start { .. } => "start",
            Self::Timeout => "timeout",
            Self::Unit(UnitEvent::Exited { .. }) => "exited",
            Self::Unit(UnitEvent::Failed { .. }) => "failed",
            Self::Unit(UnitEvent::Found(_)) => "found",
            Self::Unit(UnitEvent::Gone { .. }) => "gone",
            Self::Unit(UnitEvent::Left { .. }) => "left",
            Self::Unit(UnitEvent::Lost { .. }) => "lost",
            Self::Unit(UnitEvent::NeverStarted { .. }) => "never-started",
            Self::Unit(UnitEvent::Output { .. }) => "output",
            Self::Unit(UnitEvent::OutputOverflow { .. }) => "output-overflow",
            Self::Unit(UnitEvent::OutputTruncated { .. }) => "output-truncated",
            Self::Unit(UnitEvent::Ready { .. }) => "ready",
            Self::Unit(UnitEvent::Started { .. }) => "started",
            Self::Unit(UnitEvent::Stopping { .. }) => "stopping",
            Self::Unit(UnitEvent::Unusable { .. }) => "unusable",
        }
    }
}

impl Node {
    /// Where the roles are that an event is for.
    pub fn positions(&self, now: Now, event: &Event) -> Vec<Position> {
        if let Event::Timeout = event {
            return self.due(now).into_iter().filter_map(|waiter| self.position(waiter)).collect();
        }
        let name = event.name();
        let owner = self.role_of(event);
        let mut positions = Vec::new();
        for id in self.jobs_of(now, event) {
            let waiters = [Waiter::Coordinator(id), Waiter::Leader(id), Waiter::Agent(id)];
            for waiter in waiters {
                let position = self.position(waiter);
                let fits = position.is_some_and(|position| hears(position.role, name, owner));
                positions.extend(position.filter(|_| fits));
            }
        }
        positions
    }

    fn position(&self, waiter: Waiter) -> Option<Position> {
        Some(match waiter {
            Waiter::Agent(id) => Position {
                role: "agent",
                state: self.agents.get(&id).map_or("none", Agent::state_name),
            },
            Waiter::Checkpoint => return None,
            Waiter::Coordinator(id) => {
                Position { role: "coordinator", state: self.coordinator.state_name(id) }
            }
            Waiter::Leader(id) => Position {
                role: "leader",
                state: self.leaders.get(&id).map_or("none", Leader::state_name),
            },
        })
    }

    /// What is still kept for jobs; empty when they are all over.
    pub fn left_over(&self) -> String {
        let list = |role: &str, ids: Vec<JobId>| {
            let ids: Vec<String> = ids.iter().map(JobId::to_string).collect();
            (!ids.is_empty()).then(|| format!("{role} {}", ids.join(",")))
        };
        [
            list("coordinator", self.coordinator.jobs().map(|(id, _)| id).collect()),
            list("leader", self.leaders.keys().copied().collect()),
            list("agent", self.agents.keys().copied().collect()),
            (self.routes() > 0).then(|| format!("{} streams", self.routes())),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<String>>()
        .join(", ")
    }
}

fn hears(role: &str, event: &str, owner: Option<Role>) -> bool {
    let of_role = match owner {
        Some(Role::Agent) => role == "agent",
        Some(Role::Leader) => role == "leader",
        None => true,
    };
    let mut tables = ROLES.iter().filter(|(name, ..)| *name == role);
    of_role && tables.any(|(_, _, inputs)| inputs.contains(&event))
}

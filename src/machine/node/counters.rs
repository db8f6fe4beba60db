//! How many messages each role has exchanged.

use serde_json::{Value, json};

use crate::machine::effect::{Answer, Effect, KvsOp, StreamItem};
use crate::machine::event::{Event, KvsResult, Role};
use crate::port::supervisor::UnitCommand;
use crate::proto::peer::Question;

/// Messages that left or reached this rank, by role. Two roles of one rank exchange none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::machine) struct Counters {
    coordinator_received: u64,
    coordinator_sent: u64,
    leader_received: u64,
    leader_sent: u64,
    agent_received: u64,
    agent_sent: u64,
    units_started: u64,
}

impl Counters {
    /// Counts an event from outside. `role` is whose stream or question it answers.
    pub(in crate::machine) fn count_event(&mut self, event: &Event, role: Option<Role>) {
        match event {
            // A child asks its parent, not the coordinator.
            Event::Known { asked, .. } if asked.question != Question::Manager => {
                self.agent_received += 1
            }
            Event::CheckpointAsked { .. }
            | Event::Checkpointed(_)
            | Event::Cleaning(_)
            | Event::Expiration { .. }
            | Event::Held { .. }
            | Event::Known { .. }
            | Event::KvsChanged
            | Event::NotCleaning { .. }
            | Event::ParentDegraded { .. }
            | Event::Resources(_)
            | Event::Told { asker: Role::Coordinator, .. }
            | Event::Kvs { result: KvsResult::Released(_), .. }
            | Event::ReleaseKept { .. }
            | Event::Replied { .. }
            | Event::RunningAsked(_)
            | Event::Start { .. } => self.coordinator_received += 1,
            Event::Kvs { result: KvsResult::Recommitted { .. }, .. } => self.agent_received += 1,
            Event::Covered(_)
            | Event::Lead { .. }
            | Event::Kvs { .. }
            | Event::Override { .. }
            | Event::PerilogRelease { .. }
            | Event::Told { .. } => self.leader_received += 1,
            Event::Reported { .. } => match role {
                Some(Role::Agent) => self.agent_received += 1,
                Some(Role::Coordinator | Role::Leader) | None => self.leader_received += 1,
            },
            Event::KnownAnswered { asker: Role::Coordinator, .. } => self.coordinator_received += 1,
            Event::KillAnswered { .. } | Event::KnownAnswered { asker: Role::Leader, .. } => {
                self.leader_received += 1;
            }
            Event::CriticalRanks { .. }
            | Event::Degraded { .. }
            | Event::KeepCommits { .. }
            | Event::KnownAnswered { .. }
            | Event::Order(_)
            | Event::ShellBarrier { .. }
            | Event::ShellRuns { .. }
            | Event::Shells { .. } => self.agent_received += 1,
            Event::CheckpointBegun
            | Event::Config(_)
            | Event::Disconnected { .. }
            | Event::Exception(_)
            | Event::Parked { .. }
            | Event::Timeout
            | Event::Unit(_) => (),
        }
    }

    pub(in crate::machine) fn count_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Answer { answer: Answer::Known(_), .. }
            | Effect::AwaitRelease { .. }
            | Effect::Checkpoint { .. }
            | Effect::Cover { .. }
            | Effect::Hold { .. }
            | Effect::Kvs { op: KvsOp::Released, .. }
            | Effect::Known { asker: Role::Coordinator, .. }
            | Effect::Lead { .. }
            | Effect::Pass { .. }
            | Effect::Post { .. }
            | Effect::Tell { asker: Role::Coordinator, .. }
            | Effect::Stream { item: StreamItem::Response { .. }, .. } => {
                self.coordinator_sent += 1;
            }
            Effect::Raise { .. }
            | Effect::Stream { item: StreamItem::Reply(_), .. }
            | Effect::Kvs { .. }
            | Effect::KillJob { .. }
            | Effect::LostShell { .. }
            | Effect::Drain { .. }
            | Effect::Known { asker: Role::Leader, .. }
            | Effect::Tell { .. }
            | Effect::Shells { role: Role::Leader, .. } => self.leader_sent += 1,
            Effect::Stream { item: StreamItem::Reports(_), .. }
            | Effect::Answer { answer: Answer::Barrier(_), .. }
            | Effect::Known { asker: Role::Agent, .. }
            | Effect::Shells { role: Role::Agent | Role::Coordinator, .. }
            | Effect::Order { .. } => self.agent_sent += 1,
            Effect::Unit(UnitCommand::Launch(_)) => {
                self.units_started += 1;
            }
            Effect::Answer { .. }
            | Effect::Drop { .. }
            | Effect::Log { .. }
            | Effect::Park { .. }
            | Effect::Unit(_) => (),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "coordinator": {"received": self.coordinator_received, "sent": self.coordinator_sent},
            "leader": {"received": self.leader_received, "sent": self.leader_sent},
            "agent": {"received": self.agent_received, "sent": self.agent_sent,
                      "units_started": self.units_started},
        })
    }
}

//! How many messages each role has exchanged.

use serde_json::{Value, json};

use crate::machine::effect::{Answer, Effect, KvsOp, StreamItem};
use crate::machine::event::{Event, Role};
use crate::machine::input::Recipient;
use crate::port::supervisor::UnitCommand;

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
    /// Counts an event from outside. `asker` is whose stream or question it is about.
    pub(in crate::machine) fn count_event(&mut self, event: &Event, asker: Option<Role>) {
        let role = match event.input().recipient() {
            Recipient::Asker => asker,
            Recipient::Nobody => None,
            Recipient::Role(role) => Some(role),
        };
        match role {
            Some(Role::Agent) => self.agent_received += 1,
            Some(Role::Coordinator) => self.coordinator_received += 1,
            Some(Role::Leader) => self.leader_received += 1,
            None => (),
        }
    }

    pub(in crate::machine) fn count_effect(&mut self, effect: &Effect) {
        let role = match effect {
            Effect::Answer { answer: Answer::Peer(_), .. }
            | Effect::AwaitRelease { .. }
            | Effect::Checkpoint { .. }
            | Effect::Hold { .. }
            | Effect::Kvs { op: KvsOp::Released, .. }
            | Effect::Pass { .. }
            | Effect::Post { .. }
            | Effect::Stream { item: StreamItem::Response { .. }, .. } => Role::Coordinator,
            Effect::Raise { .. }
            | Effect::Stream { item: StreamItem::Reply(_), .. }
            | Effect::Kvs { .. }
            | Effect::KillJob { .. }
            | Effect::LostShell { .. }
            | Effect::Drain { .. } => Role::Leader,
            Effect::Stream { item: StreamItem::Reports(_), .. }
            | Effect::Answer { answer: Answer::Barrier(_), .. } => Role::Agent,
            Effect::Send { request, .. } => request.sender(),
            Effect::Tell { asker, .. } => *asker,
            Effect::Unit(_, UnitCommand::Launch(_)) => {
                self.units_started += 1;
                return;
            }
            Effect::Answer { .. }
            | Effect::Drop { .. }
            | Effect::Log { .. }
            | Effect::Park { .. }
            | Effect::Unit(..) => return,
        };
        match role {
            Role::Agent => self.agent_sent += 1,
            Role::Coordinator => self.coordinator_sent += 1,
            Role::Leader => self.leader_sent += 1,
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

//! What `stats-get` shows: upstream's keys, and how many messages each role exchanged.

use serde_json::{Map, Value, json};

use crate::machine::effect::{Answer, Effect, Role, StreamItem};
use crate::machine::event::Event;
use crate::machine::node::{Node, SupervisorState};
use crate::port::supervisor::Method;
use crate::proto::peer::Question;

/// Messages that left or reached this rank, by role. What two roles of one rank say to each
/// other is no message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    coordinator_received: u64,
    coordinator_sent: u64,
    leader_received: u64,
    leader_sent: u64,
    agent_received: u64,
    agent_sent: u64,
    units_started: u64,
}

impl Counters {
    /// An event from outside; `owner` is whose stream it answers, if it does.
    pub(super) fn count_event(&mut self, event: &Event, owner: Option<Role>) {
        match event {
            // A child asks its parent, not the coordinator.
            Event::Known { asked, .. } if asked.question != Question::Manager => {
                self.agent_received += 1
            }
            Event::CheckpointAsked { .. }
            | Event::Checkpointed(_)
            | Event::Expiration { .. }
            | Event::Known { .. }
            | Event::Replied { .. }
            | Event::Start { .. } => self.coordinator_received += 1,
            Event::Covered(_) | Event::Lead { .. } | Event::Kvs { .. } => self.leader_received += 1,
            Event::Reported { .. } => match owner {
                Some(Role::Agent) => self.agent_received += 1,
                Some(Role::Leader) | None => self.leader_received += 1,
            },
            Event::KnownAnswered { asker: Role::Leader, .. } => self.leader_received += 1,
            Event::CriticalRanks { .. }
            | Event::KnownAnswered { .. }
            | Event::Order(_)
            | Event::ShellBarrier { .. }
            | Event::Shells { .. } => self.agent_received += 1,
            Event::Config(_)
            | Event::Disconnected { .. }
            | Event::Exception(_)
            | Event::Parked { .. }
            | Event::Timeout
            | Event::Unit(_) => (),
        }
    }

    pub(super) fn count_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Answer { answer: Answer::Known(_), .. }
            | Effect::Checkpoint { .. }
            | Effect::Cover { .. }
            | Effect::Expire { .. }
            | Effect::Lead { .. }
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
            | Effect::Shells { role: Role::Leader, .. } => self.leader_sent += 1,
            Effect::Stream { item: StreamItem::Reports(_), .. }
            | Effect::Answer { answer: Answer::Barrier(_), .. }
            | Effect::Known { asker: Role::Agent, .. }
            | Effect::Shells { role: Role::Agent, .. }
            | Effect::Order { .. } => self.agent_sent += 1,
            Effect::Unit(crate::port::supervisor::UnitCommand::Launch(_)) => {
                self.units_started += 1;
            }
            Effect::Answer { .. }
            | Effect::Drop { .. }
            | Effect::Log { .. }
            | Effect::Park { .. }
            | Effect::Unit(_) => (),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "coordinator": {"received": self.coordinator_received, "sent": self.coordinator_sent},
            "leader": {"received": self.leader_received, "sent": self.leader_sent},
            "agent": {"received": self.agent_received, "sent": self.agent_sent,
                      "units_started": self.units_started},
        })
    }
}

impl Node {
    /// The answer to `stats-get`.
    pub fn stats(&self) -> Value {
        let config = self.config();
        let mut jobs = Map::new();
        for (id, leader) in &self.leaders {
            jobs.insert(id.to_string(), leader.stats(self.config(), self.supervisor));
        }
        let coordinated: Map<String, Value> = self
            .coordinator
            .jobs()
            .map(|(id, leader)| (id.to_string(), json!({ "leader": leader })))
            .collect();
        let shells: Map<String, Value> = self
            .agents
            .iter()
            .filter_map(|(id, agent)| Some((id, agent.shell()?)))
            .map(|(id, shell)| {
                (id.to_string(), json!({ "unit": shell.unit(), "pid": shell.pid() }))
            })
            .collect();
        json!({
            "method": method_name(self.supervisor),
            "notice": self.notice,
            "connector": if self.facts().no_connector.is_some() { "local" } else { "resume" },
            "connector-notice": self.facts().no_connector,
            "kill-timeout": config.kill_timeout,
            "term-signal": config.term_signal.to_string(),
            "kill-signal": config.kill_signal.to_string(),
            "max-kill-count": config.max_kill_count,
            "max-kill-timeout": config.max_kill_timeout.unwrap_or(-1.0),
            "effective-max-kill-timeout": config.effective_max_kill_timeout(),
            "jobs": jobs,
            "coordinated": coordinated,
            "shells": shells,
            "counters": self.counters.to_json(),
            "config": config.stats(&self.facts().job_shell),
        })
    }
}

pub(super) fn method_name(supervisor: SupervisorState) -> &'static str {
    match supervisor {
        SupervisorState::Ready(Method::Systemd) => "systemd",
        SupervisorState::Ready(Method::Fork) => "fork",
        SupervisorState::Starting | SupervisorState::Unusable => "none",
    }
}

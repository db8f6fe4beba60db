//! What `stats-get` shows: flux-core's keys, and how many messages each role exchanged.

use serde_json::{Map, Value, json};

use super::Node;
use crate::machine::context::Now;
use crate::proto::JobId;

impl Node {
    /// The answer to `stats-get`.
    pub fn stats(&self, now: Now) -> Value {
        let config = self.config();
        let mut jobs = Map::new();
        for (id, leader) in &self.leaders {
            jobs.insert(id.to_string(), leader.stats(self.config()));
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
        let scripts: Map<String, Value> = self
            .agents
            .iter()
            .map(|(id, agent)| (id.to_string(), agent.script_stats(now)))
            .filter(|(_, scripts)| scripts.as_array().is_some_and(|all| !all.is_empty()))
            .collect();
        json!({
            "release": env!("CARGO_PKG_VERSION"),
            "protocol": crate::proto::peer::VERSION,
            "records": self.facts().directory,
            "method": config.implementation,
            "launcher": self.supervisor.launcher(),
            "notice": self.notice,
            "keeps-jobs": self.keeps_jobs(),
            "waits-for": self.silent.values().next().map(|silent| &silent.what),
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
            "scripts": scripts,
            "counters": self.counters.to_json(),
            "config": config.stats(&self.facts().job_shell),
        })
    }

    /// A stop of the instance is to leave its jobs running: this rank's shells outlive its broker,
    /// which comes back.
    fn keeps_jobs(&self) -> bool {
        let outlive = self.supervisor.launcher() == "systemd" && self.facts().has_connector();
        outlive && self.facts().brokers_return && self.config().keep_jobs
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
            (!self.routes.is_empty()).then(|| format!("{} streams", self.routes.len())),
            (!self.held.is_empty()).then(|| format!("{} requests", self.held.len())),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<String>>()
        .join(", ")
    }
}

//! What `stats-get` shows: flux-core's keys, and ours.

use serde_json::{Map, Value, json};

use super::Node;
use crate::machine::context::Now;
use crate::machine::event::Credential;
use crate::proto::JobId;

impl Node {
    /// The answer to `stats-get`.
    pub fn stats(&self, now: Now) -> Value {
        let config = self.config();
        let [jobs, coordinated, shells, scripts] = self.seen_by(None, now);
        let mut stats = json!({
            "release": crate::BUILD,
            "protocol": crate::proto::peer::VERSION,
            "records": self.facts().directory,
            "method": config.implementation(),
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
            "checkpoint-age": self.coordinator.checkpoint_age(now.mono),
            "restart": self.ledger.stats(),
            "config": config.stats(&self.facts().job_shell),
        });
        self.counts.add_to(&mut stats);
        stats
    }

    /// The answer to a user who is not the instance owner: what there is of the user's own jobs.
    pub fn stats_for(&self, user: Credential, now: Now) -> Value {
        let [jobs, coordinated, shells, scripts] = self.seen_by(Some(user), now);
        json!({
            "release": crate::BUILD,
            "launcher": self.supervisor.launcher(),
            "jobs": jobs,
            "coordinated": coordinated,
            "shells": shells,
            "scripts": scripts,
        })
    }

    /// What each role has of jobs that this user may see, or of all.
    fn seen_by(&self, user: Option<Credential>, now: Now) -> [Map<String, Value>; 4] {
        let sees = |owner: u32| user.is_none_or(|user| user.may_act_for(owner));
        let leaders = self.leaders.iter().filter(|(_, leader)| sees(leader.userid()));
        let coordinated = self.coordinator.jobs().filter(|(_, owner, _)| sees(*owner));
        // An id that was issued again can still have the shell of the user that had it before.
        let shells = self.agents.iter().filter_map(|(id, agent)| Some((id, agent, agent.shell()?)));
        let shells = shells.filter(|(.., shell)| sees(shell.userid()));
        let scripts = shells.clone().map(|(id, agent, _)| (id, agent.script_stats(now)));
        let scripts = scripts.filter(|(_, all)| all.as_array().is_some_and(|all| !all.is_empty()));
        [
            leaders
                .map(|(id, leader)| (id.to_string(), leader.stats(self.config(), now)))
                .collect(),
            coordinated.map(|(id, _, rank)| (id.to_string(), json!({ "leader": rank }))).collect(),
            shells
                .map(|(id, _, shell)| {
                    (id.to_string(), json!({ "unit": shell.unit(), "pid": shell.pid() }))
                })
                .collect(),
            scripts.map(|(id, scripts)| (id.to_string(), scripts)).collect(),
        ]
    }

    /// A stop of the instance is to leave its jobs running: this rank's shells outlive its broker,
    /// which comes back. While systemd is waited for, the shells that there are outlived one.
    fn keeps_jobs(&self) -> bool {
        let outlive = self.supervisor.launcher() != "fork" && self.facts().has_connector();
        outlive && self.facts().brokers_return && self.config().keep_jobs
    }

    /// What is still kept for jobs; empty when they are all over.
    pub fn left_over(&self) -> String {
        let list = |role: &str, ids: Vec<JobId>| {
            let ids: Vec<String> = ids.iter().map(JobId::to_string).collect();
            (!ids.is_empty()).then(|| format!("{role} {}", ids.join(",")))
        };
        [
            list("coordinator", self.coordinator.jobs().map(|(id, ..)| id).collect()),
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

//! What `stats-get` shows of a job (`rfc/0005-configuration.md`, 5.5).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Leader;
use super::rank::ShellPhase;
use super::state::{Running, State};
use crate::config::Config;
use crate::machine::context::Now;
use crate::proto::{Idset, WallTime};

/// How many ranks are named of those that something is waited for.
const NAMED_MAX: usize = 8;
/// How much of an exception's type is shown, which can be a user's text, in characters.
const TYPE_MAX: usize = 64;

impl Leader {
    /// flux-core's keys first, and then what the job waits for.
    pub(in crate::machine) fn stats(&self, config: &Config, now: Now) -> Value {
        let active = self.ranks.active();
        let kill = self.failure.as_ref().and_then(|failure| failure.kill.as_ref());
        let expires = match &self.state {
            State::Running(Running { expires, .. }) => *expires,
            _ => WallTime::UNSET,
        };
        let mut stats = json!({
            "implementation": if self.test.is_some() { "testexec" } else { config.implementation() },
            "ns": self.id.namespace(),
            "critical_ranks": self.critical.to_string(),
            "multiuser": i32::from(self.is_multiuser()),
            "has_namespace": i32::from(self.journal.is_open()),
            "exception_in_progress": i32::from(self.failure.is_some()),
            "started": i32::from(!matches!(self.state, State::Opening(_))),
            "running": i32::from(matches!(self.state, State::Running(_) | State::Exited(_))),
            "finalizing": i32::from(matches!(self.state, State::Moving(_))),
            "expiration": expires,
            "kill_timeout": kill.map_or(config.kill_timeout, |kill| kill.pause),
            "kill_count": kill.map_or(0, |kill| kill.tasks),
            "kill_shell_count": kill.map_or(0, |kill| kill.shells),
            "total_shells": self.ranks.len(),
            "active_shells": active.len(),
            "active_ranks": active.to_string(),
            "state": self.state.name(),
            "timers": self.timers.stats(now.mono),
        });
        self.add_waits(&mut stats);
        stats
    }

    /// flux-core's module has no such keys: they are shown while there is something to say.
    fn add_waits(&self, stats: &mut Value) {
        let special = [
            ("prolog_ranks", self.prolog_ranks()),
            ("epilog_ranks", self.epilog_ranks()),
            ("degraded_ranks", self.degraded_ranks()),
            ("away_ranks", self.ranks.select(|known| known.away.is_some())),
            ("undrained_ranks", self.release.undrained().clone()),
        ];
        for (key, ranks) in special.into_iter().filter(|(_, ranks)| !ranks.is_empty()) {
            stats[key] = json!(ranks.to_string());
        }
        let awaited = [
            ("starting", self.ranks.select(|known| known.phase == ShellPhase::Pending)),
            ("leftover", self.ranks.select(|known| matches!(known.phase, ShellPhase::Exited(_)))),
        ];
        for (key, ranks) in awaited.into_iter().filter(|(_, ranks)| !ranks.is_empty()) {
            stats[key] = named(&ranks);
        }
        let told = self.ranks.iter().filter(|(_, known)| !known.is_gone());
        let told =
            told.filter_map(|(rank, known)| Some((rank.to_string(), known.left_over.clone()?)));
        let told: BTreeMap<String, String> = told.take(NAMED_MAX).collect();
        if !told.is_empty() {
            stats["left_over"] = json!(told);
        }
        let pending = self.barrier.pending();
        let entered = self.barrier.total() - pending.len();
        if entered > 0 && self.state.has_shells() {
            stats["barrier"] = json!({
                "number": self.barrier.completed() + 1,
                "entered": entered,
                "pending": named(&pending),
            });
        }
        if let Some(launch) = self.timeline.as_ref().and_then(|launch| launch.show(&self.start.r)) {
            stats["launch"] = launch;
        }
        if let Some(failure) = &self.failure {
            let kind: String = failure.reason.kind.chars().take(TYPE_MAX).collect();
            stats["failure"] = json!({ "type": kind, "since": failure.since });
        }
    }
}

/// The first of these ranks.
pub(super) fn first(ranks: &Idset) -> Idset {
    ranks.iter().take(NAMED_MAX).collect()
}

/// How many there are, and the first of them: a job has thousands.
fn named(ranks: &Idset) -> Value {
    json!({ "count": ranks.len(), "ranks": first(ranks).to_string() })
}

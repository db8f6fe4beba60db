//! **script-told**: a rank is drained for a script that goes on only if the script was told to end:
//! SIGTERM has reached it. One that was executed only just now may not have got it yet, nor one whose
//! systemd cannot be reached, or takes calls and does not answer, or whose bus refuses calls, or
//! whose supervisor a disk holds up. Where a script runs for the second time, because its node was booted since, the rank may be
//! drained for the first.

use job_exec_rs::proto::{Idset, ScriptFailure, ScriptStop, Stage};

use crate::world::World;

/// Seconds that pass at most, if systemd answers, between the call that starts a script and the moment
/// from which its rank counts.
const ASKED_EARLIER: f64 = 0.5;

impl World {
    /// Checks a drain.
    pub(crate) fn check_stuck(&mut self, ranks: &Idset, reason: &str) {
        let words = [ScriptStop::Canceled, ScriptStop::TimedOut]
            .map(|stop| ScriptFailure::Stuck(stop).words());
        let Some((stage, rest)) = reason.split_once(' ') else { return };
        if !words.iter().any(|words| rest.starts_with(words)) {
            return;
        }
        let Some(site) = &self.site else { return };
        let (prolog, epilog, limit) =
            (site.prolog.as_ref(), site.epilog.as_ref(), site.epilog_limit);
        let mut untold = Vec::new();
        for rank in ranks.iter() {
            let state = &self.ranks[rank as usize];
            let silent_until =
                state.hangs_until.max(state.disk_hangs.1).max(state.bus_is_full_until);
            let scripts = self.ranks[rank as usize].scripts.iter().filter(|script| {
                script.unit.stage().name() == stage
                    && rest.ends_with(&format!("for job {}", script.unit.job()))
            });
            for script in scripts.filter(|script| script.runs() && !script.is_told) {
                let runs_again = self.ranks[rank as usize].systemd.executions(&script.unit) > 1;
                if script.began < silent_until || !self.reaches_systemd(rank) || runs_again {
                    continue;
                }
                let (config, limit) = match script.unit.stage() {
                    Stage::Epilog => (epilog, limit),
                    Stage::Prolog | Stage::Shell => (prolog, None),
                };
                let ran = self.now - script.began;
                // A module that was loaded meanwhile only has the wall clock.
                let jumped = self.ranks[rank as usize].clock - script.asked.clock;
                let asked_ago = self.now - script.asked.at + jumped.max(0.0);
                let is_over = limit.is_some_and(|limit| asked_ago >= limit - ASKED_EARLIER);
                if !is_over && config.is_some_and(|config| ran >= config.kill_timeout) {
                    untold.push(format!("{}: {reason}, but it got no SIGTERM", script.unit));
                }
            }
        }
        for seen in untold {
            self.violate("script-told", seen);
        }
    }
}

//! The end of a job by force (flux-core `job-exec.c`, kill timers).
//!
//! First the term signal to the shells; then, every `kill-timeout`, the kill signal to the
//! tasks through their shells; after five of those the kill signal to the shells themselves
//! (or `SIGUSR1` to the IMP, which then kills its cgroup, RFC 15), with doubling pauses; at
//! last the ranks that are left are drained and the job is declared ended.

use crate::config::{Config, KILL_PAUSE_MAX};
use crate::machine::leader::timer::{Timer, TimerTable};

/// An escalation under way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kill {
    /// Seconds between signals.
    pub(super) pause: f64,
    /// Signals to tasks.
    pub(super) tasks: u32,
    /// Signals to shells.
    pub(super) shells: u32,
}

/// What the escalation wants done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// The limit is reached: drain what is left and end the job.
    GiveUp,
    /// Send the kill signal to the shells.
    KillShells {
        /// The number of signals is used up with this one.
        and_give_up: bool,
    },
    /// Send the kill signal to the tasks.
    KillTasks,
}

impl Kill {
    /// Begins the escalation; the caller has sent the first signal.
    pub(super) fn start(now: f64, config: &Config, timers: &mut TimerTable) -> Self {
        let pause = config.kill_timeout;
        timers.arm(Timer::JobKill, now + pause);
        timers.arm(Timer::ShellKill, now + pause * 5.0);
        if let Some(limit) = config.max_kill_timeout {
            timers.arm(Timer::MaxKill, now + limit);
        }
        Self { pause, tasks: 0, shells: 0 }
    }

    /// One of the escalation's timers has fired.
    pub(super) fn step(
        &mut self,
        now: f64,
        timer: Timer,
        config: &Config,
        timers: &mut TimerTable,
    ) -> Step {
        match timer {
            Timer::Leftover | Timer::MaxKill => Step::GiveUp,
            Timer::ShellKill => {
                self.shells += 1;
                timers.cancel(Timer::JobKill);
                self.pause = (self.pause * 2.0).min(KILL_PAUSE_MAX);
                timers.arm(Timer::ShellKill, now + self.pause);
                let limited = !timers.is_armed(Timer::MaxKill);
                Step::KillShells { and_give_up: limited && self.shells >= config.max_kill_count }
            }
            Timer::Barrier
            | Timer::Commit
            | Timer::Ended
            | Timer::Expiration
            | Timer::Flush
            | Timer::JobKill
            | Timer::Open
            | Timer::Release
            | Timer::Retry
            | Timer::ShellExit => {
                self.tasks += 1;
                timers.arm(Timer::JobKill, now + self.pause);
                Step::KillTasks
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &Config, until: f64) -> Vec<(f64, Step)> {
        let mut timers = TimerTable::default();
        let mut kill = Kill::start(0.0, config, &mut timers);
        let mut steps = Vec::new();
        while let Some(now) = timers.next().filter(|at| *at <= until) {
            while let Some(timer) = timers.pop_due(now) {
                steps.push((now, kill.step(now, timer, config, &mut timers)));
            }
            if steps.iter().any(|(_, s)| matches!(s, Step::GiveUp)) {
                break;
            }
        }
        steps
    }

    #[test]
    fn signals_come_as_upstream_sends_them() {
        let config = Config { kill_timeout: 1.0, max_kill_count: 2, ..Config::default() };
        let shells = |and_give_up| Step::KillShells { and_give_up };
        assert_eq!(
            run(&config, 7.5),
            vec![
                (1.0, Step::KillTasks),
                (2.0, Step::KillTasks),
                (3.0, Step::KillTasks),
                (4.0, Step::KillTasks),
                (5.0, Step::KillTasks),
                (5.0, shells(false)),
                (7.0, shells(true)),
            ]
        );
    }

    #[test]
    fn a_time_limit_replaces_the_count() {
        let config = Config {
            kill_timeout: 1.0,
            max_kill_count: 1,
            max_kill_timeout: Some(6.0),
            ..Config::default()
        };
        let steps = run(&config, 100.0);
        assert!(steps.contains(&(5.0, Step::KillShells { and_give_up: false })));
        assert_eq!(steps.last(), Some(&(6.0, Step::GiveUp)));
    }
}

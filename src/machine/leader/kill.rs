//! The end of a job by force (flux-core `job-exec.c`, kill timers).
//!
//! 1. The shells get the term signal.
//! 2. Every `kill-timeout` the tasks get the kill signal, through their shells.
//! 3. After five of these pauses the shells get it, with doubling pauses. Under the IMP they get
//!    `SIGUSR1`, for which the IMP kills its cgroup (RFC 15). This waits while a rank is away, or
//!    rank 0.
//! 4. What is left then the kernel kills, by the cgroups of the units (`exec.cgroup-kill`).
//! 5. At last, one `kill-timeout` later, the ranks that are left are drained, and the job ends without
//!    them.

use super::timer::{LeaderTimer, TimerTable};
use crate::config::{Config, KILL_PAUSE_MAX};
use crate::machine::mono_time::MonoTime;

/// An escalation under way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kill {
    /// Seconds between signals.
    pub(super) pause: f64,
    /// Signals to tasks.
    pub(super) tasks: u32,
    /// How many of them the job manager has answered.
    answered: u32,
    /// Signals to shells.
    pub(super) shells: u32,
}

impl Kill {
    /// Begins the escalation; the caller has sent the first signal.
    pub(super) fn start(now: MonoTime, config: &Config, timers: &mut TimerTable) -> Self {
        let pause = config.kill_timeout;
        timers.arm(LeaderTimer::KillTasks, now + pause);
        timers.arm(LeaderTimer::KillShells, now + pause * 5.0);
        if let Some(limit) = config.max_kill_timeout {
            timers.arm(LeaderTimer::MaxKill, now + limit);
        }
        Self { pause, tasks: 0, answered: 0, shells: 0 }
    }

    /// The tasks get the kill signal (again).
    pub(super) fn signal_tasks(&mut self, now: MonoTime, timers: &mut TimerTable) {
        self.tasks += 1;
        timers.arm(LeaderTimer::KillTasks, now + self.pause);
    }

    /// The job manager has passed a signal on to the tasks, or said why not.
    pub(super) fn handle_answer(&mut self) {
        self.answered += 1;
    }

    /// The job manager has not answered for a pause, or longer: rank 0 is away, and with it the KVS,
    /// to which shells write what they still have.
    pub(super) fn is_unheard(&self) -> bool {
        self.tasks > self.answered + 1
    }

    /// A rank is away, or has just come back. Shells elsewhere wait for its shell's output, so they
    /// live for one pause more. Returns whether they do: not if they have been killed already.
    pub(super) fn spare_shells(&self, now: MonoTime, timers: &mut TimerTable) -> bool {
        let spares = self.shells == 0;
        if spares {
            timers.postpone(LeaderTimer::KillShells, now + self.pause);
        }
        spares
    }

    /// The shells get the kill signal (again), and the tasks get no more. Returns whether that was
    /// the last one: then the ranks that are left are given up.
    pub(super) fn signal_shells(
        &mut self,
        now: MonoTime,
        config: &Config,
        timers: &mut TimerTable,
    ) -> bool {
        self.shells += 1;
        timers.cancel(LeaderTimer::KillTasks);
        self.pause = (self.pause * 2.0).min(KILL_PAUSE_MAX);
        timers.arm(LeaderTimer::KillShells, now + self.pause);
        // With a time limit its timer says when to give up.
        !timers.is_armed(LeaderTimer::MaxKill) && self.shells >= config.max_kill_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pause_is_longer_than_five_minutes() {
        let config = Config { kill_timeout: 100.0, ..Config::default() };
        let mut timers = TimerTable::default();
        let mut kill = Kill::start(MonoTime(0.0), &config, &mut timers);
        let pauses = [(); 4].map(|()| {
            kill.signal_shells(MonoTime(0.0), &config, &mut timers);
            kill.pause
        });
        assert_eq!(pauses, [200.0, 300.0, 300.0, 300.0]);
    }

    /// What is done when, until the escalation gives up.
    fn run(config: &Config, until: MonoTime) -> Vec<(f64, &'static str)> {
        let mut timers = TimerTable::default();
        let mut kill = Kill::start(MonoTime(0.0), config, &mut timers);
        let mut steps = Vec::new();
        while let Some(now) = timers.next().filter(|at| *at <= until) {
            let mut gives_up = false;
            while let Some(timer) = timers.pop_due(now) {
                match timer {
                    LeaderTimer::KillTasks => {
                        kill.signal_tasks(now, &mut timers);
                        steps.push((now.0, "tasks"));
                    }
                    LeaderTimer::KillShells => {
                        gives_up |= kill.signal_shells(now, config, &mut timers);
                        steps.push((now.0, "shells"));
                    }
                    LeaderTimer::MaxKill => gives_up = true,
                    other => panic!("{other:?} is none of the escalation's"),
                }
            }
            if gives_up {
                steps.push((now.0, "give up"));
                break;
            }
        }
        steps
    }

    #[test]
    fn signals_come_as_upstream_sends_them() {
        let config = Config { kill_timeout: 1.0, max_kill_count: 2, ..Config::default() };
        assert_eq!(
            run(&config, MonoTime(7.5)),
            [
                (1.0, "tasks"),
                (2.0, "tasks"),
                (3.0, "tasks"),
                (4.0, "tasks"),
                (5.0, "tasks"),
                (5.0, "shells"),
                (7.0, "shells"),
                (7.0, "give up"),
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
        let steps = run(&config, MonoTime(100.0));
        assert!(steps.contains(&(5.0, "shells")));
        assert_eq!(steps.last(), Some(&(6.0, "give up")));
    }
}

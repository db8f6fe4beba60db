//! An agent ends what nobody else would end: a shell that nobody leads any more, and what a guest's
//! shell has left behind, for which its IMP waits.
//!
//! The supervisor stops the unit: systemd sends SIGTERM to the main process, and SIGKILL to what is
//! left after `kill-timeout`. It may not kill a guest's processes. The IMP does that for SIGUSR1
//! (RFC 15). So the agent sends SIGUSR1, or the kill signal, again and again, with pauses as in the
//! kill escalation. Then the kernel kills what is left (`exec.cgroup-kill`). At the end the agent drains
//! the rank, because nobody else would keep jobs from it.

use crate::config::{Config, KILL_PAUSE_MAX};
use crate::machine::mono_time::MonoTime;

/// An eviction under way. Times are monotonic seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Eviction {
    next: MonoTime,
    pause: f64,
    /// When the kernel kills what is left; none if it has, or is not to.
    kernel_at: Option<MonoTime>,
    /// When the rank is drained; none once it was.
    drain_at: Option<MonoTime>,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Signal what is left.
    Signal,
    /// Have the kernel kill what is left.
    KillGroup,
    /// Signal what is left, and drain the rank.
    SignalAndDrain,
}

impl Eviction {
    /// The unit is being stopped. The first signal comes after `first` seconds.
    pub(super) fn start(now: MonoTime, first: f64, config: &Config) -> Self {
        let limit = now + first + config.effective_max_kill_timeout();
        let kernel_at = config.kernel_kills().then_some(limit);
        let drain_at = Some(kernel_at.map_or(limit, |at| at + config.kill_timeout));
        Self { next: now + first, pause: config.kill_timeout, kernel_at, drain_at }
    }

    /// When [`Self::take_step`] is due.
    pub(super) fn next_timeout(&self) -> MonoTime {
        self.next
    }

    /// The rank was drained: nothing has helped so far.
    pub(super) fn is_given_up(&self) -> bool {
        self.drain_at.is_none()
    }

    /// Takes the step that is due, if one is. Steps go on after the drain: a process that hung may
    /// still end.
    pub(super) fn take_step(&mut self, now: MonoTime) -> Option<Step> {
        if self.next > now {
            return None;
        }
        self.pause = (self.pause * 2.0).min(KILL_PAUSE_MAX);
        self.next = now + self.pause;
        let kills = self.kernel_at.take_if(|at| *at <= now).is_some();
        let drains = self.drain_at.take_if(|at| *at <= now).is_some();
        if let Some(at) = self.kernel_at.or(self.drain_at) {
            self.next = self.next.min(at);
        }
        Some(match (drains, kills) {
            (true, _) => Step::SignalAndDrain,
            (false, true) => Step::KillGroup,
            (false, false) => Step::Signal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_signals_with_growing_pauses_and_drains_once() {
        let config =
            Config { kill_timeout: 1.0, max_kill_timeout: Some(10.0), ..Config::default() };
        let mut eviction = Eviction::start(MonoTime(0.0), 1.0, &config);
        let mut steps = Vec::new();
        while eviction.next_timeout() < MonoTime(1000.0) {
            let now = eviction.next_timeout();
            assert_eq!(eviction.take_step(MonoTime(now.0 - 0.5)), None);
            steps.push((now, eviction.take_step(now)));
        }
        let times: Vec<f64> = steps.iter().map(|(at, _)| at.0).take(6).collect();
        assert_eq!(times, [1.0, 3.0, 7.0, 11.0, 12.0, 44.0]);
        let when = |wanted| {
            let steps = steps.iter().filter(move |(_, step)| *step == Some(wanted));
            steps.map(|(at, _)| at.0).collect::<Vec<_>>()
        };
        assert_eq!((when(Step::KillGroup), when(Step::SignalAndDrain)), (vec![11.0], vec![12.0]));
        assert!(eviction.is_given_up());
    }
}

//! Mocked jobs: a timer in the place of shells (flux-core `job-exec/testexec.c`).
//!
//! No rank is asked for anything, so the ranks need not exist. Such a job is led on rank 0. A later
//! leader finds in the exec eventlog when it began.

use super::Leader;
use super::rank::{Heard, ShellPhase};
use super::state::{Launching, State};
use super::timer::LeaderTimer;
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::machine::event::{Credential, Fault};
use crate::proto::{BrokerRank, ExecEvent, StartRequest, TestExec, WaitStatus, WallTime};

/// RFC 50: a later leader can find the job again.
pub(super) const RECOVERABLE: &str = "recoverable";

/// A mocked job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    how: TestExec,
    /// Its user has not let it start yet.
    waits: bool,
    /// When it began, in seconds since the epoch.
    began: Option<WallTime>,
}

impl Test {
    /// None if the job is to be run.
    pub(super) fn of(start: &StartRequest) -> Option<Self> {
        let how = start.jobspec.as_ref().ok()?.test.clone()?;
        Some(Self { waits: how.waits, how, began: None })
    }
}

impl Leader {
    /// The exception that the user wants before anything is started.
    pub(super) fn mocks_at_init(&self) -> Option<&'static str> {
        if self.test.as_ref().is_some_and(|test| test.how.fails_at("init")) {
            return Some("mock initialization exception generated");
        }
        let mocked = self.jobspec.mock_exception.as_deref();
        (mocked == Some("init")).then_some("mock init exception generated")
    }

    /// An earlier leader has begun it.
    pub(super) fn read_test(&mut self, began: WallTime) {
        if let Some(test) = &mut self.test {
            test.began.get_or_insert(began);
        }
    }

    /// In the place of asking agents for shells.
    pub(super) fn launch_test(&mut self) {
        let Some(test) = &mut self.test else { return };
        let has_begun = self.start.reattach || test.began.is_some();
        test.waits &= !has_begun;
        let begins = has_begun || !test.waits && self.failure.is_none();
        for known in self.ranks.values_mut() {
            known.heard = Heard::Known;
            if begins {
                known.phase = ShellPhase::Running;
            }
        }
        if begins {
            self.expect_status();
        }
    }

    /// The job runs from now on, or has been found again.
    pub(super) fn run_test(&mut self, cx: Context, out: &mut Effects) {
        let Some(test) = &mut self.test else { return };
        let (is_first, now) = (test.began.is_none(), cx.now.wall);
        let began = *test.began.get_or_insert(now);
        let is_over = self.start.reattach && test.how.reattach_finish;
        // The job's user can have written any time there, and a clock can have jumped.
        let left = test.how.run_duration.map(|run| (run - (now - began)).clamp(0.0, run));
        let left = if is_over { Some(0.0) } else { left };
        let fails = test.how.fails_at("run") && !self.start.reattach;
        if is_first {
            self.post(ExecEvent::bare(now, RECOVERABLE));
        }
        if let Some(status) = self.status.posted {
            return self.end_test(cx, status);
        }
        if let Some(left) = left {
            self.timers.arm(LeaderTimer::Test, cx.now.mono + left);
        }
        if fails && self.failure.is_none() {
            self.fail(cx, "mock run exception generated", out);
        }
    }

    pub(super) fn handle_test_timeout(&mut self, cx: Context) {
        if let Some(test) = &self.test {
            self.end_test(cx, test.how.wait_status);
        }
    }

    /// It ends on all ranks. Without a status if it has not begun.
    pub(super) fn end_test(&mut self, cx: Context, status: WaitStatus) {
        let has_begun = match &self.state {
            State::Launching(Launching { has_status, .. }) => *has_status,
            State::Running(_) => true,
            _ => return,
        };
        self.timers.cancel(LeaderTimer::Test);
        let status = has_begun.then_some(status);
        self.status.add(status.unwrap_or_default());
        for rank in self.ranks.active().ranks().collect::<Vec<BrokerRank>>() {
            if let Some(known) = self.ranks.get_mut(rank) {
                known.set_exited(status);
            }
            self.set_gone(cx, rank);
        }
    }

    /// The job's user has it start or end.
    ///
    /// # Errors
    /// `ENOENT`: it is not mocked. `EPERM`: it is another user's. `EINVAL`: it is not to wait for its
    /// user, it has started already, or not yet, or there is no such event.
    pub(in crate::machine) fn handle_override(
        &mut self,
        cx: Context,
        credential: Credential,
        (event, status): (&str, WaitStatus),
        out: &mut Effects,
    ) -> Result<(), Fault> {
        let (id, is_running) = (self.id, matches!(self.state, State::Running(_)));
        let fault = |errnum, why: &str| Err(Fault::new(errnum, format!("{id}: {why}")));
        if !credential.owner && credential.userid != self.start.userid {
            return fault(libc::EPERM, "the job belongs to another user");
        }
        match &mut self.test {
            None => return fault(libc::ENOENT, "the job is not mocked"),
            Some(test) if !test.how.waits => {
                return fault(libc::EINVAL, "the job does not wait for its user");
            }
            Some(test) if event == "start" && test.waits => {
                test.waits = false;
                if let State::Launching(_) = self.state {
                    self.launch_test();
                }
            }
            Some(_) if event == "start" => {
                return fault(libc::EINVAL, "the job has started already");
            }
            Some(_) if event == "finish" && is_running => self.end_test(cx, status),
            Some(_) if event == "finish" => return fault(libc::EINVAL, "the job does not run"),
            Some(_) => return fault(libc::EINVAL, "expected event start or finish"),
        }
        self.advance(cx, out);
        Ok(())
    }
}

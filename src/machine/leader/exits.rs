//! Shells that have ended, or are lost, and nodes that have failed (flux-core `bulkexec.c` for the
//! words).

use std::collections::BTreeMap;

use super::rank::ShellPhase;
use super::state::State;
use super::timer::LeaderTimer;
use super::{Leader, plural};
use crate::machine::away::Away;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects};
use crate::port::supervisor::NOT_CONFINED;
use crate::proto::peer;
use crate::proto::{BrokerRank, Exception, ExecEvent, Idset, ShellRank, Signal, WaitStatus};

/// Shells that have ended, with the status if it was seen.
pub(super) type Exits = BTreeMap<BrokerRank, Option<WaitStatus>>;

impl Leader {
    /// Shells have ended; the barrier, the others and the leader shell have to know.
    pub(super) fn handle_exits(&mut self, cx: Context, exits: &Exits, out: &mut Effects) {
        let first = self.start.r.first_rank();
        if let Some(status) = exits.get(&first) {
            self.handle_first_shell_exit(cx, first, *status);
        }
        if self.ranks.len() == 1 {
            return;
        }
        self.barrier.set_ended(&exits.keys().copied().collect(), self.has_failed());
        self.stop_barrier_clock();
        self.conclude(cx, out);
        for (rank, status) in exits {
            if let Some(signal) = status.and_then(WaitStatus::signal) {
                self.handle_signaled(cx, *rank, signal, out);
            }
        }
    }

    /// A shell has exited with this status.
    pub(super) fn see_exit(&mut self, rank: BrokerRank, status: WaitStatus, exits: &mut Exits) {
        if let Some(known) = self.ranks.get_mut(rank) {
            known.set_exited(Some(status));
        }
        self.status.add(status);
        exits.insert(rank, Some(status));
    }

    /// Says what the ends of shells mean for the barrier.
    pub(super) fn judge_barrier(&mut self, cx: Context, out: &mut Effects) {
        let inside = self.barrier.take_inside();
        let is_news = self.failure.as_ref().is_none_or(|failure| failure.before_barrier);
        if !inside.is_empty() && is_news {
            self.fail_before_barrier(cx, &inside, out);
        }
        if self.barrier.fail(self.failure.is_some()) {
            self.fail_barrier(&self.ranks.active(), out);
        }
    }

    fn handle_first_shell_exit(
        &mut self,
        cx: Context,
        first: BrokerRank,
        status: Option<WaitStatus>,
    ) {
        if std::mem::replace(&mut self.first_shell_ended, true) {
            return;
        }
        let active = self.ranks.active();
        // RFC 50 leaves the event out when the status was not seen.
        if let Some(status) = status {
            self.post(ExecEvent::shell_exit(cx.now.wall, first, status, &active));
        }
        if let Some(seconds) = cx.config.shell_exit_timeout
            && !active.is_empty()
            && self.failure.is_none()
        {
            self.timers.arm(LeaderTimer::ShellExit, cx.now.mono + seconds);
        }
    }

    fn fail_before_barrier(&mut self, cx: Context, ranks: &Idset, out: &mut Effects) {
        let note = format!(
            "{} ({} {ranks}) terminated before first barrier",
            self.start.r.hosts(ranks),
            plural("rank", ranks.len()),
        );
        self.fail(cx, note, out);
        if let Some(failure) = &mut self.failure {
            failure.before_barrier = true;
        }
        // Under the IMP this can be the node's fault (a missing MUNGE key, for instance).
        let pending = ranks.intersection(&self.barrier.pending());
        if self.is_multiuser() && !pending.is_empty() {
            let reason = format!("{} terminated before first barrier", self.id);
            self.drain(pending, reason, out);
        }
    }

    fn handle_signaled(&mut self, cx: Context, rank: BrokerRank, signal: i32, out: &mut Effects) {
        let shell_rank = self.shell_rank(rank);
        let host = self.start.r.hostname(rank);
        let message = format!("shell rank {shell_rank} (on {host}): {}", Signal::describe(signal));
        if shell_rank == ShellRank::LEADER {
            self.fail(cx, message, out);
        } else {
            self.tell_lost_shell(shell_rank, &message, out);
        }
    }

    pub(super) fn handle_launch_failure(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        errnum: i32,
        message: &str,
        out: &mut Effects,
    ) {
        self.set_not_started(cx, rank);
        // As a shell would tell it (flux-core `exec.c`).
        self.status.add(WaitStatus::exited(match errnum {
            libc::EPERM | libc::EACCES => 126,
            libc::ENOENT => 127,
            _ => 1,
        }));
        let host = self.start.r.hostname(rank).to_string();
        let mut note = format!("job shell exec error on broker {host} (rank {rank}): {message}");
        if errnum == NOT_CONFINED {
            // The node would not confine the next job either.
            let failed = "sdexec constraint check failed";
            let reason = format!("{failed} on {host} for job {}: {message}", self.id);
            self.drain(rank, reason, out);
            note = format!("{failed} on {host} (rank {rank}): {message}");
        }
        self.fail(cx, note, out);
    }

    pub(super) fn handle_lost(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        message: &str,
        out: &mut Effects,
    ) {
        let shell_rank = self.shell_rank(rank);
        let host = self.start.r.hostname(rank).to_string();
        let lost = format!("job shell lost on {host} (shell rank {shell_rank}): {message}");
        self.tell_lost_shell(shell_rank, &lost, out);
        if self.is_critical(shell_rank) {
            let note = format!("job shell lost on {host} (rank {rank}): {message}");
            self.fail(cx, note, out);
        }
    }

    /// Nobody can tell when the last process of the job has ended on this rank. It is drained
    /// before it can be released.
    pub(super) fn handle_left(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        if known.is_gone() || std::mem::replace(&mut known.left, true) {
            return;
        }
        // An earlier leader may have done both: drained it, and released it after that.
        if !self.release.released().contains_rank(rank) {
            self.drain(rank, peer::left_reason(self.id), out);
        }
        if self.state.finish().or(self.status.promised).is_none() {
            let host = self.start.r.hostname(rank);
            let note = format!(
                "job shell left its unit on {host} (rank {rank}): processes of the job may run \
                 outside of it"
            );
            self.fail(cx, note, out);
        }
    }

    /// A rank whose shell may still run is given up. Before it is given back it is drained:
    /// nothing else must be placed there.
    pub(super) fn drain_unseen(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        let may_run = self.ranks.get(rank).is_some_and(|known| !known.is_gone());
        // A rank that was released may be another job's by now.
        let is_released = self.release.released().contains_rank(rank);
        if self.shells_survive(cx) && may_run && !is_released {
            let reason = format!("lost contact: processes of job {} may still run", self.id);
            self.drain(rank, reason, out);
        }
    }

    /// A node is lost, and its shell with it. A job can live on without one that is not
    /// critical.
    pub(super) fn fail_node(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        let Some(known) = self.ranks.get(rank).filter(|known| !known.is_gone()) else { return };
        let refusal = known.away.as_ref().and_then(Away::refusal).map(str::to_string);
        let is_active = known.is_active();
        self.give_up_rank(cx, rank);
        if !is_active {
            // Its shell had ended, and what it left has ended with the node.
            return;
        }
        if self.release.released().contains_rank(rank) {
            // An earlier leader knew that its shell had ended. How often that had entered the barrier is
            // not known any more.
            self.barrier.set_unknown(rank);
        } else {
            self.tell_failed_node(cx, rank, refusal, out);
        }
        if matches!(self.state, State::Launching(_) | State::Running(_)) {
            self.handle_exits(cx, &BTreeMap::from([(rank, None)]), out);
        }
    }

    fn tell_failed_node(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        refusal: Option<String>,
        out: &mut Effects,
    ) {
        let shell_rank = self.shell_rank(rank);
        let host = self.start.r.hostname(rank).to_string();
        let message = format!("node failure on {host} (shell rank {shell_rank})");
        self.tell_lost_shell(shell_rank, &message, out);
        if self.is_critical(shell_rank) {
            let why = refusal.map(|reason| format!(": {reason}")).unwrap_or_default();
            self.fail(cx, format!("node failure on {host} (rank {rank}){why}"), out);
        }
    }

    /// The job goes on without this rank, whatever is left there. A rank that an earlier leader has
    /// released had a shell, and may have kept what the KVS has lost since.
    pub(super) fn give_up_rank(&mut self, cx: Context, rank: BrokerRank) {
        let has_run = self.ranks.get(rank).is_some_and(|known| known.phase != ShellPhase::Pending);
        if has_run || self.release.released().contains_rank(rank) {
            self.log_missing_output(cx, rank, "the node was given up");
        }
        if let Some(known) = self.ranks.get_mut(rank) {
            known.lost = Some("the node was given up".to_string());
        }
        self.set_gone(cx, rank);
    }

    /// The leader shell waits for what the lost one would have sent; tell it not to.
    fn tell_lost_shell(&mut self, shell_rank: ShellRank, message: &str, out: &mut Effects) {
        let is_critical = self.is_critical(shell_rank);
        let mut message = message.to_string();
        if !is_critical {
            // The exception says it to the user; the shell need not say it again.
            let note = std::mem::take(&mut message);
            self.say_exception(Exception::survivable("node-failure", note), out);
        }
        out.push(Effect::LostShell {
            id: self.id,
            userid: self.start.userid,
            severity: if is_critical { 0 } else { Exception::SURVIVABLE },
            shell_rank,
            message,
        });
    }

    fn is_critical(&self, shell_rank: ShellRank) -> bool {
        self.critical.contains(shell_rank.0)
    }

    pub(super) fn shell_rank(&self, rank: BrokerRank) -> ShellRank {
        self.start.r.shell_rank(rank).unwrap_or_default()
    }
}

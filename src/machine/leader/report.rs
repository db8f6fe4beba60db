//! What the leader makes of its agents' reports (flux-core `bulkexec.c` for the words).

use std::collections::BTreeMap;

use super::{Entered, Leader, Phase, RETRY_FIRST, RETRY_MAX, State, plural};
use crate::machine::Context;
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::leader::exec_log::Logged;
use crate::machine::leader::launch;
use crate::machine::leader::timer::Timer;
use crate::planted::Bug;
use crate::proto::peer::{self, Order, RankReport, Report, Reports, StreamEnd};
use crate::proto::{BrokerRank, ExecEvent, Idset, ShellRank, Signal, Stream, WaitStatus};

/// Shells that have ended, with the status if it was seen.
type Exits = BTreeMap<BrokerRank, Option<WaitStatus>>;

/// RFC 21 severity of an exception that a job can survive.
const SEVERITY_CRIT: i32 = 2;

impl Leader {
    /// Takes one message of reports about `ranks`.
    pub(super) fn reports(
        &mut self,
        cx: Context,
        ranks: &Idset,
        reports: Reports,
        out: &mut Effects,
    ) {
        let mut exits: Exits = BTreeMap::new();
        let mut orphans = Idset::new();
        for RankReport { ranks: about, report } in reports.reports {
            for rank in about.intersection(ranks).ranks() {
                if report == Report::Orphaned {
                    orphans.insert(rank.0);
                } else {
                    self.report(cx, rank, &report, &mut exits, out);
                }
            }
        }
        if !exits.is_empty() {
            self.exited(cx, &exits, out);
        }
        self.ask_again(cx, &orphans, out);
    }

    fn report(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        report: &Report,
        exits: &mut Exits,
        out: &mut Effects,
    ) {
        let Some(known) = self.ranks.get_mut(&rank) else { return };
        if known.away_since.take().is_some() {
            self.retry_pause = RETRY_FIRST;
        }
        let (phase, started) = (known.phase, known.started);
        match report {
            Report::Barrier { entered } => self.barrier_entered(cx, rank, *entered, out),
            Report::CriticalRanks { ranks } => self.critical = ranks.clone(),
            Report::Exited { status } => {
                if matches!(phase, Phase::Pending | Phase::Running) {
                    known.phase = Phase::Exited;
                    known.exit = Some(*status);
                    self.status = self.status.max(*status);
                    exits.insert(rank, Some(*status));
                }
            }
            Report::Failed { errnum, message } => {
                if phase == Phase::Pending {
                    self.set_gone(cx, rank);
                    self.launch_failed(cx, rank, *errnum, message, out);
                    exits.insert(rank, None);
                }
            }
            Report::Gone => {
                if phase != Phase::Gone {
                    self.set_gone(cx, rank);
                }
            }
            Report::Left => self.shell_left(cx, rank, out),
            Report::Lost { message } => {
                if matches!(phase, Phase::Pending | Phase::Running) {
                    known.phase = Phase::Exited;
                    // Of a job that has failed, a shell that never was is no loss.
                    if self.failure.is_none() || started {
                        self.shell_lost(cx, rank, message, out);
                        exits.insert(rank, None);
                    }
                }
            }
            Report::NeverStarted => {
                if phase == Phase::Pending {
                    self.set_gone(cx, rank);
                    self.launch_failed(cx, rank, 0, "it was never started", out);
                    exits.insert(rank, None);
                }
            }
            Report::Orphaned | Report::Pending => (),
            Report::Output { stream, offset, data } => {
                self.output(cx, rank, *stream, *offset, data);
            }
            Report::OutputOverflow { allocated } => self.overflow(cx, rank, *allocated, out),
            Report::OutputTruncated { stream, kept, dropped } => {
                self.truncated(cx, rank, *stream, (*kept, *dropped));
            }
            Report::Running => self.shell_runs(cx, rank, out),
            Report::Unkillable => {
                if phase != Phase::Gone {
                    self.drain_unkillable(cx, &Idset::from_iter([rank]), out);
                    exits.insert(rank, None);
                }
            }
            Report::Unreachable { end } => self.unreachable(cx, rank, end, out),
        }
    }

    fn shell_runs(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        self.tried = true;
        let Some(known) = self.ranks.get_mut(&rank) else { return };
        known.started = true;
        if known.phase != Phase::Pending {
            return;
        }
        known.phase = Phase::Running;
        if self.kill.is_some() {
            // It came up after the others were told to end.
            let signal = cx.config.term_signal.number();
            let order = Order::Signal { signal, all: false };
            self.order(&Idset::from_iter([rank]), &order, out);
        } else if self.jobspec.mock_exception.as_deref() == Some("starting") {
            self.fatal(cx, "mock starting exception generated", out);
        }
    }

    fn barrier_entered(&mut self, cx: Context, rank: BrokerRank, count: u32, out: &mut Effects) {
        let all = self.start.r.ranks().clone();
        match self.barrier.enter(rank, count) {
            Entered::Complete(count) => {
                self.timers.cancel(Timer::Barrier);
                self.order(&all, &Order::Barrier { count, failed: false }, out);
            }
            Entered::Failed => self.fail_barrier(&Idset::from_iter([rank]), out),
            Entered::First => {
                let timeout = self.jobspec.barrier_timeout.or(cx.config.barrier_timeout);
                if let Some(seconds) = timeout.filter(|seconds| *seconds > 0.0) {
                    self.timers.arm(Timer::Barrier, cx.now.mono + seconds);
                }
            }
            Entered::Waiting => (),
        }
    }

    fn fail_barrier(&self, ranks: &Idset, out: &mut Effects) {
        let order = Order::Barrier { count: self.barrier.completed(), failed: true };
        self.order(ranks, &order, out);
    }

    fn output(&mut self, cx: Context, rank: BrokerRank, stream: Stream, offset: u64, data: &[u8]) {
        let Some(known) = self.ranks.get_mut(&rank) else { return };
        let position = &mut known.output[stream as usize];
        let end = offset.saturating_add(data.len() as u64);
        // What a new stream tells again is in the log already.
        let repeated = position.saturating_sub(offset).min(data.len() as u64) as usize;
        *position = end.max(*position);
        let logged = Logged { rank, stream, offset: *position };
        let data = &data[repeated..];
        if self.done_posted {
            return; // of a rank that was given up, and is back too late
        }
        if data.is_empty() {
            return; // its commit, or the next request's positions, acknowledge it
        }
        let component = launch::component(&self.command);
        let event = ExecEvent::log(cx.now.wall, component, stream, rank, data);
        self.log.post_output(event, logged);
    }

    /// A shell fills its node's disk, for all jobs there.
    fn overflow(&mut self, cx: Context, rank: BrokerRank, allocated: u64, out: &mut Effects) {
        if self.said.finish.is_some() {
            return; // its file goes with the job
        }
        let host = self.start.r.hostname(rank).to_string();
        let note = format!(
            "job shell output on {host} (rank {rank}) takes {allocated} bytes of disk, more than \
             exec.output-disk-limit"
        );
        self.fatal(cx, note, out);
    }

    /// One of a rank's streams was cut off; the log says so once.
    fn truncated(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        stream: Stream,
        (kept, dropped): (u64, u64),
    ) {
        let Some(known) = self.ranks.get_mut(&rank) else { return };
        if self.done_posted || std::mem::replace(&mut known.truncated[stream as usize], true) {
            return;
        }
        let component = launch::component(&self.command);
        let event = ExecEvent::truncated(cx.now.wall, component, (stream, rank), kept, dropped);
        self.log.post(event);
    }

    /// Shells have ended; the barrier, the others and the leader shell have to know.
    fn exited(&mut self, cx: Context, exits: &Exits, out: &mut Effects) {
        let leader = self.start.r.first_rank();
        if let Some(status) = exits.get(&leader) {
            self.leader_shell_exited(cx, leader, *status);
        }
        if self.ranks.len() == 1 {
            return;
        }
        let ranks: Idset = exits.keys().copied().collect();
        let first = self.failure.is_none() || self.ended_before_barrier;
        if !self.barrier.first_is_complete() && first {
            self.ended_before_barrier(cx, &ranks, out);
        }
        self.timers.cancel(Timer::Barrier);
        if self.barrier.fail() {
            self.fail_barrier(&self.active(), out);
        }
        for (rank, status) in exits {
            if let Some(signal) = status.and_then(WaitStatus::signal) {
                self.shell_signaled(cx, *rank, signal, out);
            }
        }
    }

    fn leader_shell_exited(&mut self, cx: Context, leader: BrokerRank, status: Option<WaitStatus>) {
        if self.leader_exited {
            return;
        }
        self.leader_exited = true;
        let active = self.active();
        // RFC 50 leaves the event out when the status was not seen.
        if let Some(status) = status {
            self.log.post(ExecEvent::shell_exit(cx.now.wall, leader, status, &active));
        }
        if let Some(seconds) = cx.config.shell_exit_timeout
            && !active.is_empty()
            && self.failure.is_none()
        {
            self.timers.arm(Timer::ShellExit, cx.now.mono + seconds);
        }
    }

    fn ended_before_barrier(&mut self, cx: Context, ranks: &Idset, out: &mut Effects) {
        let note = format!(
            "{} ({} {ranks}) terminated before first barrier",
            self.start.r.hosts(ranks),
            plural("rank", ranks.len()),
        );
        self.fatal(cx, note, out);
        self.ended_before_barrier = true;
        // Under the IMP this can be the node's fault (a missing MUNGE key, for instance).
        let pending = ranks.intersection(&self.barrier.pending());
        if self.is_multiuser() && !pending.is_empty() {
            let reason = format!("{} terminated before first barrier", self.id);
            out.push(Effect::Drain { ranks: pending, reason });
        }
    }

    fn shell_signaled(&mut self, cx: Context, rank: BrokerRank, signal: i32, out: &mut Effects) {
        let shell_rank = self.shell_rank(rank);
        let host = self.start.r.hostname(rank).to_string();
        let name = Signal::describe(signal);
        if shell_rank == ShellRank::LEADER {
            return self.fatal(cx, format!("shell rank 0 (on {host}): {name}"), out);
        }
        let message = format!("shell rank {shell_rank} (on {host}): {name}");
        self.notify_lost_shell(shell_rank, &message, out);
    }

    fn launch_failed(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        errnum: i32,
        message: &str,
        out: &mut Effects,
    ) {
        let code = match errnum {
            libc::EPERM | libc::EACCES => 126,
            libc::ENOENT => 127,
            _ => 1,
        };
        self.status = self.status.max(WaitStatus::exited(code));
        let host = self.start.r.hostname(rank).to_string();
        let note = format!("job shell exec error on broker {host} (rank {rank}): {message}");
        self.fatal(cx, note, out);
    }

    fn shell_lost(&mut self, cx: Context, rank: BrokerRank, message: &str, out: &mut Effects) {
        let shell_rank = self.shell_rank(rank);
        let host = self.start.r.hostname(rank).to_string();
        let lost = format!("job shell lost on {host} (shell rank {shell_rank}): {message}");
        self.notify_lost_shell(shell_rank, &lost, out);
        if self.is_critical(shell_rank) {
            let note = format!("job shell lost on {host} (rank {rank}): {message}");
            self.fatal(cx, note, out);
        }
    }

    /// Nobody can tell when the last process of the job has ended on this rank. It is drained
    /// before it can be released.
    fn shell_left(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        let Some(known) = self.ranks.get_mut(&rank) else { return };
        if known.phase == Phase::Gone || std::mem::replace(&mut known.left, true) {
            return;
        }
        // An earlier leader may have done both: drained it, and released it after that.
        if !self.release.released().contains_rank(rank) {
            let reason = peer::left_reason(self.id);
            out.push(Effect::Drain { ranks: Idset::from_iter([rank]), reason });
        }
        if self.said.finish.or(self.promised).is_none() {
            let host = self.start.r.hostname(rank).to_string();
            let note = format!(
                "job shell left its unit on {host} (rank {rank}): processes of the job may run \
                 outside of it"
            );
            self.fatal(cx, note, out);
        }
    }

    /// A rank's module, or its whole broker, does not answer.
    pub(super) fn unreachable(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        end: &StreamEnd,
        out: &mut Effects,
    ) {
        let Some(known) = self.ranks.get_mut(&rank) else { return };
        match known.phase {
            Phase::Gone => return,
            Phase::Pending | Phase::Running | Phase::Exited => (),
        }
        match end {
            StreamEnd::Forgotten => (), // as it was told to
            // A child of the broker has ended with it; a unit may well run on.
            StreamEnd::BrokerGone if !cx.shells_survive || Bug::UnknownIsDead.is_planted() => {
                self.node_failure(cx, rank, out)
            }
            StreamEnd::Incompatible { reason } => {
                // It may run a shell all the same; waiting gives it time to be mended.
                known.away_since.get_or_insert(cx.now.mono);
                self.retry_later(cx);
                let host = self.start.r.hostname(rank).to_string();
                self.fatal(cx, format!("{reason} (on {host}, rank {rank})"), out);
            }
            StreamEnd::AskedAgain
            | StreamEnd::BrokerGone
            | StreamEnd::Failed { .. }
            | StreamEnd::NotLoaded { .. }
            | StreamEnd::ParentGone
            | StreamEnd::Superseded { .. }
            | StreamEnd::Unloaded => {
                let since = *known.away_since.get_or_insert(cx.now.mono);
                let text = format!("{}: rank {rank} does not answer: {end}", self.id);
                let level = if since == cx.now.mono { Level::Info } else { Level::Debug };
                out.log(level, text);
                self.retry_later(cx);
            }
        }
    }

    /// Nobody looks after these ranks at the moment.
    pub(super) fn ask_later(&mut self, cx: Context, ranks: &Idset) {
        for rank in ranks.ranks() {
            if let Some(known) = self.ranks.get_mut(&rank).filter(|r| r.phase != Phase::Gone) {
                known.away_since.get_or_insert(cx.now.mono);
                self.retry_later(cx);
            }
        }
    }

    fn retry_later(&mut self, cx: Context) {
        if !self.timers.is_armed(Timer::Retry) {
            self.timers.arm(Timer::Retry, cx.now.mono + self.retry_pause);
            self.retry_pause = (self.retry_pause * 2.0).min(RETRY_MAX);
        }
    }

    /// Asks the ranks whose modules are away again, and gives up on the longest gone.
    pub(super) fn retry(&mut self, cx: Context, out: &mut Effects) {
        let away: Vec<(BrokerRank, f64)> =
            self.ranks.iter().filter_map(|(rank, r)| Some((*rank, r.away_since?))).collect();
        for (rank, since) in &away {
            if cx.now.mono - since >= cx.config.peer_timeout {
                self.drain_unseen(cx, *rank, out);
                self.node_failure(cx, *rank, out);
            } else {
                self.ask_again(cx, &Idset::from_iter([*rank]), out);
            }
        }
        if away.is_empty() {
            self.retry_pause = RETRY_FIRST;
        }
    }

    /// Unknown is not dead: before a rank is given back whose shell may still run, nothing else
    /// must be placed there.
    pub(super) fn drain_unseen(&self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        let phase = self.ranks.get(&rank).map(|known| known.phase);
        // A rank that was released may be another job's by now.
        let released = self.release.released().contains_rank(rank);
        if cx.shells_survive && !released && phase.is_some_and(|phase| phase != Phase::Gone) {
            let reason = format!("lost contact: processes of job {} may still run", self.id);
            out.push(Effect::Drain { ranks: Idset::from_iter([rank]), reason });
        }
    }

    /// A node is lost, and its shell with it. A job can live on without one that is not
    /// critical.
    pub(super) fn node_failure(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        let phase = self.ranks.get(&rank).map(|known| known.phase);
        if phase.is_none_or(|phase| phase == Phase::Gone) {
            return;
        }
        self.set_gone(cx, rank);
        if phase == Some(Phase::Exited) || self.release.released().contains_rank(rank) {
            // Its shell had ended, and what it left has ended with the node.
            return;
        }
        let shell_rank = self.shell_rank(rank);
        let host = self.start.r.hostname(rank).to_string();
        let message = format!("node failure on {host} (shell rank {shell_rank})");
        self.notify_lost_shell(shell_rank, &message, out);
        if self.is_critical(shell_rank) {
            self.fatal(cx, format!("node failure on {host} (rank {rank})"), out);
        }
        if matches!(self.state, State::Launching | State::Running) {
            self.exited(cx, &BTreeMap::from([(rank, None)]), out);
        }
    }

    /// The leader shell waits for what the lost one would have sent; tell it not to.
    fn notify_lost_shell(&mut self, shell_rank: ShellRank, message: &str, out: &mut Effects) {
        let critical = self.is_critical(shell_rank);
        let mut message = message.to_string();
        if !critical {
            self.raise("node-failure", SEVERITY_CRIT, message.clone(), out);
            // The exception says it to the user; the shell need not say it again.
            message.clear();
        }
        out.push(Effect::LostShell {
            id: self.id,
            userid: self.start.userid,
            severity: if critical { 0 } else { SEVERITY_CRIT },
            shell_rank,
            message,
        });
    }

    fn is_critical(&self, shell_rank: ShellRank) -> bool {
        self.critical.contains(shell_rank.0)
    }

    fn shell_rank(&self, rank: BrokerRank) -> ShellRank {
        self.start.r.shell_rank(rank).unwrap_or_default()
    }
}

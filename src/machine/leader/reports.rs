//! What agents report, one rank at a time.

use std::collections::BTreeMap;

use super::exits::Exits;
use super::rank::{Heard, ShellPhase};
use super::timeline::LaunchStage;
use super::timer::LeaderTimer;
use super::{Leader, barrier::Entered};
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::machine::event::StreamId;
use crate::proto::peer::{Order, RankReport, Report, Reports, StreamEnd};
use crate::proto::{BrokerRank, Idset};

impl Leader {
    /// Takes one message of reports about ranks of a stream.
    pub(super) fn read_reports(
        &mut self,
        cx: Context,
        stream: StreamId,
        reports: Reports,
        out: &mut Effects,
    ) {
        let mut exits: Exits = BTreeMap::new();
        let (mut orphans, mut asked_again, mut used) = (Idset::new(), Idset::new(), Idset::new());
        for RankReport { ranks, report } in reports.reports {
            let about = self.leave_stream(stream, &ranks, &report);
            match report {
                Report::Orphaned => orphans = orphans.union(&about),
                Report::Unreachable { end: StreamEnd::AskedAgain } => {
                    asked_again = asked_again.union(&about);
                }
                _ => {
                    if matches!(report, Report::Usage(_)) {
                        used = used.union(&about);
                    }
                    for rank in about.ranks() {
                        self.handle_report(cx, rank, &report, &mut exits, out);
                    }
                }
            }
        }
        self.tell_oom(cx, &used, out);
        if !exits.is_empty() {
            self.handle_exits(cx, &exits, out);
        }
        self.ask_again(cx, &orphans, out);
        self.ask_unless_covered(cx, stream, &asked_again);
    }

    /// Those of the ranks that the stream has led to so far. If the report says so, it leads to them no
    /// longer: a stream that leads nowhere covers nobody.
    fn leave_stream(&mut self, stream: StreamId, ranks: &Idset, report: &Report) -> Idset {
        let Some((_, led_to)) = self.agents.get_mut(&stream) else { return Idset::new() };
        let about = led_to.intersection(ranks);
        if matches!(report, Report::Orphaned | Report::Unreachable { .. }) {
            *led_to = led_to.difference(&about);
        }
        about
    }

    fn handle_report(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        report: &Report,
        exits: &mut Exits,
        out: &mut Effects,
    ) {
        self.listen(cx, rank, report);
        let Some(known) = self.ranks.get_mut(rank) else { return };
        let (is_pending, is_active) = (known.phase == ShellPhase::Pending, known.is_active());
        match report {
            Report::Barrier { entered, found, passed } => {
                self.enter_barrier(cx, rank, (*entered, *found, *passed), out);
            }
            Report::CriticalRanks { ranks } => self.critical = ranks.clone(),
            Report::EndReason(reason) => {
                known.ended_before = true;
                self.handle_reason(cx, reason, out);
            }
            Report::Degraded { .. }
            | Report::Epilog
            | Report::Prepared
            | Report::ScriptFailed { .. } => self.handle_script(cx, rank, report, out),
            Report::Exited { status } if is_active => self.see_exit(rank, *status, exits),
            Report::Failed { errnum, message } if is_pending => {
                self.handle_launch_failure(cx, rank, *errnum, message, out);
                exits.insert(rank, None);
            }
            Report::NeverStarted if is_pending => {
                self.handle_launch_failure(cx, rank, 0, "it was never started", out);
                exits.insert(rank, None);
            }
            Report::Gone => self.set_gone(cx, rank),
            Report::Left => self.handle_left(cx, rank, out),
            Report::LeftOver { processes } => known.left_over = Some(processes.clone()),
            Report::Lost { message } if is_active => {
                if self.lose_shell(cx, rank, message, out) {
                    exits.insert(rank, None);
                }
            }
            Report::Output { stream, offset, data } => {
                self.log_output(cx, (rank, *stream), *offset, data);
            }
            Report::OutputLost { message } => self.log_lost_output(cx, rank, message),
            Report::OutputOverflow { allocated } => self.handle_overflow(cx, rank, *allocated, out),
            Report::OutputTruncated { stream, kept, dropped } => {
                self.log_truncation(cx, (rank, *stream), (*kept, *dropped));
            }
            Report::RecordLost { output } => self.handle_lost_record(cx, rank, *output),
            Report::Running => self.handle_running(cx, rank, out),
            Report::Silent { .. } => self.log_silence(cx, rank, report),
            Report::Unkillable if !known.is_gone() => {
                self.drain_unkillable(cx, &rank.into(), out);
                exits.insert(rank, None);
            }
            Report::Usage(usage) => known.usage = Some(usage.clone()),
            Report::Unreachable { end } => self.handle_unreachable(cx, rank, end, out),
            // Said again, or of a rank of which more is known.
            Report::Exited { .. }
            | Report::Failed { .. }
            | Report::Lost { .. }
            | Report::NeverStarted
            | Report::Orphaned
            | Report::Pending
            | Report::Unkillable => (),
        }
    }

    /// A shell cannot be found any more. Of a job that has failed, one that never was is no loss.
    /// Returns whether it counts as an end.
    fn lose_shell(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        message: &str,
        out: &mut Effects,
    ) -> bool {
        let Some(known) = self.ranks.get_mut(rank) else { return false };
        let was_running = known.has_run();
        known.lost = Some(message.to_string());
        if !was_running && self.release.released().contains_rank(rank) {
            known.set_released();
            // It had ended before the rank was released, and its status is in the eventlog. Only
            // its count in the barrier, and perhaps output, went with its record.
            self.barrier.set_unknown(rank);
            self.log_lost_output(cx, rank, "nothing is known of its shell any more");
            return true;
        }
        known.set_exited(None);
        // If the eventlog says that all shells have ended, its status is the job's.
        let has_ended = self.status.posted.is_some() && !was_running;
        let is_loss = (!self.has_failed() || was_running) && !has_ended;
        if is_loss {
            self.handle_lost(cx, rank, message, out);
        }
        is_loss
    }

    /// Something has come from a rank, or its parent says again that it is away.
    fn listen(&mut self, cx: Context, rank: BrokerRank, report: &Report) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        let was_known = known.is_known();
        let was_away = known.away.take().is_some();
        let is_heard = !matches!(report, Report::Unreachable { .. });
        known.heard = match report {
            Report::Unreachable { .. } => known.heard,
            Report::Pending if self.start.reattach || known.has_run() => Heard::Unsure,
            Report::Pending | Report::Running => Heard::Known,
            // Of a shell that has ended nobody asks whether it is active.
            _ if known.heard == Heard::Unsure => Heard::Unsure,
            _ => Heard::Known,
        };
        let is_known = is_heard && known.is_known();
        if was_away {
            self.timers.succeed(LeaderTimer::Retry);
        }
        if was_away && is_heard {
            self.spare_shells(cx);
        }
        if is_known && !was_known {
            self.allow_time_to_end(cx);
        }
    }

    /// What a rank's shell does is known for the first time, or again. It may hear only now that the
    /// leader shell has ended, and has as long to end as it would have had.
    fn allow_time_to_end(&mut self, cx: Context) {
        if let Some(seconds) = cx.config.shell_exit_timeout
            && self.timers.is_armed(LeaderTimer::ShellExit)
        {
            self.timers.postpone(LeaderTimer::ShellExit, cx.now.mono + seconds);
        }
    }

    /// A shell lives on without its record. It is not known how often it has entered the barrier.
    fn handle_lost_record(&mut self, cx: Context, rank: BrokerRank, output: bool) {
        if self.barrier.set_unknown(rank) {
            // The clock is for shells that do not come, and this one may have come and gone.
            self.stop_barrier_clock();
        }
        if output {
            self.log_lost_output(cx, rank, "its file on the node was lost");
        }
    }

    fn handle_running(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        self.expect_status();
        let Some(known) = self.ranks.get_mut(rank) else { return };
        let is_new = known.set_running();
        if is_new {
            self.reach(cx, LaunchStage::Running, rank);
        }
        if self.is_killing() {
            self.signal_late(cx, rank, out);
        } else if self.failure.is_some() {
            // It was asked for before the job has failed.
            self.abort(cx, out);
        } else if is_new && self.jobspec.mock_exception.as_deref() == Some("starting") {
            self.fail(cx, "mock starting exception generated", out);
        }
    }

    fn enter_barrier(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        (entered, found, passed): (u32, u32, u32),
        out: &mut Effects,
    ) {
        self.barrier.find(rank, found);
        self.barrier.pass(passed);
        if entered == 0 {
            return;
        }
        let before = self.barrier.completed();
        match self.barrier.enter(rank, entered) {
            Entered::Complete(count) => {
                if count > before {
                    self.reach(cx, LaunchStage::Barrier(count), rank);
                }
                self.stop_barrier_clock();
                self.order(self.start.r.ranks(), &Order::Barrier { count, failed: false }, out);
            }
            Entered::Failed => self.fail_barrier(&rank.into(), out),
            Entered::First => {
                let timeout = self.jobspec.barrier_timeout.or(cx.config.barrier_timeout);
                if let Some(seconds) = timeout.filter(|seconds| *seconds > 0.0) {
                    self.start_barrier_clock(cx, seconds);
                }
            }
            Entered::Waiting => (),
        }
    }

    pub(super) fn fail_barrier(&self, ranks: &Idset, out: &mut Effects) {
        let order = Order::Barrier { count: self.barrier.completed(), failed: true };
        self.order(ranks, &order, out);
    }
}

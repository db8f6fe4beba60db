//! The shells' own output, on its way into the exec eventlog.

use super::exec_log::Logged;
use super::{Leader, launch};
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::proto::peer::{LeadNote, Order};
use crate::proto::{BrokerRank, ExecEvent, Idset, Stream};

impl Leader {
    /// A piece of a rank's output.
    pub(super) fn log_output(
        &mut self,
        cx: Context,
        (rank, stream): (BrokerRank, Stream),
        offset: u64,
        data: &[u8],
    ) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        let sent = &mut known.stream_mut(stream).sent;
        let end = offset.saturating_add(data.len() as u64);
        // What a new stream tells again is in the log already.
        let repeated = sent.saturating_sub(offset).min(data.len() as u64) as usize;
        *sent = end.max(*sent);
        let logged = Logged { rank, stream, offset: *sent };
        let data = &data[repeated..];
        let Some(journal) = self.journal.as_mut().filter(|journal| !journal.is_done) else {
            return; // of a rank that was given up, and is back too late
        };
        if data.is_empty() {
            return; // its commit, or the next request's positions, acknowledge it
        }
        let component = launch::component(&self.command);
        let event = ExecEvent::log(cx.now.wall, component, stream, rank, data);
        journal.log.post_output(event, logged);
    }

    /// A shell fills its node's disk, for all jobs there.
    pub(super) fn handle_overflow(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        allocated: u64,
        out: &mut Effects,
    ) {
        if self.state.finish().is_some() {
            return; // its file goes with the job
        }
        let host = self.start.r.hostname(rank);
        let note = format!(
            "job shell output on {host} (rank {rank}) takes {allocated} bytes of disk, more than \
             exec.output-disk-limit"
        );
        self.fail(cx, note, out);
    }

    /// One of a rank's streams was cut off; the log says so once.
    pub(super) fn log_truncation(
        &mut self,
        cx: Context,
        (rank, stream): (BrokerRank, Stream),
        (kept, dropped): (u64, u64),
    ) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        if std::mem::replace(&mut known.stream_mut(stream).truncated, true) {
            return;
        }
        let component = launch::component(&self.command);
        let event = ExecEvent::truncated(cx.now.wall, component, (stream, rank), kept, dropped);
        self.post(event);
    }

    /// A rank was given up before its agent has told all that its shell wrote.
    pub(super) fn log_missing_output(&mut self, cx: Context, rank: BrokerRank) {
        let component = launch::component(&self.command);
        let event =
            ExecEvent::output_missing(cx.now.wall, component, rank, "the node was given up");
        self.post(event);
    }

    /// A rank has lost what its shell wrote; the log says so once.
    pub(super) fn log_lost_output(&mut self, cx: Context, rank: BrokerRank) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        if std::mem::replace(&mut known.output_lost, true) {
            return;
        }
        let component = launch::component(&self.command);
        let why = "its file on the node was lost";
        let event = ExecEvent::output_missing(cx.now.wall, component, rank, why);
        self.post(event);
    }

    /// Output that is in the exec eventlog need not be kept on its node any more.
    pub(super) fn acknowledge(&mut self, logged: Logged, out: &mut Effects) {
        let Logged { rank, stream, offset } = logged;
        if let Some(known) = self.ranks.get_mut(rank) {
            let durable = &mut known.stream_mut(stream).durable;
            *durable = offset.max(*durable);
        }
        let Some(journal) = &mut self.journal else { return };
        let mark = journal.cover.handle_commit(logged);
        let checkpointed = journal.cover.offset(rank, stream);
        if let Some(mark) = mark {
            self.voice.note(LeadNote::Changed { mark }, out);
        }
        let order = Order::Acknowledge { stream, offset, checkpointed };
        self.order(&Idset::from_iter([rank]), &order, out);
    }
}

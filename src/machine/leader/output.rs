//! The shells' own output, on its way into the exec eventlog.

use std::collections::BTreeMap;

use super::exec_log::{Batch, Logged};
use super::{Leader, launch};
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::proto::peer::{Order, Report};
use crate::proto::{BrokerRank, ExecEvent, Stream};

/// How many events one piece of output becomes at most.
const LINES_MAX: usize = 64;

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
        let sent = &mut known.in_log.streams[stream as usize].sent;
        let end = offset.saturating_add(data.len() as u64);
        // What a new stream tells again is in the log already.
        let repeated = sent.saturating_sub(offset).min(data.len() as u64) as usize;
        *sent = end.max(*sent);
        let logged = Logged { rank, stream, offset: *sent };
        let data = &data[repeated..];
        // Else it is of a rank that was given up, and is back too late; or its commit, or the next
        // request's positions, acknowledge it.
        if self.journal.is_closed || data.is_empty() {
            return;
        }
        let component = launch::component(&self.command);
        let mut lines = lines(data).peekable();
        while let Some(line) = lines.next() {
            let event = ExecEvent::log(cx.now.wall, component, stream, rank, line);
            match lines.peek() {
                Some(_) => self.journal.log.post(event),
                None => self.journal.log.post_output(event, logged),
            }
        }
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
        if std::mem::replace(&mut known.in_log.streams[stream as usize].truncated, true) {
            return;
        }
        let component = launch::component(&self.command);
        let event = ExecEvent::truncated(cx.now.wall, component, (stream, rank), kept, dropped);
        self.post(event);
    }

    /// Not all that its shell wrote is going to be in the log.
    pub(super) fn log_missing_output(&mut self, cx: Context, rank: BrokerRank, why: &str) {
        let component = launch::component(&self.command);
        self.post(ExecEvent::output_missing(cx.now.wall, component, rank, why));
    }

    /// A commit is given up. The log says how much of each stream it had, so that the next leader counts
    /// on from there. If this is given up as well, the next commit that is made says it.
    pub(super) fn log_given_up(&mut self, cx: Context, batch: &Batch) {
        if self.journal.is_closed {
            return;
        }
        let mut ends = BTreeMap::new();
        for Logged { rank, stream, offset } in &batch.output {
            let end = ends.entry((*rank, *stream)).or_default();
            *end = (*offset).max(*end);
        }
        let mut missing = batch.missing.clone();
        for ((rank, stream), end) in ends {
            let known = self.ranks.get(rank).map(|known| &known.in_log.streams[stream as usize]);
            let bytes = end.saturating_sub(known.map_or(0, |logged| logged.durable));
            *missing.entry((rank, stream)).or_default() += bytes;
        }
        let component = launch::component(&self.command);
        for ((rank, stream), bytes) in missing {
            let event = ExecEvent::output_given_up(cx.now.wall, component, (stream, rank), bytes);
            self.journal.log.post_missing(event, (rank, stream), bytes);
        }
    }

    /// A rank has lost what its shell wrote; the log says so once.
    pub(super) fn log_lost_output(&mut self, cx: Context, rank: BrokerRank, why: &str) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        if !std::mem::replace(&mut known.in_log.output_lost, true) {
            self.log_missing_output(cx, rank, why);
        }
    }

    /// systemd does not answer on a rank's node; the log says so once.
    pub(super) fn log_silence(&mut self, cx: Context, rank: BrokerRank, report: &Report) {
        let Report::Silent { who, since, message } = report else { return };
        let Some(known) = self.ranks.get_mut(rank) else { return };
        if known.in_log.silent_since.replace(*since) == Some(*since) {
            return;
        }
        let component = launch::component(&self.command);
        let on = (self.start.r.hostname(rank), rank);
        self.post(ExecEvent::silent(cx.now.wall, component, on, *since, (*who, message)));
    }

    /// Output that is in the exec eventlog need not be kept on its node any more.
    pub(super) fn acknowledge(&mut self, logged: Logged, out: &mut Effects) {
        let Logged { rank, stream, offset } = logged;
        if let Some(known) = self.ranks.get_mut(rank) {
            let durable = &mut known.in_log.streams[stream as usize].durable;
            *durable = offset.max(*durable);
        }
        let cover = &mut self.journal.cover;
        self.replies.ask_for_cover(cover.handle_commit(logged), out);
        let checkpointed = cover.offset(rank, stream);
        let order = Order::Acknowledge { stream, offset, checkpointed };
        self.order(&rank.into(), &order, out);
    }
}

/// The lines of a piece of output, as flux-core logs them, the last one perhaps without its end. A
/// line costs an event, so a piece of very many lines is not split as a whole.
fn lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut left) = (data, LINES_MAX);
    std::iter::from_fn(move || {
        left = left.saturating_sub(1);
        let end = rest.iter().position(|byte| *byte == b'\n').filter(|_| left > 0);
        let (line, more) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
        rest = more;
        (!line.is_empty()).then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_split_at_the_ends_of_lines() {
        fn split(output: &str) -> Vec<&str> {
            let text = |line| std::str::from_utf8(line).expect("text");
            lines(output.as_bytes()).map(text).collect()
        }
        assert_eq!(split(""), Vec::<&str>::new());
        assert_eq!(split("a"), ["a"]);
        assert_eq!(split("a\n\nb\n"), ["a\n", "\n", "b\n"]);
        assert_eq!(split("a\nb"), ["a\n", "b"]);
    }

    #[test]
    fn very_many_lines_are_few_events() {
        let many = "x\n".repeat(1000);
        let split: Vec<&[u8]> = lines(many.as_bytes()).collect();
        assert_eq!((split.len(), split.concat().len()), (LINES_MAX, 2000));
    }
}

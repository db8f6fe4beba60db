//! One stream of a shell's own output, on its way from the node to the exec eventlog.

use crate::proto::Stream;
use crate::proto::peer::Report;

/// A line that is longer, in bytes, is sent before its end.
const UNFINISHED_LINE_MAX: usize = 8 * 1024;

/// The bytes that the leader has not acknowledged yet. A new leader is told them again. The
/// supervisor's window bounds them (`OUTPUT_WINDOW_BYTES`).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutputStream {
    stream: Stream,
    /// Offset of `data`'s first byte: all before it is in the exec eventlog.
    acknowledged: u64,
    data: Vec<u8>,
    /// How much of `data` was reported.
    reported: usize,
}

impl OutputStream {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, acknowledged: 0, data: Vec::new(), reported: 0 }
    }

    /// Takes bytes from the supervisor. Bytes that are here already are dropped. A hole is skipped:
    /// the shell has made it, or the KVS has rolled back to before output that was discarded. Returns
    /// what is to be reported of the bytes before the hole, which are not kept.
    pub(super) fn append(&mut self, offset: u64, data: &[u8]) -> Option<Report> {
        let mut rest = None;
        if offset > self.end() {
            rest = self.take(true);
            self.data.clear();
            self.reported = 0;
            self.acknowledged = offset;
        }
        let known = usize::try_from(self.end().saturating_sub(offset)).unwrap_or(usize::MAX);
        self.data.extend_from_slice(data.get(known..).unwrap_or_default());
        rest
    }

    /// Offset of the end of `data`. It saturates: where a leader begins is from the exec eventlog,
    /// in which the job's user can write any number.
    fn end(&self) -> u64 {
        self.acknowledged.saturating_add(self.data.len() as u64)
    }

    /// Takes what is to be reported now: whole lines, or everything when the shell has ended.
    pub(super) fn take(&mut self, everything: bool) -> Option<Report> {
        let fresh = self.data.get(self.reported..).unwrap_or_default();
        let length = match fresh.iter().rposition(|byte| *byte == b'\n') {
            _ if everything || fresh.len() >= UNFINISHED_LINE_MAX => fresh.len(),
            Some(newline) => newline + 1,
            None => 0,
        };
        if length == 0 {
            return None;
        }
        let report = Report::Output {
            stream: self.stream,
            offset: self.acknowledged.saturating_add(self.reported as u64),
            data: fresh[..length].to_vec(),
        };
        self.reported += length;
        Some(report)
    }

    /// The leader has everything up to `offset`.
    pub(super) fn acknowledge(&mut self, offset: u64) {
        let known = usize::try_from(offset.saturating_sub(self.acknowledged))
            .unwrap_or(usize::MAX)
            .min(self.data.len());
        self.data.drain(..known);
        self.reported = self.reported.saturating_sub(known);
        self.acknowledged = self.acknowledged.max(offset);
    }

    /// A new leader has everything up to `offset`, and has to be told the rest.
    pub(super) fn rewind(&mut self, offset: u64) {
        self.acknowledge(offset);
        self.reported = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: Option<Report>) -> Option<(u64, String)> {
        match report {
            Some(Report::Output { offset, data, .. }) => {
                Some((offset, String::from_utf8_lossy(&data).into_owned()))
            }
            _ => None,
        }
    }

    #[test]
    fn lines_go_out_whole_and_the_rest_at_the_end() {
        let mut output = OutputStream::new(Stream::Stdout);
        output.append(0, b"one\ntwo\nthr");
        assert_eq!(text(output.take(false)), Some((0, "one\ntwo\n".into())));
        assert_eq!(text(output.take(false)), None);
        output.append(11, b"ee");
        assert_eq!(text(output.take(true)), Some((8, "three".into())));
    }

    #[test]
    fn a_new_leader_is_told_what_it_lacks_and_nothing_twice() {
        let mut output = OutputStream::new(Stream::Stdout);
        output.append(0, b"one\ntwo\n");
        output.append(4, b"two\nsix\n");
        output.take(false);
        output.acknowledge(4);
        output.rewind(4);
        assert_eq!(text(output.take(false)), Some((4, "two\nsix\n".into())));
        output.rewind(8);
        assert_eq!(text(output.take(false)), Some((8, "six\n".into())));
    }

    #[test]
    fn a_line_that_ends_in_a_hole_is_reported() {
        let mut output = OutputStream::new(Stream::Stdout);
        assert_eq!(output.append(0, b"one\ntwo"), None);
        assert_eq!(text(output.take(false)), Some((0, "one\n".into())));
        assert_eq!(text(output.append(100, b"six\n")), Some((4, "two".into())));
        assert_eq!(text(output.take(false)), Some((100, "six\n".into())));
    }

    #[test]
    fn an_endless_line_is_not_held_back() {
        let mut output = OutputStream::new(Stream::Stderr);
        output.append(0, &[b'x'; UNFINISHED_LINE_MAX]);
        assert!(output.take(false).is_some());
    }

    #[test]
    fn after_a_restart_output_begins_where_the_leader_says() {
        let mut output = OutputStream::new(Stream::Stdout);
        output.rewind(100);
        output.append(100, b"x\n");
        assert_eq!(text(output.take(false)), Some((100, "x\n".into())));
    }
}

//! One unit, as the core sees it.

use crate::port::Note;
use crate::port::supervisor::{ManagerId, SupervisorEvent, UnitEvent, UnitRecord};
use crate::proto::Stream;

use super::backend::Backend;
use super::output::OutputTail;
use super::records::{Fact, RecordFile};

/// What is known about the unit's program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Program {
    /// It has exited; the status is in the record.
    Exited,
    /// The backend looks for it: it may run.
    Finding,
    /// It was started, and the backend cannot find it any more.
    Lost,
    /// It never ran.
    NotStarted,
    /// It runs.
    Running,
    /// The backend starts it.
    Starting,
}

/// How far the unit's removal is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Removal {
    /// Asked for. The backend does it now, or as soon as it has found the unit.
    Asked,
    /// No process is left. There may be output to report.
    Empty,
    /// `Gone` was reported.
    Gone,
    /// Not asked for.
    No,
}

/// A unit with its record, its output and its program.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) file: RecordFile,
    pub(super) record: UnitRecord,
    pub(super) program: Program,
    pub(super) removal: Removal,
    /// How often it was started without a trace of it.
    pub(super) lost_starts: u32,
    /// It was asked for while the record lacks the status: the backend keeps the unit.
    pub(super) is_held: bool,
    stdout: OutputTail,
    stderr: OutputTail,
    /// `OutputOverflow` was reported.
    has_overflowed: bool,
    /// `OutputLost` was reported.
    has_lost_output: bool,
}

impl Unit {
    /// A unit in `program`, not asked to be collected yet.
    pub(super) fn new(
        file: RecordFile,
        record: UnitRecord,
        program: Program,
        stdout: OutputTail,
        stderr: OutputTail,
    ) -> Self {
        Self {
            file,
            record,
            program,
            removal: Removal::No,
            lost_starts: 0,
            is_held: false,
            stdout,
            stderr,
            has_overflowed: false,
            has_lost_output: false,
        }
    }

    /// No process is left. systemd may still have the unit.
    pub(super) fn is_empty(&self) -> bool {
        self.record.gone || matches!(self.removal, Removal::Empty | Removal::Gone)
    }

    /// A process of it may be left that nobody has seen end.
    pub(super) fn may_run(&self) -> bool {
        matches!(self.program, Program::Finding | Program::Running | Program::Starting)
    }

    /// The user manager that was to start it has ended: that it does not know the unit says nothing.
    pub(super) fn has_other_manager(&self, backend: &impl Backend) -> bool {
        ManagerId::differ(self.record.manager, backend.manager())
    }

    /// One of its streams.
    pub(super) fn tail(&mut self, stream: Stream) -> &mut OutputTail {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Report new output of both streams, as far as their windows allow. Returns true if no output
    /// is left.
    pub(super) fn pump(&mut self, sink: &dyn Fn(SupervisorEvent)) -> bool {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(offset) = self.tail(stream).find_emptied() {
                let note = Note::OutputBase { stream, offset };
                let fact = Fact::Note { key: note.key(), value: note.value() };
                self.file.append(&mut self.record, fact);
            }
        }
        let stdout = self.pump_stream(Stream::Stdout, sink);
        let stderr = self.pump_stream(Stream::Stderr, sink);
        let overflow = self.stdout.overflow().max(self.stderr.overflow());
        if let Some(allocated) = overflow.filter(|_| !self.has_overflowed) {
            self.has_overflowed = true;
            let unit = &self.record.spec.unit;
            tracing::error!(%unit, allocated, "a shell's output takes more of the disk than exec.output-disk-limit");
            sink(UnitEvent::OutputOverflow { allocated }.of(unit));
        }
        self.report_lost_output(sink);
        stdout && stderr
    }

    /// Report that output may be missing. What never ran has no files.
    fn report_lost_output(&mut self, sink: &dyn Fn(SupervisorEvent)) {
        let lost = self.stdout.lost().or(self.stderr.lost());
        if let Some(why) = lost.filter(|_| !self.has_lost_output && self.record.started.is_some()) {
            self.has_lost_output = true;
            let message = why.to_string();
            sink(UnitEvent::OutputLost { message }.of(&self.record.spec.unit));
        }
    }

    /// Report which streams were longer than their limit.
    pub(super) fn report_truncated(&self, sink: &dyn Fn(SupervisorEvent)) {
        for (stream, tail) in [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr)] {
            if let Some((kept, dropped)) = tail.truncated() {
                let truncated = UnitEvent::OutputTruncated { stream, kept, dropped };
                sink(truncated.of(&self.record.spec.unit));
            }
        }
    }

    fn pump_stream(&mut self, stream: Stream, sink: &dyn Fn(SupervisorEvent)) -> bool {
        match self.program {
            Program::Exited | Program::Lost | Program::Running => {}
            // Output is never reported before `Started`.
            Program::Finding | Program::NotStarted | Program::Starting => return true,
        }
        let unit = self.record.spec.unit.clone();
        self.tail(stream).pump(&mut |offset, data| {
            sink(UnitEvent::Output { stream, offset, data }.of(&unit));
        })
    }
}

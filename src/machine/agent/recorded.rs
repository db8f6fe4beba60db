//! A unit with a record on this rank: what was seen of it, and what is asked of the supervisor for it.

use crate::machine::effect::{Effect, Effects};
use crate::port::Note;
use crate::port::supervisor::{StartFailure, UnitCommand, UnitEvent, UnitSpec};
use crate::proto::{Stream, UnitName, WaitStatus};

/// One unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recorded {
    name: UnitName,
    seen: Seen,
    wanted: Wanted,
    /// Collected once only: each request is answered, and the name may be another job's by
    /// the time of a second answer.
    is_collected: bool,
}

/// What was seen of it.
///
/// ```text
///  Waiting ──▶ Pending ──▶ Running ──▶ Ended ──▶ Gone
///                 ├──▶ Failed, NeverStarted
///                 └──▶ Ended (it cannot be found)
/// ```
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    /// Nobody has asked for it: its rank's prolog comes first, or those of others.
    Waiting,
    /// Asked for, or found on disk; the supervisor has not said more.
    Pending,
    Running {
        pid: u32,
    },
    /// What it wrote, or has left behind, may still be there.
    Ended(UnitEnd),
    /// Nothing was started.
    Failed(StartFailure),
    /// An earlier life meant to start it, and did not.
    NeverStarted,
    /// Nothing is left of it, and all that it wrote was told.
    Gone(Option<UnitEnd>),
}

/// How a unit that ran has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UnitEnd {
    /// It was started and can't be found.
    Lost(String),
    Status(WaitStatus),
}

/// What is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// That it runs, and what becomes of it.
    Run,
    /// Nothing. Its record goes when nothing of it is left.
    Forget,
    /// Nothing, and its record was to be removed.
    Forgotten,
}

impl Recorded {
    /// One that nobody has asked for.
    pub(super) fn new(name: UnitName) -> Self {
        Self { name, seen: Seen::Waiting, wanted: Wanted::Run, is_collected: false }
    }

    /// From the record of an earlier life. The supervisor says next what became of it.
    pub(super) fn found(name: UnitName) -> Self {
        Self { seen: Seen::Pending, ..Self::new(name) }
    }

    pub(super) fn name(&self) -> &UnitName {
        &self.name
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// What is known of it from elsewhere.
    pub(super) fn set_seen(&mut self, seen: Seen) {
        self.seen = seen;
    }

    /// Takes over what an event says of its life. The status of a unit that has ended is in the
    /// record: what is left of it can go.
    pub(super) fn see(&mut self, event: &UnitEvent, out: &mut Effects) {
        self.seen = match event {
            UnitEvent::Started { pid } if self.seen == Seen::Pending => Seen::Running { pid: *pid },
            UnitEvent::Exited { status } if !self.has_ended() => {
                Seen::Ended(UnitEnd::Status(*status))
            }
            UnitEvent::Lost { message } if !self.has_ended() => {
                Seen::Ended(UnitEnd::Lost(message.clone()))
            }
            UnitEvent::Failed(failure) => Seen::Failed(failure.clone()),
            UnitEvent::NeverStarted => Seen::NeverStarted,
            UnitEvent::Gone => Seen::Gone(self.end().cloned()),
            // It was told before, or comes after the end.
            UnitEvent::Exited { .. } | UnitEvent::Lost { .. } | UnitEvent::Started { .. } => return,
            // They do not change how far its life is.
            UnitEvent::Kept { .. }
            | UnitEvent::Left
            | UnitEvent::LeftOver { .. }
            | UnitEvent::Marked { .. }
            | UnitEvent::Output { .. }
            | UnitEvent::OutputLost { .. }
            | UnitEvent::OutputOverflow { .. }
            | UnitEvent::OutputTruncated { .. }
            | UnitEvent::Stopping
            | UnitEvent::Usage(_) => return,
        };
        if matches!(self.seen, Seen::Ended(_)) {
            self.collect(out);
        }
    }

    /// Nobody has asked for it yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.seen == Seen::Waiting
    }

    /// How it has ended, if it ran.
    pub(super) fn end(&self) -> Option<&UnitEnd> {
        match &self.seen {
            Seen::Ended(end) => Some(end),
            Seen::Gone(end) => end.as_ref(),
            _ => None,
        }
    }

    /// It has ended, or never ran.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.seen, Seen::Waiting | Seen::Pending | Seen::Running { .. })
    }

    /// A process of it may be left on the node, or news of it on its way.
    pub(super) fn may_live(&self) -> bool {
        matches!(self.seen, Seen::Pending | Seen::Running { .. } | Seen::Ended(_))
    }

    /// Nobody wants to hear of it.
    pub(super) fn is_unwanted(&self) -> bool {
        self.wanted != Wanted::Run
    }

    /// Nothing is left, and nobody wants to hear more.
    pub(super) fn is_done(&self) -> bool {
        self.is_unwanted() && !self.may_live()
    }

    /// Asks for it. A shell may have been known from a script's record alone, which does not say
    /// whether it is a guest's: its name can be another one now.
    pub(super) fn launch(&mut self, spec: Box<UnitSpec>, out: &mut Effects) {
        self.name = spec.unit.clone();
        self.seen = Seen::Pending;
        self.command(UnitCommand::Launch(spec), out);
    }

    /// Ends what is left of it.
    pub(super) fn collect(&mut self, out: &mut Effects) {
        if !std::mem::replace(&mut self.is_collected, true) {
            self.command(UnitCommand::Collect, out);
        }
    }

    /// Nobody wants to hear of it any more. [`Self::discard_if_done`] follows.
    pub(super) fn forget(&mut self) {
        if self.wanted == Wanted::Run {
            self.wanted = Wanted::Forget;
        }
    }

    /// Has its record and output files removed. One that was never started in an earlier life has
    /// them, too, when it waits again.
    pub(super) fn discard_if_done(&mut self, out: &mut Effects) {
        if self.wanted == Wanted::Forget && !self.may_live() {
            self.wanted = Wanted::Forgotten;
            self.command(UnitCommand::Forget, out);
        }
    }

    /// Keeps a fact with its record.
    pub(super) fn keep(&self, note: Note, out: &mut Effects) {
        self.command(UnitCommand::Note(note), out);
    }

    pub(super) fn signal(&self, signal: i32, all: bool, out: &mut Effects) {
        self.command(UnitCommand::Signal { signal, all }, out);
    }

    /// Opens the supervisor's window. A checkpoint has what is before `checkpointed`: it may be given
    /// up on the disk.
    pub(super) fn acknowledge(
        &self,
        stream: Stream,
        offset: u64,
        checkpointed: u64,
        out: &mut Effects,
    ) {
        self.command(UnitCommand::OutputAck { stream, offset, checkpointed }, out);
    }

    fn command(&self, command: UnitCommand, out: &mut Effects) {
        out.push(Effect::Unit(self.name.clone(), command));
    }
}

//! The shell that is on a rank, and what is to be done about it.

use super::eviction::Eviction;
use super::shell::Shell;
use crate::machine::context::Context;
use crate::port::supervisor::UnitSpec;
use crate::proto::peer::ShellsRequest;

/// The shell on this rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Occupant {
    pub(super) shell: Shell,
    pub(super) claim: Claim,
    /// The shell, or what it has left behind, is being ended.
    pub(super) eviction: Option<Eviction>,
}

/// Whose shell it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    /// Another job's, which had the same id.
    Foreign(After),
    /// This job's.
    Own,
    /// This job's. If the supervisor finds that an earlier life never started it, this is
    /// launched.
    Unstarted(Box<UnitSpec>),
}

/// What comes when another job's shell is gone.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum After {
    /// This job is over: nothing.
    Nothing,
    /// The other shell could not be ended, and this job was told so.
    Refused,
    /// This request is obeyed.
    Start(Box<ShellsRequest>),
}

impl Occupant {
    pub(super) fn new(shell: Shell, claim: Claim) -> Self {
        Self { shell, claim, eviction: None }
    }

    pub(super) fn is_foreign(&self) -> bool {
        matches!(self.claim, Claim::Foreign(_))
    }

    pub(super) fn next_timeout(&self) -> Option<f64> {
        self.eviction.as_ref().map(Eviction::next_timeout)
    }

    /// What was to be launched if the shell had never been started. More is known of it now.
    pub(super) fn take_unstarted(&mut self) -> Option<Box<UnitSpec>> {
        match std::mem::replace(&mut self.claim, Claim::Own) {
            Claim::Unstarted(spec) => Some(spec),
            claim @ (Claim::Foreign(_) | Claim::Own) => {
                self.claim = claim;
                None
            }
        }
    }

    /// The job is over.
    pub(super) fn start_nothing(&mut self) {
        self.claim = match self.claim {
            Claim::Foreign(_) => Claim::Foreign(After::Nothing),
            Claim::Own | Claim::Unstarted(_) => Claim::Own,
        };
    }

    /// What is left gets a first signal after so many seconds.
    pub(super) fn evict_after(&mut self, first: f64, cx: Context) {
        self.eviction.get_or_insert_with(|| Eviction::start(cx.now.mono, first, cx.config));
    }
}

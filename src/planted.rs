//! Bugs that others really had, to be built in on purpose, one at a time: a simulator that does
//! not find them proves nothing.
//!
//! Only with the feature `planted-bugs`, which no release has; else every question is answered
//! with a constant no.

/// One of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {
    /// After the node has booted again a recorded process id is taken for the shell.
    AdoptionByPid,
    /// A shell that waits in the barrier is counted again when its module comes back.
    BarrierAfterRestart,
    /// A unit is removed before the status that it has is on disk.
    CollectBeforeDurable,
    /// The job's last event does not wait for the output of its shells.
    DoneBeforeOutput,
    /// An ended job is forgotten before a checkpoint holds its end.
    DuplicateStartAfterRollback,
    /// What happened while there was no connection to the bus is not asked for.
    LostSignalAfterReconnect,
    /// A rank is released when its shell has exited, whatever the shell has left behind.
    ReleaseBeforeEmpty,
    /// The unit of another job is taken for one's own because the id is the same.
    ReissuedIdAdopted,
    /// A unit is started before anything on disk says so.
    StartWithoutIntent,
    /// A rank whose broker is gone counts as dead at once, although its shells live on.
    UnknownIsDead,
    /// A guest's shell that nobody wants is asked to end, and is not killed if it does not.
    UnwantedGuestLives,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::AdoptionByPid,
        Self::BarrierAfterRestart,
        Self::CollectBeforeDurable,
        Self::DoneBeforeOutput,
        Self::DuplicateStartAfterRollback,
        Self::LostSignalAfterReconnect,
        Self::ReleaseBeforeEmpty,
        Self::ReissuedIdAdopted,
        Self::StartWithoutIntent,
        Self::UnknownIsDead,
        Self::UnwantedGuestLives,
    ];

    /// This bug is built in.
    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }

    /// This bug is built in.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.with(std::cell::Cell::get) == Some(self)
    }
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Builds a bug in, or none, for what this thread does from now on.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.with(|planted| planted.set(bug));
}

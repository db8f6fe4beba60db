//! Bugs that other programs really had. Tests build them in, one at a time, and check that the
//! simulator finds each. A simulator that finds nothing may be unable to find anything.
//!
//! This needs the feature `planted-bugs`, which no release has. Without it `Bug::is_planted` is
//! always false.

/// A bug that can be built in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {
    /// After the node has booted again, a process with the recorded pid counts as the shell.
    AdoptionByPid,
    /// A rank that is another release fails the job at once.
    AnotherReleaseIsFatal,
    /// A shell that waits in the barrier is counted again when its module is back.
    BarrierAfterRestart,
    /// A new leader fails the barrier before all ranks have said how often their shells have entered,
    /// and does not count what shells have left.
    BarrierJudgedUnheard,
    /// A job may come to CLEANUP while a checkpoint is being prepared.
    CleanupUndelayed,
    /// A unit is collected before its status is on disk.
    CollectBeforeDurable,
    /// Commits that an ended shell has left are not done again after a rollback.
    CommitsOfEndedLost,
    /// A client's commits are for any rank: a broker that unloads its KVS passes them on.
    CommitsPassedOn,
    /// The bus delivers no signals of units, and nobody notices.
    DeafnessUnnoticed,
    /// A job starts on degraded nodes before its eventlog tells of them.
    DegradedUntold,
    /// The end of a job does not wait for the output of its shells.
    DoneBeforeOutput,
    /// A rank is released although the resource module has not answered that it is drained.
    DrainUnawaited,
    /// An ended job is forgotten before a checkpoint holds its end.
    DuplicateStartAfterRollback,
    /// An entry into the barrier counts after a restart although its shell has not said it again.
    EntryBeforeCommits,
    /// An epilog does not wait for the end of the shell.
    EpilogEarly,
    /// Clients of a run that the KVS has forgotten commit to the next run's guest namespace.
    FirstRunWrites,
    /// What the instance has forgotten lives on for `peer-timeout` before anybody asks rank 0 about it.
    ForgottenLives,
    /// Nobody notices that the disk holds the supervisor up.
    HangUnnoticed,
    /// A new coordinator holds a job in CLEANUP that an earlier one holds already.
    HeldAgain,
    /// A checkpoint may have a job in CLEANUP that is not held.
    HoldForgotten,
    /// The end of a unit waits until the disk takes its status.
    LateWaits,
    /// Nobody asks whether a request to another rank, on which nothing has come, was lost.
    LossUnnoticed,
    /// After a reconnect to the bus, the supervisor does not ask what happened meanwhile.
    LostSignalAfterReconnect,
    /// Output that a shell sends to another has no number: nobody notices when it is lost.
    OneWayUnnumbered,
    /// A barrier request that the module of an earlier broker has kept counts as an entry.
    ParkedOutlivesBroker,
    /// A prolog that has ended is run again when its module is back.
    PrologRunTwice,
    /// The exception for which a shell is ended is not written to the shell's record.
    ReasonForgotten,
    /// Another job's unit is adopted because the id is the same.
    ReissuedIdAdopted,
    /// A unit that is over, as its record says, is not removed if systemd still has it.
    RemovalForgotten,
    /// A rank is released when its shell has exited, even if the shell has left processes behind.
    ReleaseBeforeEmpty,
    /// A checkpoint does not wait until the KVS has the release of a job that has ended.
    ReleaseUnawaited,
    /// A rank is released before its epilog has ended.
    ReleaseBeforeEpilog,
    /// A new coordinator does not look up which ranks the job manager has back.
    ReleasedAgain,
    /// A script that goes on after SIGTERM gets SIGKILL.
    ScriptKilled,
    /// A script that was told to end before it was known to run, or by an earlier life of its module,
    /// is not told when it is found.
    ScriptStopLost,
    /// A shell is started when the prolog of its own rank has ended.
    ShellBeforeProlog,
    /// Nobody notices that systemd does not answer.
    SilenceUnnoticed,
    /// A unit is started with an empty record.
    StartWithoutIntent,
    /// The time for which a rank was stopped itself counts as time in which others did not answer.
    StopCounts,
    /// A rank whose broker is gone counts as dead at once, although its shells may live.
    UnknownIsDead,
    /// A unit whose record was lost is left alone.
    UnrecordedIgnored,
    /// A checkpoint counts as made before the disk has it.
    UnsyncedCounts,
    /// A guest's shell that nobody wants gets SIGTERM, and is not killed if it ignores the signal.
    UnwantedGuestLives,
    /// No checkpoint is made for jobs that only wait.
    WaitingForgotten,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Self; 44] = [
        Self::AdoptionByPid,
        Self::AnotherReleaseIsFatal,
        Self::BarrierAfterRestart,
        Self::BarrierJudgedUnheard,
        Self::CleanupUndelayed,
        Self::CollectBeforeDurable,
        Self::CommitsOfEndedLost,
        Self::CommitsPassedOn,
        Self::DeafnessUnnoticed,
        Self::DegradedUntold,
        Self::DoneBeforeOutput,
        Self::DrainUnawaited,
        Self::DuplicateStartAfterRollback,
        Self::EntryBeforeCommits,
        Self::EpilogEarly,
        Self::FirstRunWrites,
        Self::ForgottenLives,
        Self::HangUnnoticed,
        Self::HeldAgain,
        Self::HoldForgotten,
        Self::LateWaits,
        Self::LossUnnoticed,
        Self::LostSignalAfterReconnect,
        Self::OneWayUnnumbered,
        Self::ParkedOutlivesBroker,
        Self::PrologRunTwice,
        Self::ReasonForgotten,
        Self::ReissuedIdAdopted,
        Self::RemovalForgotten,
        Self::ReleaseBeforeEmpty,
        Self::ReleaseBeforeEpilog,
        Self::ReleaseUnawaited,
        Self::ReleasedAgain,
        Self::ScriptKilled,
        Self::ScriptStopLost,
        Self::ShellBeforeProlog,
        Self::SilenceUnnoticed,
        Self::StartWithoutIntent,
        Self::StopCounts,
        Self::UnknownIsDead,
        Self::UnrecordedIgnored,
        Self::UnsyncedCounts,
        Self::UnwantedGuestLives,
        Self::WaitingForgotten,
    ];

    /// This bug is built in.
    #[cfg(not(feature = "planted-bugs"))]
    pub const fn is_planted(self) -> bool {
        false
    }

    /// This bug is built in.
    #[cfg(feature = "planted-bugs")]
    pub fn is_planted(self) -> bool {
        PLANTED.with(std::cell::Cell::get) == Some(self)
    }
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Builds in a bug, or none, for all that this thread does from now on.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.with(|planted| planted.set(bug));
}

//! Kinds of faults.

/// What can go wrong.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum FaultKind {
    /// Rank 0's broker is killed, and so all.
    AllKilled,
    /// A broker other than rank 0's is killed, with all below it in the tree.
    BrokerKilled,
    /// The user bus goes away, with every connection to it.
    BusLost,
    /// A user cancels a job.
    Cancel,
    /// A checkpoint of the KVS fails.
    CheckpointFails,
    /// A wall clock jumps.
    ClockJumps,
    /// A commit to a guest namespace, or opening one, fails.
    CommitFails,
    /// The configuration is replaced.
    ConfigReloaded,
    /// A broker is killed between two effects of one event.
    CrashBetweenEffects,
    /// A broker is killed in the middle of a write to its disk.
    CrashInWrite,
    /// A node's disk is full for a while.
    DiskFull,
    /// A job's time limit is moved.
    ExpirationMoved,
    /// Another user asks for what is not theirs.
    Intruder,
    /// The module of a rank is unloaded, and loaded again.
    ModuleReloaded,
    /// A node is powered off, and boots again.
    NodeRebooted,
    /// A rank does not do anything for a while.
    RankStalls,
    /// systemd can't start a unit.
    StartFails,
    /// systemd takes very long to start a unit.
    StartIsSlow,
    /// The user manager is executed again.
    SystemdReexecuted,
    /// The user manager refuses a call without a good reason.
    SystemdRefuses,
    /// The user manager reads its configuration again.
    SystemdReloaded,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::AllKilled,
        Self::BrokerKilled,
        Self::BusLost,
        Self::Cancel,
        Self::CheckpointFails,
        Self::ClockJumps,
        Self::CommitFails,
        Self::ConfigReloaded,
        Self::CrashBetweenEffects,
        Self::CrashInWrite,
        Self::DiskFull,
        Self::ExpirationMoved,
        Self::Intruder,
        Self::ModuleReloaded,
        Self::NodeRebooted,
        Self::RankStalls,
        Self::StartFails,
        Self::StartIsSlow,
        Self::SystemdReexecuted,
        Self::SystemdRefuses,
        Self::SystemdReloaded,
    ];

    /// It has a rate per second; of the others the probability per occasion is given.
    pub fn is_timed(self) -> bool {
        match self {
            Self::CheckpointFails
            | Self::CommitFails
            | Self::CrashBetweenEffects
            | Self::CrashInWrite
            | Self::StartFails
            | Self::StartIsSlow => false,
            Self::AllKilled
            | Self::BrokerKilled
            | Self::BusLost
            | Self::Cancel
            | Self::ClockJumps
            | Self::ConfigReloaded
            | Self::DiskFull
            | Self::ExpirationMoved
            | Self::Intruder
            | Self::ModuleReloaded
            | Self::NodeRebooted
            | Self::RankStalls
            | Self::SystemdReexecuted
            | Self::SystemdRefuses
            | Self::SystemdReloaded => true,
        }
    }
}

//! Kinds of faults.

/// A kind of fault.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum FaultKind {
    /// Rank 0's broker is killed, and so all brokers.
    AllKilled,
    /// A broker other than rank 0's is killed, with all below it in the tree.
    BrokerKilled,
    /// The user bus of a rank grants few match rules, or none, and does not pass all calls on, for a
    /// while.
    BusIsFull,
    /// The user bus of a rank ends every connection.
    BusLost,
    /// A user cancels a job.
    Cancel,
    /// A checkpoint of the KVS fails.
    CheckpointFails,
    /// The wall clock of a rank jumps.
    ClockJumps,
    /// A commit to an exec eventlog fails, or a guest namespace cannot be opened.
    CommitFails,
    /// All modules get another configuration.
    ConfigReloaded,
    /// A broker is killed between two effects of one event.
    CrashBetweenEffects,
    /// A broker is killed in the middle of a write to its disk.
    CrashInWrite,
    /// A node's disk takes no change for a while: it is read-only, a quota is used up, or it fails.
    DiskFails,
    /// A node's disk is full for a while.
    DiskFull,
    /// A node's disk answers nothing for a while, and holds its supervisor up.
    DiskHangs,
    /// A job's time limit is changed.
    ExpirationMoved,
    /// A guest asks for another user's barrier or critical ranks.
    Intruder,
    /// All brokers are killed when commits that a shell hands over are kept, before it hears of it.
    KilledAtHandover,
    /// A broker other than rank 0's shuts down, and refuses a shell's commit because its KVS is being
    /// unloaded. It passes on what is for any rank, and ends a little later.
    KvsUnloaded,
    /// The kernel kills a process of a shell, because memory is short.
    MemoryShort,
    /// The module of a rank is unloaded, and loaded again.
    ModuleReloaded,
    /// A node is powered off, and boots again.
    NodeRebooted,
    /// Rank 0's node is powered off before a checkpoint that was written is synced, and boots again.
    PowerCutUnsynced,
    /// A rank does not do anything for a while.
    RankStalls,
    /// A rank is stopped for longer than `peer-timeout`, with its supervisor, and goes on.
    RankStops,
    /// A broker is killed, and the records of its rank are lost.
    RecordsLost,
    /// The module of a rank is loaded again as another release, for a while. It and the others
    /// refuse each other's requests.
    Replaced,
    /// Rank 0's resource module is away for a while: it drains no ranks.
    ResourceAway,
    /// systemd cannot execute a unit's program.
    StartFails,
    /// systemd takes very long to start a unit.
    StartIsSlow,
    /// A broker is killed, and the records and the output of its rank are lost.
    StateLost,
    /// Somebody removes the records and the output of a rank, while its module may run.
    StateSwept,
    /// The user manager is killed, with all that runs under it, and another one is started.
    SystemdEnds,
    /// The user manager takes calls, and answers none, for a while. Some it does not carry out either.
    SystemdHangs,
    /// The user manager is executed again.
    SystemdReexecuted,
    /// The user manager refuses a call without a good reason.
    SystemdRefuses,
    /// The user manager reads its configuration again.
    SystemdReloaded,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 36] = [
        Self::AllKilled,
        Self::BrokerKilled,
        Self::BusIsFull,
        Self::BusLost,
        Self::Cancel,
        Self::CheckpointFails,
        Self::ClockJumps,
        Self::CommitFails,
        Self::ConfigReloaded,
        Self::CrashBetweenEffects,
        Self::CrashInWrite,
        Self::DiskFails,
        Self::DiskFull,
        Self::DiskHangs,
        Self::ExpirationMoved,
        Self::Intruder,
        Self::KilledAtHandover,
        Self::KvsUnloaded,
        Self::MemoryShort,
        Self::ModuleReloaded,
        Self::NodeRebooted,
        Self::PowerCutUnsynced,
        Self::RankStalls,
        Self::RankStops,
        Self::RecordsLost,
        Self::Replaced,
        Self::ResourceAway,
        Self::StartFails,
        Self::StartIsSlow,
        Self::StateLost,
        Self::StateSwept,
        Self::SystemdEnds,
        Self::SystemdHangs,
        Self::SystemdReexecuted,
        Self::SystemdRefuses,
        Self::SystemdReloaded,
    ];

    /// Whether the profile's rate is per second. For other kinds it is the probability at each
    /// occasion.
    pub fn is_timed(self) -> bool {
        match self {
            Self::CheckpointFails
            | Self::CommitFails
            | Self::CrashBetweenEffects
            | Self::CrashInWrite
            | Self::KilledAtHandover
            | Self::KvsUnloaded
            | Self::PowerCutUnsynced
            | Self::StartFails
            | Self::StartIsSlow => false,
            Self::AllKilled
            | Self::BrokerKilled
            | Self::BusIsFull
            | Self::BusLost
            | Self::Cancel
            | Self::ClockJumps
            | Self::ConfigReloaded
            | Self::DiskFails
            | Self::DiskFull
            | Self::DiskHangs
            | Self::ExpirationMoved
            | Self::Intruder
            | Self::MemoryShort
            | Self::ModuleReloaded
            | Self::NodeRebooted
            | Self::RankStalls
            | Self::RankStops
            | Self::RecordsLost
            | Self::Replaced
            | Self::ResourceAway
            | Self::StateLost
            | Self::StateSwept
            | Self::SystemdEnds
            | Self::SystemdHangs
            | Self::SystemdReexecuted
            | Self::SystemdRefuses
            | Self::SystemdReloaded => true,
        }
    }
}

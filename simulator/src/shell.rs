//! A job's shell as the node's kernel sees it. Oracles compare what the service says with this.

use std::collections::{BTreeMap, BTreeSet};

use job_exec_rs::proto::{UnitName, WaitStatus};

/// What a shell says to the other shells of its job, and what it hears of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Talk {
    /// How many requests it has sent to each rank. They have numbers from 0 on.
    pub(super) sent: BTreeMap<u32, u32>,
    /// Its requests that wait for an answer: the rank and the number, by matchtag.
    pub(super) asked: BTreeMap<u32, (u32, u32)>,
    /// The number of the next request that it should hear from each shell.
    pub(super) heard: BTreeMap<ShellId, u32>,
    /// Ranks whose shells have said that their tasks have ended.
    pub(super) ended: BTreeSet<u32>,
    /// Whether it has said so itself. Then it asks and says nothing more.
    pub(super) is_over: bool,
    /// What it has answered: who has asked, and the number of the request.
    pub(super) answered: BTreeSet<(ShellId, u32)>,
    /// The status with which it will end when it has heard all that it waits for.
    pub(super) ending: Option<WaitStatus>,
}

/// One execution of a shell.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    pub(super) unit: UnitName,
    /// systemd's invocation id of this start of the unit.
    pub(super) invocation: String,
    /// The digest of the job that it was started for.
    pub(super) digest: String,
    /// What it connects to.
    pub(super) uri: String,
    /// When the last job before it got its resources.
    pub(super) last_allocation: f64,
    pub(super) exited: Option<WaitStatus>,
    /// When the last of its processes ended.
    pub(super) ended_at: f64,
    /// Whether a process that it left behind still lives.
    pub(super) leftover: bool,
    /// Whether systemd knows nothing of it any more: its node was powered off since it was executed, or
    /// its user manager was killed.
    pub(super) unit_lost: bool,
    /// How many of its processes the kernel has killed because memory was short.
    pub(super) oom_kills: u64,
    /// Whether its node was powered off since it was executed.
    pub(super) before_reboot: bool,
    /// Whether it, or the process that it left behind, ended because its node was
    /// powered off, or its user manager was killed.
    pub(super) lost_with_manager: bool,
    /// Whether its record was damaged when its node was powered off, or was lost when systemd did not
    /// have its unit any more. Nothing on the node says then that it has run.
    pub(super) record_damaged: bool,
    /// Whether its record was lost, and its unit was not found since.
    pub(super) record_lost: bool,
    /// Whether the record of its job there was lost at any time. It has held these commits.
    pub(super) commits_lost: bool,
    /// What it has written to its standard output.
    pub(super) output: Vec<u8>,
    /// The type of the fatal exception for which it got a signal.
    pub(super) ended_for: Option<String>,
    /// Whether it ignores SIGTERM. A guest's shell that is deaf ends only when its IMP kills it.
    pub(super) deaf: bool,
    /// The status with which a guest's shell has ended, while its IMP waits for processes that the
    /// shell left behind.
    pub(super) awaited: Option<WaitStatus>,
    /// How often the KVS had gone back when it was executed.
    pub(super) rollbacks: u32,
    /// It enters the barrier when its last commit is answered.
    pub(super) comes: bool,
    /// How many of its lines were answered before each of its entries into the barrier.
    pub(super) done_before: Vec<u32>,
    /// How often it entered the barrier, and how often it left it.
    pub(super) entered: u32,
    pub(super) released: u32,
    /// Who had left the barrier at which it was refused.
    pub(super) refused_after: Option<String>,
    /// How many lines it has sent to its job's guest namespace, and how many of these were answered
    /// with success.
    pub(super) lines_sent: u32,
    pub(super) lines_done: u32,
    /// Numbers of the lines that the KVS refused, because the job's namespace did not exist again
    /// when the shell was started.
    pub(super) lines_refused: Vec<u32>,
    /// Its messages to and from the other shells of its job.
    pub(super) talk: Talk,
    /// The status with which it will end. It has given its service up.
    pub(super) leaving: Option<WaitStatus>,
    /// Its broker has answered that.
    pub(super) is_unregistered: bool,
    /// The status with which it will end when it has closed its connection.
    pub(super) closing: Option<WaitStatus>,
    /// When it began to close its connection.
    pub(super) closing_at: f64,
    /// For how long it has waited for others before it closed its connection.
    pub(super) lingered: f64,
    /// It has closed its connection before it ended: it was not killed.
    pub(super) has_closed: bool,
}

impl Shell {
    pub(super) fn new(unit: UnitName, invocation: String, digest: String, deaf: bool) -> Self {
        Self {
            unit,
            invocation,
            digest,
            uri: String::new(),
            last_allocation: 0.0,
            exited: None,
            ended_at: 0.0,
            leftover: false,
            unit_lost: false,
            oom_kills: 0,
            before_reboot: false,
            lost_with_manager: false,
            record_damaged: false,
            record_lost: false,
            commits_lost: false,
            output: Vec::new(),
            ended_for: None,
            deaf,
            awaited: None,
            rollbacks: 0,
            comes: false,
            done_before: Vec::new(),
            entered: 0,
            released: 0,
            refused_after: None,
            lines_sent: 0,
            lines_done: 0,
            lines_refused: Vec::new(),
            talk: Talk::default(),
            leaving: None,
            is_unregistered: false,
            closing: None,
            closing_at: 0.0,
            lingered: 0.0,
            has_closed: false,
        }
    }

    /// How it signs the lines that it commits.
    pub(super) fn writer(&self) -> String {
        format!("{}/{}", self.unit, self.invocation)
    }

    /// Whether it is a guest's shell. It then runs under the IMP, which is the unit's main process.
    pub(super) fn is_guests(&self) -> bool {
        self.unit.is_multiuser()
    }

    /// Whether the shell itself runs.
    pub(super) fn runs(&self) -> bool {
        self.exited.is_none() && !self.lost_with_manager
    }

    /// Whether it still does something: it is not about to end.
    pub(super) fn works(&self) -> bool {
        self.runs() && self.closing.is_none()
    }

    /// Whether a process of it is left on the node.
    pub(super) fn lives(&self) -> bool {
        self.runs() || (self.leftover && !self.lost_with_manager)
    }
}

/// A shell's rank, and its index in [`Rank::shells`](super::rank::Rank::shells).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct ShellId {
    pub(super) rank: u32,
    pub(super) index: usize,
}

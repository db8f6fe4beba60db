//! A job's shell as the node's kernel sees it: the truth that oracles compare with.

use crate::proto::{UnitName, WaitStatus};

/// One execution of a shell.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    pub(super) unit: UnitName,
    /// systemd's name for this start of the unit.
    pub(super) invocation: String,
    /// The job that it was started for.
    pub(super) digest: String,
    pub(super) exited: Option<WaitStatus>,
    /// What it left behind is still there.
    pub(super) leftover: bool,
    /// Its node has been powered off since it was executed.
    pub(super) before_reboot: bool,
    /// It went with its node.
    pub(super) lost_with_node: bool,
    /// Its node was powered off, and its record took damage.
    pub(super) record_damaged: bool,
    /// What it has written to its standard output.
    pub(super) output: Vec<u8>,
    /// Ignores SIGTERM; that of a guest, whatever comes from others than the IMP.
    pub(super) deaf: bool,
    /// Has ended so, and its IMP waits for what it has left behind.
    pub(super) awaited: Option<WaitStatus>,
    /// Times it entered the barrier, and was let go.
    pub(super) entered: u32,
    pub(super) released: u32,
    /// Lines that it has sent to its job's guest namespace, and those that it was told are done.
    pub(super) lines_sent: u32,
    pub(super) lines_done: u32,
    /// Those that the KVS would not have: the shell was started before its job's namespace was
    /// there again.
    pub(super) lines_refused: Vec<u32>,
    /// Which broker ran on rank 0 when the shell ended, if the shell was connected then.
    pub(super) ended_with_broker: Option<u32>,
}

impl Shell {
    pub(super) fn new(unit: UnitName, invocation: String, digest: String, deaf: bool) -> Self {
        Self {
            unit,
            invocation,
            digest,
            exited: None,
            leftover: false,
            before_reboot: false,
            lost_with_node: false,
            record_damaged: false,
            output: Vec::new(),
            deaf,
            awaited: None,
            entered: 0,
            released: 0,
            lines_sent: 0,
            lines_done: 0,
            lines_refused: Vec::new(),
            ended_with_broker: None,
        }
    }

    /// It runs under the IMP, which is the unit's main process.
    pub(super) fn is_guests(&self) -> bool {
        self.unit.is_multiuser()
    }

    /// The shell itself runs.
    pub(super) fn runs(&self) -> bool {
        self.exited.is_none() && !self.lost_with_node
    }

    /// A process of it is left on the node.
    pub(super) fn lives(&self) -> bool {
        self.runs() || (self.leftover && !self.lost_with_node)
    }
}

/// Which shell, on which rank.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct ShellId {
    pub(super) rank: u32,
    pub(super) index: usize,
}

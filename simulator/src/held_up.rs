//! What happens to a disk later, and what waits while it does not answer.

use job_exec_rs::port::supervisor::UnitCommand;
use job_exec_rs::proto::UnitName;
use job_exec_rs::supervisor::tracker::News;

use crate::request::Life;

/// What happens to a rank's disk, or because of it.
pub(crate) enum DiskItem {
    /// It answers again.
    Answers(u32),
    /// It takes all that is written.
    Freed(u32),
    /// The module looks whether it holds the supervisor up.
    Looked(Life),
    /// The supervisor tries again what it has not taken.
    Tried(u32),
}

/// What waits for a supervisor that is held up.
pub(crate) enum HeldUp {
    /// A command of its node.
    Command(UnitName, UnitCommand),
    /// Output files have grown.
    Growth,
    /// News of systemd, on this connection.
    News(u64, News),
}

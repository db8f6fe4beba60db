//! What does not answer on a node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What does not answer on a node, so that nothing is known of the node's units.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mute {
    /// The disk with the records: the supervisor's thread is held up in a call to it.
    Disk,
    /// systemd, or the bus.
    #[default]
    Systemd,
}

impl Mute {
    /// Whether it is systemd, which is not said in messages.
    pub fn is_systemd(&self) -> bool {
        *self == Self::Systemd
    }
}

impl fmt::Display for Mute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk",
            Self::Systemd => "systemd",
        })
    }
}

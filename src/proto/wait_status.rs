//! Wait statuses, raw as wait(2) gives them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A raw wait(2) status. RFC 32's `finish` has the largest one of all shells.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct WaitStatus(pub i32);

impl WaitStatus {
    /// An exit with `code`, 0 to 255.
    pub fn exited(code: i32) -> Self {
        Self((code & 0xff) << 8)
    }

    /// An end by signal `signal`.
    pub fn signaled(signal: i32) -> Self {
        Self(signal & 0x7f)
    }

    /// The exit code, if it exited.
    pub fn code(self) -> Option<i32> {
        (self.0 & 0x7f == 0).then_some((self.0 >> 8) & 0xff)
    }

    /// The signal, if one ended it.
    pub fn signal(self) -> Option<i32> {
        let signal = self.0 & 0x7f;
        (signal != 0 && signal != 0x7f).then_some(signal)
    }

    /// The status as a shell would report it for its task: an exit with the exit code, or with 128
    /// plus the signal. (RFC 32, `finish` with an exception's `wait_status`.)
    pub fn to_shell_exit(self) -> Self {
        match (self.code(), self.signal()) {
            (Some(code), _) => Self::exited(code),
            (None, Some(signal)) => Self::exited(128 + signal),
            (None, None) => Self::exited(1),
        }
    }
}

impl fmt::Display for WaitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code(), self.signal()) {
            (Some(code), _) => write!(f, "exit {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => write!(f, "wait status {:#x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(WaitStatus::exited(1), WaitStatus(256));
        assert_eq!(WaitStatus::exited(3).code(), Some(3));
        assert_eq!(WaitStatus::signaled(9).signal(), Some(9));
        assert_eq!(WaitStatus::signaled(9).code(), None);
        assert_eq!(WaitStatus::signaled(15).to_shell_exit(), WaitStatus::exited(143));
        assert_eq!(WaitStatus(0x8b).signal(), Some(11), "core dumped");
    }
}

//! Why systemd cannot be reached.

/// Why systemd cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemdError {
    /// There is a bus, but systemd is not on it.
    #[error("the user bus at {address} has no systemd on it: {why}")]
    Absent {
        /// Address that was tried.
        address: String,
        /// What the bus said.
        why: String,
    },
    /// Units would run on all CPUs.
    #[error("{why}")]
    CannotConfine {
        /// Why it cannot confine them.
        why: String,
    },
    /// There is no bus at the address.
    #[error("cannot connect to the user bus at {address}: {source}")]
    Connect {
        /// Address that was tried.
        address: String,
        /// What went wrong.
        source: zbus::Error,
    },
    /// There is a socket, but nobody answers.
    #[error("the user bus at {address} did not answer within {seconds} s")]
    Timeout {
        /// Address that was tried.
        address: String,
        /// How long was waited.
        seconds: u64,
    },
}

impl SystemdError {
    /// It can work a moment later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Absent { .. } | Self::Connect { .. } | Self::Timeout { .. } => true,
            Self::CannotConfine { .. } => false,
        }
    }
}

//! Why systemd cannot be reached.

use crate::proto::{OLDEST_SYSTEMD, systemd_number};

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
    /// It does not know all properties of a shell's unit.
    #[error(
        "systemd {version} is too old: units need systemd {OLDEST_SYSTEMD} or later, on cgroup v2"
    )]
    TooOld {
        /// As it tells it.
        version: String,
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
            Self::CannotConfine { .. } | Self::TooOld { .. } => false,
        }
    }
}

/// Refuse a systemd that cannot start a shell's unit. One whose version cannot be read is none.
pub(super) fn check_version(version: String) -> Result<(), SystemdError> {
    match systemd_number(&version) {
        Some(number) if number < OLDEST_SYSTEMD => Err(SystemdError::TooOld { version }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_systemd_that_is_too_old_is_refused_with_what_is_needed() {
        for version in ["252.39-1~deb12u1", "243", "262.1", "", "what"] {
            assert!(check_version(version.to_string()).is_ok(), "{version}");
        }
        let error = check_version("239 (239-82.el8)".to_string()).unwrap_err();
        let said =
            "systemd 239 (239-82.el8) is too old: units need systemd 243 or later, on cgroup v2";
        assert_eq!(error.to_string(), said);
        assert!(!error.may_pass());
    }
}

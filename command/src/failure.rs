//! Errors of the command line.

use std::io::Error;

/// Why a command has failed, as a message for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(pub(super) String);

impl Failure {
    /// Nobody reads what is written to stdout any more, as after `| head`.
    pub(super) fn is_reader_gone(&self) -> bool {
        self.0 == format!("stdout: {}", Error::from_raw_os_error(libc::EPIPE))
    }

    pub(super) fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

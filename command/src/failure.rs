//! Errors of the command line.

use std::io::Error;

/// Why a command has failed, as a message for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// Nobody reads what is written to stdout any more, as after `| head`.
    pub fn is_reader_gone(&self) -> bool {
        self.0 == format!("stdout: {}", Error::from_raw_os_error(libc::EPIPE))
    }

    /// Of an error of any kind.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

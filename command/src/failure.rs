//! Errors of the command line.

use std::io::{Error, Write};
use std::process::ExitCode;

/// The status that a shell shows for SIGPIPE.
pub const READER_GONE: u8 = 141;

/// Why a command has failed, as a message for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// Says so on stderr. Returns the program's exit status. Nothing is said if nobody reads what is
    /// written to stdout any more, as after `| head`.
    pub fn end(&self, program: &str) -> ExitCode {
        if self.0 == format!("stdout: {}", Error::from_raw_os_error(libc::EPIPE)) {
            return ExitCode::from(READER_GONE);
        }
        // Without stderr only the exit status can tell.
        let _ = writeln!(std::io::stderr(), "{program}: {self}");
        ExitCode::FAILURE
    }

    /// Of an error of any kind.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

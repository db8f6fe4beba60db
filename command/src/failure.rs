//! Errors of the command line.

/// Why a command has failed, as a message for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(pub(super) String);

impl Failure {
    pub(super) fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

//! Messages between the modules of an instance: coordinator, leader and agents.
//!
//! Every request begins with its [`Version`]. A request of another version is refused, and the
//! error names both versions (`rfc/0002-messages.md`).

use serde::Deserialize;
use serde::de::DeserializeOwned;

mod end;
mod known;
mod lead;
mod report;
mod shells;
mod stream_name;
mod version;

pub use end::StreamEnd;
pub use known::{KnownAnswer, KnownRequest, Question};
pub use lead::{CoveredRequest, LeadNote, LeadReply, LeadRequest};
pub use report::{RankReport, Report, Reports, left_reason, unkillable_reason};
pub use shells::{Mode, Order, OrderRequest, OutputPosition, ShellCommand, ShellsRequest};
pub use stream_name::StreamName;
pub use version::Version;

/// Version of these messages.
pub const VERSION: u32 = if cfg!(feature = "next-release") { 8 } else { 7 };

/// A message of another module that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// The message has this version, and is wrong.
    #[error("malformed message of another job-exec-rs: {0}")]
    Malformed(String),
    /// The message has no version.
    #[error("message of another job-exec-rs has no version")]
    NoVersion,
    /// The message has another version.
    #[error(
        "another job-exec-rs speaks protocol {met}, this one speaks {VERSION}: load the \
         same release on every rank"
    )]
    Version {
        /// The version of the message.
        met: u64,
    },
}

/// Reads a peer's request.
///
/// # Errors
/// If the request has another version or is malformed. The text is for the peer and the
/// job's owner.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, PeerError> {
    #[derive(Deserialize)]
    struct Met {
        version: u64,
    }
    serde_json::from_slice(payload).map_err(|error| match serde_json::from_slice::<Met>(payload) {
        Ok(Met { version }) if version == u64::from(VERSION) => {
            PeerError::Malformed(error.to_string())
        }
        Ok(Met { version: met }) => PeerError::Version { met },
        Err(_) => PeerError::NoVersion,
    })
}

#[cfg(test)]
mod tests;

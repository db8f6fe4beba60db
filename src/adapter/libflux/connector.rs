//! Finds out whether shells can use the resume connector, whose connections outlive their broker.

use std::ffi::c_char;
use std::io;

use flux_sys::libflux;

use super::text::{cstring, string};

/// The scheme of the resume connector, by which libflux finds it.
const SCHEME: &str = "resume";

/// Why shells cannot use the resume connector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// libflux does not find the connector, or it does not work with this flux-core.
    #[error("{why}")]
    Connect {
        /// What libflux says.
        why: String,
    },
    /// The broker's `local-uri` is not of the connector `local`, which the resume connector
    /// replaces.
    #[error("{uri} is no local URI")]
    NotLocal {
        /// The broker's `local-uri`.
        uri: String,
    },
    /// Another broker answers there.
    #[error("{uri} leads to rank {found}, not to {expected}")]
    OtherRank {
        /// The URI for shells.
        uri: String,
        /// Who answers.
        found: u32,
        /// Who should.
        expected: u32,
    },
    /// The broker behind the connector does not tell its rank.
    #[error("{uri}: {error}")]
    Rank {
        /// The URI for shells.
        uri: String,
        /// Why not.
        error: io::Error,
    },
}

/// Connects through the resume connector to the broker with this `local-uri`, asks it for its
/// rank, and returns the URI for shells.
///
/// # Errors
/// If the connector is not installed, or if that broker does not answer through it.
pub fn resume_uri(local_uri: &str, rank: u32) -> Result<String, ResumeError> {
    let path = local_uri.strip_prefix("local://");
    let path = path.ok_or_else(|| ResumeError::NotLocal { uri: local_uri.to_string() })?;
    let uri = format!("{SCHEME}://{path}?rank={rank}&broker={}", std::process::id());
    match rank_behind(&uri)? {
        found if found == rank => Ok(uri),
        found => Err(ResumeError::OtherRank { uri, found, expected: rank }),
    }
}

fn rank_behind(uri: &str) -> Result<u32, ResumeError> {
    let text = cstring(uri);
    let mut error = flux_sys::flux_error_t { text: [0; 160] };
    // SAFETY: text and error outlive the call.
    let handle = unsafe { libflux().flux_open_ex(text.as_ptr(), 0, &mut error) };
    if handle.is_null() {
        let why: *const c_char = error.text.as_ptr();
        // SAFETY: libflux leaves a text in it.
        let why = unsafe { string(why) }.unwrap_or_default();
        return Err(ResumeError::Connect { why });
    }
    let mut rank = 0;
    // SAFETY: the handle is ours; `rank` outlives the call.
    let result = if unsafe { libflux().flux_get_rank(handle, &mut rank) } < 0 {
        Err(ResumeError::Rank { uri: uri.to_string(), error: io::Error::last_os_error() })
    } else {
        Ok(rank)
    };
    // SAFETY: ours, and not used again.
    unsafe { libflux().flux_close(handle) };
    result
}

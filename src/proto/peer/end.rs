//! Why a stream between two modules has ended.

use serde::{Deserialize, Serialize};

/// The end of a stream between two modules. An error response ends the stream, with a different
/// errno for each reason, so that both sides see the same reason.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum StreamEnd {
    /// The same leader has asked this rank again, and the newer request counts (`ECANCELED`).
    #[error("the same leader has asked again")]
    AskedAgain,
    /// The broker of the rank is gone (`EHOSTUNREACH`).
    #[error("No route to host")]
    BrokerGone,
    /// Anything else: the errno and text of an error response.
    #[error("{message}")]
    Failed {
        /// POSIX errno; none of those of the other variants.
        errnum: i32,
        /// The error text.
        message: String,
    },
    /// The job is over, because the leader has said so (`ENODATA`).
    #[error("the job has ended")]
    Forgotten,
    /// The peer cannot read the request: it is another release (`EPROTO`). While a new release is
    /// loaded, one rank after the other, this is so for a while.
    #[error("{reason}")]
    Incompatible {
        /// In the peer's words.
        reason: String,
    },
    /// The module is not loaded there (`ENOSYS`).
    #[error("{reason}")]
    NotLoaded {
        /// In the broker's words.
        reason: String,
    },
    /// The agent has found that its parent does not have the job any more (`ENOLINK`).
    #[error("its parent does not have the job")]
    ParentGone,
    /// A later leader, or another coordinator, has taken over, or the rank was told that the job
    /// is over (`ESTALE`).
    #[error("{by}")]
    Superseded {
        /// Who has taken over, in words.
        by: String,
    },
    /// The module is being unloaded there (`ECONNRESET`).
    #[error("job-exec-rs is being unloaded there")]
    Unloaded,
}

impl StreamEnd {
    /// A later leader has taken over.
    pub fn superseded(by: &str) -> Self {
        Self::Superseded { by: by.to_string() }
    }

    /// In the words of a peer that is another release.
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Incompatible { reason } => Some(reason.clone()),
            _ => None,
        }
    }

    /// Reads an error response.
    pub fn from_error(errnum: i32, message: String) -> Self {
        match errnum {
            libc::ECANCELED => Self::AskedAgain,
            libc::EHOSTUNREACH => Self::BrokerGone,
            libc::ENODATA => Self::Forgotten,
            libc::EPROTO => Self::Incompatible { reason: message },
            libc::ENOSYS => Self::NotLoaded { reason: message },
            libc::ENOLINK => Self::ParentGone,
            libc::ESTALE => Self::Superseded { by: message },
            libc::ECONNRESET => Self::Unloaded,
            errnum => Self::Failed { errnum, message },
        }
    }

    /// The errno of the error response. The response has the text of `Display`.
    pub fn errnum(&self) -> i32 {
        match self {
            Self::AskedAgain => libc::ECANCELED,
            Self::BrokerGone => libc::EHOSTUNREACH,
            Self::Failed { errnum, .. } => *errnum,
            Self::Forgotten => libc::ENODATA,
            Self::Incompatible { .. } => libc::EPROTO,
            Self::NotLoaded { .. } => libc::ENOSYS,
            Self::ParentGone => libc::ENOLINK,
            Self::Superseded { .. } => libc::ESTALE,
            Self::Unloaded => libc::ECONNRESET,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_survives_an_error_response() {
        let text = |text: &str| text.to_string();
        for end in [
            StreamEnd::AskedAgain,
            StreamEnd::BrokerGone,
            StreamEnd::Failed { errnum: libc::EIO, message: text("broken") },
            StreamEnd::Forgotten,
            StreamEnd::Incompatible { reason: text("protocol 9") },
            StreamEnd::NotLoaded { reason: text("no such service") },
            StreamEnd::ParentGone,
            StreamEnd::superseded("another leader has taken over"),
            StreamEnd::Unloaded,
        ] {
            assert_eq!(StreamEnd::from_error(end.errnum(), end.to_string()), end);
        }
    }
}

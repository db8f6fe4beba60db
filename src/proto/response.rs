//! RFC 32 responses to `job-exec.start`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{Idset, JobId, WaitStatus};

/// A job exception as the execution service raises it (RFC 21).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Exception {
    /// 0 is fatal.
    pub severity: i32,
    /// RFC 21 exception type: `exec`, `timeout`, `node-failure`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A text for users.
    pub note: String,
}

impl Exception {
    /// RFC 21 severity of an exception with which the job can go on.
    pub const SURVIVABLE: i32 = 2;

    /// A fatal exception of type `exec`.
    pub fn fatal(note: impl Into<String>) -> Self {
        Self { severity: 0, kind: "exec".to_string(), note: note.into() }
    }

    /// An exception with which the job can go on.
    pub fn survivable(kind: &str, note: impl Into<String>) -> Self {
        Self { severity: Self::SURVIVABLE, kind: kind.to_string(), note: note.into() }
    }
}

/// Ranks of a release: an RFC 22 idset, or `all` if one response releases the whole of R. flux-core
/// sends `all`, and every reader of the job's eventlog knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReleasedRanks {
    /// The whole of R.
    All,
    /// These ranks.
    These(Idset),
}

impl fmt::Display for ReleasedRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::These(ranks) => ranks.fmt(f),
        }
    }
}

impl Serialize for ReleasedRanks {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReleasedRanks {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match String::deserialize(input)?.as_str() {
            "all" => Ok(Self::All),
            ranks => ranks.parse().map(Self::These).map_err(serde::de::Error::custom),
        }
    }
}

/// One response of the `job-exec.start` stream.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "lowercase")]
pub enum Response {
    /// Raise an exception on the job.
    Exception(Exception),
    /// All shells have ended.
    Finish {
        /// The largest wait status of all shells.
        status: WaitStatus,
    },
    /// The shells of a running job were found again.
    Reattached {},
    /// Give resources back.
    Release {
        /// The ranks.
        ranks: ReleasedRanks,
        /// Whether this is the end of the stream.
        #[serde(rename = "final")]
        is_final: bool,
    },
    /// All shells have started.
    Start {},
}

impl Response {
    /// Whether the job manager takes the job to CLEANUP when it gets this.
    pub fn is_end_of_run(&self) -> bool {
        match self {
            Self::Exception(exception) => exception.severity == 0,
            Self::Finish { .. } => true,
            Self::Reattached {} | Self::Release { .. } | Self::Start {} => false,
        }
    }

    /// The payload with the job id that RFC 32 matches responses by.
    pub fn encode(&self, id: JobId) -> Value {
        let mut payload = json!(self);
        payload["id"] = json!(id);
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_follow_rfc_32() {
        let id = JobId(42);
        let encode = |response: Response| response.encode(id);
        assert_eq!(encode(Response::Start {}), json!({"id": 42, "type": "start", "data": {}}));
        assert_eq!(
            encode(Response::Release {
                ranks: ReleasedRanks::These(Idset::from_range(0..3)),
                is_final: true
            }),
            json!({"id": 42, "type": "release", "data": {"ranks": "0-2", "final": true}})
        );
        assert_eq!(
            encode(Response::Finish { status: WaitStatus(256) }),
            json!({"id": 42, "type": "finish", "data": {"status": 256}})
        );
        assert_eq!(
            encode(Response::Exception(Exception::fatal("no"))),
            json!({"id": 42, "type": "exception",
                   "data": {"severity": 0, "type": "exec", "note": "no"}})
        );
    }
}

//! RFC 32 responses to `job-exec.start`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{JobId, WaitStatus};

/// A job exception as the execution service raises it (RFC 21).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Exception {
    /// 0 is fatal.
    pub severity: i32,
    /// RFC 21 exception type: `exec`, `timeout`, `node-failure`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    pub note: String,
}

impl Exception {
    /// A fatal exception of type `exec`.
    pub fn fatal(note: impl Into<String>) -> Self {
        Self { severity: 0, kind: "exec".to_string(), note: note.into() }
    }
}

/// One response of the `job-exec.start` stream.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "lowercase")]
pub enum Response {
    /// Not RFC 32's, and never sent to the job manager: the leader has committed output that
    /// no checkpoint holds yet, and wants to hear when one does
    /// ([`super::peer::CoveredRequest`]).
    Changed {
        /// Grows with each of these.
        mark: u64,
    },
    /// Raise an exception on the job.
    Exception(Exception),
    /// All shells have ended.
    Finish {
        /// The largest wait status of all shells.
        status: WaitStatus,
    },
    /// Not RFC 32's, and never sent to the job manager: the leader tells the coordinator the
    /// largest status so far, before it releases the ranks whose shells had it.
    Progress {
        /// Largest wait status so far.
        status: WaitStatus,
    },
    /// The shells of a running job were found again.
    Reattached {},
    /// Give resources back.
    Release {
        /// RFC 22 idset, or `all` for the whole of R in one response, as upstream says it
        /// and every consumer of the job's eventlog knows it.
        ranks: String,
        /// End of the stream.
        #[serde(rename = "final")]
        is_final: bool,
    },
    /// All shells have started.
    Start {},
}

impl Response {
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
            encode(Response::Release { ranks: "0-2".into(), is_final: true }),
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

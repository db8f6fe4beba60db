//! The `job-exec.start` request (RFC 32).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{JobId, ResourceSet, ResourceSetError};

/// A request to start, or to find again, the shells of one job.
///
/// The jobspec stays raw JSON here: a bad one is the leader's to report, as an exception of
/// the job, and the coordinator need not read it.
#[derive(Clone, Debug, PartialEq)]
pub struct StartRequest {
    /// The job.
    pub id: JobId,
    /// Its owner.
    pub userid: u32,
    /// Redacted jobspec (no environment).
    pub jobspec: Value,
    /// The allocated resources.
    pub r: ResourceSet,
    /// The shells were launched before; find them, start nothing.
    pub reattach: bool,
}

/// A start request that can't be read. With an id, it can be answered as the job's own.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StartError {
    /// No usable job id: nobody to raise an exception on.
    #[error("start request: id: expected a job id, got {0}")]
    Id(Value),
    /// The id is known, something else is wrong.
    #[error("start request for job {id}: {key}: {reason}")]
    Field {
        /// The job to fail.
        id: JobId,
        /// Which key.
        key: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// R is wrong.
    #[error("start request for job {id}: {error}")]
    R {
        /// The job to fail.
        id: JobId,
        /// What is wrong with it.
        error: ResourceSetError,
    },
}

impl StartRequest {
    /// Reads a request payload.
    ///
    /// # Errors
    /// Names the key and, where there is one, the job.
    pub fn from_json(payload: &Value) -> Result<Self, StartError> {
        let missing = Value::Null;
        let get = |key: &str| payload.get(key).unwrap_or(&missing);
        let id = get("id").as_u64().map(JobId).ok_or_else(|| StartError::Id(get("id").clone()))?;
        let field = |key: &'static str, expected: &str| StartError::Field {
            id,
            key,
            reason: format!("expected {expected}, got {}", get(key)),
        };
        Ok(Self {
            id,
            userid: get("userid")
                .as_u64()
                .and_then(|uid| u32::try_from(uid).ok())
                .ok_or_else(|| field("userid", "a user id"))?,
            jobspec: match get("jobspec") {
                jobspec @ Value::Object(_) => jobspec.clone(),
                _ => return Err(field("jobspec", "an object")),
            },
            r: ResourceSet::from_json(get("R")).map_err(|error| StartError::R { id, error })?,
            reattach: get("reattach")
                .as_bool()
                .ok_or_else(|| field("reattach", "true or false"))?,
        })
    }

    /// The payload again, to hand it to the job's leader.
    pub fn to_json(&self) -> Value {
        serde_json::json!({
            "id": self.id,
            "userid": self.userid,
            "jobspec": self.jobspec,
            "reattach": self.reattach,
            "R": self.r.raw(),
        })
    }
}

/// A `job-exception` event, published by the job manager.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct JobException {
    /// The job.
    pub id: JobId,
    /// RFC 21 exception type.
    #[serde(rename = "type")]
    pub kind: String,
    /// 0 ends the job.
    pub severity: i32,
    /// Status of the task that caused it, if the shell said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<super::WaitStatus>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request() -> Value {
        json!({"id": 7, "userid": 0, "jobspec": {}, "reattach": false,
               "R": {"version": 1, "execution": {
                   "R_lite": [{"rank": "2-3", "children": {"core": "0"}}],
                   "nodelist": ["n[2-3]"], "starttime": 0.0, "expiration": 0.0}}})
    }

    #[test]
    fn requests_round_trip() {
        let parsed = StartRequest::from_json(&request()).expect("a good request");
        assert_eq!(StartRequest::from_json(&parsed.to_json()), Ok(parsed));
    }

    #[test]
    fn errors_name_the_key_and_the_job() {
        let job = JobId(7).to_string();
        for (key, value, expect) in [
            ("id", json!("x"), "id: expected a job id, got \"x\"".to_string()),
            ("userid", json!(-1), format!("{job}: userid: expected a user id, got -1")),
            ("jobspec", json!(1), format!("{job}: jobspec: expected an object, got 1")),
            ("reattach", json!(null), format!("{job}: reattach: expected true or false")),
            ("R", json!({"version": 9}), job.clone()),
        ] {
            let mut bad = request();
            bad[key] = value;
            let error = StartRequest::from_json(&bad).expect_err(key).to_string();
            assert!(error.contains(&expect), "{error}");
        }
    }
}

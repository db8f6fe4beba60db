//! The `job-exec.start` request (RFC 32).
//!
//! A request has the jobspec, which its user has written. A bad jobspec must fail its own job only.
//! An error response would end the service for all jobs (flux-core `job-manager/start.c`). So each
//! member of the request is read by itself, and of the jobspec only what execution needs is read.

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{BrokerRank, JobId, Jobspec, JobspecError, ResourceSet, ResourceSetError, shortened};

/// A request to start, or to find again, the shells of one job.
///
/// The leader reports a bad jobspec, because an earlier leader may have started shells.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StartRequest {
    /// The job.
    pub id: JobId,
    /// The job's user.
    pub userid: u32,
    /// The parts of the redacted jobspec that execution needs, or what is wrong with them.
    #[serde(with = "super::jobspec::reading")]
    pub jobspec: Result<Jobspec, JobspecError>,
    /// The allocated resources.
    #[serde(rename = "R")]
    pub r: ResourceSet,
    /// Whether the shells were launched before. Then they are found, and none is started.
    pub reattach: bool,
}

/// A start request that cannot be read. If it has an id, the answer can fail the job.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StartError {
    /// There is no usable job id, so there is no job that can fail.
    #[error("start request: id: expected a job id, got {0}")]
    Id(String),
    /// A member other than the id is wrong.
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
    /// Reads the payload of a request.
    ///
    /// # Errors
    /// If a member is missing or wrong. The error names the key, and the job if the payload has an
    /// id.
    pub fn read(payload: &[u8]) -> Result<Self, StartError> {
        let mut members = RequestMembers::default();
        let mut json = serde_json::Deserializer::from_slice(payload);
        let whole = members.deserialize(&mut json).and_then(|()| json.end());
        let id = members.read("id", members.id).map_err(|(_, got)| StartError::Id(got));
        let id = JobId(id?);
        let field = |(key, reason)| StartError::Field { id, key, reason };
        let expected = |expected: &'static str| {
            move |(key, got)| field((key, format!("expected {expected}, got {got}")))
        };
        whole.map_err(|error| field(("payload", error.to_string())))?;
        let is_object = |text: &&RawValue| text.get().starts_with('{');
        let jobspec = members
            .jobspec
            .filter(is_object)
            .ok_or_else(|| expected("an object")(("jobspec", got(members.jobspec))))?;
        Ok(Self {
            id,
            userid: members.read("userid", members.userid).map_err(expected("a user id"))?,
            jobspec: Jobspec::read(jobspec.get()),
            r: ResourceSet::read(members.r.map_or("null", RawValue::get))
                .map_err(|error| StartError::R { id, error })?,
            reattach: members
                .read("reattach", members.reattach)
                .map_err(expected("true or false"))?,
        })
    }

    /// The rank that leads the job: its first one. Of a mocked job it is rank 0, because such a job
    /// has nothing on its ranks, which need not exist.
    pub fn leader_rank(&self) -> BrokerRank {
        let is_mocked = self.jobspec.as_ref().is_ok_and(|jobspec| jobspec.test.is_some());
        if is_mocked { BrokerRank(0) } else { self.r.first_rank() }
    }
}

/// The members of a request that are needed, each as it was written. If a name occurs more than
/// once, the last member counts, as in the job manager's own reader (jansson). Members that were
/// read before an error are kept.
#[derive(Default)]
struct RequestMembers<'a> {
    id: Option<&'a RawValue>,
    userid: Option<&'a RawValue>,
    jobspec: Option<&'a RawValue>,
    r: Option<&'a RawValue>,
    reattach: Option<&'a RawValue>,
}

impl<'a> RequestMembers<'a> {
    /// Reads one member as a `T`. The error has the key and the text.
    fn read<T: Deserialize<'a>>(
        &self,
        key: &'static str,
        member: Option<&'a RawValue>,
    ) -> Result<T, (&'static str, String)> {
        let text = member.map_or("null", RawValue::get);
        serde_json::from_str(text).map_err(|_| (key, got(member)))
    }
}

/// A member's text for an error message.
fn got(member: Option<&RawValue>) -> String {
    member.map_or_else(|| "nothing".to_string(), |text| shortened(text.get()))
}

impl<'a> DeserializeSeed<'a> for &mut RequestMembers<'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for &mut RequestMembers<'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let value: &'a RawValue = map.next_value()?;
            match key.as_str() {
                "id" => self.id = Some(value),
                "userid" => self.userid = Some(value),
                "jobspec" => self.jobspec = Some(value),
                "R" => self.r = Some(value),
                "reattach" => self.reattach = Some(value),
                _ => (), // a member that a later job manager may send
            }
        }
        Ok(())
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
    /// RFC 21 severity. 0 ends the job.
    pub severity: i32,
    /// Status of the task that caused it, if the shell said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<super::WaitStatus>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request() -> Value {
        json!({"id": 7, "userid": 0, "jobspec": {}, "reattach": false,
               "R": {"version": 1, "execution": {
                   "R_lite": [{"rank": "2-3", "children": {"core": "0"}}],
                   "nodelist": ["n[2-3]"], "starttime": 0.0, "expiration": 0.0}}})
    }

    fn read(payload: &Value) -> Result<StartRequest, StartError> {
        StartRequest::read(payload.to_string().as_bytes())
    }

    #[test]
    fn a_leader_reads_what_the_coordinator_has_read() {
        let mut bad = request();
        bad["jobspec"] = json!({"attributes": {"system": {"exec": 7}}});
        for payload in [request(), bad] {
            let read = read(&payload).expect("readable");
            let sent = json!(read).to_string();
            assert_eq!(serde_json::from_str::<StartRequest>(&sent).ok(), Some(read), "{sent}");
        }
    }

    #[test]
    fn errors_name_the_key_and_the_job() {
        let job = JobId(7).to_string();
        for (key, value, expect) in [
            ("id", json!("x"), "id: expected a job id, got \"x\"".to_string()),
            ("id", json!(-7), "id: expected a job id, got -7".to_string()),
            ("userid", json!(-1), format!("{job}: userid: expected a user id, got -1")),
            ("userid", json!(4_294_967_296_u64), format!("{job}: userid: expected a user id")),
            ("jobspec", json!(1), format!("{job}: jobspec: expected an object, got 1")),
            ("reattach", json!(null), format!("{job}: reattach: expected true or false")),
            ("R", json!({"version": 9}), job.clone()),
        ] {
            let mut bad = request();
            bad[key] = value;
            let error = read(&bad).expect_err(key).to_string();
            assert!(error.contains(&expect), "{error}");
        }
        let mut missing = request();
        missing.as_object_mut().expect("an object").remove("R");
        assert!(read(&missing).expect_err("refused").to_string().contains(&job));
    }

    /// [bad-start-fails-its-job]
    #[test]
    fn no_jobspec_is_too_deep() {
        for depth in [10, 122, 123, 128, 2048, 100_000] {
            let nest =
                |open: &str, close: &str| format!("{}{}", open.repeat(depth), close.repeat(depth));
            for deep in
                [nest("[", "]"), format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))]
            {
                let mut payload = request();
                payload["jobspec"] = json!({"attributes": {"user": "DEEP", "system": {
                    "exec": {"job_shell": "/x", "other": "DEEP"}}}});
                let text = payload.to_string().replace("\"DEEP\"", &deep);
                let read = StartRequest::read(text.as_bytes()).expect("readable");
                let jobspec = read.jobspec.clone().expect("a good jobspec");
                assert_eq!(jobspec.job_shell.as_deref(), Some("/x"));
                assert!(json!(read).to_string().len() < 1000, "leaders need not have it");
            }
        }
    }

    /// [bad-start-fails-its-job]
    #[test]
    fn what_cannot_be_read_fails_its_own_job() {
        let text = request().to_string();
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let bad: [(&str, Vec<u8>); 7] = [
            ("bytes that are no UTF-8", {
                let mut bytes = text.clone().into_bytes();
                let at = text.find("R_lite").expect("there");
                bytes[at] = 0xff;
                bytes
            }),
            ("half a payload", text.as_bytes()[..text.len() / 2].to_vec()),
            ("more than a payload", format!("{text}{text}").into_bytes()),
            (
                "a number out of range",
                text.replace("\"starttime\":0.0", "\"starttime\":1e999").into_bytes(),
            ),
            (
                "a deep R",
                text.replace("\"version\":1", &format!("\"version\":1,\"x\":{deep}")).into_bytes(),
            ),
            (
                "a deep user id",
                text.replace("\"userid\":0", &format!("\"userid\":{deep}")).into_bytes(),
            ),
            (
                "an R of the wrong type",
                text.replace("\"R_lite\":[", "\"R_lite\":[[],").into_bytes(),
            ),
        ];
        for (what, payload) in bad {
            match StartRequest::read(&payload) {
                Err(StartError::Field { id, .. } | StartError::R { id, .. }) => {
                    assert_eq!(id, JobId(7), "{what}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        let twice = text.replace("\"userid\":0", "\"userid\":\"x\",\"userid\":5");
        assert_eq!(StartRequest::read(twice.as_bytes()).map(|read| read.userid), Ok(5));
    }

    #[test]
    fn error_texts_are_short() {
        let long = "x".repeat(1 << 20);
        for key in ["id", "userid", "jobspec", "reattach", "R"] {
            let mut bad = request();
            bad[key] = json!(long);
            assert!(read(&bad).expect_err(key).to_string().len() < 500, "{key}");
        }
    }
}

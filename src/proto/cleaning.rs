//! A job that is being cleaned up.

use serde_json::json;
use serde_json::value::RawValue;

use super::{Idset, JobEventlog, JobException, JobId, StartError, StartRequest, WaitStatus};

/// A job in state CLEANUP whose resources nobody has given back. The job manager does not ask for
/// it again (flux-core `job-manager/start.c`, `hello_cb()`), so its start request is made again
/// from the KVS.
#[derive(Clone, Debug, PartialEq)]
pub struct Cleaning {
    /// The request that the job manager has made once.
    pub start: StartRequest,
    /// Its first fatal exception.
    pub exception: Option<JobException>,
    /// The status with which it has finished.
    pub finish: Option<WaitStatus>,
    /// Ranks that the job manager has back, in parts.
    pub released: Idset,
    /// The job manager has all ranks back. Only the hold is left.
    pub is_released: bool,
    /// The job manager does not free it before it gets our `epilog-finish`.
    pub is_held: bool,
}

impl Cleaning {
    /// Makes it from what the KVS has of a job that the job manager lists in CLEANUP. None: there
    /// is nothing to do for it.
    ///
    /// # Errors
    /// `jobspec` or `r` cannot be read.
    pub fn read(
        id: JobId,
        log: JobEventlog,
        jobspec: &str,
        r: &str,
    ) -> Result<Option<Self>, StartError> {
        if !log.wants_end() {
            return Ok(None);
        }
        let raw = |key, text| {
            let value: Result<Box<RawValue>, _> = serde_json::from_str(text);
            value.map_err(|error| StartError::Field { id, key, reason: error.to_string() })
        };
        let (jobspec, r) = (raw("jobspec", jobspec)?, raw("R", r)?);
        let exception = log.job_exception(id);
        let JobEventlog { userid, is_started, finish, released, is_released, is_held, .. } = log;
        let (id, userid) = (json!(id), json!(userid));
        let payload = format!(
            r#"{{"id":{id},"userid":{userid},"reattach":{is_started},"jobspec":{jobspec},"R":{r}}}"#
        );
        let start = StartRequest::read(payload.as_bytes())?;
        Ok(Some(Self { start, exception, finish, released, is_released, is_held }))
    }
}

impl JobEventlog {
    /// Whether a job in CLEANUP has to be led to its end.
    pub fn wants_end(&self) -> bool {
        self.is_held || (self.has_resources && !self.is_released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: JobId = JobId(7);
    const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"2-3","children":{"core":"0"}}],
        "nodelist":["n[2-3]"],"starttime":0.0,"expiration":0.0}}"#;

    fn log() -> JobEventlog {
        JobEventlog {
            userid: Some(500),
            has_resources: true,
            is_started: true,
            exception: Some("cancel".to_string()),
            ..JobEventlog::default()
        }
    }

    #[test]
    fn the_start_request_is_made_again() {
        let read = |log| Cleaning::read(ID, log, r#"{"attributes":{}}"#, R).expect("readable");
        let cleaning = read(log()).expect("not given back");
        assert!(cleaning.start.reattach && !cleaning.is_held);
        assert_eq!((cleaning.start.id, cleaning.start.userid), (ID, 500));
        assert_eq!(cleaning.exception.map(|exception| exception.kind), Some("cancel".to_string()));
        let released = JobEventlog { is_released: true, ..log() };
        assert_eq!(read(released.clone()), None, "the job manager has it back");
        assert!(
            read(JobEventlog { is_held: true, ..released }).is_some(),
            "and waits all the same"
        );
        assert_eq!(read(JobEventlog { has_resources: false, ..log() }), None);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error =
            |jobspec, r| Cleaning::read(ID, log(), jobspec, r).expect_err("unreadable").to_string();
        assert!(error("{", R).contains("jobspec"), "{}", error("{", R));
        assert!(error("{}", "7").contains(&ID.to_string()), "{}", error("{}", "7"));
        let nobody = JobEventlog { userid: None, ..log() };
        let text = Cleaning::read(ID, nobody, "{}", R).expect_err("no user").to_string();
        assert!(text.contains("userid"), "{text}");
    }
}

//! What job execution reads of a jobspec (RFC 14, RFC 25): `attributes.system.exec`.

use serde_json::{Map, Value};

/// The execution attributes of a jobspec; the rest belongs to others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobspec {
    /// `attributes.system.exec.job_shell`: the shell to run instead of the configured one.
    pub job_shell: Option<String>,
    /// `attributes.system.exec.bulkexec.barrier-timeout`, in seconds.
    pub barrier_timeout: Option<f64>,
    /// `attributes.system.exec.bulkexec.mock_exception`: raise an exception at `init` or
    /// `starting` (upstream's test aid).
    pub mock_exception: Option<String>,
}

/// A jobspec that can't be executed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("failed to unpack system.exec{key}: {reason}")]
pub struct JobspecError {
    key: String,
    reason: String,
}

impl JobspecError {
    fn new(key: &str, reason: impl Into<String>) -> Self {
        Self { key: key.to_string(), reason: reason.into() }
    }
}

impl Jobspec {
    /// Reads the attributes; a jobspec without any is fine.
    ///
    /// `bulkexec` is read strictly, as upstream does (flux-core `job-exec/bulkexec.c`): a
    /// key that nobody knows is an error.
    ///
    /// # Errors
    /// Names the key and the value.
    pub fn from_json(jobspec: &Value) -> Result<Self, JobspecError> {
        let mut parsed = Self::default();
        let Some(exec) = jobspec.pointer("/attributes/system/exec") else {
            return Ok(parsed);
        };
        let exec = exec
            .as_object()
            .ok_or_else(|| JobspecError::new("", format!("expected an object, got {exec}")))?;
        parsed.job_shell = string(exec, "job_shell", "")?;
        let Some(bulkexec) = exec.get("bulkexec") else {
            return Ok(parsed);
        };
        let bulkexec = bulkexec.as_object().ok_or_else(|| {
            JobspecError::new(".bulkexec", format!("expected an object, got {bulkexec}"))
        })?;
        for (key, value) in bulkexec {
            match key.as_str() {
                // Accepted and ignored by upstream.
                "service" | "sdexec-test-expected-cpus" => {
                    string(bulkexec, key, ".bulkexec")?;
                }
                "mock_exception" => parsed.mock_exception = string(bulkexec, key, ".bulkexec")?,
                "barrier-timeout" => {
                    let seconds = value.as_f64().filter(|s| *s >= 0.0).ok_or_else(|| {
                        JobspecError::new(
                            ".bulkexec.barrier-timeout",
                            format!("expected seconds, got {value}"),
                        )
                    })?;
                    parsed.barrier_timeout = Some(seconds);
                }
                unknown => {
                    return Err(JobspecError::new(
                        ".bulkexec",
                        format!("unknown key {unknown:?} (value {value})"),
                    ));
                }
            }
        }
        Ok(parsed)
    }
}

fn string(
    object: &Map<String, Value>,
    key: &str,
    parent: &str,
) -> Result<Option<String>, JobspecError> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(JobspecError::new(
            &format!("{parent}.{key}"),
            format!("expected a string, got {other}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(exec: Value) -> Result<Jobspec, String> {
        Jobspec::from_json(&json!({"attributes": {"system": {"exec": exec}}}))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn attributes_are_read() {
        assert_eq!(Jobspec::from_json(&json!({})), Ok(Jobspec::default()));
        let parsed = parse(json!({"job_shell": "/x", "bulkexec": {"barrier-timeout": 1.5}}));
        assert_eq!(
            parsed,
            Ok(Jobspec {
                job_shell: Some("/x".into()),
                barrier_timeout: Some(1.5),
                mock_exception: None
            })
        );
    }

    #[test]
    fn errors_name_key_and_value() {
        for (exec, expect) in [
            (json!(3), "exec: expected an object, got 3"),
            (json!({"job_shell": 7}), "exec.job_shell: expected a string, got 7"),
            (json!({"bulkexec": {"foo": 1}}), "exec.bulkexec: unknown key \"foo\" (value 1)"),
            (
                json!({"bulkexec": {"barrier-timeout": "x"}}),
                "exec.bulkexec.barrier-timeout: expected seconds, got \"x\"",
            ),
        ] {
            let error = parse(exec).expect_err("refused");
            assert!(error.contains(expect), "{error}");
        }
    }
}

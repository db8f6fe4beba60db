//! Mock execution: `attributes.system.exec.test` (flux-core `job-exec/testexec.c`).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::attribute::{JobspecError, members, string};
use super::{WaitStatus, parse_fsd};

/// How a job is mocked. A timer takes the place of its shells.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct TestExec {
    /// `run_duration`, else the jobspec's `duration`, in seconds: how long it runs. `None`: until it
    /// is ended.
    pub run_duration: Option<f64>,
    /// `override`: it starts, and may end, when its user says so (`job-exec.override`).
    pub waits: bool,
    /// `reattach_finish`: when it is found again it has just ended.
    pub reattach_finish: bool,
    /// `wait_status`: the status with which it ends.
    pub wait_status: WaitStatus,
    /// `mock_exception`: raise an exception at `init` or at `run`.
    pub mock_exception: Option<String>,
}

impl TestExec {
    /// Reads the attribute, and the jobspec's duration. As in flux-core, unknown keys are ignored, a
    /// job without any duration ends at once, and one of zero has no end.
    ///
    /// # Errors
    /// If a value has a wrong type. The error names the key and the value.
    pub(super) fn read(test: &RawValue, duration: Option<&RawValue>) -> Result<Self, JobspecError> {
        let wrong = |key: &str, expected: &str, value: &RawValue| {
            JobspecError::expected(&format!(".test{key}"), expected, value)
        };
        let members = members(test).ok_or_else(|| wrong("", "an object", test))?;
        let duration = duration.and_then(|text| serde_json::from_str::<f64>(text.get()).ok());
        let mut run_duration = duration.unwrap_or(f64::MIN_POSITIVE);
        let mut parsed = Self::default();
        for (key, value) in members {
            let path = format!(".{key}");
            let integer = || {
                let number = serde_json::from_str::<i32>(value.get());
                number.map_err(|_| wrong(&path, "a number", value))
            };
            match key.as_str() {
                "run_duration" => {
                    let text = string(&format!(".test{path}"), value)?;
                    run_duration =
                        parse_fsd(&text).map_err(|_| wrong(&path, "a duration", value))?;
                }
                "override" => parsed.waits = integer()? != 0,
                "reattach_finish" => parsed.reattach_finish = integer()? != 0,
                "wait_status" => parsed.wait_status = WaitStatus(integer()?),
                "mock_exception" => {
                    parsed.mock_exception = Some(string(&format!(".test{path}"), value)?);
                }
                _ => (),
            }
        }
        parsed.run_duration =
            (run_duration > 0.0 && run_duration.is_finite()).then_some(run_duration);
        Ok(parsed)
    }

    /// Whether an exception is to be raised here.
    pub fn fails_at(&self, place: &str) -> bool {
        self.mock_exception.as_deref() == Some(place)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Jobspec;
    use super::*;

    fn parse(system: Value) -> Result<Option<TestExec>, String> {
        let text = json!({ "attributes": { "system": system } }).to_string();
        Jobspec::read(&text).map(|jobspec| jobspec.test).map_err(|error| error.to_string())
    }

    #[test]
    fn attributes_are_read() {
        let test = json!({ "run_duration": "1.5m", "override": 1, "reattach_finish": 1,
                           "wait_status": 256, "mock_exception": "run", "unknown": [] });
        let parsed = parse(json!({ "duration": 7, "exec": { "test": test } }));
        let expected = TestExec {
            run_duration: Some(90.0),
            waits: true,
            reattach_finish: true,
            wait_status: WaitStatus(256),
            mock_exception: Some("run".to_string()),
        };
        assert_eq!(parsed, Ok(Some(expected)));
        assert_eq!(parse(json!({ "exec": {} })), Ok(None));
    }

    #[test]
    fn the_jobs_duration_counts_unless_another_is_given() {
        let run = |system: Value| parse(system).unwrap().unwrap().run_duration;
        assert_eq!(run(json!({ "duration": 7.5, "exec": { "test": {} } })), Some(7.5));
        assert_eq!(run(json!({ "duration": 0, "exec": { "test": {} } })), None);
        let none = json!({ "duration": 7, "exec": { "test": { "run_duration": "0." } } });
        assert_eq!(run(none), None);
        let at_once = run(json!({ "exec": { "test": {} } }));
        assert!(at_once.is_some_and(|seconds| seconds < 1e-5), "{at_once:?}");
    }

    #[test]
    fn errors_name_key_and_value() {
        for (test, expect) in [
            (json!(3), "exec.test: expected an object, got 3"),
            (
                json!({ "run_duration": 0.01 }),
                "exec.test.run_duration: expected a string, got 0.01",
            ),
            (
                json!({ "run_duration": "x" }),
                "exec.test.run_duration: expected a duration, got \"x\"",
            ),
            (json!({ "override": true }), "exec.test.override: expected a number, got true"),
        ] {
            let error = parse(json!({ "exec": { "test": test } })).expect_err("refused");
            assert!(error.contains(expect), "{error}");
        }
    }
}

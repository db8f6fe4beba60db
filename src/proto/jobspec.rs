//! What job execution reads of a jobspec (RFC 14, RFC 25): `attributes.system.exec`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::attribute::{JobspecError, member, members, string};
use super::{ExecMethod, METHODS, TestExec, shortened};

/// Longest path of a program, in bytes (Linux `PATH_MAX`, less the NUL at its end).
const PATH_MAX: usize = 4095;

/// The execution attributes of a jobspec.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Jobspec {
    /// `attributes.system.exec.job_shell`: the shell to run instead of the configured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_shell: Option<String>,
    /// `attributes.system.exec.method`: how this job's shells are started. Only the instance owner may
    /// choose that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<ExecMethod>,
    /// `attributes.system.exec.bulkexec.barrier-timeout`, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier_timeout: Option<f64>,
    /// `attributes.system.exec.bulkexec.mock_exception`: raise an exception at `init` or
    /// `starting`. flux-core's tests use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mock_exception: Option<String>,
    /// `attributes.system.exec.prolog-tolerance`: how many degraded nodes the job bears.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prolog_tolerance: Option<u32>,
    /// `attributes.system.exec.tell-degraded`: the job is told of its nodes that the instance drains
    /// while it runs. By default it is if it is an instance itself. Only the coordinator wants to
    /// know.
    #[serde(skip)]
    pub tell_degraded: bool,
    /// `attributes.system.exec.test`: nothing is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<TestExec>,
}

impl Jobspec {
    /// Reads the attributes from a jobspec's text. All of them are optional.
    ///
    /// The rest of the text is skipped, however large or deeply nested it is. `bulkexec` and
    /// `bgexec` are read strictly, as flux-core does (`job-exec/bulkexec.c`): an unknown key is an
    /// error.
    ///
    /// # Errors
    /// If an attribute has a wrong type or an unknown key. The error names the key and the value.
    pub fn read(text: &str) -> Result<Self, JobspecError> {
        let mut parsed = Self { tell_degraded: is_instance(text), ..Self::default() };
        let attributes = member(text, "attributes");
        let system = attributes.and_then(|text| member(text.get(), "system"));
        let Some(exec) = system.and_then(|text| member(text.get(), "exec")) else {
            return Ok(parsed);
        };
        let members = members(exec).ok_or_else(|| JobspecError::expected("", "an object", exec))?;
        if let Some(shell) = members.get("job_shell") {
            parsed.job_shell = Some(program(".job_shell", shell)?);
        }
        if let Some(method) = members.get("method") {
            let text = string(".method", method)?;
            let wrong = |_| JobspecError::expected(".method", METHODS, method);
            parsed.method = Some(text.parse().map_err(wrong)?);
        }
        if let Some(count) = members.get("prolog-tolerance") {
            let key = ".prolog-tolerance";
            let wrong = |_| JobspecError::expected(key, "a number of nodes, 0 or more", count);
            parsed.prolog_tolerance = Some(serde_json::from_str(count.get()).map_err(wrong)?);
        }
        if let Some(is_told) = members.get("tell-degraded") {
            let wrong = |_| JobspecError::expected(".tell-degraded", "true or false", is_told);
            parsed.tell_degraded = serde_json::from_str(is_told.get()).map_err(wrong)?;
        }
        for name in ["bulkexec", "bgexec"] {
            if let Some(member) = members.get(name) {
                parsed.read_bulkexec(name, member)?;
            }
        }
        if let Some(test) = members.get("test") {
            let duration = system.and_then(|text| member(text.get(), "duration"));
            parsed.test = Some(TestExec::read(test, duration)?);
        }
        Ok(parsed)
    }

    /// The attributes of flux-core's method of that name. It reads only those of its own method, and
    /// both methods have the same.
    fn read_bulkexec(&mut self, name: &str, bulkexec: &RawValue) -> Result<(), JobspecError> {
        let object = format!(".{name}");
        let members = members(bulkexec)
            .ok_or_else(|| JobspecError::expected(&object, "an object", bulkexec))?;
        for (key, value) in members {
            let path = format!("{object}.{key}");
            match key.as_str() {
                // flux-core accepts and ignores these.
                "service" | "sdexec-test-expected-cpus" => drop(string(&path, value)?),
                "mock_exception" => self.mock_exception = Some(string(&path, value)?),
                "barrier-timeout" => {
                    let seconds = serde_json::from_str::<f64>(value.get()).ok();
                    let seconds = seconds.filter(|seconds| *seconds >= 0.0);
                    let wrong = || JobspecError::expected(&path, "seconds", value);
                    self.barrier_timeout = Some(seconds.ok_or_else(wrong)?);
                }
                unknown => {
                    let (unknown, value) = (shortened(unknown), shortened(value.get()));
                    let reason = format!("unknown key {unknown:?} (value {value})");
                    return Err(JobspecError::new(&object, reason));
                }
            }
        }
        Ok(())
    }
}

/// Whether the job's tasks are brokers: the command is `flux broker` (`flux batch` and `flux alloc`
/// run that) or `flux start`.
fn is_instance(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Task<'a> {
        #[serde(borrow)]
        command: Vec<Cow<'a, str>>,
    }
    let tasks = member(text, "tasks").map(|tasks| serde_json::from_str::<Vec<Task>>(tasks.get()));
    let Some(Ok(tasks)) = tasks else { return false };
    tasks.iter().any(|task| match task.command.as_slice() {
        [program, verb, ..] => {
            let name = program.rsplit('/').next();
            name == Some("flux") && matches!(verb.as_ref(), "broker" | "start")
        }
        [_] | [] => false,
    })
}

/// The path of a program.
fn program(key: &str, value: &RawValue) -> Result<String, JobspecError> {
    let path = string(key, value)?;
    if path.len() > PATH_MAX || path.contains('\0') {
        let expected = format!("a path of at most {PATH_MAX} bytes");
        return Err(JobspecError::expected(key, &expected, value));
    }
    Ok(path)
}

/// The form in which coordinators send leaders a jobspec: `{"read": ...}`, or `{"refused": ...}` if
/// it cannot be executed.
pub(super) mod reading {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Jobspec, JobspecError};

    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Reading {
        Read(Jobspec),
        Refused(JobspecError),
    }

    pub(in super::super) fn serialize<S: Serializer>(
        jobspec: &Result<Jobspec, JobspecError>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match jobspec.clone() {
            Ok(jobspec) => Reading::Read(jobspec),
            Err(error) => Reading::Refused(error),
        }
        .serialize(out)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Result<Jobspec, JobspecError>, D::Error> {
        Ok(match Reading::deserialize(input)? {
            Reading::Read(jobspec) => Ok(jobspec),
            Reading::Refused(error) => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(exec: Value) -> Result<Jobspec, String> {
        let text = json!({"attributes": {"system": {"exec": exec}}}).to_string();
        Jobspec::read(&text).map_err(|e| e.to_string())
    }

    #[test]
    fn attributes_are_read() {
        for none in ["{}", "7", r#"{"attributes": 7}"#, r#"{"attributes": {"system": []}}"#] {
            assert_eq!(Jobspec::read(none), Ok(Jobspec::default()), "{none}");
        }
        let parsed = parse(json!({"job_shell": "/x", "method": "rexec",
                                  "bgexec": {"barrier-timeout": 1.5}, "prolog-tolerance": 10}));
        assert_eq!(
            parsed,
            Ok(Jobspec {
                job_shell: Some("/x".into()),
                method: Some(ExecMethod::Fork),
                barrier_timeout: Some(1.5),
                prolog_tolerance: Some(10),
                ..Jobspec::default()
            })
        );
    }

    #[test]
    fn instances_are_told_of_degraded_nodes_and_those_who_ask() {
        let told = |command: Value, exec: Value| {
            let jobspec = json!({"tasks": [{"command": command}],
                                 "attributes": {"system": {"exec": exec}}});
            Jobspec::read(&jobspec.to_string()).expect("readable").tell_degraded
        };
        for (command, is_instance) in [
            (json!(["flux", "broker"]), true),
            (json!(["/usr/bin/flux", "start", "-Sx=y", "a\n.sh"]), true),
            (json!(["flux", "run", "hostname"]), false),
            (json!(["flux"]), false),
            (json!(["notflux", "broker"]), false),
            (json!([]), false),
            (json!(7), false),
        ] {
            assert_eq!(told(command.clone(), json!({})), is_instance, "{command}");
            assert!(told(command.clone(), json!({"tell-degraded": true})));
            assert!(!told(command, json!({"tell-degraded": false})));
        }
    }

    #[test]
    fn errors_name_key_and_value() {
        for (exec, expect) in [
            (json!(3), "exec: expected an object, got 3"),
            (json!({"job_shell": 7}), "exec.job_shell: expected a string, got 7"),
            (json!({"method": "x"}), "exec.method: expected auto, systemd or fork, got \"x\""),
            (json!({"method": 1}), "exec.method: expected a string, got 1"),
            (
                json!({"prolog-tolerance": -1}),
                "exec.prolog-tolerance: expected a number of nodes, 0 or more, got -1",
            ),
            (json!({"prolog-tolerance": "x"}), "exec.prolog-tolerance: expected a number"),
            (json!({"tell-degraded": 1}), "exec.tell-degraded: expected true or false, got 1"),
            (json!({"bgexec": {"foo": 1}}), "exec.bgexec: unknown key \"foo\" (value 1)"),
            (json!({"bulkexec": {"foo": 1}}), "exec.bulkexec: unknown key \"foo\" (value 1)"),
            (
                json!({"bulkexec": {"barrier-timeout": "x"}}),
                "exec.bulkexec.barrier-timeout: expected seconds, got \"x\"",
            ),
            (json!({"bulkexec": {"mock_exception": null}}), "expected a string, got null"),
            (json!({"job_shell": "/a\0b"}), "exec.job_shell: expected a path"),
            (json!({"job_shell": "x".repeat(4096)}), "a path of at most 4095 bytes, got \"xxx"),
        ] {
            let error = parse(exec).expect_err("refused");
            assert!(error.contains(expect), "{error}");
        }
    }
}

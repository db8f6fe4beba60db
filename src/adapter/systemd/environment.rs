//! The environment of a unit.
//!
//! A shell gets the broker's variables, and those that are set for it. It gets none that systemd sets
//! for a service, and none that the user manager has for all its units: somebody can have given it
//! those of a login (`systemctl --user import-environment`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use crate::port::supervisor::UnitSpec;

use super::execution;
use super::properties::Property;

/// Variables that systemd sets for a service. The broker may be a service itself. A shell must not
/// use the broker's variables, nor its own unit's, as if they were meant for it.
const MANAGER_VARIABLES: &[&str] = &[
    "CACHE_DIRECTORY",
    "CONFIGURATION_DIRECTORY",
    "CREDENTIALS_DIRECTORY",
    "EXIT_CODE",
    "EXIT_STATUS",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LOGS_DIRECTORY",
    "MAINPID",
    "MANAGERPID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "MONITOR_EXIT_CODE",
    "NOTIFY_SOCKET",
    "PIDFILE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "RUNTIME_DIRECTORY",
    "SERVICE_RESULT",
    "STATE_DIRECTORY",
    "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// Once a list of variables has this many bytes, the next one begins another list. The kernel does not
/// execute a program with a variable of more than 128 KiB.
const LINE_BYTES: usize = 64 * 1024;

/// Why systemd does not accept an environment variable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
enum VariableError {
    #[error("systemd accepts no control characters")]
    ControlCharacter,
    #[error("not a name that systemd accepts")]
    Name,
    #[error("systemd accepts no noncharacters of Unicode")]
    Noncharacter,
    #[error("it is not UTF-8")]
    NotUtf8,
}

/// systemd does not accept one of the job's own variables.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("variable {name}={value:?}: {why}")]
pub(super) struct BadVariable {
    name: String,
    value: String,
    why: VariableError,
}

/// What units have of the broker.
#[derive(Clone, Debug, Default)]
pub(super) struct Inherited {
    /// The broker's variables, without what no unit gets.
    variables: BTreeMap<String, String>,
    /// What a child of the broker would have besides.
    pub(super) execution: Vec<Property>,
}

impl Inherited {
    /// What this process, the broker, has.
    pub(super) fn of_broker() -> Self {
        let execution = execution::of_broker();
        Self { execution, ..Self::new(std::env::vars_os()) }
    }

    /// Take the broker's variables. Those that systemd would refuse, and the whole unit with them, are
    /// left out, and named in one warning.
    fn new(own: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let (mut kept, mut left_out) = (BTreeMap::new(), Vec::new());
        for (name, value) in own {
            match check(&name, &value) {
                Ok((name, _)) if MANAGER_VARIABLES.contains(&name) => {}
                Ok((name, value)) => drop(kept.insert(name.to_string(), value.to_string())),
                // For instance an exported bash function.
                Err(why @ VariableError::Name) => {
                    tracing::debug!(?name, %why, "variable not passed on to job shells");
                }
                Err(why) => left_out.push(format!("{name:?} ({why})")),
            }
        }
        if !left_out.is_empty() {
            let left_out = left_out.join(", ");
            tracing::warn!("variables of the broker not passed on to job shells: {left_out}");
        }
        Self { variables: kept, execution: Vec::new() }
    }

    /// All variables of a unit, or what is wrong with one that is set for it.
    pub(super) fn for_unit(
        &self,
        spec: &UnitSpec,
    ) -> Result<BTreeMap<String, String>, BadVariable> {
        let mut environment = self.variables.clone();
        environment.retain(|name, _| !spec.unset_environment.contains(name));
        for (name, value) in &spec.environment {
            check_variable(name, value).map_err(|why| {
                let (name, value) = (name.clone(), value.clone());
                BadVariable { name, value, why }
            })?;
            environment.insert(name.clone(), value.clone());
        }
        Ok(environment)
    }
}

fn check<'a>(name: &'a OsString, value: &'a OsString) -> Result<(&'a str, &'a str), VariableError> {
    let name = name.to_str().ok_or(VariableError::Name)?;
    let value = value.to_str().ok_or(VariableError::NotUtf8)?;
    check_variable(name, value).map(|()| (name, value))
}

/// Check a variable, because systemd would refuse the whole unit for a bad one.
fn check_variable(name: &str, value: &str) -> Result<(), VariableError> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(word) {
        return Err(VariableError::Name);
    }
    if value.bytes().any(|b| (b < b' ' && b != b'\n' && b != b'\t') || b == 0x7f) {
        return Err(VariableError::ControlCharacter);
    }
    if value.contains(is_noncharacter) {
        return Err(VariableError::Noncharacter);
    }
    Ok(())
}

/// Whether systemd takes a string with this for one that is not UTF-8.
pub(super) fn is_noncharacter(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe
}

/// The names of the variables that the user manager has for all units.
pub(super) fn names(variables: &[String]) -> BTreeSet<String> {
    let names = variables.iter().filter_map(|variable| variable.split('=').next());
    names.filter(|name| check_variable(name, "").is_ok()).map(str::to_string).collect()
}

/// The variables that no user manager may add.
pub(super) fn unset_variables(spec: &UnitSpec) -> BTreeSet<String> {
    let names = MANAGER_VARIABLES.iter().copied().filter(|name| !is_of_imp(spec.multiuser, name));
    names
        .chain(spec.unset_environment.iter().map(String::as_str))
        .filter(|name| !spec.environment.contains_key(*name) && check_variable(name, "").is_ok())
        .map(str::to_string)
        .collect()
}

/// The IMP reports through `NOTIFY_SOCKET`, and its helper finds the unit by `INVOCATION_ID`. Behind the
/// IMP's end the others say how it ended. All have the unit's own values.
pub(super) fn is_of_imp(multiuser: bool, name: &str) -> bool {
    let is_of_end = matches!(name, "EXIT_CODE" | "EXIT_STATUS");
    multiuser && (is_of_end || matches!(name, "INVOCATION_ID" | "NOTIFY_SOCKET"))
}

/// The variables, in lists that are each one line of a file to systemd. It refuses to read a longer
/// one than 1 MiB again, where each byte of a character can have become four.
pub(super) fn lines(environment: &BTreeMap<String, String>) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut bytes = LINE_BYTES;
    for (name, value) in environment {
        if bytes >= LINE_BYTES {
            lines.push(Vec::new());
            bytes = 0;
        }
        let variable = format!("{name}={value}");
        bytes += variable.len();
        lines.last_mut().into_iter().for_each(|line| line.push(variable.clone()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::proto::{BrokerRank, InstanceId, JobDigest, JobId, UnitName};

    fn spec() -> UnitSpec {
        let unit = UnitName::new(false, BrokerRank(0), JobId(1), InstanceId::new("/test", 1));
        UnitSpec {
            environment: BTreeMap::from([("A".to_string(), "job".to_string())]),
            unset_environment: vec!["SECRET".to_string(), "A".to_string()],
            ..UnitSpec::bare(unit, JobDigest::default())
        }
    }

    #[test]
    fn the_environment_is_the_brokers_and_the_jobs() {
        let own = [
            ("A", "broker"),
            ("B", "kept"),
            ("BASH_FUNC_x%%", "() { :; }"),
            ("BELL", "\x07"),
            ("INVOCATION_ID", "of the broker"),
            ("NONCHARACTER", "\u{1fffe}"),
            ("SECRET", "hidden"),
        ];
        let own = own.map(|(name, value)| (name.into(), value.into()));
        let latin = ("LATIN".into(), OsStr::from_bytes(b"caf\xe9").to_os_string());
        let inherited = Inherited::new(own.into_iter().chain([latin]));
        let environment = lines(&inherited.for_unit(&spec()).unwrap());
        assert_eq!(environment, [["A=job", "B=kept"]]);
        let unset = unset_variables(&spec());
        assert!(unset.contains("SECRET") && unset.contains("NOTIFY_SOCKET"));
        assert!(!unset.contains("A"), "set wins over unset");
    }

    #[test]
    fn a_bad_variable_of_the_job_is_an_error() {
        for (name, value) in [("1X", "y"), ("X", "\u{fffe}"), ("X", "\u{fdd0}")] {
            let mut spec = spec();
            spec.environment.insert(name.to_string(), value.to_string());
            let error = Inherited::default().for_unit(&spec).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}={value:?}")), "{error}");
        }
    }
}

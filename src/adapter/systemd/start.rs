//! The arguments of `StartTransientUnit` for a unit.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use zbus::Variant;

use crate::port::supervisor::UnitSpec;
use crate::supervisor::OutputPaths;

use super::program::{self, ProgramError};
use super::properties::{Property, PropertyError, parse};

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

/// Journal field that holds the job's digest.
pub(super) const DIGEST_FIELD: &str = "JOB_EXEC_DIGEST=";
/// Journal field that holds the user id of the job's owner.
pub(super) const USERID_FIELD: &str = "JOB_EXEC_USERID=";
/// Journal field that says how many shells the job has.
pub(super) const SIZE_FIELD: &str = "JOB_EXEC_SIZE=";

/// Properties that cannot be configured for a unit under the IMP, because the IMP alone must end a
/// guest's processes, however long it takes. `Type` cannot be configured for any unit.
const FIXED_UNDER_IMP: &[&str] = &["KillMode", "SendSIGKILL", "TimeoutStopUSec"];

/// Once a list of variables has this many bytes, the next one begins another list. The kernel does not
/// execute a program with a variable of more than 128 KiB.
const LINE_BYTES: usize = 64 * 1024;

/// Why a specification cannot become a unit.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum StartError {
    /// It has no program.
    #[error("the command line is empty")]
    NoProgram,
    /// A string holds what D-Bus cannot carry.
    #[error("{text:?} has a NUL, which no string of D-Bus may have")]
    Nul {
        /// The string.
        text: String,
    },
    /// An output file's path cannot be a line of a unit file.
    #[error("no unit file can have the path {path:?}")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// A configured property cannot be set.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// The program is not found.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// systemd does not accept one of the job's environment variables.
    #[error("variable {name}={value:?}: {why}")]
    Variable {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: VariableError,
    },
}

/// Why systemd does not accept an environment variable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum VariableError {
    #[error("systemd accepts no control characters")]
    ControlCharacter,
    #[error("not a name that systemd accepts")]
    Name,
}

/// A unit that is to be started: its specification, checked and converted.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) properties: Vec<(String, Variant<'static>)>,
    /// Properties that systemd may silently ignore. They are compared later with what systemd has.
    pub(super) read_back: Vec<Property>,
}

impl Start {
    /// Convert a specification, or say what is wrong with it.
    pub(super) fn new(spec: &UnitSpec, output: &OutputPaths) -> Result<Self, StartError> {
        let program = spec.argv.first().ok_or(StartError::NoProgram)?;
        check_strings(spec)?;
        let path = program::find(program, spec)?;
        let mut asked = parse(&spec.properties)?;
        let mut properties: BTreeMap<String, Variant<'static>> = BTreeMap::new();
        let mut set = |name: &str, value: Variant<'static>| {
            properties.insert(name.to_string(), value);
        };
        set("Description", spec.description.clone().into());
        set("Type", if spec.multiuser { "notify" } else { "exec" }.into());
        set("RemainAfterExit", true.into());
        let (name, command) = command(path, &spec.argv);
        set(name, command);
        set("UnsetEnvironment", unset_variables(spec).into());
        set("LogExtraFields", marks(spec).into());
        set("StandardInput", "null".into());
        set("StandardOutputFileToAppend", unit_path(&output.stdout)?.into());
        set("StandardErrorFileToAppend", unit_path(&output.stderr)?.into());
        if let Some(directory) = &spec.working_directory {
            if is_one_line(directory) {
                // With `-` a missing directory is not an error.
                set("WorkingDirectory", format!("-{directory}").into());
            } else {
                tracing::warn!(unit = %spec.unit, ?directory,
                    "no unit file can have this working directory: the shell starts without it");
            }
        }
        if spec.forget_failed {
            set("CollectMode", "inactive-or-failed".into());
        }
        let stop_timeout = spec.stop_timeout.map_or(u64::MAX, timeout_us);
        set("TimeoutStopUSec", stop_timeout.into());
        // A shell may take long to report that it is ready, or never do it.
        set("TimeoutStartUSec", u64::MAX.into());
        set("KillMode", "control-group".into());
        if spec.multiuser {
            asked.retain(|property| !FIXED_UNDER_IMP.contains(&property.name.as_str()));
            // The instance owner's systemd may signal the IMP, but no guest's process.
            set("KillMode", "process".into());
            set("SendSIGKILL", false.into());
        }
        if spec.unit.is_script() {
            // A script may start what is to stay, and is not killed in the middle of something.
            set("KillMode", "process".into());
            set("SendSIGKILL", false.into());
        }
        for property in &asked {
            set(&property.name, property.value.clone());
        }
        let mut read_back = asked;
        if spec.multiuser {
            // systemd was seen to ignore it. Its default of 90 s then drains the node (flux-core
            // #7292).
            let name = "TimeoutStopUSec".to_string();
            read_back.push(Property { name, value: stop_timeout.into() });
        }
        // systemd does not return a percentage as a percentage.
        read_back.retain(|property| !property.name.ends_with("Scale"));
        let mut properties: Vec<_> = properties.into_iter().collect();
        for line in lines(environment(spec, std::env::vars_os())?) {
            properties.push(("Environment".to_string(), line.into()));
        }
        Ok(Self { properties, read_back })
    }
}

/// The property with the unit's command line.
///
/// systemd writes it to a file, which it reads again when its configuration is reloaded. In the file
/// of systemd 252 `ExecStartEx` has that name, which is no setting: the unit cannot be started any
/// more, and shows as one with a bad setting if it runs. `ExecStart` is read as it was set, but for
/// `$` and `;`, which get a backslash there; and systemd would replace `$NAME`. With an argument that
/// has one of these it is better that systemd refuses the start, which is then repeated, than that
/// it runs another command.
fn command(path: String, argv: &[String]) -> (&'static str, Variant<'static>) {
    if argv.iter().any(|argument| argument.contains(['$', ';'])) {
        let flags = vec!["no-env-expand".to_string()];
        ("ExecStartEx", vec![(path, argv.to_vec(), flags)].into())
    } else {
        let ignores_failure = false;
        ("ExecStart", vec![(path, argv.to_vec(), ignores_failure)].into())
    }
}

/// What the unit says of its job. By this it is recognised later, also without its record. Entries in
/// the journal have it as well.
fn marks(spec: &UnitSpec) -> Vec<Vec<u8>> {
    let marks = [
        format!("{DIGEST_FIELD}{}", spec.digest),
        format!("{USERID_FIELD}{}", spec.userid),
        format!("{SIZE_FIELD}{}", spec.size),
    ];
    marks.map(String::into_bytes).to_vec()
}

/// Refuse strings with a NUL, which D-Bus does not allow: the bus would close the connection, and
/// no unit could be seen then. [`check_variable`] checks variables.
fn check_strings(spec: &UnitSpec) -> Result<(), StartError> {
    let one = [&spec.description].into_iter().chain(&spec.working_directory);
    let mut all = one.chain(&spec.argv).chain(spec.properties.values());
    match all.find(|text| text.contains('\0')) {
        Some(text) => Err(StartError::Nul { text: text.clone() }),
        None => Ok(()),
    }
}

/// The broker's environment without what the shell must not see, and with what is set for the
/// shell.
fn environment(
    spec: &UnitSpec,
    own: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<String>, StartError> {
    let mut environment = BTreeMap::new();
    for (name, value) in own {
        let Some((name, value)) = name.to_str().zip(value.to_str()) else {
            tracing::warn!(unit = %spec.unit, ?name, "variable not passed on: it is not UTF-8");
            continue;
        };
        let hidden = MANAGER_VARIABLES.contains(&name)
            || spec.unset_environment.iter().any(|unset| unset == name)
            || spec.environment.contains_key(name);
        if hidden {
            continue;
        }
        match check_variable(name, value) {
            Ok(()) => {
                environment.insert(name.to_string(), value.to_string());
            }
            // For instance an exported bash function.
            Err(why) => {
                tracing::debug!(unit = %spec.unit, name, %why, "variable not passed on");
            }
        }
    }
    for (name, value) in &spec.environment {
        check_variable(name, value).map_err(|why| {
            let (name, value) = (name.clone(), value.clone());
            StartError::Variable { name, value, why }
        })?;
        environment.insert(name.clone(), value.clone());
    }
    Ok(environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
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
    Ok(())
}

/// The variables that the user manager would add and that the shell must not see.
fn unset_variables(spec: &UnitSpec) -> Vec<String> {
    let names: BTreeSet<&str> = MANAGER_VARIABLES
        .iter()
        .copied()
        // The IMP reports through `NOTIFY_SOCKET`, and its helper finds the unit by
        // `INVOCATION_ID`. Both have the unit's own values.
        .filter(|name| !(spec.multiuser && matches!(*name, "INVOCATION_ID" | "NOTIFY_SOCKET")))
        .chain(spec.unset_environment.iter().map(String::as_str))
        .filter(|name| !spec.environment.contains_key(*name) && check_variable(name, "").is_ok())
        .collect();
    names.into_iter().map(str::to_string).collect()
}

/// The variables, in lists that are each one line of a file to systemd. It refuses to read a longer
/// one than 1 MiB again, where each byte of a character can have become four.
fn lines(environment: Vec<String>) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut bytes = LINE_BYTES;
    for variable in environment {
        if bytes >= LINE_BYTES {
            lines.push(Vec::new());
            bytes = 0;
        }
        bytes += variable.len();
        lines.last_mut().into_iter().for_each(|line| line.push(variable.clone()));
    }
    lines
}

fn unit_path(path: &Path) -> Result<String, StartError> {
    let text = path.to_str().filter(|text| is_one_line(text)).map(str::to_string);
    text.ok_or_else(|| StartError::Path { path: path.to_path_buf() })
}

/// Whether this is the same when it is read again from a line of a unit file that ends with it, which
/// systemd writes as it is.
fn is_one_line(text: &str) -> bool {
    !text.contains(char::is_control) && !text.ends_with([' ', '\\'])
}

/// The timeout in microseconds, at least 1: for systemd 0 means no timeout.
fn timeout_us(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// Why systemd could not execute the program: an errno and a message for the job's owner.
///
/// systemd only tells which step failed (by an exit code), so the errno is found by trying.
pub(super) fn exec_failure(spec: &UnitSpec, code: Option<i32>, result: &str) -> (i32, String) {
    let program = spec.argv.first().map_or("", String::as_str);
    let (errno, message) = match code {
        Some(203) => {
            let errno = match nix::unistd::access(program, nix::unistd::AccessFlags::X_OK) {
                Err(e) => e,
                Ok(()) if Path::new(program).is_dir() => Errno::EACCES,
                // It exists and may be executed, so it is not a program, or its interpreter is
                // missing.
                Ok(()) => Errno::ENOEXEC,
            };
            (errno, format!("{program}: {}", errno.desc()))
        }
        Some(code) => {
            let (errno, step) = match code {
                200 => (Errno::ENOENT, "change to its working directory"),
                201 => (Errno::EPERM, "set its nice level"),
                204 => (Errno::ENOMEM, "allocate memory"),
                205 => (Errno::EPERM, "set its resource limits"),
                206 => (Errno::EPERM, "set its OOM score"),
                208 => (Errno::EIO, "open its standard input"),
                209 => (Errno::EIO, "open its standard output"),
                219 => (Errno::EIO, "join its cgroup"),
                222 => (Errno::EIO, "open its standard error"),
                _ => (Errno::EIO, "set up its process"),
            };
            (errno, format!("{program}: systemd could not {step} (exit code {code})"))
        }
        None => (Errno::EIO, format!("{program}: systemd could not start it ({result})")),
    };
    (errno as i32, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{BrokerRank, InstanceId, JobDigest, JobId, UnitName};

    fn spec() -> UnitSpec {
        let unit = UnitName::new(false, BrokerRank(0), JobId(1), InstanceId::new("/test", 1));
        UnitSpec {
            userid: 1,
            argv: vec!["/bin/echo".to_string(), "$HOME".to_string()],
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
            ("SECRET", "hidden"),
        ];
        let own = own.map(|(name, value)| (name.into(), value.into()));
        let environment = environment(&spec(), own.into_iter()).unwrap();
        assert_eq!(environment, ["A=job", "B=kept"]);
        let unset = unset_variables(&spec());
        assert!(unset.contains(&"SECRET".to_string()) && unset.contains(&"NOTIFY_SOCKET".into()));
        assert!(!unset.contains(&"A".to_string()), "set wins over unset");
    }

    /// What a unit gets with these properties configured, and what it is compared with later.
    fn given(multiuser: bool, name: &str) -> (Option<Variant<'static>>, Vec<Property>) {
        let configured = [("KillMode", "mixed"), ("SendSIGKILL", "yes"), ("TimeoutStopSec", "5")];
        let configured = configured.map(|(name, value)| (name.to_string(), value.to_string()));
        let spec = UnitSpec { multiuser, properties: BTreeMap::from(configured), ..spec() };
        let output = OutputPaths { stdout: "/out".into(), stderr: "/err".into() };
        let start = Start::new(&spec, &output).unwrap();
        let value = start.properties.into_iter().find(|(given, _)| given == name);
        let read_back = start.read_back.into_iter().filter(|property| property.name == name);
        (value.map(|(_, value)| value), read_back.collect())
    }

    #[test]
    fn what_a_multiuser_unit_depends_on_cannot_be_configured() {
        for (name, ours, configured) in [
            ("KillMode", Variant::from("process"), Variant::from("mixed")),
            ("SendSIGKILL", false.into(), true.into()),
            ("TimeoutStopUSec", u64::MAX.into(), 5_000_000u64.into()),
        ] {
            let (value, read_back) = given(true, name);
            assert_eq!(value.as_ref(), Some(&ours), "{name}");
            assert!(read_back.iter().all(|property| property.value == ours), "{read_back:?}");
            let (value, read_back) = given(false, name);
            assert_eq!(value.as_ref(), Some(&configured), "{name}");
            assert_eq!(read_back, [Property { name: name.to_string(), value: configured }]);
        }
        assert_eq!(given(true, "TimeoutStopUSec").1.len(), 1, "seen ignored by systemd");
    }

    #[test]
    fn a_bad_variable_of_the_job_is_an_error() {
        let mut spec = spec();
        spec.environment.insert("1X".to_string(), "y".to_string());
        let error = environment(&spec, std::iter::empty()).unwrap_err().to_string();
        assert!(error.contains("1X=\"y\""), "{error}");
    }

    #[test]
    fn exec_failures_have_an_errno() {
        let mut spec = spec();
        for (program, errno) in [
            ("/nonexistent/flux-shell", Errno::ENOENT),
            ("/tmp", Errno::EACCES),
            ("/etc/passwd", Errno::EACCES),
        ] {
            spec.argv[0] = program.to_string();
            let (found, message) = exec_failure(&spec, Some(203), "exit-code");
            assert_eq!(found, errno as i32, "{message}");
            assert!(message.starts_with(program), "{message}");
        }
    }
}

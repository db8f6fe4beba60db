//! The arguments of `StartTransientUnit` for a unit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use zbus::Variant;

use crate::port::supervisor::UnitSpec;
use crate::proto::SliceName;
use crate::supervisor::OutputPaths;

use super::environment::{
    BadVariable, Inherited, is_noncharacter, is_of_imp, lines, unset_variables,
};
use super::program::{self, ProgramError};
use super::properties::{Property, PropertyError, parse};

/// Journal field that holds the job's digest.
pub(super) const DIGEST_FIELD: &str = "JOB_EXEC_DIGEST=";
/// Journal field that holds the user id of the job's owner.
pub(super) const USERID_FIELD: &str = "JOB_EXEC_USERID=";
/// Journal field that says how many shells the job has.
pub(super) const SIZE_FIELD: &str = "JOB_EXEC_SIZE=";

/// The property with the names of variables that the unit does not get.
const UNSET: &str = "UnsetEnvironment";

/// Properties that cannot be configured for a unit under the IMP, because the IMP alone must end a
/// guest's processes, however long it takes. `Type` cannot be configured for any unit.
const FIXED_UNDER_IMP: &[&str] = &["KillMode", "SendSIGKILL", "TimeoutStopUSec"];

/// Properties that weigh a unit against its siblings, or that hold only as far as all above it have
/// them. In a slice of its own a unit has no sibling, so the slice has them as well.
const OF_SLICE: &[&str] =
    &["CPUWeight", "IOWeight", "MemoryLow", "MemoryLowScale", "MemoryMin", "MemoryMinScale"];

/// Properties that systemd does not tell, or not as they were set.
const NOT_COMPARABLE: &[&str] = &[
    "CPUAffinity",
    "Environment",
    "ExecStart",
    "ExecStartEx",
    "ExecStopPost",
    "StandardErrorFileToAppend",
    "StandardOutputFileToAppend",
    "UnsetEnvironment",
    "WorkingDirectory",
];

/// Why a specification cannot become a unit.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum SpecError {
    /// It has no program.
    #[error("the command line is empty")]
    NoProgram,
    /// A string holds what systemd reads in no message.
    #[error("{text:?} has a noncharacter of Unicode, which systemd does not accept")]
    Noncharacter {
        /// The string.
        text: String,
    },
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
    #[error(transparent)]
    Variable(#[from] BadVariable),
}

/// A unit that is to be started: its specification, checked and converted.
#[derive(Clone, Debug)]
pub(super) struct StartCall {
    pub(super) properties: Vec<(String, Variant<'static>)>,
    /// The unit's slice, if it has properties of its own.
    pub(super) auxiliary: Vec<(String, Vec<(String, Variant<'static>)>)>,
    /// Properties that systemd may silently ignore. They are compared later with what systemd has.
    pub(super) read_back: Vec<Property>,
    /// The variables that are set for it.
    names: BTreeSet<String>,
    /// The variables that it must not have, whatever the user manager has.
    unset: BTreeSet<String>,
    multiuser: bool,
}

impl StartCall {
    /// Convert a specification, or say what is wrong with it.
    pub(super) fn new(
        spec: &UnitSpec,
        output: &OutputPaths,
        inherited: &Inherited,
    ) -> Result<Self, SpecError> {
        let program = spec.argv.first().ok_or(SpecError::NoProgram)?;
        check_strings(spec)?;
        let path = program::find(program, spec)?;
        let mut asked = parse(&spec.properties)?;
        if spec.multiuser {
            asked.retain(|property| !FIXED_UNDER_IMP.contains(&property.name.as_str()));
        }
        let stop_timeout = spec.stop_timeout.map_or(u64::MAX, timeout_us);
        let mut properties = of_service(spec, output, stop_timeout)?;
        let (name, command) = command(path, &spec.argv);
        properties.insert(name.to_string(), command);
        for property in as_a_child(spec, inherited, &asked).chain(asked.clone()) {
            properties.insert(property.name, property.value);
        }
        let mut auxiliary = Vec::new();
        if spec.measured {
            let slice = SliceName::new(&spec.unit, spec.digest.as_str());
            let name = slice.under(spec.parent_slice());
            let its = asked.iter().filter(|asked| OF_SLICE.contains(&asked.name.as_str()));
            let its: Vec<_> = its.map(|its| (its.name.clone(), its.value.clone())).collect();
            auxiliary.extend((!its.is_empty()).then(|| (name.clone(), its)));
            properties.insert("Slice".to_string(), name.into());
        }
        let mut read_back = asked;
        read_back.retain(|property| property.name != "Slice" || !spec.measured);
        if spec.multiuser {
            // systemd was seen to ignore it. Its default of 90 s then drains the node (flux-core
            // #7292).
            let name = "TimeoutStopUSec".to_string();
            read_back.push(Property { name, value: stop_timeout.into() });
        }
        // systemd does not return a percentage as a percentage.
        read_back.retain(|property| !property.name.ends_with("Scale"));
        let mut properties: Vec<_> = properties.into_iter().collect();
        let environment = inherited.for_unit(spec)?;
        for line in lines(&environment) {
            properties.push(("Environment".to_string(), line.into()));
        }
        let unset = unset_variables(spec);
        let names = environment.into_keys().collect();
        Ok(Self { properties, auxiliary, read_back, names, unset, multiuser: spec.multiuser })
    }

    /// The properties of which systemd tells the values as they were set.
    pub(super) fn comparable(&self) -> Vec<Property> {
        let is_comparable = |name: &&(String, _)| !NOT_COMPARABLE.contains(&name.0.as_str());
        let all = self.properties.iter().filter(is_comparable);
        let all = all.map(|(name, value)| Property { name: name.clone(), value: value.clone() });
        all.filter(|property| !property.name.ends_with("Scale")).collect()
    }

    /// Take these variables out of the unit's environment, which the user manager has for all units.
    pub(super) fn unset(&mut self, manager: &BTreeSet<String>) {
        let theirs =
            manager.difference(&self.names).filter(|name| !is_of_imp(self.multiuser, name));
        let names: BTreeSet<&String> = self.unset.iter().chain(theirs).collect();
        let names: Vec<String> = names.into_iter().cloned().collect();
        self.properties.retain(|(name, _)| name != UNSET);
        self.properties.push((UNSET.to_string(), names.into()));
    }
}

/// What makes the unit what the tracker takes it for.
fn of_service(
    spec: &UnitSpec,
    output: &OutputPaths,
    stop_timeout: u64,
) -> Result<BTreeMap<String, Variant<'static>>, SpecError> {
    let mut properties: BTreeMap<String, Variant<'static>> = BTreeMap::new();
    let mut set = |name: &str, value: Variant<'static>| {
        properties.insert(name.to_string(), value);
    };
    set("Description", spec.description.clone().into());
    set("Type", if spec.multiuser { "notify" } else { "exec" }.into());
    set("RemainAfterExit", true.into());
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
    // A drop-in for all services wins over what is set here, but not over the second of these.
    set("Restart", "no".into());
    set("RestartPreventExitStatus", (all_statuses(), all_signals()).into());
    set("TimeoutStopUSec", stop_timeout.into());
    // A shell may take long to report that it is ready, or never do it.
    set("TimeoutStartUSec", u64::MAX.into());
    if spec.multiuser
        && let Some(path) = plain_path(&output.end)
    {
        let argv = ["/bin/cp", "/proc/self/environ", path].map(str::to_string).to_vec();
        let ignores_failure = true;
        set("ExecStopPost", vec![(argv[0].clone(), argv, ignores_failure)].into());
    }
    if spec.multiuser || spec.unit.is_script() {
        // The instance owner's systemd may signal the IMP, but no guest's process. A script may start
        // what is to stay, and is not killed in the middle of something.
        set("KillMode", "process".into());
        set("SendSIGKILL", false.into());
    } else {
        set("KillMode", "control-group".into());
    }
    Ok(properties)
}

/// What a child of the broker would have, where a unit would have something else. `asked` is what was
/// configured.
fn as_a_child(
    spec: &UnitSpec,
    inherited: &Inherited,
    asked: &[Property],
) -> impl Iterator<Item = Property> {
    let property = |(name, value): (&str, _)| Property { name: name.to_string(), value };
    let ours = [
        ("IgnoreSIGPIPE", Variant::from(false)),
        ("OOMPolicy", "continue".into()),
        ("TasksMax", u64::MAX.into()),
    ];
    // The user manager's has the instance owner's keys.
    let keyring = spec.multiuser.then(|| property(("KeyringMode", "private".into())));
    // With no CPU in common the program could not be executed.
    let is_confined = asked.iter().any(|property| property.name == "AllowedCPUs");
    let brokers = inherited
        .execution
        .iter()
        .filter(move |property| !is_confined || property.name != "CPUAffinity");
    ours.into_iter().map(property).chain(keyring).chain(brokers.cloned())
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

/// One that systemd reads again as it was, see [`command`].
fn plain_path(path: &Path) -> Option<&str> {
    path.to_str()
        .filter(|path| !path.contains(['$', ';', '%', '"', '\'', '\\']) && is_one_line(path))
}

/// All exit statuses. After an end with one of them systemd does not start the main process again,
/// whatever `Restart=` says.
fn all_statuses() -> Vec<i32> {
    (0..=255).collect()
}

/// All signals. A unit file cannot have the two that the C library keeps for itself.
fn all_signals() -> Vec<i32> {
    (1..=64).filter(|signal| !(32..34).contains(signal)).collect()
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
/// no unit could be seen then. systemd says no more than "Bad message" of a noncharacter. Variables
/// are checked with the environment.
fn check_strings(spec: &UnitSpec) -> Result<(), SpecError> {
    let mut all = [&spec.description].into_iter().chain(&spec.argv).chain(spec.properties.values());
    let bad = all.find(|text| text.contains(|c| c == '\0' || is_noncharacter(c)));
    match bad.cloned() {
        Some(text) if text.contains('\0') => Err(SpecError::Nul { text }),
        Some(text) => Err(SpecError::Noncharacter { text }),
        None => Ok(()),
    }
}

fn unit_path(path: &Path) -> Result<String, SpecError> {
    let text = path.to_str().filter(|text| is_one_line(text)).map(str::to_string);
    text.ok_or_else(|| SpecError::Path { path: path.to_path_buf() })
}

/// Whether this is the same when it is read again from a line of a unit file that ends with it, which
/// systemd writes as it is.
fn is_one_line(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() || is_noncharacter(c)) && !text.ends_with([' ', '\\'])
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

    /// What a unit gets with these properties configured, and what it is compared with later.
    fn given(multiuser: bool, name: &str) -> (Option<Variant<'static>>, Vec<Property>) {
        let configured = [("KillMode", "mixed"), ("SendSIGKILL", "yes"), ("TimeoutStopSec", "5")];
        let configured = configured.map(|(name, value)| (name.to_string(), value.to_string()));
        let spec = UnitSpec { multiuser, properties: BTreeMap::from(configured), ..spec() };
        let output =
            OutputPaths { stdout: "/out".into(), stderr: "/err".into(), end: "/end".into() };
        let start = StartCall::new(&spec, &output, &Inherited::default()).unwrap();
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

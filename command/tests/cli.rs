//! The command line tool, as a user meets it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The command, or the program for developers if that has the subcommand.
fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(match arguments.first() {
        Some(&"run" | &"sim") => env!("CARGO_BIN_EXE_job-exec-rs-dev"),
        _ => env!("CARGO_BIN_EXE_job-exec-rs"),
    });
    command.args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    tool(arguments).output().expect("the tool runs")
}

fn code(arguments: &[&str]) -> Option<i32> {
    output(arguments).status.code()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

#[test]
fn run_ends_as_the_command_does() {
    let fork = |command: &[&str]| code(&[&["run", "--method", "fork", "--"], command].concat());
    assert_eq!(fork(&["true"]), Some(0));
    assert_eq!(fork(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(fork(&["sh", "-c", "kill -TERM $$"]), Some(143));
    assert_eq!(fork(&["no-such-program"]), Some(127));
    assert_eq!(fork(&["/etc/passwd"]), Some(126));
}

#[test]
fn run_passes_output_on() {
    let ran = output(&["run", "-q", "--method", "fork", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((stdout(&ran), stderr(&ran)), ("out\n", "err\n"));
    let script = "echo $FLUX_TASK_RANK of $FLUX_JOB_SIZE";
    let ran = output(&["run", "-qN3", "--label", "--method", "fork", "--", "sh", "-c", script]);
    let mut lines: Vec<&str> = stdout(&ran).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: 0 of 3", "1: 1 of 3", "2: 2 of 3"]);
}

#[test]
fn run_tells_what_happens() {
    let ran = output(&["run", "-N2", "--method", "fork", "true"]);
    for expected in ["method fork", "submitted: true", "started on 2 ranks", "(2/2)", "finished"] {
        assert!(stderr(&ran).contains(expected), "{expected} in {}", stderr(&ran));
    }
    assert_eq!(stdout(&ran), "");
}

#[test]
fn run_writes_events_as_json() {
    let ran = output(&["run", "--json", "--method", "fork", "sh", "-c", "echo hello; exit 2"]);
    assert_eq!((ran.status.code(), stderr(&ran)), (Some(2), ""));
    let parse = |line| serde_json::from_str::<Value>(line).expect("an object");
    let events: Vec<Value> = stdout(&ran).lines().map(parse).collect();
    let find = |source: &str, name: &str| {
        let mut found = events.iter().filter(|e| e["source"] == source && e["name"] == name);
        let event = found.next().unwrap_or_else(|| panic!("{source} {name} in {events:?}"));
        assert!(event["timestamp"].is_f64());
        &event["context"]
    };
    assert_eq!(find("eventlog", "submit")["command"][0], "sh");
    assert_eq!(find("exec.eventlog", "log")["data"], "hello\n");
    assert_eq!(find("eventlog", "finish")["status"], 512);
    assert_eq!(find("eventlog", "release")["final"], true);
    assert!(find("unit", "started")["pid"].is_u64());
    assert_eq!(events.last().expect("events")["name"], "clean");
}

#[test]
fn run_obeys_its_time_limit() {
    let ran = output(&["run", "-t", "0.2s", "--method", "fork", "sleep", "100"]);
    assert_eq!(ran.status.code(), Some(142));
    assert!(stderr(&ran).contains("type=timeout"), "{}", stderr(&ran));
}

/// Sends each signal when a line holds its text, one after the other.
fn interrupted(arguments: &[&str], signals: &[(&str, Signal)]) -> (Option<i32>, String) {
    let mut child = tool(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let mut signals = signals.iter().peekable();
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().expect("a pipe")).lines() {
        let line = line.expect("UTF-8");
        if let Some((_, signal)) = signals.next_if(|(after, _)| line.contains(after)) {
            kill(pid, *signal).expect("it runs");
        }
        said.push_str(&line);
        said.push('\n');
    }
    (child.wait().expect("it ends").code(), said)
}

#[test]
fn an_interrupt_cancels_and_a_second_one_kills() {
    let sleep = ["run", "-N2", "--method", "fork", "sleep", "100"];
    let (code, said) = interrupted(&sleep, &[("started", Signal::SIGINT)]);
    assert_eq!(code, Some(143), "{said}");
    assert!(said.contains("type=cancel severity=0 interrupted (SIGINT)"), "{said}");
    // Quoted, so that the line that names the command does not hold the word.
    let script = "trap '' TERM; echo r'e'ady >&2; while :; do sleep 1; done";
    let stubborn = ["run", "--method", "fork", "--", "sh", "-c", script];
    let signals = [("ready", Signal::SIGTERM), ("type=cancel", Signal::SIGINT)];
    let (code, said) = interrupted(&stubborn, &signals);
    assert_eq!(code, Some(137), "{said}");
}

#[test]
fn a_reader_that_goes_away_ends_the_job() {
    let mut child = tool(&["run", "-q", "--method", "fork", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
}

#[test]
fn a_crash_needs_a_user_systemd_and_says_so_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let nowhere = format!("unix:path={}/bus", dir.path().display());
    // Without programs it cannot start one of its own.
    let ran = tool(&["demo", "--crash"])
        .env("TMPDIR", dir.path())
        .env("DBUS_SESSION_BUS_ADDRESS", nowhere)
        .env("PATH", dir.path())
        .output()
        .expect("the tool runs");
    assert_eq!((ran.status.code(), stdout(&ran)), (Some(1), ""));
    assert!(stderr(&ran).contains("no crash is shown: bash: "), "{}", stderr(&ran));
    assert_eq!(stderr(&ran).lines().count(), 1, "{}", stderr(&ran));
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn what_is_installed_has_nothing_for_developers() {
    for name in ["run", "sim"] {
        let tool = Command::new(env!("CARGO_BIN_EXE_job-exec-rs")).args([name, "--help"]).output();
        let tool = tool.expect("the tool runs");
        assert_eq!(tool.status.code(), Some(2), "{name}: {}", stderr(&tool));
        assert_eq!(code(&[name, "--help"]), Some(0), "{name}");
    }
}

#[test]
fn bad_arguments_are_named() {
    for (arguments, expected) in [
        (&["run"][..], "<CMD>"),
        (&["run", "-N0", "true"], "0 is not in 1..=512"),
        (&["run", "-Nx", "true"], "'x'"),
        (&["run", "-t", "soon", "true"], "invalid duration \"soon\""),
        (&["run", "--method", "magic", "true"], "auto, fork, systemd"),
        (&["run", "--kill-timeout", "0", "true"], "more than 0"),
        (&["demo", "--crash", "--method", "fork"], "cannot be used with"),
        (&["fly"], "'fly'"),
        (&[], "Usage"),
    ] {
        let ran = output(arguments);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&ran).contains(expected), "{expected} in {}", stderr(&ran));
    }
}

#[test]
fn help_and_version_are_there() {
    assert!(stdout(&output(&["--version"])).starts_with("job-exec-rs "));
    for arguments in [&["--help"][..], &["run", "--help"], &["install", "--help"]] {
        let said = output(arguments);
        assert!(stdout(&said).contains("Examples:"), "{arguments:?}");
    }
}

#[test]
fn a_state_directory_that_cannot_be_used_is_named() {
    let ran = output(&["run", "--statedir", "/proc/nowhere", "--method", "fork", "true"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(stderr(&ran).contains("/proc/nowhere"), "{}", stderr(&ran));
}

/// Something that looks like a broker module.
fn module(directory: &Path, content: &[u8]) -> String {
    let path = directory.join("module.so");
    std::fs::write(&path, content).expect("a file");
    path.to_str().expect("UTF-8").to_string()
}

/// Something that looks like the connector, beside it.
fn connector(directory: &Path) {
    std::fs::write(directory.join("libresume.so"), b"\x7fELF\0connector_init\0").expect("a file");
}

#[test]
fn install_writes_files_and_uninstall_removes_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let module = module(dir.path(), b"\x7fELF\0mod_main\0");
    connector(dir.path());
    let root = dir.path().join("root");
    let place = ["--prefix", "/opt/flux", "--destdir", root.to_str().expect("UTF-8")];
    let install = [&["install", "--module", &module][..], &place].concat();
    let so = root.join("opt/flux/lib/flux/modules/job-exec-rs.so");
    let command = root.join("opt/flux/libexec/flux/cmd/flux-job-exec-rs");
    let manual = root.join("opt/flux/share/man/man1/flux-job-exec-rs.1");
    let connector = root.join("opt/flux/lib/flux/connectors/resume.so");
    let drop_in = root.join("opt/flux/share/flux/modprobe/modprobe.d/50-job-exec-rs.toml");
    // The second time replaces the first.
    for _ in 0..2 {
        let ran = output(&install);
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
        for expected in ["systemctl restart flux", so.to_str().expect("UTF-8")] {
            assert!(stdout(&ran).contains(expected), "{expected} in {}", stdout(&ran));
        }
    }
    let mode = |path: &Path| {
        let metadata = std::fs::metadata(path).expect("a file");
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
    };
    assert_eq!((mode(&so), mode(&connector), mode(&drop_in)), (0o755, 0o755, 0o644));
    assert_eq!((mode(&command), mode(&manual)), (0o755, 0o644));
    assert_eq!(files(so.parent().expect("a directory")), 1, "no temporary file is left");
    let text = std::fs::read_to_string(&drop_in).expect("text");
    assert!(text.contains("provides = [\"job-exec\"]"), "{text}");

    let other = so.with_file_name("job-exec.so");
    std::fs::write(&other, "flux-core's").expect("a file");
    let uninstall = [&["uninstall"][..], &place].concat();
    let said = output(&uninstall);
    assert!(stdout(&said).contains("removed"), "{}", stdout(&said));
    assert!(!so.exists() && !connector.exists() && !drop_in.exists() && other.exists());
    assert!(!command.exists() && !manual.exists());
    let said = output(&uninstall);
    assert_eq!(said.status.code(), Some(0));
    assert!(stdout(&said).contains("was not there"), "{}", stdout(&said));
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("a directory").count()
}

#[test]
fn a_reader_that_goes_away_is_told_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let module = module(dir.path(), b"\x7fELF\0mod_main\0");
    connector(dir.path());
    let install = ["install", "--dry-run", "--module", &module, "--prefix", "/opt/flux"];
    for arguments in [&install[..], &["demo", "--method", "fork"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ran = tool(arguments).stdout(writer).output().expect("the tool runs");
        assert_eq!((ran.status.code(), stderr(&ran)), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
fn install_refuses_what_is_no_module_and_writes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    let root_text = root.to_str().expect("UTF-8");
    let no_symbol = module(dir.path(), b"\x7fELF\0other\0");
    for (module, expected) in
        [(no_symbol.as_str(), "no symbol mod_main"), ("/no/such/file.so", "/no/such/file.so")]
    {
        let ran = output(&["install", "--module", module, "--prefix", root_text]);
        assert_eq!(ran.status.code(), Some(1));
        assert!(stderr(&ran).contains(expected), "{}", stderr(&ran));
    }
    assert!(!root.exists());
    let module = module(dir.path(), b"\x7fELF\0mod_main\0");
    let ran = output(&["install", "--module", &module, "--prefix", root_text]);
    assert!(stderr(&ran).contains("libresume.so"), "no connector: {}", stderr(&ran));
    assert!(!root.exists());
    connector(dir.path());
    let ran = output(&["install", "--module", &module, "--prefix", "/proc/nowhere"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(stderr(&ran).contains("/proc/nowhere"), "{}", stderr(&ran));
}

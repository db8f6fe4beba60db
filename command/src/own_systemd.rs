//! A `systemd --user` for as long as the demonstration runs, where none answers.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use job_exec_rs_command::embedded::temporary;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::failure::Failure;
use super::signals::SignalThread;

/// The tests have the same.
const SCRIPT: &str = include_str!("../../tests/user-systemd");
/// The script's exit status where there can be none. It has said why.
const IMPOSSIBLE: i32 = 77;

/// Runs this program again, with `--inside` as well, in a systemd of its own. `says` begins what
/// stderr says where that cannot be; then this returns `None`.
pub(super) fn run(says: &str) -> Result<Option<ExitCode>, Failure> {
    let place = temporary().map_err(Failure::new)?;
    let ran = run_in(&place, says);
    if let Err(error) = fs::remove_dir_all(&place) {
        tracing::warn!(path = %place.display(), %error, "cannot remove it");
    }
    ran
}

fn run_in(place: &Path, says: &str) -> Result<Option<ExitCode>, Failure> {
    let script = place.join("user-systemd");
    fs::write(&script, SCRIPT).map_err(Failure::new)?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let child = Command::new("bash")
        .arg(&script)
        .arg(program)
        .args(arguments)
        .arg("--inside")
        .env("USER_SYSTEMD_SAYS", says)
        // Ctrl-C is for this process, which passes one signal on.
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| Failure(format!("{says} bash: {error}")))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(Failure::new)?);
    let _signals = SignalThread::start(move |_, _| {
        // It may have ended just now.
        let _ = kill(pid, Signal::SIGTERM);
        "ending the demonstration"
    })?;
    match child.wait().map_err(Failure::new)?.code() {
        Some(IMPOSSIBLE) => Ok(None),
        code => {
            Ok(Some(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))))
        }
    }
}

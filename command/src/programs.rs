//! Other programs: those of Flux and systemd, here and on other ranks.

use std::process::{Command, Output};

use nix::unistd::getuid;
use serde_json::Value;

use super::failure::Failure;

/// What a program has printed, and how it has ended. It finds the user manager also where it was
/// started without a login, as by flux-exec(1).
///
/// # Errors
/// It cannot be run.
fn output(program: &str, arguments: &[&str]) -> Result<Output, Failure> {
    let mut command = Command::new(program);
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", getuid()));
    }
    let output = command.args(arguments).output();
    output.map_err(|error| Failure(format!("{program}: {error}")))
}

/// What a program prints.
///
/// # Errors
/// What it says is wrong.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = output(program, arguments)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_string());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    match said.trim() {
        "" => Err(Failure(format!("{program} {}: {}", arguments.join(" "), output.status))),
        said => Err(Failure(said.to_string())),
    }
}

/// Runs `flux job-exec-rs ARGUMENTS` on these ranks (`all`, or an idset). Returns the lines of JSON that
/// they print, and what flux-exec(1) says of ranks that print none.
///
/// # Errors
/// flux-exec(1) cannot be run.
pub(super) fn on_ranks(ranks: &str, arguments: &[&str]) -> Result<(Vec<Value>, String), Failure> {
    let exec = ["exec", "-r", ranks, "flux", "job-exec-rs"];
    let output = output("flux", &[&exec, arguments].concat())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ok((lines, String::from_utf8_lossy(&output.stderr).trim().to_string()))
}

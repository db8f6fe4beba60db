//! The same command on other ranks, through their brokers.

use std::process::Command;

use serde_json::Value;

use super::failure::Failure;

/// Runs `flux job-exec-rs ARGUMENTS` on these ranks (`all`, or an idset). Returns the lines of JSON that
/// they print, and what flux-exec(1) says of ranks that print none.
///
/// # Errors
/// flux-exec(1) cannot be run.
pub(super) fn on_ranks(ranks: &str, arguments: &[&str]) -> Result<(Vec<Value>, String), Failure> {
    let mut flux = Command::new("flux");
    flux.args(["exec", "-r", ranks, "flux", "job-exec-rs"]).args(arguments);
    let output = flux.output().map_err(|error| Failure(format!("flux exec: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ok((lines, String::from_utf8_lossy(&output.stderr).trim().to_string()))
}

//! What modules say of themselves (`rfc/0005-configuration.md`, 5.5).

use job_exec_rs::adapter::libflux::Handle;
use serde_json::Value;

use super::failure::Failure;

/// The statistics of the instance: those of rank 0, with the jobs that other ranks lead.
///
/// # Errors
/// There is no broker, or rank 0 has no module.
pub(super) fn of_instance(flux: Handle) -> Result<Value, Failure> {
    ask(flux, 0, "{}")
}

/// The statistics of one rank alone.
///
/// # Errors
/// There is no broker, or the rank has no module.
pub(super) fn of_rank(flux: Handle, rank: u32) -> Result<Value, Failure> {
    ask(flux, rank, r#"{"own":true}"#)
}

fn ask(flux: Handle, rank: u32, payload: &str) -> Result<Value, Failure> {
    let text = flux.ask_rank(rank, "job-exec.stats-get", payload);
    let text = text.map_err(|error| Failure(format!("rank {rank}: {error}")))?;
    serde_json::from_str(&text).map_err(Failure::new)
}

/// One unit that a rank's module has.
pub(super) struct Unit {
    /// As the module shows it.
    pub(super) job: String,
    /// `shell`, `prolog` or `epilog`.
    pub(super) stage: String,
    pub(super) unit: String,
    pub(super) pid: Option<u64>,
}

/// Shells and scripts in the statistics of a rank.
pub(super) fn units(stats: &Value) -> Vec<Unit> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let shells = stats["shells"].as_object().into_iter().flatten().map(|(job, shell)| Unit {
        job: job.clone(),
        stage: "shell".to_string(),
        unit: text(&shell["unit"]),
        pid: shell["pid"].as_u64(),
    });
    let scripts = stats["scripts"].as_object().into_iter().flatten().flat_map(|(job, all)| {
        let all = all.as_array().into_iter().flatten();
        all.map(|script| Unit {
            job: job.clone(),
            stage: text(&script["stage"]),
            unit: text(&script["unit"]),
            pid: None,
        })
    });
    shells.chain(scripts).collect()
}

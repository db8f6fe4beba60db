//! What the module of this node's broker says of itself.

use job_exec_rs::adapter::libflux::Handle;
use serde_json::Value;

use super::failure::Failure;

/// The statistics of this rank alone (`rfc/0005-configuration.md`, 5.5).
///
/// # Errors
/// There is no broker, or it has no module.
pub(super) fn own_stats(flux: Handle, rank: u32) -> Result<Value, Failure> {
    let text = flux.ask_rank(rank, "job-exec.stats-get", r#"{"own":true}"#);
    let text = text.map_err(|error| Failure(format!("rank {rank}: {error}")))?;
    serde_json::from_str(&text).map_err(Failure::new)
}

/// One unit that this rank's module has.
pub(super) struct OwnUnit {
    /// As the module shows it.
    pub(super) job: String,
    /// `shell`, `prolog` or `epilog`.
    pub(super) stage: String,
    pub(super) unit: String,
    pub(super) pid: Option<u64>,
}

/// Shells and scripts in the statistics of a rank.
pub(super) fn own_units(stats: &Value) -> Vec<OwnUnit> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let shells = stats["shells"].as_object().into_iter().flatten().map(|(job, shell)| OwnUnit {
        job: job.clone(),
        stage: "shell".to_string(),
        unit: text(&shell["unit"]),
        pid: shell["pid"].as_u64(),
    });
    let scripts = stats["scripts"].as_object().into_iter().flatten().flat_map(|(job, all)| {
        let all = all.as_array().into_iter().flatten();
        all.map(|script| OwnUnit {
            job: job.clone(),
            stage: text(&script["stage"]),
            unit: text(&script["unit"]),
            pid: None,
        })
    });
    shells.chain(scripts).collect()
}

//! What modules say of themselves (`rfc/0005-configuration.md`, 5.5).

use serde_json::Value;

use super::broker;
use super::failure::Failure;

/// The statistics of the instance: those of rank 0, with the jobs that other ranks lead.
///
/// # Errors
/// As [`of_rank`], of rank 0.
pub(super) fn of_instance() -> Result<Value, Failure> {
    ask(0, "{}")
}

/// The statistics of one rank alone.
///
/// # Errors
/// There is no broker, or the rank has no module, or flux-core's.
pub(super) fn of_rank(rank: u32) -> Result<Value, Failure> {
    ask(rank, r#"{"own":true}"#)
}

fn ask(rank: u32, payload: &str) -> Result<Value, Failure> {
    let text = broker::ask(rank, "job-exec.stats-get", payload);
    let text = text.map_err(|error| Failure(format!("rank {rank}: {error}")))?;
    ours(serde_json::from_str(&text).map_err(Failure::new)?, rank)
}

/// What has the service, if it is not this module.
pub(super) const FLUX_CORES: &str = "flux-core's own job-exec";

/// It has the same service, and knows of no launcher.
fn ours(stats: Value, rank: u32) -> Result<Value, Failure> {
    if stats["launcher"].is_null() {
        return Err(Failure(format!("rank {rank}: {FLUX_CORES} is loaded")));
    }
    Ok(stats)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_flux_cores_job_exec_says_is_not_taken_for_ours() {
        // As flux-core 0.88.0 answers.
        let theirs =
            json!({ "method": "bulk-exec", "kill-timeout": 5.0, "jobs": {}, "config": {} });
        let error = ours(theirs, 0).expect_err("not ours");
        assert_eq!(error.to_string(), "rank 0: flux-core's own job-exec is loaded");
        assert!(ours(json!({ "launcher": "none" }), 0).is_ok());
    }
}

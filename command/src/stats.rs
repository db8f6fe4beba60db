//! What modules say of themselves (`rfc/0005-configuration.md`, 5.5).

use std::collections::BTreeMap;

use job_exec_rs::proto::Idset;
use serde_json::Value;

use super::broker;
use super::failure::Failure;

/// The statistics of the instance: those of rank 0, with the jobs that other ranks lead. A user who is
/// not the instance owner gets what there is of the user's own jobs, and asks these ranks itself.
///
/// # Errors
/// As [`of_rank`], of rank 0.
pub(super) fn of_instance() -> Result<Value, Failure> {
    let mut stats = ask(0, "{}")?;
    if is_guests(&stats) {
        let led = stats["coordinated"].as_object().cloned().unwrap_or_default();
        let leaders = led.values().filter_map(|job| u32::try_from(job["leader"].as_u64()?).ok());
        // A leader that does not answer is seen by that.
        let (told, _) = of_ranks(&leaders.collect());
        for (id, job) in led {
            let of_leader = told.iter().find(|(rank, _)| job["leader"] == **rank);
            stats["jobs"][&id] = of_leader.map_or(Value::Null, |(_, its)| its["jobs"][&id].clone());
        }
    }
    Ok(stats)
}

/// They are for another user than the instance owner.
pub(super) fn is_guests(stats: &Value) -> bool {
    stats["config"].is_null()
}

/// # Errors
/// They are for another user than the instance owner.
pub(super) fn owners_alone(stats: &Value) -> Result<(), Failure> {
    let why = "only the instance owner can do that";
    if is_guests(stats) { Err(Failure(why.to_string())) } else { Ok(()) }
}

/// The statistics of each of these ranks, and why there are none of some.
pub(super) fn of_ranks(ranks: &Idset) -> (BTreeMap<u32, Value>, Vec<String>) {
    let (mut told, mut silent) = (BTreeMap::new(), Vec::new());
    for rank in ranks.iter() {
        match of_rank(rank) {
            Ok(stats) => {
                told.insert(rank, stats);
            }
            Err(Failure(why)) => silent.push(why),
        }
    }
    (told, silent)
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

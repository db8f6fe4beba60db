//! `job-exec-rs perilog`: prologs and epilogs that jobs wait for.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use job_exec_rs::adapter::libflux::Handle;
use job_exec_rs::proto::{Idset, JobId, PerilogRelease};
use serde_json::{Value, json};

use super::failure::Failure;
use super::stats;

/// Show the prologs and epilogs that jobs wait for, or have a job wait no longer
///
/// For the instance owner, where `exec.perilog` is enabled.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  job-exec-rs perilog list
  job-exec-rs perilog release f2XyZ                    drain where one hangs, and let the job end
  job-exec-rs perilog release f2XyZ --ranks 3 --kill   the same on rank 3, and kill what hangs")]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// One line for each script that runs: job, rank, stage, state, for how long, time left, unit
    List,
    Release(Release),
}

/// Have a job wait no longer for a prolog or an epilog
///
/// A job that waits for its prologs fails. One that waits for epilogs ends. The script itself goes
/// on, unless --kill is given.
#[derive(Args, Debug)]
struct Release {
    /// The job
    #[arg(value_name = "JOBID")]
    job: JobId,
    /// On these of its ranks only
    #[arg(long, value_name = "IDSET")]
    ranks: Option<Idset>,
    /// Do not drain these ranks
    #[arg(long)]
    no_drain: bool,
    /// Kill the script: it may be in the middle of something
    #[arg(long)]
    kill: bool,
}

pub(super) fn perilog(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let flux = Handle::connect().map_err(Failure::new)?;
    JobId::show_ascii(flux.shows_ascii_f58());
    match &arguments.what {
        What::List => list(flux)?,
        What::Release(release) => {
            let payload = json!(PerilogRelease {
                id: release.job,
                ranks: release.ranks.clone(),
                drain: !release.no_drain,
                kill: release.kill,
            });
            let topic = "job-exec.perilog-release";
            flux.ask_rank(0, topic, &payload.to_string()).map_err(Failure::new)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Rank 0 knows which ranks' scripts each job waits for; what these do, the ranks know.
fn list(flux: Handle) -> Result<(), Failure> {
    let stats = stats::of_instance(flux)?;
    let mut ranks = Idset::new();
    for job in stats["jobs"].as_object().into_iter().flatten().map(|(_, job)| job) {
        for key in ["prolog_ranks", "epilog_ranks"] {
            let named = job[key].as_str().unwrap_or_default().parse().map_err(Failure::new)?;
            ranks = ranks.union(&named);
        }
    }
    let mut out = std::io::stdout().lock();
    let mut silent = Vec::new();
    for rank in ranks.iter() {
        let scripts = match stats::of_rank(flux, rank) {
            Ok(mut stats) => stats["scripts"].take(),
            Err(Failure(why)) => {
                silent.push(why);
                continue;
            }
        };
        for (job, scripts) in scripts.as_object().into_iter().flatten() {
            // The broker may show ids in another form.
            let job: JobId = job.parse().map_err(Failure::new)?;
            for script in scripts.as_array().into_iter().flatten() {
                let line = line(&job.to_string(), rank, script);
                writeln!(out, "{line}").map_err(Failure::new)?;
            }
        }
    }
    if silent.is_empty() { Ok(()) } else { Err(Failure(silent.join("\n"))) }
}

fn line(job: &str, rank: u32, script: &Value) -> String {
    let text = |key: &str| script[key].as_str().unwrap_or("-").to_string();
    let seconds = |key: &str| match script[key].as_f64() {
        Some(seconds) => format!("{seconds:.0}s"),
        None => "-".to_string(),
    };
    let (runs_for, time_left) = (seconds("runs_for"), seconds("time_left"));
    let (stage, state, unit) = (text("stage"), text("state"), text("unit"));
    format!("{job} {rank} {stage} {state} {runs_for} {time_left} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_a_line_and_what_has_no_limit_says_so() {
        let script = json!({ "stage": "epilog", "state": "running", "unit": "epilog-3-f2L-0.service",
                             "runs_for": 61.4, "time_left": null });
        assert_eq!(line("f2L", 3, &script), "f2L 3 epilog running 61s - epilog-3-f2L-0.service");
    }
}

//! `job-exec-rs perilog`: prologs and epilogs that jobs wait for.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use job_exec_rs::proto::{Idset, JobId, PerilogRelease};
use serde_json::{Value, json};

use super::broker::{self, Broker};
use super::failure::Failure;
use super::out::Out;
use super::stats;
use super::table::Form;

const COLUMNS: [&str; 7] = ["jobid", "rank", "stage", "state", "runs_for", "time_left", "unit"];
const FORMAT: &str =
    "{jobid:<14} {rank:>5} {stage:<7} {state:<8} {runs_for:>9} {time_left:>9} {unit}";

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
    #[command(after_help = "\
Columns: jobid rank stage state runs_for time_left unit")]
    List(List),
    Release(Release),
}

#[derive(Args, Debug)]
struct List {
    /// This job's alone
    #[arg(value_name = "JOBID")]
    job: Option<JobId>,
    #[command(flatten)]
    form: Form,
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
    Broker::ask()?;
    match &arguments.what {
        What::List(arguments) => list(arguments)?,
        What::Release(release) => {
            let payload = json!(PerilogRelease {
                id: release.job,
                ranks: release.ranks.clone(),
                drain: !release.no_drain,
                kill: release.kill,
            });
            broker::ask(0, "job-exec.perilog-release", &payload.to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Rank 0 knows which ranks' scripts each job waits for; what these do, the ranks know.
fn list(arguments: &List) -> Result<(), Failure> {
    let wanted = |id: &str| arguments.job.is_none_or(|job| id.parse() == Ok(job));
    let stats = stats::of_instance()?;
    let mut ranks = Idset::new();
    for (_, job) in stats["jobs"].as_object().into_iter().flatten().filter(|(id, _)| wanted(id)) {
        for key in ["prolog_ranks", "epilog_ranks"] {
            let named = job[key].as_str().unwrap_or_default().parse().map_err(Failure::new)?;
            ranks = ranks.union(&named);
        }
    }
    let (mut rows, mut silent) = (Vec::new(), Vec::new());
    for rank in ranks.iter() {
        let scripts = match stats::of_rank(rank) {
            Ok(mut stats) => stats["scripts"].take(),
            Err(Failure(why)) => {
                silent.push(why);
                continue;
            }
        };
        for (id, scripts) in scripts.as_object().into_iter().flatten().filter(|(id, _)| wanted(id))
        {
            // The broker may show ids in another form.
            let job: JobId = id.parse().map_err(Failure::new)?;
            rows.extend(scripts.as_array().into_iter().flatten().map(|it| row(job, rank, it)));
        }
    }
    arguments.form.show(&rows, (&COLUMNS, FORMAT), &mut Out::lock())?;
    if silent.is_empty() { Ok(()) } else { Err(Failure(silent.join("\n"))) }
}

fn row(job: JobId, rank: u32, script: &Value) -> Value {
    let mut row = json!({ "jobid": job.to_string(), "rank": rank });
    for name in &COLUMNS[2..] {
        row[name] = script[name].clone();
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_a_line_and_what_has_no_limit_says_so() {
        let script = json!({ "stage": "epilog", "state": "running", "unit": "epilog-3-f2L-0.service",
                             "runs_for": 61.4, "time_left": null });
        let form = Form::default();
        let mut out = Vec::new();
        let rows = [row(JobId(1), 3, &script)];
        form.show(&rows, (&COLUMNS, "{rank} {stage} {runs_for} {time_left} {unit}"), &mut out)
            .expect("a table");
        let shown = String::from_utf8(out).expect("text");
        assert_eq!(shown.lines().nth(1), Some("3 epilog 61s - epilog-3-f2L-0.service"));
    }
}

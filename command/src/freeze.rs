//! `job-exec-rs freeze` and `thaw`: the processes of a job stand still, and go on.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use job_exec_rs::proto::{Idset, JobId};
use serde_json::{Value, json};

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::programs::{on_ranks, ranks_of_job, run, tell};
use super::reach::Reach;
use super::stats;
use super::status::of_job;
use super::units::own_slice;

/// Which job, and how long its ranks have to answer.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The job
    #[arg(value_name = "JOBID")]
    job: JobId,
    #[command(flatten)]
    reach: Reach,
}

/// Freezes or thaws a job. `verb` is systemctl's own, and `done` says that it was done.
pub(super) fn carry_out(
    arguments: &Arguments,
    (verb, done): (&str, &str),
) -> Result<ExitCode, Failure> {
    let Arguments { job, reach } = arguments;
    let broker = Broker::ask()?;
    if reach.here {
        return tell([json!(here(verb, broker.rank, *job)?)]);
    }
    let answers = on_ranks(&ranks(*job)?, &[verb, &job.to_string()], reach.timeout)?;
    let mut out = Out::lock();
    for (rank, slices) in &answers.told {
        let host = broker.hosts.as_ref().and_then(|hosts| hosts.get(*rank as usize));
        let slice = slices.first().and_then(Value::as_str).unwrap_or("?");
        let host = host.unwrap_or("?");
        writeln!(out, "{host} (rank {rank}): {done}: {slice}").map_err(Failure::new)?;
    }
    let is_complete = answers.complain();
    if verb == "freeze" && !answers.told.is_empty() {
        let text = format!("its time limit goes on; job-exec-rs thaw {job} ends the freeze");
        writeln!(out, "{job}: {text}").map_err(Failure::new)?;
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where shells of the job run. If its leader does not say it: where the job has resources.
fn ranks(job: JobId) -> Result<Idset, Failure> {
    let stats = stats::of_instance()?;
    stats::owners_alone(&stats)?;
    let (id, _) = of_job(&stats, job)?;
    let ranks = match stats["jobs"][id]["active_ranks"].as_str() {
        Some(ranks) => ranks.parse().map_err(Failure::new)?,
        None => ranks_of_job(id)?,
    };
    if ranks.is_empty() { Err(Failure(format!("no shell of {id} runs"))) } else { Ok(ranks) }
}

/// The slice of the job's shell on this rank, when systemd has done it.
fn here(verb: &str, rank: u32, job: JobId) -> Result<String, Failure> {
    let stats = stats::of_rank(rank)?;
    stats::owners_alone(&stats)?;
    let mut shells = stats::units(&stats).into_iter().filter(|unit| unit.stage == "shell");
    let shell = shells.find(|shell| shell.job.parse() == Ok(job));
    let slice = shell.map(|shell| own_slice(&shell.unit)).transpose()?.flatten();
    let slice = slice.ok_or_else(|| {
        let why = "no shell runs, exec.usage was false when it began, or its method is fork";
        Failure(format!("no slice of {job}: {why}"))
    })?;
    // systemd answers when the kernel has done it.
    run("systemctl", &["--user", verb, &slice])?;
    Ok(slice)
}

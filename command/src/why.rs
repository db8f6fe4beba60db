//! `job-exec-rs why`: what a job waits for. [`words`] says what this file finds out.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use job_exec_rs::proto::JobId;
use serde_json::{Value, json};

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::processes::{Process, processes};
use super::programs::{on_ranks, run, tell};
use super::reach::Reach;
use super::stats;
use super::units::is_frozen;
use words::{Learned, Service};

#[cfg(test)]
mod situations;
mod words;

/// Show why a job is not over yet, or has not begun: whom it waits for, what was done, what comes next
///
/// Where a job waits for the shells or scripts of ranks, their processes are shown, if the instance owner
/// asks: pid, state, age and name. So are the ranks where it is frozen, for which eight ranks with a shell
/// are asked. Another user can ask about the user's own jobs. The exit status is 1 if the job is not known, or
/// if a rank has not answered.
#[derive(Args, Debug)]
#[command(after_help = "\
States of processes: R runs, S sleeps, D waits for the kernel and cannot be killed, T stopped, Z has ended

Examples:
  job-exec-rs why f2XyZ
  job-exec-rs why --json f2XyZ | jq .led.timers")]
pub(super) struct Arguments {
    /// The job
    #[arg(value_name = "JOBID")]
    job: JobId,
    /// One JSON object: the text, and what it was made of
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

pub(super) fn why(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let broker = Broker::ask()?;
    if arguments.reach.here {
        return tell([here(broker.rank, arguments.job)?]);
    }
    let learned = learn(&broker, arguments)?;
    let text = words::words(&learned);
    let mut out = Out::lock();
    let shown = match &learned.service {
        Service::Led { job: led, .. } if arguments.json => {
            writeln!(out, "{}", json!({ "jobid": learned.job, "text": text, "led": led }))
        }
        _ if arguments.json => writeln!(out, "{}", json!({ "jobid": learned.job, "text": text })),
        _ => text.iter().try_for_each(|line| writeln!(out, "{line}")),
    };
    shown.map_err(Failure::new)?;
    let is_complete = learned.ranks.values().all(Result::is_ok);
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn learn(broker: &Broker, arguments: &Arguments) -> Result<Learned, Failure> {
    let job = arguments.job.to_string();
    let listed = run("flux", &["jobs", "--json", &job])?;
    let listed = serde_json::from_str(&listed).map_err(Failure::new)?;
    // Of another user's job there are none, and a job that has not begun has no exec eventlog.
    let [events, exec] = ["eventlog", "guest.exec.eventlog"].map(|path| eventlog(&job, path));
    let (service, sees_all) = ask_service(arguments.job);
    let asked = words::ranks_to_ask(&service);
    let mut ranks = BTreeMap::new();
    if sees_all && !asked.is_empty() {
        let answers = on_ranks(&asked, &["why", &job], arguments.reach.timeout)?;
        let told = answers.told.into_iter();
        ranks.extend(told.map(|(rank, mut lines)| (rank, Ok(lines.pop().unwrap_or_default()))));
        ranks.extend(answers.silent.into_iter().map(|(rank, why)| (rank, Err(why))));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let hosts = broker.hosts.clone();
    Ok(Learned { job, now, listed, events, exec, service, hosts, ranks, sees_all })
}

fn eventlog(job: &str, path: &str) -> Vec<Value> {
    let text = run("flux", &["job", "eventlog", "-fjson", "-p", path, job]).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// What the service has on the job, and whether this user may ask all ranks.
fn ask_service(job: JobId) -> (Service, bool) {
    let stats = match stats::of_instance() {
        Ok(stats) => stats,
        Err(Failure(why)) => return (Service::Silent(why), false),
    };
    let sees_all = !stats::is_guests(&stats);
    let mut all = stats["coordinated"].as_object().into_iter().flatten();
    let Some((id, led)) = all.find(|(id, _)| id.parse() == Ok(job)) else {
        return (Service::Unknown, sees_all);
    };
    let Some(leader) = led["leader"].as_u64().and_then(|rank| u32::try_from(rank).ok()) else {
        return (Service::Unled, sees_all);
    };
    let mut of_job = stats["jobs"][id].clone();
    if of_job.is_null() {
        // Rank 0 says no more than that the leader has not answered in time.
        match stats::of_rank(leader) {
            Ok(stats) => of_job = stats["jobs"][id].clone(),
            Err(Failure(why)) => return (Service::Away { leader, why }, sees_all),
        }
    }
    (Service::Led { leader, job: of_job, settings: stats }, sees_all)
}

/// What this rank has of the job.
fn here(rank: u32, job: JobId) -> Result<Value, Failure> {
    let stats = stats::of_rank(rank)?;
    let mut units = stats::units(&stats);
    units.retain(|unit| unit.job.parse() == Ok(job));
    let mut processes = processes();
    let all: Vec<Value> = units
        .iter()
        .map(|unit| {
            let mut scripts = stats["scripts"][&unit.job].as_array().into_iter().flatten();
            let script = scripts.find(|script| script["unit"] == unit.unit.as_str());
            let is_of = |process: &Process| {
                process.cgroup.split('/').any(|part| part == unit.unit)
                    || unit.pid == Some(process.pid)
            };
            let its: Vec<Process> = processes.extract_if(.., |process| is_of(process)).collect();
            let is_frozen = its.first().is_some_and(|process| is_frozen(process.group()));
            let named = its.iter().take(PROCESSES_MAX);
            let named: Vec<Value> =
                named.map(|it| json!([it.pid, it.state, it.age, it.name])).collect();
            json!({ "stage": unit.stage, "unit": unit.unit, "script": script, "frozen": is_frozen,
                    "count": its.len(), "processes": named })
        })
        .collect();
    Ok(json!({ "waits-for": stats["waits-for"], "units": all }))
}

/// How many processes of a unit are named.
const PROCESSES_MAX: usize = 40;

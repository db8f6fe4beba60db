//! `job-exec-rs usage`: what a job has used, or uses.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use job_exec_rs::proto::{JobId, JobUsage, show_size};
use serde_json::{Value, json};

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::programs::{PATIENCE, on_ranks, ranks_of_job, run};
use super::stats;
use super::table::{Form, show_time};

const COLUMNS: [&str; 11] = [
    "rank",
    "host",
    "memory",
    "limit",
    "user",
    "system",
    "read",
    "written",
    "processes",
    "oom",
    "why",
];
const FORMAT: &str = "{rank:>5} {host:<12} {memory:>7} {limit:>7} {user:>9} {system:>9} {written:>8} {processes:>9} {oom:>4} {why}";

/// Show what a job has used on each of its nodes
///
/// The figures are the kernel's, of all processes of the job, and come with the job's end: for its user and
/// for the instance owner. The owner also sees what a job uses that runs. Memory is the most at one
/// time, with the page cache and tmpfs. A figure that the node does not count is `-`. What is not known of a
/// rank has a reason.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns: rank host memory limit user system read written processes oom why

Examples:
  job-exec-rs usage f2XyZ                       of each node, and in all
  job-exec-rs usage -no '{rank} {memory}' f2XyZ two columns, and no header
  flux job info f2XyZ usage                     as it is kept beside the job
  flux jobs -a -o '{id} {user.usage.mem}'       of many jobs: the most of one node")]
pub(super) struct Arguments {
    /// Which job
    #[arg(value_name = "JOBID")]
    job: JobId,
    #[command(flatten)]
    form: Form,
}

pub(super) fn usage(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let broker = Broker::ask()?;
    let id = arguments.job.to_string();
    let hosts = broker.hosts.as_ref();
    let host = |rank: u32| hosts.and_then(|hosts| hosts.get(rank as usize)).map(str::to_string);
    let mut out = Out::lock();
    match run("flux", &["job", "info", &id, "usage"]) {
        Ok(text) => {
            let usage: JobUsage = serde_json::from_str(&text).map_err(Failure::new)?;
            arguments.form.show(&rows(&usage, host), (&COLUMNS, FORMAT), &mut out)?;
            if arguments.form.is_default() {
                writeln!(out, "{}", in_all(&usage)).map_err(Failure::new)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            let (rows, is_complete) = live(&id, &why)?;
            arguments.form.show(&rows, (&COLUMNS, FORMAT), &mut out)?;
            Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// What a job uses that has not ended, and whether all its ranks have told.
fn live(id: &str, why: &Failure) -> Result<(Vec<Value>, bool), Failure> {
    let ranks = ranks_of_job(id)?;
    if ranks.is_empty() {
        return Err(Failure(format!("{id}: {why}")));
    }
    let runs = run("flux", &["jobs", "-no", "{state}", id]).unwrap_or_default();
    if runs == "INACTIVE" {
        let why = "nothing was measured (exec.usage, or shells that are no units)";
        return Err(Failure(format!("{id}: {why}")));
    }
    let own = stats::of_rank(0)?;
    if stats::is_guests(&own) {
        return Err(Failure(format!("{id}: the job has not ended: its figures come with its end")));
    }
    let answers = on_ranks(&ranks, &["units", id], PATIENCE)?;
    let is_complete = answers.complain();
    let shells = answers.told.into_values().flatten().filter(|unit| unit["stage"] == "shell");
    let row = |mut unit: Value| {
        unit["memory"] = unit["peak"].take();
        unit
    };
    Ok((shells.map(row).collect(), is_complete))
}

fn rows(usage: &JobUsage, host: impl Fn(u32) -> Option<String>) -> Vec<Value> {
    let known = usage.ranks.iter().enumerate().map(|(at, rank)| {
        json!({
            "rank": rank,
            "host": host(rank),
            "memory": usage.memory.get(at),
            "limit": usage.limit.get(at),
            "user": usage.user.get(at),
            "system": usage.system.get(at),
            "read": usage.read.get(at),
            "written": usage.written.get(at),
            "processes": usage.processes.get(at),
            "oom": usage.oom_kills.get(at),
        })
    });
    let unknown = usage.unknown.iter().map(|(rank, why)| {
        json!({ "rank": rank, "host": host(rank.0), "why": format!("not known: {why}") })
    });
    let mut rows: Vec<Value> = known.chain(unknown).collect();
    rows.sort_by_key(|row| row["rank"].as_u64());
    rows
}

/// Sums are of the ranks that are known.
fn in_all(usage: &JobUsage) -> String {
    let least = if usage.unknown.is_empty() { "" } else { "at least " };
    let mut text = format!("in all: {least}{} of CPU", show_time(usage.cpu()));
    if let Some(most) = usage.most_memory() {
        text += &format!(", {least}{} of memory on one node", show_size(most));
    }
    let kills =
        usage.oom_kills.iter().flatten().fold(0, |sum: u64, kills| sum.saturating_add(*kills));
    if kills > 0 {
        text += &format!(", {least}{kills} killed for want of memory");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use job_exec_rs::proto::{BrokerRank, Usage};

    use super::*;

    #[test]
    fn ranks_that_are_not_known_have_a_reason_and_sums_say_at_least() {
        let known = Usage {
            memory: Some(3 << 29),
            user: Some(61_000_000),
            system: Some(500_000),
            oom_kills: Some(2),
            ..Usage::default()
        };
        let unknown = BTreeMap::from([(BrokerRank(3), "node was rebooted".to_string())]);
        let mut usage = JobUsage::new([(BrokerRank(4), &known)].into_iter(), unknown);
        let told = rows(&usage, |rank| Some(format!("n{rank}")));
        assert_eq!(told[0]["why"], "not known: node was rebooted");
        assert_eq!((&told[0]["host"], &told[0]["memory"]), (&json!("n3"), &Value::Null));
        assert_eq!((&told[1]["memory"], &told[1]["limit"]), (&json!(3 << 29), &Value::Null));
        let all = "in all: at least 0:01:01 of CPU, at least 1.5G of memory on one node, at least 2 killed for want of memory";
        assert_eq!(in_all(&usage), all);
        usage.unknown.clear();
        assert!(!in_all(&usage).contains("at least"));
    }
}

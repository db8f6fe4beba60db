//! `job-exec-rs status`: what the service does, in words.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use job_exec_rs::proto::JobId;
use serde_json::{Value, json};

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::stats;

/// Show what the service does: jobs, their ranks, and what each waits for
///
/// The instance owner sees all jobs, another user the user's own.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  job-exec-rs status
  job-exec-rs status f2XyZ               one job
  job-exec-rs status --json | jq .jobs")]
pub(super) struct Arguments {
    /// This job alone
    #[arg(value_name = "JOBID")]
    job: Option<JobId>,
    /// The statistics, as flux module stats shows them; of a job what they have on it
    #[arg(long)]
    json: bool,
}

pub(super) fn status(arguments: &Arguments) -> Result<ExitCode, Failure> {
    Broker::ask()?;
    let stats = stats::of_instance()?;
    let mut out = Out::lock();
    let shown = match arguments.job {
        Some(job) => {
            let (id, led) = of_job(&stats, job)?;
            if arguments.json {
                let both = json!({ "jobid": id, "led": led, "job": stats["jobs"][id] });
                writeln!(out, "{both}")
            } else {
                show_job(&stats, id, led, &mut out)
            }
        }
        None if arguments.json => writeln!(out, "{stats}"),
        None => show(&stats, &mut out),
    };
    shown.map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// A job's id, as the statistics have it, and who leads it.
fn of_job(stats: &Value, job: JobId) -> Result<(&str, &Value), Failure> {
    let mut all = stats["coordinated"].as_object().into_iter().flatten();
    let found = all.find(|(id, _)| id.parse() == Ok(job));
    let found = found.map(|(id, led)| (id.as_str(), led));
    found.ok_or_else(|| Failure(format!("{job} does not run, and has not just ended")))
}

fn show(stats: &Value, out: &mut impl Write) -> std::io::Result<()> {
    if stats::is_guests(stats) {
        return show_jobs(stats, out);
    }
    let word = |key: &str| stats[key].as_str().unwrap_or("?").to_string();
    writeln!(out, "job-exec-rs {} on rank 0: shells by {}", word("release"), word("launcher"))?;
    for key in ["notice", "connector-notice"] {
        if let Some(text) = stats[key].as_str() {
            writeln!(out, "  {text}")?;
        }
    }
    if let Some(what) = stats["waits-for"].as_str() {
        writeln!(out, "  systemd does not answer: {what}")?;
    }
    show_jobs(stats, out)?;
    let started = &stats["units-started"];
    writeln!(out, "{started} units started here since the module was loaded")
}

fn show_jobs(stats: &Value, out: &mut impl Write) -> std::io::Result<()> {
    let led = stats["coordinated"].as_object().cloned().unwrap_or_default();
    let plural = if led.len() == 1 { "" } else { "s" };
    writeln!(out, "{} job{plural}{}", led.len(), if led.is_empty() { "" } else { ":" })?;
    led.iter().try_for_each(|(id, led)| show_job(stats, id, led, out))
}

fn show_job(stats: &Value, id: &str, led: &Value, out: &mut impl Write) -> std::io::Result<()> {
    let leader = led["leader"].as_u64();
    let leader = leader.map_or("nobody yet".to_string(), |rank| format!("rank {rank}"));
    writeln!(out, "  {id}  led by {leader}: {}", words(&stats["jobs"][id]))
}

/// How far a job is, and what it waits for.
fn words(job: &Value) -> String {
    if job.is_null() {
        return "its leader does not answer".to_string();
    }
    let is = |key: &str| job[key] == 1;
    let mut text = if is("finalizing") {
        "its output is being kept".to_string()
    } else if is("running") {
        format!("runs, {} of {} shells", job["active_shells"], job["total_shells"])
    } else if is("started") {
        format!("starts, {} shells", job["total_shells"])
    } else {
        "begins".to_string()
    };
    if is("exception_in_progress") {
        text += &format!(", is being ended ({} signals)", job["kill_count"]);
    }
    let waits = [
        ("prolog_ranks", "prologs on"),
        ("epilog_ranks", "epilogs on"),
        ("away_ranks", "modules that are away, of"),
        ("undrained_ranks", "the resource module to drain"),
    ];
    for (key, what) in waits {
        if let Some(ranks) = job[key].as_str() {
            text += &format!(", waits for {what} ranks {ranks}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_found_by_any_form_of_its_id() {
        let stats = json!({ "coordinated": { "ƒ2": { "leader": 3 } }, "jobs": {} });
        for id in ["1", "f2", "ƒ2"] {
            let found = of_job(&stats, id.parse().expect("an id")).expect("the job");
            assert_eq!(found, ("ƒ2", &json!({ "leader": 3 })));
        }
        let error = of_job(&stats, JobId(2)).expect_err("another");
        assert!(error.to_string().contains("does not run"), "{error}");
    }

    #[test]
    fn a_job_says_how_far_it_is_and_what_it_waits_for() {
        let job = json!({ "started": 1, "running": 1, "active_shells": 3, "total_shells": 4,
                          "exception_in_progress": 1, "kill_count": 2, "away_ranks": "2" });
        assert_eq!(
            words(&job),
            "runs, 3 of 4 shells, is being ended (2 signals), waits for modules that are away, of \
             ranks 2"
        );
        let job = json!({ "started": 1, "running": 0, "total_shells": 2, "prolog_ranks": "0-1" });
        assert_eq!(words(&job), "starts, 2 shells, waits for prologs on ranks 0-1");
        assert_eq!(words(&Value::Null), "its leader does not answer");
    }
}

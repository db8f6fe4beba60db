//! `job-exec-rs status`: what the service does, in words.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use job_exec_rs::proto::{Idset, JobId};
use serde_json::{Value, json};

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::stats;

/// Show what the service does: jobs, their ranks, and what each waits for
///
/// The instance owner sees all jobs, another user the user's own. If the module has found shells after its
/// last load, a line says what has become of them: that of rank 0, or with --all those of all ranks.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  job-exec-rs status
  job-exec-rs status --all               also what each rank has found after its load
  job-exec-rs status f2XyZ               one job
  job-exec-rs status --json | jq .jobs")]
pub(super) struct Arguments {
    /// This job alone
    #[arg(value_name = "JOBID")]
    job: Option<JobId>,
    /// Ask all ranks what they have found after their load. The exit status is 1 if one does not answer
    #[arg(long, conflicts_with_all = ["job", "json"])]
    all: bool,
    /// The statistics, as flux module stats shows them; of a job what they have on it
    #[arg(long)]
    json: bool,
}

pub(super) fn status(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let broker = Broker::ask()?;
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
    if arguments.job.is_some() || arguments.json || stats::is_guests(&stats) {
        return Ok(ExitCode::SUCCESS);
    }
    let ranks = if arguments.all { broker.ranks() } else { Idset::from_range(0..1) };
    let (told, silent) = stats::of_ranks(&ranks);
    for line in told.iter().filter_map(|(rank, stats)| found(*rank, &stats["restart"])) {
        writeln!(out, "{line}").map_err(Failure::new)?;
    }
    for why in &silent {
        writeln!(std::io::stderr(), "job-exec-rs: {why}").map_err(Failure::new)?;
    }
    Ok(if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What has become of the shells that a rank has found after its load, if there were any.
fn found(rank: u32, restart: &Value) -> Option<String> {
    let count = |key: &str| restart[key].as_u64().unwrap_or_default();
    let fates = ["running", "ended", "lost", "never-started"].map(count);
    let open = count("found").saturating_sub(fates.iter().sum());
    let [running, ended, lost, never] = fates;
    let plural = if count("found") == 1 { "" } else { "s" };
    let text = format!(
        "rank {rank} has found {} shell{plural} after its load: {running} ran on, {ended} had ended, {lost} \
         were lost, {never} had not started, of {open} it is not known yet; {} ended here for no job",
        count("found"),
        count("unwanted"),
    );
    (count("found") > 0).then_some(text)
}

/// A job's id, as the statistics have it, and who leads it.
pub(super) fn of_job(stats: &Value, job: JobId) -> Result<(&str, &Value), Failure> {
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
    fn a_rank_says_what_it_has_found_if_there_was_anything() {
        let restart = json!({ "found": 31, "running": 28, "ended": 2, "lost": 0, "never-started": 0,
                              "unwanted": 4 });
        assert_eq!(
            found(3, &restart).expect("a line"),
            "rank 3 has found 31 shells after its load: 28 ran on, 2 had ended, 0 were lost, 0 had not \
             started, of 1 it is not known yet; 4 ended here for no job"
        );
        assert_eq!(found(3, &json!({ "found": 0, "unwanted": 0 })), None);
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

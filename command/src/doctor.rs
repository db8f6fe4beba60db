//! `job-exec-rs doctor`: is this node fit for jobs that outlive their brokers?

mod everywhere;
mod finding;
mod findings;
mod jobs;
mod mends;
mod pam;
mod site;
mod systemd;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use job_exec_rs::proto::JobId;
use serde_json::json;

use super::failure::Failure;
use super::out::Out;
use super::paint::Paint;
use super::programs::{on_ranks, ranks_of_job, tell};
use super::reach::Reach;
use finding::{Finding, Grade, Report, silent};
use findings::{compare_releases, findings};
use site::Site;

/// Something is bad.
const BAD: u8 = 1;
/// The command, or a rank, could not look.
const COULD_NOT_LOOK: u8 = 2;

/// Look at this node, or at all: is what this service needs there, and set as it has to be
///
/// For the instance owner, on a node with a broker. One line for each thing that was looked at: what was
/// found, and what mends it: a command to type, or after a `#` what no command does. What ends jobs says
/// so first. A unit that ends at once is started, to see that one can be.
///
/// With --all each rank looks at its node, ranks that have found the same share a line, what is bad comes
/// first, and a rank that does not answer is named with its own words.
///
/// With --jobs the jobs that run are looked at, and not the node. Is each process of a job in the cgroup of
/// its unit: the main one, and all that the unit's processes have started? Is each limit that systemd has
/// for the unit in force in its cgroup? What do users who have jobs here run outside of them? Login sessions
/// and what a user's own systemd runs are a note. DeviceAllow and DevicePolicy cannot be seen.
///
/// The exit status is 0 if nothing is bad, 1 if something is, and 2 if this command, or a rank, could not
/// look.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo -u flux job-exec-rs doctor --all
  job-exec-rs doctor --all --bad-only && echo fit
  job-exec-rs doctor --all --jobs        is each job contained
  job-exec-rs doctor --all --jobs f2XyZ  is this one, on its nodes
  job-exec-rs doctor --json | jq '.findings[] | select(.grade == \"bad\")'")]
pub(super) struct Arguments {
    /// All nodes of the instance, through flux exec
    #[arg(long)]
    all: bool,
    /// Look at the jobs that run, or at one: is each contained in its unit, are its limits in force
    #[arg(long, value_name = "JOBID")]
    jobs: Option<Option<JobId>>,
    /// Only what is bad, and ranks that do not answer
    #[arg(short, long)]
    bad_only: bool,
    /// One JSON object for each node
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

pub(super) fn doctor(arguments: &Arguments) -> ExitCode {
    look(arguments).unwrap_or_else(|failure| {
        // Without stderr only the exit status can tell.
        let _ = writeln!(std::io::stderr(), "job-exec-rs: {failure}");
        ExitCode::from(COULD_NOT_LOOK)
    })
}

fn look(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let broker = site::broker()?;
    let mut reports = if arguments.all {
        let broker = broker.map_err(|why| Failure(format!("--all needs a broker here: {why}")))?;
        everywhere(&broker, arguments)?
    } else if let Some(job) = arguments.jobs {
        let broker = broker.map_err(|why| Failure(format!("--jobs needs a broker here: {why}")))?;
        let findings = jobs::look(broker.rank, job)?;
        vec![Report { host: site::host(), rank: Some(broker.rank), findings }]
    } else {
        let site = Site::look(broker);
        let (rank, findings) = (site.rank(), findings(&site));
        vec![Report { host: site.host, rank, findings }]
    };
    if arguments.reach.here {
        return tell(reports.iter().map(|report| json!(report)));
    }
    let status = status(&reports);
    if arguments.bad_only {
        for report in &mut reports {
            report.findings.retain(|finding| finding.grade <= Grade::Unknown);
        }
    }
    let (mut out, paint) = (Out::lock(), Paint::of_stdout());
    let shown = if arguments.json {
        for report in &mut reports {
            let rank = report.rank.map_or_else(String::new, |rank| rank.to_string());
            for finding in &mut report.findings {
                finding.mend = finding.mend_on(&rank);
            }
        }
        reports.iter().try_for_each(|report| writeln!(out, "{}", json!(report)))
    } else if arguments.all {
        everywhere::show(&reports, paint, &mut out)
    } else {
        reports.iter().try_for_each(|report| show(report, paint, &mut out))
    };
    shown.map_err(Failure::new)?;
    Ok(ExitCode::from(status))
}

/// Each rank looks for itself.
fn everywhere(broker: &site::Broker, arguments: &Arguments) -> Result<Vec<Report>, Failure> {
    let job = arguments.jobs.flatten().map(|job| job.to_string());
    let jobs = arguments.jobs.map(|_| "--jobs");
    let ask: Vec<&str> = ["doctor"].into_iter().chain(jobs).chain(job.as_deref()).collect();
    let ranks = job.as_deref().map_or_else(|| Ok(broker.ranks()), ranks_of_job)?;
    if ranks.is_empty() {
        return Err(Failure("the job has no resources, or there is no such job".to_string()));
    }
    let answers = on_ranks(&ranks, &ask, arguments.reach.timeout)?;
    let told = answers.told.into_values().flatten();
    let mut reports: Vec<Report> =
        told.filter_map(|report| serde_json::from_value(report).ok()).collect();
    compare_releases(&mut reports.iter_mut().map(|report| &mut report.findings));
    reports.extend(answers.silent.into_iter().map(|(rank, why)| Report {
        host: "?".to_string(),
        rank: Some(rank),
        findings: vec![silent(&why)],
    }));
    reports.sort_by_key(|report| report.rank);
    Ok(reports)
}

fn status(reports: &[Report]) -> u8 {
    let worst = reports.iter().flat_map(|report| &report.findings).map(|it| it.grade).min();
    match worst {
        Some(Grade::Bad) => BAD,
        Some(Grade::Unknown) => COULD_NOT_LOOK,
        _ => 0,
    }
}

fn show(report: &Report, paint: Paint, out: &mut impl Write) -> std::io::Result<()> {
    let rank = report.rank.map_or_else(String::new, |rank| rank.to_string());
    let of_rank = if rank.is_empty() { String::new() } else { format!(" (rank {rank})") };
    writeln!(out, "{}{of_rank}", report.host)?;
    for finding in &report.findings {
        let Finding { check, found, .. } = finding;
        writeln!(out, "  {} {check:<16} {found}", finding.grade.painted(paint))?;
        finding.show_mend(&rank, paint, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(grade: Grade) -> Report {
        let finding = Finding { grade, ..silent("why") };
        Report { host: "n1".into(), rank: Some(1), findings: vec![finding] }
    }

    #[test]
    fn the_exit_status_tells_bad_from_not_seen() {
        let of = |grades: &[Grade]| {
            status(&grades.iter().map(|grade| report(*grade)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[Grade::Good, Grade::Note]), 0);
        assert_eq!(of(&[Grade::Good, Grade::Unknown]), COULD_NOT_LOOK);
        assert_eq!(of(&[Grade::Unknown, Grade::Bad, Grade::Good]), BAD);
    }
}

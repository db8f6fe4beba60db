//! `job-exec-rs doctor`: is this node fit for jobs that outlive their brokers?

mod findings;
mod site;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::programs::on_ranks;
use findings::{Finding, Grade, findings};
use site::Site;

/// Look at this node, or at all: is what this service needs there, and set as it has to be
///
/// For the instance owner, on a node with a broker. One line for each thing that was looked at: what was
/// found, and what mends it. A unit that ends at once is started, to see that one can be. The exit status
/// is 0 if nothing is bad.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo -u flux flux job-exec-rs doctor --all
  flux job-exec-rs doctor --json | jq '.findings[] | select(.grade == \"bad\")'")]
pub(super) struct Arguments {
    /// All nodes of the instance, through flux exec
    #[arg(long)]
    all: bool,
    /// One JSON object for each node
    #[arg(long)]
    json: bool,
}

/// What was found on one node.
#[derive(Debug, Deserialize, Serialize)]
struct Report {
    host: String,
    rank: Option<u32>,
    findings: Vec<Finding>,
}

pub(super) fn doctor(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let broker = site::broker()?;
    let reports = if arguments.all {
        let broker = broker.map_err(|why| Failure(format!("--all needs a broker here: {why}")))?;
        everywhere(broker.size)?
    } else {
        let site = Site::look(broker);
        let (rank, findings) = (site.rank(), findings(&site));
        vec![Report { host: site.host, rank, findings }]
    };
    let mut out = std::io::stdout().lock();
    for report in &reports {
        if arguments.json {
            writeln!(out, "{}", serde_json::json!(report)).map_err(Failure::new)?;
        } else {
            show(report, &mut out).map_err(Failure::new)?;
        }
    }
    let is_bad = |finding: &Finding| finding.grade == Grade::Bad;
    let bad = reports.iter().flat_map(|report| &report.findings).any(is_bad);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Each rank looks for itself.
fn everywhere(size: u32) -> Result<Vec<Report>, Failure> {
    let (lines, why) = on_ranks("all", &["doctor", "--json"])?;
    let mut reports: Vec<Report> =
        lines.into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect();
    reports.sort_by_key(|report| report.rank);
    let silent: Vec<u32> =
        (0..size).filter(|rank| !reports.iter().any(|report| report.rank == Some(*rank))).collect();
    let why = why.lines().next().unwrap_or("no answer").to_string();
    reports.extend(silent.into_iter().map(|rank| Report {
        host: "?".to_string(),
        rank: Some(rank),
        findings: vec![findings::silent(rank, &why)],
    }));
    findings::compare_releases(&mut reports.iter_mut().map(|report| &mut report.findings));
    Ok(reports)
}

fn show(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    let rank = report.rank.map_or_else(String::new, |rank| format!(" (rank {rank})"));
    writeln!(out, "{}{rank}", report.host)?;
    for Finding { check, grade, found, mend } in &report.findings {
        writeln!(out, "  {:<5} {check:<16} {found}", grade.word())?;
        if let Some(mend) = mend {
            writeln!(out, "        {:<16} -> {mend}", "")?;
        }
    }
    Ok(())
}

//! `job-exec-rs units`: where the shells and scripts of jobs are, and how they are.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use job_exec_rs::adapter::libflux::Handle;
use job_exec_rs::proto::JobId;
use serde_json::{Value, json};

use super::failure::Failure;
use super::programs::{on_ranks, run};
use super::stats::{self, Unit};

const FORMAT: &str = "{jobid:<14} {rank:>5} {host:<12} {stage:<7} {state:<10} {pid:>8} {processes:>9} {memory:>10} {unit}";

/// What systemd is asked of each unit.
const PROPERTIES: &str =
    "--property=Id,ActiveState,SubState,MainPID,ControlGroup,MemoryCurrent,ActiveEnterTimestamp";

/// Show the units of jobs: rank, host, state, processes
///
/// For the instance owner. A column without a value is `-`: a shell with method fork has no unit.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns: jobid rank host stage unit state pid processes memory since

Examples:
  flux job-exec-rs units                            of this node
  flux job-exec-rs units --all f2XyZ                of one job, on all nodes
  flux job-exec-rs units --all -o '{rank} {unit}'   two columns")]
pub(super) struct Arguments {
    /// This job's alone
    #[arg(value_name = "JOBID")]
    job: Option<JobId>,
    /// All nodes of the instance, through flux exec
    #[arg(long)]
    all: bool,
    /// Columns, as {name}, or {name:<width} or {name:>width}
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = FORMAT, hide_default_value = true)]
    format: String,
    /// One JSON object for each unit
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

pub(super) fn units(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let flux = Handle::connect().map_err(Failure::new)?;
    JobId::show_ascii(flux.shows_ascii_f58());
    let rows = if arguments.all {
        let job = arguments.job.map(|job| job.to_string());
        let more: Vec<&str> = job.iter().map(String::as_str).collect();
        let (rows, said) = on_ranks("all", &[&["units", "--json"], more.as_slice()].concat())?;
        if !said.is_empty() {
            writeln!(std::io::stderr(), "{said}").map_err(Failure::new)?;
        }
        rows
    } else {
        here(flux, arguments.job)?
    };
    let mut out = std::io::stdout().lock();
    if arguments.json {
        for row in rows {
            writeln!(out, "{row}").map_err(Failure::new)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let columns = columns(&arguments.format)?;
    writeln!(out, "{}", line(&columns, |name| name.to_uppercase())).map_err(Failure::new)?;
    for row in rows {
        writeln!(out, "{}", line(&columns, |name| shown(&row[name]))).map_err(Failure::new)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The units of this rank.
fn here(flux: Handle, job: Option<JobId>) -> Result<Vec<Value>, Failure> {
    let rank = flux.rank().map_err(Failure::new)?;
    let mut units = stats::units(&stats::of_rank(flux, rank)?);
    units.retain(|unit| job.is_none_or(|job| unit.job.parse() == Ok(job)));
    let told = ask_systemd(&units);
    let host = flux.attribute("hostname").unwrap_or_default();
    let row = |unit: &Unit| {
        let told = told.get(&unit.unit);
        let text = |name: &str| told.and_then(|told| told.get(name)).filter(|text| is_set(text));
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        json!({
            "jobid": unit.job,
            "rank": rank,
            "host": host,
            "stage": unit.stage,
            "unit": unit.unit,
            "state": text("ActiveState"),
            "pid": unit.pid.or_else(|| number("MainPID")),
            "processes": text("ControlGroup").and_then(|group| processes(group)),
            "memory": number("MemoryCurrent"),
            "since": text("ActiveEnterTimestamp"),
        })
    };
    Ok(units.iter().map(row).collect())
}

/// How many a cgroup has.
fn processes(group: &str) -> Option<usize> {
    let file = format!("/sys/fs/cgroup/{}/cgroup.procs", group.trim_start_matches('/'));
    Some(std::fs::read_to_string(file).ok()?.lines().count())
}

/// systemctl(1) writes so what it does not know.
fn is_set(text: &str) -> bool {
    !["", "0", "[not set]", "n/a"].contains(&text)
}

/// The properties of each unit. Nothing where there is no user manager.
fn ask_systemd(units: &[Unit]) -> BTreeMap<String, BTreeMap<String, String>> {
    if units.is_empty() {
        return BTreeMap::new();
    }
    let names = units.iter().map(|unit| unit.unit.as_str());
    let show = ["--user", "show", PROPERTIES, "--"];
    let arguments: Vec<&str> = show.into_iter().chain(names).collect();
    properties(&run("systemctl", &arguments).unwrap_or_default())
}

/// What `systemctl show` prints of several units, by `Id`.
fn properties(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let of_one = |part: &str| {
        let pairs = part.lines().filter_map(|line| line.split_once('='));
        let all: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Some((all.get("Id")?.clone(), all))
    };
    text.split("\n\n").filter_map(of_one).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Text before a column, its name, and how it is filled up to its width.
#[derive(Debug, PartialEq)]
struct Column {
    before: String,
    name: String,
    right: bool,
    width: usize,
}

const COLUMNS: [&str; 10] =
    ["jobid", "rank", "host", "stage", "unit", "state", "pid", "processes", "memory", "since"];

/// Reads a format such as that of flux-jobs(1).
fn columns(format: &str) -> Result<Vec<Column>, Failure> {
    let mut columns = Vec::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        let (field, after) = after
            .split_once('}')
            .ok_or_else(|| Failure(format!("-o '{format}': a }} is missing")))?;
        let (name, how) = field.split_once(':').unwrap_or((field, ""));
        if !COLUMNS.contains(&name) {
            let all = COLUMNS.join(", ");
            return Err(Failure(format!("-o '{format}': no column '{name}', there are {all}")));
        }
        let width = how.trim_start_matches(['<', '>']);
        columns.push(Column {
            before: before.to_string(),
            name: name.to_string(),
            right: how.starts_with('>'),
            width: if width.is_empty() {
                0
            } else {
                width.parse().map_err(|_| Failure(format!("-o '{format}': no width '{width}'")))?
            },
        });
        rest = after;
    }
    Ok(columns)
}

fn line(columns: &[Column], value: impl Fn(&str) -> String) -> String {
    let mut line = String::new();
    for Column { before, name, right, width } in columns {
        line.push_str(before);
        let value = value(name);
        let cell = if *right { format!("{value:>width$}") } else { format!("{value:<width$}") };
        line.push_str(&cell);
    }
    line.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_has_the_columns_that_it_names() {
        let columns = columns("{rank:>4} {unit}").expect("columns");
        let row = json!({ "rank": 3, "unit": null });
        assert_eq!(line(&columns, |name| shown(&row[name])), "   3 -");
        for (format, why) in
            [("{rnak}", "no column 'rnak'"), ("{rank", "missing"), ("{rank:<x}", "'x'")]
        {
            let error = super::columns(format).expect_err(format);
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(super::columns(FORMAT).expect("the default").len(), 9);
    }

    #[test]
    fn what_systemd_tells_of_several_units_is_told_apart() {
        let told = properties("Id=a.service\nMainPID=3\n\nId=b.service\nMemoryCurrent=[not set]\n");
        assert_eq!(told["a.service"]["MainPID"], "3");
        assert!(!is_set(&told["b.service"]["MemoryCurrent"]));
    }
}

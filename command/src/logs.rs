//! `job-exec-rs logs`: everything that this service has on a job, in order of time.

use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use humantime::{format_rfc3339_micros, parse_rfc3339};
use job_exec_rs::adapter::libflux::Handle;
use job_exec_rs::proto::{Idset, JobId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::Failure;
use super::programs::{on_ranks, run};
use super::stats;

/// Show all that the service has on a job: what to attach to a report
///
/// For the instance owner. In order of time: the job's eventlog and exec eventlog, what the brokers of its
/// ranks have logged on it, what systemd says of its units, and the records that are still there. Each
/// line has its time, its rank or host, and where it is from.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  flux job-exec-rs logs f2XyZ >report.txt")]
pub(super) struct Arguments {
    /// The job
    #[arg(value_name = "JOBID")]
    job: JobId,
    /// What this node has, as JSON
    #[arg(long, hide = true)]
    here: bool,
}

/// One line. Times are in UTC, in a form that sorts.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
struct Entry {
    time: String,
    place: String,
    from: String,
    text: String,
}

pub(super) fn logs(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let flux = Handle::connect().map_err(Failure::new)?;
    JobId::show_ascii(flux.shows_ascii_f58());
    let mut out = std::io::stdout().lock();
    if arguments.here {
        for entry in here(flux, arguments.job)? {
            writeln!(out, "{}", json!(entry)).map_err(Failure::new)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let id = arguments.job.to_string();
    let ranks = ranks(&id)?;
    let mut entries = Vec::new();
    for path in ["eventlog", "guest.exec.eventlog"] {
        entries.extend(events(&id, path)?);
    }
    let (said, trouble) = on_ranks(&ranks.to_string(), &["logs", "--here", &id])?;
    entries.extend(said.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()));
    entries.sort();
    entries.dedup();
    for Entry { time, place, from, text } in entries {
        writeln!(out, "{time} {place:<8} {from:<8} {text}").map_err(Failure::new)?;
    }
    if !trouble.is_empty() {
        writeln!(std::io::stderr(), "{trouble}").map_err(Failure::new)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Those of its allocation, and rank 0, which talks to the job manager.
fn ranks(id: &str) -> Result<Idset, Failure> {
    let text = run("flux", &["job", "info", id, "R"]).unwrap_or_default();
    let resources: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut ranks: Idset = [0].into_iter().collect();
    for part in resources["execution"]["R_lite"].as_array().into_iter().flatten() {
        let more: Idset =
            part["rank"].as_str().unwrap_or_default().parse().map_err(Failure::new)?;
        ranks = ranks.union(&more);
    }
    Ok(ranks)
}

/// An eventlog (RFC 18). The job itself has to be there; it may have no exec eventlog yet.
fn events(id: &str, path: &str) -> Result<Vec<Entry>, Failure> {
    let text = match run("flux", &["job", "eventlog", "-fjson", "-p", path, id]) {
        Err(error) if path == "eventlog" => return Err(error),
        text => text.unwrap_or_default(),
    };
    let from = if path == "eventlog" { "job" } else { "exec" };
    let entry = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        let context = event.get("context").map_or_else(String::new, |it| format!(" {it}"));
        Some(Entry {
            time: utc(event["timestamp"].as_f64()?),
            place: "kvs".to_string(),
            from: from.to_string(),
            text: format!("{}{context}", event["name"].as_str()?),
        })
    };
    Ok(text.lines().filter_map(entry).collect())
}

/// Seconds since the epoch.
fn utc(seconds: f64) -> String {
    let since = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    format_rfc3339_micros(SystemTime::UNIX_EPOCH + since).to_string()
}

/// What this node has.
fn here(flux: Handle, job: JobId) -> Result<Vec<Entry>, Failure> {
    let rank = flux.rank().map_err(Failure::new)?;
    let place = format!("rank {rank}");
    let stats = stats::of_rank(flux, rank)?;
    let id = job.to_string();
    // As units have it in their names.
    let plain = format!("f{}", id.trim_start_matches(['ƒ', 'f']));
    let mut entries = dmesg(&place, &plain);
    entries.extend(journal(&place, &plain));
    entries.extend(records(&place, stats["records"].as_str().unwrap_or_default(), &plain));
    Ok(entries)
}

/// Whether a line names the job, and not one whose id only begins so. A broker writes `ƒ` where it can.
fn names(line: &str, plain: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    let of = |id: &str| line.match_indices(id).any(|(at, _)| is_end(&line[at + id.len()..]));
    of(plain) || of(&plain.replacen('f', "ƒ", 1))
}

fn dmesg(place: &str, plain: &str) -> Vec<Entry> {
    let text = run("flux", &["dmesg"]).unwrap_or_default();
    let entry = |line: &str| {
        let (time, text) = line.split_once(' ')?;
        let time = format_rfc3339_micros(parse_rfc3339(time).ok()?).to_string();
        let (place, from) = (place.to_string(), "broker".to_string());
        Some(Entry { time, place, from, text: text.to_string() })
    };
    text.lines().filter(|line| names(line, plain)).filter_map(entry).collect()
}

/// What the owner's systemd says of its units. The journal may be out of reach: then that is the one
/// line.
fn journal(place: &str, plain: &str) -> Vec<Entry> {
    let unit = format!("*-{plain}-*");
    let show = ["--user", "--quiet", "--output=json", "--user-unit", &unit];
    let said = |time: String, text: String| {
        let (place, from) = (place.to_string(), "systemd".to_string());
        Entry { time, place, from, text }
    };
    let text = match run("journalctl", &show) {
        Ok(text) => text,
        Err(error) => {
            let now = format_rfc3339_micros(SystemTime::now()).to_string();
            return vec![said(now, format!("the journal has nothing on its units: {error}"))];
        }
    };
    let entry = |line: &str| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let micros: f64 = entry["__REALTIME_TIMESTAMP"].as_str()?.parse().ok()?;
        Some(said(utc(micros / 1e6), entry["MESSAGE"].as_str()?.to_string()))
    };
    text.lines().filter_map(entry).collect()
}

/// Facts have no times of their own: those of a record have that of the last one.
fn records(place: &str, directory: &str, plain: &str) -> Vec<Entry> {
    let part = format!("-{plain}-");
    let mut entries = Vec::new();
    for file in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let changed = file.metadata().and_then(|found| found.modified());
        let (Ok(changed), true) = (changed, name.contains(&part) && name.ends_with(".record"))
        else {
            continue;
        };
        let text = fs::read(file.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        entries.extend(text.lines().filter(|line| line.starts_with('{')).map(|line| Entry {
            time: format_rfc3339_micros(changed).to_string(),
            place: place.to_string(),
            from: "record".to_string(),
            text: format!("{name}: {line}"),
        }));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_sources_sort_together() {
        assert_eq!(utc(0.5), "1970-01-01T00:00:00.500000Z");
        let of_broker = parse_rfc3339("2026-11-27T12:00:00.25Z").expect("as flux dmesg has it");
        assert_eq!(format_rfc3339_micros(of_broker).to_string(), "2026-11-27T12:00:00.250000Z");
    }

    #[test]
    fn a_line_names_a_job_by_its_whole_id() {
        assert!(names("ƒ2Xy: rank 1 does not answer", "f2Xy") && names("of f2Xy", "f2Xy"));
        assert!(!names("ƒ2XyZ: rank 1 does not answer", "f2Xy"));
    }

    #[test]
    fn facts_of_the_jobs_records_are_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str| std::fs::write(directory.path().join(name), "{\"a\":1}\n\0\0");
        write("shell-0-f2-0a0a0a0a.record").expect("a record");
        write("shell-0-f22-0a0a0a0a.record").expect("another job's");
        let shown = records("rank 0", &directory.path().to_string_lossy(), "f2");
        assert_eq!(shown.len(), 1);
        assert!(shown[0].text.ends_with("record: {\"a\":1}"), "{shown:?}");
    }
}

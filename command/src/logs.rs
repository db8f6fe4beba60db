//! `job-exec-rs logs`: everything that this service has on a job, in order of time.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;
use humantime::{format_rfc3339_micros, parse_rfc3339, parse_rfc3339_weak};
use job_exec_rs::proto::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::paint::{Colour, Paint};
use super::programs::{on_ranks, ranks_of_job, run, tell};
use super::reach::{Reach, duration};
use super::stats::{self, Unit};

/// Between two looks of `--follow`, each of which asks all ranks of the job.
const PAUSE: Duration = Duration::from_secs(2);

/// Show all that the service has on a job: what to attach to a report
///
/// In order of time: the job's eventlog and exec eventlog, what the brokers of its ranks have logged on it,
/// what systemd says of its units, and the records that are still there. Of the user's own job another
/// user than the instance owner gets the eventlogs, and which units there are now. Each line has its time,
/// its rank or host, and where it is from. The exit status is 1 if a rank has not
/// answered.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  job-exec-rs logs f2XyZ >report.txt
  job-exec-rs logs --since 10m --follow f2XyZ
  job-exec-rs logs --json f2XyZ | jq 'select(.from == \"systemd\")'")]
pub(super) struct Arguments {
    /// The job
    #[arg(value_name = "JOBID")]
    job: JobId,
    /// Later than this: a time in UTC, or how long ago
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<String>,
    /// Look again every two seconds until the job has ended, and show what is new
    #[arg(short, long)]
    follow: bool,
    /// One JSON object for each line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Where an entry is from that is as the module says.
const MODULE: &str = "module";
/// Why an entry says nothing of a unit.
const NO_JOURNAL: &str = "the journal has nothing on its units";

/// One line. Times are in UTC, in a form that sorts.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
struct Entry {
    time: String,
    place: String,
    from: String,
    text: String,
}

pub(super) fn logs(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let broker = Broker::ask()?;
    if arguments.reach.here {
        return tell(here(broker.rank, arguments.job)?.into_iter().map(|entry| json!(entry)));
    }
    let (mut out, paint) = (Out::lock(), Paint::of_stdout());
    let (mut shown, mut complained) = (BTreeSet::new(), BTreeSet::new());
    let mut has_ended = false;
    loop {
        // What others have on its end can be later than the end itself.
        let is_last = has_ended || !arguments.follow;
        let (entries, silent) = look(arguments)?;
        has_ended = entries.iter().any(|entry| entry.from == "job" && entry.text == "clean");
        for entry in entries {
            if shown.insert(entry.key()) {
                let line =
                    if arguments.json { json!(entry).to_string() } else { entry.line(paint) };
                writeln!(out, "{line}").map_err(Failure::new)?;
            }
        }
        for why in silent {
            if !complained.contains(&why) {
                writeln!(std::io::stderr(), "job-exec-rs: {why}").map_err(Failure::new)?;
                complained.insert(why);
            }
        }
        if is_last {
            break;
        }
        // Nothing says when a rank logs something, or when a unit of the job begins or ends.
        thread::sleep(PAUSE);
    }
    Ok(if complained.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What there is, in order of time, and which ranks have not answered, and why.
fn look(arguments: &Arguments) -> Result<(BTreeSet<Entry>, Vec<String>), Failure> {
    let id = arguments.job.to_string();
    let mut entries = BTreeSet::new();
    for path in ["eventlog", "guest.exec.eventlog"] {
        entries.extend(events(&id, path)?);
    }
    let ranks = ranks_of_job(&id)?;
    let silent = if stats::is_guests(&stats::of_rank(0)?) {
        let (told, silent) = stats::of_ranks(&ranks);
        entries.extend(told.iter().flat_map(|(rank, stats)| module(*rank, stats, arguments.job)));
        silent
    } else {
        // Rank 0 talks to the job manager.
        let all = ranks.union(&[0].into_iter().collect());
        let answers = on_ranks(&all, &["logs", &id], arguments.reach.timeout)?;
        let told = answers.told.into_values().flatten();
        entries.extend(told.filter_map(|entry| serde_json::from_value::<Entry>(entry).ok()));
        let why = |(rank, why)| format!("rank {rank}: {why}");
        answers.silent.into_iter().map(why).collect()
    };
    if let Some(since) = &arguments.since {
        entries.retain(|entry| entry.time >= *since);
    }
    Ok((entries, silent))
}

/// What a rank's module tells a user of the user's own job. What it is now has no time of its own.
fn module(rank: u32, stats: &Value, job: JobId) -> Vec<Entry> {
    let units = stats::units(stats).into_iter().filter(|unit| unit.job.parse() == Ok(job));
    let entry = |Unit { stage, unit, pid, .. }: Unit| {
        let pid = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
        Entry {
            time: format_rfc3339_micros(SystemTime::now()).to_string(),
            place: format!("rank {rank}"),
            from: MODULE.to_string(),
            text: format!("{stage} {unit}{pid}"),
        }
    };
    units.map(entry).collect()
}

impl Entry {
    /// What it is known by in the next look. Facts have no times of their own.
    fn key(&self) -> Self {
        let is_fact = ["record", MODULE].contains(&self.from.as_str());
        let has_time = !is_fact && !self.text.starts_with(NO_JOURNAL);
        Self { time: if has_time { self.time.clone() } else { String::new() }, ..self.clone() }
    }

    fn line(&self, paint: Paint) -> String {
        let Self { time, place, from, text } = self;
        let before = paint.paint(Colour::Dim, &format!("{time} {place:<8} {from:<8}"));
        let is_bad = from == "job" && text.starts_with("exception");
        let text = if is_bad { paint.paint(Colour::Red, text) } else { text.clone() };
        format!("{before} {text}")
    }
}

/// In the form of [`Entry::time`].
fn since(text: &str) -> Result<String, String> {
    let time = match duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH),
        Err(_) => parse_rfc3339_weak(text).map_err(|_| {
            "neither a time, as 2026-11-27T12:00:00Z, nor a duration, as 10m".to_string()
        })?,
    };
    Ok(format_rfc3339_micros(time).to_string())
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

/// What this rank has.
fn here(rank: u32, job: JobId) -> Result<Vec<Entry>, Failure> {
    let place = format!("rank {rank}");
    let stats = stats::of_rank(rank)?;
    let mut entries = dmesg(&place, job);
    entries.extend(journal(&place, job));
    entries.extend(records(&place, stats["records"].as_str().unwrap_or_default(), job));
    Ok(entries)
}

/// Whether a line names the job, and not one whose id only begins so. A broker writes `ƒ` where it can.
fn names(line: &str, job: JobId) -> bool {
    let plain = job.f58plain();
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    let of = |id: &str| line.match_indices(id).any(|(at, _)| is_end(&line[at + id.len()..]));
    of(&plain) || of(&plain.replacen('f', "ƒ", 1))
}

fn dmesg(place: &str, job: JobId) -> Vec<Entry> {
    let text = run("flux", &["dmesg"]).unwrap_or_default();
    let entry = |line: &str| {
        let (time, text) = line.split_once(' ')?;
        let time = format_rfc3339_micros(parse_rfc3339(time).ok()?).to_string();
        let (place, from) = (place.to_string(), "broker".to_string());
        Some(Entry { time, place, from, text: text.to_string() })
    };
    text.lines().filter(|line| names(line, job)).filter_map(entry).collect()
}

/// What the owner's systemd says of its units. The journal may be out of reach: then that is the one
/// line.
fn journal(place: &str, job: JobId) -> Vec<Entry> {
    let unit = format!("*-{}-*", job.f58plain());
    let show = ["--user", "--quiet", "--output=json", "--user-unit", &unit];
    let said = |time: String, text: String| {
        let (place, from) = (place.to_string(), "systemd".to_string());
        Entry { time, place, from, text }
    };
    let text = match run("journalctl", &show) {
        Ok(text) => text,
        Err(error) => {
            let now = format_rfc3339_micros(SystemTime::now()).to_string();
            return vec![said(now, format!("{NO_JOURNAL}: {error}"))];
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
fn records(place: &str, directory: &str, job: JobId) -> Vec<Entry> {
    let part = format!("-{}-", job.f58plain());
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

    fn job(id: &str) -> JobId {
        id.parse().expect("a job id")
    }

    #[test]
    fn a_line_names_a_job_by_its_whole_id() {
        let f2_xy = job("f2Xy");
        assert!(names("ƒ2Xy: rank 1 does not answer", f2_xy) && names("of f2Xy", f2_xy));
        assert!(!names("ƒ2XyZ: rank 1 does not answer", f2_xy));
    }

    #[test]
    fn facts_of_the_jobs_records_are_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str| std::fs::write(directory.path().join(name), "{\"a\":1}\n\0\0");
        for id in ["f2", "f22", "ff2"] {
            write(&format!("shell-0-{id}-0a0a0a0a.record")).expect("a record");
        }
        for id in ["f2", "ff2"] {
            let shown = records("rank 0", &directory.path().to_string_lossy(), job(id));
            let [Entry { text, .. }] = shown.as_slice() else { panic!("{shown:?}") };
            assert_eq!(*text, format!("shell-0-{id}-0a0a0a0a.record: {{\"a\":1}}"));
        }
    }

    #[test]
    fn a_fact_that_is_seen_again_is_not_new() {
        let entry = |time: &str, from: &str| Entry {
            time: time.into(),
            place: "rank 0".into(),
            from: from.into(),
            text: "text".into(),
        };
        assert_eq!(entry("1", "record").key(), entry("2", "record").key());
        assert_ne!(entry("1", "broker").key(), entry("2", "broker").key());
    }

    #[test]
    fn a_time_and_a_duration_say_since_when() {
        assert_eq!(since("2026-11-27 12:00:00"), Ok("2026-11-27T12:00:00.000000Z".to_string()));
        let an_hour_ago = since("1h").expect("a duration");
        assert!(an_hour_ago < since("59m").expect("a duration"));
        assert!(since("yesterday").is_err());
    }
}

//! `job-exec-rs metrics`: what the module of this rank counts, for Prometheus.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::stats;

/// Print what the service counts on this node, as OpenMetrics
///
/// For the textfile collector of node_exporter, as the instance owner. Counters begin at 0 when the module
/// is loaded. Without an answer of the module all that there is to say is `job_exec_up 0`, and the exit
/// status is 0. Nothing that users choose is in it. `job-exec-rs-metrics.timer` runs this each minute, if it
/// is enabled.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  job-exec-rs metrics
  job-exec-rs metrics --output /var/lib/prometheus/node-exporter/job-exec-rs.prom")]
pub(super) struct Arguments {
    /// Replace this file, at once
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn metrics(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let stats = Broker::ask().and_then(|broker| stats::of_rank(broker.rank));
    let text = text(stats.as_ref().ok());
    match &arguments.output {
        Some(path) => {
            replace(path, &text).map_err(|error| Failure(format!("{}: {error}", path.display())))?
        }
        None => Out::lock().write_all(text.as_bytes()).map_err(Failure::new)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Who reads the file sees the old one or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// A metric: its name, its type, what it says, and where it is in the statistics.
type Metric = (&'static str, &'static str, &'static str, fn(&Value) -> Option<f64>);

const METRICS: [Metric; 12] = [
    ("units", "counter", "Units started", |it| it["units-started"].as_f64()),
    ("unit_start_seconds", "counter", "Time from requests to starts of units, in all", |it| {
        it["start-seconds"].as_f64()
    }),
    ("oom_kills", "counter", "Processes killed because memory was short", |it| {
        it["oom-kills"].as_f64()
    }),
    ("checkpoint_age_seconds", "gauge", "Rank 0: since the last checkpoint", |it| {
        it["checkpoint-age"].as_f64()
    }),
    ("drained_nodes", "counter", "Nodes that were asked to be drained", |it| it["drains"].as_f64()),
    ("unwanted_shells", "counter", "Shells ended here that no job counts on", |it| {
        it["restart"]["unwanted"].as_f64()
    }),
    ("shells", "gauge", "Shells here", |it| size(&it["shells"])),
    ("scripts", "gauge", "Prologs and epilogs here that have not ended", |it| {
        Some(it["scripts"].as_object()?.values().filter_map(size).sum())
    }),
    ("led_jobs", "gauge", "Jobs that this rank leads, or whose end is not safe yet", |it| {
        Some(it["jobs"].as_object()?.len() as f64)
    }),
    ("waiting_jobs", "gauge", "Of these, jobs that wait for a rank, a script or a drain", |it| {
        let keys = ["away_ranks", "prolog_ranks", "epilog_ranks", "undrained_ranks"];
        let waits = |job: &&Value| keys.iter().any(|key| !job[key].is_null());
        Some(it["jobs"].as_object()?.values().filter(waits).count() as f64)
    }),
    ("systemd_answers", "gauge", "Whether systemd answers", |it| {
        Some(f64::from(u8::from(it["waits-for"].is_null())))
    }),
    ("uses_systemd", "gauge", "Whether shells outlive their broker, as units", |it| {
        Some(f64::from(u8::from(it["launcher"] == "systemd")))
    }),
];

/// What has become of shells that were found after the load.
const FATES: [&str; 4] = ["running", "ended", "lost", "never-started"];
/// Others than SIGKILL, SIGKILL, and SIGKILL to all processes that are left.
const STAGES: [&str; 3] = ["signal", "kill", "kernel"];

fn size(value: &Value) -> Option<f64> {
    Some(value.as_object().map(|it| it.len()).or(value.as_array().map(Vec::len))? as f64)
}

/// In OpenMetrics 1.0. What the module does not count is left out.
fn text(stats: Option<&Value>) -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
        let name = format!("job_exec_{name}");
        let suffix = if kind == "counter" { "_total" } else { "" };
        text += &format!("# TYPE {name} {kind}\n# HELP {name} {help}\n");
        for (labels, value) in samples {
            text += &format!("{name}{suffix}{labels} {value}\n");
        }
    };
    let up = f64::from(u8::from(stats.is_some()));
    add("up", "gauge", "Whether the module of this rank answers", &[(String::new(), up)]);
    if let Some(stats) = stats {
        for (name, kind, help, read) in METRICS {
            if let Some(value) = read(stats) {
                add(name, kind, help, &[(String::new(), value)]);
            }
        }
        let of = |label: &str, keys: &[&str], from: &Value| -> Vec<(String, f64)> {
            let one = |key: &&str| Some((format!("{{{label}=\"{key}\"}}"), from[*key].as_f64()?));
            keys.iter().filter_map(one).collect()
        };
        let fates = of("fate", &FATES, &stats["restart"]);
        add("found_shells", "gauge", "Shells found after the load, by what became of them", &fates);
        let stages = of("stage", &STAGES, &stats["signals"]);
        add("signals", "counter", "Signals to units, by stage of their kill", &stages);
    }
    text + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Reads what OpenMetrics 1.0 allows of it: each metric once, with its type first, samples by the name
    /// that its type asks for, and the end.
    fn read(text: &str) -> BTreeMap<String, f64> {
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.pop(), text.chars().last()), (Some("# EOF"), Some('\n')));
        let (mut types, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let mut last = ("", "");
        for line in lines {
            if let Some(named) = line.strip_prefix("# TYPE ") {
                last = named.split_once(' ').expect("a name and a type");
                assert!(["counter", "gauge"].contains(&last.1), "{line}");
                assert_eq!(types.insert(last.0, last.1), None, "{line}");
            } else if let Some(help) = line.strip_prefix("# HELP ") {
                assert_eq!(help.split_once(' ').map(|(name, _)| name), Some(last.0), "{line}");
            } else {
                let (name, value) = line.rsplit_once(' ').expect("a name and a value");
                let base = name.split('{').next().expect("a name");
                let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
                assert!(base.chars().all(is_word), "{line}");
                let labels = &name[base.len()..];
                assert!(
                    labels.is_empty()
                        || ["{fate=\"", "{stage=\""].iter().any(|it| labels.starts_with(it))
                            && labels.ends_with("\"}")
                );
                let ending = if last.1 == "counter" { "_total" } else { "" };
                assert_eq!(base, format!("{}{ending}", last.0), "{line}");
                let value: f64 = value.parse().expect("a number");
                assert_eq!(samples.insert(name.to_string(), value), None, "{line}");
            }
        }
        samples
    }

    #[test]
    fn statistics_are_metrics_and_what_is_not_counted_is_none() {
        let stats = json!({
            "units-started": 1841, "drains": 2, "launcher": "systemd", "waits-for": "a sign of life",
            "start-seconds": 9.5, "oom-kills": 3, "checkpoint-age": null,
            "signals": { "signal": 5, "kill": 6, "kernel": 7 },
            "shells": { "f2": {}, "f3": {} }, "scripts": { "f\"2\n": [{}, {}] },
            "jobs": { "f2": { "away_ranks": "2" }, "f3": {} },
            "restart": { "found": 3, "running": 2, "ended": 0, "lost": 1, "never-started": 0, "unwanted": 4 },
        });
        let samples = read(&text(Some(&stats)));
        let expected = [
            ("job_exec_drained_nodes_total", 2.0),
            ("job_exec_found_shells{fate=\"ended\"}", 0.0),
            ("job_exec_found_shells{fate=\"lost\"}", 1.0),
            ("job_exec_found_shells{fate=\"never-started\"}", 0.0),
            ("job_exec_found_shells{fate=\"running\"}", 2.0),
            ("job_exec_led_jobs", 2.0),
            ("job_exec_oom_kills_total", 3.0),
            ("job_exec_scripts", 2.0),
            ("job_exec_shells", 2.0),
            ("job_exec_signals_total{stage=\"kernel\"}", 7.0),
            ("job_exec_signals_total{stage=\"kill\"}", 6.0),
            ("job_exec_signals_total{stage=\"signal\"}", 5.0),
            ("job_exec_systemd_answers", 0.0),
            ("job_exec_unit_start_seconds_total", 9.5),
            ("job_exec_units_total", 1841.0),
            ("job_exec_unwanted_shells_total", 4.0),
            ("job_exec_up", 1.0),
            ("job_exec_uses_systemd", 1.0),
            ("job_exec_waiting_jobs", 1.0),
        ];
        assert_eq!(samples, expected.map(|(name, value)| (name.to_string(), value)).into());
    }

    #[test]
    fn without_an_answer_it_is_down() {
        let up = [("job_exec_up".to_string(), 0.0)];
        assert_eq!(read(&text(None)), up.into());
    }

    #[test]
    fn a_file_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("job-exec-rs.prom");
        for text in ["a\n", "b\n"] {
            replace(&path, text).expect("it is written");
            assert_eq!(fs::read_to_string(&path).expect("a file"), text);
        }
        assert_eq!(fs::read_dir(directory.path()).expect("a list").count(), 1);
    }
}

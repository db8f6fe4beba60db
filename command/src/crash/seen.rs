//! What the lives of the instance have told, and how it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use job_exec_rs::proto::{JobId, UnitName, WaitStatus};
use serde_json::Value;

/// All that was told of the job, over all lives.
#[derive(Debug, Default)]
pub(super) struct Seen {
    began: Option<f64>,
    /// The job.
    pub(super) id: Option<JobId>,
    /// How often all shells have started.
    pub(super) starts: u32,
    /// A later life has found all shells again.
    pub(super) reattached: bool,
    /// Each unit's main process, as it was told last.
    pub(super) units: BTreeMap<UnitName, u32>,
    /// Units whose main process was told by the life that runs.
    pub(super) told: BTreeSet<UnitName>,
    /// The status of each rank that has ended.
    pub(super) exits: BTreeMap<u32, WaitStatus>,
    /// Whole lines that each rank has in the KVS.
    pub(super) lines: BTreeMap<u32, usize>,
    /// The job's status.
    pub(super) status: Option<WaitStatus>,
    /// The ranks of each release.
    pub(super) released: Vec<String>,
    /// What went wrong with the job.
    pub(super) exceptions: Vec<String>,
}

impl Seen {
    /// Notes an event, and shows it if there is anything to be seen.
    pub(super) fn take(&mut self, event: &Value) -> io::Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let status = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
        let rank = || event["context"]["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
        let context = &event["context"];
        let shown = match (text(&event["source"]).as_str(), text(&event["name"]).as_str()) {
            ("eventlog", "submit") => {
                self.id = event["id"].as_str().and_then(|id| id.parse().ok());
                "submitted".to_string()
            }
            ("eventlog", "adopted") => "the job manager asks for the job again".to_string(),
            ("eventlog", "start") => {
                self.starts += 1;
                format!("started on {} ranks", self.units.len())
            }
            ("eventlog", "reattached") => {
                self.reattached = true;
                "found again: nothing was started".to_string()
            }
            ("eventlog", "exception") => {
                let (kind, note) = (text(&context["type"]), text(&context["note"]));
                self.exceptions.push(format!("{kind}: {note}"));
                format!("exception: {kind}: {note}")
            }
            ("eventlog", "finish") => {
                let status: WaitStatus = status(&context["status"]);
                self.status = Some(status);
                format!("finished: {status}")
            }
            ("eventlog", "release") => {
                let ranks = text(&context["ranks"]);
                self.released.push(ranks.clone());
                let last = if context["final"] == true { ", the last" } else { "" };
                format!("released {ranks}{last}")
            }
            ("exec.eventlog", "log") => return self.output(context),
            ("unit", "started") => {
                if let Ok(unit) = text(&context["unit"]).parse::<UnitName>() {
                    let pid = context["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                    self.units.insert(unit.clone(), pid.unwrap_or(0));
                    self.told.insert(unit);
                }
                return Ok(());
            }
            ("unit", "exited") => {
                let (rank, status) = (rank().unwrap_or_default(), status(&context["status"]));
                self.exits.insert(rank, status);
                format!("rank {rank} ended: {status}")
            }
            ("unit", "lost" | "failed" | "leftover") => {
                format!("{}: {} {}", text(&context["unit"]), event["name"], context["message"])
            }
            ("instance", "drain") => format!("would be drained: {context}"),
            ("instance", "log") if ["warning", "error"].contains(&&*text(&context["level"])) => {
                text(&context["text"])
            }
            _ => return Ok(()), // told by other events
        };
        let at = event["timestamp"].as_f64().unwrap_or_default();
        let seconds = at - *self.began.get_or_insert(at);
        writeln!(io::stdout(), "[{seconds:7.3}s] {shown}")
    }

    /// Output is shown when it is in the KVS. Each commit has whole lines.
    fn output(&mut self, context: &Value) -> io::Result<()> {
        let Some(rank) = context["rank"].as_str().and_then(|rank| rank.parse().ok()) else {
            return Ok(());
        };
        for line in context["data"].as_str().unwrap_or_default().lines() {
            *self.lines.entry(rank).or_default() += 1;
            writeln!(io::stdout(), "{rank}: {line}")?;
        }
        Ok(())
    }
}

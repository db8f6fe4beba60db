//! `job-exec-rs demo --crash --flux`: the same story with the brokers of a real Flux.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use job_exec_rs::port::supervisor::Method;
use job_exec_rs::proto::UnitName;
use job_exec_rs_command::embedded::temporary;
use serde_json::Value;

use super::{
    LINES_BEFORE, Processes, SCRIPT, STATUS, chapter, conclude, count, indented, line, pids,
    processes, stdout_gone, uninterrupted,
};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::site::Site;
use crate::story;

/// `flux job attach`, and what each rank has printed.
struct Attached {
    client: Child,
    lines: BufReader<ChildStdout>,
    printed: BTreeMap<u32, String>,
}

impl Attached {
    fn begin(site: &Site, job: &str) -> Result<Self, Failure> {
        let mut attach = site.flux();
        attach.args(["job", "attach", "--label-io", job]).stdin(Stdio::null());
        let mut client =
            attach.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(Failure::new)?;
        let stdout = client.stdout.take().ok_or_else(|| Failure::new("attach has no stdout"))?;
        Ok(Self { client, lines: BufReader::new(stdout), printed: BTreeMap::new() })
    }

    /// Takes one line. Returns false at the end.
    fn next(&mut self) -> Result<bool, Failure> {
        let mut text = String::new();
        self.lines.read_line(&mut text).map_err(Failure::new)?;
        if let Some((rank, said)) = text.split_once(": ")
            && let Ok(rank) = rank.parse()
        {
            self.printed.entry(rank).or_default().push_str(said);
        }
        Ok(!text.is_empty())
    }

    fn follow(
        &mut self,
        is_enough: impl Fn(&BTreeMap<u32, String>) -> bool,
    ) -> Result<(), Failure> {
        while !is_enough(&self.printed) {
            if !self.next()? {
                return Err(Failure::new("the job has ended too early"));
            }
        }
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // It has ended, unless the story was interrupted.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// The temporary directory, and the units of the job.
struct Place {
    path: PathBuf,
    units: Vec<UnitName>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let slices = |unit: &UnitName| format!("*{}_*.slice", unit.stem().replace('-', "_"));
        let names: Vec<String> =
            self.units.iter().flat_map(|unit| [unit.to_string(), slices(unit)]).collect();
        // What has ended is not there any more.
        let verbs: &[&str] = if names.is_empty() { &[] } else { &["stop", "reset-failed"] };
        for verb in verbs {
            let mut stop = Command::new("systemctl");
            stop.args(["--user", "--quiet", verb]).args(&names).stderr(Stdio::null());
            let _ = stop.status();
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove it");
        }
    }
}

/// Tells the story.
pub(crate) fn flux(ranks: u32) -> Result<ExitCode, Failure> {
    let path = temporary().map_err(Failure::new)?;
    let mut place = Place { path: path.clone(), units: Vec::new() };
    let interrupts = Interrupts::start()?;
    let mut site = begin(path, ranks)?;
    let version = site.run(&["version"])?;
    let version = version.split_whitespace().nth(1).unwrap_or_default();
    chapter(
        &format!("A job on {ranks} brokers of Flux {version}"),
        &format!("Each rank runs, as a unit of systemd --user:\n\n{}", indented(SCRIPT)),
    )?;
    let (job, mut attached) = submit(&site, ranks)?;
    let has_written = |out: &BTreeMap<u32, String>| {
        let enough = |rank| out.get(&rank).is_some_and(|text| text.lines().count() >= LINES_BEFORE);
        (0..ranks).all(enough)
    };
    attached.follow(has_written)?;
    place.units = units(&site, &job)?;
    let before = processes(place.units.iter())?;
    show(&before)?;
    chapter("All brokers are killed", "Their run directories go, too, as systemd removes them.")?;
    line(&format!("           kill -9 {}", site.pids()))?;
    site.kill()?;
    chapter("Nobody is there", "The units run on, with the same processes:")?;
    show(&before)?;
    check_same(&before)?;
    line(&format!("           the task of rank {} ends with {STATUS}", ranks - 1))?;
    end_rank(&site, ranks - 1)?;
    uninterrupted(&interrupts)?;
    chapter("They are started again", "All that they have is what is on the disk.")?;
    site.start()?;
    let others: Processes =
        before.iter().filter(|(unit, _)| unit.rank().0 + 1 < ranks).map(own).collect();
    check_same(&others)?;
    show(&others)?;
    (0..ranks - 1).try_for_each(|rank| end_rank(&site, rank))?;
    while attached.next()? {}
    uninterrupted(&interrupts)?;
    check(place, site, attached, &before, ranks)
}

fn begin(path: PathBuf, ranks: u32) -> Result<Site, Failure> {
    let made = Site::make(path, ranks).and_then(|mut site| {
        site.start()?;
        // What the module says on rank 0 goes for all: they are on one host.
        let stats = site.run(&["module", "stats", "job-exec-rs"])?;
        let stats: Value = serde_json::from_str(&stats).map_err(Failure::new)?;
        if stats["launcher"] == "systemd" {
            return Ok(site);
        }
        Err(Failure(stats["notice"].as_str().unwrap_or("no systemd --user").to_string()))
    });
    made.map_err(|Failure(why)| {
        Failure(format!("demo --crash --flux needs a Flux and a systemd --user: {why}"))
    })
}

fn own((unit, process): (&UnitName, &(u32, String))) -> (UnitName, (u32, String)) {
    (unit.clone(), process.clone())
}

fn submit(site: &Site, ranks: u32) -> Result<(String, Attached), Failure> {
    let (nodes, tasks) = (format!("-N{ranks}"), format!("-n{ranks}"));
    let end = site.path().join("end").display().to_string();
    let job = site.run(&["submit", &nodes, &tasks, "sh", "-c", SCRIPT, &end])?;
    line(&format!("           flux submit {nodes} {tasks} …: {job}"))?;
    line(&format!("           flux job attach {job}, through resume://"))?;
    let attached = Attached::begin(site, &job)?;
    Ok((job, attached))
}

fn end_rank(site: &Site, rank: u32) -> Result<(), Failure> {
    fs::write(site.path().join(format!("end-{rank}")), "").map_err(Failure::new)
}

/// The units of the job, one on each rank.
fn units(site: &Site, job: &str) -> Result<Vec<UnitName>, Failure> {
    let id = site.run(&["job", "id", "--to=f58plain", job])?;
    let list = story::list(&format!("shell-*-{id}-*.service")).map_err(Failure::new)?;
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.map(|name| name.parse().map_err(Failure::new)).collect()
}

fn show(processes: &Processes) -> Result<(), Failure> {
    let units: BTreeMap<UnitName, u32> =
        processes.iter().map(|(unit, (pid, _))| (unit.clone(), *pid)).collect();
    story::units(&mut std::io::stdout(), Method::Systemd, &units).map_err(stdout_gone)
}

fn check_same(before: &Processes) -> Result<(), Failure> {
    if processes(before.keys())? == *before {
        return Ok(());
    }
    Err(Failure::new("these are other processes than before"))
}

/// Looks whether all is as it must be, and says so.
fn check(
    place: Place,
    mut site: Site,
    mut attached: Attached,
    before: &Processes,
    ranks: u32,
) -> Result<ExitCode, Failure> {
    chapter(
        "What has become of it",
        "As flux job attach has seen it, which nobody started again:",
    )?;
    let status = attached.client.wait().map_err(Failure::new)?.code();
    site.stop()?;
    let mut wrong = Vec::new();
    for unit in before.keys() {
        let left = story::list(&unit.to_string()).map_err(Failure::new)?;
        wrong.extend(left.lines().map(|unit| format!("{unit} is left")));
    }
    line(&format!("  the same processes all the time: {}", pids(before)))?;
    if status == Some(STATUS) {
        line(&format!("  the true status: exit {STATUS}, of rank {}", ranks - 1))?;
    } else {
        wrong.push(format!("the status is {status:?}"));
    }
    let counted: Result<Vec<String>, Failure> = (0..ranks)
        .map(|rank| count(rank, attached.printed.get(&rank).map_or("", String::as_str)))
        .map(|count| count.map(|count| count.to_string()))
        .collect();
    match counted {
        Ok(lines) => {
            let lines = lines.join(", ");
            line(&format!("  all output, each line once and in order: {lines} lines"))?;
        }
        Err(error) => wrong.push(error.to_string()),
    }
    let path = place.path.clone();
    drop((site, attached, place));
    conclude(&path, wrong)?;
    line("\nTo stay: job-exec-rs install")?;
    Ok(ExitCode::SUCCESS)
}

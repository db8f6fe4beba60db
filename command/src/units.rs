//! `job-exec-rs units`: where the shells and scripts of jobs are, and how they are.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use job_exec_rs::adapter::systemd::counted;
use job_exec_rs::proto::{Idset, JobId, SliceName};
use serde_json::{Value, json};

use super::broker::Broker;
use super::failure::Failure;
use super::out::Out;
use super::programs::{on_ranks, ranks_of_job, run, tell};
use super::reach::Reach;
use super::stats::{self, Unit};
use super::table::Form;

const COLUMNS: [&str; 17] = [
    "jobid",
    "rank",
    "host",
    "stage",
    "unit",
    "state",
    "pid",
    "processes",
    "memory",
    "peak",
    "cpu",
    "user",
    "system",
    "read",
    "written",
    "oom",
    "since",
];
const FORMAT: &str = "{jobid:<14} {rank:>5} {host:<12} {stage:<7} {state:<10} {pid:>8} {processes:>9} {memory:>7} {peak:>7} {cpu:>8} {oom:>3} {unit}";

/// What systemd is asked of each unit.
const PROPERTIES: &str =
    "--property=Id,ActiveState,SubState,MainPID,ControlGroup,MemoryCurrent,ActiveEnterTimestamp";

/// Show the units of jobs: rank, host, state, processes
///
/// The instance owner sees the units of all jobs, another user those of the user's own, without what only
/// the owner's systemd knows. A column without a value is `-`: a shell with method fork has no unit. The exit
/// status is 1 if a rank has not answered.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns: jobid rank host stage unit state pid processes memory peak cpu user system read written oom since

Examples:
  job-exec-rs units                            of this node
  job-exec-rs units --all f2XyZ                of one job, on all nodes
  job-exec-rs units --all -no '{rank} {unit}'  two columns, and no header
  watch -n 5 job-exec-rs units --all --sort=-cpu   what uses most")]
pub(super) struct Arguments {
    /// This job's alone
    #[arg(value_name = "JOBID")]
    job: Option<JobId>,
    /// All nodes of the instance, or of the user's jobs
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    form: Form,
}

pub(super) fn units(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let broker = Broker::ask()?;
    let stats = stats::of_rank(broker.rank)?;
    let own = rows(&broker, broker.rank, &stats, arguments.job);
    if arguments.reach.here {
        return tell(own);
    }
    let (rows, is_complete) = if arguments.all && stats::is_guests(&stats) {
        of_user(&broker, arguments.job)?
    } else if arguments.all {
        let job = arguments.job.map(|job| job.to_string());
        let more: Vec<&str> = job.iter().map(String::as_str).collect();
        let ask = [&["units"], more.as_slice()].concat();
        let answers = on_ranks(&broker.ranks(), &ask, arguments.reach.timeout)?;
        let is_complete = answers.complain();
        (answers.told.into_values().flatten().collect(), is_complete)
    } else {
        (own, true)
    };
    arguments.form.show(&rows, (&COLUMNS, FORMAT), &mut Out::lock())?;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Those of the user's own jobs, and whether all ranks have answered. Each is asked from here.
fn of_user(broker: &Broker, job: Option<JobId>) -> Result<(Vec<Value>, bool), Failure> {
    let jobs = stats::of_rank(0)?["coordinated"].as_object().cloned().unwrap_or_default();
    let mut ranks = Idset::new();
    for id in jobs.keys().filter(|id| job.is_none_or(|job| id.parse() == Ok(job))) {
        ranks = ranks.union(&ranks_of_job(id)?);
    }
    let (told, silent) = stats::of_ranks(&ranks);
    for why in &silent {
        writeln!(std::io::stderr(), "job-exec-rs: {why}").map_err(Failure::new)?;
    }
    let rows = told.iter().flat_map(|(rank, stats)| rows(broker, *rank, stats, job)).collect();
    Ok((rows, silent.is_empty()))
}

/// The units that a rank has. A guest's own systemd knows nothing of them.
fn rows(broker: &Broker, rank: u32, stats: &Value, job: Option<JobId>) -> Vec<Value> {
    let mut units = stats::units(stats);
    units.retain(|unit| job.is_none_or(|job| unit.job.parse() == Ok(job)));
    let host = broker.hosts.as_ref().and_then(|hosts| hosts.get(rank as usize));
    let host = if rank == broker.rank { Some(broker.host.as_str()) } else { host };
    let told = if stats::is_guests(stats) { BTreeMap::new() } else { ask_systemd(&units) };
    let row = |unit: &Unit| {
        let told = told.get(&unit.unit);
        let text = |name: &str| told.and_then(|told| told.get(name)).filter(|text| is_set(text));
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        let group = text("ControlGroup").map(String::as_str);
        let used = group.and_then(|group| counted(slice(group)?)).unwrap_or_default();
        let is_frozen = group.is_some_and(is_frozen);
        let state = text("ActiveState").map(String::as_str);
        let seconds = |us: Option<u64>| us.map(|us| us as f64 / 1e6);
        let cpu = used.user.map(|user| user.saturating_add(used.system.unwrap_or(0)));
        json!({
            "jobid": unit.job,
            "rank": rank,
            "host": host,
            "stage": unit.stage,
            "unit": unit.unit,
            "state": if is_frozen { Some("frozen") } else { state },
            "pid": unit.pid.or_else(|| number("MainPID")),
            "processes": group.and_then(processes),
            "memory": number("MemoryCurrent"),
            "peak": used.memory,
            "cpu": seconds(cpu),
            "user": seconds(used.user),
            "system": seconds(used.system),
            "read": used.read,
            "written": used.written,
            "oom": used.oom_kills,
            "since": text("ActiveEnterTimestamp"),
        })
    };
    units.iter().map(row).collect()
}

/// Where a cgroup is.
pub(super) fn directory(group: &str) -> PathBuf {
    Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/'))
}

/// How many a cgroup has.
fn processes(group: &str) -> Option<usize> {
    let file = directory(group).join("cgroup.procs");
    Some(std::fs::read_to_string(file).ok()?.lines().count())
}

/// The kernel has frozen all processes of a cgroup, for itself or with one above it.
pub(super) fn is_frozen(group: &str) -> bool {
    let events = std::fs::read_to_string(directory(group).join("cgroup.events"));
    events.is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
}

/// The name of a unit's own slice. None: systemd has no such unit, or it is in no slice of its own.
///
/// # Errors
/// systemd does not answer.
pub(super) fn own_slice(unit: &str) -> Result<Option<String>, Failure> {
    let show = ["--user", "show", "--property=ControlGroup", "--value", "--", unit];
    let slice = slice(&run("systemctl", &show)?);
    Ok(slice.and_then(|path| Some(path.file_name()?.to_str()?.to_string())))
}

/// Where a unit's own slice is, if it has one.
fn slice(group: &str) -> Option<PathBuf> {
    let (slice, _) = group.rsplit_once('/')?;
    SliceName::parse(slice.rsplit('/').next()?).map(|_| directory(slice))
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
pub(super) fn properties(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let of_one = |part: &str| {
        let pairs = part.lines().filter_map(|line| line.split_once('='));
        let all: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Some((all.get("Id")?.clone(), all))
    };
    text.split("\n\n").filter_map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_tells_of_several_units_is_told_apart() {
        let told = properties("Id=a.service\nMainPID=3\n\nId=b.service\nMemoryCurrent=[not set]\n");
        assert_eq!(told["a.service"]["MainPID"], "3");
        assert!(!is_set(&told["b.service"]["MemoryCurrent"]));
    }

    #[test]
    fn only_a_slice_of_its_own_counts_for_a_unit() {
        let unit = "shell-3-f8-0123abcd.service";
        let own = slice(&format!("/m/app.slice/app-shell_3_f8_0123abcd_01234567.slice/{unit}"));
        assert!(own.is_some_and(|path| path.ends_with("app-shell_3_f8_0123abcd_01234567.slice")));
        assert_eq!(slice(&format!("/m/app.slice/{unit}")), None);
    }
}

//! Whether jobs are contained: each process in its unit, each limit of the unit in force, and nothing of
//! their users beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::successors;
use std::path::Path;

use job_exec_rs::proto::{Idset, JobId, job_of_unit, show_size};
use nix::unistd::{Uid, getuid};

use super::finding::{Finding, Grade, bad, good, note};
use super::mends::delegate;
use super::site::{name_of, span};
use crate::failure::Failure;
use crate::out::plain;
use crate::processes::{Process, processes};
use crate::programs::run;
use crate::stats::{self, Unit, units};
use crate::units::{directory, properties};

/// Limits that a unit can have, and the file of its cgroup for each: `CONTROLLER.NAME`.
const LIMITS: [(&str, &str); 7] = [
    ("AllowedCPUs", "cpuset.cpus.effective"),
    ("AllowedMemoryNodes", "cpuset.mems.effective"),
    (CPU_QUOTA, "cpu.max"),
    ("MemoryHigh", "memory.high"),
    ("MemoryMax", "memory.max"),
    ("MemorySwapMax", "memory.swap.max"),
    ("TasksMax", "pids.max"),
];
/// `CPUQuota=`, as systemd shows it.
const CPU_QUOTA: &str = "CPUQuotaPerSecUSec";
/// So many processes are named.
const NAMED_MAX: usize = 8;

/// Looks at the jobs that this rank has, or at one.
///
/// # Errors
/// The module or systemd does not answer, or the instance is somebody else's.
pub(super) fn look(rank: u32, job: Option<JobId>) -> Result<Vec<Finding>, Failure> {
    let mut found = findings(rank, job)?;
    let is_bad = |finding: &Finding| finding.grade == Grade::Bad;
    if found.iter().any(is_bad) {
        // Jobs begin and end in the middle of a look: what is bad is bad in a second one.
        let again = findings(rank, job)?;
        let stays = |it: &Finding| again.iter().any(|more| is_bad(more) && more.check == it.check);
        found.retain(|finding| !is_bad(finding) || stays(finding));
    }
    Ok(found)
}

fn findings(rank: u32, job: Option<JobId>) -> Result<Vec<Finding>, Failure> {
    let stats = stats::of_rank(rank)?;
    stats::owners_alone(&stats)?;
    let mut units = units(&stats);
    units.retain_mut(|unit| {
        // Brokers show ids in more than one form, and equal findings of ranks share a line.
        let Ok(id) = unit.job.parse::<JobId>() else { return false };
        unit.job = id.f58plain();
        job.is_none_or(|job| job == id)
    });
    let mut told = BTreeMap::new();
    if stats["launcher"] == "systemd" && !units.is_empty() {
        let limits = LIMITS.map(|(property, _)| property).join(",");
        let asked = format!("--property=Id,ControlGroup,MainPID,{limits}");
        let names = units.iter().map(|unit| unit.unit.as_str());
        let show = ["--user", "show", &asked, "--"].into_iter().chain(names);
        told = properties(&run("systemctl", &show.collect::<Vec<_>>())?);
    }
    let mut all = processes();
    all.retain(|process| process.state != "Z");
    let (mut found, mut users) = (Vec::new(), BTreeSet::new());
    for unit in &units {
        let told = told.remove(&unit.unit).unwrap_or_default();
        if let Some(group) = told.get("ControlGroup").filter(|group| !group.is_empty()) {
            found.extend(contained(unit, told.get("MainPID"), group, &all));
            let limit = |it: &_| in_force(&unit.job, &told, &directory(group), *it);
            found.extend(LIMITS.iter().filter_map(limit));
            users.extend(all.iter().filter(|it| it.is_within(group)).map(|it| it.user));
        } else if all.iter().any(|it| Some(it.pid) == unit.pid) {
            let what = "is no unit of systemd: nothing holds its processes (method fork)";
            found.push(note(&format!("{} {}", unit.job, unit.stage), what));
        }
    }
    // Scripts run as root, and brokers as the owner.
    users.retain(|user| ![0, getuid().as_raw()].contains(user));
    found.extend(users.iter().flat_map(|user| strangers(*user, &all)));
    if found.is_empty() {
        found.push(good("jobs", "none has a process here"));
    }
    Ok(found)
}

/// Whether the main process of a unit is in it, and all that its processes have started.
fn contained(unit: &Unit, main: Option<&String>, group: &str, all: &[Process]) -> Option<Finding> {
    let (check, name) = (format!("{} {}", unit.job, unit.stage), &unit.unit);
    let by_pid: BTreeMap<u64, &Process> = all.iter().map(|it| (it.pid, it)).collect();
    let is_its = |it: &Process| it.is_within(group) || Some(&it.pid.to_string()) == main;
    let line = |it| successors(Some(it), |it: &&Process| by_pid.get(&it.parent).copied());
    // Pids that were used again cannot make a circle of it.
    let its = all.iter().filter(|it| line(*it).take(all.len()).any(is_its));
    let (inside, left): (Vec<_>, Vec<_>) = its.partition(|it| it.is_within(group));
    let procs = directory(group).join("cgroup.procs");
    if !left.is_empty() {
        let pids = pids(&left, " ");
        let mend = format!("for pid in {pids}; do echo $pid | sudo tee {}; done", procs.display());
        return Some(bad(&check, format!("outside of {name}: {}", list(&left)), mend));
    }
    let hidden = fs::read_to_string(procs).is_ok_and(|pids| !pids.is_empty());
    if inside.is_empty() {
        let found = format!("{name}: /proc does not show its processes (hidepid)");
        return hidden.then(|| note(&check, found));
    }
    Some(good(&check, "all its processes are in its unit"))
}

/// How much, or which CPUs or memory nodes.
#[derive(Debug)]
struct Limit {
    number: f64,
    set: Idset,
}

impl Limit {
    /// A property as systemctl(1) shows it, or a file of a cgroup. None: that says nothing.
    fn read(name: &str, text: &str) -> Option<Self> {
        let number =
            |text: &str| if text == "max" { Some(f64::INFINITY) } else { text.parse().ok() };
        let text = text.trim();
        if name.starts_with("Allowed") || name.starts_with("cpuset.") {
            let set: Idset = text.replace(' ', ",").parse().ok()?;
            return (!set.is_empty()).then_some(Self { number: 0.0, set });
        }
        let number = match (name, text.split_once(' ')) {
            (CPU_QUOTA, _) => span(text)?,
            (_, Some((most, period))) => number(most)? / number(period)?,
            _ => number(text)?,
        };
        Some(Self { number, set: Idset::new() })
    }

    /// It allows more than the other one, and by more than the kernel rounds.
    fn exceeds(&self, other: &Self) -> bool {
        self.number > other.number * 1.01 || !self.set.difference(&other.set).is_empty()
    }

    fn show(&self, property: &str) -> String {
        match self.number {
            _ if !self.set.is_empty() => self.set.to_string(),
            f64::INFINITY => "max".to_string(),
            cpus if property == CPU_QUOTA => format!("{:.0}%", cpus * 100.0),
            bytes if property.starts_with("Memory") => show_size(bytes as u64),
            number => number.to_string(),
        }
    }
}

/// Whether a limit that a unit has holds in its cgroup. None: it has none, or has ended.
fn in_force(
    job: &str,
    told: &BTreeMap<String, String>,
    group: &Path,
    (property, file): (&str, &str),
) -> Option<Finding> {
    let wanted = Limit::read(property, told.get(property)?)?;
    let wanted = Some(wanted).filter(|wanted| wanted.number.is_finite())?;
    let check = format!("{job} {}", property.trim_end_matches("PerSecUSec"));
    let found = format!("wanted {}, in force ", wanted.show(property));
    let read = |group: &Path| Limit::read(file, &fs::read_to_string(group.join(file)).ok()?);
    let Some(own) = read(group) else {
        let controller = file.split('.').next().unwrap_or_default();
        let controllers = fs::read_to_string(group.join("cgroup.controllers")).ok()?;
        if controllers.split_whitespace().any(|it| it == controller) {
            let mend = "# leave it out of sdexec-properties in the table [exec]";
            return Some(bad(&check, format!("{found}none: this kernel has no {file}"), mend));
        }
        let found = format!("{found}none: controller {controller} is not delegated");
        return Some(bad(&check, found, delegate()));
    };
    // A cgroup above it can allow less.
    let least = |a: Limit, b: Limit| if a.exceeds(&b) { b } else { a };
    let least = group.ancestors().filter_map(read).fold(own, least);
    let found = found + &least.show(property);
    if least.exceeds(&wanted) {
        let mend = format!("# find out what else sets {file} in {}", group.display());
        return Some(bad(&check, found, mend));
    }
    Some(if wanted.exceeds(&least) { note(&check, found) } else { good(&check, found) })
}

/// What a job's user runs on this node outside of all units of jobs.
fn strangers(user: u32, all: &[Process]) -> Vec<Finding> {
    let manager = format!("user@{user}.service");
    let has = |it: &Process, is: &dyn Fn(&str) -> bool| it.group().split('/').any(is);
    let is_managed = |it: &Process| has(it, &|part| part == manager);
    let is_login = |part: &str| part.starts_with("session-") && part.ends_with(".scope");
    // The user manager itself, and its bus.
    let basic = ["dbus-broker.service", "dbus.service", "init.scope"];
    let is_basic = |it: &Process| is_managed(it) && has(it, &|part| basic.contains(&part));
    let is_of_job = |it: &Process| has(it, &|part| job_of_unit(part).is_some());
    let others = all
        .iter()
        .filter(|it| it.user == user && !is_basic(it) && (is_managed(it) || !is_of_job(it)));
    let (own, strange): (Vec<_>, Vec<_>) =
        others.partition(|it| is_managed(it) || has(it, &is_login));
    let name = name_of(Uid::from_raw(user));
    let found = |its: &[&Process]| format!("outside of jobs: {}", list(its));
    let look = format!("ps -o pid,ppid,lstart,cgroup,args -p {}", pids(&strange, ","));
    let mend = format!("# find out what has started them: {look}");
    let strange = (!strange.is_empty()).then(|| bad(&name, found(&strange), mend));
    strange.into_iter().chain((!own.is_empty()).then(|| note(&name, found(&own)))).collect()
}

fn pids(all: &[&Process], between: &str) -> String {
    all.iter().map(|it| it.pid.to_string()).collect::<Vec<_>>().join(between)
}

/// How many there are, and of some pid, name and the last part of the cgroup.
fn list(all: &[&Process]) -> String {
    let place = |it: &Process| it.group().rsplit('/').next().unwrap_or_default().to_string();
    let one = |it: &&Process| plain(&format!("{} {} in {}", it.pid, it.name, place(it)));
    let named: Vec<String> = all.iter().take(NAMED_MAX).map(one).collect();
    let more = if all.len() > NAMED_MAX { ", ..." } else { "" };
    let plural = if all.len() == 1 { "" } else { "es" };
    format!("{} process{plural}: {}{more}", all.len(), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pid, parent, user and cgroup.
    fn process((pid, parent, user, group): (u64, u64, u32, &str)) -> Process {
        let (state, name) = ("S".to_string(), format!("p\u{1b}{pid}"));
        Process { pid, parent, user, cgroup: format!("0::{group}"), state, age: 1.0, name }
    }

    const UNIT: &str = "/m/s.slice/shell-3-f8-0123abcd.service";

    fn of_unit(processes: &[(u64, u64, u32, &str)]) -> Option<Finding> {
        let all: Vec<Process> = processes.iter().copied().map(process).collect();
        let unit = Unit {
            job: "f8".to_string(),
            stage: "shell".to_string(),
            unit: "shell-3-f8-0123abcd.service".to_string(),
            pid: Some(10),
        };
        contained(&unit, Some(&"10".to_string()), UNIT, &all)
    }

    #[test]
    fn what_a_unit_has_started_is_in_it_or_named() {
        let below = &format!("{UNIT}/own");
        let sound = [(1, 0, 0, "/"), (10, 1, 5, UNIT), (11, 10, 5, below), (99, 1, 5, "/other")];
        let found = of_unit(&sound).expect("a finding");
        assert_eq!(found, good("f8 shell", "all its processes are in its unit"));

        let left = [(12, 11, 5, "/m/x.scope"), (13, 12, 6, "/m/x.scope")];
        let found = of_unit(&[&sound[..], &left].concat()).expect("a finding");
        let text = "outside of shell-3-f8-0123abcd.service: 2 processes: 12 p\\u{1b}12 in x.scope, \
                    13 p\\u{1b}13 in x.scope";
        assert_eq!((found.grade, found.found.as_str()), (Grade::Bad, text));
        let mend = found.mend.expect("a command");
        assert!(mend.starts_with("for pid in 12 13; do ") && mend.contains(UNIT), "{mend}");

        let main = of_unit(&[(10, 1, 5, "/m/session-2.scope")]).expect("a finding");
        assert!(main.found.contains("1 process: 10 "), "{main:?}");
        assert_eq!(of_unit(&[(11, 1, 5, "/other")]), None, "it has ended");
    }

    /// What is found of these properties in a cgroup with these files, below one with others.
    fn of_limits(properties: &[(&str, &str)], files: &[(&str, &str)]) -> Vec<(Grade, String)> {
        let above = tempfile::tempdir().expect("a directory");
        let group = above.path().join("unit");
        fs::create_dir(&group).expect("a directory");
        fs::write(group.join("cgroup.controllers"), "cpu memory\n").expect("a file");
        for (name, text) in files {
            let file = name.strip_prefix("above/").map(|name| above.path().join(name));
            fs::write(file.unwrap_or_else(|| group.join(name)), text).expect("a file");
        }
        let told = properties.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        let told = told.collect();
        let limits = LIMITS.iter().filter_map(|limit| in_force("f8", &told, &group, *limit));
        limits.map(|it| (it.grade, format!("{} {}", it.check, it.found))).collect()
    }

    #[test]
    fn a_limit_is_in_force_or_the_finding_says_why_not() {
        let one = |property, wanted, file, text| {
            let mut found = of_limits(&[(property, wanted)], &[(file, text)]);
            (found.len() < 2).then(|| found.pop()).expect("one finding at most")
        };
        let good = |text: &str| Some((Grade::Good, text.to_string()));
        let bad = |text: &str| Some((Grade::Bad, text.to_string()));
        for no_limit in ["infinity", "", "[not set]"] {
            assert_eq!(one("MemoryMax", no_limit, "memory.max", "max\n"), None);
        }
        let rounded = one("MemoryMax", "1073745000", "memory.max", "1073741824\n");
        assert_eq!(rounded, good("f8 MemoryMax wanted 1.0G, in force 1.0G"));
        let lost = one("MemoryMax", "1073741824", "memory.max", "max\n");
        assert_eq!(lost, bad("f8 MemoryMax wanted 1.0G, in force max"));
        let quota = one("CPUQuotaPerSecUSec", "1.500000s", "cpu.max", "150000 100000\n");
        assert_eq!(quota, good("f8 CPUQuota wanted 150%, in force 150%"));
        let quota = one("CPUQuotaPerSecUSec", "1min 4s", "cpu.max", "max 100000\n");
        assert_eq!(quota, bad("f8 CPUQuota wanted 6400%, in force max"));
        let cpus = one("AllowedCPUs", "0-1 4", "cpuset.cpus.effective", "0-1,4\n");
        assert_eq!(cpus, good("f8 AllowedCPUs wanted 0-1,4, in force 0-1,4"));
        let cpus = one("AllowedCPUs", "0-1", "cpuset.cpus.effective", "0-127\n");
        assert_eq!(cpus, bad("f8 AllowedCPUs wanted 0-1, in force 0-127"));
        let tasks = one("TasksMax", "400", "cpu.max", "max 100000\n");
        let text = "f8 TasksMax wanted 400, in force none: controller pids is not delegated";
        assert_eq!(tasks, bad(text));
        let swap = one("MemorySwapMax", "0", "memory.max", "max\n");
        let text = "f8 MemorySwapMax wanted 0, in force none: this kernel has no memory.swap.max";
        assert_eq!(swap, bad(text));
    }

    #[test]
    fn a_cgroup_above_that_allows_less_is_noted() {
        let files = [("memory.max", "2097152\n"), ("above/memory.max", "1048576\n")];
        let found = of_limits(&[("MemoryMax", "2097152")], &files);
        let text = "f8 MemoryMax wanted 2.0M, in force 1.0M".to_string();
        assert_eq!(found, [(Grade::Note, text)]);
    }

    #[test]
    fn what_users_run_beside_their_jobs_is_told_apart() {
        const USER: u32 = 987_654;
        let manager = format!("/user.slice/user-{USER}.slice/user@{USER}.service");
        let own = [
            "/m/imp-shell-3-f8-0123abcd.service",
            &format!("{manager}/init.scope"),
            &format!("{manager}/session.slice/dbus.service"),
            // A user can give any name to a unit of the user's own.
            &format!("{manager}/app.slice/shell-3-f9-0123abcd.service"),
            &format!("/user.slice/user-{USER}.slice/session-7.scope"),
        ];
        let mut all: Vec<Process> =
            (1..).zip(own).map(|(pid, group)| process((pid, 0, USER, group))).collect();
        all.push(process((8, 0, USER + 1, "/system.slice/cron.service")));
        let noted = strangers(USER, &all);
        let found = "outside of jobs: 2 processes: 4 p\\u{1b}4 in shell-3-f9-0123abcd.service, \
             5 p\\u{1b}5 in session-7.scope";
        assert_eq!(noted, [note(&USER.to_string(), found)]);
        all.push(process((9, 0, USER, "/system.slice/cron.service")));
        all.push(process((10, 0, USER, "/m/dbus.service")));
        let found = strangers(USER, &all);
        assert_eq!(found[1..], noted);
        let text = "outside of jobs: 2 processes: 9 p\\u{1b}9 in cron.service, 10 p\\u{1b}10 in dbus.service";
        assert_eq!((found[0].grade, found[0].found.as_str()), (Grade::Bad, text));
        assert!(found[0].mend.as_ref().is_some_and(|mend| mend.ends_with("-p 9,10")), "{found:?}");
    }
}

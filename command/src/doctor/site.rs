//! What a node is like. Nothing is judged here.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use job_exec_rs::adapter::host::lingers;
use job_exec_rs::proto::{Idset, InstanceId, UnitName};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::{Uid, User, getuid};
use serde_json::{Value, json};

use super::pam::{self, PamSystemd};
use crate::broker;
use crate::failure::Failure;
use crate::flux_paths::FluxPaths;
use crate::install;
use crate::programs::run;
use crate::stats::{self, units};

/// A node, as its commands and files describe it. Times are seconds, sizes are bytes.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) host: String,
    /// The user that the instance belongs to.
    pub(super) owner: String,
    pub(super) flux: Option<String>,
    pub(super) broker: Result<Broker, String>,
    /// What `install` writes and is not there.
    pub(super) missing: Vec<PathBuf>,
    /// This program, if the module is beside it: then it can install that.
    pub(super) installer: Option<PathBuf>,
    /// Controllers that the owner's user manager has. None: there is no cgroup2.
    pub(super) controllers: Option<Vec<String>>,
    /// Its cgroup2 file system is mounted with this option.
    pub(super) favordynmods: bool,
    /// systemd's version, or why the owner's user manager does not say it.
    pub(super) systemd: Result<String, String>,
    /// Whether a unit could be started. None: there is no user manager to ask.
    pub(super) unit: Option<Result<(), String>>,
    pub(super) lingers: Option<bool>,
    /// `flux.service`, if there is such a unit.
    pub(super) service: Option<Service>,
    pub(super) imp: Option<Imp>,
    pub(super) records: Option<Records>,
    /// Units of jobs that the module of this rank does not know.
    pub(super) strange_units: Vec<String>,
    /// Units whose records it does not know.
    pub(super) strange_records: Vec<String>,
}

/// How systemd runs a broker.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// How long it waits before it starts it again.
    pub(super) restart_sec: Option<f64>,
    /// Its run directory stays when it stops.
    pub(super) keeps_run_directory: bool,
}

/// What the broker says.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    pub(super) rank: u32,
    pub(super) size: u32,
    /// The instance was booted by configuration, as a site's, and is not part of a job.
    pub(super) is_system: bool,
    /// The instance is, or is inside, a job: its shells are children of brokers.
    pub(super) is_job: bool,
    /// Modules of this rank, if it says which.
    pub(super) modules: Option<BTreeSet<String>>,
    /// Modules of rank 0, if it says which.
    pub(super) modules_0: Option<BTreeSet<String>>,
    /// `perilog.so` is loaded.
    pub(super) has_perilog: bool,
    /// The statistics of the module, or why there are none.
    pub(super) stats: Result<Value, String>,
}

#[derive(Clone, Debug)]
pub(super) struct Imp {
    pub(super) path: String,
    /// It is root's, and has the setuid bit.
    pub(super) is_setuid: bool,
    /// In the PAM stack of the service `flux`.
    pub(super) pam_systemd: Option<PamSystemd>,
}

#[derive(Clone, Debug)]
pub(super) struct Records {
    pub(super) directory: String,
    pub(super) is_in_memory: bool,
    pub(super) free: u64,
}

/// This node's broker, or why there is none.
///
/// # Errors
/// The instance is somebody else's.
pub(super) fn broker() -> Result<Result<Broker, String>, Failure> {
    let here = match broker::Broker::ask() {
        Ok(here) => here,
        Err(Failure(why)) => return Ok(Err(why)),
    };
    let owner = here.owner.map_or(getuid(), Uid::from_raw);
    if owner != getuid() {
        let owner = name_of(owner);
        let why = format!("the instance is {owner}'s: sudo -u {owner} job-exec-rs doctor");
        return Err(Failure(why));
    }
    Ok(Ok(Broker::look(&here)))
}

impl Site {
    pub(super) fn look(broker: Result<Broker, String>) -> Self {
        let owner = name_of(getuid());
        let stats = broker.as_ref().ok().and_then(|broker| broker.stats.as_ref().ok());
        let records = stats.and_then(records);
        let version = user_systemctl(&["show", "--value", "--property=Version"]);
        let has_manager = version.is_ok();
        let strange = |listed: &dyn Fn(&str) -> Vec<String>| match (&broker, &records) {
            (Ok(broker), Some(records)) => leftovers(broker.rank, &records.directory, listed),
            _ => Vec::new(),
        };
        let strange_units = if has_manager { strange(&|_| running_units()) } else { Vec::new() };
        let strange_records = strange(&old_records);
        Self {
            host: host(),
            // Where a broker is named, flux-version(1) fails without it.
            flux: run("env", &["-u", "FLUX_URI", "flux", "version"]).ok().and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("commands:"))?;
                Some(line.split_whitespace().nth(1)?.to_string())
            }),
            missing: missing(),
            installer: installer(),
            controllers: controllers(has_manager),
            favordynmods: favordynmods(),
            unit: has_manager.then(start_unit),
            systemd: version.map(|text| text.trim().to_string()),
            lingers: lingers(&owner),
            service: service(),
            imp: stats.and_then(imp),
            records,
            strange_units,
            strange_records,
            owner,
            broker,
        }
    }

    pub(super) fn rank(&self) -> Option<u32> {
        self.broker.as_ref().ok().map(|broker| broker.rank)
    }
}

impl Broker {
    /// A broker that hangs is asked no more than once.
    fn look(here: &broker::Broker) -> Self {
        let of = format!("rank {}: ", here.rank);
        let stats = stats::of_rank(here.rank)
            .map_err(|Failure(why)| why.strip_prefix(&of).unwrap_or(&why).to_string());
        let notice = stats.as_ref().ok().and_then(|stats| stats["notice"].as_str());
        // flux-core and other resource managers, as the module says it.
        let is_inside = notice.is_some_and(|notice| notice.contains("inside job "));
        let plugin = json!({ "name": "perilog.so" }).to_string();
        let modules_0 = modules(0);
        Self {
            rank: here.rank,
            size: here.size,
            is_system: here.is_configured && !here.is_job,
            is_job: here.is_job || is_inside,
            modules: modules(here.rank),
            has_perilog: modules_0.is_some()
                && broker::ask(0, "job-manager.jobtap-query", &plugin).is_ok(),
            modules_0,
            stats,
        }
    }

    /// All ranks of the instance.
    pub(super) fn ranks(&self) -> Idset {
        Idset::from_range(0..self.size)
    }
}

pub(super) fn host() -> String {
    let name = nix::sys::utsname::uname();
    name.map_or_else(|_| "?".into(), |name| name.nodename().to_string_lossy().into())
}

/// Names of a rank's broker modules, if it says them.
fn modules(rank: u32) -> Option<BTreeSet<String>> {
    let text = broker::ask(rank, "module.list", "{}").ok()?;
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    let mods = list["mods"].as_array().into_iter().flatten();
    Some(mods.filter_map(|module| Some(module["name"].as_str()?.to_string())).collect())
}

pub(super) fn name_of(user: Uid) -> String {
    User::from_uid(user).ok().flatten().map_or_else(|| user.to_string(), |user| user.name)
}

fn user_systemctl(arguments: &[&str]) -> Result<String, String> {
    said("systemctl", &[&["--user"], arguments].concat())
}

fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    run(program, arguments).map_err(|Failure(why)| why)
}

fn start_unit() -> Result<(), String> {
    let unit = format!("--unit=job-exec-rs-doctor-{}", std::process::id());
    said("systemd-run", &["--user", "--wait", "--collect", "--quiet", &unit, "true"]).map(drop)
}

/// Names of units that could be a job's.
fn running_units() -> Vec<String> {
    let list = ["list-units", "--plain", "--no-legend", "*shell-*", "*log-*"];
    let units = user_systemctl(&list).unwrap_or_default();
    units.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_string())).collect()
}

/// Between two looks. A unit that has just ended is gone by then, and a module that has just been
/// loaded knows its shells.
const PAUSE: Duration = Duration::from_secs(2);

/// What is listed, with the directory of records, and the module of this rank does not have.
fn leftovers(rank: u32, directory: &str, listed: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let instance = InstanceId::new(directory, getuid().as_raw());
    strange_twice(
        || listed(directory),
        || {
            let known = units(&stats::of_rank(rank).ok()?);
            Some(known.into_iter().map(|unit| unit.unit).collect())
        },
        |listed, known| strange(listed, (rank, &instance), known),
        // Nothing says when a unit that ends is gone, or that a module knows all its shells.
        || thread::sleep(PAUSE),
    )
}

/// What is strange in two looks. Jobs begin and end meanwhile. So each look lists first and asks then:
/// what began in between is known. What ended in between is not listed again.
fn strange_twice(
    mut list: impl FnMut() -> Vec<String>,
    mut ask: impl FnMut() -> Option<BTreeSet<String>>,
    strange: impl Fn(&[String], &BTreeSet<String>) -> Vec<String>,
    pause: impl FnOnce(),
) -> Vec<String> {
    let mut look = || {
        let listed = list();
        ask().map_or_else(Vec::new, |known| strange(&listed, &known))
    };
    let mut first = look();
    if !first.is_empty() {
        pause();
        let second = look();
        first.retain(|name| second.contains(name));
    }
    first
}

/// Units of this instance and rank that the module of this rank does not have.
fn strange(names: &[String], of: (u32, &InstanceId), known: &BTreeSet<String>) -> Vec<String> {
    let is_ours = |name: &&String| {
        let unit = name.parse::<UnitName>();
        unit.is_ok_and(|unit| (unit.rank().0, unit.instance()) == of)
    };
    names.iter().filter(is_ours).filter(|name| !known.contains(*name)).cloned().collect()
}

/// The module keeps the record of a job until a checkpoint covers its end, so a young one is no
/// stranger.
const YOUNG: u64 = 60;

/// Names of units that have records which are not young.
fn old_records(directory: &str) -> Vec<String> {
    let old = |path: &Path| {
        let age = fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()?;
        Some(age.as_secs() > YOUNG)
    };
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|is| is == "record"))
        .filter(|path| old(path).unwrap_or(false))
        .filter_map(|path| Some(format!("{}.service", path.file_stem()?.to_str()?)))
        .collect()
}

fn records(stats: &Value) -> Option<Records> {
    let directory = stats["records"].as_str().filter(|path| !path.is_empty())?;
    let found = statfs(directory).ok();
    Some(Records {
        directory: directory.to_string(),
        is_in_memory: found.is_some_and(|found| found.filesystem_type() == TMPFS_MAGIC),
        free: found.map_or(u64::MAX, |found| {
            found.blocks_available().saturating_mul(u64::try_from(found.block_size()).unwrap_or(1))
        }),
    })
}

/// Files of an installation that are not there.
fn missing() -> Vec<PathBuf> {
    let Ok(paths) = FluxPaths::find(None) else { return Vec::new() };
    install::paths(&paths).into_iter().filter(|path| !path.exists()).collect()
}

/// The module, as cargo builds it.
const LIBRARY: &str = "libjob_exec_rs.so";

fn installer() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.with_file_name(LIBRARY).exists().then_some(program)
}

/// Those that the owner's user manager has (systemd.resource-control(5), `Delegate=`).
fn controllers(has_manager: bool) -> Option<Vec<String>> {
    let root = Path::new("/sys/fs/cgroup");
    if !root.join("cgroup.controllers").exists() {
        return None;
    }
    if !has_manager {
        return Some(Vec::new());
    }
    let group = user_systemctl(&["show", "--value", "--property=ControlGroup"]).unwrap_or_default();
    let file = root.join(group.trim_start_matches('/')).join("cgroup.controllers");
    let own = fs::read_to_string(file).unwrap_or_default();
    Some(own.split_whitespace().map(str::to_string).collect())
}

fn favordynmods() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut cgroups = mounts.lines().filter(|line| line.contains(" /sys/fs/cgroup cgroup2 "));
    cgroups.any(|line| line.split([' ', ',']).any(|option| option == "favordynmods"))
}

fn service() -> Option<Service> {
    let names = ["LoadState", "RestartUSec", "RuntimeDirectory", "RuntimeDirectoryPreserve"];
    let show = ["show", "flux.service", &format!("--property={}", names.join(","))];
    let text = run("systemctl", &show).ok()?;
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    (value("LoadState") == "loaded").then(|| Service {
        restart_sec: span(value("RestartUSec")),
        keeps_run_directory: value("RuntimeDirectory").is_empty()
            || value("RuntimeDirectoryPreserve") == "yes",
    })
}

/// A time span as systemctl(1) shows it: `1min 30s`.
pub(super) fn span(text: &str) -> Option<f64> {
    let units = [("min", 60.0), ("ms", 0.001), ("us", 1e-6), ("h", 3600.0), ("s", 1.0)];
    text.split_whitespace().try_fold(0.0, |sum, part| {
        let (unit, factor) = units.iter().find(|(unit, _)| part.ends_with(unit))?;
        Some(sum + part.strip_suffix(unit)?.parse::<f64>().ok()? * factor)
    })
}

fn imp(stats: &Value) -> Option<Imp> {
    let path = stats["config"]["flux_imp_path"].as_str().filter(|path| !path.is_empty())?;
    let path = path.to_string();
    let is_setuid = fs::metadata(&path)
        .is_ok_and(|found| found.uid() == 0 && found.mode() & libc::S_ISUID != 0);
    Some(Imp { path, is_setuid, pam_systemd: pam::find(&pam::DIRECTORIES.map(Path::new), "flux") })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn time_spans_are_read_as_systemctl_shows_them() {
        assert_eq!(span("30s"), Some(30.0));
        assert_eq!(span("1min 30s"), Some(90.0));
        assert_eq!(span("100ms"), Some(0.1));
        assert_eq!(span("infinity"), None);
    }

    #[test]
    fn only_units_of_this_rank_that_nobody_knows_are_strange() {
        let instance = InstanceId::new("/var/lib/flux/job-exec", 1000);
        let unit = |rank: u32, job: &str| format!("shell-{rank}-{job}-{instance}.service");
        let known = [unit(1, "f2")].into();
        let names = [unit(1, "f2"), unit(1, "f3"), unit(2, "f4"), "dbus.service".to_string()];
        let found = strange(&names, (1, &instance), &known);
        assert_eq!(found, [unit(1, "f3")]);
    }

    /// Each question takes a while, in which a job begins and another one ends.
    #[derive(Default)]
    struct Storm {
        running: BTreeSet<String>,
        begun: u32,
    }

    impl Storm {
        fn now(&mut self) -> BTreeSet<String> {
            let now = self.running.clone();
            self.begun += 1;
            self.running.insert(format!("f{}", self.begun));
            self.running.remove(&format!("f{}", self.begun.saturating_sub(2)));
            now
        }
    }

    #[test]
    fn jobs_that_begin_and_end_meanwhile_leave_nothing_behind() {
        let storm = RefCell::new(Storm::default());
        let left = |stranger: Option<&str>| {
            strange_twice(
                || storm.borrow_mut().now().into_iter().chain(stranger.map(Into::into)).collect(),
                || Some(storm.borrow_mut().now()),
                |listed, known| {
                    listed.iter().filter(|name| !known.contains(*name)).cloned().collect()
                },
                || (),
            )
        };
        for _ in 0..50 {
            assert_eq!(left(None), Vec::<String>::new());
        }
        assert_eq!(left(Some("stranger")), ["stranger"]);
    }
}

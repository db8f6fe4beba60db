//! What a node is like. Nothing is judged here.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use job_exec_rs::adapter::host::lingers;
use job_exec_rs::adapter::libflux::Handle;
use job_exec_rs::proto::{InstanceId, UnitName};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::{Uid, User, getuid};
use serde_json::{Value, json};

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
    /// Controllers that the owner's user manager has. None: there is no cgroup2.
    pub(super) controllers: Option<Vec<String>>,
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
    pub(super) modules: BTreeSet<String>,
    /// Modules of rank 0.
    pub(super) modules_0: BTreeSet<String>,
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
    /// The PAM stack of the service `flux`.
    pub(super) pam: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Records {
    pub(super) directory: String,
    pub(super) is_in_memory: bool,
    pub(super) free: u64,
    /// Of jobs that the module does not know.
    pub(super) strange: Vec<String>,
}

/// This node's broker, or why there is none.
///
/// # Errors
/// The instance is somebody else's.
pub(super) fn broker() -> Result<Result<Broker, String>, Failure> {
    match Broker::ask() {
        Ok((_, owner)) if owner != getuid() => {
            let owner = name_of(owner);
            Err(Failure(format!(
                "the instance is {owner}'s: sudo -u {owner} flux job-exec-rs doctor"
            )))
        }
        answer => Ok(answer.map(|(broker, _)| broker)),
    }
}

impl Site {
    pub(super) fn look(broker: Result<Broker, String>) -> Self {
        let owner = name_of(getuid());
        let rank = broker.as_ref().ok().map(|broker| broker.rank);
        let stats = broker.as_ref().ok().and_then(|broker| broker.stats.as_ref().ok());
        let known: BTreeSet<String> =
            stats.map(units).into_iter().flatten().map(|unit| unit.unit).collect();
        let units = user_systemctl(&["list-units", "--plain", "--no-legend", "*shell-*", "*log-*"]);
        let units = units.unwrap_or_default();
        let records = stats.and_then(|stats| records(rank?, stats, &known));
        let strange_units = records.as_ref().zip(rank).map_or_else(Vec::new, |(records, rank)| {
            let instance = InstanceId::new(&records.directory, getuid().as_raw());
            strange(units.split_whitespace(), (rank, &instance), &known)
        });
        let version = user_systemctl(&["show", "--value", "--property=Version"]);
        Self {
            host: nix::sys::utsname::uname()
                .map_or_else(|_| "?".into(), |name| name.nodename().to_string_lossy().into()),
            // Where a broker is named, flux-version(1) fails without it.
            flux: run("env", &["-u", "FLUX_URI", "flux", "version"]).ok().and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("commands:"))?;
                Some(line.split_whitespace().nth(1)?.to_string())
            }),
            missing: missing(),
            controllers: controllers(),
            unit: version.is_ok().then(start_unit),
            systemd: version.map(|text| text.trim().to_string()),
            lingers: lingers(&owner),
            service: service(),
            imp: stats.and_then(imp),
            records,
            strange_units,
            owner,
            broker,
        }
    }

    pub(super) fn rank(&self) -> Option<u32> {
        self.broker.as_ref().ok().map(|broker| broker.rank)
    }
}

impl Broker {
    /// It, and whose it is.
    fn ask() -> Result<(Self, Uid), String> {
        let flux = Handle::connect().map_err(|error| error.to_string())?;
        let rank = flux.rank().map_err(|error| error.to_string())?;
        let number = |name| flux.attribute(name)?.parse::<u32>().ok();
        let owner = number("security.owner").map_or(getuid(), Uid::from_raw);
        let is_job = flux.attribute("jobid").is_some_and(|id| !id.is_empty());
        let configured = flux.attribute("broker.boot-method").is_some_and(|how| how == "config");
        let plugin = json!({ "name": "perilog.so" }).to_string();
        let broker = Self {
            rank,
            size: number("size").unwrap_or(1),
            is_system: configured && !is_job,
            modules: modules(flux, rank),
            modules_0: modules(flux, 0),
            has_perilog: flux.ask_rank(0, "job-manager.jobtap-query", &plugin).is_ok(),
            stats: stats::of_rank(flux, rank).map_err(|Failure(why)| why),
        };
        Ok((broker, owner))
    }
}

/// Names of a rank's broker modules.
fn modules(flux: Handle, rank: u32) -> BTreeSet<String> {
    let text = flux.ask_rank(rank, "module.list", "{}").unwrap_or_default();
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    let mods = list["mods"].as_array().into_iter().flatten();
    mods.filter_map(|module| Some(module["name"].as_str()?.to_string())).collect()
}

fn name_of(user: Uid) -> String {
    User::from_uid(user).ok().flatten().map_or_else(|| user.to_string(), |user| user.name)
}

/// A user manager that hangs is given up after 30 s.
fn user_systemctl(arguments: &[&str]) -> Result<String, String> {
    said("timeout", &[&["30", "systemctl", "--user"], arguments].concat())
}

fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    run(program, arguments).map_err(|Failure(why)| why)
}

fn start_unit() -> Result<(), String> {
    let unit = format!("--unit=job-exec-rs-doctor-{}", std::process::id());
    let start = ["30", "systemd-run", "--user", "--wait", "--collect", "--quiet", &unit, "true"];
    said("timeout", &start).map(drop)
}

/// Units of this instance and rank that the module of this rank does not have.
fn strange<'a>(
    names: impl Iterator<Item = &'a str>,
    of: (u32, &InstanceId),
    known: &BTreeSet<String>,
) -> Vec<String> {
    let is_ours = |name: &&str| {
        let unit = name.parse::<UnitName>();
        unit.is_ok_and(|unit| (unit.rank().0, unit.instance()) == of)
    };
    names.filter(is_ours).filter(|name| !known.contains(*name)).map(str::to_string).collect()
}

/// The module keeps the record of a job until a checkpoint covers its end, so a young one is no
/// stranger.
const YOUNG: u64 = 60;

fn records(rank: u32, stats: &Value, known: &BTreeSet<String>) -> Option<Records> {
    let directory = stats["records"].as_str().filter(|path| !path.is_empty())?;
    let instance = InstanceId::new(directory, getuid().as_raw());
    let found = statfs(directory).ok();
    let old = |path: &Path| {
        let age = fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()?;
        Some(age.as_secs() > YOUNG)
    };
    let names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|is| is == "record"))
        .filter(|path| old(path).unwrap_or(false))
        .filter_map(|path| Some(format!("{}.service", path.file_stem()?.to_str()?)))
        .collect();
    Some(Records {
        directory: directory.to_string(),
        is_in_memory: found.is_some_and(|found| found.filesystem_type() == TMPFS_MAGIC),
        free: found.map_or(u64::MAX, |found| {
            found.blocks_available().saturating_mul(u64::try_from(found.block_size()).unwrap_or(1))
        }),
        strange: strange(names.iter().map(String::as_str), (rank, &instance), known),
    })
}

/// Files of an installation that are not there.
fn missing() -> Vec<PathBuf> {
    let Ok(paths) = FluxPaths::find(None) else { return Vec::new() };
    install::paths(&paths).into_iter().filter(|path| !path.exists()).collect()
}

/// Those that the owner's user manager has (systemd.resource-control(5), `Delegate=`).
fn controllers() -> Option<Vec<String>> {
    let root = Path::new("/sys/fs/cgroup");
    if !root.join("cgroup.controllers").exists() {
        return None;
    }
    let group = user_systemctl(&["show", "--value", "--property=ControlGroup"]).unwrap_or_default();
    let file = root.join(group.trim_start_matches('/')).join("cgroup.controllers");
    let own = fs::read_to_string(file).unwrap_or_default();
    Some(own.split_whitespace().map(str::to_string).collect())
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
fn span(text: &str) -> Option<f64> {
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
    Some(Imp { path, is_setuid, pam: fs::read_to_string("/etc/pam.d/flux").ok() })
}

#[cfg(test)]
mod tests {
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
        let found = strange(names.iter().map(String::as_str), (1, &instance), &known);
        assert_eq!(found, [unit(1, "f3")]);
    }
}

//! What follows from what a node is like.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::site::{Broker, Imp, Records, Service, Site};

/// Releases of flux-core that this release was tried with (README.md).
const TRIED: [&str; 2] = ["0.88.", "0.89."];
/// Room for records and output below which a node is short of it.
const ROOM: u64 = 1 << 30;
/// systemd.service(5): `OOMPolicy=`.
const SYSTEMD_MIN: u32 = 243;
/// What flux-shell waits at least, with the file that `install` puts into its `lua.d`.
const EXIT_TIMEOUT: f64 = 150.0;
/// What a broker needs to come up.
const BOOT: f64 = 20.0;

/// How something is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Grade {
    Good,
    /// It is as somebody may want it.
    Note,
    Bad,
}

impl Grade {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Bad => "BAD",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) check: String,
    pub(super) grade: Grade,
    pub(super) found: String,
    /// A command, or a line of configuration.
    pub(super) mend: Option<String>,
}

fn good(check: &str, found: impl Into<String>) -> Finding {
    Finding { check: check.into(), grade: Grade::Good, found: found.into(), mend: None }
}

fn note(check: &str, found: impl Into<String>) -> Finding {
    Finding { grade: Grade::Note, ..good(check, found) }
}

fn bad(check: &str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding { grade: Grade::Bad, mend: Some(mend.into()), ..good(check, found) }
}

/// A rank that has not told what it found.
pub(super) fn silent(rank: u32, why: &str) -> Finding {
    let mend = format!("flux exec -r {rank} flux job-exec-rs doctor");
    bad("answer", format!("rank {rank} says nothing: {why}"), mend)
}

/// Everything that was looked at, the most basic first.
pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let mut all = vec![flux(site), files(site)];
    all.extend(cgroups(site));
    all.push(user_manager(site));
    all.extend(site.unit.as_ref().map(unit));
    let broker = match &site.broker {
        Ok(broker) => broker,
        Err(why) => {
            all.push(bad("broker", why, "systemctl start flux"));
            return all;
        }
    };
    if broker.is_system {
        all.push(linger(site));
        all.extend(site.service.iter().flat_map(service));
    }
    all.push(backing_store(broker));
    let stats = match &broker.stats {
        Ok(stats) => stats,
        Err(why) => {
            let found = format!("job-exec-rs is not loaded on rank {}: {why}", broker.rank);
            all.push(bad("module", found, "systemctl restart flux"));
            return all;
        }
    };
    all.extend([module(stats), launcher(stats), connector(stats), stop(broker, stats)]);
    all.push(waits(stats));
    all.extend(site.records.as_ref().map(|records| place(broker, records)));
    all.extend(site.records.as_ref().map(room));
    all.push(strangers(site));
    all.extend(imp(site.imp.as_ref()));
    all.extend(perilog(broker, stats));
    all.extend(modules(broker, stats));
    all
}

fn flux(site: &Site) -> Finding {
    match &site.flux {
        Some(version) if TRIED.iter().any(|tried| version.starts_with(tried)) => {
            good("flux-core", version)
        }
        Some(version) => note("flux-core", format!("{version}: tried with {}x", TRIED.join("x, "))),
        None => bad("flux-core", "no command flux", "export PATH=PREFIX/bin:$PATH"),
    }
}

fn files(site: &Site) -> Finding {
    match site.missing.as_slice() {
        [] => good("installation", "complete"),
        [first, rest @ ..] => {
            let more =
                if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let found = format!("{} is missing{more}", first.display());
            bad("installation", found, "job-exec-rs install")
        }
    }
}

fn cgroups(site: &Site) -> Vec<Finding> {
    let Some(controllers) = &site.controllers else {
        let mend = "boot with systemd.unified_cgroup_hierarchy=1";
        return vec![bad("cgroup", "/sys/fs/cgroup is no cgroup2", mend)];
    };
    let broker = site.broker.as_ref().ok().and_then(|broker| broker.stats.as_ref().ok());
    let confines = broker.is_some_and(|stats| stats["config"]["sdexec_constrain_resources"] == 1);
    let has = |name: &str| controllers.iter().any(|controller| controller == name);
    let mut wanted = vec!["memory", "pids"];
    wanted.extend(confines.then_some("cpuset"));
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        return vec![good("cgroup", format!("delegated: {}", controllers.join(" ")))];
    }
    let found = format!("not delegated to {}'s user manager: {}", site.owner, missing.join(" "));
    let mend = format!(
        "Delegate=cpu cpuset io memory pids in a drop-in of user@{}.service",
        nix::unistd::getuid()
    );
    let finding = if confines { bad("cgroup", found, mend) } else { note("cgroup", found) };
    vec![finding]
}

fn user_manager(site: &Site) -> Finding {
    let mend = format!("systemctl start user@$(id -u {}).service", site.owner);
    let version = match &site.systemd {
        Ok(version) => version,
        Err(why) => return bad("user manager", format!("does not answer: {why}"), mend),
    };
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    match digits.parse::<u32>() {
        Ok(number) if number < SYSTEMD_MIN => {
            let found = format!("systemd {version} is too old");
            bad("user manager", found, format!("install systemd {SYSTEMD_MIN} or later"))
        }
        _ => good("user manager", format!("systemd {version}")),
    }
}

fn unit(started: &Result<(), String>) -> Finding {
    match started {
        Ok(()) => good("unit", "one can be started"),
        Err(why) => bad("unit", format!("none can be started: {why}"), "systemctl --user status"),
    }
}

fn linger(site: &Site) -> Finding {
    let owner = &site.owner;
    match site.lingers {
        Some(true) => good("linger", format!("{owner}'s units live without a login")),
        Some(false) => {
            let found = format!("jobs end when {owner} has no login any more");
            bad("linger", found, format!("loginctl enable-linger {owner}"))
        }
        None => note("linger", "no systemd-logind: nobody can say whether units live on"),
    }
}

fn service(service: &Service) -> Vec<Finding> {
    let mut all: Vec<Finding> = service.restart_sec.map(restart).into_iter().collect();
    all.push(if service.keeps_run_directory {
        good("run directory", "stays when flux.service stops")
    } else {
        let found = "goes when flux.service stops, with the FLUX_JOB_TMPDIR of the owner's jobs";
        let mend = "RuntimeDirectoryPreserve=yes in a drop-in of flux.service";
        bad("run directory", found, mend)
    });
    all
}

fn restart(pause: f64) -> Finding {
    if pause + BOOT > EXIT_TIMEOUT {
        let found = format!(
            "flux.service is started again after {pause} s, and flux-shell gives other ranks up \
             after {EXIT_TIMEOUT} s"
        );
        bad("restart", found, "RestartSec=30s in a drop-in of flux.service")
    } else {
        good("restart", format!("flux.service is started again after {pause} s"))
    }
}

/// Without one, a restart of rank 0 forgets all jobs.
fn backing_store(broker: &Broker) -> Finding {
    let store = ["content-sqlite", "content-files", "content-s3"]
        .into_iter()
        .find(|name| broker.modules_0.contains(*name));
    match store {
        Some(store @ "content-sqlite") => good("KVS", store),
        Some(store) => {
            note("KVS", format!("{store}: what it holds may be lost with rank 0's power"))
        }
        None => {
            let found = "no backing store: a restart of rank 0's broker forgets all jobs";
            bad("KVS", found, "flux module load content-sqlite")
        }
    }
}

fn module(stats: &Value) -> Finding {
    let loaded = stats["release"].as_str().unwrap_or("an earlier release");
    let this = env!("CARGO_PKG_VERSION");
    if loaded == this {
        return good("module", format!("job-exec-rs {loaded}"));
    }
    let found = format!("job-exec-rs {loaded} is loaded, and {this} is installed");
    bad("module", found, "flux module reload job-exec-rs")
}

/// Ranks with different releases wait for each other.
pub(super) fn compare_releases(reports: &mut dyn Iterator<Item = &mut Vec<Finding>>) {
    // A rank without the module has a finding of its own.
    let is_module =
        |finding: &&Finding| finding.check == "module" && !finding.found.contains("is not loaded");
    let mut reports: Vec<_> = reports.collect();
    let found: BTreeSet<String> = reports
        .iter()
        .filter_map(|findings| findings.iter().find(is_module))
        .map(|finding| finding.found.clone())
        .collect();
    if found.len() < 2 {
        return;
    }
    let found: Vec<String> = found.into_iter().collect();
    let found = format!("ranks differ: {}", found.join("; "));
    if let Some(first) = reports.first_mut() {
        first.push(bad("releases", found, "flux exec -r all flux module reload job-exec-rs"));
    }
}

fn launcher(stats: &Value) -> Finding {
    match (stats["launcher"].as_str(), stats["notice"].as_str()) {
        (Some("systemd"), _) => good("shells", "are units of systemd"),
        (launcher, notice) => {
            let launcher = launcher.unwrap_or("nothing");
            let found = format!("{launcher}: {}", notice.unwrap_or("exec.method is fork"));
            bad("shells", found, "exec.method = \"systemd\", and what \"user manager\" says")
        }
    }
}

fn connector(stats: &Value) -> Finding {
    match stats["connector-notice"].as_str() {
        None => good("connector", "shells wait for their broker"),
        Some(why) => bad("connector", format!("shells end with it: {why}"), "job-exec-rs install"),
    }
}

fn stop(broker: &Broker, stats: &Value) -> Finding {
    match (stats["keeps-jobs"] == true, broker.is_system) {
        (true, _) => good("stop", "a stop of Flux leaves jobs running"),
        (false, false) => note("stop", "a stop of this instance cancels its jobs"),
        (false, true) => {
            bad("stop", "a stop of Flux cancels all jobs", "exec.keep-jobs = true, and restart")
        }
    }
}

fn waits(stats: &Value) -> Finding {
    match stats["waits-for"].as_str() {
        None => good("systemd", "answers the module"),
        Some(what) => {
            let found = format!("has not answered the module: {what}");
            bad("systemd", found, "systemctl restart user@UID.service, if it hangs")
        }
    }
}

fn place(broker: &Broker, records: &Records) -> Finding {
    let directory = &records.directory;
    let mend = "exec.state-directory = \"/var/lib/flux\"";
    if records.is_in_memory && broker.is_system {
        let found = format!("{directory} is in memory: a reboot loses what ended meanwhile");
        return bad("records", found, mend);
    }
    if directory.starts_with("/run/") && broker.is_system {
        let found = format!("{directory} goes when the service stops");
        return bad("records", found, mend);
    }
    good("records", directory)
}

fn room(records: &Records) -> Finding {
    let mib = records.free >> 20;
    if records.free < ROOM {
        let found = format!("{mib} MiB are free in {}", records.directory);
        return bad("room", found, "make room: a full disk loses output, and can lose statuses");
    }
    good("room", format!("{mib} MiB are free"))
}

fn strangers(site: &Site) -> Finding {
    let records = site.records.iter().flat_map(|records| &records.strange);
    let all: BTreeSet<&String> = site.strange_units.iter().chain(records).collect();
    match all.first() {
        None => good("leftovers", "none"),
        Some(first) => {
            let found = format!("{} units or records that no job has: {first}", all.len());
            bad("leftovers", found, format!("systemctl --user stop {first}"))
        }
    }
}

fn imp(imp: Option<&Imp>) -> Vec<Finding> {
    let Some(imp) = imp else {
        return vec![note("IMP", "exec.imp is not set: jobs of other users are refused")];
    };
    let mut all = Vec::new();
    if imp.is_setuid {
        all.push(good("IMP", &imp.path));
    } else {
        let found = format!("{} is not root's, or not setuid", imp.path);
        all.push(bad("IMP", found, format!("chown root {0}; chmod 4755 {0}", imp.path)));
    }
    let moves = |line: &str| !line.trim_start().starts_with('#') && line.contains("pam_systemd");
    if imp.pam.as_deref().is_some_and(|pam| pam.lines().any(moves)) {
        let found = "pam_systemd in /etc/pam.d/flux moves jobs of other users out of their units";
        all.push(bad("PAM", found, "remove pam_systemd.so from /etc/pam.d/flux"));
    }
    all
}

fn perilog(broker: &Broker, stats: &Value) -> Option<Finding> {
    let ours = !stats["config"]["perilog"].is_null();
    match (ours, broker.has_perilog) {
        (true, true) => {
            let found = "perilog.so is loaded as well: each prolog runs twice";
            Some(bad("prologs", found, "flux jobtap remove perilog.so"))
        }
        (true, false) => Some(good("prologs", "are run by job-exec-rs")),
        (false, true) => Some(note("prologs", "are run by perilog.so, from rank 0")),
        (false, false) => None,
    }
}

/// Modules of flux-core that others need.
fn modules(broker: &Broker, stats: &Value) -> Vec<Finding> {
    let mut all = Vec::new();
    let properties = &stats["config"]["sdexec_properties"];
    let devices = ["DevicePolicy", "DeviceAllow"].iter().any(|name| !properties[*name].is_null());
    if devices && !broker.modules.contains("sdbus") {
        let found = "DevicePolicy and DeviceAllow need flux-core's sdbus for jobs of other users";
        all.push(bad("sdbus", found, "systemd.enable = true"));
    }
    let confines = stats["config"]["sdexec_constrain_resources"] == 1;
    if confines && !broker.modules.contains("sdexec-mapper") {
        let found = "sdexec-constrain-resources needs flux-core's sdexec-mapper";
        all.push(bad("sdexec-mapper", found, "systemd.enable = true"));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    fn fit() -> Site {
        let stats = json!({
            "release": env!("CARGO_PKG_VERSION"), "launcher": "systemd", "notice": null,
            "connector-notice": null, "keeps-jobs": true, "waits-for": null,
            "config": { "sdexec_constrain_resources": 0, "sdexec_properties": {} },
        });
        let modules: BTreeSet<String> = ["content-sqlite".to_string()].into();
        Site {
            host: "n1".into(),
            owner: "flux".into(),
            flux: Some("0.88.0".into()),
            broker: Ok(Broker {
                rank: 1,
                size: 3,
                is_system: true,
                modules: modules.clone(),
                modules_0: modules,
                has_perilog: false,
                stats: Ok(stats),
            }),
            missing: Vec::new(),
            controllers: Some(["cpu", "memory", "pids"].map(String::from).to_vec()),
            systemd: Ok("252.39-1~deb12u2".into()),
            unit: Some(Ok(())),
            lingers: Some(true),
            service: Some(Service { restart_sec: Some(30.0), keeps_run_directory: true }),
            imp: Some(Imp { path: "/imp".into(), is_setuid: true, pam: None }),
            records: Some(Records {
                directory: "/var/lib/flux/job-exec".into(),
                is_in_memory: false,
                free: 1 << 40,
                strange: Vec::new(),
            }),
            strange_units: Vec::new(),
        }
    }

    fn bad_of(site: &Site) -> Vec<(String, String)> {
        findings(site)
            .into_iter()
            .filter(|finding| finding.grade == Grade::Bad)
            .map(|finding| (finding.check, finding.mend.expect("what mends it")))
            .collect()
    }

    #[test]
    fn on_a_fit_node_nothing_is_bad_and_nothing_is_to_note() {
        let grades = findings(&fit());
        assert!(grades.iter().all(|finding| finding.grade == Grade::Good), "{grades:?}");
    }

    fn broker(site: &mut Site) -> &mut Broker {
        site.broker.as_mut().expect("a broker")
    }

    fn stats(site: &mut Site) -> &mut Value {
        broker(site).stats.as_mut().expect("statistics")
    }

    fn service(site: &mut Site) -> &mut Service {
        site.service.as_mut().expect("flux.service")
    }

    type Break = fn(&mut Site);

    #[test]
    fn each_fault_is_named_alone_with_the_words_that_mend_it() {
        let faults: [(&str, &str, Break); 23] = [
            ("linger", "enable-linger flux", |site| site.lingers = Some(false)),
            ("user manager", "user@", |site| {
                (site.systemd, site.unit) = (Err("no bus".into()), None);
            }),
            ("user manager", "243", |site| site.systemd = Ok("242".into())),
            ("unit", "status", |site| site.unit = Some(Err("refused".into()))),
            ("cgroup", "unified", |site| site.controllers = None),
            ("installation", "install", |site| site.missing = vec![PathBuf::from("/x")]),
            ("flux-core", "PATH", |site| site.flux = None),
            ("broker", "start flux", |site| site.broker = Err("no socket".into())),
            ("module", "restart flux", |site| broker(site).stats = Err("ENOSYS".into())),
            ("module", "reload", |site| stats(site)["release"] = json!("0.0.9")),
            ("shells", "systemd", |site| stats(site)["launcher"] = json!("fork")),
            ("connector", "install", |site| stats(site)["connector-notice"] = json!("none")),
            ("stop", "keep-jobs", |site| stats(site)["keeps-jobs"] = json!(false)),
            ("systemd", "restart user@", |site| stats(site)["waits-for"] = json!("List")),
            ("KVS", "content-sqlite", |site| broker(site).modules_0.clear()),
            ("restart", "RestartSec", |site| service(site).restart_sec = Some(300.0)),
            ("run directory", "Preserve", |site| service(site).keeps_run_directory = false),
            ("records", "state-directory", |site| {
                site.records.as_mut().expect("records").is_in_memory = true;
            }),
            ("room", "make room", |site| site.records.as_mut().expect("records").free = 1),
            ("leftovers", "stop shell", |site| site.strange_units = vec!["shell-x".into()]),
            ("IMP", "4755", |site| site.imp.as_mut().expect("an IMP").is_setuid = false),
            ("PAM", "remove pam_systemd", |site| {
                let pam = "session required pam_systemd.so".to_string();
                site.imp.as_mut().expect("an IMP").pam = Some(pam);
            }),
            ("prologs", "jobtap remove", |site| {
                stats(site)["config"]["perilog"] = json!({});
                broker(site).has_perilog = true;
            }),
        ];
        for (check, words, fault) in faults {
            let mut site = fit();
            fault(&mut site);
            let found = bad_of(&site);
            let [(found, mend)] = found.as_slice() else { panic!("{check}: {found:?}") };
            assert!(found == check && mend.contains(words), "{check}: {found}: {mend}");
        }
    }

    #[test]
    fn modules_that_a_setting_needs_are_missed() {
        let mut site = fit();
        stats(&mut site)["config"]["sdexec_properties"] = json!({ "DevicePolicy": "strict" });
        stats(&mut site)["config"]["sdexec_constrain_resources"] = json!(1);
        let found = bad_of(&site).into_iter().map(|(check, _)| check).collect::<Vec<_>>();
        assert_eq!(found, ["cgroup", "sdbus", "sdexec-mapper"]);
    }

    #[test]
    fn ranks_with_different_releases_are_told_once() {
        let mut other = fit();
        stats(&mut other)["release"] = json!("0.0.9");
        let mut reports = [findings(&fit()), findings(&fit()), findings(&other)];
        compare_releases(&mut reports.iter_mut());
        let told = reports.iter().flatten().filter(|finding| finding.check == "releases");
        assert_eq!(told.count(), 1);

        broker(&mut other).stats = Err("ENOSYS".into());
        let mut reports = [findings(&fit()), findings(&other)];
        compare_releases(&mut reports.iter_mut());
        assert!(reports.iter().flatten().all(|finding| finding.check != "releases"));
    }
}

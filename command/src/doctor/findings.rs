//! What follows from what a node is like.

use std::collections::BTreeSet;

use job_exec_rs::BUILD;
use job_exec_rs::proto::{Fit, fits};
use serde_json::Value;

use super::finding::{Finding, RANKS, bad, good, note};
use super::mends::{JOBS_HERE, drop_in, manager, user_systemctl};
use super::pam::PamSystemd;
use super::site::{Broker, Imp, Records, Service, Site};
use super::systemd;
use crate::stats::FLUX_CORES;
use job_exec_rs::proto::show_size as size;

/// Room for records and output below which a node is short of it.
const ROOM: u64 = 1 << 30;
/// How long flux-shell waits at least for tasks of ranks that it does not hear of, with the file that
/// `install` puts into its `lua.d`, in seconds.
const EXIT_TIMEOUT: f64 = 150.0;
/// What a broker needs to come up, in seconds.
const BOOT: f64 = 20.0;

fn install(site: &Site) -> String {
    match &site.installer {
        Some(program) => format!("sudo {} install", program.display()),
        None => "# install the package of job-exec-rs again".to_string(),
    }
}

/// Everything that was looked at, the most basic first.
pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let mut all = vec![flux(site), files(site)];
    let in_job = site.broker.as_ref().is_ok_and(|broker| broker.is_job);
    if !in_job {
        all.extend(systemd::findings(site));
    }
    let broker = match &site.broker {
        Ok(broker) => broker,
        Err(why) => {
            all.push(bad("broker", why, "sudo systemctl start flux"));
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
            all.push(no_module(broker, why));
            return all;
        }
    };
    all.extend([module(stats), launcher(broker, stats), connector(site, broker, stats)]);
    all.extend([stop(broker, stats), waits(stats)]);
    all.extend(site.records.as_ref().map(|records| place(broker, records)));
    all.extend(site.records.as_ref().map(room));
    all.push(strangers(site));
    if !in_job {
        all.extend(imp(site.imp.as_ref()));
    }
    all.extend(perilog(broker, stats));
    all.extend(modules(broker, stats));
    all
}

fn flux(site: &Site) -> Finding {
    match &site.flux {
        Some(version) => match fits(version) {
            Fit::Tried => good("flux-core", version),
            Fit::Untried(text) => note("flux-core", text),
            Fit::TooOld(text) => bad("flux-core", text, "# install a newer flux-core"),
        },
        None => {
            let mend = "# put the directory that has the command flux into PATH";
            bad("flux-core", "no command flux", mend)
        }
    }
}

fn files(site: &Site) -> Finding {
    match site.missing.as_slice() {
        [] => good("installation", "complete"),
        [first, rest @ ..] => {
            let more =
                if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let found = format!("{} is missing{more}", first.display());
            bad("installation", found, install(site))
        }
    }
}

fn linger(site: &Site) -> Finding {
    let owner = &site.owner;
    match site.lingers {
        Some(true) => good("linger", format!("{owner}'s units live without a login")),
        Some(false) => {
            let found = format!("jobs end when {owner} has no login any more");
            bad("linger", found, format!("sudo loginctl enable-linger {owner}"))
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
        let mend = drop_in("flux.service", "RuntimeDirectoryPreserve", "yes");
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
        bad("restart", found, drop_in("flux.service", "RestartSec", "30s"))
    } else {
        good("restart", format!("flux.service is started again after {pause} s"))
    }
}

/// Without a backing store, a restart of rank 0 forgets all jobs.
fn backing_store(broker: &Broker) -> Finding {
    let Some(modules) = &broker.modules_0 else {
        return note("KVS", "rank 0 does not say which modules it has");
    };
    let store = ["content-sqlite", "content-files", "content-s3"]
        .into_iter()
        .find(|name| modules.contains(*name));
    match store {
        Some(store @ "content-sqlite") => good("KVS", store),
        // The instance ends with its rank 0's broker, and nobody needs its KVS after that.
        store if broker.is_job => good("KVS", store.unwrap_or("in memory")),
        Some(store) => {
            note("KVS", format!("{store}: what it holds may be lost with rank 0's power"))
        }
        None => {
            let found = "no backing store: a restart of rank 0's broker forgets all jobs";
            bad("KVS", found, "flux exec -r 0 flux module load content-sqlite")
        }
    }
}

fn no_module(broker: &Broker, why: &str) -> Finding {
    if why.contains(FLUX_CORES) {
        let found = format!("{why}: jobs end with their broker");
        let mend = match broker.is_system {
            true => "sudo systemctl restart flux",
            false => "# stop this instance, and start it again",
        };
        return bad("module", found, mend).ending("all jobs");
    }
    let found = format!("job-exec-rs is not loaded: {why}");
    bad("module", found, format!("flux exec -r {RANKS} flux module load job-exec-rs"))
}

fn module(stats: &Value) -> Finding {
    let loaded = stats["release"].as_str().unwrap_or("an earlier release");
    if loaded == BUILD {
        return good("module", format!("job-exec-rs {loaded}"));
    }
    let found = format!("job-exec-rs {loaded} is loaded, and {BUILD} is installed");
    bad("module", found, format!("flux exec -r {RANKS} flux module reload job-exec-rs"))
}

/// Ranks with different releases wait for each other.
pub(super) fn compare_releases(reports: &mut dyn Iterator<Item = &mut Vec<Finding>>) {
    // A rank without the module has a finding of its own.
    let is_module = |finding: &&Finding| {
        finding.check == "module"
            && finding.found.starts_with("job-exec-rs ")
            && !finding.found.contains("is not loaded")
    };
    let mut reports: Vec<_> = reports.collect();
    let found: BTreeSet<String> = reports
        .iter()
        .filter_map(|findings| findings.iter().find(is_module))
        // What is installed beside it has a finding of its own.
        .map(|finding| finding.found.split(" is loaded").next().unwrap_or_default().to_string())
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

fn launcher(broker: &Broker, stats: &Value) -> Finding {
    match (stats["launcher"].as_str(), stats["notice"].as_str()) {
        (Some("systemd"), _) => good("shells", "are units of systemd"),
        (Some("fork"), _) if broker.is_job => {
            good("shells", "are children of their broker, as everywhere inside a job")
        }
        (launcher, Some(notice)) => {
            let found = format!("{}: {notice}", launcher.unwrap_or("nothing"));
            let mend = format!("flux exec -r {RANKS} flux module reload job-exec-rs");
            bad("shells", found, mend).ending("jobs whose shells are children of this broker")
        }
        (launcher, None) => {
            let found = format!("{}: exec.method is fork", launcher.unwrap_or("nothing"));
            bad("shells", found, "# set method = \"systemd\" in the table [exec]")
        }
    }
}

fn connector(site: &Site, broker: &Broker, stats: &Value) -> Finding {
    match stats["connector-notice"].as_str() {
        None => good("connector", "shells wait for their broker"),
        Some(_) if broker.is_job => good("connector", "shells end with their broker"),
        Some(why) => bad("connector", format!("shells end with it: {why}"), install(site)),
    }
}

fn stop(broker: &Broker, stats: &Value) -> Finding {
    match (stats["keeps-jobs"] == true, broker.is_system) {
        (true, _) => good("stop", "a stop of Flux leaves jobs running"),
        (false, false) if broker.is_job => good("stop", "a stop of this instance cancels its jobs"),
        (false, false) => note("stop", "a stop of this instance cancels its jobs"),
        (false, true) => {
            let mend = "# set keep-jobs = true in the table [exec], and see what else is bad";
            bad("stop", "a stop of Flux cancels all jobs", mend)
        }
    }
}

fn waits(stats: &Value) -> Finding {
    match stats["waits-for"].as_str() {
        None => good("systemd", "answers the module"),
        Some(what) => {
            let found = format!("has not answered the module: {what}");
            let mend = format!("sudo systemctl restart {}", manager());
            bad("systemd", found, mend).ending(JOBS_HERE)
        }
    }
}

fn place(broker: &Broker, records: &Records) -> Finding {
    let directory = &records.directory;
    let mend = "# set state-directory = \"/var/lib/flux\" in the table [exec]";
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
    let free = size(records.free);
    if records.free < ROOM {
        let found = format!("{free} are free in {}", records.directory);
        return bad("room", found, "# make room: a full disk loses output, and can lose statuses");
    }
    good("room", format!("{free} are free"))
}

fn strangers(site: &Site) -> Finding {
    let found = |all: &[String], what: &str| {
        let first = all.first().map_or("", String::as_str);
        let plural = if all.len() == 1 { "" } else { "s" };
        format!("{} {what}{plural} that no job has: {first}", all.len())
    };
    match (site.strange_units.as_slice(), site.strange_records.as_slice()) {
        ([], []) => good("leftovers", "none"),
        (units @ [first, ..], _) => {
            let mend = user_systemctl(site, &format!("stop {first}"));
            bad("leftovers", found(units, "unit"), mend).ending("what runs in it")
        }
        ([], records) => {
            let mend = format!("flux exec -r {RANKS} flux module reload job-exec-rs");
            bad("leftovers", found(records, "record"), mend)
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
        all.push(bad(
            "IMP",
            found,
            format!("sudo chown root {0} && sudo chmod 4755 {0}", imp.path),
        ));
    }
    all.extend(imp.pam_systemd.as_ref().map(pam));
    all
}

fn pam(PamSystemd { file, line, from }: &PamSystemd) -> Finding {
    let (file, from) = (file.display(), from.display());
    let found = format!(
        "line {line} of {file} has pam_systemd (in {from}), which moves jobs of other users out of \
         their units"
    );
    bad("PAM", found, format!("sudo sed -i '{line}s/^/# /' {file}"))
}

fn perilog(broker: &Broker, stats: &Value) -> Option<Finding> {
    let ours = !stats["config"]["perilog"].is_null();
    match (ours, broker.has_perilog) {
        (true, true) => {
            let found = "perilog.so is loaded as well: each prolog runs twice";
            Some(bad("prologs", found, "flux exec -r 0 flux jobtap remove perilog.so"))
        }
        (true, false) => Some(good("prologs", "are run by job-exec-rs")),
        (false, true) => Some(note("prologs", "are run by perilog.so, from rank 0")),
        (false, false) => None,
    }
}

/// Modules of flux-core that others need.
fn modules(broker: &Broker, stats: &Value) -> Vec<Finding> {
    let mut all = Vec::new();
    let lacks = |name| broker.modules.as_ref().is_some_and(|modules| !modules.contains(name));
    let properties = &stats["config"]["sdexec_properties"];
    let devices = ["DevicePolicy", "DeviceAllow"].iter().any(|name| !properties[*name].is_null());
    if devices && lacks("sdbus") {
        let found = "DevicePolicy and DeviceAllow need flux-core's sdbus for jobs of other users";
        all.push(bad(
            "sdbus",
            found,
            "# set enable = true in the table [systemd], and restart Flux",
        ));
    }
    let confines = stats["config"]["sdexec_constrain_resources"] == 1;
    if confines && lacks("sdexec-mapper") {
        let found = "sdexec-constrain-resources needs flux-core's sdexec-mapper";
        all.push(bad(
            "sdexec-mapper",
            found,
            "# set enable = true in the table [systemd], and restart Flux",
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use nix::unistd::getuid;
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Grade;
    use crate::paint::Paint;

    fn fit() -> Site {
        let stats = json!({
            "release": BUILD, "launcher": "systemd", "notice": null,
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
                is_job: false,
                modules: Some(modules.clone()),
                modules_0: Some(modules),
                has_perilog: false,
                stats: Ok(stats),
            }),
            missing: Vec::new(),
            installer: Some("/x/job-exec-rs".into()),
            controllers: Some(["cpu", "memory", "pids"].map(String::from).to_vec()),
            favordynmods: true,
            systemd: Ok("252.39-1~deb12u2".into()),
            unit: Some(Ok(())),
            lingers: Some(true),
            service: Some(Service { restart_sec: Some(30.0), keeps_run_directory: true }),
            imp: Some(Imp { path: "/imp".into(), is_setuid: true, pam_systemd: None }),
            records: Some(Records {
                directory: "/var/lib/flux/job-exec".into(),
                is_in_memory: false,
                free: 1 << 40,
            }),
            strange_units: Vec::new(),
            strange_records: Vec::new(),
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
        let faults: [(&str, &str, Break); 27] = [
            ("flux-core", "newer", |site| site.flux = Some("0.87.0".into())),
            ("linger", "enable-linger flux", |site| site.lingers = Some(false)),
            ("user manager", "user@", |site| {
                (site.systemd, site.unit) = (Err("no bus".into()), None);
            }),
            ("user manager", "252", |site| site.systemd = Ok("242".into())),
            ("unit", "status", |site| site.unit = Some(Err("refused".into()))),
            ("cgroup", "unified", |site| site.controllers = None),
            ("installation", "install", |site| site.missing = vec![PathBuf::from("/x")]),
            ("flux-core", "PATH", |site| site.flux = None),
            ("broker", "start flux", |site| site.broker = Err("no socket".into())),
            ("user manager", "restart user@", |site| {
                (site.systemd, site.unit) = (Err("no answer within 30 s".into()), None);
            }),
            ("module", "module load", |site| broker(site).stats = Err("ENOSYS".into())),
            ("module", "restart flux", |site| {
                broker(site).stats = Err(format!("{FLUX_CORES} is loaded"));
            }),
            ("module", "reload", |site| stats(site)["release"] = json!("0.0.9")),
            ("shells", "systemd", |site| stats(site)["launcher"] = json!("fork")),
            ("connector", "install", |site| stats(site)["connector-notice"] = json!("none")),
            ("stop", "keep-jobs", |site| stats(site)["keeps-jobs"] = json!(false)),
            ("systemd", "restart user@", |site| stats(site)["waits-for"] = json!("List")),
            ("KVS", "content-sqlite", |site| broker(site).modules_0 = Some(BTreeSet::new())),
            ("restart", "RestartSec", |site| service(site).restart_sec = Some(300.0)),
            ("run directory", "Preserve", |site| service(site).keeps_run_directory = false),
            ("records", "state-directory", |site| {
                site.records.as_mut().expect("records").is_in_memory = true;
            }),
            ("room", "make room", |site| site.records.as_mut().expect("records").free = 1),
            ("leftovers", "stop shell", |site| site.strange_units = vec!["shell-x".into()]),
            ("leftovers", "reload", |site| site.strange_records = vec!["shell-x".into()]),
            ("IMP", "4755", |site| site.imp.as_mut().expect("an IMP").is_setuid = false),
            ("PAM", "sed -i '3s/^/# /' /etc/pam.d/flux", |site| {
                let (file, from) = ("/etc/pam.d/flux".into(), "/etc/pam.d/common-session".into());
                let found = PamSystemd { file, line: 3, from };
                site.imp.as_mut().expect("an IMP").pam_systemd = Some(found);
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
    fn a_mend_that_ends_jobs_says_so_first_and_the_command_is_a_line() {
        let mut site = fit();
        site.strange_units = vec!["shell-1-f2-0a0a0a0a.service".into()];
        let found = findings(&site).into_iter().find(|finding| finding.grade == Grade::Bad);
        let mut out = Vec::new();
        found.expect("leftovers").show_mend("1", Paint::none(), &mut out).expect("text");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let uid = getuid();
        let command = format!(
            "sudo -u flux env XDG_RUNTIME_DIR=/run/user/{uid} systemctl --user stop \
             shell-1-f2-0a0a0a0a.service"
        );
        assert_eq!(lines, ["-> ENDS what runs in it:", &command]);
    }

    #[test]
    fn what_restarts_a_user_manager_or_gives_up_the_module_ends_jobs() {
        let breaks: [Break; 3] = [
            |site| stats(site)["waits-for"] = json!("List"),
            |site| site.systemd = Err("no answer within 30 s".into()),
            |site| broker(site).stats = Err(FLUX_CORES.into()),
        ];
        for fault in breaks {
            let mut site = fit();
            fault(&mut site);
            let all = findings(&site);
            let bad = all.iter().find(|finding| finding.grade == Grade::Bad).expect("a fault");
            assert!(bad.ends.as_ref().is_some_and(|jobs| jobs.starts_with("all jobs")), "{bad:?}");
        }
    }

    #[test]
    fn two_mends_of_one_unit_do_not_undo_each_other() {
        let mut site = fit();
        let service = site.service.as_mut().expect("flux.service");
        (service.restart_sec, service.keeps_run_directory) = (Some(300.0), false);
        let files: BTreeSet<String> = bad_of(&site)
            .into_iter()
            .filter_map(|(_, mend)| Some(mend.split("sudo tee ").nth(1)?.to_string()))
            .collect();
        assert_eq!(files.len(), 2, "{files:?}");
    }

    #[test]
    fn a_rank_0_that_does_not_answer_is_no_kvs_without_a_backing_store() {
        let mut site = fit();
        broker(&mut site).modules_0 = None;
        assert_eq!(bad_of(&site), []);
    }

    #[test]
    fn a_systemd_that_nobody_tried_is_noted() {
        let grade = |version: &str| {
            let mut site = fit();
            site.systemd = Ok(version.into());
            let of_systemd = |finding: &Finding| finding.check == "user manager";
            findings(&site).into_iter().find(of_systemd).map(|finding| finding.grade)
        };
        let grades = ["242.1", "243", "251.4", "252.39-1~deb12u1", "260~rc2"].map(grade);
        let expected = [Grade::Bad, Grade::Note, Grade::Note, Grade::Good, Grade::Good];
        assert_eq!(grades, expected.map(Some));
    }

    #[test]
    fn moves_into_cgroups_are_to_be_favoured() {
        for favordynmods in [false, true] {
            let site = Site { favordynmods, ..fit() };
            let notes = findings(&site).iter().filter(|it| it.grade == Grade::Note).count();
            assert_eq!(notes, usize::from(!favordynmods));
        }
    }

    #[test]
    fn in_an_instance_inside_a_job_all_is_good_that_is_as_it_can_be() {
        let mut site = fit();
        site.systemd = Err("no bus".into());
        (site.unit, site.controllers, site.lingers) = (None, None, None);
        (site.service, site.imp) = (None, None);
        let broker = broker(&mut site);
        (broker.is_system, broker.is_job) = (false, true);
        broker.modules_0 = Some(BTreeSet::new());
        let stats = stats(&mut site);
        stats["launcher"] = json!("fork");
        stats["notice"] = json!("this runs inside job f2 of Flux");
        stats["keeps-jobs"] = json!(false);
        stats["connector-notice"] = json!("no libresume.so");
        let grades = findings(&site);
        assert!(grades.iter().all(|finding| finding.grade == Grade::Good), "{grades:?}");
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

        // An upgrade is half done: one has another release on its disk than it has loaded.
        let mut old = fit();
        stats(&mut old)["release"] = json!("0.0.9");
        let mut installed = findings(&old);
        let of_module = installed.iter_mut().find(|finding| finding.check == "module");
        of_module.expect("a finding").found = "job-exec-rs 0.0.9".to_string();
        let mut reports = [findings(&old), installed];
        compare_releases(&mut reports.iter_mut());
        assert!(reports.iter().flatten().all(|finding| finding.check != "releases"));

        broker(&mut other).stats = Err("ENOSYS".into());
        let mut reports = [findings(&fit()), findings(&other)];
        compare_releases(&mut reports.iter_mut());
        assert!(reports.iter().flatten().all(|finding| finding.check != "releases"));
    }
}

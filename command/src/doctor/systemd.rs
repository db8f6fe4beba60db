//! What follows from the systemd of a node, and from how its cgroups are mounted.

use job_exec_rs::proto::{OLDEST_SYSTEMD, systemd_number};

use super::finding::{Finding, bad, good, note};
use super::mends::{JOBS_HERE, delegate, manager, user_systemctl};
use super::site::Site;

/// The oldest systemd that this release was tried with (doc/admin.md).
const TRIED: u32 = 252;

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let mut all = cgroups(site);
    all.push(user_manager(site));
    all.extend(stands_still(site));
    all.extend(site.unit.as_ref().map(|started| unit(site, started)));
    all
}

fn cgroups(site: &Site) -> Vec<Finding> {
    let Some(controllers) = &site.controllers else {
        let mend = "# boot with systemd.unified_cgroup_hierarchy=1";
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
    let finding = if confines { bad("cgroup", found, delegate()) } else { note("cgroup", found) };
    vec![finding]
}

fn user_manager(site: &Site) -> Finding {
    let version = match &site.systemd {
        Ok(version) => version,
        Err(why) if why.contains("no answer within") => {
            let mend = format!("sudo systemctl restart {}", manager());
            return bad("user manager", format!("hangs: {why}"), mend).ending(JOBS_HERE);
        }
        Err(why) => {
            let mend = format!("sudo systemctl start {}", manager());
            return bad("user manager", format!("does not answer: {why}"), mend);
        }
    };
    match systemd_number(version) {
        Some(number) if number < OLDEST_SYSTEMD => {
            let found = format!("systemd {version} is too old");
            bad("user manager", found, format!("# install systemd {TRIED} or later"))
        }
        Some(number) if number < TRIED => {
            let found = format!("systemd {version}: tried with {TRIED} and newer");
            note("user manager", found)
        }
        _ => good("user manager", format!("systemd {version}")),
    }
}

fn unit(site: &Site, started: &Result<(), String>) -> Finding {
    match started {
        Ok(()) => good("unit", "one can be started"),
        Err(why) => {
            let found = format!("none can be started: {why}");
            bad("unit", found, user_systemctl(site, "status"))
        }
    }
}

/// While a process is moved into the cgroup of a unit all that fork wait for a grace period of the kernel,
/// unless the file system favours such moves (Linux `Documentation/admin-guide/cgroup-v2.rst`).
fn stands_still(site: &Site) -> Option<Finding> {
    let text = "mounted without favordynmods: on some kernels each start takes 10 to 20 ms longer \
                (kernel parameter cgroup_favordynmods=1; now: mount -o remount,favordynmods /sys/fs/cgroup)";
    (site.controllers.is_some() && !site.favordynmods).then(|| note("cgroup", text))
}

//! Shells that run on this node in units of the service, of any instance.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use job_exec_rs::proto::{JobId, UnitName};

/// The jobs of the shells and scripts that run here, as the cgroups of processes say. Nothing else on the
/// node knows of them when neither a broker nor a user manager answers.
pub(super) fn jobs() -> BTreeSet<JobId> {
    jobs_below(Path::new("/proc"))
}

fn jobs_below(proc: &Path) -> BTreeSet<JobId> {
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    // A process may have ended.
    let cgroups = processes.filter_map(|it| fs::read_to_string(it.path().join("cgroup")).ok());
    cgroups.filter_map(|text| job_of(&text)).collect()
}

/// The job that a process is of, by its `/proc/PID/cgroup` (cgroups(7)): its cgroup is the unit's, or below.
fn job_of(cgroup: &str) -> Option<JobId> {
    let names = cgroup.lines().flat_map(|line| line.split('/'));
    names.filter_map(|name| name.parse::<UnitName>().ok()).map(|unit| unit.job()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_in_a_unit_is_found_by_the_cgroup() {
        let proc = tempfile::tempdir().expect("a directory");
        let process = |pid: &str, cgroup: &str| {
            fs::create_dir(proc.path().join(pid)).expect("a directory");
            fs::write(proc.path().join(pid).join("cgroup"), cgroup).expect("a file");
        };
        let units = "0::/user.slice/user-1.slice/user@1.service/app.slice";
        process("1", "0::/init.scope\n");
        process("7", &format!("{units}/shell-0-f43pPJoEo-0a1b2c3d.service\n"));
        process("8", &format!("{units}/shell-0-f43pPJoEo-0a1b2c3d.service/below\n"));
        process("9", &format!("1:cpu:/x\n{units}/imp-shell-3-f2UzHM-0a1b2c3d.service\n"));
        process("10", &format!("{units}/shell-0.service\n"));
        fs::create_dir(proc.path().join("self")).expect("a directory");
        let found: Vec<String> = jobs_below(proc.path()).into_iter().map(JobId::f58plain).collect();
        assert_eq!(found, ["f2UzHM", "f43pPJoEo"]);
    }
}

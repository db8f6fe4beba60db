//! The job that this process is a part of, if it is part of one.
//!
//! Who runs a job bounds what the job may use, and knows that it is over, by its cgroup. A unit of
//! `systemd --user` is not below that cgroup. So nothing of such a process may become a unit.

use std::fmt;

use crate::proto::job_of_unit;

/// Variables by which a process knows that a resource manager has started it in a job.
const VARIABLES: &[(&str, &str)] = &[
    ("FLUX_JOB_ID", "Flux"),
    ("SLURM_JOB_ID", "Slurm"),
    ("PBS_JOBID", "PBS"),
    ("LSB_JOBID", "LSF"),
];

/// A job, and by what it is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OuterJob {
    manager: &'static str,
    id: String,
    sign: String,
}

impl OuterJob {
    /// The job that a broker is part of by its attribute `jobid`, which Flux has given it at its
    /// start, or else the one that its environment or its cgroup shows.
    pub fn find(jobid: Option<String>) -> Option<Self> {
        let attribute = jobid.filter(|id| !id.is_empty()).map(|id| Self {
            manager: "Flux",
            id,
            sign: "attribute jobid".to_string(),
        });
        let variable = |name: &str| std::env::var(name).ok();
        attribute.or_else(|| Self::of_environment(variable)).or_else(|| {
            Self::of_cgroups(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
        })
    }

    fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        VARIABLES.iter().find_map(|(name, manager)| {
            let id = variable(name).filter(|id| !id.is_empty())?;
            Some(Self { manager, id, sign: format!("{name} in the environment") })
        })
    }

    /// Reads `/proc/self/cgroup`. A job can remove a variable, and
    /// stays in its cgroup.
    fn of_cgroups(cgroups: &str) -> Option<Self> {
        cgroups.lines().find_map(|line| {
            let path = line.splitn(3, ':').nth(2)?;
            let (manager, id) = of_path(path)?;
            Some(Self { manager, id, sign: format!("cgroup {path}") })
        })
    }
}

/// The outermost job of a path. Slurm's has `slurm` or `slurmstepd.scope`, and then `job_ID`
/// (Slurm's cgroup/v1 and cgroup/v2).
fn of_path(path: &str) -> Option<(&'static str, String)> {
    let mut slurm = false;
    path.split('/').find_map(|name| {
        slurm |= name.starts_with("slurm");
        let in_slurm = name.strip_prefix("job_").filter(|_| slurm);
        let in_slurm = in_slurm.map(|id| ("Slurm", id.to_string()));
        in_slurm.or_else(|| job_of_unit(name).map(|id| ("Flux", id.to_string())))
    })
}

impl fmt::Display for OuterJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manager, id, sign } = self;
        write!(
            f,
            "this runs inside job {id} of {manager} ({sign}), and no process may leave that job"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cgroups(cgroups: &str) -> Option<(&'static str, String)> {
        OuterJob::of_cgroups(cgroups).map(|job| (job.manager, job.id))
    }

    #[test]
    fn the_attribute_comes_first_and_an_empty_one_is_none() {
        let job = OuterJob::find(Some("fABC".to_string())).expect("the attribute says so");
        assert_eq!((job.manager, job.id.as_str()), ("Flux", "fABC"));
        let text = job.to_string();
        assert!(text.contains("job fABC of Flux (attribute jobid)"), "{text}");
        let empty = OuterJob::find(Some(String::new()));
        assert!(empty.is_none_or(|job| job.sign != "attribute jobid"));
    }

    #[test]
    fn other_managers_are_known_by_the_environment() {
        for (name, manager) in VARIABLES {
            let set = |asked: &str| (asked == *name).then(|| "4711".to_string());
            let job = OuterJob::of_environment(set).expect("it is set");
            assert_eq!((job.manager, job.id.as_str()), (*manager, "4711"));
            assert!(job.to_string().contains(name), "{job}");
        }
        assert_eq!(OuterJob::of_environment(|_| Some(String::new())), None);
    }

    #[test]
    fn a_jobs_cgroup_is_known_whatever_the_environment_says() {
        let slurm = Some(("Slurm", "4711".to_string()));
        let v2 = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n";
        assert_eq!(of_cgroups(v2), slurm);
        let v1 = "4:memory:/slurm/uid_1000/job_4711/step_0\n0::/\n";
        assert_eq!(of_cgroups(v1), slurm);
        let app = "0::/user.slice/user-1.slice/user@1.service/app.slice";
        let unit = |name: &str| of_cgroups(&format!("{app}/{name}\n")).map(|(manager, _)| manager);
        assert_eq!(unit("shell-0-f43pPJoEo-1f0c92ab.service"), Some("Flux"));
        assert_eq!(unit("imp-shell-3-f43pPJoEo-1f0c92ab.service/below"), Some("Flux"));
        assert_eq!(unit("shell-0-f43pPJoEo.service"), Some("Flux"));
    }

    #[test]
    fn services_and_sessions_are_no_jobs() {
        for path in [
            "/",
            "/system.slice/flux.service",
            "/system.slice/slurmd.service",
            "/user.slice/user-1000.slice/session-4.scope",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/job_4711.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/shell-login.service",
        ] {
            assert_eq!(of_cgroups(&format!("0::{path}\n")), None, "{path}");
        }
    }
}

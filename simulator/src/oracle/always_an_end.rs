//! **always-an-end**: each start request ends in exactly one final release, in the order of
//! RFC 32, whatever fails; and RFC 50's order of events holds, with `done` last. No checkpoint has a
//! job in CLEANUP that is not held: after a crash the job manager would free it at once.

use job_exec_rs::machine::KvsOp;
use job_exec_rs::proto::{ExecEvent, JobId, Response};

use crate::world::World;

const NAME: &str = "always-an-end";
/// How long a job that another than the service has brought to CLEANUP may be there without a hold,
/// in seconds: until the service hears of it, and the KVS has the hold.
const UNHELD_MAX: f64 = 0.1;

impl World {
    /// Checks the order of RFC 32, at each response.
    pub(super) fn check_order(&mut self, id: JobId, response: &Response) {
        if let Err(violation) = self.manager.handle_response(id, response, self.now) {
            note!(self, "VIOLATION {violation}");
            self.violations.push(violation);
        }
    }

    /// Checks the jobs in CLEANUP, at each checkpoint.
    pub(crate) fn check_held(&mut self) {
        let now = self.now;
        let is_late = |since: f64| now - since.max(self.awake_since) > UNHELD_MAX;
        let manager = self.kvs.manager();
        let unheld = manager.cleaning().into_iter().filter(|id| {
            let job = &manager.jobs[id];
            let is_over = self.manager.jobs.get(id).is_some_and(|job| job.abandoned);
            let is_late = job.cleaned_by_service || job.cleaning_since.is_some_and(is_late);
            job.holds == 0 && !is_over && is_late
        });
        for id in unheld.collect::<Vec<_>>() {
            self.violate(NAME, format!("{id}: a checkpoint has it in CLEANUP, and not held"));
        }
    }

    /// Checks the order of RFC 50, at each commit.
    pub(crate) fn check_events(&mut self, id: JobId, op: &KvsOp) {
        let KvsOp::Append { events: fresh, .. } = op else { return };
        let Some(log) = self.kvs.live_log(id) else { return };
        let names: Vec<&str> = log.iter().chain(fresh).map(|event| event.name.as_str()).collect();
        if let Some(broken) = broken(&names) {
            self.violate(NAME, format!("{id}: {broken} in the exec eventlog {names:?}"));
        }
    }

    pub(super) fn check_jobs(&mut self) {
        let jobs: Vec<JobId> = self.manager.jobs.keys().copied().collect();
        for id in jobs {
            let job = &self.manager.jobs[&id];
            if job.allocation.is_none() {
                self.violate(NAME, format!("{id}: the world never gave it resources"));
            } else if !job.ended && !job.abandoned {
                self.violate(NAME, format!("{id}: never released"));
            } else if job.holds > 0 {
                self.violate(NAME, format!("{id}: held for ever"));
            } else if job.ended {
                self.check_log(id);
            }
        }
    }

    fn check_log(&mut self, id: JobId) {
        let failed = self.manager.jobs[&id].failed;
        let Some(log) = self.kvs.moved_log(id).map(<[ExecEvent]>::to_vec) else {
            // A job that could not be started at all has no eventlog in the KVS.
            if !failed {
                self.violate("nothing-lost", format!("{id}: has no exec eventlog"));
            }
            return;
        };
        let names: Vec<&str> = log.iter().map(|event| event.name.as_str()).collect();
        if names.last() != Some(&"done") {
            self.violate(NAME, format!("{id}: done is not the last event of {names:?}"));
        }
        self.check_lines(id);
        self.check_oom_events(id, &log);
        // A user can say that the job does without some shells. Their output can be missing.
        if !failed && !self.messages.deceived.contains(&id) {
            self.check_output(id, &log);
        }
    }
}

/// What is out of order, if anything is.
fn broken(names: &[&str]) -> Option<&'static str> {
    let count = |name: &str| names.iter().filter(|other| **other == name).count();
    let at = |name: &str| names.iter().position(|other| *other == name);
    let before = |one: &str, other: &str| match (at(one), at(other)) {
        (Some(one), Some(other)) => one < other,
        (None, Some(_)) => false,
        (_, None) => true,
    };
    let last = names.len().saturating_sub(1);
    [
        (at("init") == Some(0), "init is not first"),
        (count("init") < 2 && count("starting") < 2, "init or starting comes twice"),
        (count("complete") < 2 && count("done") < 2, "complete or done comes twice"),
        (count("shell-exit") < 2, "shell-exit comes twice"),
        (count("recoverable") < 2, "recoverable comes twice"),
        (before("starting", "recoverable"), "recoverable comes before starting"),
        (before("starting", "reattach"), "reattach comes before starting"),
        (at("done").is_none_or(|at| at == last), "an event comes after done"),
    ]
    .into_iter()
    .find(|(holds, _)| !holds)
    .map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_rfc_50() {
        let whole = [
            "init",
            "starting",
            "recoverable",
            "reattach",
            "log",
            "shell-exit",
            "complete",
            "done",
        ];
        assert_eq!(broken(&whole), None);
        assert_eq!(broken(&["init", "complete", "done"]), None, "failed before it was started");
        assert!(broken(&["starting"]).is_some());
        assert!(broken(&["init", "starting", "starting"]).is_some());
        assert!(broken(&["init", "reattach", "starting"]).is_some());
        assert!(broken(&["init", "recoverable", "starting"]).is_some());
        assert!(broken(&["init", "starting", "recoverable", "recoverable"]).is_some());
        assert!(broken(&["init", "starting", "done", "log"]).is_some());
    }
}

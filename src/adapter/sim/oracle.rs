//! What must hold, looked at from outside. Each check names its invariant in
//! `rfc/0001-scope.md`.

use super::Violation;
use super::manager::Allocation;
use super::rank::Unit;
use super::world::World;
use crate::proto::{ExecEvent, Idset, JobId, Response, WaitStatus};

impl World {
    /// **once**: a job's shell is executed at most once on a rank, whatever happens.
    pub(super) fn check_once(&mut self, rank: u32, job: JobId, digest: &str) {
        let executions = self.ranks[rank as usize].executions.get(digest).copied().unwrap_or(0);
        if executions > 1 {
            self.violate("once", format!("{job}: started {executions} times on rank {rank}"));
        }
    }

    /// What a response to the job manager says must be true.
    pub(super) fn check_response(&mut self, id: JobId, response: &Response) {
        match response {
            Response::Finish { status } => self.check_status(id, *status),
            Response::Release { ranks, is_final } => self.check_release(id, ranks, *is_final),
            Response::Changed { .. }
            | Response::Exception(_)
            | Response::Progress { .. }
            | Response::Reattached {}
            | Response::Start {} => (),
        }
        if let Err(violation) = self.manager.respond(id, response) {
            self.violations.push(violation);
        }
    }

    /// **no-release-while-alive**
    fn check_release(&mut self, id: JobId, ranks: &str, is_final: bool) {
        let Some(job) = self.manager.jobs.get(&id) else { return };
        let Some(Allocation { ranks: all, digest, .. }) = job.allocation.clone() else { return };
        let released: Idset = if is_final { all } else { ranks.parse().unwrap_or_default() };
        for rank in released.ranks() {
            let alive = self.ranks[rank.0 as usize].units_of(id, &digest).any(Unit::lives);
            if alive && !self.drained.contains(&(id, rank.0)) {
                let seen = format!("{id}: rank {rank} released while its shell runs");
                self.violate("no-release-while-alive", seen);
            }
        }
    }

    /// **true-status**: of a job that nothing else has failed, the largest of its shells.
    fn check_status(&mut self, id: JobId, status: WaitStatus) {
        let Some(job) = self.manager.jobs.get(&id).filter(|job| !job.failed) else { return };
        let Some(Allocation { ranks, digest, .. }) = &job.allocation else { return };
        let shells = ranks.ranks().filter_map(|rank| {
            let mut units = self.ranks[rank.0 as usize].units_of(id, digest);
            units.find_map(|state| state.exited)
        });
        let truth = shells.max().unwrap_or_default();
        if truth != status {
            let seen = format!("{id}: finish says {status}, the shells {truth}");
            self.violate("true-status", seen);
        }
    }

    /// All is healed and time has passed: **always-an-end**, **no-orphan**, **nothing-lost**.
    pub(super) fn check_end(&mut self) {
        let jobs: Vec<JobId> = self.manager.jobs.keys().copied().collect();
        for id in jobs {
            let job = &self.manager.jobs[&id];
            if job.allocation.is_none() {
                self.violate("always-an-end", format!("{id}: the world never gave it resources"));
            } else if !job.ended && !job.abandoned {
                self.violate("always-an-end", format!("{id}: never released"));
            } else if job.ended && !job.failed {
                self.check_output(id);
            }
        }
        let mut seen = Vec::new();
        for (rank, state) in self.ranks.iter().enumerate() {
            for (unit, _) in state.units.iter().filter(|(_, unit)| unit.lives()) {
                seen.push(format!("{unit} still runs on rank {rank}"));
            }
            for unit in state.records.keys() {
                seen.push(format!("a record of {unit} is left on rank {rank}"));
            }
        }
        for seen in seen {
            self.violate("no-orphan", seen);
        }
    }

    /// **nothing-lost**: what shells wrote is in the exec eventlog, once and in order; and
    /// RFC 50's order of events.
    fn check_output(&mut self, id: JobId) {
        let Some(log) = self.kvs.log(id).map(<[ExecEvent]>::to_vec) else {
            return self.violate("nothing-lost", format!("{id}: has no exec eventlog"));
        };
        let position = |name: &str| log.iter().position(|event| event.name == name);
        let count = |name: &str| log.iter().filter(|event| event.name == name).count();
        if position("init") != Some(0)
            || position("done") != Some(log.len() - 1)
            || count("complete") != 1
            || count("starting") != 1
        {
            let names: Vec<&str> = log.iter().map(|event| event.name.as_str()).collect();
            self.violate("always-an-end", format!("{id}: exec eventlog {names:?}"));
        }
        let allocation = self.manager.jobs.get(&id).and_then(|job| job.allocation.clone());
        let Some(Allocation { ranks, digest, .. }) = allocation else { return };
        for rank in ranks.ranks() {
            let units = self.ranks[rank.0 as usize].units_of(id, &digest);
            let written: Vec<u8> = units.flat_map(|unit| unit.output.iter().copied()).collect();
            let logged: Vec<u8> = log
                .iter()
                .filter(|event| event.logged().is_some_and(|logged| logged.0 == rank))
                .filter_map(|event| event.context.get("data")?.as_str())
                .flat_map(|text| text.bytes())
                .collect();
            if logged != written {
                let (logged, written) = (logged.len(), written.len());
                let seen = format!("{id}: rank {rank} wrote {written} bytes, {logged} are logged");
                self.violate("nothing-lost", seen);
            }
        }
    }

    pub(super) fn violate(&mut self, invariant: &'static str, seen: String) {
        self.note(&format!("VIOLATION {invariant}: {seen}"));
        self.violations.push(Violation { invariant, seen });
    }
}

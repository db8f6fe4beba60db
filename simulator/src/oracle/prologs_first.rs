//! **prologs-first**: no shell is started before the prologs of its job have ended well on all ranks
//! that they run on. **script-once**: a script is executed once, as long as the record of its unit is
//! on the disk.

use job_exec_rs::machine::Fault;
use job_exec_rs::proto::{Idset, Place, Stage, UnitName, WaitStatus};

use crate::manager::tolerance;
use crate::rank::Rank;
use crate::script::{Mark, Script, place};
use crate::world::World;

impl World {
    /// Checks a shell that was executed just now.
    pub(crate) fn check_prologs(&mut self, rank: u32, index: usize) {
        let shell = &self.ranks[rank as usize].shells[index];
        let (digest, unit) = (shell.digest.clone(), shell.unit.clone());
        let is_good = |script: &Script| {
            script.is(Stage::Prolog, &digest) && script.exited == Some(WaitStatus(0))
        };
        let has_ended_well = |rank: u32| self.ranks[rank as usize].scripts.iter().any(is_good);
        let ranks = self.ranks_with(Stage::Prolog, &digest);
        if let Some(missing) = ranks.iter().find(|rank| !has_ended_well(*rank)) {
            let seen = format!("{unit} runs, but no prolog has ended well on rank {missing}");
            return self.violate("prologs-first", seen);
        }
        self.check_degraded(&digest, &unit, &ranks);
    }

    /// **degraded-told**: a shell that is started although nodes are degraded has a job that bears so
    /// many, that begins on another one, and whose eventlog has told of them.
    fn check_degraded(&mut self, digest: &str, unit: &UnitName, ranks: &Idset) {
        // A prolog whose record was lost has run again, and the last one counts.
        let is_prolog = |script: &&Script| script.is(Stage::Prolog, digest);
        let last = |rank: u32| self.ranks[rank as usize].scripts.iter().rev().find(is_prolog);
        // What it has said of its node was lost with its record.
        let is_recorded = |rank: u32| !self.unrecorded.contains(&(digest.to_string(), rank));
        let has_marked = |rank| last(rank).is_some_and(|last| last.mark == Mark::Kept);
        let is_degraded = |rank: &u32| has_marked(*rank) && is_recorded(*rank);
        let degraded: Idset = ranks.iter().filter(is_degraded).collect();
        let most =
            self.site.as_ref().map_or(0, |site| site.max_tolerance).min(tolerance(unit.job()));
        let first = self.ranks_of(digest).first();
        let is_told = |rank| self.told_degraded.contains(&(digest.to_string(), rank));
        let is_first = first.is_some_and(|first| degraded.contains(first));
        if degraded.len() as u64 > u64::from(most) || is_first || !degraded.iter().all(is_told) {
            let seen = format!("{unit} runs with degraded nodes {degraded}: at most {most}");
            self.violate("degraded-told", seen);
        }
    }

    /// Checks the answer to a prolog whose mark was not taken.
    pub(crate) fn check_mark_refusal(&mut self, rank: u32, index: usize, fault: &Fault) {
        let Rank { scripts, disk_was_full, .. } = &self.ranks[rank as usize];
        let script = &scripts[index];
        let is_known = !self.unrecorded.contains(&(script.digest.clone(), rank));
        // One whose job the KVS has forgotten is refused.
        let job = self.manager.jobs.get(&script.unit.job());
        let is_wanted = job
            .and_then(|job| job.allocation.as_ref())
            .is_some_and(|known| known.digest == script.digest);
        if script.runs() && is_known && is_wanted && !disk_was_full {
            let seen = format!("{} may not mark its node: {fault}", script.unit);
            self.violate("degraded-told", seen);
        }
    }

    /// The ranks on which a job gets this script.
    pub(super) fn ranks_with(&self, stage: Stage, digest: &str) -> Idset {
        let ranks = self.ranks_of(digest);
        match self.place_of(stage) {
            Some(Place::EachRank) => ranks,
            Some(Place::FirstRank) => ranks.iter().take(1).collect(),
            None => Idset::new(),
        }
    }

    pub(super) fn place_of(&self, stage: Stage) -> Option<Place> {
        self.site.as_ref().and_then(|site| place(site, stage))
    }

    /// Checks a script that was executed just now.
    pub(crate) fn check_script(&mut self, rank: u32, index: usize) {
        let Rank { scripts, .. } = &self.ranks[rank as usize];
        let (script, before) = (&scripts[index], &scripts[..index]);
        let (stage, digest) = (script.unit.stage(), script.digest.clone());
        let (unit, is_known) =
            (script.unit.clone(), !self.unrecorded.contains(&(digest.clone(), rank)));
        if is_known && before.iter().any(|other| other.is(stage, &digest)) {
            self.violate("script-once", format!("{unit} runs a second time"));
        }
        if stage == Stage::Epilog {
            self.check_epilog(rank, &digest, &unit);
        }
    }
}

//! **prologs-first**: no shell is started before the prologs of its job have ended well on all ranks
//! that they run on. **script-once**: a script is executed once, as long as the record of its unit is
//! on the disk.

use crate::adapter::sim::rank::Rank;
use crate::adapter::sim::script::{Script, place};
use crate::adapter::sim::world::World;
use crate::proto::{Idset, Place, Stage, WaitStatus};

impl World {
    /// Checks a shell that was executed just now.
    pub(in crate::adapter::sim) fn check_prologs(&mut self, rank: u32, index: usize) {
        let shell = &self.ranks[rank as usize].shells[index];
        let (digest, unit) = (shell.digest.clone(), shell.unit.clone());
        let is_good = |script: &Script| {
            script.is(Stage::Prolog, &digest) && script.exited == Some(WaitStatus(0))
        };
        let has_ended_well = |rank: u32| self.ranks[rank as usize].scripts.iter().any(is_good);
        let ranks = self.ranks_with(Stage::Prolog, &digest);
        if let Some(missing) = ranks.iter().find(|rank| !has_ended_well(*rank)) {
            let seen = format!("{unit} runs, but no prolog has ended well on rank {missing}");
            self.violate("prologs-first", seen);
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
    pub(in crate::adapter::sim) fn check_script(&mut self, rank: u32, index: usize) {
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

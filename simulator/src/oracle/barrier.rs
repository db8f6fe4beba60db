//! **barrier**: no shell leaves a barrier before every shell of the job has entered it. No shell is
//! refused at a barrier that another has left. Who leaves one finds in the KVS what all the others
//! wrote before they entered it. A shell from before the KVS went back need not: its connector
//! waits for that. Nor need one whose job has lost a shell already.

use std::collections::BTreeMap;

use crate::rank::Rank;
use crate::shell::{Shell, ShellId};
use crate::world::World;

impl World {
    /// Checks that a shell may leave its barrier of this number.
    pub(crate) fn check_barrier(&mut self, id: ShellId, number: u32) {
        let Shell { unit, digest, .. } = self.shell(id);
        let (unit, digest) = (unit.clone(), digest.clone());
        if self.messages.deceived.contains(&unit.job()) {
            return;
        }
        // That all have entered stays so, and what was found stays there until the KVS goes back. With
        // many ranks a look at all of them for each of them takes minutes.
        let barrier = (digest.clone(), number, self.kvs.rollbacks());
        if self.entered.contains(&barrier) {
            return;
        }
        let has_entered = |rank: &u32| {
            let state = &self.ranks[*rank as usize];
            let mut shells = state.shells_of(&digest);
            // Whom the kernel has killed may have passed it, for all that is known, if the record was
            // lost before ([record-lost-barrier]).
            let may_have = |shell: &Shell| state.files_lost && shell.oom_kills > 0 && !shell.runs();
            shells.any(|shell| shell.entered >= number || may_have(shell))
        };
        let late = self.ranks_of(&digest).iter().find(|rank| !has_entered(rank));
        if let Some(rank) = late {
            let seen = format!("{unit} leaves barrier {number}, which rank {rank} has not entered");
            self.violate("barrier", seen);
        }
        if self.check_written_before(id, number) && late.is_none() {
            self.entered.insert(barrier);
        }
    }

    /// Returns whether what each shell wrote was found.
    fn check_written_before(&mut self, id: ShellId, number: u32) -> bool {
        let Shell { unit, digest, rollbacks, .. } = self.shell(id);
        let (unit, digest) = (unit.clone(), digest.clone());
        let own = self.ranks[id.rank as usize].shells_of(&digest).next().map(Shell::writer);
        let is_first = own == Some(self.shell(id).writer());
        if *rollbacks != self.kvs.rollbacks() || !is_first {
            return false;
        }
        let ranks = self.ranks_of(&digest);
        let firsts =
            || ranks.iter().filter_map(|rank| self.ranks[rank as usize].shells_of(&digest).next());
        if firsts().any(|other| !other.works()) {
            return false;
        }
        let is_whole = |other: &&Shell| {
            let is_lost = other.record_lost || other.record_damaged || other.commits_lost;
            !other.before_reboot && !is_lost
        };
        let mut found: BTreeMap<&str, u32> = BTreeMap::new();
        for line in self.kvs.live_lines(unit.job()) {
            if let Some((writer, _)) = line.split_once(' ') {
                *found.entry(writer).or_default() += 1;
            }
        }
        let lacks = |other: &&Shell| {
            let done = other.done_before.get(number as usize - 1).copied().unwrap_or_default();
            done > 0 && found.get(other.writer().as_str()).copied().unwrap_or_default() < done
        };
        let other = firsts().filter(is_whole).find(lacks).map(|other| other.unit.to_string());
        let is_kept = other.is_none() && firsts().all(|other| is_whole(&other));
        if let Some(other) = other {
            let seen = format!(
                "{unit} leaves barrier {number}, and does not find what {other} wrote before"
            );
            self.violate("barrier", seen);
        }
        is_kept
    }

    /// Who has left the barrier at which this shell is refused now. A second shell on a rank, which was
    /// started because nothing says any more that there was a first, begins with a barrier that the
    /// others have left. So it and others can be refused.
    pub(crate) fn left_before(&self, id: ShellId) -> Option<String> {
        let shell = self.shell(id);
        let of_job = |rank: &'_ Rank| rank.shells_of(&shell.digest).count();
        if self.ranks.iter().any(|rank| of_job(rank) > 1) {
            return None;
        }
        let mut others = self.ranks.iter().flat_map(|rank| rank.shells_of(&shell.digest));
        let other = others.find(|other| other.released >= shell.entered);
        other.map(|other| other.unit.to_string())
    }

    /// Checks, at the end of the world, that each shell that was refused could be: its job has
    /// failed, or nobody had left the barrier.
    pub(super) fn check_refused(&mut self) {
        let mut seen = Vec::new();
        for (id, job) in &self.manager.jobs {
            let Some(allocation) = job.allocation.as_ref().filter(|_| !job.failed) else {
                continue;
            };
            if self.messages.deceived.contains(id) {
                continue;
            }
            for shell in self.ranks.iter().flat_map(|rank| rank.shells_of(&allocation.digest)) {
                if let Some(other) = &shell.refused_after {
                    let (unit, number) = (&shell.unit, shell.entered);
                    seen.push(format!(
                        "{unit} is refused at barrier {number}, which {other} has left"
                    ));
                }
            }
        }
        for seen in seen {
            self.violate("barrier", seen);
        }
    }
}

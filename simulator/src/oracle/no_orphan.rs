//! **no-orphan**: soon after the instance is back, each unit belongs to a job that the job
//! manager knows as running. At the end all jobs have ended, so nothing is left: no process, no
//! unit, no record, no output file.

use std::collections::BTreeMap;

use crate::request::Life;
use crate::shell::ShellId;
use crate::world::World;

/// How long a rank may take to find out that a shell is forgotten and to end it, without the time
/// that the shell has to end by itself, in seconds.
const FIND_SECONDS: f64 = 10.0;

impl World {
    /// A shell that the instance has forgotten does not live on when rank 0 and the shell's rank have
    /// been back for a while.
    pub(crate) fn check_forgotten(&mut self) {
        let before = std::mem::take(&mut self.forgotten);
        let mut forgotten = BTreeMap::new();
        let mut late = Vec::new();
        for key in self.forgotten_shells() {
            let since = before.get(&key).copied().unwrap_or(self.now);
            forgotten.insert(key, since);
            let rank = &self.ranks[key.0.rank as usize];
            let kill_timeout = rank.node.as_ref().map_or(0.0, |node| node.config().kill_timeout);
            let seconds = self.now - since;
            if seconds > FIND_SECONDS + kill_timeout {
                late.push(format!(
                    "{} is forgotten, and lives {seconds:.0} s after rank 0 was back",
                    rank.shells[key.0.index].unit
                ));
            }
        }
        self.forgotten = forgotten;
        for seen in late {
            self.violate("no-orphan", seen);
        }
    }

    /// Shells that live and whose jobs the job manager does not have, on ranks that can find out: with
    /// the lives of their module and of rank 0's. A rank that the job gave up on was drained, and its
    /// shell can live longer: the orders go through another rank, which may stall.
    fn forgotten_shells(&self) -> Vec<(ShellId, Life, Life)> {
        let works = |rank: u32| {
            let state = &self.ranks[rank as usize];
            let is_connected =
                state.supervisor.as_ref().is_some_and(|own| own.connection.is_some());
            let has_bus = is_connected && state.systemd.passes_all();
            let is_up = state.node.is_some() && !state.is_leaving && !state.is_other_release;
            is_up && has_bus && !self.was_silent(rank) && state.stalled_until <= self.now
        };
        if !works(0) {
            return Vec::new();
        }
        let ranks = (0..self.profile.ranks).filter(|rank| works(*rank));
        ranks
            .flat_map(|rank| {
                let shells = self.ranks[rank as usize].shells.iter().enumerate();
                let forgotten = shells.filter(move |(_, shell)| {
                    let is_drained = self.drained.contains(&(shell.digest.clone(), rank));
                    shell.runs()
                        && !is_drained
                        && !self.manager.may_have(shell.unit.job(), &shell.digest)
                });
                let lives = (self.life(rank), self.life(0));
                forgotten.map(move |(index, _)| (ShellId { rank, index }, lives.0, lives.1))
            })
            .collect()
    }

    pub(super) fn check_units(&mut self) {
        let mut seen = Vec::new();
        for (rank, state) in self.ranks.iter().enumerate() {
            let living = state.shells.iter().filter(|shell| shell.lives());
            seen.extend(living.map(|shell| format!("{} still lives", shell.unit)));
            seen.extend(state.systemd.units().map(|unit| format!("systemd still has {unit}")));
            let slices = state.systemd.slice_names().into_iter();
            seen.extend(slices.map(|slice| format!("systemd still has {slice}")));
            let files = state.disk.files().into_iter();
            seen.extend(files.map(|file| format!("{file} is left on the disk of rank {rank}")));
        }
        for seen in seen {
            self.violate("no-orphan", seen);
        }
    }
}

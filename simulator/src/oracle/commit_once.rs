//! **commit-once**: each commit of a shell to its job's guest namespace is there once and in order,
//! even if the KVS went back while the shell ran, or later. A commit that was answered is there. There
//! are these exceptions: the shell was killed, its node was powered off or given up, or its record
//! was lost. No commit of another run of the job is there, but of a shell that
//! systemd has executed only after the second run got its resources.

use std::collections::BTreeSet;

use job_exec_rs::proto::{BrokerRank, JobId};

use crate::manager::Allocation;
use crate::shell::Shell;
use crate::world::World;

impl World {
    pub(super) fn check_lines(&mut self, id: JobId) {
        let Some(notes) = self.kvs.lines(id).map(<[String]>::to_vec) else { return };
        let Some(Allocation { digest, starttime, .. }) = self.manager.jobs[&id].allocation.clone()
        else {
            return;
        };
        let log = self.kvs.moved_log(id).unwrap_or_default();
        let mut seen = Vec::new();
        let all = self.ranks.iter().flat_map(|state| &state.shells);
        let may_write =
            |shell: &&Shell| shell.digest == digest || shell.last_allocation >= starttime;
        let own: BTreeSet<String> = if notes.is_empty() {
            BTreeSet::new()
        } else {
            all.filter(may_write).map(Shell::writer).collect()
        };
        let is_foreign =
            |note: &&String| note.split_once(' ').is_none_or(|(writer, _)| !own.contains(writer));
        if let Some(note) = notes.iter().find(is_foreign) {
            seen.push(format!("{id}: line {note} is of another run of the job"));
        }
        for (rank, state) in (0..).zip(&self.ranks) {
            // A rank that the last leader never heard is drained, and nothing is known to be missing.
            let is_given_up = || {
                self.drained.contains(&(digest.clone(), rank))
                    || log.iter().any(|e| e.logged_missing() == Some(BrokerRank(rank)))
            };
            for shell in state.shells_of(&digest) {
                let name = shell.writer();
                let of_shell = |note: &String| {
                    let (writer, number) = note.split_once(' ')?;
                    (writer == name).then(|| number.parse::<u32>().ok())?
                };
                let numbers: Vec<u32> = notes.iter().filter_map(of_shell).collect();
                let taken =
                    (0..shell.lines_sent).filter(|number| !shell.lines_refused.contains(number));
                let in_order = numbers.iter().copied().eq(taken.take(numbers.len()));
                let is_excused = || {
                    !shell.has_closed || shell.before_reboot || shell.commits_lost || is_given_up()
                };
                if !in_order || ((numbers.len() as u32) < shell.lines_done && !is_excused()) {
                    let done = shell.lines_done;
                    seen.push(format!(
                        "{}: {done} lines were answered, the KVS has {numbers:?}",
                        shell.unit
                    ));
                }
            }
        }
        for seen in seen {
            self.violate("commit-once", seen);
        }
    }
}

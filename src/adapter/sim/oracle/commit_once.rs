//! **commit-once**: each commit of a shell to its job's guest namespace is there once and in order,
//! even if the KVS went back while the shell ran. A commit that was answered is there, unless the
//! shell ended without a connection, or rank 0's broker died after the shell ended. In these two
//! cases nobody is left to make the commit again.

use crate::adapter::sim::world::World;
use crate::proto::JobId;

impl World {
    pub(super) fn check_lines(&mut self, id: JobId) {
        let Some(notes) = self.kvs.lines(id).map(<[String]>::to_vec) else { return };
        let Some(digest) = self.manager.jobs[&id].allocation.as_ref().map(|a| a.digest.clone())
        else {
            return;
        };
        let now = Some(self.ranks[0].brokers);
        let mut seen = Vec::new();
        for state in &self.ranks {
            for shell in state.shells_of(&digest) {
                let name = format!("{}/{}", shell.unit, shell.invocation);
                let of_shell = |note: &String| {
                    let (writer, number) = note.split_once(' ')?;
                    (writer == name).then(|| number.parse::<u32>().ok())?
                };
                let numbers: Vec<u32> = notes.iter().filter_map(of_shell).collect();
                let taken =
                    (0..shell.lines_sent).filter(|number| !shell.lines_refused.contains(number));
                let in_order = numbers.iter().copied().eq(taken.take(numbers.len()));
                let kept =
                    shell.ended_with_broker != now || numbers.len() as u32 >= shell.lines_done;
                if !in_order || (!kept && !shell.before_reboot) {
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

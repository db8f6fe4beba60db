//! **channel-once**: what a shell has sent to another shell of its job arrives once and in order, and
//! at none of another run of the job. Each request that wants an answer has one, also if the shell
//! that has answered it has ended since, unless the leader shell has. If the job had no exception, its
//! leader shell has heard all that the others have sent before they closed their connections. It need
//! not, if it was ended by a signal, or did not come through the barriers, and so did not wait for
//! them.

use job_exec_rs::proto::JobId;

use crate::packet::SimPacket;
use crate::shell::{Shell, ShellId};
use crate::world::World;

const NAME: &str = "channel-once";
/// Seconds for which a shell waits for others that may need its answers (rfc/0010, answers-linger),
/// less what rounding can take.
const LINGER_MAX: f64 = 119.0;

impl World {
    /// Checks a request that a shell hears. It may not be the first one of its sender if another
    /// shell of a job with this id has heard the others.
    pub(crate) fn check_heard(&mut self, id: ShellId, from: ShellId, number: u32) {
        let shell = self.shell(id);
        if self.shell(from).digest != shell.digest {
            let sender = &self.shell(from).unit;
            let seen = format!("{} hears {sender}, which is of another run of the job", shell.unit);
            return self.violate(NAME, seen);
        }
        let known = shell.talk.heard.get(&from).copied();
        let of_job = |other: &&Shell| other.unit == shell.unit;
        let is_second = self.ranks[id.rank as usize].shells.iter().filter(of_job).count() > 1;
        if number != known.unwrap_or_default() && !(known.is_none() && is_second) {
            let sender = &self.shell(from).unit;
            let seen = format!("{} hears {number} of {sender}, after {known:?}", shell.unit);
            self.violate(NAME, seen);
        }
    }

    /// Checks the answer to the request `asked`: its receiver and number. Only a shell that has
    /// ended does not answer. A second one, which was started because nothing said any more that
    /// there was a first, is not the one that was asked.
    pub(crate) fn check_heard_answer(
        &mut self,
        id: ShellId,
        asked: Option<(u32, u32)>,
        answer: &SimPacket,
    ) {
        let shell = self.shell(id);
        let Some((to, number)) = asked else {
            let seen = format!("{} hears an answer twice: {answer:?}", shell.unit);
            return self.violate(NAME, seen);
        };
        let first = self.ranks[to as usize].shells_of(&shell.digest).next();
        // One that has given its service up does not get it again from a broker that is back.
        let is_there = first.is_some_and(|first| first.works() && first.leaving.is_none());
        // It may give up on a shell whose rank was lost for good.
        let has_waited = |first: &Shell| first.has_closed && first.lingered < LINGER_MAX;
        // It need not wait when the leader shell has ended: all tasks have, or the job was ended.
        let leader = self.ranks_of(&shell.digest).first();
        let leader =
            leader.and_then(|rank| self.ranks[rank as usize].shells_of(&shell.digest).next());
        let is_led = leader.is_none_or(Shell::works);
        let is_kept = |first: &Shell| {
            is_led && has_waited(first) && first.talk.answered.contains(&(id, number))
        };
        let broken = match answer.errnum() {
            0 => answer.json()["n"] != number || answer.json()["rank"] != id.rank,
            _ => is_there || first.is_some_and(is_kept),
        };
        if broken {
            let seen = format!("{} asked {number} of rank {to}: {answer:?}", shell.unit);
            self.violate(NAME, seen);
        }
    }

    /// Checks what shells have heard, at the end of the world.
    pub(super) fn check_talks(&mut self) {
        let jobs: Vec<JobId> = self.manager.jobs.keys().copied().collect();
        for id in jobs {
            let job = &self.manager.jobs[&id];
            let Some(allocation) = job.allocation.clone().filter(|_| !job.failed) else { continue };
            if !self.messages.deceived.contains(&id) {
                self.check_talk(&allocation.digest);
            }
        }
    }

    fn check_talk(&mut self, digest: &str) {
        let ranks = self.ranks_of(digest);
        let ids: Vec<ShellId> = ranks
            .iter()
            .flat_map(|rank| {
                let shells = self.ranks[rank as usize].shells.iter().enumerate();
                let of_job = shells.filter(|(_, shell)| shell.digest == digest);
                of_job.map(move |(index, _)| ShellId { rank, index })
            })
            .collect();
        let mut seen = Vec::new();
        for id in &ids {
            let shell = self.shell(*id);
            if shell.works() && shell.talk.ending.is_some() {
                let talk = &shell.talk;
                seen.push(format!("{} waits to hear of others: {talk:?}", shell.unit));
            }
            let has_waited =
                shell.talk.is_over && shell.exited.is_some_and(|s| s.signal().is_none());
            // A second one runs where the first was forgotten. The leader shell has not waited for
            // it. If it is the leader shell itself, the others have talked to the first.
            let is_first =
                |from: &&ShellId| ids.iter().find(|id| id.rank == from.rank) == Some(from);
            let is_leader = Some(id.rank) == ranks.first() && is_first(&id);
            if !shell.has_closed || !has_waited || !is_leader {
                continue;
            }
            let froms = ids.iter().filter(|from| self.shell(**from).has_closed).filter(is_first);
            for from in froms {
                let sent = self.shell(*from).talk.sent.get(&id.rank).copied().unwrap_or_default();
                let heard = shell.talk.heard.get(from).copied().unwrap_or_default();
                if heard != sent {
                    let unit = &self.shell(*from).unit;
                    seen.push(format!("{} heard {heard} of {sent} from {unit}", shell.unit));
                }
            }
        }
        for seen in seen {
            self.violate(NAME, seen);
        }
    }
}

//! Commits that clients of a job have left on this rank: flux-shell, and commands of its tasks.
//!
//! A guest namespace goes back to its last checkpoint, or is empty, when rank 0's broker dies. A
//! client that lives does its commits again. For a client that has ended its rank does. If both did
//! them at once, each would be done twice. So the rank waits for the end of a shell, which hands its
//! commits over before. Another client leaves them to the rank once it has offered them: if its broker
//! is lost before it has the answer, it offers them again, and then the rank does them at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::machine::effect::{Effect, Effects, KvsOp};
use crate::machine::event::{Fault, RequestId};
use crate::machine::mono_time::MonoTime;
use crate::machine::{COMMIT_PAUSE, COMMIT_TRIES};
use crate::proto::{Bequest, JobId};

/// How much is kept for one job on one rank, in bytes. A client that leaves more waits for a
/// checkpoint.
const KEPT_MAX: usize = 16 << 20;

/// How much is kept for all jobs of one user on one rank, in bytes: a user can have many.
const USER_KEPT_MAX: usize = 64 << 20;

/// All that clients have left.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClientCommits {
    bequests: BTreeMap<String, Arc<Bequest>>,
    bytes: usize,
    /// Clients that wait until their commits are on the disk.
    waiting: Vec<(String, RequestId)>,
    /// Clients whose commits are on their way to the disk. They may have gone without waiting.
    unwritten: BTreeSet<String>,
    /// Clients whose commits are being done again.
    again: BTreeMap<String, Again>,
    /// The shell's commits are to be done again when it has ended.
    is_shells_due: bool,
    /// A leader has asked for what is kept.
    is_led: bool,
}

/// Commits that are being done again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Again {
    failures: u32,
    /// When they are tried the next time; none while they are under way.
    at: Option<MonoTime>,
}

impl ClientCommits {
    /// How much is kept, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a bequest. So many bytes are kept for other jobs of the same user.
    ///
    /// # Errors
    /// `EPROTO` if it is no client's, `EBUSY` if its last ones are not written yet, `ENOSPC` if there is no
    /// room.
    pub(super) fn take(
        &mut self,
        id: JobId,
        bequest: &Arc<Bequest>,
        others: usize,
    ) -> Result<(), Fault> {
        if !bequest.is_valid() {
            let message = format!("{id}: client {:?}: expected 16 hex digits", bequest.client);
            return Err(Fault::new(libc::EPROTO, message));
        }
        // What waits for the disk is in memory, beside what takes its place.
        if self.unwritten.contains(&bequest.client) {
            let message =
                format!("{id}: client {}: its last commits are not written yet", bequest.client);
            return Err(Fault::new(libc::EBUSY, message));
        }
        let before = self.bequests.get(&bequest.client).map_or(0, |kept| kept.size());
        let bytes = self.bytes - before + bequest.size();
        if bytes > KEPT_MAX {
            let message = format!("{id}: {bytes} bytes of commits on one rank: at most {KEPT_MAX}");
            return Err(Fault::new(libc::ENOSPC, message));
        }
        let all = others.saturating_add(bytes);
        if all > USER_KEPT_MAX {
            let message = format!(
                "{id}: {all} bytes of commits of its user on one rank: at most {USER_KEPT_MAX}"
            );
            return Err(Fault::new(libc::ENOSPC, message));
        }
        self.bytes = bytes;
        self.bequests.insert(bequest.client.clone(), Arc::clone(bequest));
        Ok(())
    }

    /// The client is answered when its commits are on the disk.
    pub(super) fn wait(&mut self, to: RequestId, client: &str) {
        self.waiting.push((client.to_string(), to));
        self.unwritten.insert(client.to_string());
    }

    /// Commits are on the disk, or cannot be written there. Then their client has to see to it that
    /// a checkpoint has them.
    pub(super) fn handle_written(
        &mut self,
        id: JobId,
        client: &str,
        is_written: bool,
        out: &mut Effects,
    ) {
        self.unwritten.remove(client);
        let message = format!("{id}: no commits can be kept on this rank");
        let result = if is_written { Ok(()) } else { Err(Fault::new(libc::ENOSPC, message)) };
        for (_, to) in self.waiting.extract_if(.., |(name, _)| name == client) {
            out.done(to, result.clone());
        }
        if is_written && self.is_led {
            self.commit_all(id, |bequest| bequest.again && bequest.client == client, out);
        }
    }

    /// The module is being unloaded: clients that wait offer their commits to the next one.
    pub(super) fn shut_down(&mut self, id: JobId, out: &mut Effects) {
        for (_, to) in self.waiting.drain(..) {
            let message = format!("{id}: job-exec-rs is being unloaded on this rank");
            out.done(to, Err(Fault::new(libc::ENOSYS, message)));
        }
    }

    /// Forgets a client that does not wait any more. Returns whether it did.
    pub(super) fn is_left_by(&mut self, request: RequestId) -> bool {
        self.waiting.extract_if(.., |(_, to)| *to == request).next().is_some()
    }

    /// A new leader: the namespace may have lost commits.
    pub(super) fn commit_again(&mut self, id: JobId, has_shell_ended: bool, out: &mut Effects) {
        (self.is_led, self.is_shells_due) = (true, !has_shell_ended);
        self.commit_all(id, |bequest| has_shell_ended || !bequest.shell, out);
    }

    /// The shell has ended.
    pub(super) fn handle_shell_end(&mut self, id: JobId, out: &mut Effects) {
        if std::mem::take(&mut self.is_shells_due) {
            self.commit_all(id, |bequest| bequest.shell, out);
        }
    }

    fn commit_all(&mut self, id: JobId, is_due: impl Fn(&Bequest) -> bool, out: &mut Effects) {
        for (client, bequest) in self.bequests.iter().filter(|(_, bequest)| is_due(bequest)) {
            // A new leader is a reason to try as often again.
            let before = self.again.insert(client.clone(), Again::default());
            if before.is_none_or(|before| before.at.is_some()) {
                let op = KvsOp::Recommit(Arc::clone(bequest));
                out.push(Effect::Kvs { id, op });
            }
        }
    }

    /// Commits were done again, or could not be. Returns whether they are tried once more.
    pub(super) fn handle_recommitted(
        &mut self,
        now: MonoTime,
        client: &str,
        is_done: bool,
    ) -> bool {
        let Some(again) = self.again.get_mut(client) else { return false };
        again.failures += 1;
        if is_done || again.failures >= COMMIT_TRIES {
            self.again.remove(client);
            return false;
        }
        again.at = Some(now + COMMIT_PAUSE);
        true
    }

    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        self.again.values().filter_map(|again| again.at).min()
    }

    /// Tries those again whose pause is over.
    pub(super) fn handle_timeout(&mut self, now: MonoTime, id: JobId, out: &mut Effects) {
        for (client, again) in &mut self.again {
            if again.at.take_if(|at| *at <= now).is_some()
                && let Some(bequest) = self.bequests.get(client)
            {
                out.push(Effect::Kvs { id, op: KvsOp::Recommit(Arc::clone(bequest)) });
            }
        }
    }

    /// The namespace has all commits of clients that have ended, as far as this rank can see to it.
    pub(super) fn is_settled(&self) -> bool {
        self.again.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: JobId = JobId(7);
    const NOW: MonoTime = MonoTime(1.0);

    fn bequest(client: &str, size: usize) -> Arc<Bequest> {
        let commit = json!({ "flags": 0, "ops": ["x".repeat(size)] });
        let commits = json!([{ "number": 1, "commit": commit }]);
        let bequest = json!({ "client": client, "shell": false, "commits": commits });
        Arc::new(serde_json::from_value(bequest).expect("a bequest"))
    }

    #[test]
    fn what_is_kept_has_a_limit_and_what_is_left_again_counts_once() {
        let (client, other) = ("0011223344556677", "8899aabbccddeeff");
        let mut kept = ClientCommits::default();
        let half = bequest(client, KEPT_MAX / 2);
        assert_eq!(kept.take(ID, &half, 0), Ok(()));
        assert_eq!(kept.take(ID, &half, 0), Ok(()));
        let refused = kept.take(ID, &bequest(other, KEPT_MAX / 2), 0).expect_err("refused");
        assert_eq!(refused.errnum, libc::ENOSPC);
        assert_eq!(kept.take(ID, &bequest(other, 10), 0), Ok(()));
        let others = USER_KEPT_MAX - kept.bytes();
        let refused = kept.take(ID, &bequest("7766554433221100", 10), others).expect_err("refused");
        assert_eq!(refused.errnum, libc::ENOSPC);
        assert!(refused.message.contains("of its user"), "{}", refused.message);
        assert_eq!(kept.take(ID, &bequest(other, 10), others), Ok(()), "no more than before");
        let refused = kept.take(ID, &bequest("x", 10), 0).expect_err("refused");
        assert_eq!(refused.errnum, libc::EPROTO);
    }

    #[test]
    fn a_client_leaves_nothing_more_while_it_waits() {
        let (client, other) = ("0011223344556677", "8899aabbccddeeff");
        let (mut kept, mut out) = (ClientCommits::default(), Effects::default());
        let errnum = |kept: &mut ClientCommits, client| {
            kept.take(ID, &bequest(client, 10), 0).map_err(|fault| fault.errnum)
        };
        assert_eq!(errnum(&mut kept, client), Ok(()));
        kept.wait(RequestId::Remote(1), client);
        assert_eq!(errnum(&mut kept, client), Err(libc::EBUSY));
        assert_eq!(errnum(&mut kept, other), Ok(()));
        kept.handle_written(ID, client, true, &mut out);
        assert_eq!(errnum(&mut kept, client), Ok(()));
        kept.wait(RequestId::Remote(2), client);
        assert!(kept.is_left_by(RequestId::Remote(2)));
        assert_eq!(errnum(&mut kept, client), Err(libc::EBUSY), "it is not written yet");
    }

    #[test]
    fn each_is_done_again_once_for_all_leaders_that_ask_meanwhile() {
        let client = "0011223344556677";
        let (mut kept, mut out) = (ClientCommits::default(), Effects::default());
        assert_eq!(kept.take(ID, &bequest(client, 10), 0), Ok(()));
        kept.commit_again(ID, true, &mut out);
        kept.commit_again(ID, true, &mut out);
        assert_eq!(out.list.len(), 1);
        assert!(!kept.is_settled());
        kept.handle_recommitted(NOW, client, true);
        assert!(kept.is_settled());
        kept.commit_again(ID, true, &mut out);
        assert_eq!(out.list.len(), 2);
    }

    #[test]
    fn what_is_offered_again_is_done_at_once() {
        let (client, other) = ("0011223344556677", "8899aabbccddeeff");
        let (mut kept, mut out) = (ClientCommits::default(), Effects::default());
        let again = Bequest { again: true, ..Bequest::clone(&bequest(client, 10)) };
        assert_eq!(kept.take(ID, &Arc::new(again), 0), Ok(()));
        assert_eq!(kept.take(ID, &bequest(other, 10), 0), Ok(()));
        kept.handle_written(ID, client, true, &mut out);
        assert_eq!(out.list, [], "the leader will ask");
        kept.commit_again(ID, true, &mut out);
        kept.handle_recommitted(NOW, client, true);
        kept.handle_recommitted(NOW, other, true);
        let of = |out: &Effects| format!("{:?}", out.list).matches("client").count();
        assert_eq!(of(&out), 2);
        kept.handle_written(ID, other, true, &mut out);
        kept.handle_written(ID, client, false, &mut out);
        assert_eq!(of(&out), 2, "the client of one has seen to it, that of the other will");
        kept.handle_written(ID, client, true, &mut out);
        assert_eq!(of(&out), 3);
        assert!(!kept.is_settled());
    }

    #[test]
    fn the_shells_are_done_again_when_it_has_ended() {
        let (mut kept, mut out) = (ClientCommits::default(), Effects::default());
        let (shells, others) = ("0011223344556677", "8899aabbccddeeff");
        let of_shell = Bequest { shell: true, ..Bequest::clone(&bequest(shells, 10)) };
        assert_eq!(kept.take(ID, &Arc::new(of_shell), 0), Ok(()));
        assert_eq!(kept.take(ID, &bequest(others, 10), 0), Ok(()));
        kept.handle_shell_end(ID, &mut out);
        assert_eq!(out.list, [], "no leader asks");
        let of = |out: &Effects| format!("{:?}", out.list).matches("client").count();
        kept.commit_again(ID, false, &mut out);
        assert_eq!(of(&out), 1);
        kept.handle_shell_end(ID, &mut out);
        kept.handle_shell_end(ID, &mut out);
        assert_eq!(of(&out), 2, "{:?}", out.list);
    }
}

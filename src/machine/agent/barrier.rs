//! One shell's way through the shell barrier.

use crate::machine::effect::{Effect, Effects};
use crate::machine::event::{Fault, RequestId};
use crate::proto::peer::Report;
use crate::proto::{BarrierClients, BarrierEntry, ENTRIES_MAX};

/// The shell's entries, and requests that wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entries {
    entered: u32,
    /// How often it had entered as its record has it. What is above `entered` is not said again yet.
    found: u32,
    /// Barriers that it was let go from, as its record has it.
    passed: u32,
    clients: BarrierClients,
    /// Who has entered is news since the record was written.
    new_clients: bool,
    /// Barriers that the leader has completed.
    completed: u32,
    /// Every entry past `completed` fails.
    has_failed: bool,
    /// Requests that wait, with their entry.
    waiting: Vec<(u32, RequestId)>,
}

impl Entries {
    /// As the record of an earlier life has it. [`Self::count_found`] follows.
    pub(super) fn find(&mut self, entered: u32) {
        self.found = entered.min(ENTRIES_MAX);
    }

    /// As [`Self::find`].
    pub(super) fn find_clients(&mut self, clients: BarrierClients) {
        self.clients = clients;
    }

    /// As [`Self::find`].
    pub(super) fn find_passed(&mut self, passed: u32) {
        self.passed = passed;
    }

    /// Counts what is certain of the record. An entry whose barrier was not complete counts when it
    /// is said again. The KVS may have lost what the shell wrote before it, and its connector writes
    /// that again first. Who passed the barrier earlier would not find it. A client without a name
    /// says nothing again.
    pub(super) fn count_found(&mut self) {
        let waits = self.clients.has_name();
        self.entered = if waits { self.passed.min(self.found) } else { self.found };
    }

    /// The shell has ended, and says nothing again. Returns whether it has entered more often than
    /// was said.
    pub(super) fn count_all(&mut self) -> bool {
        let is_news = self.found > self.entered;
        self.entered = self.entered.max(self.found);
        is_news
    }

    /// How often the shell has entered.
    pub(super) fn count(&self) -> u32 {
        self.entered
    }

    /// What a leader is to know, if there is anything.
    pub(super) fn report(&self) -> Option<Report> {
        let found = if self.found > self.entered { self.found } else { 0 };
        let (entered, been) = (self.entered, self.entered.max(found));
        // Who is in a barrier has passed the one before, without saying so.
        let passed = if self.passed >= been { self.passed } else { 0 };
        (been > 0).then_some(Report::Barrier { entered, found, passed })
    }

    /// Who has entered, if that is news for the record.
    pub(super) fn take_new_clients(&mut self) -> Option<BarrierClients> {
        std::mem::take(&mut self.new_clients).then(|| self.clients.clone())
    }

    /// Takes an entry: the given one, or else the next. Returns whether it is a new one that waits,
    /// or nothing if there can be no such entry. Then the request was answered with an error.
    pub(super) fn take(
        &mut self,
        to: RequestId,
        entry: Option<BarrierEntry>,
        out: &mut Effects,
    ) -> Option<bool> {
        let before = self.clients.clone();
        let entry = self.clients.place(self.entered.max(self.found), entry);
        self.new_clients |= self.clients != before;
        if !(1..=ENTRIES_MAX).contains(&entry) {
            let message = format!("entry {entry} of a shell barrier: expected 1 to {ENTRIES_MAX}");
            out.barrier(to, Err(Fault::new(libc::EINVAL, message)));
            return None;
        }
        let is_news = entry > self.entered;
        self.entered = self.entered.max(entry);
        if entry <= self.completed {
            out.barrier(to, Ok(()));
        } else if self.has_failed {
            out.barrier(to, Err(failed()));
        } else {
            // Asked again: nobody waits for the first answer any more.
            let is_same = |(known, _): &mut (u32, RequestId)| *known == entry;
            if let Some((_, old)) = self.waiting.extract_if(.., is_same).next() {
                out.push(Effect::Drop { to: old });
            }
            self.waiting.push((entry, to));
            return Some(is_news);
        }
        Some(false)
    }

    /// The leader lets shells go that have entered up to `count` times. With `failed_now` all other
    /// entries fail.
    pub(super) fn release(&mut self, count: u32, failed_now: bool, out: &mut Effects) {
        self.completed = self.completed.max(count);
        self.has_failed |= failed_now;
        let (completed, all) = (self.completed, self.has_failed);
        for (entry, to) in self.waiting.extract_if(.., |(entry, _)| all || *entry <= completed) {
            out.barrier(to, if entry <= completed { Ok(()) } else { Err(failed()) });
        }
    }

    /// How many barriers the shell has passed, if that is news for the record.
    pub(super) fn take_new_passed(&mut self) -> Option<u32> {
        let passed = self.completed.min(self.entered);
        let is_news = passed > self.passed;
        self.passed = self.passed.max(passed);
        is_news.then_some(passed)
    }

    /// The shell has ended: nobody is there to be answered.
    pub(super) fn drop_all(&mut self, out: &mut Effects) {
        for (_, to) in self.waiting.drain(..) {
            out.push(Effect::Drop { to });
        }
    }

    /// The module is unloaded: a client enters again when the next one is there.
    pub(super) fn shut_down(&mut self, out: &mut Effects) {
        for (_, to) in self.waiting.drain(..) {
            let fault = Fault::new(libc::ENOSYS, "job-exec-rs is being unloaded");
            out.barrier(to, Err(fault));
        }
    }
}

fn failed() -> Fault {
    Fault::new(libc::EIO, "shell barrier failed")
}

//! Who waits for a checkpoint of a guest namespace. Users may ask, so each job and each user has a
//! limit of its own.

use std::collections::BTreeMap;

use crate::machine::event::{Fault, RequestId};
use crate::proto::JobId;

/// Requests of one job that may wait at a time. More are told to try again later.
const ASKED_PER_JOB_MAX: usize = 1024;
/// Requests of one user that may wait at a time.
const ASKED_PER_USER_MAX: usize = 4096;

/// The job that a request is about, and the user who asks.
type Asker = (JobId, u32);

/// Requests that wait for the next checkpoint, and for the one under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked {
    next: BTreeMap<RequestId, Asker>,
    under_way: BTreeMap<RequestId, Asker>,
    /// How many requests there are in both maps. No entry is zero.
    per_job: BTreeMap<JobId, usize>,
    per_user: BTreeMap<u32, usize>,
}

impl Asked {
    /// Takes a request of a user, if neither the job nor the user has too many.
    pub(super) fn take(&mut self, to: RequestId, id: JobId, userid: u32) -> Result<(), Fault> {
        let waiting = |whose: &str, count: usize| {
            let text = format!("{count} requests of this {whose} wait for a checkpoint already");
            Err(Fault::new(libc::EBUSY, text))
        };
        if self.per_job.get(&id).is_some_and(|count| *count >= ASKED_PER_JOB_MAX) {
            return waiting("job", ASKED_PER_JOB_MAX);
        }
        if self.per_user.get(&userid).is_some_and(|count| *count >= ASKED_PER_USER_MAX) {
            return waiting("user", ASKED_PER_USER_MAX);
        }
        self.next.insert(to, (id, userid));
        *self.per_job.entry(id).or_default() += 1;
        *self.per_user.entry(userid).or_default() += 1;
        Ok(())
    }

    pub(super) fn contains(&self, to: RequestId) -> bool {
        self.next.contains_key(&to) || self.under_way.contains_key(&to)
    }

    /// Drops a request that nobody waits for any more. Returns whether there was one.
    pub(super) fn remove(&mut self, to: RequestId) -> bool {
        let removed = self.next.remove(&to).or_else(|| self.under_way.remove(&to));
        removed.map(|asker| self.release(asker)).is_some()
    }

    fn release(&mut self, (id, userid): Asker) {
        one_less(&mut self.per_job, id);
        one_less(&mut self.per_user, userid);
    }

    /// Jobs that the next checkpoint is to hold.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.next.values().map(|(id, _)| *id)
    }

    /// A checkpoint begins.
    pub(super) fn begin(&mut self) {
        self.under_way = std::mem::take(&mut self.next);
    }

    /// The checkpoint under way is made. Returns the requests to answer.
    pub(super) fn take_made(&mut self) -> impl Iterator<Item = RequestId> {
        let made = std::mem::take(&mut self.under_way);
        made.values().for_each(|asker| self.release(*asker));
        made.into_keys()
    }

    /// The checkpoint under way has failed. Its requests wait for the next one.
    pub(super) fn put_back(&mut self) {
        self.next.append(&mut self.under_way);
    }

    /// No checkpoint will be made any more. Returns all requests.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = RequestId> {
        let all = std::mem::take(self);
        all.next.into_keys().chain(all.under_way.into_keys())
    }
}

fn one_less<K: Ord + Copy>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_for_those_who_are_gone() {
        let mut asked = Asked::default();
        for number in 0..6 {
            asked.take(RequestId::Remote(number), JobId(number % 2), 500).unwrap();
        }
        assert!(asked.remove(RequestId::Remote(0)));
        assert!(!asked.remove(RequestId::Remote(0)));
        asked.begin();
        assert!(asked.remove(RequestId::Remote(1)));
        asked.take(RequestId::Remote(9), JobId(7), 501).unwrap();
        asked.put_back();
        assert!(asked.contains(RequestId::Remote(2)) && asked.contains(RequestId::Remote(9)));
        asked.begin();
        assert_eq!(asked.take_made().count(), 5);
        assert_eq!(asked, Asked::default());
    }
}

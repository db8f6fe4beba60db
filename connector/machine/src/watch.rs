//! Which answers of a streaming watch the client has had, so that a repeated watch continues
//! after them.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};

/// Entries of a log that are remembered one by one. When the KVS goes back to a checkpoint, up to
/// this many entries may be lost and be written again in another order, and the client is still
/// given each of them once.
pub const TAIL_MAX: usize = 4096;

/// The answers of a watch that were delivered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// A log that only grows: each answer is one entry.
    Entries(Entries),
    /// A value: an answer replaces the one before.
    Value(Value),
}

/// See [`Seen::Entries`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entries {
    /// How many entries were delivered.
    count: u64,
    /// Hashes of the last ones.
    tail: VecDeque<u64>,
    /// The empty answer after the initial entries (job-info's and kvs-watch's
    /// `INITIAL_SENTINEL`) was delivered.
    sentinel: bool,
    /// Set while delivered entries arrive again.
    again: Option<Again>,
}

/// Entries that are expected a second time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Again {
    /// How many of the first entries to skip.
    first: u64,
    /// Hashes of the entries to skip after these, in any order.
    tail: BTreeMap<u64, u32>,
}

/// See [`Seen::Value`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Value {
    last: Option<u64>,
    resumed: bool,
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

impl Seen {
    /// The watch is repeated: its answers start from the beginning.
    pub(crate) fn resume(&mut self) {
        match self {
            Seen::Entries(entries) => entries.resume(),
            Seen::Value(value) => value.resumed = true,
        }
    }

    /// Whether to deliver this answer to the client.
    pub(crate) fn admit(&mut self, payload: &[u8]) -> bool {
        match self {
            Seen::Entries(entries) => entries.admit(payload),
            Seen::Value(value) => value.admit(payload),
        }
    }

    /// Nothing has been delivered yet.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Seen::Entries(entries) => entries.count == 0 && !entries.sentinel,
            Seen::Value(value) => value.last.is_none(),
        }
    }
}

impl Entries {
    fn resume(&mut self) {
        let mut again = Again { first: self.count - self.tail.len() as u64, ..Again::default() };
        for hash in &self.tail {
            *again.tail.entry(*hash).or_default() += 1;
        }
        self.again = Some(again);
    }

    fn admit(&mut self, payload: &[u8]) -> bool {
        if payload.is_empty() {
            return !std::mem::replace(&mut self.sentinel, true);
        }
        let hash = hash(payload);
        if self.again.as_mut().is_some_and(|again| again.has(hash)) {
            return false;
        }
        if self.again.as_ref().is_some_and(Again::is_over) {
            self.again = None;
        }
        self.count += 1;
        if self.tail.len() == TAIL_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(hash);
        true
    }
}

impl Again {
    fn has(&mut self, hash: u64) -> bool {
        if self.first > 0 {
            self.first -= 1;
            return true;
        }
        let Some(left) = self.tail.get_mut(&hash) else { return false };
        *left -= 1;
        if *left == 0 {
            self.tail.remove(&hash);
        }
        true
    }

    fn is_over(&self) -> bool {
        self.first == 0 && self.tail.is_empty()
    }
}

impl Value {
    fn admit(&mut self, payload: &[u8]) -> bool {
        let hash = hash(payload);
        let known = std::mem::take(&mut self.resumed) && self.last == Some(hash);
        self.last = Some(hash);
        !known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Seen {
        Seen::Entries(Entries::default())
    }

    /// Which of these entries the client is given.
    fn given(seen: &mut Seen, entries: &[&str]) -> Vec<String> {
        let given = entries.iter().filter(|entry| seen.admit(entry.as_bytes()));
        given.map(ToString::to_string).collect()
    }

    #[test]
    fn a_log_goes_on_where_it_stood() {
        let mut seen = entries();
        assert_eq!(given(&mut seen, &["a", "b", "b"]), ["a", "b", "b"]);
        seen.resume();
        assert_eq!(given(&mut seen, &["a", "b", "b", "b", "c"]), ["b", "c"]);
    }

    #[test]
    fn entries_that_were_written_again_in_another_order_are_not_given_twice() {
        let mut seen = entries();
        assert_eq!(given(&mut seen, &["a", "b", "c"]), ["a", "b", "c"]);
        seen.resume();
        // "b" and "c" were lost; their writers and another one write.
        assert_eq!(given(&mut seen, &["a", "x", "c", "b", "y"]), ["x", "y"]);
    }

    #[test]
    fn a_watch_that_is_lost_again_while_it_resumes_counts_from_the_beginning() {
        let mut seen = entries();
        assert_eq!(given(&mut seen, &["a", "b"]), ["a", "b"]);
        seen.resume();
        assert_eq!(given(&mut seen, &["a"]), [""; 0]);
        seen.resume();
        assert_eq!(given(&mut seen, &["a", "b", "c"]), ["c"]);
    }

    #[test]
    fn a_long_log_is_remembered_by_number() {
        let mut seen = entries();
        let log: Vec<String> = (0..TAIL_MAX * 2).map(|n| n.to_string()).collect();
        let log: Vec<&str> = log.iter().map(String::as_str).collect();
        assert_eq!(given(&mut seen, &log).len(), log.len());
        seen.resume();
        assert_eq!(given(&mut seen, &log), [""; 0]);
        assert_eq!(given(&mut seen, &["new"]), ["new"]);
        let Seen::Entries(entries) = &seen else { unreachable!("entries stay entries") };
        assert!(entries.tail.len() == TAIL_MAX && entries.again.is_none());
    }

    #[test]
    fn the_sentinel_comes_once() {
        let mut seen = entries();
        assert_eq!(given(&mut seen, &["a", "", "b"]), ["a", "", "b"]);
        seen.resume();
        assert_eq!(given(&mut seen, &["a", "b", "", "c"]), ["c"]);
    }

    #[test]
    fn a_value_is_given_again_if_it_has_changed() {
        let mut seen = Seen::Value(Value::default());
        assert_eq!(given(&mut seen, &["1", "1"]), ["1", "1"], "each answer");
        seen.resume();
        assert_eq!(given(&mut seen, &["1", "1"]), ["1"]);
        seen.resume();
        assert_eq!(given(&mut seen, &["2"]), ["2"]);
    }
}

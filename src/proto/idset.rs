//! Sets of ranks and other ids (RFC 22).

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{BrokerRank, shortened};

/// How many members a parsed set may have: far more than any instance has ranks, but few enough to
/// visit each.
pub(super) const IDSET_MAX_MEMBERS: usize = 16_777_216;

/// The largest id that is accepted from text (flux-core `IDSET_MAX_UNIVERSE` less one).
const MAX_ID: u32 = i32::MAX as u32;

/// A set of ids, written `0-2,7`.
///
/// It is kept as maximal runs, so that it needs no more memory than its text: a peer must not make
/// this module use much memory with a few bytes. The position of a member (the shell rank of a
/// broker rank) is looked up more often than the set changes, so each run has the number of members
/// before it.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Idset(Vec<Run>);

/// Consecutive members, none of which is next to another run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Run {
    first: u32,
    last: u32,
    /// Members of all runs before this one.
    before: usize,
}

impl Run {
    fn len(self) -> usize {
        (self.last - self.first) as usize + 1
    }

    fn contains(self, id: u32) -> bool {
        (self.first..=self.last).contains(&id)
    }
}

/// The text is not an idset. Names the offending element, and what is wrong with it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{element:?}: {reason}")]
pub struct IdsetError {
    element: String,
    reason: &'static str,
}

impl Idset {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ids of a half-open range.
    pub fn from_range(range: Range<u32>) -> Self {
        let mut set = Self::new();
        if !range.is_empty() {
            set.push(range.start, range.end - 1);
        }
        set
    }

    /// Adds `id`. Returns false if it was a member already.
    pub fn insert(&mut self, id: u32) -> bool {
        let at = self.0.partition_point(|run| run.last < id);
        let next = self.0.get(at).copied();
        if next.is_some_and(|run| run.contains(id)) {
            return false;
        }
        let follows = at > 0 && self.0[at - 1].last + 1 == id;
        let leads = next.is_some_and(|run| id + 1 == run.first);
        let behind = match (follows, leads, next) {
            (true, true, Some(run)) => {
                self.0[at - 1].last = run.last;
                self.0.remove(at);
                at
            }
            (true, _, _) => {
                self.0[at - 1].last = id;
                at
            }
            (false, true, _) => {
                self.0[at].first = id;
                at + 1
            }
            (false, false, next) => {
                let before = next.map_or(self.len(), |run| run.before);
                self.0.insert(at, Run { first: id, last: id, before });
                at + 1
            }
        };
        self.0[behind..].iter_mut().for_each(|run| run.before += 1);
        true
    }

    /// Removes `id`. Returns false if it was not a member.
    pub fn remove(&mut self, id: u32) -> bool {
        let Some(at) = self.run_of(id) else { return false };
        let Run { first, last, before } = self.0[at];
        self.0[at + 1..].iter_mut().for_each(|run| run.before -= 1);
        let parts = [
            (first < id).then(|| Run { first, last: id - 1, before }),
            (id < last).then(|| Run {
                first: id + 1,
                last,
                before: before + (id - first) as usize,
            }),
        ];
        self.0.splice(at..=at, parts.into_iter().flatten());
        true
    }

    /// Whether `id` is a member.
    pub fn contains(&self, id: u32) -> bool {
        self.run_of(id).is_some()
    }

    /// Whether `rank` is a member.
    pub fn contains_rank(&self, rank: BrokerRank) -> bool {
        self.contains(rank.0)
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |run| run.before + run.len())
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest member.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|run| run.first)
    }

    /// The highest member.
    pub fn last(&self) -> Option<u32> {
        self.0.last().map(|run| run.last)
    }

    /// The member at `index`, counted from the lowest.
    pub fn nth(&self, index: usize) -> Option<u32> {
        let run = self.0.get(self.0.partition_point(|run| run.before + run.len() <= index))?;
        u32::try_from(index - run.before).ok().map(|offset| run.first + offset)
    }

    /// How many members are lower than `id`, if `id` is a member.
    pub fn index_of(&self, id: u32) -> Option<usize> {
        let run = self.0[self.run_of(id)?];
        Some(run.before + (id - run.first) as usize)
    }

    /// The members, ascending.
    pub fn iter(&self) -> Iter<'_> {
        Iter { set: self, indices: 0..self.len(), front: 0 }
    }

    /// The members as broker ranks, ascending.
    pub fn ranks(&self) -> impl DoubleEndedIterator<Item = BrokerRank> + ExactSizeIterator {
        self.iter().map(BrokerRank)
    }

    /// The members of either set.
    pub fn union(&self, other: &Self) -> Self {
        Self::union_of([self, other])
    }

    /// The members of any of the sets.
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut runs: Vec<Run> = sets.into_iter().flat_map(|set| &set.0).copied().collect();
        runs.sort();
        let mut set = Self::new();
        runs.iter().for_each(|run| set.push(run.first, run.last));
        set
    }

    /// The members of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut set = Self::new();
        for run in &self.0 {
            let mut rest = Some(run.first);
            for hole in other.runs_within(*run) {
                if let Some(first) = rest.filter(|first| *first < hole.first) {
                    set.push(first, hole.first - 1);
                }
                rest = hole.last.checked_add(1).filter(|first| *first <= run.last);
            }
            if let Some(first) = rest {
                set.push(first, run.last);
            }
        }
        set
    }

    /// The members of both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut set = Self::new();
        for run in &self.0 {
            for part in other.runs_within(*run) {
                set.push(part.first.max(run.first), part.last.min(run.last));
            }
        }
        set
    }

    /// Which run `id` is in.
    fn run_of(&self, id: u32) -> Option<usize> {
        let at = self.0.partition_point(|run| run.last < id);
        self.0.get(at).filter(|run| run.contains(id)).map(|_| at)
    }

    /// The runs that have members in common with `run`.
    fn runs_within(&self, run: Run) -> impl Iterator<Item = &Run> {
        let from = self.0.partition_point(|other| other.last < run.first);
        self.0[from..].iter().take_while(move |other| other.first <= run.last)
    }

    /// Adds a run that begins at or after the beginning of the last one.
    fn push(&mut self, first: u32, last: u32) {
        let before = match self.0.last_mut() {
            // Next to it or in it; no run follows one that ends at the largest number.
            Some(run) if run.last.checked_add(1).is_none_or(|next| first <= next) => {
                run.last = run.last.max(last);
                return;
            }
            Some(run) => run.before + run.len(),
            None => 0,
        };
        self.0.push(Run { first, last, before });
    }
}

/// The members of an [`Idset`], ascending.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    set: &'a Idset,
    /// How many members are left.
    indices: Range<usize>,
    /// The run of the first of them.
    front: usize,
}

impl Iterator for Iter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let index = self.indices.next()?;
        let mut run = self.set.0.get(self.front)?;
        if run.before + run.len() <= index {
            self.front += 1;
            run = self.set.0.get(self.front)?;
        }
        u32::try_from(index - run.before).ok().map(|offset| run.first + offset)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.indices.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<u32> {
        let index = self.indices.next_back()?;
        self.set.nth(index)
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl fmt::Display for Idset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Run { first, last, .. }) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Idset {
    type Err = IdsetError;

    /// Accepts what RFC 22 describes: ascending ids and ranges without leading zeros or
    /// blanks, with or without brackets around the whole.
    fn from_str(s: &str) -> Result<Self, IdsetError> {
        let inner = s.strip_prefix('[').and_then(|s| s.strip_suffix(']')).unwrap_or(s);
        if inner.contains(['[', ']']) {
            return Err(IdsetError::new(s, "brackets are mismatched or nested"));
        }
        if inner.is_empty() {
            return Ok(Self::new());
        }
        let mut ids = Self::new();
        for element in inner.split(',') {
            let (first, last) = parse_element(element)?;
            if ids.last().is_some_and(|previous| first <= previous) {
                return Err(IdsetError::new(element, "ids are not in ascending order"));
            }
            if (last - first) as usize >= IDSET_MAX_MEMBERS - ids.len() {
                return Err(IdsetError::new(element, "the set has too many members"));
            }
            ids.push(first, last);
        }
        Ok(ids)
    }
}

/// The first and last id of `7` or `0-2`.
fn parse_element(element: &str) -> Result<(u32, u32), IdsetError> {
    let bad = |reason| IdsetError::new(element, reason);
    let Some((first, last)) = element.split_once('-') else {
        let id = parse_id(element).map_err(bad)?;
        return Ok((id, id));
    };
    let (first, last) = (parse_id(first).map_err(bad)?, parse_id(last).map_err(bad)?);
    if first >= last {
        return Err(bad("the end of the range is not above its start"));
    }
    Ok((first, last))
}

fn parse_id(digits: &str) -> Result<u32, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("expected ids and ranges such as 0-2,7");
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err("leading zeros are not allowed");
    }
    digits.parse().ok().filter(|id| *id <= MAX_ID).ok_or("an id is too large")
}

impl IdsetError {
    fn new(element: &str, reason: &'static str) -> Self {
        Self { element: shortened(element), reason }
    }
}

impl TryFrom<String> for Idset {
    type Error = IdsetError;

    fn try_from(s: String) -> Result<Self, IdsetError> {
        s.parse()
    }
}

impl From<Idset> for String {
    fn from(ids: Idset) -> Self {
        ids.to_string()
    }
}

impl Extend<u32> for Idset {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        let mut ids: Vec<u32> = ids.into_iter().collect();
        // Takes linear time if the ids came in order.
        ids.sort();
        let mut more = Self::new();
        ids.iter().for_each(|id| more.push(*id, *id));
        *self = self.union(&more);
    }
}

impl FromIterator<u32> for Idset {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl FromIterator<BrokerRank> for Idset {
    fn from_iter<I: IntoIterator<Item = BrokerRank>>(ranks: I) -> Self {
        ranks.into_iter().map(|rank| rank.0).collect()
    }
}

impl From<BrokerRank> for Idset {
    fn from(rank: BrokerRank) -> Self {
        Self::from_iter([rank])
    }
}

impl<'a> IntoIterator for &'a Idset {
    type Item = u32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Idset {
        text.parse().unwrap()
    }

    #[test]
    fn text_round_trips() {
        for (text, members, canonical) in [
            ("", &[][..], ""),
            ("[]", &[], ""),
            ("0", &[0], "0"),
            ("0-2,7", &[0, 1, 2, 7], "0-2,7"),
            ("[0-2,7]", &[0, 1, 2, 7], "0-2,7"),
            ("0,1,2", &[0, 1, 2], "0-2"),
            ("1-2,3-4,6", &[1, 2, 3, 4, 6], "1-4,6"),
            ("2147483646-2147483647", &[2147483646, 2147483647], "2147483646-2147483647"),
        ] {
            let set = ids(text);
            assert_eq!(set.iter().collect::<Vec<_>>(), members, "{text}");
            assert_eq!(set.to_string(), canonical);
            assert_eq!(ids(canonical), set);
        }
        assert_eq!(Idset::from_range(u32::MAX - 2..u32::MAX).to_string(), "4294967293-4294967294");
        assert_eq!(Idset::from_iter([u32::MAX]).to_string(), "4294967295");
    }

    #[test]
    fn bad_text_is_refused() {
        for bad in [
            "x",
            "1-0",
            "3-3",
            "1,",
            ",1",
            "1,,2",
            ",",
            "-",
            "-1",
            "1-",
            "1-2-3",
            "2,1",
            "1,1",
            "0-3,2",
            "01",
            "0-02",
            " 1",
            "1 ",
            "1, 2",
            "+1",
            "0x1",
            "[1",
            "1]",
            "[[1]]",
            "[1],[2]",
            "][",
            "4294967296",
            "99999999999999999999",
            "2147483648",
            "0-2147483647",
            "0-16777216",
            "0-16777214,16777216-16777217",
            "٣",
        ] {
            assert!(bad.parse::<Idset>().is_err(), "{bad}");
        }
        assert_eq!(
            "0,3-1".parse::<Idset>().unwrap_err().to_string(),
            r#""3-1": the end of the range is not above its start"#
        );
        assert_eq!(ids("0-16777215").len(), IDSET_MAX_MEMBERS);
    }

    #[test]
    fn members() {
        let mut set = ids("2,5-6");
        assert_eq!((set.first(), set.last(), set.len()), (Some(2), Some(6), 3));
        assert_eq!((set.nth(1), set.nth(3)), (Some(5), None));
        assert_eq!((set.index_of(6), set.index_of(3)), (Some(2), None));
        assert!(set.insert(3) && !set.insert(3) && set.contains(3));
        assert!(set.remove(5) && !set.remove(5) && !set.contains(5));
        assert_eq!(set.to_string(), "2-3,6");
        assert_eq!(set.iter().next_back(), Some(6));
        set.extend([0, 9, 3]);
        assert_eq!(set.to_string(), "0,2-3,6,9");
        assert!(set.contains_rank(BrokerRank(9)));
        assert_eq!(set.ranks().collect::<Idset>(), set);
        let empty = Idset::new();
        assert_eq!((empty.first(), empty.last(), empty.is_empty()), (None, None, true));
    }

    #[test]
    fn set_operations() {
        for (a, b, union, difference, intersection) in [
            ("", "", "", "", ""),
            ("0-3", "2-5", "0-5", "0-1", "2-3"),
            ("0-3", "", "0-3", "0-3", ""),
            ("1,3", "2", "1-3", "1,3", ""),
        ] {
            let (a, b) = (ids(a), ids(b));
            assert_eq!(a.union(&b).to_string(), union);
            assert_eq!(a.difference(&b).to_string(), difference);
            assert_eq!(a.intersection(&b).to_string(), intersection);
        }
    }

    #[test]
    fn sets_agree_with_the_standard_librarys() {
        // All pairs of sets of six ids at both ends of the numbers.
        for base in [0, u32::MAX - 5] {
            let set = |bits: u32| (0..6).filter(|i| bits >> i & 1 == 1).map(|i| base + i).collect();
            for (x, y) in (0..64).flat_map(|x| (0..64).map(move |y| (x, y))) {
                let (a, b): (Idset, Idset) = (set(x), set(y));
                for (got, bits) in
                    [(a.union(&b), x | y), (a.difference(&b), x & !y), (a.intersection(&b), x & y)]
                {
                    assert_eq!(got, set(bits), "{a} and {b}");
                    assert_eq!(got.len(), bits.count_ones() as usize);
                    let members: Vec<u32> = got.iter().collect();
                    assert!(members.is_sorted() && members.len() == got.len());
                    assert!(got.iter().rev().eq(members.into_iter().rev()));
                }
            }
            for (x, i) in (0..64).flat_map(|x| (0..6).map(move |i| (x, i))) {
                let (mut more, mut less): (Idset, Idset) = (set(x), set(x));
                assert_eq!(more.insert(base + i), x >> i & 1 == 0);
                assert_eq!(less.remove(base + i), x >> i & 1 == 1);
                assert_eq!((more, less), (set(x | 1 << i), set(x & !(1 << i))));
            }
        }
    }

    #[test]
    fn a_large_set_is_small() {
        let many: Vec<Idset> = (0..10_000).map(|_| ids("0-16777214")).collect();
        assert!(many.iter().all(|set| set.0.len() == 1 && set.len() == IDSET_MAX_MEMBERS - 1));
        assert_eq!(many[0].union(&many[1]).nth(16_777_214), Some(16_777_214));
    }

    #[test]
    fn json_form_is_a_string() {
        let set: Idset = serde_json::from_str(r#""0-2,7""#).unwrap();
        assert_eq!(serde_json::to_string(&set).unwrap(), r#""0-2,7""#);
        assert!(serde_json::from_str::<Idset>(r#""2-0""#).is_err());
    }
}

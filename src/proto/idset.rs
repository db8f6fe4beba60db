//! Sets of ranks and other ids (RFC 22).

use std::fmt;
use std::iter::Copied;
use std::ops::Range;
use std::slice;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::BrokerRank;

/// How many members a parsed set may have: far above any instance, far below memory.
pub(super) const IDSET_MAX_MEMBERS: usize = 16_777_216;

/// The largest id that is accepted from text (flux-core `IDSET_MAX_UNIVERSE` less one).
const MAX_ID: u32 = i32::MAX as u32;

/// A set of ids, written `0-2,7`.
///
/// The members are kept in a sorted vector, as most sets are small or one range, and the
/// position of a member (the shell rank of a broker rank) is looked up more often than the
/// set changes.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Idset(Vec<u32>);

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
        Self(range.collect())
    }

    /// Adds `id`. False if it was a member already.
    pub fn insert(&mut self, id: u32) -> bool {
        match self.0.binary_search(&id) {
            Ok(_) => false,
            Err(index) => {
                self.0.insert(index, id);
                true
            }
        }
    }

    /// Takes `id` out. False if it was no member.
    pub fn remove(&mut self, id: u32) -> bool {
        match self.0.binary_search(&id) {
            Ok(index) => {
                self.0.remove(index);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether `id` is a member.
    pub fn contains(&self, id: u32) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// Whether `rank` is a member.
    pub fn contains_rank(&self, rank: BrokerRank) -> bool {
        self.contains(rank.0)
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest member.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The highest member.
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }

    /// The member at `index`, counted from the lowest.
    pub fn nth(&self, index: usize) -> Option<u32> {
        self.0.get(index).copied()
    }

    /// How many members are lower than `id`, if `id` is a member.
    pub fn index_of(&self, id: u32) -> Option<usize> {
        self.0.binary_search(&id).ok()
    }

    /// The members, ascending.
    pub fn iter(&self) -> Copied<slice::Iter<'_, u32>> {
        self.0.iter().copied()
    }

    /// The members as broker ranks, ascending.
    pub fn ranks(&self) -> impl DoubleEndedIterator<Item = BrokerRank> + ExactSizeIterator {
        self.iter().map(BrokerRank)
    }

    /// The members of either set.
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other).collect()
    }

    /// The members of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.iter().filter(|id| !other.contains(*id)).collect())
    }

    /// The members of both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.iter().filter(|id| other.contains(*id)).collect())
    }

    /// Whether all members are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|id| other.contains(id))
    }

    /// The maximal runs of consecutive members, as first and last.
    fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        // No overflow: in a chunk, the second member is above the first.
        self.0.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run[run.len() - 1]))
    }
}

impl fmt::Display for Idset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.runs().enumerate() {
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
        let mut ids = Vec::new();
        for element in inner.split(',') {
            let (first, last) = parse_element(element)?;
            if ids.last().is_some_and(|previous| first <= *previous) {
                return Err(IdsetError::new(element, "ids are not in ascending order"));
            }
            if (last - first) as usize >= IDSET_MAX_MEMBERS - ids.len() {
                return Err(IdsetError::new(element, "the set has too many members"));
            }
            ids.extend(first..=last);
        }
        Ok(Self(ids))
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
        Self { element: element.to_string(), reason }
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
        self.0.extend(ids);
        // Takes linear time if the ids came in order.
        self.0.sort();
        self.0.dedup();
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

impl<'a> IntoIterator for &'a Idset {
    type Item = u32;
    type IntoIter = Copied<slice::Iter<'a, u32>>;

    fn into_iter(self) -> Self::IntoIter {
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
            assert!(a.intersection(&b).is_subset(&a));
        }
        assert!(!ids("0-2").is_subset(&ids("0-1")));
    }

    #[test]
    fn json_form_is_a_string() {
        let set: Idset = serde_json::from_str(r#""0-2,7""#).unwrap();
        assert_eq!(serde_json::to_string(&set).unwrap(), r#""0-2,7""#);
        assert!(serde_json::from_str::<Idset>(r#""2-0""#).is_err());
    }
}

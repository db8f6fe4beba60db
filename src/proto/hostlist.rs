//! Lists of host names (RFC 29).

use std::fmt;
use std::str::FromStr;

use super::shortened;

/// How many hosts one text may stand for.
const MAX_HOSTS: usize = 1_000_000;

/// Bytes of all names that one text may stand for.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How many digits a number in a name may be padded to. A greater width is of no use, but could
/// exhaust memory.
const MAX_WIDTH: usize = 20;

/// An ordered list of host names, written `host[0-3,07],other`. Duplicates are kept.
///
/// The text form groups neighbours that differ in their numeric suffix only, as flux-core
/// `hostlist_encode` does; the list is never sorted for it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hostlist(Vec<String>);

/// The text is not a hostlist. Names the offending part, and what is wrong with it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{part:?}: {reason}")]
pub struct HostlistError {
    part: String,
    reason: &'static str,
}

impl Hostlist {
    /// The number of hosts, each duplicate counted.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The host at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.0.get(index).map(String::as_str)
    }

    /// The hosts, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.iter().map(String::as_str)
    }

    /// The hosts of several texts together; the limits are for all of them.
    ///
    /// # Errors
    /// With the index of the text that is wrong.
    pub(super) fn from_texts(texts: &[&str]) -> Result<Self, (usize, HostlistError)> {
        let (mut hosts, mut bytes) = (Vec::new(), 0);
        for (index, text) in texts.iter().enumerate() {
            let mut words = words(text);
            words
                .try_for_each(|word| expand(word, &mut hosts, &mut bytes))
                .map_err(|error| (index, error))?;
        }
        Ok(Self(hosts))
    }
}

impl fmt::Display for Hostlist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<HostRange> = Vec::new();
        for host in self.iter() {
            let next = HostRange::new(host);
            if !ranges.last_mut().is_some_and(|last| last.append(&next)) {
                ranges.push(next);
            }
        }
        for (index, group) in ranges.chunk_by(HostRange::is_bracketed_with).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}", group[0].prefix)?;
            let bracketed = group.len() > 1 || group[0].is_many();
            if bracketed {
                f.write_str("[")?;
            }
            for (index, range) in group.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                write!(f, "{comma}{range}")?;
            }
            if bracketed {
                f.write_str("]")?;
            }
        }
        Ok(())
    }
}

/// Neighbours in the list whose names count up, or one host.
struct HostRange<'a> {
    prefix: &'a str,
    suffix: Option<Suffix>,
}

/// The numbers of a [`HostRange`], and how many digits they are padded to.
#[derive(Clone, Copy)]
struct Suffix {
    first: u64,
    last: u64,
    width: usize,
}

impl<'a> HostRange<'a> {
    fn new(host: &'a str) -> Self {
        let prefix = host.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &host[prefix.len()..];
        let width = digits.len();
        match digits.parse() {
            Ok(n) if width <= MAX_WIDTH => {
                Self { prefix, suffix: Some(Suffix { first: n, last: n, width }) }
            }
            // No digits, or more of them than a number can have.
            Ok(_) | Err(_) => Self { prefix: host, suffix: None },
        }
    }

    /// Adds `next` if it continues the range.
    fn append(&mut self, next: &Self) -> bool {
        let (Some(range), Some(host)) = (self.suffix, next.suffix) else { return false };
        if self.prefix != next.prefix || range.last.checked_add(1) != Some(host.first) {
            return false;
        }
        let Some(width) = range.common_width(host) else { return false };
        self.suffix = Some(Suffix { first: range.first, last: host.last, width });
        true
    }

    /// Whether both go into one pair of brackets.
    fn is_bracketed_with(&self, next: &Self) -> bool {
        self.prefix == next.prefix && self.suffix.is_some() && next.suffix.is_some()
    }

    fn is_many(&self) -> bool {
        self.suffix.is_some_and(|suffix| suffix.first < suffix.last)
    }
}

impl Suffix {
    /// The width that writes both without changing the padding of either.
    fn common_width(self, next: Suffix) -> Option<usize> {
        let padding = |n: u64, width: usize| width.saturating_sub(digits(n));
        if padding(self.first, self.width) == padding(self.first, next.width) {
            Some(next.width)
        } else if padding(next.first, next.width) == padding(next.first, self.width) {
            Some(self.width)
        } else {
            None
        }
    }
}

fn digits(n: u64) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

impl fmt::Display for HostRange<'_> {
    /// What comes after the prefix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Suffix { first, last, width }) = self.suffix else { return Ok(()) };
        write!(f, "{first:0width$}")?;
        if first < last {
            write!(f, "-{last:0width$}")?;
        }
        Ok(())
    }
}

impl FromStr for Hostlist {
    type Err = HostlistError;

    /// Accepts names and `prefix[ranges]suffix`, separated by commas or blanks.
    fn from_str(s: &str) -> Result<Self, HostlistError> {
        Self::from_texts(&[s]).map_err(|(_, error)| error)
    }
}

/// The parts between separators, but not separators in brackets.
fn words(s: &str) -> impl Iterator<Item = &str> {
    let mut in_brackets = false;
    s.split(move |c| {
        match c {
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            _ => {}
        }
        !in_brackets && matches!(c, ',' | ' ' | '\t')
    })
    .filter(|word| !word.is_empty())
}

/// Appends the hosts that `word` stands for. `bytes` is the length of all names.
fn expand(word: &str, hosts: &mut Vec<String>, bytes: &mut usize) -> Result<(), HostlistError> {
    let bad = |part: &str, reason| HostlistError { part: shortened(part), reason };
    let Some((prefix, rest)) = word.split_once('[') else {
        if word.contains(']') {
            return Err(bad(word, "brackets are mismatched"));
        }
        reserve(hosts, bytes, 1, word.len()).map_err(|reason| bad(word, reason))?;
        hosts.push(word.to_string());
        return Ok(());
    };
    let Some((ranges, suffix)) = rest.split_once(']') else {
        return Err(bad(word, "brackets are mismatched"));
    };
    if [prefix, ranges, suffix].iter().any(|part| part.contains(['[', ']'])) {
        return Err(bad(word, "only one pair of brackets is allowed in a name"));
    }
    for range in ranges.split(',') {
        let Suffix { first, last, width } = parse_range(range)
            .ok_or_else(|| bad(range, "expected numbers and ranges such as 0-3,7"))?;
        let length = prefix.len() + width.max(digits(last)) + suffix.len();
        reserve(hosts, bytes, (last - first).saturating_add(1), length)
            .map_err(|reason| bad(range, reason))?;
        hosts.extend((first..=last).map(|n| format!("{prefix}{n:0width$}{suffix}")));
    }
    Ok(())
}

/// Whether `more` hosts, with names that are at most `length` bytes long, are within the limits.
fn reserve(
    hosts: &[String],
    bytes: &mut usize,
    more: u64,
    length: usize,
) -> Result<(), &'static str> {
    let more = usize::try_from(more).unwrap_or(usize::MAX);
    if more > MAX_HOSTS - hosts.len() {
        return Err("the list has too many hosts");
    }
    *bytes += more * length;
    if *bytes > MAX_BYTES { Err("the names are too long") } else { Ok(()) }
}

/// The numbers of `7` or `00-12`; the first number gives the width of all.
fn parse_range(range: &str) -> Option<Suffix> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let parse = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok()).flatten();
    let suffix = Suffix { first: parse(first)?, last: parse(last)?, width: first.len() };
    (suffix.first <= suffix.last && suffix.width <= MAX_WIDTH).then_some(suffix)
}

impl<S: Into<String>> FromIterator<S> for Hostlist {
    fn from_iter<I: IntoIterator<Item = S>>(hosts: I) -> Self {
        Self(hosts.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Hostlist {
        text.parse().unwrap()
    }

    #[test]
    fn text_is_expanded() {
        for (text, hosts) in [
            ("", &[][..]),
            (",", &[]),
            ("a", &["a"]),
            ("a,b c\td,,", &["a", "b", "c", "d"]),
            ("host[0-2,07],other", &["host0", "host1", "host2", "host07", "other"]),
            ("foo[1-2]bar", &["foo1bar", "foo2bar"]),
            ("n[08-11]", &["n08", "n09", "n10", "n11"]),
            ("n[9-010]", &["n9", "n10"]),
            ("n[3-3]", &["n3"]),
            ("[1-2]", &["1", "2"]),
            ("vm,vm", &["vm", "vm"]),
            ("a-b.c[1]", &["a-b.c1"]),
        ] {
            assert_eq!(list(text).iter().collect::<Vec<_>>(), hosts, "{text}");
        }
    }

    /// Checked against flux-hostlist(1), which calls `hostlist_encode`. It fails on the last
    /// two, whose numbers do not fit.
    #[test]
    fn hosts_are_compressed() {
        for (text, compressed) in [
            ("", ""),
            ("foo0,foo1,foo2", "foo[0-2]"),
            ("foo2,foo1,foo0", "foo[2,1,0]"),
            ("foo1", "foo1"),
            ("vm,vm,vm", "vm,vm,vm"),
            ("foo1,foo1", "foo[1,1]"),
            ("foo1,foo3", "foo[1,3]"),
            ("foo1,bar,foo2", "foo1,bar,foo2"),
            ("foo,foo1,foo2,foo", "foo,foo[1-2],foo"),
            ("foo[8-11]", "foo[8-11]"),
            ("foo[08-11]", "foo[08-11]"),
            ("foo[098-101]", "foo[098-101]"),
            ("foo1,foo02", "foo[1,02]"),
            ("foo9,foo010", "foo[9,010]"),
            ("foo10,foo011", "foo[10,011]"),
            ("foo0,foo1,foo2,foo07,foo8", "foo[0-2,07,8]"),
            ("foo1,foo2,bar1,bar2", "foo[1-2],bar[1-2]"),
            ("foo[1-2]bar", "foo1bar,foo2bar"),
            ("1,2,3", "[1-3]"),
            ("foo[98-101],foo102,foo0103", "foo[98-102,0103]"),
            ("a18446744073709551615,a0", "a[18446744073709551615,0]"),
            ("a99999999999999999999", "a99999999999999999999"),
            (
                "a000000000000000000001,a000000000000000000002",
                "a000000000000000000001,a000000000000000000002",
            ),
            (
                "a00000000000000000001,a00000000000000000002",
                "a[00000000000000000001-00000000000000000002]",
            ),
        ] {
            assert_eq!(list(text).to_string(), compressed, "{text}");
            assert_eq!(list(compressed), list(text), "{text}");
        }
    }

    #[test]
    fn bad_text_is_refused() {
        for bad in [
            "foo[",
            "foo]",
            "foo[]",
            "foo[1",
            "foo[1,]",
            "foo[,1]",
            "foo[x]",
            "foo[3-1]",
            "foo[1-]",
            "foo[-1]",
            "foo[1-2-3]",
            "foo[1--2]",
            "foo[ 1]",
            "foo[+1]",
            "foo[[1]]",
            "foo[1]]",
            "a[1]-[2]",
            "foo[0-1000000]",
            "foo[0-999998],bar[0-1]",
            "foo[0-999999],bar",
            "foo[0-18446744073709551615]",
            "foo[18446744073709551616]",
            "foo[000000000000000000001]",
        ] {
            assert!(bad.parse::<Hostlist>().is_err(), "{bad}");
        }
        assert_eq!(
            "a,foo[3-1]".parse::<Hostlist>().unwrap_err().to_string(),
            r#""3-1": expected numbers and ranges such as 0-3,7"#
        );
        assert_eq!(list("foo[0-999999]").len(), MAX_HOSTS);
        let long = format!("{}[0-999999]", "n".repeat(100));
        let error = long.parse::<Hostlist>().unwrap_err().to_string();
        assert!(error.ends_with("the names are too long"), "{error}");
        let error = format!("{long}]").parse::<Hostlist>().unwrap_err().to_string();
        assert!(error.len() < 250, "{error}");
    }

    #[test]
    fn methods() {
        let hosts = list("b,a[1-2],b,a1");
        assert_eq!((hosts.len(), hosts.get(2), hosts.get(9)), (5, Some("a2"), None));
        assert!(Hostlist::default().is_empty());
        assert_eq!(["x1", "x2"].into_iter().collect::<Hostlist>().to_string(), "x[1-2]");
        assert_eq!(hosts.iter().next_back(), Some("a1"));
    }
}

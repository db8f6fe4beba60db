//! Parses values as administrators write them (systemd.syntax(7)).

use crate::proto::{Idset, SignalError};

/// Largest bitmap, in bytes: a mask of 65536 CPUs. A larger one must be a mistake.
const MASK_BYTES_MAX: usize = 8192;

/// Why a text is no value of its kind.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum ValueError {
    /// It is not of this form.
    #[error("expected {0}")]
    Form(&'static str),
    /// No bit of a bitmap has this number.
    #[error("{id} is beyond the {bits} that fit a mask")]
    Mask {
        /// The number.
        id: u32,
        /// How many bits a bitmap has at most.
        bits: usize,
    },
    /// No percentage, or one that is too large.
    #[error("expected a percentage from 0% to {max}%")]
    Percentage {
        /// The largest.
        max: u64,
    },
    /// No number, or one outside of its range.
    #[error("expected a number from {min} to {max}")]
    Range {
        /// The smallest.
        min: i32,
        /// The largest.
        max: i32,
    },
    /// No signal.
    #[error(transparent)]
    Signal(#[from] SignalError),
    /// `soft:hard` the wrong way round.
    #[error("the soft limit is above the hard limit")]
    SoftAboveHard,
}

/// `yes`, `true`, `on`, `1` and their opposites.
pub(super) fn boolean(s: &str) -> Result<bool, ValueError> {
    match s.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Ok(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Ok(false),
        _ => Err(ValueError::Form("a boolean such as yes or no")),
    }
}

/// A plain number, or `infinity`.
pub(super) fn number(s: &str) -> Result<u64, ValueError> {
    match s {
        "infinity" => Ok(u64::MAX),
        _ => s.parse().map_err(|_| ValueError::Form("a number, or infinity")),
    }
}

/// Bytes, with an optional suffix K, M, G, T, P or E to the base 1024, or `infinity`.
pub(super) fn size(s: &str) -> Result<u64, ValueError> {
    const FORM: ValueError =
        ValueError::Form("bytes, with an optional suffix K, M, G, T, P or E, or infinity");
    if s == "infinity" {
        return Ok(u64::MAX);
    }
    let digits = s.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &s[digits.len()..] {
        "" | "B" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        "P" | "p" => 50,
        "E" | "e" => 60,
        _ => return Err(FORM),
    };
    decimal(digits.trim_end())
        .and_then(|(whole, millionths)| {
            let unit = 1u128 << shift;
            u64::try_from(whole * unit + millionths * unit / 1_000_000).ok()
        })
        .ok_or(FORM)
}

/// A percentage, in hundredths of a percent. `None` if there is no percent sign.
pub(super) fn percent(s: &str, max: u64) -> Option<Result<u64, ValueError>> {
    let digits = s.strip_suffix('%')?;
    let parse = || {
        let (whole, millionths) = decimal(digits.trim_end())?;
        let hundredths = u64::try_from(whole * 100 + millionths / 10_000).ok()?;
        (hundredths <= max * 100).then_some(hundredths)
    };
    Some(parse().ok_or(ValueError::Percentage { max }))
}

/// Microseconds: a sum such as `1min 30s`, a plain number of `unit_us`, or `infinity`.
pub(super) fn microseconds(s: &str, unit_us: u64) -> Result<u64, ValueError> {
    const FORM: ValueError = ValueError::Form("a time span such as 90, 90s, 1min 30s or infinity");
    if s == "infinity" {
        return Ok(u64::MAX);
    }
    let mut total: u64 = 0;
    let mut rest = s.trim();
    if rest.is_empty() {
        return Err(FORM);
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(unit_at);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let factor = match unit {
            "" => unit_us,
            "us" | "usec" | "µs" => 1,
            "ms" | "msec" => 1_000,
            "s" | "sec" | "second" | "seconds" => 1_000_000,
            "m" | "min" | "minute" | "minutes" => 60_000_000,
            "h" | "hr" | "hour" | "hours" => 3_600_000_000,
            "d" | "day" | "days" => 86_400_000_000,
            "w" | "week" | "weeks" => 604_800_000_000,
            _ => return Err(FORM),
        };
        let (whole, millionths) = decimal(digits).ok_or(FORM)?;
        let span = whole * u128::from(factor) + millionths * u128::from(factor) / 1_000_000;
        total = u64::try_from(span).ok().and_then(|n| total.checked_add(n)).ok_or(FORM)?;
        rest = next.trim_start();
    }
    Ok(total)
}

/// An idset (RFC 22) or a systemd CPU list (`0-3 8`), as bits, lowest first.
pub(super) fn bitmap(s: &str) -> Result<Vec<u8>, ValueError> {
    let list = s.split([',', ' ']).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
    let ids: Idset = list.parse().map_err(|_| ValueError::Form("a list such as 0-3,8"))?;
    let mut bits = Vec::new();
    for id in ids.iter() {
        let (byte, bit) = (id as usize / 8, id % 8);
        if byte >= MASK_BYTES_MAX {
            return Err(ValueError::Mask { id, bits: MASK_BYTES_MAX * 8 });
        }
        if bits.len() <= byte {
            bits.resize(byte + 1, 0);
        }
        bits[byte] |= 1 << bit;
    }
    Ok(bits)
}

/// A resource limit: `soft:hard`, or one value for both.
pub(super) fn limit(
    s: &str,
    parse: impl Fn(&str) -> Result<u64, ValueError>,
) -> Result<(u64, u64), ValueError> {
    let (soft, hard) = s.split_once(':').unwrap_or((s, s));
    let (soft, hard) = (parse(soft)?, parse(hard)?);
    if soft > hard {
        return Err(ValueError::SoftAboveHard);
    }
    Ok((soft, hard))
}

/// Comma-separated pairs such as `/dev/nvidiactl rw,/dev/fuse rw`.
pub(super) fn pairs(s: &str) -> Result<Vec<(String, String)>, ValueError> {
    const FORM: ValueError = ValueError::Form("comma-separated pairs such as /dev/fuse rw");
    s.split(',')
        .map(|pair| {
            let (first, second) = pair.trim().split_once(' ').ok_or(FORM)?;
            Ok((first.to_string(), second.trim().to_string()))
        })
        .collect()
}

/// `12.5` as whole part and millionths. Floating point numbers would round it.
fn decimal(s: &str) -> Option<(u128, u128)> {
    let (whole, fraction) = s.split_once('.').unwrap_or((s, "0"));
    let digits = |s: &str| !s.is_empty() && s.len() <= 20 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let millionths: String = fraction.chars().chain("000000".chars()).take(6).collect();
    Some((whole.parse().ok()?, millionths.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("1.5G"), Ok(3 << 29));
        assert_eq!(size("infinity"), Ok(u64::MAX));
        for bad in ["", "K", "-1", "1X", "1e3K", "16E", "1.G", "99999999999999999999999"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn percentages() {
        assert_eq!(percent("12.5%", 100), Some(Ok(1250)));
        assert_eq!(percent("100%", 100), Some(Ok(10_000)));
        assert_eq!(percent("12", 100), None);
        assert!(percent("101%", 100).unwrap().is_err());
        assert!(percent("%", 100).unwrap().is_err());
    }

    #[test]
    fn time_spans() {
        assert_eq!(microseconds("90", 1), Ok(90));
        assert_eq!(microseconds("90", 1_000_000), Ok(90_000_000));
        assert_eq!(microseconds("1min 30s", 1), Ok(90_000_000));
        assert_eq!(microseconds("1min30s", 1), Ok(90_000_000));
        assert_eq!(microseconds("0.5 s", 1), Ok(500_000));
        assert_eq!(microseconds("infinity", 1), Ok(u64::MAX));
        for bad in ["", "s", "1 parsec", "-1", "1..2", "99999999999999999w"] {
            assert!(microseconds(bad, 1).is_err(), "{bad}");
        }
    }

    #[test]
    fn bitmaps() {
        assert_eq!(bitmap("0-3,8"), Ok(vec![0x0f, 0x01]));
        assert_eq!(bitmap("0-1 9"), Ok(vec![0x03, 0x02]));
        assert!(bitmap("x").is_err());
        assert!(bitmap("65536").is_err());
    }

    #[test]
    fn limits_and_pairs() {
        assert_eq!(limit("1:2", number), Ok((1, 2)));
        assert_eq!(limit("infinity", number), Ok((u64::MAX, u64::MAX)));
        assert!(limit("2:1", number).is_err());
        let pair = ("/dev/fuse".to_string(), "rw".to_string());
        assert_eq!(pairs("/dev/fuse rw"), Ok(vec![pair]));
        assert!(pairs("/dev/fuse").is_err());
    }
}

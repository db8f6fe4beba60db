//! Flux Standard Durations (RFC 23).

/// A text that is not a duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid duration {text:?}: expected N[ms|s|m|h|d]")]
pub struct DurationError {
    /// The text.
    pub text: String,
}

/// The seconds that `text` stands for: `5s`, `100ms`, `1.5m`, `2h`, `1d`, `10` or `inf`.
///
/// Stricter than flux-core `fsd_parse_duration`, which lets strtod(3) decide: that also
/// takes leading blanks, hexadecimal, and nothing at all for zero.
///
/// # Errors
///
/// If `text` is none of these, or stands for more seconds than an `f64` holds.
pub fn parse_fsd(text: &str) -> Result<f64, DurationError> {
    let bad = || DurationError { text: text.to_string() };
    if ["inf", "infinity"].iter().any(|name| text.eq_ignore_ascii_case(name)) {
        return Ok(f64::INFINITY);
    }
    let (number, unit) = text.split_at(number_length(text));
    let number: f64 = number.parse().map_err(|_| bad())?;
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.,
        "m" => 60.,
        "h" => 60. * 60.,
        "d" => 24. * 60. * 60.,
        _ => return Err(bad()),
    };
    Some(number * scale).filter(|seconds| seconds.is_finite()).ok_or_else(bad)
}

/// How many bytes at the start of `text` are an unsigned decimal number, which may have an
/// exponent.
fn number_length(text: &str) -> usize {
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let mut length = digits(text);
    if text[length..].starts_with('.') {
        length += 1;
        length += digits(&text[length..]);
    }
    if let Some(exponent) = text[length..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        match digits(&exponent[sign..]) {
            0 => {}
            n => length += 1 + sign + n,
        }
    }
    length
}

/// Formats `seconds` as flux-core `fsd_format_duration` does: with six significant digits, in the
/// largest unit of which there is at least one. Milliseconds are only used below a tenth of a
/// second.
///
/// Infinity is `infinity`. Values that are not durations (negative, not a number) are formatted,
/// too.
pub fn format_fsd(seconds: f64) -> String {
    const MINUTE: f64 = 60.;
    const HOUR: f64 = 60. * MINUTE;
    const DAY: f64 = 24. * HOUR;
    if seconds.is_infinite() {
        return "infinity".to_string();
    }
    if seconds.is_nan() {
        return "nan".to_string();
    }
    let (number, unit) = match seconds.abs() {
        s if s < 0.1 && s != 0. => (seconds * 1000., "ms"),
        s if s < MINUTE => (seconds, "s"),
        s if s < HOUR => (seconds / MINUTE, "m"),
        s if s < DAY => (seconds / HOUR, "h"),
        _ => (seconds / DAY, "d"),
    };
    format_g(number) + unit
}

/// printf(3) `%.6g` of a finite number.
fn format_g(number: f64) -> String {
    const PRECISION: i32 = 6;
    let scientific = format!("{number:.*e}", PRECISION as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..PRECISION).contains(&exponent) {
        let places = (PRECISION - 1 - exponent) as usize;
        return trim_zeros(&format!("{number:.places$}")).to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

fn trim_zeros(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [
            ("5s", 5.),
            ("100ms", 0.1),
            ("1.5m", 90.),
            ("2h", 7200.),
            ("1d", 86400.),
            ("10", 10.),
            ("0", 0.),
            ("0s", 0.),
            (".5", 0.5),
            ("1.", 1.),
            ("1e3", 1000.),
            ("1e-3s", 0.001),
            ("1E+2m", 6000.),
            ("inf", f64::INFINITY),
            ("infinity", f64::INFINITY),
            ("Infinity", f64::INFINITY),
        ] {
            assert_eq!(parse_fsd(text), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for bad in [
            "",
            "s",
            ".",
            "-1",
            "-1s",
            "-0",
            "nan",
            "NaN",
            "-inf",
            "infs",
            "infinitys",
            "x",
            "5x",
            "5 s",
            " 5s",
            "5s ",
            "5S",
            "5sec",
            "5ss",
            "5us",
            "1h30m",
            "1e",
            "1es",
            "0x10",
            "1,5",
            "1..5",
            "1e400",
            "1e308d",
            "+5",
            "ƒ",
            "5µs",
        ] {
            let expected = format!("invalid duration {bad:?}: expected N[ms|s|m|h|d]");
            assert_eq!(parse_fsd(bad).map_err(|e| e.to_string()), Err(expected));
        }
    }

    #[test]
    fn durations_are_formatted() {
        for (seconds, text) in [
            (0., "0s"),
            (30., "30s"),
            (0.1, "0.1s"),
            (0.05, "50ms"),
            (0.0621, "62.1ms"),
            (0.000_012_3, "0.0123ms"),
            (1e-10, "1e-07ms"),
            (59.9, "59.9s"),
            (59.999_999_9, "60s"),
            (60., "1m"),
            (90., "1.5m"),
            (100., "1.66667m"),
            (3600., "1h"),
            (5400., "1.5h"),
            (86400., "1d"),
            (1e6, "11.5741d"),
            (86400. * 1e6, "1e+06d"),
            (86400. * 123_456., "123456d"),
            (f64::INFINITY, "infinity"),
            (-5., "-5s"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(format_fsd(seconds), text, "{seconds}");
        }
    }
}

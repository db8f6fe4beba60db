//! What the URI and the environment may say of a connection.

use crate::connector::Limits;

/// The variable that says how long the broker may be away, as a Flux Standard Duration
/// (RFC 23), unless the URI says it: `resume:///path?timeout=10s`.
pub const TIMEOUT: &str = "FLUX_RESUME_TIMEOUT";
/// The local connector's variable: tries to connect for the first time.
pub const RETRY_COUNT: &str = "FLUX_LOCAL_CONNECTOR_RETRY_COUNT";
/// As the local connector's (flux-core `librouter/usock.h`, `USOCK_RETRY_DEFAULT`).
const RETRIES: u32 = 5;

/// How to connect.
#[derive(Debug, PartialEq)]
pub struct Options<'a> {
    /// The broker's socket.
    pub path: &'a str,
    /// What may be kept, and for how long.
    pub limits: Limits,
    /// How often to try again to connect for the first time.
    pub retries: u32,
}

impl<'a> Options<'a> {
    /// Reads what follows the scheme, and the values of [`TIMEOUT`] and [`RETRY_COUNT`].
    ///
    /// # Errors
    /// Says which option or variable cannot be read.
    pub fn read(
        uri: &'a str,
        timeout_variable: Option<&str>,
        retry_count: Option<&str>,
    ) -> Result<Self, String> {
        let mut limits = Limits::default();
        if let Some(text) = timeout_variable {
            limits.give_up_after = timeout(TIMEOUT, text)?;
        }
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("timeout", text)) => limits.give_up_after = timeout("timeout", text)?,
                _ => return Err(format!("resume://{uri}: unknown option '{option}'")),
            }
        }
        let number = |text: &str| {
            text.parse().map_err(|_| format!("{RETRY_COUNT}='{text}' is no number of tries"))
        };
        let retries = retry_count.map_or(Ok(RETRIES), number)?;
        Ok(Self { path, limits, retries })
    }
}

fn timeout(name: &str, text: &str) -> Result<f64, String> {
    seconds(text).ok_or_else(|| format!("{name}='{text}' is no duration, such as 90s, 10m or 7d"))
}

fn seconds(text: &str) -> Option<f64> {
    if text == "infinity" || text == "inf" {
        return Some(f64::MAX);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| (number * unit).min(f64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give_up_after(uri: &str, variable: Option<&str>) -> Result<f64, String> {
        Options::read(uri, variable, None).map(|options| options.limits.give_up_after)
    }

    #[test]
    fn the_uri_comes_before_the_variable() {
        assert_eq!(give_up_after("/x", Some("2m")), Ok(120.0));
        assert_eq!(give_up_after("/x?timeout=10s", Some("2m")), Ok(10.0));
        assert_eq!(give_up_after("/x", None), Ok(Limits::default().give_up_after));
    }

    #[test]
    fn no_duration_is_more_than_for_ever() {
        let digits = "9".repeat(400);
        assert_eq!(give_up_after(&format!("/x?timeout={digits}d"), None), Ok(f64::MAX));
        assert_eq!(give_up_after("/x?timeout=infinity", None), Ok(f64::MAX));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let tries = Options::read("/x", None, Some("-1")).unwrap_err();
        assert!(tries.contains(RETRY_COUNT) && tries.contains("-1"), "{tries}");
        assert!(give_up_after("/x", Some("soon")).is_err_and(|why| why.contains(TIMEOUT)));
        assert!(give_up_after("/x?timeout=1w", None).is_err_and(|why| why.contains("1w")));
        assert!(give_up_after("/x?retries=1", None).is_err_and(|why| why.contains("retries=1")));
    }
}

//! What the URI and the environment may say of a connection.

use std::env;

use resume_machine::Limits;

/// How long the broker may be away, as a Flux Standard Duration (RFC 23), unless the URI says
/// it: `resume:///path?timeout=10s`.
const TIMEOUT: &str = "FLUX_RESUME_TIMEOUT";
/// The local connector's: tries to connect for the first time.
const RETRY_COUNT: &str = "FLUX_LOCAL_CONNECTOR_RETRY_COUNT";
/// As the local connector's (flux-core `librouter/usock.h`, `USOCK_RETRY_DEFAULT`).
const RETRIES: u32 = 5;

/// How to connect.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    pub(crate) path: &'a str,
    pub(crate) limits: Limits,
    /// How often to try again to connect for the first time.
    pub(crate) retries: u32,
}

/// Reads what follows the scheme, and the environment.
pub(crate) fn read(uri: &str) -> Result<Options<'_>, String> {
    let mut limits = Limits::default();
    if let Ok(text) = env::var(TIMEOUT) {
        limits.give_up_after = timeout(TIMEOUT, &text)?;
    }
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("timeout", text)) => limits.give_up_after = timeout("timeout", text)?,
            _ => return Err(format!("resume://{uri}: unknown option '{option}'")),
        }
    }
    let retries = match env::var(RETRY_COUNT) {
        Ok(text) => {
            text.parse().map_err(|_| format!("{RETRY_COUNT}='{text}' is no number of tries"))?
        }
        Err(_) => RETRIES,
    };
    Ok(Options { path, limits, retries })
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
    number.parse::<f64>().ok().map(|number| number * unit)
}

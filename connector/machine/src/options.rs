//! Options of a connection, from the URI and the environment.

use std::fmt;

use crate::run::Run;

/// How much the connector keeps, and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of requests that are kept for the client: those that wait for the broker, and
    /// those that wait for an answer. Past this limit the client may not send.
    pub retained_max: usize,
    /// Bytes of done commits that are kept until a checkpoint has them.
    pub commits_max: usize,
    /// Seconds that the broker may be away; then the connection ends.
    pub give_up_after: f64,
    /// Seconds after the return of the broker during which missing services and namespaces are
    /// expected to return as well.
    pub patience: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retained_max: 16 << 20,
            commits_max: 8 << 20,
            give_up_after: 7.0 * 86400.0,
            patience: 600.0,
        }
    }
}

/// The variable that says how long the broker may be away, as a Flux Standard Duration
/// (RFC 23). `resume:///path?timeout=10s` overrides it.
pub const TIMEOUT: &str = "FLUX_RESUME_TIMEOUT";
/// The local connector's variable: how often the first attempt to connect is repeated.
pub const RETRY_COUNT: &str = "FLUX_LOCAL_CONNECTOR_RETRY_COUNT";
/// As the local connector's (flux-core `librouter/usock.h`, `USOCK_RETRY_DEFAULT`).
const RETRIES: u32 = 5;

/// How to connect.
#[derive(Debug, PartialEq)]
pub struct Options<'a> {
    /// The broker's socket.
    pub path: &'a str,
    /// How much is kept, and for how long.
    pub limits: Limits,
    /// How often to repeat the first attempt to connect.
    pub retries: u32,
    /// The broker rank of the socket.
    pub rank: Option<u32>,
    /// The process of the broker that has made the URI.
    pub broker: Option<u32>,
    /// The run of a job that the client belongs to.
    pub run: Option<Run>,
    /// The rank whose job-info service is asked about that job.
    pub info: Option<u32>,
}

/// An option that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OptionsError {
    /// The value of the option `broker` is not a process id.
    Broker {
        /// Its value.
        value: String,
    },
    /// The value of this option or variable is not a duration.
    Duration {
        /// The option or variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The value of this option is not a broker rank.
    Rank {
        /// The option.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The value of [`RETRY_COUNT`] is not a number.
    Retries {
        /// Its value.
        value: String,
    },
    /// The value of the option `run` is not a job's id and a digest.
    Run {
        /// Its value.
        value: String,
    },
    /// The URI has an option that does not exist.
    Unknown {
        /// The URI without its scheme.
        uri: String,
        /// The option.
        option: String,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker { value } => write!(f, "broker='{value}' is not a process id"),
            Self::Duration { name, value } => {
                write!(f, "{name}='{value}' is not a duration, such as 90s, 10m or 7d")
            }
            Self::Rank { name, value } => write!(f, "{name}='{value}' is not a broker rank"),
            Self::Retries { value } => {
                write!(f, "{RETRY_COUNT}='{value}' is not a number of attempts")
            }
            Self::Run { value } => write!(f, "run='{value}' is not JOB-DIGEST"),
            Self::Unknown { uri, option } => write!(f, "resume://{uri}: unknown option '{option}'"),
        }
    }
}

impl std::error::Error for OptionsError {}

impl<'a> Options<'a> {
    /// Reads the part of the URI after the scheme, and the values of [`TIMEOUT`] and
    /// [`RETRY_COUNT`].
    ///
    /// # Errors
    /// Names the option or variable that cannot be read.
    pub fn read(
        uri: &'a str,
        timeout_variable: Option<&str>,
        retry_count: Option<&str>,
    ) -> Result<Self, OptionsError> {
        let mut limits = Limits::default();
        let (mut run, mut rank, mut broker, mut info) = (None, None, None, None);
        if let Some(text) = timeout_variable {
            limits.give_up_after = timeout(TIMEOUT, text)?;
        }
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("timeout", text)) => limits.give_up_after = timeout("timeout", text)?,
                Some(("broker", text)) => {
                    let value = text.to_string();
                    broker = Some(text.parse().map_err(|_| OptionsError::Broker { value })?);
                }
                Some(("info", text)) => info = Some(broker_rank("info", text)?),
                Some(("rank", text)) => rank = Some(broker_rank("rank", text)?),
                Some(("run", text)) => {
                    let value = text.to_string();
                    run = Some(Run::parse(text).ok_or(OptionsError::Run { value })?);
                }
                _ => {
                    let (uri, option) = (uri.to_string(), option.to_string());
                    return Err(OptionsError::Unknown { uri, option });
                }
            }
        }
        let number = |text: &str| {
            text.parse().map_err(|_| OptionsError::Retries { value: text.to_string() })
        };
        let retries = retry_count.map_or(Ok(RETRIES), number)?;
        Ok(Self { path, limits, retries, rank, broker, run, info })
    }
}

fn broker_rank(name: &'static str, text: &str) -> Result<u32, OptionsError> {
    text.parse().map_err(|_| OptionsError::Rank { name, value: text.to_string() })
}

fn timeout(name: &'static str, text: &str) -> Result<f64, OptionsError> {
    seconds(text).ok_or_else(|| OptionsError::Duration { name, value: text.to_string() })
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

    fn give_up_after(uri: &str, variable: Option<&str>) -> Result<f64, OptionsError> {
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
        let tries = Options::read("/x", None, Some("-1")).unwrap_err().to_string();
        assert!(tries.contains(RETRY_COUNT) && tries.contains("-1"), "{tries}");
        for (uri, variable, named) in [
            ("/x", Some("soon"), TIMEOUT),
            ("/x?timeout=1w", None, "1w"),
            ("/x?run=ab", None, "run='ab'"),
            ("/x?rank=-1", None, "rank='-1'"),
            ("/x?info=leader", None, "info='leader'"),
            ("/x?broker=me", None, "broker='me'"),
            ("/x?retries=1", None, "retries=1"),
        ] {
            let error = give_up_after(uri, variable).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}

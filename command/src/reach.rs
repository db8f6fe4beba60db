//! How commands ask other ranks.

use std::time::Duration;

use clap::Args;
use job_exec_rs::proto::parse_fsd;

#[derive(Args, Debug)]
pub(super) struct Reach {
    /// How long other ranks have to answer
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(super) timeout: Duration,
    /// What this rank has, as JSON, for another rank that asks
    #[arg(long, hide = true)]
    pub(super) here: bool,
}

/// A duration in Flux Standard Duration (RFC 23).
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = parse_fsd(text).map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

//! How shells are started: `exec.method` of the configuration, and `attributes.system.exec.method`
//! of a jobspec.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A method, or the choice of one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecMethod {
    /// What there is: systemd if the user bus answers when the module is loaded, else fork. For one
    /// job: as for the others.
    #[default]
    Auto,
    /// Child processes of the broker.
    Fork,
    /// Transient units. Without a user bus no job can run.
    Systemd,
}

/// The values that can be configured, for error texts.
pub const METHODS: &str = "auto, systemd or fork";

/// There is no such method.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown method '{0}' (expected {METHODS})")]
pub struct MethodError(String);

impl FromStr for ExecMethod {
    type Err = MethodError;

    /// Knows flux-core's names, too. `bulk-exec` and `bgexec` are ways in which rank 0 can ask a
    /// launcher for shells (`flux-config-exec(5)`), so they leave the launcher open. `rexec` and
    /// `sdexec` are its launchers.
    fn from_str(text: &str) -> Result<Self, MethodError> {
        match text {
            "auto" | "bulk-exec" | "bgexec" => Ok(Self::Auto),
            "fork" | "rexec" => Ok(Self::Fork),
            "systemd" | "sdexec" => Ok(Self::Systemd),
            _ => Err(MethodError(text.to_string())),
        }
    }
}

impl std::fmt::Display for ExecMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Fork => "fork",
            Self::Systemd => "systemd",
        })
    }
}

impl ExecMethod {
    /// The choice is left open.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flux_cores_names_are_known() {
        for (text, method) in [
            ("auto", ExecMethod::Auto),
            ("bulk-exec", ExecMethod::Auto),
            ("bgexec", ExecMethod::Auto),
            ("fork", ExecMethod::Fork),
            ("rexec", ExecMethod::Fork),
            ("systemd", ExecMethod::Systemd),
            ("sdexec", ExecMethod::Systemd),
        ] {
            assert_eq!(text.parse(), Ok(method), "{text}");
        }
        let error = "Fork".parse::<ExecMethod>().expect_err("letters count").to_string();
        assert_eq!(error, "unknown method 'Fork' (expected auto, systemd or fork)");
    }
}

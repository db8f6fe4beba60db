//! What is wrong with a configuration.

use serde_json::Value;

use crate::proto::{METHODS, PERILOG_PLUGIN};

/// A configuration that can't be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A module argument without `=`.
    #[error("unknown module argument '{argument}': expected KEY=VALUE")]
    ArgumentForm {
        /// The argument.
        argument: String,
    },
    /// `exec.barrier-timeout` is no duration.
    #[error("invalid duration '{value}' specified for exec.barrier-timeout")]
    BarrierTimeout {
        /// What it is.
        value: String,
    },
    /// A key outside of the `exec` table itself has a value of another type.
    #[error("error reading config value {key}: expected {expected}, got {value}")]
    KeyType {
        /// The whole key.
        key: String,
        /// The type that it should have.
        expected: &'static str,
        /// Its value.
        value: Value,
    },
    /// A script without a command.
    #[error("no {key}, and no exec.imp that could run it")]
    NoCommand {
        /// The whole key.
        key: String,
    },
    /// Each script would run twice.
    #[error(
        "exec.perilog.enable = true, and job-manager.plugins loads {PERILOG_PLUGIN}: each prolog and \
         epilog would run twice"
    )]
    PerilogTwice,
    /// A key that there is not, in a table that has no others.
    #[error("unknown key {key}")]
    UnknownKey {
        /// The whole key.
        key: String,
    },
    /// A method that there is not.
    #[error("unknown exec.method '{value}' (expected {METHODS})")]
    Method {
        /// Its name.
        value: String,
    },
    /// A number that is not above zero, or too large.
    #[error("invalid {key}={value}")]
    OutOfRange {
        /// The key in the table, or the argument.
        key: String,
        /// The number.
        value: i64,
    },
    /// `exec.sdexec-properties` is not a table.
    #[error("exec.sdexec-properties is not a table")]
    Properties,
    /// A member of `exec.sdexec-properties` is not a string.
    #[error("exec.sdexec-properties.{name} is not a string")]
    Property {
        /// The property.
        name: String,
    },
    /// `exec` is not a table.
    #[error("Error reading [exec] table: got {value}")]
    Table {
        /// What it is.
        value: Value,
    },
    /// A key of the table has a value of another type.
    #[error("error reading config value exec.{key}: expected {expected}, got {value}")]
    Type {
        /// The key.
        key: String,
        /// The type that it should have.
        expected: &'static str,
        /// Its value.
        value: Value,
    },
    /// A module argument that there is not.
    #[error("unknown module argument '{key}={value}'")]
    UnknownArgument {
        /// Before the `=`.
        key: String,
        /// Behind it.
        value: String,
    },
    /// A value that cannot be read, or that is out of range.
    #[error("invalid {key}: {value}")]
    Value {
        /// The key in the table, or the argument.
        key: String,
        /// The value.
        value: String,
    },
}

/// A value that cannot be read.
pub(super) fn invalid(key: &str, value: &str) -> ConfigError {
    ConfigError::Value { key: key.to_string(), value: value.to_string() }
}

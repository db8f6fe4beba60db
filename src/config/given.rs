//! What a key is given, and its readers. Each names the key and the value if it cannot use it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ConfiguredMethod;
use super::error::{ConfigError, invalid};
use crate::proto::{Signal, parse_fsd, parse_size};

/// Longest duration that is accepted, in seconds: about 30 years.
const DURATION_MAX: f64 = 1e9;

/// A key's value.
pub(super) struct Given<'a> {
    pub(super) key: &'static str,
    pub(super) value: Source<'a>,
}

/// Where it stands.
pub(super) enum Source<'a> {
    Table(&'a Value),
    Argument(&'a str),
}

type Read<T> = Result<T, ConfigError>;

impl Given<'_> {
    fn text(&self) -> Read<&str> {
        match self.value {
            Source::Table(value) => value.as_str().ok_or_else(|| self.wrong_type("a string")),
            Source::Argument(text) => Ok(text),
        }
    }

    fn integer(&self) -> Read<i64> {
        match self.value {
            Source::Table(value) => value.as_i64().ok_or_else(|| self.wrong_type("an integer")),
            Source::Argument(text) => text.parse().map_err(|_| invalid(self.key, text)),
        }
    }

    /// Reads a value that only the table can have. An argument is text, so it is always of the wrong
    /// type.
    fn of_table<'a, T>(
        &'a self,
        expected: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Read<T> {
        let read = match self.value {
            Source::Table(value) => read(value),
            Source::Argument(_) => None,
        };
        read.ok_or_else(|| self.wrong_type(expected))
    }

    fn wrong_type(&self, expected: &'static str) -> ConfigError {
        let value = match self.value {
            Source::Table(value) => value.clone(),
            Source::Argument(text) => Value::from(text),
        };
        ConfigError::Type { key: self.key.to_string(), expected, value }
    }

    fn out_of_range(&self, value: i64) -> ConfigError {
        ConfigError::OutOfRange { key: self.key.to_string(), value }
    }

    /// Reads text, and refuses what cannot be read.
    fn parsed<T>(&self, parse: impl Fn(&str) -> Option<T>) -> Read<T> {
        let text = self.text()?;
        parse(text).ok_or_else(|| invalid(self.key, text))
    }
}

pub(super) fn text(given: &Given) -> Read<String> {
    given.text().map(str::to_string)
}

pub(super) fn method(given: &Given) -> Read<ConfiguredMethod> {
    let text = given.text()?;
    ConfiguredMethod::named(text).ok_or_else(|| ConfigError::Method { value: text.to_string() })
}

/// More than nothing, and not for ever.
pub(super) fn duration(given: &Given) -> Read<f64> {
    given.parsed(|text| parse_fsd(text).ok().filter(|it| *it > 0.0 && *it <= DURATION_MAX))
}

/// A limit that is not above 0, or is for ever, is none.
pub(super) fn limit_of(seconds: f64) -> Option<f64> {
    Some(seconds).filter(|seconds| *seconds > 0.0 && *seconds <= DURATION_MAX)
}

/// flux-core has a text of its own for this error (`job-exec/exec.c`).
pub(super) fn barrier_limit(given: &Given) -> Read<Option<f64>> {
    let text = given.text()?;
    let bad = |_| ConfigError::BarrierTimeout { value: text.to_string() };
    parse_fsd(text).map(limit_of).map_err(bad)
}

pub(super) fn end_limit(given: &Given) -> Read<Option<f64>> {
    given.parsed(|text| match text {
        "none" => Some(None),
        _ => parse_fsd(text).ok().map(limit_of),
    })
}

pub(super) fn signal(given: &Given) -> Read<Signal> {
    given.parsed(|text| text.parse().ok())
}

/// A number of bytes above 0, with a suffix or without.
pub(super) fn bytes(given: &Given) -> Read<u64> {
    let above_zero = |text: &str| parse_size(text).filter(|bytes| *bytes > 0);
    match given.value {
        Source::Table(Value::Number(number)) => {
            let text = number.to_string();
            above_zero(&text).ok_or_else(|| invalid(given.key, &text))
        }
        _ => given.parsed(above_zero),
    }
}

pub(super) fn absolute_path(given: &Given) -> Read<String> {
    let is_path = |text: &&str| text.starts_with('/') && !text.contains('\0');
    given.parsed(|text| Some(text).filter(is_path).map(str::to_string))
}

/// A number above 0.
pub(super) fn count(given: &Given) -> Read<u32> {
    let value = given.integer()?;
    let above_zero = u32::try_from(value).ok().filter(|value| *value > 0);
    above_zero.ok_or_else(|| given.out_of_range(value))
}

/// Below 0 counts as not set.
pub(super) fn seconds(given: &Given) -> Read<Option<u32>> {
    let value = given.integer()?;
    let seconds = u32::try_from(value).map_err(|_| given.out_of_range(value));
    if value < 0 { Ok(None) } else { seconds.map(Some) }
}

/// signal(7).
pub(super) fn signal_number(given: &Given) -> Read<i32> {
    let value = given.integer()?;
    let number = i32::try_from(value).ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| given.out_of_range(value))
}

pub(super) fn percentage(given: &Given) -> Read<f64> {
    let not_below_zero = |value: &Value| value.as_f64().filter(|number| *number >= 0.0);
    given.of_table("a number that is not below 0", not_below_zero)
}

pub(super) fn flag(given: &Given) -> Read<bool> {
    given.of_table("true or false", Value::as_bool)
}

/// `exec.testexec.allow-guests`.
pub(super) fn allow_guests(given: &Given) -> Read<bool> {
    let table = given.of_table("a table", Value::as_object)?;
    let Some(value) = table.get("allow-guests") else { return Ok(false) };
    flag(&Given { key: "testexec.allow-guests", value: Source::Table(value) })
}

pub(super) fn properties(given: &Given) -> Read<BTreeMap<String, String>> {
    let table = given.of_table("a table", Value::as_object);
    let property = |(name, value): (&String, &Value)| match value.as_str() {
        Some(text) => Ok((name.clone(), text.to_string())),
        None => Err(ConfigError::Property { name: name.clone() }),
    };
    table.map_err(|_| ConfigError::Properties)?.iter().map(property).collect()
}

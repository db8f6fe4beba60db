//! Attributes of a jobspec: the user's own text, of any size and depth. Only what is needed is read.

use std::collections::BTreeMap;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shortened;

/// A jobspec that cannot be executed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("failed to unpack system.exec{key}: {reason}")]
pub struct JobspecError {
    key: String,
    reason: String,
}

impl JobspecError {
    pub(super) fn new(key: &str, reason: impl Into<String>) -> Self {
        Self { key: shortened(key), reason: reason.into() }
    }

    pub(super) fn expected(key: &str, expected: &str, got: &RawValue) -> Self {
        Self::new(key, format!("expected {expected}, got {}", shortened(got.get())))
    }
}

/// The members of an object, each as it was written. If a name occurs more than once, the last
/// member counts.
pub(super) fn members(text: &RawValue) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_str(text.get()).ok()
}

/// One member of an object. `None` if there is no such member, or if `text` is not an object.
pub(super) fn member<'a>(text: &'a str, name: &str) -> Option<&'a RawValue> {
    /// Keeps one member and skips the others, without recursion.
    struct Find<'n>(&'n str);

    impl<'de> Visitor<'de> for Find<'_> {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(key) = map.next_key::<String>()? {
                if key == self.0 {
                    found = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }

    serde_json::Deserializer::from_str(text).deserialize_map(Find(name)).ok()?
}

/// A member that is text.
pub(super) fn string(key: &str, value: &RawValue) -> Result<String, JobspecError> {
    let text = serde_json::from_str(value.get()).ok();
    text.ok_or_else(|| JobspecError::expected(key, "a string", value))
}

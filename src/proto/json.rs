//! JSON that is kept and passed on, and read only where it is of use.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// A JSON value as text.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// The JSON of `value`, or null if it has none.
    pub fn of(value: &impl Serialize) -> Self {
        Self(to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// The value, if it is a `T`.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.text()).ok()
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

/// Two texts of one value can differ. Those of this service do not.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::of(&value)
    }
}

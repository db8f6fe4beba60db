//! systemd ignores some properties without a word; say so.

use zbus::message::Message;
use zbus::{OwnedVariant, Variant};

use crate::proto::UnitName;
use crate::supervisor::tracker::Refusal;

use super::properties::Property;

/// A property that the job asked for, to compare with what systemd says of it.
#[derive(Debug)]
pub(super) struct ReadBack {
    unit: UnitName,
    key: String,
    expected: OwnedVariant,
}

impl ReadBack {
    /// `None`: the value cannot be kept, because it has a file descriptor in it.
    pub(super) fn new(unit: &UnitName, property: Property) -> Option<Self> {
        let expected = OwnedVariant::try_from(property.value).ok()?;
        Some(Self { unit: unit.clone(), key: property.name, expected })
    }

    /// The property's name.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Compare.
    pub(super) fn answered(&self, reply: Result<Message, Refusal>) {
        let Self { unit, key, expected } = self;
        match reply {
            Ok(message) => match message.body().deserialize::<Variant<'_>>() {
                Ok(value) if value == **expected => {}
                Ok(value) => {
                    tracing::warn!(%unit, property = key, ?expected, found = ?value,
                        "systemd did not take over a unit property");
                }
                Err(error) => tracing::warn!(%unit, property = key, %error, "cannot read it back"),
            },
            // A unit that is gone already had no use for it.
            Err(error) => tracing::debug!(%unit, property = key, %error, "cannot read it back"),
        }
    }
}

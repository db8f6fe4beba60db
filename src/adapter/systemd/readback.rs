//! Compares configured properties with what systemd has, because systemd ignores some silently.

use zbus::message::Message;
use zbus::{OwnedVariant, Variant};

use crate::proto::UnitName;
use crate::supervisor::tracker::Refusal;

use super::properties::Property;

/// A configured property, to be compared with what systemd says.
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

    /// Compare the property with the answer, and log a difference.
    pub(super) fn handle_answer(&self, reply: Result<Message, Refusal>) {
        let Self { unit, key, expected } = self;
        match reply {
            Ok(message) => match message.body().deserialize::<Variant<'_>>() {
                Ok(value) if value == **expected => {}
                Ok(value) => {
                    tracing::warn!(%unit, property = key, ?expected, found = ?value,
                        "systemd ignored a unit property");
                }
                Err(error) => {
                    tracing::warn!(%unit, property = key, %error, "cannot read a unit property back")
                }
            },
            // The unit may have ended already.
            Err(error) => {
                tracing::debug!(%unit, property = key, %error, "cannot read a unit property back")
            }
        }
    }
}

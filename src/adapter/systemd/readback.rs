//! Compares properties with what systemd has: it ignores some silently, and others lose against a
//! drop-in (systemd.unit(5)).

use zbus::message::Message;
use zbus::{OwnedVariant, Variant};

use crate::proto::UnitName;
use crate::supervisor::tracker::Refusal;

use super::properties::Property;

/// A property that a unit was started with, to be compared with what systemd says.
#[derive(Debug)]
pub(super) struct ReadBack {
    unit: UnitName,
    key: String,
    expected: OwnedVariant,
    /// The unit's drop-ins, if they are the reason to compare.
    drop_ins: String,
}

impl ReadBack {
    /// `None`: the value cannot be kept, because it has a file descriptor in it.
    pub(super) fn new(unit: &UnitName, property: Property, drop_ins: &str) -> Option<Self> {
        let expected = OwnedVariant::try_from(property.value).ok()?;
        let drop_ins = drop_ins.to_string();
        Some(Self { unit: unit.clone(), key: property.name, expected, drop_ins })
    }

    /// The property's name.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Compare the property with the answer, and log a difference.
    pub(super) fn handle_answer(&self, reply: Result<Message, Refusal>) {
        let Self { unit, key, expected, drop_ins } = self;
        match reply {
            Ok(message) => match message.body().deserialize::<Variant<'_>>() {
                Ok(value) if value == **expected => {}
                Ok(found) if drop_ins.is_empty() => {
                    tracing::warn!(%unit, property = key, ?expected, ?found,
                        "systemd ignored a unit property");
                }
                Ok(found) => {
                    tracing::warn!(%unit, property = key, ?expected, ?found, drop_ins,
                        "a drop-in for all services has changed a unit property");
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

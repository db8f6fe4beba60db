//! systemd ignores some properties without a word; say so.

use zbus::message::Message;
use zbus::{OwnedVariant, Variant};

use crate::proto::UnitName;
use crate::supervisor::tracker::Refusal;

use super::bus::{Bus, Pending, SERVICE, unit_path};
use super::properties::Property;

/// A property that the job asked for, to compare with what systemd says of it.
#[derive(Debug)]
pub(super) struct ReadBack {
    unit: UnitName,
    key: String,
    expected: OwnedVariant,
}

/// Ask what became of these properties.
pub(super) fn ask(unit: &UnitName, properties: Vec<Property>, bus: &mut Bus) {
    let path = unit_path(&unit.to_string());
    for property in properties {
        let Ok(expected) = OwnedVariant::try_from(property.value) else { continue };
        let key = property.name.clone();
        let read_back = Pending::ReadBack(ReadBack { unit: unit.clone(), key, expected });
        bus.properties(read_back, &path, "Get", &(SERVICE, property.name));
    }
}

impl ReadBack {
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

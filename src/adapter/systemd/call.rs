//! What our calls are for, so that their answers find their way.

use zbus::OwnedVariant;

use crate::proto::UnitName;

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) enum Call {
    /// `AddMatch` of this rule.
    AddMatch {
        /// The rule.
        rule: String,
    },
    /// `Get` of `ControlGroup`, before the unit is stopped.
    ControlGroup(UnitName),
    /// `KillUnit`.
    Kill(UnitName),
    /// `ListUnitsByPatterns`.
    List,
    /// `Get` of a property that the job asked for, to compare with what it asked for.
    ReadBack {
        /// Which unit.
        unit: UnitName,
        /// The property.
        key: String,
        /// The value that was given.
        expected: OwnedVariant,
    },
    /// `ResetFailedUnit`.
    Reset(UnitName),
    /// `GetAll` of the service interface. Followed by one of the unit interface.
    Service(UnitName),
    /// `StartTransientUnit`.
    Start(UnitName),
    /// `StopUnit`.
    Stop(UnitName),
    /// `Subscribe`.
    Subscribe,
    /// `GetAll` of the unit interface.
    Unit(UnitName),
    /// `Get` of the manager's `Version`: is it there?
    Version,
}

//! The specification of a unit, for tests.

use std::collections::BTreeMap;

use crate::port::supervisor::UnitSpec;
use crate::proto::UnitName;

/// A unit of the owner's job, without a stop timeout.
pub(super) fn spec(unit: UnitName) -> UnitSpec {
    UnitSpec {
        job: unit.job(),
        rank: unit.rank(),
        unit,
        digest: "digest".into(),
        userid: 1,
        size: 1,
        multiuser: false,
        description: String::new(),
        argv: vec!["/bin/shell".to_string()],
        environment: BTreeMap::new(),
        unset_environment: Vec::new(),
        working_directory: None,
        properties: BTreeMap::new(),
        forget_failed: false,
        stop_timeout: None,
    }
}

//! The specification of a unit, for tests.

use job_exec_rs::port::supervisor::UnitSpec;
use job_exec_rs::proto::UnitName;

/// A unit of the owner's job, without a stop timeout.
pub(super) fn spec(unit: UnitName) -> UnitSpec {
    UnitSpec {
        userid: 1,
        size: 1,
        argv: vec!["/bin/shell".to_string()],
        ..UnitSpec::bare(unit, "digest".into())
    }
}

//! Finds the program of a unit: systemd wants an absolute path.

use std::env;
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use crate::port::supervisor::UnitSpec;

/// Where a program is looked for that is only a name, if nothing says where (`execvp(3)`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A program that cannot be found.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum ProgramError {
    /// It is a path from somewhere.
    #[error("the program {program:?} is not an absolute path")]
    Relative {
        /// The program.
        program: String,
    },
    /// There is no such program in any of the directories.
    #[error("the program {program:?} is not in PATH={path:?}")]
    Unknown {
        /// Its name.
        program: String,
        /// Where it was looked for.
        path: String,
    },
}

/// The path of the program. A name without a slash is looked for as `execvp(3)` does, so as flux-core's
/// services do: in the unit's `PATH`, or else in the broker's.
pub(super) fn find(program: &str, spec: &UnitSpec) -> Result<String, ProgramError> {
    if program.starts_with('/') {
        return Ok(program.to_string());
    }
    if program.contains('/') {
        return Err(ProgramError::Relative { program: program.to_string() });
    }
    let path = spec.environment.get("PATH").cloned().or_else(|| env::var("PATH").ok());
    let path = path.unwrap_or_else(|| DEFAULT_PATH.to_string());
    let mut places = path.split(':').filter(|place| place.starts_with('/'));
    let found = places.find_map(|place| Some(format!("{place}/{program}")).filter(|p| runs(p)));
    found.ok_or_else(|| ProgramError::Unknown { program: program.to_string(), path })
}

fn runs(path: &str) -> bool {
    Path::new(path).is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{BrokerRank, InstanceId, JobDigest, JobId, UnitName};

    fn found(program: &str, path: &str) -> Result<String, String> {
        let unit = UnitName::new(false, BrokerRank(0), JobId(7), InstanceId::new("/test", 500));
        let mut spec = UnitSpec::bare(unit, JobDigest::default());
        spec.environment.insert("PATH".to_string(), path.to_string());
        find(program, &spec).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_is_looked_for_in_the_units_path() {
        assert_eq!(found("sh", "relative:/nonexistent:/etc:/bin"), Ok("/bin/sh".to_string()));
        assert_eq!(found("/no/program", ""), Ok("/no/program".to_string()));
        // It is there, and is no program.
        let passwd = found("passwd", "/etc").expect_err("not found");
        assert_eq!(passwd, "the program \"passwd\" is not in PATH=\"/etc\"");
        assert!(found("./sh", "/bin").is_err_and(|why| why.contains("not an absolute path")));
        assert!(found("", "/bin").is_err());
    }
}

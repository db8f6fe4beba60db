//! Digests of jobs.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{JobId, ResourceSet};

/// Tells a job from another job with the same id. After the KVS has rolled back, ids are issued
/// again.
///
/// SHA-256, as lower-case hex digits, over job id, user id and R without its expiration, which
/// changes while a job runs. Each is text, and is preceded by its length in bytes as a big-endian
/// 64-bit number (`rfc/0002-messages.md`).
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct JobDigest(String);

impl JobDigest {
    /// Makes the digest of a job.
    pub fn new(id: JobId, userid: u32, r: &ResourceSet) -> Self {
        let mut r = r.raw().clone();
        if let Some(execution) = r.get_mut("execution").and_then(|e| e.as_object_mut()) {
            execution.remove("expiration");
        }
        // The same R can come back with its keys in another order after a restart.
        r.sort_all_objects();
        let mut hash = Sha256::new();
        for part in [id.0.to_string(), userid.to_string(), r.to_string()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for JobDigest {
    /// Takes a digest as it was written.
    fn from(digits: &str) -> Self {
        Self(digits.to_string())
    }
}

impl fmt::Display for JobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn r(expiration: f64) -> ResourceSet {
        let r = json!({"version": 1, "execution": {
            "R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["n0"],
            "starttime": 1.0, "expiration": expiration}});
        ResourceSet::read(&r.to_string()).expect("an R")
    }

    /// Every release must make the same digest, because records of running jobs have it.
    #[test]
    fn a_digest_stays_what_it_was() {
        let digest = JobDigest::new(JobId(7), 500, &r(0.0));
        assert_eq!(digest.as_str(), DIGEST);
        assert_eq!(JobDigest::new(JobId(7), 500, &r(9.0)), digest);
        assert_ne!(JobDigest::new(JobId(7), 501, &r(0.0)), digest);
    }

    const DIGEST: &str = "6abadd556ec23f2b04880bb15f72ec9969277177964476ae655a1a2f45a3ebd0";
}

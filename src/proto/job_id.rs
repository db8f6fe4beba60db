//! Job ids: FLUIDs (RFC 19) and their F58 form.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// See [`JobId::show_ascii`].
static IS_ASCII: AtomicBool = AtomicBool::new(false);

/// A job id. Shown as F58 (`ƒAbc`), the form that every log line and exception uses.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// The text is not a job id.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a job id (expected decimal, or F58 such as f2XtA9)")]
pub struct JobIdError(String);

impl JobId {
    /// From now on this process shows F58 with `f` in place of `ƒ`, or not. As the locale, which
    /// decides it in flux-core (`libutil/fluid.c`), this is a setting of the whole process.
    pub fn show_ascii(is_ascii: bool) {
        IS_ASCII.store(is_ascii, Ordering::Relaxed);
    }

    /// The ASCII form `f…` ("f58plain"): for unit names, file names and topic strings.
    pub fn f58plain(self) -> String {
        let mut digits = Vec::with_capacity(12);
        let mut n = self.0;
        loop {
            digits.push(ALPHABET[(n % 58) as usize]);
            n /= 58;
            if n == 0 {
                break;
            }
        }
        digits.push(b'f');
        digits.iter().rev().map(|b| char::from(*b)).collect()
    }

    /// The job's guest KVS namespace (flux-core `flux_job_kvs_namespace`).
    pub fn namespace(self) -> String {
        format!("job-{}", self.0)
    }

    /// A key below the job's directory in the primary KVS namespace, where the id is four
    /// dotted groups of hex digits (RFC 16; flux-core `flux_job_kvs_key`).
    pub fn kvs_key(self, key: &str) -> String {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) & 0xffff);
        format!("job.{a:04x}.{b:04x}.{c:04x}.{d:04x}.{key}")
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.f58plain();
        if IS_ASCII.load(Ordering::Relaxed) {
            f.write_str(&plain)
        } else {
            write!(f, "ƒ{}", &plain[1..])
        }
    }
}

impl FromStr for JobId {
    type Err = JobIdError;

    /// Accepts decimal and both F58 forms.
    fn from_str(s: &str) -> Result<Self, JobIdError> {
        let bad = || JobIdError(s.to_string());
        let Some(digits) = s.strip_prefix('ƒ').or_else(|| s.strip_prefix('f')) else {
            let digits = s.bytes().all(|b| b.is_ascii_digit());
            return s.parse().ok().filter(|_| digits).map(JobId).ok_or_else(bad);
        };
        if digits.is_empty() {
            return Err(bad());
        }
        let mut n: u64 = 0;
        for byte in digits.bytes() {
            let digit = ALPHABET.iter().position(|a| *a == byte).ok_or_else(bad)?;
            n = n.checked_mul(58).and_then(|n| n.checked_add(digit as u64)).ok_or_else(bad)?;
        }
        Ok(JobId(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f58_round_trips() {
        for id in [0, 1, 57, 58, 6_731_191_091_200, u64::MAX] {
            let id = JobId(id);
            assert_eq!(id.f58plain().parse(), Ok(id));
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.0.to_string().parse(), Ok(id));
        }
        // As `flux job id` says.
        assert_eq!(JobId(6_731_191_091_200).f58plain(), "f43pPJoEo");
        assert_eq!(JobId(0).to_string(), "ƒ1");
    }

    #[test]
    fn bad_ids_are_refused() {
        for bad in ["", "f", "ƒ", "f0", "fIl", "-1", "+1", "12x", "fzzzzzzzzzzzzzz"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn kvs_names() {
        assert_eq!(JobId(0x1234_0000_0000_abcd).kvs_key("guest"), "job.1234.0000.0000.abcd.guest");
        assert_eq!(JobId(7).namespace(), "job-7");
    }
}

//! Runs of a job.
//!
//! If the KVS goes back to a time before the job got its resources, the job gets others, and runs a
//! second time. Until clients of the first run are ended they find services and a namespace of the
//! same names. They are not theirs.

/// Characters of a digest that tell runs of one job apart.
const MARK_LENGTH: usize = 16;

/// A run of a job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Run {
    /// The job's id, as a decimal number.
    pub job: u64,
    /// What tells the job's runs apart: its digest (`rfc/0008-recovery.md`).
    pub digest: String,
}

impl Run {
    /// Reads `JOB-DIGEST`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (job, digest) = text.split_once('-')?;
        let digest = Some(digest).filter(|digest| !digest.is_empty())?;
        Some(Self { job: job.parse().ok()?, digest: digest.to_string() })
    }

    /// What tells it from the job's other runs in each message to a shell: a part of the digest.
    pub(crate) fn mark(&self) -> String {
        self.digest.chars().take(MARK_LENGTH).collect()
    }

    pub(crate) fn namespace(&self) -> String {
        format!("job-{}", self.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_job_and_a_digest() {
        let run = Run::parse("50331648-9bce76d4").expect("a run");
        assert_eq!((run.namespace().as_str(), run.digest.as_str()), ("job-50331648", "9bce76d4"));
        for text in ["", "50331648", "50331648-", "-9bce", "x-9bce"] {
            assert_eq!(Run::parse(text), None, "{text}");
        }
    }
}

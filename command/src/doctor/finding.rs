//! One thing that was looked at, and how it is shown.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::paint::{Colour, Paint};

/// What was found on one node.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) host: String,
    pub(super) rank: Option<u32>,
    pub(super) findings: Vec<Finding>,
}

/// How something is, worst first.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Grade {
    Bad,
    /// Nobody has looked.
    Unknown,
    /// It is as somebody may want it.
    Note,
    Good,
}

impl Grade {
    /// Its word, as wide as all of them.
    pub(super) fn painted(self, paint: Paint) -> String {
        let (word, colour) = match self {
            Self::Bad => ("BAD  ", Colour::Red),
            Self::Unknown => ("?    ", Colour::Red),
            Self::Note => ("note ", Colour::Yellow),
            Self::Good => ("good ", Colour::Green),
        };
        paint.paint(colour, word)
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) check: String,
    pub(super) grade: Grade,
    pub(super) found: String,
    /// What to type, with [`RANKS`]. After a `#` it is for whom no command can help.
    pub(super) mend: Option<String>,
    /// Which jobs, if that ends any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<String>,
}

/// In a command: the ranks that have the finding.
pub(super) const RANKS: &str = "RANKS";

impl Finding {
    /// What to type for these ranks.
    pub(super) fn mend_on(&self, ranks: &str) -> Option<String> {
        Some(self.mend.as_ref()?.replace(RANKS, ranks))
    }

    /// The mend ends these jobs.
    pub(super) fn ending(self, jobs: &str) -> Self {
        Self { ends: Some(jobs.to_string()), ..self }
    }

    /// The mend, below the finding: the command has a line of its own.
    pub(super) fn show_mend(
        &self,
        ranks: &str,
        paint: Paint,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Some(mend) = self.mend_on(ranks) else { return Ok(()) };
        let Some(jobs) = &self.ends else { return writeln!(out, "        {:<16} -> {mend}", "") };
        let warning = paint.paint(Colour::Red, &format!("ENDS {jobs}:"));
        writeln!(out, "        {:<16} -> {warning}", "")?;
        writeln!(out, "        {:<16}    {mend}", "")
    }
}

pub(super) fn good(check: &str, found: impl Into<String>) -> Finding {
    let (check, found) = (check.into(), found.into());
    Finding { check, grade: Grade::Good, found, mend: None, ends: None }
}

pub(super) fn note(check: &str, found: impl Into<String>) -> Finding {
    Finding { grade: Grade::Note, ..good(check, found) }
}

pub(super) fn bad(check: &str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding { grade: Grade::Bad, mend: Some(mend.into()), ..good(check, found) }
}

/// A rank that has not told what it found.
pub(super) fn silent(why: &str) -> Finding {
    let mend = format!("flux exec -r {RANKS} job-exec-rs doctor");
    Finding { grade: Grade::Unknown, mend: Some(mend), ..good("answer", why) }
}

//! What an agent keeps with a unit's record.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::proto::{BarrierClients, Bequest, EndReason, Idset, Json, Stream, Usage};

const ENTERED: &str = "barrier-entered";
const CLIENTS: &str = "barrier-clients";
const PASSED: &str = "barrier-passed";
const CRITICAL: &str = "critical-ranks";
const DEGRADED: &str = "degraded";
const END_REASON: &str = "end-reason";
const GIVEN_BACK: &str = "given-back";
pub(super) const MADE_AGAIN: &str = "made-again";
const STDOUT_BASE: &str = "stdout-base";
const STDERR_BASE: &str = "stderr-base";
const USAGE: &str = "usage";
const COMMITS: &str = "commits-";

/// A fact about a shell that must be there after a restart. A later one of the same key replaces
/// an earlier one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Note {
    /// The shell has entered the shell barrier so many times.
    BarrierEntered(u32),
    /// Who of the shell has entered the shell barrier.
    BarrierClients(BarrierClients),
    /// So many shell barriers were complete when the shell was let go.
    BarrierPassed(u32),
    /// A client of the job on this rank has left commits.
    Commits(Arc<Bequest>),
    /// A nested instance named its critical shells, by shell rank.
    CriticalRanks(Idset),
    /// The prolog has marked its node as degraded, and says why.
    Degraded(String),
    /// A leader has had the shell ended for this exception.
    EndReason(EndReason),
    /// The job is over, and its rank given back, while this script goes on: how it ends drains nobody.
    GivenBack,
    /// The record was lost and made again from the unit. So how often the shell has entered the
    /// barrier is not known.
    MadeAgain {
        /// What the shell had written was lost as well, or what it writes from now on is.
        output_lost: bool,
    },
    /// An output file was emptied by who writes to it, and begins here since.
    OutputBase {
        /// Which stream's.
        stream: Stream,
        /// Bytes from the stream's beginning.
        offset: u64,
    },
    /// What the unit's processes have used. None of them is left.
    Usage(Box<Usage>),
}

impl Note {
    /// The key in the record.
    pub fn key(&self) -> String {
        match self {
            Self::BarrierEntered(_) => ENTERED.to_string(),
            Self::BarrierClients(_) => CLIENTS.to_string(),
            Self::BarrierPassed(_) => PASSED.to_string(),
            Self::Commits(bequest) => format!("{COMMITS}{}", bequest.client),
            Self::CriticalRanks(_) => CRITICAL.to_string(),
            Self::Degraded(_) => DEGRADED.to_string(),
            Self::EndReason(_) => END_REASON.to_string(),
            Self::GivenBack => GIVEN_BACK.to_string(),
            Self::MadeAgain { .. } => MADE_AGAIN.to_string(),
            Self::OutputBase { stream: Stream::Stdout, .. } => STDOUT_BASE.to_string(),
            Self::OutputBase { stream: Stream::Stderr, .. } => STDERR_BASE.to_string(),
            Self::Usage(_) => USAGE.to_string(),
        }
    }

    /// The value in the record.
    pub fn value(&self) -> Json {
        match self {
            Self::BarrierEntered(count) | Self::BarrierPassed(count) => Json::of(count),
            Self::BarrierClients(clients) => Json::of(clients),
            Self::Commits(bequest) => Json::of(&**bequest),
            Self::CriticalRanks(ranks) => Json::of(&ranks.to_string()),
            Self::Degraded(reason) => Json::of(reason),
            Self::EndReason(reason) => Json::of(reason),
            Self::GivenBack => Json::of(&true),
            Self::MadeAgain { output_lost } => json!({ "output-lost": output_lost }).into(),
            Self::OutputBase { offset, .. } => Json::of(offset),
            Self::Usage(usage) => Json::of(usage),
        }
    }

    /// The notes of a record. Those that are no notes of this release are passed over.
    pub fn all(notes: &BTreeMap<String, Json>) -> impl Iterator<Item = Self> {
        notes.iter().filter_map(|(key, value)| Self::read(key, value))
    }

    fn read(key: &str, value: &Json) -> Option<Self> {
        match key {
            ENTERED => value.read().map(Self::BarrierEntered),
            CLIENTS => value.read().map(Self::BarrierClients),
            PASSED => value.read().map(Self::BarrierPassed),
            CRITICAL => value.read::<String>()?.parse().ok().map(Self::CriticalRanks),
            _ if key.starts_with(COMMITS) => {
                let bequest: Bequest = value.read()?;
                bequest.is_valid().then(|| Self::Commits(Arc::new(bequest)))
            }
            DEGRADED => value.read().map(Self::Degraded),
            END_REASON => value.read().map(Self::EndReason),
            GIVEN_BACK => value.read::<bool>()?.then_some(Self::GivenBack),
            MADE_AGAIN => {
                let output_lost = value.read::<Value>()?.get("output-lost")?.as_bool()?;
                Some(Self::MadeAgain { output_lost })
            }
            STDOUT_BASE | STDERR_BASE => {
                let stream = if key == STDOUT_BASE { Stream::Stdout } else { Stream::Stderr };
                value.read().map(|offset| Self::OutputBase { stream, offset })
            }
            USAGE => value.read().map(Self::Usage),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let commits = json!([{ "number": 1, "commit": { "flags": 0, "ops": [] } }]);
        let bequest = json!({ "client": "0011223344556677", "shell": true, "commits": commits });
        let clients = json!({ "first": "0011223344556677", "others": [] });
        let clients = serde_json::from_value(clients).expect("clients");
        let notes = [
            Note::BarrierClients(clients),
            Note::BarrierEntered(2),
            Note::BarrierPassed(1),
            Note::Commits(Arc::new(serde_json::from_value(bequest).expect("a bequest"))),
            Note::CriticalRanks(Idset::from_range(0..3)),
            Note::Degraded("no scratch".to_string()),
            Note::EndReason(EndReason::new("timeout", "expired", None)),
            Note::GivenBack,
            Note::MadeAgain { output_lost: true },
            Note::OutputBase { stream: Stream::Stderr, offset: 7 },
            Note::OutputBase { stream: Stream::Stdout, offset: u64::MAX },
            Note::Usage(Box::new(Usage { memory: Some(1 << 40), ..Usage::default() })),
        ];
        let kept = notes.iter().map(|note| (note.key(), note.value())).collect();
        assert_eq!(Note::all(&kept).collect::<Vec<_>>(), notes);
    }

    #[test]
    fn what_is_no_note_is_passed_over() {
        let kept = BTreeMap::from(
            [
                ("barrier-entered", json!(-1)),
                ("critical-ranks", json!("x")),
                ("degraded", json!(1)),
                ("end-reason", json!({ "note": "without a type" })),
                ("given-back", json!("yes")),
                ("usage", json!("much")),
                ("of-a-later-release", json!({})),
            ]
            .map(|(key, value)| (key.to_string(), value.into())),
        );
        assert_eq!(Note::all(&kept).count(), 0);
    }
}

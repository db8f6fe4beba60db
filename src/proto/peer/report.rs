//! From agent to leader or parent.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::StreamEnd;
use crate::proto::{Idset, JobId, Stream, WaitStatus};

/// Agent to leader, or parent: what happened, of several ranks at once.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Reports {
    /// In the order in which it happened.
    pub reports: Vec<RankReport>,
}

/// The same news of one or more ranks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RankReport {
    /// Where.
    pub ranks: Idset,
    /// What.
    pub report: Report,
}

/// News of a shell. Reports can come twice (a new leader is told everything again): they say
/// what is, not what changed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// The shell has entered the shell barrier so many times.
    Barrier {
        /// Times, in all.
        entered: u32,
    },
    /// A nested instance said which shells it can't do without.
    CriticalRanks {
        /// Shell ranks.
        ranks: Idset,
    },
    /// The shell has exited.
    Exited {
        /// Its wait status.
        status: WaitStatus,
    },
    /// No process was started.
    Failed {
        /// POSIX errno.
        errnum: i32,
        /// Why.
        message: String,
    },
    /// Nothing is left of it on its node.
    Gone,
    /// The unit's main process was seen outside of the unit: [`Report::Gone`] says nothing about
    /// processes that went with it.
    Left,
    /// It was started and can't be found.
    Lost {
        /// Why.
        message: String,
    },
    /// An earlier life of the rank's module has meant to start it, and did not.
    NeverStarted,
    /// The shell's own output.
    Output {
        /// Which stream.
        stream: Stream,
        /// Of the first byte.
        offset: u64,
        /// The bytes.
        #[serde(serialize_with = "bytes_out", deserialize_with = "bytes_in")]
        data: Vec<u8>,
    },
    /// The shell's own output fills its node's disk.
    OutputOverflow {
        /// Bytes on the disk.
        allocated: u64,
    },
    /// One of its streams was longer than is kept.
    OutputTruncated {
        /// Which stream.
        stream: Stream,
        /// Bytes that are reported at most.
        kept: u64,
        /// Bytes behind them.
        dropped: u64,
    },
    /// A rank's module does not answer. Its shells are neither alive nor dead to us.
    Unreachable {
        /// How the stream to it has ended.
        end: StreamEnd,
    },
    /// The ranks' parent in the tree is unreachable: the leader has to talk to them itself.
    Orphaned,
    /// It was asked for, or was found on disk, and more is not known yet.
    Pending,
    /// The shell runs, or has run.
    Running,
    /// The shell has ended, and what it has left behind cannot be.
    Unkillable,
}

/// Why a rank is drained whose shell has left its unit.
pub fn left_reason(id: JobId) -> String {
    format!("processes of job {id} may run outside of their unit")
}

/// JSON has no bytes: each becomes the character of the same number.
fn bytes_out<S: Serializer>(data: &[u8], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&data.iter().map(|b| char::from(*b)).collect::<String>())
}

fn bytes_in<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(input)?;
    text.chars()
        .map(|c| {
            u8::try_from(u32::from(c))
                .map_err(|_| serde::de::Error::custom(format!("output data: {c:?} is no byte")))
        })
        .collect()
}

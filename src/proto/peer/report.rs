//! Reports from agents.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::StreamEnd;
use crate::proto::{
    EndReason, Idset, JobId, Mute, ScriptFailure, Stage, Stream, Usage, WaitStatus,
};

/// From agent to leader or parent: reports of several ranks.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Reports {
    /// In the order in which it happened.
    pub reports: Vec<RankReport>,
}

/// A report that is the same for one or more ranks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RankReport {
    /// The ranks.
    pub ranks: Idset,
    /// The report.
    pub report: Report,
}

/// What is known of a shell. A report can come twice, because a new leader is told everything
/// again. So reports say what is, not what has changed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// How often the shell has entered the shell barrier.
    Barrier {
        /// The count since the shell was started.
        entered: u32,
        /// The count that the shell's record holds, if it is higher: the last entries were not said
        /// again since the rank's module was loaded. 0 if it is not higher.
        #[serde(default, skip_serializing_if = "is_zero")]
        found: u32,
        /// How many barriers the shell was let go from, if it is in none now. 0 if it is in one.
        #[serde(default, skip_serializing_if = "is_zero")]
        passed: u32,
    },
    /// The shells that a nested instance cannot do without, as it has said.
    CriticalRanks {
        /// Shell ranks.
        ranks: Idset,
    },
    /// The prolog has marked the node as degraded. It has ended well otherwise.
    Degraded {
        /// What is wrong with the node.
        reason: String,
    },
    /// A leader has had the shell ended for this exception.
    EndReason(EndReason),
    /// Nothing is left of the shell, and the rank's epilog runs, or waits for the other shells.
    Epilog,
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
    /// No process of it is left on its node.
    Gone,
    /// The unit's main process was seen outside of the unit. [`Report::Gone`] does not cover
    /// processes that left the unit with it.
    Left,
    /// Processes of the shell's unit that a signal has not ended. It replaces an earlier one.
    LeftOver {
        /// For people: pid, user and name of a few of them.
        processes: String,
    },
    /// It was started, and cannot be found.
    Lost {
        /// Why.
        message: String,
    },
    /// An earlier life of the rank's module recorded that it would start the shell, but did not
    /// start it.
    NeverStarted,
    /// The shell's own output.
    Output {
        /// Which stream.
        stream: Stream,
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        #[serde(serialize_with = "bytes_out", deserialize_with = "bytes_in")]
        data: Vec<u8>,
    },
    /// Output that was not reported may be lost.
    OutputLost {
        /// Why.
        message: String,
    },
    /// One of its output files takes more than its share of the node's disk.
    OutputOverflow {
        /// Bytes on the disk.
        allocated: u64,
    },
    /// One of its streams was longer than what is kept of it.
    OutputTruncated {
        /// Which stream.
        stream: Stream,
        /// How many bytes are reported at most.
        kept: u64,
        /// How many bytes after these were dropped.
        dropped: u64,
    },
    /// The rank's module does not answer. Whether its shell lives is unknown.
    Unreachable {
        /// How the stream to it has ended.
        end: StreamEnd,
    },
    /// The ranks' parent in the tree is unreachable. The leader has to ask the ranks itself.
    Orphaned,
    /// It was asked for, or its record was found, and no more is known yet.
    Pending,
    /// The rank's prolog has ended well, or it has none.
    Prepared,
    /// The shell's record was lost, and made again from its unit. How often it has entered the barrier
    /// is known only when it enters again.
    RecordLost {
        /// Output that was not reported may be lost as well.
        output: bool,
    },
    /// The shell runs, or has run.
    Running,
    /// A script of the rank has not ended well.
    ScriptFailed {
        /// Which one.
        stage: Stage,
        /// How.
        failure: ScriptFailure,
    },
    /// systemd or the disk does not answer on the shell's node, so nothing happens to the shell.
    Silent {
        /// Which of them. Not said of systemd.
        #[serde(default, skip_serializing_if = "Mute::is_systemd")]
        who: Mute,
        /// When the rank has learned it, in seconds since the epoch.
        since: u64,
        /// What it waits for.
        message: String,
    },
    /// The shell has ended, but processes that it left behind cannot be killed.
    Unkillable,
    /// What the shell's processes have used. None of them is left.
    Usage(Box<Usage>),
}

/// The most characters of a drain's reason that name processes.
const LEFT_OVER_MAX: usize = 512;

/// The reason for the drain of a rank whose processes cannot be ended. flux-core's words come first.
pub fn unkillable_reason(id: JobId, processes: Option<&str>) -> String {
    let reason = format!("unkillable user processes for job {id}");
    match processes {
        Some(text) => {
            format!("{reason}: {}", text.chars().take(LEFT_OVER_MAX).collect::<String>())
        }
        None => reason,
    }
}

/// The reason for the drain of a rank whose shell has left its unit.
pub fn left_reason(id: JobId) -> String {
    format!("processes of job {id} may run outside of their unit")
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Writes bytes as text, because JSON has no bytes. Each byte becomes the character with its
/// number.
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

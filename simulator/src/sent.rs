//! Messages from outside. The world gets these in addition to its own, to see that no message
//! breaks what the service promises to others.

use std::collections::BTreeSet;

use job_exec_rs::machine::{Credential, Topic};
use job_exec_rs::proto::JobId;

use super::request::Life;

/// The number of the first message. The world's own requests have smaller numbers, so messages do
/// not change these.
const FIRST: u64 = 1 << 32;

/// A message from outside, and when and to whom it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// When it is sent, in simulated seconds.
    pub at: f64,
    /// The rank whose module gets it.
    pub rank: u32,
    /// The topic.
    pub topic: Topic,
    /// The sender.
    pub credential: Credential,
    /// The payload.
    pub payload: Vec<u8>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Heard {
    /// It was granted, or the first of its answers has come.
    Granted,
    /// It was not sent, because the instance's owner would deceive the owner's own instance with it
    /// (`doc/simulator.md`).
    NotSent,
    /// It was refused with this errno.
    Refused(i32),
    /// There is no answer. The message still waits, or waited for somebody who is gone, or was sent
    /// to a rank that died, or needs no answer.
    #[default]
    Silence,
}

/// A message from outside, and what happened to it so far.
pub(super) struct SentState {
    pub(super) sent: Sent,
    pub(super) heard: Heard,
    /// The module that has to answer it, until the last answer.
    pub(super) holder: Option<Life>,
    /// The job that it is about, if it could be read.
    pub(super) job: Option<JobId>,
}

/// All messages from outside.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) all: Vec<SentState>,
    /// Whether a message was not simply refused, so the run may differ from one without messages.
    pub(super) disturb: bool,
    /// Whether a node is handling a message from outside now.
    pub(super) is_handled: bool,
    /// Jobs whose own users have said what their shells did not do, or that can have lost to a full
    /// disk what their shells did. For these the oracles check less.
    pub(super) deceived: BTreeSet<JobId>,
    /// Jobs that only messages from outside have asked to start.
    pub(super) started: BTreeSet<JobId>,
    /// Jobs whose scripts the owner has released. They may end in any way.
    pub(super) released: BTreeSet<JobId>,
}

impl Messages {
    pub(super) fn new(all: Vec<Sent>) -> Self {
        let told = |sent| SentState { sent, heard: Heard::default(), holder: None, job: None };
        Self { all: all.into_iter().map(told).collect(), ..Self::default() }
    }

    /// The request number of a message.
    pub(super) fn number(index: usize) -> u64 {
        FIRST + index as u64
    }

    /// The message with this request number. `None` if the request is the world's own.
    pub(super) fn index(number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(FIRST)?).ok()
    }
}

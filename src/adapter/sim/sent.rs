//! Messages that a world gets beside its own: what anybody may send to a node's topics, to see
//! that no promise to others depends on it.

use std::collections::BTreeSet;

use super::request::Life;
use crate::machine::{Credential, Topic};
use crate::proto::JobId;

/// Requests of the world's own have smaller numbers: they stay as they are, whatever is sent.
const FIRST: u64 = 1 << 32;

/// A message, and when and where it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Simulated seconds.
    pub at: f64,
    /// The rank whose module is asked.
    pub rank: u32,
    /// What it is asked for.
    pub topic: Topic,
    /// Who asks.
    pub credential: Credential,
    /// What is said.
    pub payload: Vec<u8>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Heard {
    /// It was done, or the first of its answers has come.
    Granted,
    /// It was not even sent: with it the instance's owner would deceive the owner's own instance
    /// (`rfc/0009-simulation.md`, 9.8).
    NotSent,
    /// It was refused with this errno.
    Refused(i32),
    /// Nobody has answered: it waits, waited for somebody who is gone, was said to a rank that
    /// died, or wants no answer.
    #[default]
    Silence,
}

/// One message, and how far it is.
pub(super) struct SentState {
    pub(super) sent: Sent,
    pub(super) heard: Heard,
    /// The module that has it, until it has answered for the last time.
    pub(super) holder: Option<Life>,
    /// The job that it names, if it could be read.
    pub(super) job: Option<JobId>,
}

/// All messages of a world.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) all: Vec<SentState>,
    /// Those in a barrier, with their entry, that an unloaded module has kept.
    pub(super) parked: Vec<(usize, u32)>,
    /// One of them was more than refused.
    pub(super) disturb: bool,
    /// A node handles one of them.
    pub(super) is_handled: bool,
    /// Jobs whose own users have said what their shells did not do: they get what they asked for.
    pub(super) deceived: BTreeSet<JobId>,
    /// Jobs that only these messages have asked to start.
    pub(super) started: BTreeSet<JobId>,
}

impl Messages {
    pub(super) fn new(all: Vec<Sent>) -> Self {
        let told = |sent| SentState { sent, heard: Heard::default(), holder: None, job: None };
        Self { all: all.into_iter().map(told).collect(), ..Self::default() }
    }

    /// The number of a message as a request.
    pub(super) fn number(index: usize) -> u64 {
        FIRST + index as u64
    }

    /// Which message a request is; none if it is the world's own.
    pub(super) fn index(number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(FIRST)?).ok()
    }
}

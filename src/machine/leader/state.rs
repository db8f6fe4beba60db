//! Where a job is between its start request and its final release.

use crate::machine::away::Away;
use crate::proto::{Idset, WaitStatus, WallTime};

/// The state of a job, with what only exists in it.
///
/// ```text
///  Opening ──▶ Launching ──every shell runs──▶ Running
///     │          │    │                           │
///     │          │    └───── every shell ─────────┴──▶ Exited ─┐
///     │          │            has ended                        │ nothing is left of any
///     │          └──────── nothing was started ────────────────┴──▶ Moving
///     │                                                               │ data is in place
///     └── an earlier leader has ended it ──────────────────────────▶ Ended ──covered──▶ Released
/// ```
///
/// From every state in which agents report there is an arrow to Superseded: an agent has said that a
/// later leader has taken over, so this one does nothing more.
///
/// A fatal exception is no state: it starts the kill escalation ([`super::failure::Failure`]), and the job
/// goes on to its end as its shells do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// The guest namespace is being made, or found.
    Opening(Opening),
    /// Shells are being started, or found.
    Launching(Launching),
    /// Every shell has started.
    Running(Running),
    /// Every shell has ended with this status. Agents end what the shells have left behind.
    Exited(WaitStatus),
    /// Nothing is left of any shell. The job's data moves to the primary namespace. The status is
    /// the one that was said, if there was any.
    Moving(Option<WaitStatus>),
    /// The final release was said, if anybody listened. Agents keep what they have until a
    /// checkpoint holds the job's end.
    Ended(Option<WaitStatus>),
    /// Nothing is left to do.
    Released,
    /// Another leader does what is left to do.
    Superseded,
}

/// What a leader needs until the guest namespace is open.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Opening {
    /// Ranks that the coordinator has given up on. They are not asked.
    pub(super) lost: Idset,
    /// The KVS does not let the namespace be opened.
    pub(super) away: Option<Away>,
}

/// What a leader needs until all shells run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Launching {
    /// Shells were asked for, or found: when they have ended there is a status to tell.
    pub(super) has_status: bool,
    /// Shells wait until the prologs of all ranks have ended well.
    pub(super) prepares: bool,
    /// An earlier leader may have led the job. Until all ranks were heard, nothing that is found
    /// wrong counts.
    pub(super) listening: Option<Listening>,
}

/// What has to wait until all ranks were heard.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Listening {
    /// The first of what was found wrong, for users. It is no failure yet: another rank may know of
    /// an exception that came before.
    pub(super) suspicion: Option<String>,
    /// Ranks that are gone could have been released.
    pub(super) release_missed: bool,
}

/// What a leader needs while all shells run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Running {
    /// When all shells had started. The time limit counts from here.
    pub(super) began: WallTime,
    /// The time limit in force, or [`WallTime::UNSET`].
    pub(super) expires: WallTime,
}

impl State {
    /// For statistics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Opening(_) => "opening",
            Self::Launching(_) => "launching",
            Self::Running(_) => "running",
            Self::Exited(_) => "exited",
            Self::Moving(_) => "moving",
            Self::Ended(_) => "ended",
            Self::Released => "released",
            Self::Superseded => "superseded",
        }
    }

    /// Shells may run, or something that they have left behind.
    pub(super) fn has_shells(&self) -> bool {
        matches!(self, Self::Launching(_) | Self::Running(_) | Self::Exited(_))
    }

    /// What has to wait until all ranks were heard, if anything has.
    pub(super) fn listening(&mut self) -> Option<&mut Listening> {
        match self {
            Self::Launching(launching) => launching.listening.as_mut(),
            _ => None,
        }
    }

    /// No shell is left, and agents keep what they have.
    fn is_ending(&self) -> bool {
        matches!(self, Self::Moving(_) | Self::Ended(_))
    }

    /// The status that was said to the job manager.
    pub(super) fn finish(&self) -> Option<WaitStatus> {
        match self {
            Self::Exited(status) => Some(*status),
            Self::Moving(status) | Self::Ended(status) => *status,
            _ => None,
        }
    }

    /// The only way to another state.
    ///
    /// # Panics
    /// When the drawing above has no such arrow.
    pub(super) fn enter(&mut self, next: Self) {
        let legal = match (&*self, &next) {
            (Self::Opening(_), Self::Launching(_) | Self::Ended(_)) => true,
            (Self::Launching(_), Self::Running(_) | Self::Exited(_) | Self::Moving(None)) => true,
            (Self::Running(_), Self::Exited(_)) => true,
            (Self::Exited(said), Self::Moving(Some(status))) => said == status,
            (Self::Moving(said), Self::Ended(status)) => said == status,
            (Self::Ended(_), Self::Released) => true,
            (state, Self::Superseded) => state.has_shells() || state.is_ending(),
            _ => false,
        };
        assert!(legal, "from {self:?} to {next:?}");
        *self = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_moves_of_the_drawing_are_legal() {
        let states = || {
            let status = WaitStatus(0);
            [
                State::Opening(Opening::default()),
                State::Launching(Launching::default()),
                State::Running(Running { began: WallTime(0.0), expires: WallTime::UNSET }),
                State::Exited(status),
                State::Moving(None),
                State::Moving(Some(status)),
                State::Ended(None),
                State::Ended(Some(status)),
                State::Released,
                State::Superseded,
            ]
        };
        let moves = |from: usize| {
            let legal = |to: &usize| {
                let (mut state, next) = (states()[from].clone(), states()[*to].clone());
                std::panic::catch_unwind(move || state.enter(next)).is_ok()
            };
            (0..states().len()).filter(legal).collect::<Vec<_>>()
        };
        let expected: [&[usize]; 10] = [
            &[1, 6, 7],
            &[2, 3, 4, 9],
            &[3, 9],
            &[5, 9],
            &[6, 9],
            &[7, 9],
            &[8, 9],
            &[8, 9],
            &[],
            &[],
        ];
        for (from, expected) in expected.into_iter().enumerate() {
            assert_eq!(moves(from), expected, "{:?}", states()[from]);
        }
    }
}

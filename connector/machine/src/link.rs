//! The socket to the broker: whether there is one, and how far the connection is restored.

use crate::context::Context;
use crate::packet::{ANY_RANK, Packet};
use crate::question::doubled;
use crate::wire::Own;

/// First pause between two attempts to connect, in seconds; each is twice the last.
const RETRY_FIRST: f64 = 0.05;
/// The longest pause, in seconds.
const RETRY_MAX: f64 = 2.0;

/// The state of the connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// There is no socket. The next attempt to connect is made at this time.
    Down {
        /// When, in seconds.
        retry_at: f64,
        /// Attempts so far.
        tries: u32,
    },
    /// The connection has ended for good, with this errno and this message.
    Ended(i32, String),
    /// Connected. The connector waits until the broker is in RUN.
    Greeting,
    /// All messages are passed on.
    Live,
    /// Subscriptions, services and groups are made again.
    Restoring,
    /// The connector asks which commits the KVS holds.
    Settling,
}

/// The connection.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    phase: Phase,
    /// How many times it was lost.
    losses: u64,
    /// When it was lost; none while it is live.
    lost_at: Option<f64>,
    /// Since when a broker that is only just starting is waited for.
    starts_since: Option<f64>,
}

impl Link {
    pub(crate) fn new(is_connected: bool, now: f64) -> Self {
        let down = Phase::Down { retry_at: now, tries: 0 };
        Self {
            phase: if is_connected { Phase::Live } else { down },
            losses: 0,
            lost_at: (!is_connected).then_some(now),
            starts_since: None,
        }
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    pub(crate) fn is_down(&self) -> bool {
        matches!(self.phase, Phase::Down { .. })
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(..))
    }

    /// How many times it was lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }

    /// Whether it was lost, and is not live again.
    pub(crate) fn was_lost(&self) -> bool {
        self.lost_at.is_some()
    }

    /// The next phase has begun.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// All messages are passed on. Returns whether the connection was lost before.
    pub(crate) fn go_live(&mut self) -> bool {
        self.phase = Phase::Live;
        self.starts_since = None;
        self.lost_at.take().is_some()
    }

    /// Connected: waits until the broker is in RUN.
    pub(crate) fn greet<P: Packet>(&mut self, cx: &mut Context<P>) {
        self.phase = Phase::Greeting;
        // flux-core `broker/state_machine.c`: answered when the broker is in RUN.
        cx.wire.ask(Own::Greeting, "state-machine.wait", "{}", ANY_RANK);
    }

    /// The broker is only just starting. Nothing more is sent before it is in RUN.
    pub(crate) fn await_run<P: Packet>(&mut self, cx: &mut Context<P>) {
        if self.is_live() {
            self.starts_since = Some(cx.now);
            self.greet(cx);
        }
    }

    /// The socket is closed.
    pub(crate) fn lost<P: Packet>(&mut self, cx: &Context<P>) {
        self.losses += 1;
        let since = self.starts_since.take().unwrap_or(cx.now);
        self.lost_at.get_or_insert(since);
        if !self.is_down() {
            self.phase = Phase::Down { retry_at: cx.now, tries: 0 };
        }
        self.refused(cx);
    }

    /// An attempt to connect has begun.
    pub(crate) fn connecting(&mut self) {
        if let Phase::Down { retry_at, .. } = &mut self.phase {
            *retry_at = f64::INFINITY;
        }
    }

    /// An attempt to connect failed. The pause depends on the client's number, so that the clients of a
    /// node do not all connect at the same time.
    pub(crate) fn refused<P: Packet>(&mut self, cx: &Context<P>) {
        if let Phase::Down { retry_at, tries } = &mut self.phase {
            let part = 0.75 + (cx.client.id % 64) as f64 / 128.0;
            *retry_at = cx.now + doubled(RETRY_FIRST, RETRY_MAX, *tries) * part;
            *tries += 1;
        }
    }

    /// Whether it is time to connect.
    pub(crate) fn is_wanted(&self, now: f64) -> bool {
        matches!(self.phase, Phase::Down { retry_at, .. } if retry_at <= now)
    }

    /// Whether the broker has been away for too long.
    pub(crate) fn is_given_up<P: Packet>(&self, cx: &Context<P>) -> bool {
        !self.has_ended() && self.deadline(cx).is_some_and(|at| at <= cx.now)
    }

    fn deadline<P: Packet>(&self, cx: &Context<P>) -> Option<f64> {
        let away_since = self.lost_at.or(self.starts_since);
        away_since.map(|at| at + cx.client.limits.give_up_after)
    }

    /// When to connect, or to look at [`Link::is_given_up`].
    pub(crate) fn next<P: Packet>(&self, cx: &Context<P>) -> Option<f64> {
        let retry = match self.phase {
            Phase::Down { retry_at, .. } if retry_at.is_finite() => Some(retry_at),
            _ => None,
        };
        [retry, self.deadline(cx)].into_iter().flatten().reduce(f64::min)
    }
}

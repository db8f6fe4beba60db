//! The three roles as pure state machines.
//!
//! ```text
//!  job manager ── Event::Start ──▶ Coordinator ── Effect::Lead ──▶ Job (leader)
//!                                       ▲                            │ Effect::Shells, Order
//!                                       └──────── Effect::Reply ─────┤
//!                                                                    ▼
//!  shells ── Event::ShellBarrier ──▶ Agent ◀── UnitEvent ── supervisor
//!                                       └──────── Effect::Report ────┘
//! ```
//!
//! Contract: an event goes in with the time, effects come out as data, and that is all. No
//! machine reads a clock, blocks, fails or knows a handle; every state answers every input.
//! A [`Node`] holds the roles of one rank, and what they say to each other on the same rank
//! never leaves it. Order of calls: [`Node::handle`] for each event, carry out the effects
//! in order, then wait until [`Node::next_timeout`] at most.

mod agent;
mod coordinator;
mod effect;
mod event;
mod leader;
mod node;
mod position;
mod recently_ended;
mod request;
mod schedule;
mod stats;
mod tree;

#[cfg(test)]
mod tests;

pub use effect::{Answer, Effect, Effects, KvsOp, Level, Role, StreamItem};
pub use event::{Creation, Credential, Event, Fault, KvsResult, Opened, RequestId, StreamId};
pub use node::{Facts, Node};
pub use position::{Position, ROLES};
pub use request::Topic;

/// A moment, on both clocks. Timers run on the monotonic one; records and the job manager's
/// expiration are wall time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Seconds since some fixed moment; never goes back.
    pub mono: f64,
    /// Seconds since the epoch.
    pub wall: f64,
}

/// What every machine of a node may look at.
#[derive(Clone, Copy)]
struct Context<'a> {
    now: Now,
    /// When the first event came.
    born: Now,
    config: &'a crate::config::Config,
    facts: &'a Facts,
    /// Shells outlive their brokers here (and so, it is assumed, on the job's other ranks).
    shells_survive: bool,
}

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
mod context;
mod coordinator;
mod effect;
mod event;
mod leader;
mod node;
mod recently_ended;
mod request;
mod schedule;
mod tree;

#[cfg(test)]
mod tests;

pub use context::{Facts, Now};
pub use effect::{Answer, Effect, Effects, KvsOp, Level, StreamItem};
pub use event::{Creation, Credential, Event, Fault, KvsResult, Opened, RequestId, Role, StreamId};
pub use node::{Input, Node, Pair, Position, ROLES, all_pairs};
pub use request::Topic;

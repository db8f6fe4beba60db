//! The three roles as pure state machines.
//!
//! ```text
//!                  start            lead             shells, order           UnitCommand
//!  job manager ────────▶ Coordinator ────▶ Leader ────────────────▶ Agent ────────────▶ supervisor
//!       ▲                  │      ▲          │  ▲                    │  ▲                    │
//!       └── RFC 32 ────────┘      └─ reply ──┘  └───── reports ──────┘  └───── UnitEvent ────┘
//!                                                                       ▲
//!  shells ────────────── shell-barrier, critical-ranks ─────────────────┘
//! ```
//!
//! An event goes in with the time, and effects come out as data. No machine reads a clock, blocks,
//! fails or holds a handle. Every state answers every input.
//!
//! A [`Node`] holds the roles of one rank. What they say to each other on the same rank stays
//! there. Its driver calls [`Node::handle`] for each event, carries out the effects in order, and
//! waits until [`Node::next_timeout`] at most.
//!
//! The way of one start request through these files: `request.rs` reads it, `node/inputs.rs` brings
//! it to `coordinator.rs`, `node/routes.rs` takes the `lead` request to its rank, `leader/opening.rs`
//! makes the guest namespace, `leader/agents.rs` asks for shells, `agent.rs` has them started.
//! Back: `agent/shell.rs` makes reports, `agent/upstream.rs` gathers them, `leader/reports.rs` reads
//! them, `leader/replies.rs` answers the coordinator, which answers the job manager.

mod agent;
mod away;
mod context;
mod coordinator;
#[cfg(any(test, feature = "coverage"))]
mod coverage;
mod effect;
mod event;
mod input;
mod leader;
mod mono_time;
mod node;
mod peer_request;
mod recently_ended;
mod request;
mod schedule;
mod tree;

#[cfg(test)]
mod tests;

pub use context::{Facts, Now};
#[cfg(any(test, feature = "coverage"))]
pub use coverage::{Pair, Position, STATES, all_pairs};
pub use effect::{Answer, Effect, Effects, KvsOp, Level, StreamItem};
pub use event::{
    Creation, Credential, Event, Fault, KvsResult, Listing, Opened, RequestId, Role, StreamId,
};
pub use input::{Input, Machine};
pub use mono_time::MonoTime;
pub use node::Node;
pub use peer_request::{Awaited, PeerRequest};
pub use request::Topic;

/// How often a commit to a guest namespace is tried before it is given up.
const COMMIT_TRIES: u32 = 5;
/// The pause between two of these tries, in seconds.
const COMMIT_PAUSE: f64 = 1.0;

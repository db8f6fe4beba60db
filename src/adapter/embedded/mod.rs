//! A whole instance inside one process: the main job and the tests run with it where no Flux
//! is installed.
//!
//! ```text
//!  submit ──▶ job manager ── Event::Start ──▶ Node 0 ◀── messages ──▶ Node 1 … Node N-1
//!                  ▲                            │                        │
//!                  └────── RFC 32 responses ────┤        Effect::Unit    │
//!                                               ▼                        ▼
//!   KVS: files ◀──────── Effect::Kvs       Worker 0                 Worker N-1
//! ```
//!
//! Each rank has the [`Node`](crate::machine::Node) and the
//! [`Worker`](crate::adapter::worker::Worker) that it would have in a real broker, each worker with
//! a directory of its own; only what lies between them is replaced. One thread, the caller's,
//! runs all nodes: it takes events from one queue in order, and waits on one channel, which
//! the workers' threads feed, until the next timer is due.
//!
//! **There is no flux-shell.** What a node wants launched is a job shell with a job id; here
//! the supervisor gets the user's command instead, once on each rank, with `FLUX_JOB_ID` and
//! its like set. The launch is completed where the effect leaves the node, which is also where
//! a real rank's own facts are added. What else a shell does is done for it:
//!
//! - it enters the shell barrier as soon as it runs. An exit that is quicker than the barrier
//!   is kept back until the barrier is complete, because a real shell can't end earlier;
//! - a signal for its tasks goes to every process of its unit.
//!
//! So commands need not wait for each other: `exec.shell-exit-timeout`, which expects the
//! leader shell to outlast the others, is off here.
//!
//! The job manager and the KVS are as small as they can be and still be honest: job ids are
//! FLUIDs, exceptions are published to every rank, a guest namespace is a directory that the
//! job's `guest` entry links to and that takes its place at the end. Jobs do not survive the
//! instance; what a killed one left running is stopped by the next on the same directory.

mod config;
mod control;
mod directory;
mod error;
mod event;
mod instance;
mod kvs;
mod manager;
mod messages;
mod shell;
mod start;

pub use config::InstanceConfig;
pub use control::Control;
pub use error::InstanceError;
pub use event::{Happening, InstanceEvent};
pub use instance::Instance;
pub use manager::{JobOutcome, JobRequest};

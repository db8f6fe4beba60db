//! A whole instance inside one process. The command `demo`, developers' `run` and the tests use it. It
//! needs no Flux.
//!
//! ```text
//!  submit ──▶ job manager ── Event::Start ──▶ Node 0 ◀── messages ──▶ Node 1 … Node N-1
//!                  ▲                            │                        │
//!                  └────── RFC 32 responses ────┤        Effect::Unit    │
//!                                               ▼                        ▼
//!   KVS: files ◀──────── Effect::Kvs       Worker 0                 Worker N-1
//! ```
//!
//! Each rank has the [`Node`](job_exec_rs::machine::Node) and the
//! [`Worker`](job_exec_rs::adapter::worker::Worker) that it would have in a real broker. Each worker has
//! a directory of its own. Only what lies between ranks is replaced. The caller's thread runs all
//! nodes. It takes events from one queue in order. Then it waits until a worker's thread sends
//! something on the one channel, or the next timer is due.
//!
//! **There is no flux-shell.** A node launches a job shell. Here the supervisor gets the user's
//! command instead, once on each rank, with `FLUX_JOB_ID` and similar variables set. The command is
//! put in when the effect leaves the node. The instance does what else a shell would do:
//!
//! - It enters the shell barrier as soon as the command runs. If the command exits before the
//!   barrier is complete, the exit is held until then, because a real shell cannot end earlier.
//! - A signal for the tasks goes to every process of the unit.
//!
//! Commands need not wait for each other, as shells do. So `exec.shell-exit-timeout`, which expects
//! that the leader shell ends last, is off here.
//!
//! The job manager and the KVS are small. Job ids are FLUIDs. Exceptions are published to every
//! rank. A guest namespace is a directory. While the job runs, its `guest` entry is a link to this
//! directory. At the end the directory replaces the link. What the job manager knows of a job is a
//! file, too. If an instance is killed, the next one on the same directory stops what still runs, or
//! with [`InstanceConfig::adopt`] goes on with it: its job manager asks for each job again, as a
//! real one does after a restart.
//!
//! This module carries out the effects of nodes, as [`job_exec_rs_simulator`] does, and the code is
//! not shared. Here an effect becomes an event in one queue, which is handled at once and never
//! lost. There it becomes a message that has a delay, can be lost, and belongs to one life of a
//! module. What both need is one `match` over [`job_exec_rs::machine::Effect`] whose arms differ.

mod config;
mod control;
mod directory;
mod error;
mod event;
mod instance;
mod jobs;
mod kvs;
mod manager;
mod messages;
mod shell;
mod start;

pub use config::InstanceConfig;
pub use control::Control;
pub use directory::temporary;
pub use error::InstanceError;
pub use event::{Happening, InstanceEvent};
pub use instance::Instance;
pub use manager::{JobOutcome, JobRequest};

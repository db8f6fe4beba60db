//! The supervisor of one rank.
//!
//! It takes [`UnitCommand`]s and reports [`SupervisorEvent`]s. The core decides what happens in
//! which order (intent before start, status on disk before anybody hears of it, output before
//! `Gone`), and a [`Backend`] does it: systemd's user manager, or plain child processes. Both run
//! on a thread of their own, which [`Worker`](crate::adapter::worker::Worker) starts.
//!
//! ```text
//!  submit ── commands ──▶ core ──▶ Backend (systemd | fork) ──▶ shells
//!  sink  ◀── events ──── core ◀── BackendEvent
//!                         │  ▲
//!               <stem>.record └── inotify ── <stem>.out, <stem>.err
//! ```
//!
//! The core itself knows no thread and no file system, only a [`Disk`]: it can be driven by
//! anyone, with any backend.
//!
//! [`Disk`]: crate::port::disk::Disk
//! [`UnitCommand`]: crate::port::supervisor::UnitCommand
//! [`SupervisorEvent`]: crate::port::supervisor::SupervisorEvent

mod backend;
pub(crate) mod cgroup2;
mod core;
mod descriptors;
mod end;
mod inotify;
mod launch;
mod measure;
mod outer_job;
mod output;
mod output_watch;
mod pulse;
mod readable;
mod records;
pub mod tracker;
mod unit;
mod unrecorded;

pub use backend::{Backend, BackendDriver, BackendEvent, OutputPaths, UnrecordedUnit};
pub use core::{Core, Sink};
pub(crate) use descriptors::with_descriptors;
pub(crate) use inotify::Watcher;
pub use outer_job::OuterJob;
pub use output::Grown;
pub(crate) use output_watch::OutputWatch;
pub use pulse::{Pulse, PulseWatch};
pub(crate) use readable::readable;
#[doc(hidden)]
pub use records::{RecordError, parse_record};

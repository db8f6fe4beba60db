//! The supervisor of one rank.
//!
//! [`Worker`] is the whole of it: a thread that takes [`UnitCommand`]s and reports
//! [`UnitEvent`]s. On that thread the core decides what happens in which order
//! (intent before start, status on disk before anybody hears of it, output before `Gone`), and
//! a [`Backend`] does it: systemd's user manager, or plain child processes.
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
//! [`UnitEvent`]: crate::port::supervisor::UnitEvent

mod backend;
mod core;
mod inotify;
mod launch;
mod output;
mod readable;
mod records;
pub mod tracker;
mod unit;
mod worker;

pub use backend::{Backend, BackendDriver, BackendEvent, OutputPaths};
#[allow(unused_imports, reason = "the simulator drives the core without a worker")]
pub(crate) use core::{Core, Sink};
pub(crate) use inotify::Watcher;
#[allow(unused_imports, reason = "what the core is told of output files")]
pub(crate) use output::Grown;
pub(crate) use readable::readable;
#[doc(hidden)]
pub use records::parse_record;
pub use worker::{STARTS_IN_FLIGHT_MAX, Worker, WorkerConfig};

//! The real broker, through `flux-sys`. The only adapter with `unsafe`.
//!
//! Everything here runs on the module's own thread, inside the Flux reactor; nothing is
//! `Send`. No panic crosses into C: every callback goes through [`fence::call`]. No callback is
//! unwound: each holds an [`Uncancelable`].
#![allow(unsafe_code)]

mod below;
mod broker_state;
mod checkpoint;
mod cleaning;
mod connector;
mod constrain;
mod database;
mod drains;
mod driver;
mod error;
mod eventlog;
mod fence;
mod flow;
mod future;
mod guest_namespace;
mod handle;
mod inbox;
mod kvs;
mod launchers;
mod log;
mod message;
mod nodes;
mod recommit;
mod requests;
mod rexec;
mod stats;
mod text;
mod unsaved;
mod watcher;

pub use below::BelowWatch;
pub use broker_state::{BrokerState, follow_broker};
pub use connector::{ResumeError, resume_uri};
pub use constrain::Constrain;
pub use driver::Driver;
pub use error::{HandleError, RpcError};
pub use fence::{Uncancelable, call as fenced};
pub use future::Futures;
pub use handle::Handle;
pub use inbox::{Inbox, Inward};
pub use launchers::Launchers;
pub use log::dispatch;
pub use message::{Message, MessageHandler};
pub use nodes::{OwnJob, ParentWatch, watch_nodes};
pub use requests::Requests;
pub use rexec::Rexec;
pub use watcher::{FdWatcher, Timer};

//! Worlds that the pure machines run in.
//!
//! Adapters implement ports and do not name each other. There are two exceptions: [`worker`]
//! connects a supervisor to its backends, and [`embedded`] has such a worker on each rank.

pub mod embedded;
pub mod fork;
pub mod host;
pub mod libflux;
pub mod sim;
pub mod systemd;
pub mod worker;

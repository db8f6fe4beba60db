//! Worlds that the pure machines run in.
//!
//! Adapters implement ports and do not name each other. There is one exception: [`worker`]
//! connects a supervisor to its backends.

pub mod fork;
pub mod host;
pub mod libflux;
pub mod systemd;
pub mod worker;

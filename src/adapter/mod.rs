//! Worlds that the pure machines run in. Adapters implement ports and never see each other.

pub mod embedded;
pub mod fork;
pub mod host;
#[cfg(flux)]
pub mod libflux;
pub mod sim;
pub mod systemd;

//! Worlds that the pure machines run in. Adapters implement ports and never see each other.

pub mod fork;
pub mod systemd;

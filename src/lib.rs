//! A job execution service for Flux.
//!
//! Read from the inside out: [`proto`] is the vocabulary, [`machine`] the three roles as
//! pure state machines, [`port`] what they need of the world, and the adapters are worlds.
//! `rfc/` in the repository holds the specification.

pub mod adapter;
pub mod config;
pub mod machine;
#[cfg(flux)]
pub mod module;
pub mod planted;
pub mod port;
pub mod proto;
pub mod supervisor;

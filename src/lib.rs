//! A job execution service for Flux.
//!
//! Read from the inside out: [`proto`] is the vocabulary, [`port`] what the machines need of
//! the world. `rfc/` in the repository holds the specification.

pub mod port;
pub mod proto;

//! A job execution service for Flux.
//!
//! Read the modules in this order. [`proto`] has the vocabulary of messages. [`machine`] has the
//! three roles as pure state machines. [`port`] says what the machines and the supervisor need from
//! outside. [`supervisor`] keeps the units of one rank. [`adapter`] connects all this to Flux,
//! systemd and the host. The simulator and the command line are crates of their own. `rfc/` in the
//! repository has the specification, and `doc/code.md` a drawing of the way of one start request
//! through the files.

pub mod adapter;
pub mod config;
pub mod machine;
pub mod module;
pub mod planted;
pub mod port;
pub mod proto;
pub mod supervisor;

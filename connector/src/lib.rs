//! The resume connector: `resume:///run/flux/local` replaces `local:///run/flux/local` for
//! clients that are to outlive their broker.
//!
//! libflux finds the connector by its scheme, in its connector directory or in
//! `FLUX_CONNECTOR_PATH`, and calls [`connector_init`] (flux-core `libflux/connector.h`). The crate
//! `resume-machine` decides what happens to messages. `rfc/0010-connector.md` says what a client
//! may rely on.

mod connection;
mod left_open;
mod link;
mod message;
mod operations;
mod random;
mod signals;
mod user;

pub use operations::connector_init;

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
pub mod port;
pub mod proto;
pub mod supervisor;

/// The release, and the commit: two builds of one release are told apart.
pub const BUILD: &str = env!("JOB_EXEC_RS_BUILD");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_named_by_its_release_and_commit() {
        let (release, commit) = BUILD.split_once(" (").unwrap_or((BUILD, ")"));
        assert_eq!(release, env!("CARGO_PKG_VERSION"));
        let commit = commit.strip_suffix(')').expect("a bracket");
        let is_hex = commit.len() >= 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_hex || ["", "debug"].contains(&commit), "{BUILD}");
    }
}

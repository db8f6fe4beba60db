//! A world in a box: ranks, a network, disks, systemd, a KVS and a job manager, all from one
//! seed, in one thread, with faults.
//!
//! The nodes in it are the real machines ([`crate::machine::Node`]), each with the real core
//! and tracker of [`crate::supervisor`]; everything else is a model: messages with delay, in
//! order between two ranks, lost when either end dies; modules that are unloaded and loaded;
//! brokers that are killed, with everything below them in the tree; units that outlive all of
//! it, that start late or not at all, write, fork, ignore signals and exit at any moment; a
//! `systemd --user` and its bus, which go away and come back; disks that are full or lose what
//! was not synced; guest namespaces that vanish with rank 0, and a primary one that goes back
//! to a checkpoint; a job manager that follows RFC 32 and issues forgotten ids again. A crash
//! can fall between any two effects of one event, and into a write. `rfc/0009-simulation.md`
//! says what each fault means, and what is not modelled.
//!
//! [`run`] plays one seed: faults first, then everything heals, and within a bounded time every
//! job must have ended and nothing may be left. The oracles (`oracle/`) look at every step.
//! [`run_with`] does the same while somebody sends the nodes messages of his own.

mod coverage;
mod disk;
mod fault;
mod kind;
mod kvs;
mod manager;
mod minimise;
mod oracle;
mod packet;
mod profile;
mod rank;
mod request;
mod sent;
mod shell;
mod systemd;
mod world;

pub use coverage::Coverage;
pub use fault::FaultId;
pub use kind::FaultKind;
pub use minimise::minimise;
pub use profile::Profile;
pub use sent::{Heard, Sent};
pub use world::{Outcome, run, run_with};

/// A broken promise, with the invariant's name in `rfc/0001-scope.md`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// What was seen.
    pub seen: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.seen)
    }
}

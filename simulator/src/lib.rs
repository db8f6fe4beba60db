//! The simulator: a world of ranks, a network, disks, systemd, a KVS and a job manager. One number,
//! the seed, decides all that happens in it, faults included. It runs in one thread.
//!
//! The nodes are the real machines ([`job_exec_rs::machine::Node`]), each with the real core and tracker
//! of [`job_exec_rs::supervisor`]. Shells use the real resume connector. Everything else is a model:
//!
//! - Messages have a delay. They arrive in order between two ranks, and are lost when either end
//!   dies.
//! - Modules are unloaded and loaded. Brokers are killed, with everything below them in the tree.
//! - Units outlive modules and brokers. They start late or not at all, write, fork, ignore signals
//!   and exit at any moment.
//! - A `systemd --user` and its bus go away and come back.
//! - Disks are full, or lose what was not synced.
//! - Guest namespaces vanish with rank 0's broker. The primary namespace goes back to its last
//!   checkpoint.
//! - The job manager follows RFC 32. It issues ids again that the KVS has forgotten.
//!
//! A broker can be killed between any two effects of one event, and in the middle of a write.
//! `doc/simulator.md` says what each fault means, and what is not modelled.
//!
//! [`run`] plays one seed. First there are faults. Then everything comes back, and within a bounded
//! time every job must have ended and nothing may be left. The oracles (`oracle/`) look at every
//! step. [`run_with`] does the same while additional messages reach the nodes from outside.
//!
//! This world carries out the effects of nodes, as the command's embedded instance does, and the code
//! is not shared. Here an effect becomes a message: it has a delay, is read again from JSON, can be
//! lost, and belongs to one life of a module. There it is handled at once, and nothing is lost.
//! What both need is one `match` over [`job_exec_rs::machine::Effect`] whose arms differ.

/// Writes a line into the transcript. Without one the text is not made.
macro_rules! note {
    ($world:ident, $($text:tt)*) => {
        if $world.has_transcript() {
            let line = format!($($text)*);
            $world.note(&line);
        }
    };
}

#[cfg(test)]
mod contract;
mod coverage;
mod disk;
mod fault;
mod held_up;
mod kind;
mod kvs;
mod manager;
mod minimise;
mod oracle;
mod packet;
mod profile;
mod rank;
mod request;
#[cfg(test)]
mod sample;
mod script;
mod sent;
mod shell;
mod systemd;
mod traffic;
mod world;

pub use coverage::Coverage;
pub use fault::FaultId;
pub use kind::FaultKind;
pub use minimise::minimise;
pub use profile::Profile;
pub use sent::{Heard, Sent};
pub use traffic::{JobTraffic, Load};
pub use world::{Outcome, run, run_with};

/// An invariant that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// Its name in `rfc/0001-scope.md`.
    pub invariant: &'static str,
    /// What the oracle saw.
    pub seen: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.seen)
    }
}

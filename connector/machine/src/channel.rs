//! What the two ends of a channel between a client and a job shell's service tell each other, so that
//! each request is delivered once and in order.
//!
//! The sender keeps a request until the receiver has it, or has answered it. The number of a
//! request is in its route: a response brings the route back, and a receiver without this
//! connector ignores it.

use serde::{Deserialize, Serialize};

use crate::packet::{Header, Kind, Packet};

/// The method of a shell's service that the receiver's connector answers: what has it received?
pub(crate) const RECEIVED: &str = ".resume-received";
/// The method of a shell's service that the sender's connector answers: which answers does it need?
pub(crate) const NEEDED: &str = ".resume-needed";
/// Prefix of the first hop: whose channel it is.
const FROM: &str = "resume:";
/// Prefix of the second hop of a request that no receiver's connector has seen.
pub(crate) const ASK: &str = "ask:";
/// Prefix of the second hop of a request that the receiver's connector has accepted.
pub(crate) const GOT: &str = "got:";
/// Prefix of the third hop, if the sender is a shell: its broker rank. It can be asked there.
pub(crate) const HOME: &str = "home:";
/// Prefix of the hop after those, if the sender belongs to a run of the receiver's job: which run.
pub(crate) const OF_RUN: &str = "run:";
/// What a client needs that has no such channel any more: no answer at all.
pub(crate) const ALL_DONE: u64 = i64::MAX as u64;
/// A tool that is started through a shell has a protocol of its own, with streams.
const TOOLS: &str = "rexec.";

/// The digits of a job id (RFC 19).
const F58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// A shell's service on one rank.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Peer {
    /// `USERID-shell-JOBID` (flux-core `shell/svc.c`, `build_topic`).
    pub(crate) service: String,
    /// The broker rank.
    pub(crate) rank: u32,
}

impl Peer {
    /// The receiver of a request that goes through a channel.
    pub(crate) fn of<P: Packet>(request: &P) -> Option<Self> {
        let Header { topic, rank, streaming, .. } = request.header();
        let (service, method) = topic.split_once('.')?;
        let (user, id) = service.split_once("-shell-")?;
        let is_shell = !user.is_empty()
            && user.bytes().all(|byte| byte.is_ascii_digit())
            && id.starts_with('f');
        let numbered = is_shell && !streaming && !method.starts_with(TOOLS);
        // A client that passes on requests of others has given this one a route already.
        let is_own = request.first_hop().is_none();
        let rank = (rank < u32::MAX - 1).then_some(rank)?;
        (numbered && is_own).then(|| Self { service: service.to_string(), rank })
    }

    /// The shell's job.
    pub(crate) fn job(&self) -> Option<u64> {
        let (_, id) = self.service.split_once("-shell-f")?;
        let digit = |byte| F58.iter().position(|known| *known == byte);
        let append = |id: u64, byte| id.checked_mul(58)?.checked_add(digit(byte)? as u64);
        id.bytes().try_fold(0, append)
    }
}

/// The payload of [`RECEIVED`].
#[derive(Deserialize, Serialize)]
pub(crate) struct WhichReceived {
    pub(crate) from: String,
    pub(crate) done: u64,
    /// As in the hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
}

/// The answer to [`RECEIVED`].
#[derive(Deserialize, Serialize)]
pub(crate) struct Received {
    pub(crate) received: u64,
}

/// The payload of [`NEEDED`].
#[derive(Deserialize, Serialize)]
pub(crate) struct WhichNeeded {
    pub(crate) from: String,
}

/// The answer to [`NEEDED`]: requests of the channel before this one need no answer any more.
#[derive(Deserialize, Serialize)]
pub(crate) struct Needed {
    pub(crate) done: u64,
}

/// Whether a request to the broker goes through a channel: its sender keeps it.
pub(crate) fn is_numbered<P: Packet>(request: &P) -> bool {
    request.header().kind == Kind::Request && channel_of(request).is_some()
}

/// The channel that a message belongs to.
pub(crate) fn channel_of<P: Packet>(message: &P) -> Option<String> {
    message.first_hop().filter(|hop| hop.starts_with(FROM))
}

/// The hop that names a channel.
pub(crate) fn join_from(client: &str, channel: u64) -> String {
    format!("{FROM}{client}.{channel}")
}

/// The client and the number of a channel.
pub(crate) fn split_from(from: &str) -> Option<(String, u64)> {
    let (client, channel) = from.strip_prefix(FROM)?.split_once('.')?;
    Some((client.to_string(), channel.parse().ok()?))
}

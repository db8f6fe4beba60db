//! Requests to the service: who may send which, and what each becomes.
//!
//! A payload is decoded once, here, and only as far as it is needed. A user's payload is bounded
//! before it is decoded. A role checks who sent it before it believes anything in it.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::machine::event::{Credential, Event, Fault, RequestId};
use crate::proto::peer::{self, COVERED, KNOWN, LEAD, ORDER, SHELLS};
use crate::proto::{
    BarrierEntry, BequeathedCommit, Bequest, BrokerRank, ClientId, JobId, StartRequest, WaitStatus,
};

/// Largest payload of a user's request that names a job and no more, in bytes.
const SMALL_MAX: usize = 1024;
/// Largest payload of `degraded`, in bytes.
const REASON_MAX: usize = 4096;
/// Largest payload of `critical-ranks`, in bytes: the idset of half a million ranks.
const IDSET_MAX: usize = 4 * 1024 * 1024;
/// Largest payload of `keep-commits`, in bytes. It is written into a record as a whole. A
/// client that leaves more waits for a checkpoint.
const COMMITS_MAX: usize = 4 * 1024 * 1024;

/// A request, named by the last part of its topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Topic {
    /// [`Event::CheckpointAsked`].
    Checkpoint,
    /// [`Event::Covered`].
    Covered,
    /// [`Event::CriticalRanks`].
    CriticalRanks,
    /// [`Event::Degraded`].
    Degraded,
    /// [`Event::Expiration`].
    Expiration,
    /// [`Event::KeepCommits`].
    KeepCommits,
    /// [`Event::Known`].
    Known,
    /// [`Event::Lead`].
    Lead,
    /// [`Event::Order`].
    Order,
    /// [`Event::Override`].
    Override,
    /// [`Event::PerilogRelease`].
    PerilogRelease,
    /// [`Event::ShellBarrier`].
    ShellBarrier,
    /// [`Event::ShellRuns`].
    ShellRuns,
    /// [`Event::Shells`].
    Shells,
    /// [`Event::Start`].
    Start,
}

/// The payload of `checkpoint`.
#[derive(Deserialize)]
struct Named {
    id: JobId,
}

#[derive(Deserialize)]
struct CriticalRanks {
    id: JobId,
    ranks: String,
}

#[derive(Deserialize)]
struct Expiration {
    id: JobId,
    expiration: f64,
}

#[derive(Deserialize)]
struct KeepCommits {
    id: JobId,
    client: String,
    #[serde(default)]
    shell: bool,
    #[serde(default)]
    again: bool,
    commits: Vec<BequeathedCommit>,
}

#[derive(Deserialize)]
struct Override {
    jobid: JobId,
    event: String,
    #[serde(default)]
    status: WaitStatus,
    /// For whom another rank passes it on.
    userid: Option<u32>,
}

#[derive(Deserialize)]
struct ShellBarrier {
    id: JobId,
    rank: BrokerRank,
    /// The resume connector says which entry it is, and whose.
    entry: Option<u32>,
    client: Option<ClientId>,
}

#[derive(Deserialize)]
struct ShellRuns {
    id: JobId,
    rank: Option<BrokerRank>,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 15] = [
        Self::Checkpoint,
        Self::Covered,
        Self::CriticalRanks,
        Self::Expiration,
        Self::KeepCommits,
        Self::Known,
        Self::Lead,
        Self::Order,
        Self::Override,
        Self::ShellBarrier,
        Self::Shells,
        Self::Start,
        // Last: files of the fuzz corpus name the others by their place.
        Self::PerilogRelease,
        Self::Degraded,
        Self::ShellRuns,
    ];

    /// The last part of the topic.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Covered => COVERED,
            Self::CriticalRanks => "critical-ranks",
            Self::Degraded => "degraded",
            Self::Expiration => "expiration",
            Self::KeepCommits => "keep-commits",
            Self::Known => KNOWN,
            Self::Lead => LEAD,
            Self::Order => ORDER,
            Self::Override => "override",
            Self::PerilogRelease => "perilog-release",
            Self::ShellBarrier => "shell-barrier",
            Self::ShellRuns => "shell-runs",
            Self::Shells => SHELLS,
            Self::Start => "start",
        }
    }

    /// Whether users may send it. The roles then check whose job it is about. All other requests
    /// are the instance owner's.
    pub fn is_for_users(self) -> bool {
        self.payload_max().is_some()
    }

    /// Whether its sender waits for an answer.
    pub fn is_answered(self) -> bool {
        !matches!(self, Self::Covered | Self::Order)
    }

    fn payload_max(self) -> Option<usize> {
        match self {
            Self::Checkpoint | Self::Override | Self::ShellBarrier | Self::ShellRuns => {
                Some(SMALL_MAX)
            }
            Self::Degraded => Some(REASON_MAX),
            Self::CriticalRanks => Some(IDSET_MAX),
            Self::KeepCommits => Some(COMMITS_MAX),
            Self::Covered
            | Self::Expiration
            | Self::Known
            | Self::Lead
            | Self::Order
            | Self::PerilogRelease
            | Self::Shells
            | Self::Start => None,
        }
    }

    /// Reads a request's payload.
    ///
    /// # Errors
    /// `EPROTO` with what is wrong, or `EMSGSIZE`. A bad `start` is no error here: its event holds
    /// the error.
    pub fn read(
        self,
        request: RequestId,
        credential: Credential,
        payload: &[u8],
    ) -> Result<Event, Fault> {
        if let Some(max) = self.payload_max().filter(|max| payload.len() > *max) {
            let message = format!("payload of {} bytes: at most {max}", payload.len());
            return Err(Fault::new(libc::EMSGSIZE, message));
        }
        Ok(match self {
            Self::Checkpoint => {
                let Named { id } = json(payload)?;
                Event::CheckpointAsked { request, credential, id }
            }
            Self::Covered => Event::Covered(peers(payload)?),
            Self::CriticalRanks => {
                let CriticalRanks { id, ranks } = json(payload)?;
                Event::CriticalRanks { request, credential, id, ranks }
            }
            Self::Degraded => Event::Degraded { request, credential, degraded: json(payload)? },
            Self::Expiration => {
                let Expiration { id, expiration } = json(payload)?;
                Event::Expiration { request, id, expiration }
            }
            Self::KeepCommits => {
                let KeepCommits { id, client, shell, again, commits } = json(payload)?;
                let bequest = Arc::new(Bequest { client, shell, again, commits });
                Event::KeepCommits { request, credential, id, bequest }
            }
            Self::Known => Event::Known { request, asked: peers(payload)? },
            Self::Lead => Event::Lead { request, lead: Box::new(peers(payload)?) },
            Self::Order => Event::Order(peers(payload)?),
            Self::Override => {
                let Override { jobid: id, event, status, userid } = json(payload)?;
                let credential = match userid.filter(|_| credential.owner) {
                    Some(userid) => {
                        Credential { userid, owner: userid == credential.userid, ..credential }
                    }
                    None => credential,
                };
                Event::Override { request, credential, id, event, status }
            }
            Self::PerilogRelease => Event::PerilogRelease { request, release: json(payload)? },
            Self::ShellBarrier => {
                let ShellBarrier { id, rank, entry, client } = json(payload)?;
                let entry = entry.map(|number| BarrierEntry { number, client });
                Event::ShellBarrier { request, credential, id, rank, entry }
            }
            Self::ShellRuns => {
                let ShellRuns { id, rank } = json(payload)?;
                Event::ShellRuns { request, credential, id, rank }
            }
            Self::Shells => Event::Shells { request, shells: Box::new(peers(payload)?) },
            Self::Start => Event::Start { request, start: Box::new(StartRequest::read(payload)) },
        })
    }
}

fn json<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(payload)
        .map_err(|error| Fault::new(libc::EPROTO, format!("malformed payload: {error}")))
}

fn peers<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Fault> {
    peer::decode(payload).map_err(|error| Fault::new(libc::EPROTO, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: Credential = Credential { userid: 42, owner: false, local: true };

    fn read(method: Topic, payload: &str) -> Result<Event, Fault> {
        method.read(RequestId::Remote(1), GUEST, payload.as_bytes())
    }

    #[test]
    fn what_users_send_is_bounded() {
        let padded = |size| format!("{{\"id\":1,\"rank\":0,\"x\":\"{}\"}}", "y".repeat(size));
        for method in [Topic::Checkpoint, Topic::ShellBarrier, Topic::ShellRuns] {
            assert!(read(method, &padded(100)).is_ok(), "{method:?}");
            let refused = read(method, &padded(SMALL_MAX)).expect_err("refused");
            assert_eq!(refused.errnum, libc::EMSGSIZE, "{method:?}");
        }
        let ranks = |size| format!("{{\"id\":1,\"ranks\":\"{}\"}}", "1".repeat(size));
        assert!(read(Topic::CriticalRanks, &ranks(100)).is_ok());
        let refused = read(Topic::CriticalRanks, &ranks(IDSET_MAX)).expect_err("refused");
        assert_eq!(refused.errnum, libc::EMSGSIZE);
        let commits = |size| {
            let ops = "y".repeat(size);
            format!(
                "{{\"id\":1,\"client\":\"0011223344556677\",\"commits\":[{{\"number\":1,\
                 \"commit\":{{\"flags\":0,\"ops\":[\"{ops}\"]}}}}]}}"
            )
        };
        assert!(read(Topic::KeepCommits, &commits(COMMITS_MAX / 2)).is_ok());
        let refused = read(Topic::KeepCommits, &commits(COMMITS_MAX)).expect_err("refused");
        assert_eq!(refused.errnum, libc::EMSGSIZE);
    }

    #[test]
    fn nothing_is_too_deep_for_what_is_passed_over() {
        let deep = format!("{{\"x\":{}{},\"id\":1,\"rank\":0}}", "[".repeat(400), "]".repeat(400));
        for method in [Topic::Checkpoint, Topic::ShellBarrier, Topic::ShellRuns] {
            assert!(read(method, &deep).is_ok(), "{method:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for method in Topic::ALL.into_iter().filter(|method| *method != Topic::Start) {
            let refused = read(method, "{\"id\":").expect_err("refused");
            assert_eq!(refused.errnum, libc::EPROTO, "{method:?}");
        }
        assert!(
            matches!(read(Topic::Start, "{"), Ok(Event::Start { start, .. }) if start.is_err())
        );
    }
}

//! Requests to the service: who may send which, and what each becomes.
//!
//! A payload is decoded once, here, and only as far as it is needed. A user's payload is bounded
//! before it is decoded. A role checks who sent it before it believes anything in it.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::machine::event::{Credential, Event, Fault, RequestId};
use crate::proto::peer;
use crate::proto::{
    BarrierEntry, BequeathedCommit, Bequest, BrokerRank, ClientId, JobId, StartRequest, WaitStatus,
    WallTime,
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

/// Who may send a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sender {
    /// The instance owner only.
    Owner,
    /// Every user, with a payload of so many bytes at most. The roles then check whose job it is
    /// about.
    Users(usize),
}
use Sender::{Owner, Users};

/// The sender waits for an answer.
const ANSWERED: bool = true;
/// Nobody does.
const UNANSWERED: bool = false;

/// A request as it comes.
struct Received<'a> {
    request: RequestId,
    credential: Credential,
    payload: &'a [u8],
}

/// Declares the topics: a number, the last part of the topic's name, who may send it, whether it is
/// answered, and the event that it becomes.
macro_rules! topics {
    ($($topic:ident $number:literal $name:literal $sender:expr, $is_answered:expr, $read:expr;)*) => {
        /// A request, named by the last part of its topic.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Topic {
            $(#[doc = $name] $topic,)*
        }

        impl Topic {
            /// Every topic.
            pub const ALL: &'static [Self] = &[$(Self::$topic),*];

            /// Its number in the fuzz corpus. It is never given to another.
            fn number(self) -> u8 {
                match self {
                    $(Self::$topic => $number,)*
                }
            }

            /// The last part of the topic.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$topic => $name,)*
                }
            }

            fn sender(self) -> Sender {
                match self {
                    $(Self::$topic => $sender,)*
                }
            }

            /// Whether its sender waits for an answer.
            pub fn is_answered(self) -> bool {
                match self {
                    $(Self::$topic => $is_answered,)*
                }
            }

            fn decode(self, received: Received) -> Result<Event, Fault> {
                let read: fn(Received) -> Result<Event, Fault> = match self {
                    $(Self::$topic => $read,)*
                };
                read(received)
            }
        }
    };
}

topics! {
    Checkpoint 0 "checkpoint" Users(SMALL_MAX), ANSWERED, |received| {
        let Named { id } = received.json()?;
        let Received { request, credential, .. } = received;
        Ok(Event::CheckpointAsked { request, credential, id })
    };
    Covered 1 "covered" Owner, UNANSWERED, |received| Ok(Event::Covered(received.peer()?));
    CriticalRanks 2 "critical-ranks" Users(IDSET_MAX), ANSWERED, |received| {
        let CriticalRanks { id, ranks } = received.json()?;
        let Received { request, credential, .. } = received;
        Ok(Event::CriticalRanks { request, credential, id, ranks })
    };
    Expiration 3 "expiration" Owner, ANSWERED, |received| {
        let Expiration { id, expiration } = received.json()?;
        Ok(Event::Expiration { request: received.request, id, expiration })
    };
    KeepCommits 4 "keep-commits" Users(COMMITS_MAX), ANSWERED, |received| {
        let KeepCommits { id, client, shell, again, commits } = received.json()?;
        let Received { request, credential, .. } = received;
        let bequest = Arc::new(Bequest { client, shell, again, commits });
        Ok(Event::KeepCommits { request, credential, id, bequest })
    };
    Known 5 "known" Owner, ANSWERED, |received| {
        Ok(Event::Known { request: received.request, asked: received.peer()? })
    };
    Lead 6 "lead" Owner, ANSWERED, |received| {
        Ok(Event::Lead { request: received.request, lead: Box::new(received.peer()?) })
    };
    Order 7 "order" Owner, UNANSWERED, |received| Ok(Event::Order(received.peer()?));
    Override 8 "override" Users(SMALL_MAX), ANSWERED, |received| {
        let Override { jobid: id, event, status, userid } = received.json()?;
        let Received { request, credential, .. } = received;
        let credential = match userid.filter(|_| credential.owner) {
            Some(userid) => {
                Credential { userid, owner: userid == credential.userid, ..credential }
            }
            None => credential,
        };
        Ok(Event::Override { request, credential, id, event, status })
    };
    ShellBarrier 9 "shell-barrier" Users(SMALL_MAX), ANSWERED, |received| {
        let ShellBarrier { id, rank, entry, client } = received.json()?;
        let Received { request, credential, .. } = received;
        let entry = entry.map(|number| BarrierEntry { number, client });
        Ok(Event::ShellBarrier { request, credential, id, rank, entry })
    };
    Shells 10 "shells" Owner, ANSWERED, |received| {
        Ok(Event::Shells { request: received.request, shells: Box::new(received.peer()?) })
    };
    // A bad request is no error here: its event holds the error.
    Start 11 "start" Owner, ANSWERED, |received| {
        let start = Box::new(StartRequest::read(received.payload));
        Ok(Event::Start { request: received.request, start })
    };
    PerilogRelease 12 "perilog-release" Owner, ANSWERED, |received| {
        Ok(Event::PerilogRelease { request: received.request, release: received.json()? })
    };
    Degraded 13 "degraded" Users(REASON_MAX), ANSWERED, |received| {
        let Received { request, credential, .. } = received;
        Ok(Event::Degraded { request, credential, degraded: received.json()? })
    };
    ShellRuns 14 "shell-runs" Users(SMALL_MAX), ANSWERED, |received| {
        let ShellRuns { id, rank } = received.json()?;
        let Received { request, credential, .. } = received;
        Ok(Event::ShellRuns { request, credential, id, rank })
    };
}

/// How many topics there were when the fuzz corpus began.
const FIRST_TOPICS: u8 = 15;

impl Topic {
    /// A topic for each byte of a fuzz input. A new topic takes its own number, and all other bytes keep
    /// their meaning.
    pub fn of_byte(byte: u8) -> Self {
        let numbered = |number| Self::ALL.iter().copied().find(|topic| topic.number() == number);
        let first = || numbered(byte % FIRST_TOPICS).unwrap_or(Self::Start);
        numbered(byte).unwrap_or_else(first)
    }

    /// Whether users may send it. The roles then check whose job it is about. All other requests
    /// are the instance owner's.
    pub fn is_for_users(self) -> bool {
        self.sender() != Owner
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
        if let Users(max) = self.sender()
            && payload.len() > max
        {
            let message = format!("payload of {} bytes: at most {max}", payload.len());
            return Err(Fault::new(libc::EMSGSIZE, message));
        }
        self.decode(Received { request, credential, payload })
    }
}

impl<'a> Received<'a> {
    fn json<T: Deserialize<'a>>(&self) -> Result<T, Fault> {
        serde_json::from_slice(self.payload)
            .map_err(|error| Fault::new(libc::EPROTO, format!("malformed payload: {error}")))
    }

    /// What another module has sent.
    fn peer<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        peer::decode(self.payload).map_err(|error| Fault::new(libc::EPROTO, error.to_string()))
    }
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
    expiration: WallTime,
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

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: Credential = Credential { userid: 42, owner: false, local: true };

    fn read(method: Topic, payload: &str) -> Result<Event, Fault> {
        method.read(RequestId::Remote(1), GUEST, payload.as_bytes())
    }

    /// Else the fuzz corpus means something else. A new topic has the next number, and its name comes
    /// last.
    #[test]
    fn a_byte_keeps_its_topic() {
        let all = "checkpoint covered critical-ranks expiration keep-commits known lead order override \
                   shell-barrier shells start perilog-release degraded shell-runs";
        let all: Vec<&str> = all.split(' ').collect();
        let names = |bytes: std::ops::Range<u8>| -> Vec<&str> {
            bytes.map(|byte| Topic::of_byte(byte).name()).collect()
        };
        assert_eq!(names(0..Topic::ALL.len() as u8), all);
        assert_eq!(names(240..255), all[..usize::from(FIRST_TOPICS)]);
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
        for method in Topic::ALL.iter().filter(|method| **method != Topic::Start) {
            let refused = read(*method, "{\"id\":").expect_err("refused");
            assert_eq!(refused.errnum, libc::EPROTO, "{method:?}");
        }
        assert!(
            matches!(read(Topic::Start, "{"), Ok(Event::Start { start, .. }) if start.is_err())
        );
    }
}

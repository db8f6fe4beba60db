//! What a node wants done: data, carried out in order by an adapter.

use std::sync::Arc;

use serde_json::Value;

use crate::machine::event::{Fault, RequestId, Role, StreamId};
use crate::machine::peer_request::{PeerRequest, encode};
use crate::machine::request::Topic;
use crate::port::supervisor::UnitCommand;
use crate::proto::peer::{KnownRequest, LeadReply, Question, Reports, StreamEnd, Version};
use crate::proto::{
    Bequest, BrokerRank, DegradedNodes, Exception, ExecEvent, Idset, JobDigest, JobEvent, JobId,
    JobUsage, Response, ShellRank, UnitName,
};

/// Importance of a log line. The adapter maps it to a level of syslog.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// One per effect or message.
    Debug,
    /// Something was lost or could not be done.
    Error,
    /// Rare, of interest to an administrator.
    Info,
    /// Odd, and survived.
    Warning,
}

/// An operation on a job's place in the KVS. Each is answered by the
/// [`super::KvsResult`] of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum KvsOp {
    /// Commit events to `exec.eventlog` in the guest namespace, in this order, in one commit.
    Append {
        /// The events.
        events: Vec<ExecEvent>,
        /// The run of the job that the namespace belongs to, to be said in the same commit.
        run: Option<JobDigest>,
    },
    /// Make the guest namespace, owned by the job's user.
    Create {
        /// The job's user.
        userid: u32,
    },
    /// Link `guest` in the job's directory of the primary namespace to the guest namespace.
    Link,
    /// Graft the guest namespace over the symlink in the primary namespace, and remove it. Answered
    /// when the graft is done.
    Move {
        /// What the job has used, to be put beside it in the same commit.
        usage: Option<Box<JobUsage>>,
    },
    /// Find the guest namespace of a job that may have run before, and read its exec eventlog. A
    /// namespace that has died with rank 0's broker is made again, from its last checkpoint or else
    /// empty.
    Open {
        /// The job's user.
        userid: u32,
    },
    /// Commit again what the guest namespace lacks of a client's commits. All of them are in the
    /// client's order.
    Recommit(Arc<Bequest>),
    /// Find out which ranks the job manager has back, from the job's own eventlog (RFC 21), which
    /// the job manager writes.
    Released,
}

/// The only, or the last, answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To a shell that waits in the barrier. Success lets it go. An error makes it end; for `EIO` it
    /// prints nothing (flux-core `shell.c`).
    Barrier(Result<(), Fault>),
    /// To an ordinary request: success, with a payload if it asked for something, or an error
    /// response.
    Done(Result<Option<String>, Fault>),
    /// To a peer that has opened a stream.
    End(StreamEnd),
}

/// One answer of a stream, after which others follow.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamItem {
    /// To a coordinator.
    Reply(LeadReply),
    /// To a leader or parent.
    Reports(Reports),
    /// To the job manager.
    Response {
        /// The job.
        id: JobId,
        /// The response.
        response: Response,
    },
}

impl StreamItem {
    /// Its payload.
    pub fn encode(&self) -> String {
        match self {
            Self::Reply(reply) => encode(reply),
            Self::Reports(reports) => encode(reports),
            Self::Response { id, response } => response.encode(*id).to_string(),
        }
    }
}

/// Everything a node can want done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answer a request, and close it.
    Answer {
        /// Which request.
        to: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// Make the KVS durable (`FLUX_KVS_SYNC`), with a reference to the guest namespace of each
    /// of these jobs in it. Answered by [`super::Event::Checkpointed`].
    Checkpoint {
        /// Jobs whose guest namespaces have changed, or may have.
        jobs: Vec<JobId>,
        /// Jobs that have ended: an earlier checkpoint may have put a reference to a guest namespace
        /// there again that was moved meanwhile.
        ended: Vec<JobId>,
    },
    /// Close a request without an answer: nobody waits for it, or its stream needs no end.
    Drop {
        /// Which request.
        to: RequestId,
    },
    /// Drain ranks (`resource.drain`, mode `update`). The adapter asks until there is an answer.
    Drain {
        /// The job whose leader waits for [`super::Event::Drained`].
        waits: Option<JobId>,
        /// Broker ranks.
        ranks: Idset,
        /// For administrators.
        reason: String,
    },
    /// Wait until the KVS has the final release of a job that the job manager has back. Answered by
    /// [`super::Event::ReleaseKept`].
    AwaitRelease {
        /// The job.
        id: JobId,
    },
    /// Hold a job in CLEANUP ([`JobEvent::EpilogStart`]). Answered by [`super::Event::Held`] when
    /// the KVS has it.
    Hold {
        /// The job.
        id: JobId,
    },
    /// Signal a job's tasks through its shells (`job-manager.kill`). Answered by
    /// [`super::Event::KillAnswered`], if rank 0 is there.
    KillJob {
        /// The job.
        id: JobId,
        /// Signal number.
        signal: i32,
    },
    /// Operate on a job's place in the KVS.
    Kvs {
        /// The job.
        id: JobId,
        /// What to do.
        op: KvsOp,
    },
    /// Write to the broker's log.
    Log {
        /// Importance.
        level: Level,
        /// The line.
        text: String,
    },
    /// Tell the leader shell that another shell is lost (its `exception` service).
    LostShell {
        /// The job.
        id: JobId,
        /// The job's user: part of the service's name.
        userid: u32,
        /// Exception severity.
        severity: i32,
        /// The lost one.
        shell_rank: ShellRank,
        /// Empty if an exception says it already.
        message: String,
    },
    /// Pass a request on to the rank that can answer it, and its answer back.
    Pass {
        /// That rank.
        to: BrokerRank,
        /// The request to answer.
        request: RequestId,
        /// Its topic.
        topic: Topic,
        /// Its payload. It has the sender's user id if that counts, because the instance owner
        /// passes it on.
        payload: Value,
    },
    /// Post an event to a job's own eventlog.
    Post {
        /// The job.
        id: JobId,
        /// The event.
        event: JobEvent,
    },
    /// Raise an exception at the job manager itself, because no coordinator listens.
    Raise {
        /// The job.
        id: JobId,
        /// What to raise.
        exception: Exception,
    },
    /// Send a request to another rank.
    Send {
        /// Which rank.
        to: BrokerRank,
        /// The request.
        request: PeerRequest,
    },
    /// Answer a streaming request, which stays open.
    Stream {
        /// Which request.
        to: RequestId,
        /// The answer.
        item: StreamItem,
    },
    /// Have the KVS say in a job's own eventlog ([`crate::proto::JobEvent::NodeDegraded`]) which of
    /// its nodes are degraded, unless it says so already. Answered by [`super::Event::Told`].
    Tell {
        /// Who wants it: the job's leader, or the coordinator.
        asker: Role,
        /// The job.
        id: JobId,
        /// The nodes.
        nodes: Box<DegradedNodes>,
    },
    /// Command the supervisor.
    Unit(UnitName, UnitCommand),
}

/// The sink of effects; it also numbers streams.
#[derive(Debug, Default)]
pub struct Effects {
    /// In the order in which they are to be carried out.
    pub list: Vec<Effect>,
    /// Shells that are being ended because no job counts on them.
    pub(super) unwanted: u64,
    streams: u64,
}

impl Effects {
    /// Adds an effect.
    pub(super) fn push(&mut self, effect: Effect) {
        self.list.push(effect);
    }

    /// Has nodes drained. Nobody waits for the answer. The reason is for administrators.
    pub(super) fn drain(&mut self, ranks: impl Into<Idset>, reason: impl Into<String>) {
        self.push(Effect::Drain { waits: None, ranks: ranks.into(), reason: reason.into() });
    }

    /// Sends a request to a rank, which can be this one.
    pub(super) fn send(&mut self, to: BrokerRank, request: PeerRequest) {
        self.push(Effect::Send { to, request });
    }

    /// Asks a rank about a job.
    pub(super) fn ask_known(
        &mut self,
        to: BrokerRank,
        asker: Role,
        question: Question,
        (id, digest): (JobId, JobDigest),
    ) {
        let asked = KnownRequest { version: Version, id, digest, question };
        self.send(to, PeerRequest::Known { asker, asked });
    }

    /// A stream number that was never used.
    pub(super) fn stream(&mut self) -> StreamId {
        self.streams += 1;
        StreamId(self.streams)
    }

    /// Answers a request that asked for nothing.
    pub(super) fn done(&mut self, to: RequestId, result: Result<(), Fault>) {
        self.push(Effect::Answer { to, answer: Answer::Done(result.map(|()| None)) });
    }

    /// Answers a request with what it asked for, as its [`super::Awaited`] reads it.
    pub(super) fn reply(&mut self, to: RequestId, payload: Result<String, Fault>) {
        self.push(Effect::Answer { to, answer: Answer::Done(payload.map(Some)) });
    }

    /// Ends a stream.
    pub(super) fn end(&mut self, to: RequestId, end: StreamEnd) {
        self.push(Effect::Answer { to, answer: Answer::End(end) });
    }

    /// Answers a shell that waits in the barrier.
    pub(super) fn barrier(&mut self, to: RequestId, result: Result<(), Fault>) {
        self.push(Effect::Answer { to, answer: Answer::Barrier(result) });
    }

    /// Adds a log line.
    pub(super) fn log(&mut self, level: Level, text: impl Into<String>) {
        self.push(Effect::Log { level, text: text.into() });
    }
}

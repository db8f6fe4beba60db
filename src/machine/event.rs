//! What happens to a node.

use std::sync::Arc;

use crate::config::Config;
use crate::port::supervisor::SupervisorEvent;
use crate::proto::peer::{
    CoveredRequest, KnownRequest, LeadReply, LeadRequest, OrderRequest, Question, Reports,
    ShellsRequest, StreamEnd,
};
use crate::proto::{
    BarrierEntry, Bequest, BrokerRank, Cleaning, DegradedNode, DegradedNodes, ExecEvent, Idset,
    JobDigest, JobException, JobId, PerilogRelease, ResourceNews, StartError, StartRequest,
    WaitStatus, WallTime,
};

/// A request that waits for an answer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RequestId {
    /// From another role on this rank: the answer goes to its stream.
    Local(StreamId),
    /// A message that the broker adapter holds.
    Remote(u64),
}

impl RequestId {
    /// Of a request whose sender waits for no answer.
    pub const UNANSWERED: Self = Self::Remote(0);
}

/// A streaming request that this node has made.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StreamId(pub u64);

/// Which role of this node a stream, or a question, belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The job's agent, for a child in the tree.
    Agent,
    /// The coordinator, on rank 0.
    Coordinator,
    /// The job's leader.
    Leader,
}

/// The errno and text of a Flux error response.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// POSIX errno.
    pub errnum: i32,
    /// For people; never empty.
    pub message: String,
}

impl Fault {
    /// An error with its own words.
    pub fn new(errnum: i32, message: impl Into<String>) -> Self {
        Self { errnum, message: message.into() }
    }
}

impl From<StreamEnd> for Fault {
    fn from(end: StreamEnd) -> Self {
        Self::new(end.errnum(), end.to_string())
    }
}

/// Who sent a message (RFC 12).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Credential {
    /// The sender's user id.
    pub userid: u32,
    /// The sender has the instance owner's role.
    pub owner: bool,
    /// The sender is a client of this rank's broker: no other has passed the message on
    /// (`FLUX_ROLE_LOCAL`, flux-core `libflux/message.h`).
    pub local: bool,
}

impl Credential {
    /// The owner may act for everybody, a guest for itself (flux-core `flux_msg_authorize`).
    pub fn may_act_for(self, userid: u32) -> bool {
        self.owner || self.userid == userid
    }
}

/// What the job manager lists when this service has said hello to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// Jobs in RUN. It has asked for those that do not wait for their prolog.
    pub run: Vec<JobId>,
    /// Jobs in CLEANUP. [`Event::Cleaning`] or [`Event::NotCleaning`] follows for each that can be
    /// read.
    pub cleanup: Vec<JobId>,
}

/// What was found when a job's guest namespace was opened again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opened {
    /// The exec eventlog.
    pub events: Vec<ExecEvent>,
    /// The namespace was moved to the primary one before: the job has ended.
    pub moved: bool,
    /// How many leaders have taken over, this one included. The count is in the primary namespace,
    /// because the job's user can change the exec eventlog. 0 where nobody counts.
    pub leaders: u64,
}

/// What [`super::KvsOp::Create`] has found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Creation {
    /// There is a guest namespace already: an earlier leader has made it.
    Existed,
    /// The guest namespace was made.
    Made,
}

/// Outcome of a [`super::KvsOp`], by its name.
#[derive(Clone, Debug, PartialEq)]
pub enum KvsResult {
    /// Of `Append`.
    Appended(Result<(), Fault>),
    /// Of `Create`.
    Created(Result<Creation, Fault>),
    /// Of `Link`.
    Linked(Result<(), Fault>),
    /// Of `Move`.
    Moved(Result<(), Fault>),
    /// Of `Open`.
    Opened(Result<Opened, Fault>),
    /// Of `Recommit`.
    Recommitted {
        /// Whose commits they are.
        client: String,
        /// Whether the namespace has all of them now.
        result: Result<(), Fault>,
    },
    /// Of `Released`: ranks that were released in parts.
    Released(Result<Idset, Fault>),
}

/// Everything that can happen to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A shell wants to know when all that its job's guest namespace holds now is durable
    /// (`job-exec.checkpoint`).
    CheckpointAsked {
        /// Which request to answer.
        request: RequestId,
        /// Who asks.
        credential: Credential,
        /// The job.
        id: JobId,
    },
    /// The commit that makes [`super::Effect::Checkpoint`] was sent.
    CheckpointBegun,
    /// A job in CLEANUP was found that nobody leads to its end: rank 0's broker or module was
    /// started again.
    Cleaning(Box<Cleaning>),
    /// [`super::Effect::Checkpoint`] has ended.
    Checkpointed(Result<(), Fault>),
    /// The configuration was replaced.
    Config(Box<Config>),
    /// The coordinator tells what a checkpoint holds.
    Covered(CoveredRequest),
    /// A nested instance named its critical shells (`job-exec.critical-ranks`).
    CriticalRanks {
        /// Which request to answer.
        request: RequestId,
        /// Who asks.
        credential: Credential,
        /// The job.
        id: JobId,
        /// Shell ranks, as an idset that is not read before its sender was authorised.
        ranks: String,
    },
    /// A prolog marks its node as degraded (`job-exec.degraded`).
    Degraded {
        /// Which request to answer.
        request: RequestId,
        /// Who asks.
        credential: Credential,
        /// Of which job, and why.
        degraded: DegradedNode,
    },
    /// The resource module has answered [`super::Effect::Drain`] of a leader.
    Drained {
        /// The job.
        id: JobId,
        /// Ranks that were to be drained.
        ranks: Idset,
    },
    /// The sender of a request is gone. Nobody waits for its answers any more.
    Disconnected {
        /// Which request.
        request: RequestId,
    },
    /// The job manager published a job exception.
    Exception(JobException),
    /// The job manager, or the coordinator, moved a job's time limit.
    Expiration {
        /// Which request to answer.
        request: RequestId,
        /// The job.
        id: JobId,
        /// Seconds since the epoch; 0 is none.
        expiration: WallTime,
    },
    /// [`super::Effect::Hold`] has ended.
    Held {
        /// The job.
        id: JobId,
        /// Whether it is held.
        result: Result<(), Fault>,
    },
    /// [`super::Effect::AwaitRelease`] has ended: the KVS has the release, or does not know the job.
    ReleaseKept {
        /// The job.
        id: JobId,
    },
    /// A client of a job on this rank closes its connection, and leaves commits
    /// (`job-exec.keep-commits`).
    KeepCommits {
        /// Which request to answer.
        request: RequestId,
        /// Who asks.
        credential: Credential,
        /// The job.
        id: JobId,
        /// The commits.
        bequest: Arc<Bequest>,
    },
    /// Another rank asks whether a job is still known here.
    Known {
        /// Which request to answer.
        request: RequestId,
        /// What is asked.
        asked: KnownRequest,
    },
    /// Another rank has answered [`super::Effect::Known`].
    KnownAnswered {
        /// The job.
        id: JobId,
        /// Who has asked.
        asker: Role,
        /// Which rank was asked.
        to: BrokerRank,
        /// Which of the jobs with this id was asked about.
        digest: JobDigest,
        /// What was asked.
        question: Question,
        /// Whether the job is known.
        result: Result<bool, Fault>,
    },
    /// A KVS operation ended.
    Kvs {
        /// The job.
        id: JobId,
        /// How.
        result: KvsResult,
    },
    /// Somebody has changed the primary namespace since the last checkpoint, or this service was loaded
    /// just now. It comes at most once for each checkpoint, and not while one is under way.
    KvsChanged,
    /// The job manager has answered [`super::Effect::KillJob`]. Whether it could signal tasks does
    /// not matter: some may not run yet, or any more.
    KillAnswered {
        /// The job.
        id: JobId,
    },
    /// A coordinator wants this rank to lead.
    Lead {
        /// Which request to answer, as a stream.
        request: RequestId,
        /// Which job, and what is known of it.
        lead: Box<LeadRequest>,
    },
    /// A leader or parent orders something.
    Order(OrderRequest),
    /// The user of a mocked job has it start or end (`job-exec.override`).
    Override {
        /// Which request to answer.
        request: RequestId,
        /// Who asks.
        credential: Credential,
        /// The job.
        id: JobId,
        /// `start` or `finish`.
        event: String,
        /// The status with which it ends.
        status: WaitStatus,
    },
    /// The administrator does not want a job to wait for scripts any more
    /// (`job-exec.perilog-release`).
    PerilogRelease {
        /// Which request to answer.
        request: RequestId,
        /// What he wants.
        release: PerilogRelease,
    },
    /// The instance in which this one is a job tells of degraded nodes.
    ParentDegraded {
        /// When it has said so, in seconds since the epoch.
        at: WallTime,
        /// Brokers of this instance that run there, and what is wrong.
        nodes: Vec<(Idset, String)>,
    },
    /// A job in CLEANUP needs nobody to lead it to its end.
    NotCleaning {
        /// The job.
        id: JobId,
    },
    /// A leader has answered this node's coordinator.
    Replied {
        /// Which stream.
        stream: StreamId,
        /// What the leader says, or the end of the stream.
        result: Result<LeadReply, StreamEnd>,
    },
    /// An agent has reported to this node's leader or agent.
    Reported {
        /// Which stream.
        stream: StreamId,
        /// The reports, or the end of the stream.
        result: Result<Reports, StreamEnd>,
    },
    /// The instance has drained nodes, or uses them again.
    Resources(ResourceNews),
    /// The job manager has asked for all jobs that ran when this service said hello to it. Those that
    /// it asks for from now on were allocated later, or have waited for a prolog.
    RunningAsked(Listing),
    /// A shell enters the barrier (`job-exec.shell-barrier`).
    ShellBarrier {
        /// Which request to answer.
        request: RequestId,
        /// Who asks.
        credential: Credential,
        /// The job.
        id: JobId,
        /// The shell's broker rank.
        rank: BrokerRank,
        /// Which entry it is, and whose, if the resume connector says it. Else it is the shell's
        /// next one.
        entry: Option<BarrierEntry>,
    },
    /// A shell of the job cannot reach another one, and wants to know whether that has ended
    /// (`job-exec.shell-runs`).
    ShellRuns {
        /// Which request to answer.
        request: RequestId,
        /// Who asks.
        credential: Credential,
        /// The job.
        id: JobId,
        /// The broker rank of the shell that is meant. None: this rank.
        rank: Option<BrokerRank>,
    },
    /// A leader or parent wants shells.
    Shells {
        /// Which request to answer, as a stream.
        request: RequestId,
        /// Which, and how to run them.
        shells: Box<ShellsRequest>,
    },
    /// The job manager starts (or finds again) a job.
    Start {
        /// Which request to answer, as a stream.
        request: RequestId,
        /// What it asks for, or why that cannot be read.
        start: Box<Result<StartRequest, StartError>>,
    },
    /// The supervisor reports.
    Supervisor(SupervisorEvent),
    /// Time has passed.
    Timeout,
    /// [`super::Effect::Tell`] has ended.
    Told {
        /// Who has asked for it.
        asker: Role,
        /// The job.
        id: JobId,
        /// The nodes of which it tells.
        nodes: Box<DegradedNodes>,
        /// The KVS has the event. `true`: it did not have it before.
        result: Result<bool, Fault>,
    },
}

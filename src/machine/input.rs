//! The inputs of a node, each declared once.

use crate::machine::event::{Event, KvsResult, Role};
use crate::port::supervisor::{SupervisorEvent, UnitEvent};
use crate::proto::JobId;

/// A state machine of a rank.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Machine {
    /// The coordinator of all jobs, on rank 0.
    Coordinator,
    /// A job's leader.
    Leader,
    /// A job's agent, with its shell.
    Agent,
    /// A prolog or epilog of a job's agent.
    Script,
}

impl Machine {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Leader => "leader",
            Self::Agent => "agent",
            Self::Script => "script",
        }
    }
}

impl From<Role> for Machine {
    fn from(role: Role) -> Self {
        match role {
            Role::Agent => Self::Agent,
            Role::Coordinator => Self::Coordinator,
            Role::Leader => Self::Leader,
        }
    }
}

/// Which role's message an input is, for the counters of `stats-get`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Recipient {
    /// The role that has asked: the event, or the route of its stream, says which.
    Asker,
    /// No message reached this rank.
    Nobody,
    /// This role.
    Role(Role),
}

/// Declares the inputs. A line has the input and its name in reports; the machines that get it
/// (none: the node handles it by itself); whose message it is; and then the event with the one job
/// that it is about. The node finds other jobs itself ([`super::Node`]).
macro_rules! inputs {
    ($($input:ident $name:literal [$($machine:ident)*] $recipient:expr,
       $event:pat => $job:expr;)*) => {
        /// What can happen to a node: an event, or one of its kinds.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Input {
            $(#[doc = $name] $input,)*
            /// The time of the coordinator's checkpoint has come. [`Event::Timeout`] brings it.
            CheckpointDue,
        }

        impl Input {
            /// Every input.
            pub const ALL: &'static [Self] = &[$(Self::$input,)* Self::CheckpointDue];

            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$input => $name,)*
                    Self::CheckpointDue => "checkpoint-due",
                }
            }

            /// The machines that it can reach.
            pub fn machines(self) -> &'static [Machine] {
                match self {
                    $(Self::$input => &[$(Machine::$machine),*],)*
                    Self::CheckpointDue => &[Machine::Coordinator],
                }
            }

            /// Whose message it is.
            pub(super) fn recipient(self) -> Recipient {
                match self {
                    $(Self::$input => $recipient,)*
                    Self::CheckpointDue => NOBODY,
                }
            }
        }

        impl Event {
            /// Which input it is.
            pub fn input(&self) -> Input {
                self.declared().0
            }

            /// The one job that it is about, as far as the event itself says it.
            pub(super) fn job(&self) -> Option<JobId> {
                self.declared().1
            }

            fn declared(&self) -> (Input, Option<JobId>) {
                match self {
                    $($event => (Input::$input, $job),)*
                }
            }
        }
    };
}

const COORDINATOR: Recipient = Recipient::Role(Role::Coordinator);
const LEADER: Recipient = Recipient::Role(Role::Leader);
const AGENT: Recipient = Recipient::Role(Role::Agent);
const ASKER: Recipient = Recipient::Asker;
const NOBODY: Recipient = Recipient::Nobody;

use Event::{Kvs, Supervisor};
use SupervisorEvent::Unit;

inputs! {
    // Requests.
    CheckpointAsked "checkpoint-asked" [Coordinator] COORDINATOR,
        Event::CheckpointAsked { id, .. } => Some(*id);
    Covered "covered" [Leader] LEADER,
        Event::Covered(covered) => Some(covered.id);
    CriticalRanks "critical-ranks" [Agent] AGENT,
        Event::CriticalRanks { id, .. } => Some(*id);
    Degraded "degraded" [Agent] AGENT,
        Event::Degraded { degraded, .. } => Some(degraded.id);
    Expiration "expiration" [Coordinator Leader] COORDINATOR,
        Event::Expiration { id, .. } => Some(*id);
    KeepCommits "keep-commits" [Agent] AGENT,
        Event::KeepCommits { id, .. } => Some(*id);
    Known "known" [Coordinator Leader Agent] ASKER,
        Event::Known { .. } => None;
    Lead "lead" [Leader] LEADER,
        Event::Lead { lead, .. } => Some(lead.start.id);
    Order "order" [Agent] AGENT,
        Event::Order(order) => Some(order.id);
    Override "override" [Leader] LEADER,
        Event::Override { id, .. } => Some(*id);
    Parked "parked" [Agent] NOBODY,
        Event::Parked { id, .. } => Some(*id);
    PerilogRelease "perilog-release" [Leader] LEADER,
        Event::PerilogRelease { release, .. } => Some(release.id);
    ShellBarrier "shell-barrier" [Agent] AGENT,
        Event::ShellBarrier { id, .. } => Some(*id);
    ShellRuns "shell-runs" [Agent] AGENT,
        Event::ShellRuns { id, .. } => Some(*id);
    Shells "shells" [Agent] AGENT,
        Event::Shells { shells, .. } => Some(shells.id);
    Start "start" [Coordinator] COORDINATOR,
        Event::Start { start, .. } => (**start).as_ref().ok().map(|start| start.id);
    Disconnected "disconnected" [Coordinator Leader Agent] NOBODY,
        Event::Disconnected { .. } => None;

    // Answers of other ranks.
    KnownAnswered "known-answered" [Leader Agent] ASKER,
        Event::KnownAnswered { id, .. } => Some(*id);
    Replied "replied" [Coordinator] COORDINATOR,
        Event::Replied { .. } => None;
    Reported "reported" [Leader Agent] ASKER,
        Event::Reported { .. } => None;

    // Of the KVS.
    Appended "appended" [Leader] LEADER,
        Kvs { id, result: KvsResult::Appended(_) } => Some(*id);
    Created "created" [Leader] LEADER,
        Kvs { id, result: KvsResult::Created(_) } => Some(*id);
    Linked "linked" [Leader] LEADER,
        Kvs { id, result: KvsResult::Linked(_) } => Some(*id);
    Moved "moved" [Leader] LEADER,
        Kvs { id, result: KvsResult::Moved(_) } => Some(*id);
    Opened "opened" [Leader] LEADER,
        Kvs { id, result: KvsResult::Opened(_) } => Some(*id);
    Recommitted "recommitted" [Agent] AGENT,
        Kvs { id, result: KvsResult::Recommitted { .. } } => Some(*id);
    Released "released" [Coordinator] COORDINATOR,
        Kvs { id, result: KvsResult::Released(_) } => Some(*id);
    CheckpointBegun "checkpoint-begun" [] NOBODY,
        Event::CheckpointBegun => None;
    Checkpointed "checkpointed" [Coordinator] COORDINATOR,
        Event::Checkpointed(_) => None;
    KvsChanged "kvs-changed" [] COORDINATOR,
        Event::KvsChanged => None;
    ReleaseKept "release-kept" [] COORDINATOR,
        Event::ReleaseKept { id } => Some(*id);
    Told "told" [Coordinator Leader] ASKER,
        Event::Told { id, .. } => Some(*id);

    // Of the job manager and the instance.
    Cleaning "cleaning" [Coordinator] COORDINATOR,
        Event::Cleaning(cleaning) => Some(cleaning.start.id);
    Config "config" [] NOBODY,
        Event::Config(_) => None;
    Drained "drained" [Leader] LEADER,
        Event::Drained { id, .. } => Some(*id);
    Exception "exception" [Coordinator Leader Agent] NOBODY,
        Event::Exception(exception) => Some(exception.id);
    Held "held" [Coordinator] COORDINATOR,
        Event::Held { id, .. } => Some(*id);
    KillAnswered "kill-answered" [Leader] LEADER,
        Event::KillAnswered { id } => Some(*id);
    NotCleaning "not-cleaning" [] COORDINATOR,
        Event::NotCleaning { .. } => None;
    ParentDegraded "parent-degraded" [] COORDINATOR,
        Event::ParentDegraded { .. } => None;
    Resources "resources" [] COORDINATOR,
        Event::Resources(_) => None;
    RunningAsked "running-asked" [] COORDINATOR,
        Event::RunningAsked(_) => None;
    Timeout "timeout" [Coordinator Leader Agent] NOBODY,
        Event::Timeout => None;

    // Of the supervisor.
    Answers "answers" [] NOBODY,
        Supervisor(SupervisorEvent::Answers { .. }) => None;
    Exited "exited" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Exited { .. })) => Some(unit.job());
    Failed "failed" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Failed(_))) => Some(unit.job());
    Found "found" [Agent Script] NOBODY,
        Supervisor(SupervisorEvent::Found(record)) => Some(record.spec.unit.job());
    Gone "gone" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Gone)) => Some(unit.job());
    Kept "kept" [Agent] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Kept { .. })) => Some(unit.job());
    Left "left" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Left)) => Some(unit.job());
    LeftOver "left-over" [Agent] NOBODY,
        Supervisor(Unit(unit, UnitEvent::LeftOver { .. })) => Some(unit.job());
    Lost "lost" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Lost { .. })) => Some(unit.job());
    Marked "marked" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Marked { .. })) => Some(unit.job());
    NeverStarted "never-started" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::NeverStarted)) => Some(unit.job());
    Output "output" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Output { .. })) => Some(unit.job());
    OutputLost "output-lost" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::OutputLost { .. })) => Some(unit.job());
    OutputOverflow "output-overflow" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::OutputOverflow { .. })) => Some(unit.job());
    OutputTruncated "output-truncated" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::OutputTruncated { .. })) => Some(unit.job());
    DiskFails "disk-fails" [] NOBODY,
        Supervisor(SupervisorEvent::DiskFails { .. }) => None;
    Ready "ready" [] NOBODY,
        Supervisor(SupervisorEvent::Ready { .. }) => None;
    Silent "silent" [] NOBODY,
        Supervisor(SupervisorEvent::Silent { .. }) => None;
    Started "started" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Started { .. })) => Some(unit.job());
    Stopping "stopping" [Agent Script] NOBODY,
        Supervisor(Unit(unit, UnitEvent::Stopping)) => Some(unit.job());
    Unreadable "unreadable" [] NOBODY,
        Supervisor(SupervisorEvent::Unreadable { unit, .. }) => Some(unit.job());
    Unusable "unusable" [] NOBODY,
        Supervisor(SupervisorEvent::Unusable { .. }) => None;
}

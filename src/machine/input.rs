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

/// Declares the inputs. A line has the input and its name in reports; the machines that get it
/// (none: the node handles it by itself); and then the event with the one job that it is about. The
/// node finds other jobs itself ([`super::Node`]).
macro_rules! inputs {
    ($($input:ident $name:literal [$($machine:ident)*]
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

use Event::{Kvs, Supervisor};
use SupervisorEvent::Unit;

inputs! {
    // Requests.
    CheckpointAsked "checkpoint-asked" [Coordinator] Event::CheckpointAsked { id, .. } => Some(*id);
    Covered "covered" [Leader] Event::Covered(covered) => Some(covered.id);
    CriticalRanks "critical-ranks" [Agent] Event::CriticalRanks { id, .. } => Some(*id);
    Degraded "degraded" [Agent] Event::Degraded { degraded, .. } => Some(degraded.id);
    Expiration "expiration" [Coordinator Leader] Event::Expiration { id, .. } => Some(*id);
    KeepCommits "keep-commits" [Agent] Event::KeepCommits { id, .. } => Some(*id);
    Known "known" [Coordinator Leader Agent] Event::Known { .. } => None;
    Lead "lead" [Leader] Event::Lead { lead, .. } => Some(lead.start.id);
    Order "order" [Agent] Event::Order(order) => Some(order.id);
    Override "override" [Leader] Event::Override { id, .. } => Some(*id);
    PerilogRelease "perilog-release" [Leader]
        Event::PerilogRelease { release, .. } => Some(release.id);
    ShellBarrier "shell-barrier" [Agent] Event::ShellBarrier { id, .. } => Some(*id);
    ShellRuns "shell-runs" [Agent] Event::ShellRuns { id, .. } => Some(*id);
    Shells "shells" [Agent] Event::Shells { shells, .. } => Some(shells.id);
    Start "start" [Coordinator]
        Event::Start { start, .. } => (**start).as_ref().ok().map(|start| start.id);
    Disconnected "disconnected" [Coordinator Leader Agent] Event::Disconnected { .. } => None;

    // Answers of other ranks.
    KnownAnswered "known-answered" [Leader Agent] Event::KnownAnswered { id, .. } => Some(*id);
    Replied "replied" [Coordinator] Event::Replied { .. } => None;
    Reported "reported" [Leader Agent] Event::Reported { .. } => None;

    // Of the KVS.
    Appended "appended" [Leader] Kvs { id, result: KvsResult::Appended(_) } => Some(*id);
    Created "created" [Leader] Kvs { id, result: KvsResult::Created(_) } => Some(*id);
    Linked "linked" [Leader] Kvs { id, result: KvsResult::Linked(_) } => Some(*id);
    Moved "moved" [Leader] Kvs { id, result: KvsResult::Moved(_) } => Some(*id);
    Opened "opened" [Leader] Kvs { id, result: KvsResult::Opened(_) } => Some(*id);
    Recommitted "recommitted" [Agent]
        Kvs { id, result: KvsResult::Recommitted { .. } } => Some(*id);
    Released "released" [Coordinator] Kvs { id, result: KvsResult::Released(_) } => Some(*id);
    CheckpointBegun "checkpoint-begun" [] Event::CheckpointBegun => None;
    Checkpointed "checkpointed" [Coordinator] Event::Checkpointed(_) => None;
    KvsChanged "kvs-changed" [] Event::KvsChanged => None;
    ReleaseKept "release-kept" [] Event::ReleaseKept { id } => Some(*id);
    Told "told" [Coordinator Leader] Event::Told { id, .. } => Some(*id);

    // Of the job manager and the instance.
    Cleaning "cleaning" [Coordinator] Event::Cleaning(cleaning) => Some(cleaning.start.id);
    Config "config" [] Event::Config(_) => None;
    Drained "drained" [Leader] Event::Drained { id, .. } => Some(*id);
    Exception "exception" [Coordinator Leader Agent]
        Event::Exception(exception) => Some(exception.id);
    Held "held" [Coordinator] Event::Held { id, .. } => Some(*id);
    KillAnswered "kill-answered" [Leader] Event::KillAnswered { id } => Some(*id);
    NotCleaning "not-cleaning" [] Event::NotCleaning { .. } => None;
    ParentDegraded "parent-degraded" [] Event::ParentDegraded { .. } => None;
    Resources "resources" [] Event::Resources(_) => None;
    RunningAsked "running-asked" [] Event::RunningAsked(_) => None;
    Timeout "timeout" [Coordinator Leader Agent] Event::Timeout => None;

    // Of the supervisor.
    Answers "answers" [] Supervisor(SupervisorEvent::Answers { .. }) => None;
    Exited "exited" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::Exited { .. })) => Some(unit.job());
    Failed "failed" [Agent Script] Supervisor(Unit(unit, UnitEvent::Failed(_))) => Some(unit.job());
    Found "found" [Agent Script]
        Supervisor(SupervisorEvent::Found(record)) => Some(record.spec.unit.job());
    Gone "gone" [Agent Script] Supervisor(Unit(unit, UnitEvent::Gone)) => Some(unit.job());
    Kept "kept" [Agent] Supervisor(Unit(unit, UnitEvent::Kept { .. })) => Some(unit.job());
    Left "left" [Agent Script] Supervisor(Unit(unit, UnitEvent::Left)) => Some(unit.job());
    LeftOver "left-over" [Agent]
        Supervisor(Unit(unit, UnitEvent::LeftOver { .. })) => Some(unit.job());
    Lost "lost" [Agent Script] Supervisor(Unit(unit, UnitEvent::Lost { .. })) => Some(unit.job());
    Marked "marked" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::Marked { .. })) => Some(unit.job());
    NeverStarted "never-started" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::NeverStarted)) => Some(unit.job());
    Output "output" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::Output { .. })) => Some(unit.job());
    OutputLost "output-lost" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::OutputLost { .. })) => Some(unit.job());
    OutputOverflow "output-overflow" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::OutputOverflow { .. })) => Some(unit.job());
    OutputTruncated "output-truncated" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::OutputTruncated { .. })) => Some(unit.job());
    DiskFails "disk-fails" [] Supervisor(SupervisorEvent::DiskFails { .. }) => None;
    Ready "ready" [] Supervisor(SupervisorEvent::Ready { .. }) => None;
    Silent "silent" [] Supervisor(SupervisorEvent::Silent { .. }) => None;
    Started "started" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::Started { .. })) => Some(unit.job());
    Stopping "stopping" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::Stopping)) => Some(unit.job());
    Unreadable "unreadable" []
        Supervisor(SupervisorEvent::Unreadable { unit, .. }) => Some(unit.job());
    Usage "usage" [Agent Script]
        Supervisor(Unit(unit, UnitEvent::Usage(_))) => Some(unit.job());
    Unusable "unusable" [] Supervisor(SupervisorEvent::Unusable { .. }) => None;
}

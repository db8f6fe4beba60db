//! The agent's own shell: one unit on this rank.

use crate::machine::agent::output::OutputStream;
use crate::machine::effect::{Effect, Effects};
use crate::machine::event::{Fault, RequestId};
use crate::planted::Bug;
use crate::port::supervisor::{UnitCommand, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::{self, Order, Report};
use crate::proto::{Idset, IdsetError, JobDigest, JobId, Stream, UnitName, WaitStatus};

/// Keys of the notes that a unit's record keeps for the agent.
pub(in crate::machine) const NOTE_ENTERED: &str = "barrier-entered";
pub(in crate::machine) const NOTE_CRITICAL: &str = "critical-ranks";

/// How often a shell can enter the barrier; flux-shell does it twice. Each entry that waits is a
/// request that is kept.
const ENTRIES_MAX: u32 = 64;

/// Longest text of one member of an idset, with its comma, in bytes.
const MEMBER_MAX: usize = "4294967295,".len();

/// What is known of the unit.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// Asked for, or found on disk; the supervisor has not said more.
    Pending,
    Running {
        pid: u32,
    },
    Exited,
    Failed {
        errnum: i32,
        message: String,
    },
    /// An earlier life has meant to start it, and did not.
    NeverStarted,
    /// It was started and can't be found. What it wrote is on its way.
    Lost,
    Gone,
}

/// One shell.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::machine) struct Shell {
    unit: UnitName,
    pub(in crate::machine) digest: JobDigest,
    /// Shells of the job; 0 until a leader has told, for one of an older release.
    size: u32,
    multiuser: bool,
    phase: Phase,
    status: Option<WaitStatus>,
    /// Why it could not be found any more.
    lost: Option<String>,
    /// Its main process was seen outside of the unit.
    left: bool,
    outputs: [OutputStream; 2],
    /// What else there is to say of its output: it was cut off, or fills the disk.
    remarks: Vec<Report>,
    /// Times that the shell has entered the barrier.
    entered: u32,
    /// Barriers that the leader has completed.
    completed: u32,
    /// Every entry past `completed` fails.
    barrier_failed: bool,
    /// Requests that wait in the barrier, with their entry.
    parked: Vec<(u32, RequestId)>,
    critical: Option<Idset>,
    forgotten: bool,
    /// Collected once only: each request is answered, and the name may be another job's by
    /// the time of a second answer.
    collected: bool,
}

impl Shell {
    pub(in crate::machine) fn new(spec: &UnitSpec) -> Self {
        Self {
            unit: spec.unit.clone(),
            digest: spec.digest.as_str().into(),
            size: spec.size,
            multiuser: spec.multiuser,
            phase: Phase::Pending,
            status: None,
            lost: None,
            left: false,
            outputs: [OutputStream::new(Stream::Stdout), OutputStream::new(Stream::Stderr)],
            remarks: Vec::new(),
            entered: 0,
            completed: 0,
            barrier_failed: false,
            parked: Vec::new(),
            critical: None,
            forgotten: false,
            collected: false,
        }
    }

    /// From the record of an earlier life. What became of it, the supervisor says next.
    pub(in crate::machine) fn found(record: &UnitRecord) -> Self {
        let mut shell = Self::new(&record.spec);
        let entered = record.notes.get(NOTE_ENTERED).and_then(serde_json::Value::as_u64);
        shell.entered = entered.and_then(|n| u32::try_from(n).ok()).unwrap_or(0).min(ENTRIES_MAX);
        let critical = record.notes.get(NOTE_CRITICAL).and_then(serde_json::Value::as_str);
        shell.critical = critical.and_then(|ranks| ranks.parse().ok());
        shell
    }

    /// For [`super::Position`].
    pub(in crate::machine) fn state_name(&self) -> &'static str {
        match self.phase {
            Phase::Pending => "pending",
            Phase::Running { .. } => "running",
            Phase::Exited => "exited",
            Phase::Failed { .. } => "failed",
            Phase::NeverStarted => "never-started",
            Phase::Lost => "lost",
            Phase::Gone => "gone",
        }
    }

    pub(in crate::machine) fn unit(&self) -> &UnitName {
        &self.unit
    }

    pub(in crate::machine) fn pid(&self) -> Option<u32> {
        match self.phase {
            Phase::Running { pid } => Some(pid),
            Phase::Pending
            | Phase::Exited
            | Phase::Failed { .. }
            | Phase::NeverStarted
            | Phase::Lost
            | Phase::Gone => None,
        }
    }

    /// It runs under the IMP: its processes are out of the instance owner's reach.
    pub(in crate::machine) fn is_multiuser(&self) -> bool {
        self.multiuser
    }

    /// Nobody wants the shell: stop what may run, then discard its record.
    pub(in crate::machine) fn end(&mut self, out: &mut Effects) {
        if self.left {
            self.drain(out);
        }
        if self.may_live() {
            self.collect(out);
        }
        self.order(&Order::Forget, out);
    }

    /// No leader will do it.
    fn drain(&self, out: &mut Effects) {
        let ranks = Idset::from_iter([self.unit.rank()]);
        let reason = peer::left_reason(self.unit.job());
        out.push(Effect::Drain { ranks, reason });
    }

    fn collect(&mut self, out: &mut Effects) {
        if !std::mem::replace(&mut self.collected, true) {
            out.push(Effect::Unit(UnitCommand::Collect { unit: self.unit.clone() }));
        }
    }

    /// The shell may be started: it never was.
    pub(in crate::machine) fn may_start_again(&self) -> bool {
        self.phase == Phase::NeverStarted
    }

    /// A process of it may be left on the node, or news of it on its way.
    fn may_live(&self) -> bool {
        match self.phase {
            Phase::Pending | Phase::Running { .. } | Phase::Exited | Phase::Lost => true,
            Phase::Failed { .. } | Phase::NeverStarted | Phase::Gone => false,
        }
    }

    /// Nobody is left to be let go from a barrier.
    fn has_ended(&self) -> bool {
        !matches!(self.phase, Phase::Pending | Phase::Running { .. })
    }

    /// Handles news of the unit; returns what to report.
    pub(in crate::machine) fn unit_event(
        &mut self,
        event: UnitEvent,
        out: &mut Effects,
    ) -> Vec<Report> {
        match event {
            UnitEvent::Started { pid, .. } => {
                if matches!(self.phase, Phase::Pending) {
                    self.phase = Phase::Running { pid };
                }
                vec![Report::Running]
            }
            UnitEvent::Output { stream, offset, data, .. } => {
                if self.forgotten {
                    let end = offset.saturating_add(data.len() as u64);
                    self.acknowledge_to_supervisor(stream, end, out);
                    return Vec::new();
                }
                let everything = !matches!(self.phase, Phase::Pending | Phase::Running { .. });
                let output = &mut self.outputs[stream as usize];
                output.append(offset, &data);
                output.take(everything).into_iter().collect()
            }
            UnitEvent::OutputOverflow { allocated, .. } => {
                self.remark(Report::OutputOverflow { allocated })
            }
            UnitEvent::OutputTruncated { stream, kept, dropped, .. } => {
                self.remark(Report::OutputTruncated { stream, kept, dropped })
            }
            UnitEvent::Exited { status, .. } => self.exited(status, out),
            UnitEvent::Failed { errnum, message, .. } => {
                self.not_started(Phase::Failed { errnum, message: message.clone() }, out);
                vec![Report::Failed { errnum, message }]
            }
            UnitEvent::NeverStarted { .. } => {
                self.not_started(Phase::NeverStarted, out);
                vec![Report::NeverStarted]
            }
            UnitEvent::Left { .. } => {
                self.left = true;
                if self.forgotten {
                    self.drain(out);
                }
                vec![Report::Left]
            }
            UnitEvent::Lost { message, .. } => {
                self.phase = Phase::Lost;
                self.lost = Some(message.clone());
                self.end_barrier(out);
                // Answered when all that it wrote was told.
                self.collect(out);
                let mut reports = self.rest_of_output();
                reports.push(Report::Lost { message });
                reports
            }
            UnitEvent::Gone { .. } => {
                self.phase = Phase::Gone;
                self.end_barrier(out);
                let mut reports = self.rest_of_output();
                reports.push(Report::Gone);
                if self.forgotten {
                    out.push(Effect::Unit(UnitCommand::Forget { unit: self.unit.clone() }));
                }
                reports
            }
            UnitEvent::Found(_)
            | UnitEvent::Ready { .. }
            | UnitEvent::Stopping { .. }
            | UnitEvent::Unusable { .. } => Vec::new(),
        }
    }

    fn not_started(&mut self, phase: Phase, out: &mut Effects) {
        self.phase = phase;
        self.end_barrier(out);
        if self.forgotten {
            out.push(Effect::Unit(UnitCommand::Forget { unit: self.unit.clone() }));
        }
    }

    fn exited(&mut self, status: WaitStatus, out: &mut Effects) -> Vec<Report> {
        self.phase = Phase::Exited;
        self.status = Some(status);
        self.end_barrier(out);
        // The status is in the record: what is left of the unit can go.
        self.collect(out);
        let mut reports = self.rest_of_output();
        reports.push(Report::Exited { status });
        if Bug::ReleaseBeforeEmpty.is_planted() {
            reports.push(Report::Gone);
        }
        reports
    }

    /// What it has left behind cannot be ended; returns what to report.
    pub(in crate::machine) fn set_unkillable(&mut self) -> Vec<Report> {
        self.remark(Report::Unkillable)
    }

    /// Keeps what a new leader has to hear as well.
    fn remark(&mut self, report: Report) -> Vec<Report> {
        if self.forgotten || self.remarks.contains(&report) {
            return Vec::new();
        }
        self.remarks.push(report.clone());
        vec![report]
    }

    fn rest_of_output(&mut self) -> Vec<Report> {
        self.outputs.iter_mut().filter_map(|output| output.take(true)).collect()
    }

    /// The shell that waits has ended: nobody is there to be answered.
    fn end_barrier(&mut self, out: &mut Effects) {
        for (_, to) in self.parked.drain(..) {
            out.push(Effect::Drop { to });
        }
    }

    /// The shell enters the barrier; returns what to report.
    pub(in crate::machine) fn enter_barrier(
        &mut self,
        to: RequestId,
        entry: Option<u32>,
        out: &mut Effects,
    ) -> Vec<Report> {
        if self.has_ended() {
            // What is kept for it now, nothing would take away.
            let fault = Fault::new(libc::ENOENT, format!("{} has ended", self.unit));
            out.barrier(to, Err(fault));
            return Vec::new();
        }
        let entry = entry.filter(|_| !Bug::BarrierAfterRestart.is_planted());
        let entry = entry.unwrap_or(self.entered.saturating_add(1));
        if !(1..=ENTRIES_MAX).contains(&entry) {
            let message = format!("entry {entry} of a shell barrier: expected 1 to {ENTRIES_MAX}");
            out.barrier(to, Err(Fault::new(libc::EINVAL, message)));
            return Vec::new();
        }
        let is_news = entry > self.entered;
        self.entered = self.entered.max(entry);
        if entry <= self.completed {
            out.barrier(to, Ok(()));
        } else if self.barrier_failed {
            out.barrier(to, Err(barrier_fault()));
        } else {
            // The same entry again: who asked first is not there any more.
            if let Some((_, old)) = self.parked.extract_if(.., |(known, _)| *known == entry).next()
            {
                out.push(Effect::Drop { to: old });
            }
            self.parked.push((entry, to));
            if is_news {
                self.note(NOTE_ENTERED, self.entered.into(), out);
            }
        }
        vec![Report::Barrier { entered: self.entered }]
    }

    /// A leader has told how many shells the job has.
    pub(in crate::machine) fn set_size(&mut self, size: u32) {
        self.size = size;
    }

    /// A nested instance named its critical shells; returns what to report, if it is news.
    ///
    /// # Errors
    /// A text that is no set of the job's shells. A longer one than any such set is not read.
    pub(in crate::machine) fn set_critical(
        &mut self,
        id: JobId,
        text: &str,
        out: &mut Effects,
    ) -> Result<Option<Report>, Fault> {
        let size = self.size;
        let refuse = |errnum, why: String| Fault::new(errnum, format!("{id}: ranks: {why}"));
        if size == 0 {
            let why = "the job's leader has not told yet how many shells it has".to_string();
            return Err(refuse(libc::EAGAIN, why));
        }
        if text.len() / MEMBER_MAX > size as usize {
            let why = format!("{} bytes name more than the job's {size} shells", text.len());
            return Err(refuse(libc::EINVAL, why));
        }
        let ranks: Idset =
            text.parse().map_err(|e: IdsetError| refuse(libc::EPROTO, e.to_string()))?;
        if let Some(last) = ranks.last().filter(|last| *last >= size) {
            let why = format!("{last} is no shell rank of a job with {size} shells");
            return Err(refuse(libc::EINVAL, why));
        }
        if self.critical.as_ref() == Some(&ranks) {
            return Ok(None);
        }
        self.note(NOTE_CRITICAL, ranks.to_string().into(), out);
        self.critical = Some(ranks.clone());
        Ok(Some(Report::CriticalRanks { ranks }))
    }

    /// Keeps a fact with the unit's record.
    fn note(&self, key: &str, value: serde_json::Value, out: &mut Effects) {
        let (unit, key) = (self.unit.clone(), key.to_string());
        out.push(Effect::Unit(UnitCommand::Note { unit, key, value }));
    }

    /// Obeys an order.
    pub(in crate::machine) fn order(&mut self, order: &Order, out: &mut Effects) {
        match *order {
            Order::Acknowledge { stream, offset, checkpointed } => {
                self.outputs[stream as usize].acknowledge(offset);
                let unit = self.unit.clone();
                let ack = UnitCommand::OutputAck { unit, stream, offset, checkpointed };
                out.push(Effect::Unit(ack));
            }
            Order::Barrier { count, failed } => self.release_barrier(count, failed, out),
            Order::Forget => {
                self.forgotten = true;
                if self.may_live() {
                    // Nobody waits for its output any more; `Gone` must not either.
                    for stream in [Stream::Stdout, Stream::Stderr] {
                        self.acknowledge_to_supervisor(stream, u64::MAX, out);
                    }
                } else {
                    out.push(Effect::Unit(UnitCommand::Forget { unit: self.unit.clone() }));
                }
            }
            Order::Signal { signal, all } => {
                out.push(Effect::Unit(UnitCommand::Signal {
                    unit: self.unit.clone(),
                    signal,
                    all,
                }));
            }
        }
    }

    fn acknowledge_to_supervisor(&self, stream: Stream, offset: u64, out: &mut Effects) {
        // Nothing is known of a checkpoint, so nothing may be given up.
        let (unit, checkpointed) = (self.unit.clone(), 0);
        out.push(Effect::Unit(UnitCommand::OutputAck { unit, stream, offset, checkpointed }));
    }

    fn release_barrier(&mut self, count: u32, failed: bool, out: &mut Effects) {
        self.completed = self.completed.max(count);
        self.barrier_failed |= failed;
        let (completed, failed) = (self.completed, self.barrier_failed);
        for (entry, to) in self.parked.extract_if(.., |(entry, _)| failed || *entry <= completed) {
            let result = if entry <= completed { Ok(()) } else { Err(barrier_fault()) };
            out.barrier(to, result);
        }
    }

    /// Everything that a new leader has to know, which has output up to `positions`.
    pub(in crate::machine) fn snapshot(
        &mut self,
        positions: [u64; 2],
        out: &mut Effects,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        match &self.phase {
            Phase::Pending => reports.push(Report::Pending),
            Phase::NeverStarted => reports.push(Report::NeverStarted),
            Phase::Failed { errnum, message } => {
                reports.push(Report::Failed { errnum: *errnum, message: message.clone() });
            }
            Phase::Running { .. } | Phase::Exited | Phase::Lost | Phase::Gone => {
                reports.push(match &self.lost {
                    Some(message) => Report::Lost { message: message.clone() },
                    None => Report::Running,
                });
            }
        }
        if self.left {
            reports.push(Report::Left);
        }
        if self.entered > 0 {
            reports.push(Report::Barrier { entered: self.entered });
        }
        if let Some(ranks) = &self.critical {
            reports.push(Report::CriticalRanks { ranks: ranks.clone() });
        }
        let ended = !matches!(self.phase, Phase::Pending | Phase::Running { .. });
        for (stream, offset) in [Stream::Stdout, Stream::Stderr].into_iter().zip(positions) {
            self.outputs[stream as usize].rewind(offset);
            self.acknowledge_to_supervisor(stream, offset, out);
            reports.extend(self.outputs[stream as usize].take(ended));
        }
        reports.extend(self.remarks.iter().cloned());
        if let Some(status) = self.status {
            reports.push(Report::Exited { status });
        }
        if self.phase == Phase::Gone {
            reports.push(Report::Gone);
        }
        reports
    }

    /// The module is unloaded: the barrier requests are kept with the unit.
    pub(in crate::machine) fn park(&self, out: &mut Effects) {
        for (entry, to) in &self.parked {
            out.push(Effect::Park { to: *to, unit: self.unit.clone(), entry: *entry });
        }
    }

    pub(in crate::machine) fn is_done(&self) -> bool {
        self.forgotten && !self.may_live()
    }
}

fn barrier_fault() -> Fault {
    Fault::new(libc::EIO, "shell barrier failed")
}

//! The agent's own shell: one unit on this rank.

use std::sync::Arc;

use super::barrier::Entries;
use super::client_commits::ClientCommits;
use super::output::OutputStream;
use super::recorded::{Recorded, Seen, UnitEnd};
use crate::machine::effect::Effects;
use crate::machine::event::{Fault, RequestId};
use crate::machine::mono_time::MonoTime;
use crate::port::Note;
use crate::port::supervisor::{StartFailure, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::{self, Order, Report};
use crate::proto::{
    BarrierEntry, Bequest, EndReason, Idset, IdsetError, JobDigest, JobException, JobId, Stage,
    Stream, UnitName,
};

/// Longest text of one member of an idset, with its comma, in bytes.
const MEMBER_MAX: usize = "4294967295,".len();

/// One shell.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::machine) struct Shell {
    pub(super) unit: Recorded,
    digest: JobDigest,
    userid: u32,
    /// Shells of the job.
    size: u32,
    /// That its record was lost, or that its main process was seen outside of the unit.
    troubles: Vec<Report>,
    /// The processes that signals have not ended, as they were named last.
    left_over: Option<String>,
    outputs: [OutputStream; 2],
    /// What else there is to say of its output: it was cut off, or fills the disk.
    remarks: Vec<Report>,
    entries: Entries,
    critical: Option<Idset>,
    client_commits: ClientCommits,
    /// The first exception for which a leader has had it ended.
    reason: Option<EndReason>,
}

impl Shell {
    /// One that nobody has asked for. `spec` can be that of a script of its job.
    pub(super) fn new(spec: &UnitSpec) -> Self {
        Self {
            unit: Recorded::new(spec.unit.of_stage(Stage::Shell, spec.multiuser)),
            digest: spec.digest.clone(),
            userid: spec.userid,
            size: spec.size,
            troubles: Vec::new(),
            left_over: None,
            outputs: [OutputStream::new(Stream::Stdout), OutputStream::new(Stream::Stderr)],
            remarks: Vec::new(),
            entries: Entries::default(),
            critical: None,
            client_commits: ClientCommits::default(),
            reason: None,
        }
    }

    /// From the record of an earlier life. The supervisor says next what became of the unit.
    pub(super) fn found(record: &UnitRecord) -> Self {
        let mut shell = Self::new(&record.spec);
        if record.spec.unit.is_script() {
            shell.find_failure(record.spec.shell_failed.clone());
            return shell;
        }
        shell.unit = Recorded::found(record.spec.unit.clone());
        for note in Note::all(&record.notes) {
            match note {
                Note::BarrierEntered(entered) => shell.entries.find(entered),
                Note::BarrierClients(clients) => shell.entries.find_clients(clients),
                Note::BarrierPassed(passed) => shell.entries.find_passed(passed),
                Note::Commits(bequest) => shell.keep_found(&bequest),
                Note::CriticalRanks(ranks) => shell.critical = Some(ranks),
                Note::EndReason(reason) => shell.reason = Some(reason),
                Note::MadeAgain { output_lost: output } => {
                    shell.troubles.push(Report::RecordLost { output });
                }
                Note::Usage(usage) => shell.remarks.push(Report::Usage(usage)),
                Note::Degraded(_) | Note::GivenBack => (), // a script's
                Note::OutputBase { .. } => (),             // the supervisor's own
            }
        }
        shell.entries.count_found();
        shell
    }

    /// An epilog's record says why the shell before it was not started: the epilog had begun, so it
    /// is not tried again. If the shell has a record as well, the supervisor is going to say that it
    /// was never started.
    pub(super) fn find_failure(&mut self, failure: Option<StartFailure>) {
        if let Some(failure) = failure
            && matches!(self.unit.seen(), Seen::Waiting | Seen::Pending)
        {
            self.unit.set_seen(Seen::Failed(failure));
        }
    }

    /// Why it could not be started.
    pub(super) fn start_failure(&self) -> Option<StartFailure> {
        let Seen::Failed(failure) = self.unit.seen() else { return None };
        Some(failure.clone())
    }

    /// For `coverage/`.
    #[cfg(any(test, feature = "coverage"))]
    pub(super) fn state_name(&self) -> &'static str {
        match self.unit.seen() {
            Seen::Waiting => "waiting",
            Seen::Pending => "pending",
            Seen::Running { .. } => "running",
            Seen::Ended(UnitEnd::Status(_)) => "exited",
            Seen::Ended(UnitEnd::Lost(_)) => "lost",
            Seen::Failed(_) => "failed",
            Seen::NeverStarted => "never-started",
            Seen::Gone(_) => "gone",
        }
    }

    pub(in crate::machine) fn unit(&self) -> &UnitName {
        self.unit.name()
    }

    pub(super) fn digest(&self) -> &JobDigest {
        &self.digest
    }

    pub(in crate::machine) fn pid(&self) -> Option<u32> {
        let Seen::Running { pid } = self.unit.seen() else { return None };
        Some(*pid)
    }

    pub(in crate::machine) fn userid(&self) -> u32 {
        self.userid
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// It waits again: an earlier life meant to start it, and did not.
    pub(super) fn wait(&mut self) {
        self.unit.set_seen(Seen::Waiting);
    }

    /// A leader says that it was started. Its record is lost then.
    pub(super) fn lose_if_waiting(&mut self, message: &str) {
        if self.unit.is_waiting() {
            self.unit.set_seen(Seen::Gone(Some(UnitEnd::Lost(message.to_string()))));
        }
    }

    /// No process of it is left, and none will come.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.unit.seen(), Seen::Failed(_) | Seen::Gone(_))
    }

    /// It does not run, and never did.
    pub(super) fn was_never_started(&self) -> bool {
        matches!(self.unit.seen(), Seen::Waiting | Seen::NeverStarted)
    }

    /// Commits that clients have left are being done again.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.client_commits.is_settled()
    }

    /// Nothing of it is left, and the job's namespace has what it wrote.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.unit.seen(), Seen::Gone(_)) && !self.is_unsettled()
    }

    /// It runs under the IMP: its processes are out of the instance owner's reach.
    pub(super) fn is_multiuser(&self) -> bool {
        self.unit().is_multiuser()
    }

    /// The shell may be started: it never was.
    pub(super) fn may_start_again(&self) -> bool {
        *self.unit.seen() == Seen::NeverStarted
    }

    /// It is to be started, or something of it may be left.
    pub(super) fn needs_systemd(&self) -> bool {
        self.unit.is_waiting() || self.unit.may_live()
    }

    /// Nobody wants the shell. Stop the unit if it may be running, then discard its record.
    pub(super) fn end(&mut self, out: &mut Effects) {
        if self.troubles.contains(&Report::Left) {
            self.drain(out);
        }
        if self.unit.may_live() {
            self.unit.collect(out);
        }
        self.handle_order(&Order::Forget, out);
    }

    /// No leader will do it.
    fn drain(&self, out: &mut Effects) {
        out.drain(self.unit().rank(), peer::left_reason(self.unit().job()));
    }

    /// Handles news of the unit; returns what to report.
    pub(super) fn handle_unit(&mut self, event: UnitEvent, out: &mut Effects) -> Vec<Report> {
        if matches!(event, UnitEvent::Lost { .. } | UnitEvent::NeverStarted)
            && self.start_failure().is_some()
        {
            // Nothing was started: its epilog's record says why.
            return Vec::new();
        }
        self.unit.see(&event, out);
        if self.unit.has_ended() {
            self.entries.drop_all(out);
            self.client_commits.handle_shell_end(self.unit().job(), out);
        }
        match event {
            UnitEvent::Started { .. } => vec![Report::Running],
            UnitEvent::Output { stream, offset, data } => {
                self.take_output(stream, offset, &data, out)
            }
            UnitEvent::OutputLost { message } => self.remark(Report::OutputLost { message }),
            UnitEvent::OutputOverflow { allocated } => {
                self.remark(Report::OutputOverflow { allocated })
            }
            UnitEvent::OutputTruncated { stream, kept, dropped } => {
                self.remark(Report::OutputTruncated { stream, kept, dropped })
            }
            UnitEvent::Exited { status } => self.tell_end(Report::Exited { status }),
            UnitEvent::Kept { client, is_written } => {
                let id = self.unit().job();
                self.client_commits.handle_written(id, &client, is_written, out);
                Vec::new()
            }
            UnitEvent::Failed(StartFailure { errnum, message }) => {
                vec![Report::Failed { errnum, message }]
            }
            UnitEvent::NeverStarted => vec![Report::NeverStarted],
            UnitEvent::Left => {
                self.troubles.push(Report::Left);
                if self.unit.is_unwanted() {
                    self.drain(out);
                }
                vec![Report::Left]
            }
            UnitEvent::LeftOver { processes } => self.name_left_over(processes),
            UnitEvent::Lost { message } => self.tell_end(Report::Lost { message }),
            UnitEvent::Gone => {
                self.left_over = None;
                self.take_rest()
            }
            UnitEvent::Usage(usage) => self.remark(Report::Usage(usage)),
            UnitEvent::Marked { .. } => Vec::new(), // a script's
            UnitEvent::Stopping => Vec::new(),      // the agent has seen to it
        }
    }

    fn take_output(
        &mut self,
        stream: Stream,
        offset: u64,
        data: &[u8],
        out: &mut Effects,
    ) -> Vec<Report> {
        if self.unit.is_unwanted() {
            let end = offset.saturating_add(data.len() as u64);
            self.unit.acknowledge(stream, end, 0, out);
            return Vec::new();
        }
        let everything = self.unit.has_ended();
        let output = &mut self.outputs[stream as usize];
        let rest = output.append(offset, data);
        rest.into_iter().chain(output.take(everything)).collect()
    }

    /// It writes nothing any more, and enters no barrier again.
    fn tell_end(&mut self, end: Report) -> Vec<Report> {
        let mut reports = self.take_rest();
        if self.entries.count_all() {
            reports.extend(self.entries.report());
        }
        reports.push(end);
        reports
    }

    /// What it has left behind cannot be ended; returns what to report.
    pub(super) fn set_unkillable(&mut self) -> Vec<Report> {
        self.remark(Report::Unkillable)
    }

    /// The processes that cannot be ended, as far as they were named.
    pub(super) fn left_over(&self) -> Option<&str> {
        self.left_over.as_deref()
    }

    fn name_left_over(&mut self, processes: String) -> Vec<Report> {
        let is_news = self.left_over.as_ref() != Some(&processes);
        self.left_over = Some(processes);
        if self.unit.is_unwanted() || !is_news {
            return Vec::new();
        }
        self.report_left_over().into_iter().collect()
    }

    fn report_left_over(&self) -> Option<Report> {
        self.left_over.clone().map(|processes| Report::LeftOver { processes })
    }

    /// Keeps what a new leader has to hear as well.
    fn remark(&mut self, report: Report) -> Vec<Report> {
        if self.unit.is_unwanted() || self.remarks.contains(&report) {
            return Vec::new();
        }
        self.remarks.push(report.clone());
        vec![report]
    }

    fn take_rest(&mut self) -> Vec<Report> {
        self.outputs.iter_mut().filter_map(|output| output.take(true)).collect()
    }

    /// The shell enters the barrier; returns what to report.
    pub(super) fn enter_barrier(
        &mut self,
        to: RequestId,
        entry: Option<BarrierEntry>,
        out: &mut Effects,
    ) -> Option<Report> {
        if self.unit.has_ended() || self.unit.is_waiting() {
            // What is kept for it now, nothing would take away.
            let message = format!("{} does not run", self.unit());
            out.barrier(to, Err(Fault::new(libc::ENOENT, message)));
            return None;
        }
        let is_news = self.entries.take(to, entry, out)?;
        let entered = self.entries.count();
        if let Some(clients) = self.entries.take_new_clients() {
            self.unit.keep(Note::BarrierClients(clients), out);
        }
        if is_news {
            self.unit.keep(Note::BarrierEntered(entered), out);
        }
        self.keep_passed(out);
        self.entries.report()
    }

    fn keep_passed(&mut self, out: &mut Effects) {
        if let Some(passed) = self.entries.take_new_passed() {
            self.unit.keep(Note::BarrierPassed(passed), out);
        }
    }

    /// A nested instance named its critical shells; returns what to report, if it is news.
    ///
    /// # Errors
    /// A text that is no set of the job's shells. A longer one than any such set is not read.
    pub(super) fn set_critical(
        &mut self,
        id: JobId,
        text: &str,
        out: &mut Effects,
    ) -> Result<Option<Report>, Fault> {
        let size = self.size;
        let refuse = |errnum, why: String| Fault::new(errnum, format!("{id}: ranks: {why}"));
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
        self.unit.keep(Note::CriticalRanks(ranks.clone()), out);
        self.critical = Some(ranks.clone());
        Ok(Some(Report::CriticalRanks { ranks }))
    }

    /// Obeys an order.
    pub(super) fn handle_order(&mut self, order: &Order, out: &mut Effects) {
        match order {
            &Order::Acknowledge { stream, offset, checkpointed } => {
                self.outputs[stream as usize].acknowledge(offset);
                self.unit.acknowledge(stream, offset, checkpointed, out);
            }
            &Order::Barrier { count, failed } => {
                self.entries.release(count, failed, out);
                self.keep_passed(out);
            }
            // About what comes before the shell, and behind it.
            Order::Conclude { .. } | Order::KillScripts | Order::Launch => (),
            Order::Forget => {
                self.unit.forget();
                if self.unit.may_live() {
                    // Nobody waits for its output any more; `Gone` must not either.
                    for stream in [Stream::Stdout, Stream::Stderr] {
                        self.unit.acknowledge(stream, u64::MAX, 0, out);
                    }
                }
            }
            Order::Signal { signal, all, reason } => {
                // Written before the signal is sent: then it is known whenever the shell has ended
                // of it.
                if let Some(reason) = reason {
                    self.keep_reason(reason, out);
                }
                self.unit.signal(*signal, *all, out);
            }
        }
    }

    /// A fatal exception of its job. A shell that has ended gets no signal for it, with which it would
    /// come: it may have raised it itself.
    pub(super) fn handle_exception(&mut self, exception: &JobException, out: &mut Effects) {
        if matches!(self.unit.seen(), Seen::Ended(_) | Seen::Gone(_)) {
            let reason = EndReason::new(&exception.kind, "", exception.wait_status);
            self.keep_reason(&reason, out);
        }
    }

    fn keep_reason(&mut self, reason: &EndReason, out: &mut Effects) {
        if self.reason.is_none() {
            self.unit.keep(Note::EndReason(reason.clone()), out);
            self.reason = Some(reason.clone());
        }
    }

    /// Everything that a new leader has to know, which has output up to `positions`. What has become
    /// of the shell is better understood when the reason is known, so that comes first.
    pub(super) fn tell_again(&mut self, positions: [u64; 2], out: &mut Effects) -> Vec<Report> {
        let mut reports: Vec<Report> =
            self.reason.clone().map(Report::EndReason).into_iter().collect();
        reports.push(match self.unit.seen() {
            Seen::Waiting | Seen::Pending => Report::Pending,
            Seen::NeverStarted => Report::NeverStarted,
            Seen::Failed(StartFailure { errnum, message }) => {
                Report::Failed { errnum: *errnum, message: message.clone() }
            }
            Seen::Ended(UnitEnd::Lost(message)) | Seen::Gone(Some(UnitEnd::Lost(message))) => {
                Report::Lost { message: message.clone() }
            }
            Seen::Running { .. } | Seen::Ended(_) | Seen::Gone(_) => Report::Running,
        });
        reports.extend(self.troubles.iter().cloned());
        reports.extend(self.entries.report());
        if let Some(ranks) = &self.critical {
            reports.push(Report::CriticalRanks { ranks: ranks.clone() });
        }
        let ended = self.unit.has_ended();
        for (stream, offset) in [Stream::Stdout, Stream::Stderr].into_iter().zip(positions) {
            self.outputs[stream as usize].rewind(offset);
            self.unit.acknowledge(stream, offset, 0, out);
            reports.extend(self.outputs[stream as usize].take(ended));
        }
        reports.extend(self.report_left_over());
        reports.extend(self.remarks.iter().cloned());
        if let Some(UnitEnd::Status(status)) = self.unit.end() {
            reports.push(Report::Exited { status: *status });
        }
        // The leader moves the namespace when all ranks are gone. So nothing may be missing then.
        self.client_commits.commit_again(self.unit().job(), ended, out);
        reports
    }

    /// How many bytes of commits are kept for it.
    pub(super) fn kept_bytes(&self) -> usize {
        self.client_commits.bytes()
    }

    /// A client of the job leaves commits. So many bytes are kept for other jobs of its user.
    ///
    /// # Errors
    /// If they cannot be kept.
    pub(super) fn keep_commits(
        &mut self,
        to: RequestId,
        bequest: &Arc<Bequest>,
        others: usize,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        self.client_commits.take(self.unit().job(), bequest, others)?;
        self.client_commits.wait(to, &bequest.client);
        self.unit.keep(Note::Commits(Arc::clone(bequest)), out);
        Ok(())
    }

    /// A client that leaves commits does not wait any more. Returns whether it did.
    pub(super) fn is_left_by(&mut self, request: RequestId) -> bool {
        self.client_commits.is_left_by(request)
    }

    fn keep_found(&mut self, bequest: &Arc<Bequest>) {
        // It was checked when it was written.
        let _ = self.client_commits.take(self.unit().job(), bequest, 0);
    }

    /// Commits were done again, or could not be. Returns whether they are tried once more.
    pub(super) fn handle_recommitted(
        &mut self,
        now: MonoTime,
        client: &str,
        is_done: bool,
    ) -> bool {
        self.client_commits.handle_recommitted(now, client, is_done)
    }

    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        self.client_commits.next_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: MonoTime, out: &mut Effects) {
        self.client_commits.handle_timeout(now, self.unit().job(), out);
    }

    /// The module is unloaded: clients in the barrier enter it again, and those that leave commits
    /// offer them again.
    pub(super) fn shut_down(&mut self, out: &mut Effects) {
        self.entries.shut_down(out);
        self.client_commits.shut_down(self.unit().job(), out);
    }
}

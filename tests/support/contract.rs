//! What every supervisor owes its agent, whichever way it starts shells
//! (`job_exec_rs::port::supervisor`).

use std::sync::Arc;

use job_exec_rs::port::Note;
use job_exec_rs::port::supervisor::{
    OUTPUT_CHUNK_BYTES, StartFailure, SupervisorEvent, UnitCommand, UnitEvent, UnitSpec,
};
use job_exec_rs::proto::{Bequest, EndReason, JobDigest, Stream, UnitName, WaitStatus};
use serde_json::json;

/// A client that leaves commits.
const CLIENT: &str = "0011223344556677";

/// How much `Program::Writes` writes to stdout, in bytes. It is more than one window.
pub const WRITTEN: usize = 3 * (1 << 20) + 17;

/// What a unit runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Program {
    /// It is there until it is ended, and a signal ends it.
    RunsOn,
    /// It writes so much, and ends well.
    Writes,
    /// It cannot be executed.
    Missing,
}

/// A supervisor that starts real or simulated programs, and is ready.
pub trait Subject {
    /// The specification of a job's unit.
    fn spec_of(&mut self, job: u64, program: Program) -> UnitSpec;

    fn submit(&mut self, unit: UnitName, command: UnitCommand);

    /// Waits for the next event.
    fn next(&mut self) -> SupervisorEvent;
}

/// Asks a supervisor all that it can be asked, and panics where it does not answer as it should.
pub fn check(subject: &mut dyn Subject) {
    let mut check = Check { subject };
    check.answers_for_what_it_does_not_know();
    check.starts_once_and_ends();
    check.keeps_what_somebody_waits_for();
    check.says_once_that_nothing_was_started();
    check.obeys_what_comes_before_the_start();
    check.tells_all_output();
    check.needs_no_reader();
}

struct Check<'a> {
    subject: &'a mut dyn Subject,
}

fn bequest() -> Arc<Bequest> {
    let commits = json!([{ "number": 1, "commit": { "flags": 0, "ops": [] } }]);
    let bequest = json!({ "client": CLIENT, "shell": false, "commits": commits });
    Arc::new(serde_json::from_value(bequest).expect("a bequest"))
}

impl Check<'_> {
    fn unit(&mut self, job: u64) -> UnitName {
        self.subject.spec_of(job, Program::RunsOn).unit
    }

    fn ask(&mut self, job: u64, command: UnitCommand) {
        let unit = self.unit(job);
        self.subject.submit(unit, command);
    }

    fn launch(&mut self, job: u64, program: Program) {
        let spec = self.subject.spec_of(job, program);
        self.subject.submit(spec.unit.clone(), UnitCommand::Launch(Box::new(spec)));
    }

    /// The next event, which is about this job.
    #[track_caller]
    fn next(&mut self, job: u64) -> UnitEvent {
        let unit = self.unit(job);
        loop {
            match self.subject.next() {
                // Not every method measures.
                SupervisorEvent::Unit(about, UnitEvent::Usage(_)) if about == unit => {}
                SupervisorEvent::Unit(about, event) if about == unit => return event,
                other => panic!("expected news of {unit}, got {other:?}"),
            }
        }
    }

    #[track_caller]
    fn started(&mut self, job: u64) -> u32 {
        match self.next(job) {
            UnitEvent::Started { pid } => pid,
            other => panic!("expected Started, got {other:?}"),
        }
    }

    #[track_caller]
    fn failed(&mut self, job: u64) -> i32 {
        match self.next(job) {
            UnitEvent::Failed(StartFailure { errnum, message }) => {
                assert!(!message.is_empty());
                errnum
            }
            other => panic!("expected Failed, got {other:?}"),
        }
    }

    /// Nothing more is reported than was expected: the answer to this is the next event.
    #[track_caller]
    fn silent(&mut self) {
        self.ask(9, UnitCommand::Collect);
        assert_eq!(self.next(9), UnitEvent::Gone);
    }

    #[track_caller]
    fn ends(&mut self, job: u64, status: WaitStatus) {
        assert_eq!(self.next(job), UnitEvent::Exited { status });
        assert_eq!(self.next(job), UnitEvent::Gone);
    }

    #[track_caller]
    fn keeps(&mut self, job: u64, is_written: bool) {
        self.ask(job, UnitCommand::Note(Note::Degraded("no scratch".to_string())));
        assert_eq!(self.next(job), UnitEvent::Marked { is_written });
        self.ask(job, UnitCommand::Note(Note::Commits(bequest())));
        assert_eq!(self.next(job), UnitEvent::Kept { client: CLIENT.to_string(), is_written });
    }

    fn answers_for_what_it_does_not_know(&mut self) {
        self.ask(1, UnitCommand::Signal { signal: libc::SIGTERM, all: true });
        self.ask(1, UnitCommand::Note(Note::BarrierEntered(1)));
        self.ask(1, UnitCommand::OutputAck { stream: Stream::Stdout, offset: 1, checkpointed: 0 });
        self.ask(1, UnitCommand::Forget);
        self.silent();
        self.keeps(1, false);
        for _ in 0..2 {
            self.ask(1, UnitCommand::Collect);
            assert_eq!(self.next(1), UnitEvent::Gone);
        }
    }

    fn starts_once_and_ends(&mut self) {
        for _ in 0..2 {
            self.launch(1, Program::RunsOn);
            let pid = self.started(1);
            self.launch(1, Program::RunsOn);
            assert_eq!(self.started(1), pid, "it is adopted");
            let mut of_another = self.subject.spec_of(1, Program::RunsOn);
            of_another.digest = JobDigest::from("another");
            let launch = UnitCommand::Launch(Box::new(of_another));
            self.ask(1, launch);
            assert_eq!(self.failed(1), libc::EEXIST);
            self.ask(1, UnitCommand::Signal { signal: libc::SIGKILL, all: true });
            self.ends(1, WaitStatus::signaled(libc::SIGKILL));
            self.ask(1, UnitCommand::Collect);
            self.silent();
            self.launch(1, Program::RunsOn);
            assert_eq!(self.failed(1), libc::EEXIST, "it was not forgotten");
            self.ask(1, UnitCommand::Forget);
            self.ask(1, UnitCommand::Collect);
            assert_eq!(self.next(1), UnitEvent::Gone, "it is not known");
        }
    }

    fn keeps_what_somebody_waits_for(&mut self) {
        self.launch(2, Program::RunsOn);
        self.started(2);
        self.ask(2, UnitCommand::Note(Note::BarrierEntered(1)));
        self.ask(2, UnitCommand::Note(Note::EndReason(EndReason::new("exec", "", None))));
        self.ask(2, UnitCommand::Note(Note::GivenBack));
        self.silent();
        self.keeps(2, true);
        self.ask(2, UnitCommand::Collect);
        self.ends(2, WaitStatus::signaled(libc::SIGTERM));
        self.keeps(2, true);
        self.ask(2, UnitCommand::Forget);
        self.keeps(2, false);
    }

    fn says_once_that_nothing_was_started(&mut self) {
        for _ in 0..2 {
            self.launch(3, Program::Missing);
            assert_ne!(self.failed(3), libc::EEXIST);
            self.ask(3, UnitCommand::Collect);
            self.silent();
        }
        self.ask(3, UnitCommand::Forget);
        self.launch(3, Program::Missing);
        self.ask(3, UnitCommand::Collect);
        self.failed(3);
        self.silent();
        self.ask(3, UnitCommand::Forget);
    }

    fn obeys_what_comes_before_the_start(&mut self) {
        self.launch(4, Program::RunsOn);
        self.ask(4, UnitCommand::Signal { signal: libc::SIGKILL, all: false });
        self.started(4);
        self.ends(4, WaitStatus::signaled(libc::SIGKILL));
        self.ask(4, UnitCommand::Forget);
        self.launch(4, Program::RunsOn);
        self.ask(4, UnitCommand::Collect);
        self.started(4);
        self.ends(4, WaitStatus::signaled(libc::SIGTERM));
        self.ask(4, UnitCommand::Forget);
    }

    /// Acknowledges each piece.
    fn tells_all_output(&mut self) {
        self.launch(5, Program::Writes);
        self.started(5);
        let (mut end, mut has_exited) = (0, false);
        loop {
            match self.next(5) {
                UnitEvent::Output { stream: Stream::Stdout, offset, data } => {
                    assert_eq!(offset, end, "without gap or overlap");
                    assert!((1..=OUTPUT_CHUNK_BYTES).contains(&data.len()), "{}", data.len());
                    end += data.len() as u64;
                    let (stream, offset) = (Stream::Stdout, end);
                    self.ask(5, UnitCommand::OutputAck { stream, offset, checkpointed: 0 });
                }
                UnitEvent::Exited { status } if !has_exited => {
                    assert_eq!(status, WaitStatus(0));
                    has_exited = true;
                }
                UnitEvent::Gone if has_exited => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(end, WRITTEN as u64, "Gone waits for all");
        self.ask(5, UnitCommand::Forget);
        self.silent();
    }

    fn needs_no_reader(&mut self) {
        self.launch(6, Program::Writes);
        for stream in [Stream::Stdout, Stream::Stderr] {
            let offset = u64::MAX;
            self.ask(6, UnitCommand::OutputAck { stream, offset, checkpointed: 0 });
        }
        self.started(6);
        let mut seen = Vec::new();
        while seen.last() != Some(&UnitEvent::Gone) {
            seen.extend(Some(self.next(6)).filter(|it| !matches!(it, UnitEvent::Output { .. })));
        }
        assert_eq!(seen, [UnitEvent::Exited { status: WaitStatus(0) }, UnitEvent::Gone]);
        self.ask(6, UnitCommand::Forget);
    }
}

//! The supervisor's real core on a disk that fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use job_exec_rs::port::Note;
use job_exec_rs::port::supervisor::{
    Limits, MANAGER_ENDED, ManagerId, Method, StartFailure, Started, SupervisorEvent, UnitCommand,
    UnitEvent, UnitRecord, UnitSpec,
};
use job_exec_rs::proto::{BrokerRank, InstanceId, JobId, Stream, UnitName, Usage, WaitStatus};
use job_exec_rs::supervisor::{Backend, BackendEvent, Core, Grown, OutputPaths, UnrecordedUnit};
use rand::SeedableRng;
use serde_json::{Value, json};

use super::*;
use crate::sample;

const BOOT: &str = "this boot";

fn instance() -> InstanceId {
    InstanceId::new("/test", 1)
}

fn unit(job: u64) -> UnitName {
    UnitName::new(false, BrokerRank(0), JobId(job), instance())
}

fn record(job: u64) -> String {
    format!("{}.record", unit(job).stem())
}

fn spec(job: u64) -> Box<UnitSpec> {
    Box::new(sample::spec(unit(job)))
}

fn started(job: u64) -> BackendEvent {
    let started = Started { pid: 5, invocation_id: "ab".repeat(16) };
    BackendEvent::Started { unit: unit(job), started }
}

fn exited(job: u64) -> BackendEvent {
    BackendEvent::Exited { unit: unit(job), status: WaitStatus::exited(3) }
}

fn note(count: u32) -> UnitCommand {
    UnitCommand::Note(Note::BarrierEntered(count))
}

/// The calls of the core to its backend.
#[derive(Debug, Default)]
struct Asked {
    starts: Vec<UnitName>,
    finds: Vec<UnitName>,
    collects: Vec<UnitName>,
    holds: Vec<UnitName>,
    spared: Vec<UnitName>,
    /// What units have used.
    usage: BTreeMap<UnitName, Usage>,
    dropped: Vec<UnitName>,
    /// When the user manager began.
    manager: Option<u64>,
}

impl Backend for Asked {
    fn method(&self) -> Method {
        Method::Systemd
    }

    fn manager(&self) -> Option<ManagerId> {
        self.manager.map(ManagerId)
    }

    fn start(&mut self, spec: &UnitSpec, output: &OutputPaths) {
        assert!(output.stdout.starts_with(DIRECTORY));
        self.starts.push(spec.unit.clone());
    }

    fn find(&mut self, unit: &UnitName, _digest: &str, _known: Option<&Started>) {
        self.finds.push(unit.clone());
    }

    fn signal(&mut self, _unit: &UnitName, _signal: i32, _all: bool) {}

    fn collect(&mut self, unit: &UnitName) {
        self.collects.push(unit.clone());
    }

    fn hold(&mut self, unit: &UnitName) {
        self.holds.push(unit.clone());
    }

    fn forget(&mut self, _unit: &UnitName) {}

    fn usage(&mut self, spec: &UnitSpec) -> Option<Usage> {
        self.usage.get(&spec.unit).cloned()
    }

    fn drop_usage(&mut self, unit: &UnitName) {
        self.dropped.push(unit.clone());
    }

    fn spare(&mut self, unit: &UnitName) {
        self.spared.push(unit.clone());
    }
}

/// One life of a module.
struct Life {
    core: Core,
    asked: Asked,
    events: Arc<Mutex<Vec<SupervisorEvent>>>,
}

impl Life {
    fn unlisted(disk: &SimDisk, boot_id: &str) -> Self {
        disk.begin_life();
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let sink = Box::new(move |event| sink.lock().unwrap().push(event));
        let mut core =
            Core::new(Arc::new(disk.clone()), boot_id.to_string(), Limits::default(), sink);
        let mut asked = Asked::default();
        core.recover(BrokerRank(0), &instance(), &mut asked).unwrap();
        Self { core, asked, events }
    }

    /// A life that was told that systemd has no other units.
    fn new(disk: &SimDisk, boot_id: &str) -> Self {
        let mut life = Self::unlisted(disk, boot_id);
        assert!(!life.core.is_settled());
        life.event(BackendEvent::Listed);
        assert!(life.core.is_settled());
        life
    }

    fn command(&mut self, unit: UnitName, command: UnitCommand) {
        self.core.handle_command(&unit, command, &mut self.asked);
    }

    fn event(&mut self, event: BackendEvent) {
        self.core.handle_event(event, &mut self.asked);
    }

    fn launch(&mut self, job: u64) {
        self.command(unit(job), UnitCommand::Launch(spec(job)));
    }

    fn take(&self) -> Vec<SupervisorEvent> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    /// The errno and text of a launch that was refused.
    fn failure(&self) -> (i32, String) {
        match self.take().as_slice() {
            [
                SupervisorEvent::Unit(_, UnitEvent::Failed(StartFailure { errnum, message })),
                // A `DiskFails`, unless the disk is not why.
                ..,
            ] => (*errnum, message.clone()),
            other => panic!("expected one failure: {other:?}"),
        }
    }
}

/// The facts in a record, in their order.
fn facts(disk: &SimDisk, job: u64) -> Vec<Value> {
    let text = String::from_utf8(disk.contents(&record(job)).unwrap()).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn no_space_for_the_intent_starts_nothing_and_leaves_nothing() {
    for room in [0, 1, 100] {
        let disk = SimDisk::default();
        let mut life = Life::new(&disk, BOOT);
        disk.set_room(Some(room));
        life.launch(1);
        let (errnum, message) = life.failure();
        assert_eq!(errnum, libc::ENOSPC);
        assert!(message.contains("/state/shell-0-") && message.contains("No space"), "{message}");
        assert_eq!(disk.files(), Vec::<String>::new());
        disk.set_full(false);
        life.launch(1);
        assert_eq!(life.take(), []);
        assert_eq!(life.asked.starts, [unit(1)], "only the second one");
    }
}

#[test]
fn no_space_for_another_intent_keeps_the_one_that_is_there() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    // The start failed, but systemd may have the unit.
    life.event(BackendEvent::Failed { unit: unit(1), errnum: 5, message: "late".to_string() });
    life.take();
    let files = disk.files();
    for room in [0, 1, 100] {
        disk.set_room(Some(room));
        life.launch(1);
        assert_eq!(life.failure().0, libc::ENOSPC);
        assert_eq!(disk.files(), files);
        assert_eq!(Life::new(&disk, BOOT).asked.finds, [unit(1)], "it is looked for");
    }
}

#[test]
fn a_crash_while_another_intent_is_written_keeps_one() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(BackendEvent::Failed { unit: unit(1), errnum: 5, message: "late".to_string() });
    let files = disk.files();
    // The crash is in the first change (the file is made), the second (it is written) or the third
    // (it is renamed).
    for (after, bytes) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 100), (1, 9999), (2, 0), (2, 1)] {
        let mut life = Life::new(&disk, BOOT);
        life.event(BackendEvent::Absent(unit(1)));
        disk.crash_in_write(after, bytes);
        life.launch(1);
        assert!(disk.is_dead());
        assert_eq!(life.asked.starts, []);
        assert_eq!(Life::new(&disk, BOOT).asked.finds, [unit(1)]);
        assert_eq!(disk.files(), files, "nothing is left over");
    }
}

/// [intent-whole] (seed 820092889): a crash leaves another intent half written, and the disk does not
/// let it go in the next life.
#[test]
fn half_of_another_intent_is_removed_when_the_disk_lets_it_go() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    let files = disk.files();
    life.event(BackendEvent::Failed { unit: unit(1), errnum: 5, message: "late".to_string() });
    disk.crash_in_write(1, 5);
    life.launch(1);
    disk.fail_changes(Some(libc::EMFILE));
    let mut life = Life::new(&disk, BOOT);
    assert_ne!(disk.files(), files);
    disk.fail_changes(None);
    life.core.retry_late(&mut life.asked);
    assert_eq!(disk.files(), files);
}

#[test]
fn facts_that_find_no_space_are_written_later() {
    for room in [0, 1, 10, 30, 100] {
        let disk = SimDisk::without_reserves();
        let mut life = Life::new(&disk, BOOT);
        life.launch(1);
        disk.set_room(Some(room));
        life.event(started(1));
        for value in 1..9 {
            life.command(unit(1), note(value));
        }
        life.event(exited(1));
        life.command(unit(1), UnitCommand::Collect);
        life.event(BackendEvent::Empty(unit(1)));
        let told = life.take();
        assert!(
            matches!(
                told.as_slice(),
                [
                    SupervisorEvent::Unit(_, UnitEvent::Started { .. }),
                    SupervisorEvent::Unit(_, UnitEvent::Exited { .. }),
                    SupervisorEvent::Unit(_, UnitEvent::Gone)
                ]
            ),
            "what is true is told: {told:?}"
        );
        disk.set_full(false);
        life.core.handle_growth(&Grown::Any, &mut life.asked);
        let written = facts(&disk, 1);
        for fact in [json!({"exited": 768}), json!({"gone": true})] {
            assert!(written.contains(&fact), "{fact} in {written:?}");
        }
        let notes: Vec<&Value> = written.iter().filter_map(|fact| fact.get("note")).collect();
        assert_eq!(notes.last().map(|note| &note["value"]), Some(&json!(8)));
        let mut next = Life::new(&disk, BOOT);
        next.command(unit(1), UnitCommand::Collect);
        let found = next.take();
        let [
            SupervisorEvent::Found(record),
            SupervisorEvent::Unit(_, UnitEvent::Exited { .. }),
            SupervisorEvent::Unit(_, UnitEvent::Gone),
        ] = found.as_slice()
        else {
            panic!("{found:?}");
        };
        assert_eq!(record.started.as_ref().map(|started| started.pid), Some(5));
    }
}

/// [facts-room]
#[test]
fn a_full_disk_takes_the_facts_that_decide() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    disk.set_full(true);
    life.event(started(1));
    life.command(unit(1), note(2));
    life.event(exited(1));
    let written = facts(&disk, 1);
    assert_eq!(written[1]["note"]["value"], json!(2));
    assert_eq!(written[2], json!({"exited": 768}));
    assert_eq!(disk.counts().full, 0);
}

#[test]
fn a_shell_that_has_left_its_unit_is_told_in_each_life() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    for event in [started(1), BackendEvent::Left(unit(1))] {
        life.event(event);
    }
    let left = UnitEvent::Left.of(&unit(1));
    assert_eq!(life.take()[1], left);
    assert!(facts(&disk, 1).contains(&json!({"left": true})));
    life.event(BackendEvent::Left(unit(1)));
    assert_eq!(life.take(), []);
    // The unit is found again while it runs, after its exit, and when it is gone.
    let mut last = [exited(1), BackendEvent::Empty(unit(1))].into_iter();
    for _ in 0..3 {
        let mut next = Life::new(&disk, BOOT);
        let found = next.take();
        assert!(matches!(&found[0], SupervisorEvent::Found(record) if record.left), "{found:?}");
        assert_eq!(found[1], left);
        next.event(started(1));
        next.command(unit(1), UnitCommand::Collect);
        last.next().into_iter().for_each(|event| next.event(event));
    }
}

/// [left-named]
#[test]
fn what_a_signal_has_not_ended_is_told_of_a_shell_that_lives() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    let processes = "pid 5 (user 0, \"sleep\")".to_string();
    let named = |unit| BackendEvent::LeftOver { unit, processes: processes.clone() };
    life.launch(1);
    life.event(named(unit(1)));
    assert_eq!(life.take(), [], "it has not started");
    life.event(started(1));
    life.event(named(unit(1)));
    life.event(exited(1));
    life.event(named(unit(1)));
    let told = UnitEvent::LeftOver { processes: processes.clone() }.of(&unit(1));
    let events = life.take();
    assert_eq!([&events[1], &events[3]], [&told, &told], "{events:?}");
    life.event(BackendEvent::Empty(unit(1)));
    life.event(named(unit(1)));
    assert!(!life.take().contains(&told), "nothing is left");
}

#[test]
fn one_file_that_cannot_be_written_does_not_keep_others_from_it() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    let jobs = 1..6;
    for job in jobs.clone() {
        life.launch(job);
        life.event(started(job));
    }
    disk.set_full(true);
    for job in jobs.clone() {
        life.event(exited(job));
    }
    disk.set_full(false);
    disk.break_file(&record(1));
    for _ in jobs.clone() {
        life.core.handle_growth(&Grown::Any, &mut life.asked);
    }
    for job in jobs.skip(1) {
        assert_eq!(facts(&disk, job).last(), Some(&json!({"exited": 768})), "{job}");
    }
    assert!(life.core.is_late() && !facts(&disk, 1).contains(&json!({"exited": 768})));
}

/// [record-newer]
#[test]
fn a_record_of_a_later_release_is_told_and_left_alone() {
    let disk = SimDisk::default();
    disk.create(&record(1), IfExists::Fail, 0).unwrap();
    let later = b"{\"version\":2}\n{\"of-a-later-release\":1}\n";
    disk.append(&record(1), later).unwrap();
    let mut life = Life::new(&disk, BOOT);
    let message = format!(
        "cannot read the record {}: its format has version 2, this release knows version 1",
        disk.path(&record(1)).display()
    );
    assert_eq!(life.take(), [SupervisorEvent::Unreadable { unit: unit(1), message }]);
    assert_eq!(life.asked.spared, [unit(1)]);
    // Nothing is started under its name, and nothing ends its unit.
    life.launch(1);
    assert_eq!(life.failure().0, libc::EEXIST);
    life.command(unit(1), UnitCommand::Signal { signal: libc::SIGKILL, all: true });
    life.command(unit(1), UnitCommand::Collect);
    assert!(life.asked.starts.is_empty() && life.asked.collects.is_empty());
    assert_eq!(disk.contents(&record(1)).as_deref(), Some(&later[..]));
}

#[test]
fn forgotten_units_have_nothing_to_write() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    disk.set_full(true);
    life.event(exited(1));
    disk.set_full(false);
    life.command(unit(1), UnitCommand::Forget);
    life.core.handle_growth(&Grown::Any, &mut life.asked);
    assert_eq!(disk.files(), Vec::<String>::new());
}

#[test]
fn a_crash_anywhere_in_a_launch_starts_nothing() {
    let intent = {
        let disk = SimDisk::default();
        Life::new(&disk, BOOT).launch(1);
        disk.contents(&record(1)).unwrap().len()
    };
    // Change 0 makes the record, change 1 writes it, changes 2 and 3 make the output files.
    let made = [(0, 0), (0, 1), (2, 0), (2, 1), (3, 0), (3, 1)];
    for (after, bytes) in made.into_iter().chain((0..=intent).map(|bytes| (1, bytes))) {
        let disk = SimDisk::default();
        let mut life = Life::new(&disk, BOOT);
        disk.crash_in_write(after, bytes);
        life.launch(1);
        assert!(disk.is_dead());
        assert_eq!(life.asked.starts, []);
        let mut next = Life::new(&disk, BOOT);
        if after > 1 || bytes == intent {
            assert_eq!(next.asked.finds, [unit(1)], "the intent is there");
            next.event(BackendEvent::Absent(unit(1)));
        } else {
            assert_eq!((next.asked.finds.len(), disk.files().len()), (0, 0), "nothing is there");
        }
        next.launch(1);
        assert_eq!(next.asked.starts, [unit(1)], "after {bytes} bytes of change {after}");
    }
}

#[test]
fn no_space_for_output_files_starts_nothing_and_leaves_nothing() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    let intent = disk.contents(&record(1)).unwrap().len();
    disk.set_room(Some(intent as u64));
    life.launch(2);
    let (errnum, message) = life.failure();
    assert!(errnum == libc::ENOSPC && message.contains("output file"), "{message}");
    assert_eq!(life.asked.starts, [unit(1)]);
    assert!(disk.files().iter().all(|name| name.starts_with(&unit(1).stem())));
}

#[test]
fn a_crash_anywhere_in_a_fact_loses_no_other() {
    let whole = br#"{"exited":768}"#.len() + 1;
    for bytes in 0..=whole {
        let disk = SimDisk::default();
        let mut life = Life::new(&disk, BOOT);
        life.launch(1);
        life.event(started(1));
        disk.crash_in_write(0, bytes);
        life.event(exited(1));
        assert!(disk.is_dead());

        let mut next = Life::new(&disk, BOOT);
        next.event(started(1));
        next.event(exited(1));
        next.command(unit(1), note(7));
        let found = Life::new(&disk, BOOT).take();
        let [
            SupervisorEvent::Found(record),
            SupervisorEvent::Unit(_, UnitEvent::Exited { status }),
        ] = found.as_slice()
        else {
            panic!("after {bytes} bytes: {found:?}");
        };
        assert_eq!(*status, WaitStatus::exited(3));
        assert!(record.started.is_some());
        assert_eq!(record.notes["barrier-entered"].text(), "7");
    }
}

#[test]
fn after_a_crash_of_the_node_what_is_left_is_lost_or_left_alone() {
    for seed in 0..300 {
        let disk = SimDisk::default();
        let mut life = Life::new(&disk, BOOT);
        for job in 1..4 {
            life.launch(job);
            life.event(started(job));
            life.command(unit(job), note(1));
            let out = disk.path(&format!("{}.out", unit(job).stem()));
            assert_eq!(disk.write_output(&out, b"output"), 6);
        }
        disk.lose_unsynced(&mut ChaCha8Rng::seed_from_u64(seed));
        let files = disk.files();

        let mut next = Life::new(&disk, "next boot");
        assert_eq!(next.asked.finds, [], "no process can be left");
        let told = next.take();
        for job in 1..4 {
            let is_about = |event: &&SupervisorEvent| match event {
                SupervisorEvent::Found(record) => record.spec.unit == unit(job),
                SupervisorEvent::Unit(about, _) => *about == unit(job),
                _ => false,
            };
            let about: Vec<&SupervisorEvent> = told.iter().filter(is_about).collect();
            match about.as_slice() {
                [
                    SupervisorEvent::Found(_),
                    SupervisorEvent::Unit(_, UnitEvent::Lost { message }),
                ] => {
                    assert!(message.contains("rebooted"));
                }
                [] => left_out(&disk, &files, &mut next, job),
                other => panic!("seed {seed}: {other:?}"),
            }
            let acks = [Stream::Stdout, Stream::Stderr];
            for stream in acks {
                let offset = u64::MAX;
                next.command(unit(job), UnitCommand::OutputAck { stream, offset, checkpointed: 0 });
            }
            next.command(unit(job), UnitCommand::Forget);
        }
        assert_eq!(disk.files(), Vec::<String>::new(), "what was forgotten is away");
    }
}

/// Checks a record that was not reported. Either it is gone, or was removed because it had no
/// intent. Or it has zeros: it may be the record of a shell that has run, so its name stays taken.
fn left_out(disk: &SimDisk, before: &[String], life: &mut Life, job: u64) {
    match disk.contents(&record(job)) {
        None => {}
        Some(bytes) => {
            assert!(bytes.contains(&0) && before.contains(&record(job)), "{bytes:?}");
            life.launch(job);
            assert_eq!(life.failure().0, libc::EEXIST);
        }
    }
}

#[test]
fn what_a_crash_of_the_node_left_as_zeros_is_no_record() {
    for zeros in [1, 300] {
        let disk = SimDisk::default();
        disk.create(&record(1), IfExists::Fail, 0).unwrap();
        disk.append(&record(1), b"{\"version\":1").unwrap();
        disk.append(&record(1), &vec![0; zeros]).unwrap();
        let mut life = Life::new(&disk, "next boot");
        assert_eq!(disk.files(), Vec::<String>::new());
        life.launch(1);
        assert_eq!(life.asked.starts, [unit(1)]);
    }
}

/// The name of a job's file with output.
fn output(job: u64) -> String {
    format!("{}.out", unit(job).stem())
}

/// A call of an earlier life can reach systemd after the list.
#[test]
fn a_start_that_meets_a_unit_asks_whose_it_is() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(BackendEvent::Exists(unit(1)));
    assert_eq!((life.take().len(), life.asked.finds.as_slice()), (0, [unit(1)].as_slice()));
    life.event(BackendEvent::Replaced(unit(1)));
    assert_eq!(life.failure().0, libc::EEXIST);
}

#[test]
fn output_without_a_record_is_removed() {
    let disk = SimDisk::default();
    for extension in ["out", "err"] {
        let name = record(1).replace("record", extension);
        disk.create(&name, IfExists::Fail, 0).unwrap();
    }
    Life::new(&disk, "next boot");
    assert_eq!(disk.files(), Vec::<String>::new());
}

/// [status-first].
#[test]
fn a_unit_that_exits_is_collected_without_a_command() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    assert_eq!(life.asked.collects, []);
    life.event(exited(1));
    assert_eq!(life.asked.collects, [unit(1)]);
    life.event(BackendEvent::Empty(unit(1)));
    life.command(unit(1), UnitCommand::Collect);
    assert_eq!(life.asked.collects.len(), 1);
    let gone = life
        .take()
        .iter()
        .filter(|e| matches!(e, SupervisorEvent::Unit(_, UnitEvent::Gone)))
        .count();
    assert_eq!(gone, 1);
}

/// [record-torn].
#[test]
fn a_fact_after_a_torn_line_that_finds_no_space_leaves_no_other_torn_line() {
    let disk = SimDisk::without_reserves();
    Life::new(&disk, BOOT).launch(1);
    disk.append(&record(1), b"{\"note\":{\"key\":\"torn").unwrap();
    let mut life = Life::new(&disk, BOOT);
    life.command(unit(1), note(1));
    disk.set_room(Some(5));
    life.command(unit(1), note(2));
    disk.set_full(false);
    life.core.write_late(&mut life.asked);
    let values: Vec<Value> =
        facts(&disk, 1).iter().map(|fact| fact["note"]["value"].clone()).collect();
    assert_eq!(values, [1, 2]);
}

mod emptied;
mod failing;
mod measured;
mod swept;
mod unrecorded;
mod unseen;

//! Prologs and epilogs: what comes before the shells, and behind them.

use serde_json::json;

use super::{JOB, World, start, start_event};
use crate::config::{Config, PerilogConfig, ScriptConfig};
use crate::machine::mono_time::MonoTime;
use crate::machine::{Event, Now};
use crate::port::supervisor::{StartFailure, UnitEvent, UnitRecord};
use crate::proto::peer::Mode;
use crate::proto::{
    Exception, Idset, PerilogRelease, Response, Stage, Stream, UnitName, WaitStatus, WallTime,
};

const FAILED: WaitStatus = WaitStatus(1 << 8);
pub(super) const DONE: WaitStatus = WaitStatus(0);

fn script(name: &str) -> ScriptConfig {
    ScriptConfig {
        command: vec![format!("/etc/{name}")],
        under_imp: false,
        timeout: (name == "prolog").then_some(100.0),
        kill_timeout: 10.0,
        per_rank: true,
        cancel_on_exception: name == "prolog",
    }
}

pub(super) fn perilog() -> PerilogConfig {
    PerilogConfig {
        prolog: Some(script("prolog")),
        epilog: Some(script("epilog")),
        ..PerilogConfig::default()
    }
}

pub(super) fn world(size: usize, perilog: PerilogConfig) -> World {
    World::with(size, Config { fanout: 2, perilog: Some(perilog), ..Config::default() })
}

/// A job on all ranks whose prologs run.
pub(super) fn preparing(size: usize, perilog: PerilogConfig) -> World {
    prepared(world(size, perilog), size)
}

pub(super) fn prepared(mut world: World, size: usize) -> World {
    let ranks: Idset = (0..size as u32).collect();
    world.start(&ranks.to_string(), false);
    (0..size).for_each(|rank| world.script_started(rank, Stage::Prolog));
    world
}

/// A job on all ranks whose shells run.
pub(super) fn running(size: usize, perilog: PerilogConfig) -> World {
    run(preparing(size, perilog), size)
}

pub(super) fn run(mut world: World, size: usize) -> World {
    (0..size).for_each(|rank| world.script_exited(rank, Stage::Prolog, DONE));
    world.pass(0.05);
    world.all_started(0..size);
    for _ in 0..2 {
        for rank in 0..size {
            world.enter_barrier(rank);
        }
        world.pass(0.1);
    }
    world.responses.clear();
    world
}

impl World {
    pub(super) fn unit_of_stage(&self, rank: usize, stage: Stage) -> UnitName {
        self.unit_of(rank).of_stage(stage, false)
    }

    pub(super) fn script_started(&mut self, rank: usize, stage: Stage) {
        let unit = self.unit_of_stage(rank, stage);
        assert!(self.disks[rank].records.contains_key(&unit), "{unit} was not asked for");
        self.report(rank, &unit, UnitEvent::Started { pid: 7 });
    }

    pub(super) fn script_exited(&mut self, rank: usize, stage: Stage, status: WaitStatus) {
        let unit = self.unit_of_stage(rank, stage);
        let record = self.disks[rank].records.get_mut(&unit).expect("it was asked for");
        record.exited = Some(status);
        self.disks[rank].dead.push(unit.clone());
        self.report(rank, &unit, UnitEvent::Exited { status });
    }

    /// The supervisor has looked at the unit of a record, which was started.
    pub(super) fn look_at_unit(&mut self, rank: usize, record: &UnitRecord) {
        let (unit, exited) = (record.spec.unit.clone(), record.exited);
        if record.left {
            self.report(rank, &unit, UnitEvent::Left);
        }
        let started = UnitEvent::Started { pid: 100 }.of(&unit);
        self.happen(rank, Event::Supervisor(started));
        if let Some(status) = exited {
            self.report(rank, &unit, UnitEvent::Exited { status });
        }
    }

    /// Units that were asked for and are not forgotten, without the instance.
    pub(super) fn units(&self) -> Vec<String> {
        let records = self.disks.iter().flat_map(|disk| disk.records.keys());
        let name = |unit: &UnitName| format!("{}-{}", unit.stage().name(), unit.rank());
        records.map(name).collect()
    }

    pub(super) fn exceptions(&self) -> Vec<(i32, String)> {
        let exception = |response: &Response| match response {
            Response::Exception(Exception { severity, kind, note }) => {
                Some((*severity, format!("{kind}: {note}")))
            }
            _ => None,
        };
        self.responses.iter().filter_map(exception).collect()
    }

    /// The administrator does not want the job to wait for scripts any more.
    pub(super) fn ask_for_release(&mut self) {
        let release = PerilogRelease { id: JOB, ranks: None, drain: false, kill: false };
        let request = self.request();
        self.happen(0, Event::PerilogRelease { request, release });
    }

    /// The same, and the job is over then.
    fn release_scripts(&mut self) {
        self.ask_for_release();
        self.pass(1.0);
        assert!(self.is_released());
    }

    pub(super) fn is_released(&self) -> bool {
        self.released().iter().any(|(_, is_final)| *is_final)
    }
}

#[test]
fn no_shell_is_started_before_all_prologs_have_ended_well() {
    let mut world = preparing(4, perilog());
    let prologs = ["prolog-0", "prolog-1", "prolog-2", "prolog-3"];
    assert_eq!(world.units(), prologs);
    for rank in [2, 0, 3] {
        world.script_exited(rank, Stage::Prolog, DONE);
        world.pass(1.0);
    }
    assert_eq!(world.units(), prologs);
    assert_eq!(world.responses, []);
    world.script_exited(1, Stage::Prolog, DONE);
    world.pass(0.05);
    assert_eq!(world.units().iter().filter(|unit| unit.starts_with("shell")).count(), 4);
    world.all_started(0..4);
    assert_eq!(world.responses, [Response::Start {}]);
}

#[test]
fn a_rank_is_released_when_its_epilog_has_ended() {
    let mut world = running(3, perilog());
    for rank in 0..3 {
        world.exited(rank, DONE);
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(DONE), "the result does not wait for epilogs");
    assert_eq!(world.released(), []);
    for rank in [1, 0] {
        world.script_started(rank, Stage::Epilog);
        world.script_exited(rank, Stage::Epilog, DONE);
        world.pass(1.0);
    }
    let parts = [("1".to_string(), false), ("0".to_string(), false)];
    assert_eq!(world.released(), parts);
    // Nothing ends what is left of a job that has been over for long.
    world.pass(1e5);
    assert_eq!((world.released(), world.drained.len()), (parts.to_vec(), 0));
    world.script_exited(2, Stage::Epilog, DONE);
    assert_eq!(world.exceptions(), []);
    world.assert_ended();
}

/// No job's eventlog has it, so the log is the only place to say it.
#[test]
fn output_of_a_script_that_is_missing_is_said_in_the_log() {
    let mut world = preparing(1, perilog());
    let unit = world.unit_of_stage(0, Stage::Prolog);
    world.report(0, &unit, UnitEvent::OutputLost { message: "gone".to_string() });
    let (stream, kept, dropped) = (Stream::Stdout, 10, 5);
    world.report(0, &unit, UnitEvent::OutputTruncated { stream, kept, dropped });
    let said = ["may be missing: gone", "was cut off: 5 bytes more"];
    assert_eq!(world.warnings, said.map(|what| format!("{JOB}: output of its prolog {what}")));
}

#[test]
fn a_prolog_that_fails_drains_its_node_and_fails_the_job() {
    let mut world = preparing(3, perilog());
    world.script_exited(1, Stage::Prolog, FAILED);
    world.script_exited(0, Stage::Prolog, DONE);
    world.pass(1.0);
    assert_eq!(world.exceptions(), [], "the others are waited for");
    world.script_exited(2, Stage::Prolog, WaitStatus::signaled(9));
    world.pass(1.0);
    let note = "prolog: prolog exited with code=1 on n[1-2] (rank 1-2)".to_string();
    assert_eq!(world.exceptions(), [(0, note)]);
    assert_eq!(world.drained, [format!("1-2 prolog failed for job {JOB}")]);
    assert!(!world.is_released(), "epilogs follow");
    for rank in 0..3 {
        world.script_exited(rank, Stage::Epilog, DONE);
    }
    world.pass(1.0);
    assert_eq!(world.status(), None, "no shell was started");
    assert!(world.units().is_empty());
    world.assert_ended();
}

#[test]
fn a_job_that_is_canceled_has_its_prologs_end_and_drains_nobody() {
    let mut world = preparing(2, perilog());
    world.script_exited(0, Stage::Prolog, DONE);
    world.cancel();
    world.pass(0.05);
    assert_eq!(world.signals, [(1, libc::SIGTERM)]);
    world.script_exited(1, Stage::Prolog, WaitStatus::signaled(libc::SIGTERM));
    world.pass(0.05);
    for rank in 0..2 {
        world.script_exited(rank, Stage::Epilog, DONE);
    }
    world.assert_ended();
    assert_eq!((world.drained.len(), world.exceptions()), (0, vec![]));
}

#[test]
fn a_prolog_that_is_not_to_be_canceled_is_waited_for() {
    let prolog = ScriptConfig { cancel_on_exception: false, ..script("prolog") };
    let mut world = preparing(1, PerilogConfig { prolog: Some(prolog), epilog: None, ..perilog() });
    world.cancel();
    world.pass(50.0);
    assert_eq!((world.signals.len(), world.is_released()), (0, false));
    world.script_exited(0, Stage::Prolog, DONE);
    world.assert_ended();
}

#[test]
fn a_prolog_that_takes_too_long_is_told_to_end() {
    let mut world = preparing(2, perilog());
    world.script_exited(0, Stage::Prolog, DONE);
    world.pass(99.0);
    assert_eq!(world.signals, []);
    world.pass(2.0);
    assert_eq!(world.signals, [(1, libc::SIGTERM)]);
    // It has a handler.
    world.script_exited(1, Stage::Prolog, DONE);
    world.pass(1.0);
    let note = "prolog: prolog timed out on n1 (rank 1)".to_string();
    assert_eq!(world.exceptions(), [(0, note)]);
    assert_eq!(world.drained, [format!("1 prolog timed out for job {JOB}")]);
}

#[test]
fn a_prolog_that_is_stuck_holds_nobody_and_its_epilog_comes_when_it_ends() {
    let mut world = preparing(2, perilog());
    world.script_exited(0, Stage::Prolog, DONE);
    world.pass(112.0);
    assert_eq!(world.drained, [format!("1 prolog timed out for job {JOB}")]);
    world.script_exited(0, Stage::Epilog, DONE);
    world.pass(2.0);
    assert!(world.is_released());
    assert_eq!(world.units(), ["prolog-1"], "it goes on, and is not forgotten");
    world.script_exited(1, Stage::Prolog, DONE);
    world.pass(1.0);
    assert_eq!(world.units(), ["epilog-1"]);
    world.script_exited(1, Stage::Epilog, DONE);
    world.assert_ended();
}

#[test]
fn a_stuck_prolog_that_ends_drains_its_rank_no_second_time() {
    let mut world = preparing(1, perilog());
    while !world.is_released() {
        world.pass(0.1);
    }
    assert_eq!(world.drained, [format!("0 prolog timed out for job {JOB}")]);
    world.script_exited(0, Stage::Prolog, DONE);
    world.script_exited(0, Stage::Epilog, DONE);
    world.assert_ended();
    assert_eq!(world.drained.len(), 1, "whoever has given the rank back has it");
}

#[test]
fn a_prolog_that_does_not_want_to_end_can_be_released() {
    let mut world = preparing(2, perilog());
    world.script_exited(0, Stage::Prolog, DONE);
    world.cancel();
    world.pass(0.05);
    world.script_exited(0, Stage::Epilog, DONE);
    world.pass(1.0);
    let now = Now { mono: MonoTime(0.0), wall: WallTime(0.0) };
    let stats = world.nodes[0].as_ref().map(|node| node.stats(now)).unwrap_or_default();
    assert_eq!(stats["jobs"][JOB.to_string()]["prolog_ranks"], "1");
    assert!(!world.is_released());
    world.release_scripts();
    world.script_exited(1, Stage::Prolog, FAILED);
    world.script_exited(1, Stage::Epilog, DONE);
    world.assert_ended();
    assert_eq!(world.drained, Vec::<String>::new());
}

#[test]
fn an_epilog_that_fails_drains_its_node_and_does_not_change_the_result() {
    let mut world = running(2, perilog());
    for rank in 0..2 {
        world.exited(rank, DONE);
    }
    world.pass(0.05);
    world.script_exited(0, Stage::Epilog, FAILED);
    world.script_exited(1, Stage::Epilog, DONE);
    world.pass(1.0);
    let note = "epilog: epilog exited with code=1 on n0 (rank 0)".to_string();
    assert_eq!(world.exceptions(), [(2, note)]);
    assert_eq!(world.drained, [format!("0 epilog failed for job {JOB}")]);
    assert_eq!(world.status(), Some(DONE));
    world.assert_ended();
}

#[test]
fn an_epilog_past_its_limit_drains_its_rank_alone() {
    let perilog = PerilogConfig { epilog_limit: Some(30.0), ..perilog() };
    let mut world = running(2, perilog);
    for rank in 0..2 {
        world.exited(rank, DONE);
    }
    world.pass(0.05);
    world.script_exited(0, Stage::Epilog, DONE);
    world.pass(29.0);
    assert!(!world.is_released());
    world.pass(2.0);
    assert_eq!(world.drained, [format!("1 epilog timed out for job {JOB}")]);
    assert!(world.is_released());
    assert_eq!(world.signals, [], "it may go on");
    assert_eq!(world.units(), ["epilog-1"]);
    world.script_exited(1, Stage::Epilog, DONE);
    world.assert_ended();
}

#[test]
fn a_script_for_the_whole_job_runs_on_its_first_rank() {
    let once = |name| Some(ScriptConfig { per_rank: false, ..script(name) });
    let mut world = world(
        3,
        PerilogConfig {
            prolog: once("prolog"),
            epilog: once("epilog"),
            ..PerilogConfig::default()
        },
    );
    world.start("1-2", false);
    world.pass(0.05);
    assert_eq!(world.units(), ["prolog-1"]);
    world.script_exited(1, Stage::Prolog, FAILED);
    world.pass(0.05);
    assert_eq!(world.drained.len(), 0, "the node need not be at fault");
    assert_eq!(world.exceptions().len(), 1);
    world.script_exited(1, Stage::Epilog, DONE);
    world.assert_ended();
}

#[test]
fn a_shell_that_cannot_be_started_is_followed_by_the_epilog() {
    let mut world = preparing(1, perilog());
    world.script_exited(0, Stage::Prolog, DONE);
    world.pass(0.05);
    let (unit, message) = (world.unit_of(0), "no such file".to_string());
    world.report(0, &unit, UnitEvent::Failed(StartFailure { errnum: 2, message }));
    world.pass(1.0);
    assert!(!world.is_released());
    world.script_exited(0, Stage::Epilog, DONE);
    world.assert_ended();
    assert_eq!(world.status(), Some(WaitStatus::exited(127)));
}

#[test]
fn a_module_that_is_loaded_again_goes_on_where_its_scripts_are() {
    let mut world = preparing(2, perilog());
    (0..2).for_each(|rank| world.make_lasting(rank));
    world.unload(1);
    world.load(1);
    world.make_lasting(1);
    world.pass(1.0);
    for rank in 0..2 {
        world.script_exited(rank, Stage::Prolog, DONE);
    }
    world.pass(1.0);
    world.all_started(0..2);
    world.exited(1, DONE);
    world.unload(1);
    world.load(1);
    world.make_lasting(1);
    world.pass(1.0);
    world.script_exited(1, Stage::Epilog, DONE);
    world.exited(0, DONE);
    world.script_exited(0, Stage::Epilog, DONE);
    let starts = |unit: &str| world.launched.iter().filter(|_| unit.is_empty()).count();
    assert_eq!(starts(""), 6, "each was started once: {:?}", world.launched);
    world.assert_ended();
}

#[test]
fn a_later_leader_starts_the_shells_that_wait() {
    let mut world = preparing(2, perilog());
    (0..2).for_each(|rank| world.make_lasting(rank));
    world.script_exited(1, Stage::Prolog, DONE);
    world.unload(0);
    world.load(0);
    world.make_lasting(0);
    world.start("0-1", false);
    world.pass(1.0);
    world.script_exited(0, Stage::Prolog, DONE);
    world.pass(1.0);
    assert!(world.units().contains(&"shell-1".to_string()), "{:?}", world.units());
    world.all_started(0..2);
    assert_eq!(world.responses, [Response::Start {}]);
}

/// Rank 0 has forgotten the job, and whoever led it.
fn forget_job(world: &mut World, size: usize) {
    for rank in 0..size {
        world.unload(rank);
        world.make_stoppable(rank);
    }
    for rank in 0..size {
        world.load(rank);
        world.make_lasting(rank);
    }
    world.pass(1000.0);
}

#[test]
fn the_epilog_of_a_job_that_nobody_knows_runs() {
    let mut world = running(2, perilog());
    (0..2).for_each(|rank| world.make_lasting(rank));
    forget_job(&mut world, 2);
    for rank in 0..2 {
        world.script_exited(rank, Stage::Epilog, DONE);
    }
    world.pass(10.0);
    // If the module dies before the epilog has a record, those of prolog and shell say that one is owed.
    assert_eq!(world.records_at_epilogs, [2, 2]);
    assert_eq!(world.records(), 0);
}

/// Simulator seed 13885335.
#[test]
fn an_epilog_that_fails_when_nobody_leads_drains_its_node_once() {
    let mut world = running(2, perilog());
    (0..2).for_each(|rank| world.make_lasting(rank));
    forget_job(&mut world, 2);
    world.script_exited(0, Stage::Epilog, FAILED);
    let (unit, message) = (world.unit_of_stage(1, Stage::Epilog), "node was rebooted".to_string());
    world.report(1, &unit, UnitEvent::Lost { message });
    world.report(1, &unit, UnitEvent::Gone);
    world.pass(10.0);
    let reason = |rank| format!("{rank} epilog failed for job {JOB}");
    assert_eq!(world.drained, [reason(0), reason(1)]);
    assert_eq!(world.records(), 0);
}

#[test]
fn a_failed_epilog_waits_until_it_is_known_that_nobody_leads() {
    let mut world = running(1, perilog());
    world.make_lasting(0);
    world.exited(0, DONE);
    world.unload(0);
    world.make_stoppable(0);
    world.load(0);
    world.make_lasting(0);
    world.script_exited(0, Stage::Epilog, FAILED);
    assert_eq!(world.drained, Vec::<String>::new(), "a leader may come");
    world.pass(1000.0);
    assert_eq!(world.drained, [format!("0 epilog failed for job {JOB}")]);
    assert_eq!(world.records(), 0);
}

#[test]
fn the_epilog_of_a_job_whose_id_another_has_drains_its_rank_if_it_fails() {
    let mut world = running(2, perilog());
    world.make_lasting(1);
    world.make_stoppable(1);
    let request = world.request();
    let shells = Box::new(super::recovery::shells(9, "another job", Mode::Start));
    world.happen(1, Event::Shells { request, shells });
    world.pass(1.0);
    world.script_exited(1, Stage::Epilog, FAILED);
    world.pass(1.0);
    assert_eq!(world.drained, [format!("1 epilog failed for job {JOB}")]);
    let record = world.disks[1].records.get(&world.unit_of(1)).expect("the other job's shell");
    assert_eq!(record.spec.digest, "another job".into());
}

#[test]
fn an_epilog_that_begins_when_its_job_is_over_drains_its_rank_if_it_fails() {
    let mut world = preparing(1, perilog());
    world.cancel();
    world.pass(1.0);
    world.release_scripts();
    world.script_exited(0, Stage::Prolog, FAILED);
    world.script_exited(0, Stage::Epilog, FAILED);
    world.assert_ended();
    assert_eq!(world.drained, [format!("0 epilog failed for job {JOB}")]);
}

#[test]
fn a_rank_that_was_given_back_is_not_drained_after_a_restart() {
    let mut world = preparing(1, perilog());
    world.make_lasting(0);
    world.cancel();
    world.pass(1.0);
    world.release_scripts();
    forget_job(&mut world, 1);
    assert_eq!(world.drained, Vec::<String>::new(), "it is stuck");
    world.script_exited(0, Stage::Prolog, FAILED);
    world.script_exited(0, Stage::Epilog, DONE);
    world.assert_ended();
    assert_eq!(world.drained, Vec::<String>::new());
}

/// The unit of the prolog goes last, as its cgroup is not empty (simulator seed 4302334).
#[test]
fn an_epilog_is_remembered_as_long_as_its_prolog() {
    let mut world = preparing(1, perilog());
    let unit = world.unit_of_stage(0, Stage::Prolog);
    world.report(0, &unit, UnitEvent::Exited { status: DONE });
    world.pass(0.05);
    world.all_started(0..1);
    world.exited(0, DONE);
    world.script_exited(0, Stage::Epilog, DONE);
    world.pass(2.0);
    assert!(world.is_released());
    assert_eq!(world.units(), ["prolog-0", "epilog-0"]);
    world.report(0, &unit, UnitEvent::Gone);
    world.assert_ended();
}

#[test]
fn a_script_writes_to_the_log_and_not_to_the_job() {
    let mut world = preparing(1, perilog());
    let unit = world.unit_of_stage(0, Stage::Prolog);
    let data = b"secret\n\nrest".to_vec();
    let (stream, offset) = (Stream::Stderr, 0);
    world.report(0, &unit, UnitEvent::Output { stream, offset, data });
    world.script_exited(0, Stage::Prolog, DONE);
    let line = |text| format!("{JOB}: prolog: node0 (rank 0): stderr: {text}");
    assert_eq!(world.errors, [line("secret"), line("rest")]);
    assert!(!world.event_names().contains(&"log"));
}

#[test]
fn a_mocked_job_has_no_scripts() {
    let mut world = world(1, perilog());
    let mut payload = start("0", false);
    let test = json!({ "run_duration": "10s" });
    payload["jobspec"] =
        json!({ "attributes": { "system": { "duration": 0.0, "exec": { "test": test } } } });
    let request = world.request();
    world.happen(0, start_event(request, &payload));
    assert_eq!(world.responses, [Response::Start {}]);
    world.cancel();
    world.assert_ended();
    assert_eq!(world.launched, [0u32; 0]);
}

#[test]
fn scripts_that_are_disabled_while_a_job_runs_are_not_missed() {
    let mut world = running(1, perilog());
    world.happen(0, Event::Config(Box::default()));
    world.exited(0, DONE);
    world.assert_ended();
    assert_eq!((world.drained.len(), world.exceptions()), (0, vec![]));
}

/// The rank's leader dies before it has said that the shell could not be started, and so does the
/// module that knew it. The epilog has begun.
#[test]
fn why_a_shell_was_not_started_outlives_its_epilog() {
    let mut world = world(2, perilog());
    (0..2).for_each(|rank| world.make_lasting(rank));
    world.start("1", false);
    world.script_started(1, Stage::Prolog);
    world.script_exited(1, Stage::Prolog, DONE);
    world.pass(0.05);
    world.hold_replies = true;
    let unit = world.unit_of(1);
    let message = "/no/shell: No such file or directory".to_string();
    world.disks[1].records.remove(&unit);
    world.report(1, &unit, UnitEvent::Failed(StartFailure { errnum: libc::ENOENT, message }));
    world.script_started(1, Stage::Epilog);
    assert_eq!(world.exceptions(), []);
    world.lose(1);
    world.hold_replies = false;
    world.load(1);
    world.pass(1.0);
    world.script_exited(1, Stage::Epilog, DONE);
    world.pass(1.0);
    let exceptions = world.exceptions();
    assert_eq!(exceptions.len(), 1, "{exceptions:?}");
    assert!(exceptions[0].1.contains("/no/shell: No such file or directory"), "{exceptions:?}");
    assert!(world.is_released());
}

/// One rank's shell could not be started, so the others get their epilogs without a shell. Then all
/// modules die, and so does what the first rank knew.
/// The same, and the shell's record is there still: its unit never was. The supervisor can find either
/// record first, and be slower or faster than the leader (chaos seed 2216).
#[test]
fn a_shell_that_could_not_be_started_is_not_started_behind_its_epilog() {
    for (shell_first, leader_first) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let mut world = world(2, perilog());
        (0..2).for_each(|rank| world.make_lasting(rank));
        world.start("1", false);
        world.script_started(1, Stage::Prolog);
        world.script_exited(1, Stage::Prolog, DONE);
        world.pass(0.05);
        let unit = world.unit_of(1);
        world.hold_replies = true;
        let message = "/no/shell: No such file or directory".to_string();
        let failed = UnitEvent::Failed(StartFailure { errnum: libc::ENOENT, message }).of(&unit);
        world.happen(1, Event::Supervisor(failed));
        world.script_started(1, Stage::Epilog);
        world.lose(1);
        world.hold_replies = false;
        let mut records: Vec<UnitRecord> = world.disks[1].records.values().cloned().collect();
        records.sort_by_key(|record| (record.spec.unit == unit) != shell_first);
        world.load_found(1, &records);
        let never = Event::Supervisor(UnitEvent::NeverStarted.of(&unit));
        let scripts = records.iter().filter(|record| record.spec.unit != unit);
        scripts.for_each(|record| world.look_at_unit(1, record));
        if !leader_first {
            world.happen(1, never.clone());
        }
        world.pass(1.0);
        if leader_first {
            world.happen(1, never);
        }
        world.pass(1.0);
        world.script_exited(1, Stage::Epilog, DONE);
        world.pass(1.0);
        let exceptions = world.exceptions();
        assert_eq!(exceptions.len(), 1, "{exceptions:?}");
        assert!(exceptions[0].1.contains("/no/shell: No such file"), "{exceptions:?}");
        assert_eq!(world.launched, [1, 1, 1], "prolog, shell and epilog, by the earlier life");
        assert!(world.is_released());
        assert_eq!(world.records(), 0);
    }
}

#[test]
fn why_a_job_failed_elsewhere_outlives_an_epilog() {
    let mut world = world(3, perilog());
    (0..3).for_each(|rank| world.make_lasting(rank));
    world.hold_replies = true;
    world.start("1-2", false);
    for rank in [1, 2] {
        world.script_started(rank, Stage::Prolog);
        world.script_exited(rank, Stage::Prolog, DONE);
    }
    world.pass(0.05);
    let message = "/no/shell: No such file or directory".to_string();
    let unit = world.unit_of(2);
    world.report(2, &unit, UnitEvent::Failed(StartFailure { errnum: libc::ENOENT, message }));
    let unit = world.unit_of(1);
    let message = "killed with its module".to_string();
    world.report(1, &unit, UnitEvent::Lost { message });
    world.report(1, &unit, UnitEvent::Gone);
    world.pass(0.05);
    world.script_started(1, Stage::Epilog);
    for rank in [1, 2] {
        world.lose(rank);
    }
    world.disks[2].records.clear();
    world.disks[1].records.retain(|unit, _| unit.stage() == Stage::Epilog);
    // The KVS has gone back, so the exec eventlog does not say it.
    world.events.clear();
    world.hold_replies = false;
    world.load(2);
    world.load(1);
    world.pass(1.0);
    let exceptions = world.exceptions();
    assert!(
        exceptions.iter().any(|(severity, text)| *severity == 0 && text.contains("/no/shell")),
        "{exceptions:?}"
    );
}

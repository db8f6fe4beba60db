//! One job from its start request to its final release.

use std::collections::BTreeMap;

use super::recovery::{Alone, shells};
use super::{JOB, OWNER, World};
use crate::config::Config;
use crate::machine::{Creation, Credential, Effect, Event, KvsResult, RequestId};
use crate::port::supervisor::{StartFailure, UnitCommand, UnitEvent};
use crate::proto::peer::{Mode, ShellsRequest};
use crate::proto::{
    BarrierEntry, BrokerRank, ClientId, Exception, ExecEvent, ReleasedRanks, Response, Signal,
    WaitStatus, WallTime,
};

#[test]
fn a_job_of_one_rank() {
    let mut world = World::new(1);
    world.start("0", false);
    assert_eq!(world.launched, [0]);
    world.started(0);
    world.exited(0, WaitStatus::exited(0));
    assert_eq!(
        world.responses,
        [
            Response::Start {},
            Response::Finish { status: WaitStatus(0) },
            Response::Release { ranks: ReleasedRanks::All, is_final: true },
        ]
    );
    assert_eq!(
        world.event_names(),
        ["init", "starting", "shell-exit", "debug.timeline", "complete", "done"]
    );
    assert_eq!(world.messages, 0, "roles of one rank need no message");
    world.assert_ended();
}

#[test]
fn a_job_that_can_be_found_again_says_so_when_it_starts() {
    let mut world = World::new(1);
    world.make_lasting(0);
    world.start("0", false);
    assert_eq!(world.event_names(), ["init", "starting", "recoverable"]);
}

#[test]
fn rank_0_passes_on_a_constant_number_of_messages() {
    let messages = |ranks: &str, count: std::ops::Range<usize>| {
        let mut world = World::with(40, Config::default());
        world.start(ranks, false);
        world.all_started(count.clone());
        for rank in count {
            world.exited(rank, WaitStatus(0));
        }
        world.pass(1.0);
        world.assert_ended();
        world.at_rank_0
    };
    let few = messages("1-2", 1..3);
    assert!(few > 0);
    assert_eq!(few, messages("1-39", 1..40));
}

#[test]
fn the_tree_reaches_every_rank_once() {
    let mut world = World::new(20);
    world.start("1-19", false);
    world.launched.sort_unstable();
    assert_eq!(world.launched, (1..20).collect::<Vec<u32>>());
    world.all_started(1..20);
    assert_eq!(world.responses, [Response::Start {}]);
    for rank in 1..20 {
        world.exited(rank, WaitStatus::exited(rank as i32 % 3));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(2)), "the largest status");
    assert_eq!(world.released(), [("all".to_string(), true)]);
    world.assert_ended();
}

#[test]
fn ranks_that_end_at_different_times_are_released_one_by_one() {
    let mut world = World::running(4, "0-3");
    for rank in [2, 0, 3, 1] {
        world.exited(rank, WaitStatus(0));
        world.pass(1.0);
    }
    let releases = [("2", false), ("0", false), ("3", false), ("1", true)];
    assert_eq!(world.released(), releases.map(|(ranks, last)| (ranks.to_string(), last)));
    let finish = world.responses.iter().position(|r| matches!(r, Response::Finish { .. }));
    assert_eq!(finish, Some(4), "finish precedes the final release");
    world.assert_ended();
}

#[test]
fn a_rank_is_not_released_while_anything_of_it_lives() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.all_started(0..2);
    let unit = world.unit_of(1);
    // Exited, but its cgroup is not empty: the supervisor does not say Gone.
    let status = WaitStatus(0);
    world.report(1, &unit, UnitEvent::Exited { status });
    world.exited(0, WaitStatus(0));
    world.pass(10.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(1)), "ended before the first barrier");
    assert_eq!(world.released(), [("0".to_string(), false)]);
    world.report(1, &unit, UnitEvent::Gone);
    world.pass(1.0);
    assert_eq!(world.released(), [("0".to_string(), false), ("1".to_string(), true)]);
    world.assert_ended();
}

#[test]
fn the_barrier_opens_when_all_have_entered_and_twice() {
    let mut world = World::new(5);
    world.start("0-4", false);
    world.all_started(0..5);
    for round in 1..=2 {
        let requests: Vec<u64> = (0..5).map(|rank| world.enter_barrier(rank)).collect();
        world.pass(0.1);
        assert_eq!(world.barrier.len(), round * 5);
        for request in requests {
            assert!(world.barrier.contains(&(request, Ok(()))));
        }
    }
}

#[test]
fn a_shell_that_ends_early_fails_the_barrier_for_the_others() {
    let mut world = World::new(3);
    world.start("0-2", false);
    world.all_started(0..3);
    let waiting = world.enter_barrier(0);
    world.exited(2, WaitStatus::exited(1));
    world.pass(0.1);
    assert_eq!(world.barrier, [(waiting, Err(libc::EIO))]);
    let late = world.enter_barrier(1);
    world.pass(0.1);
    assert_eq!(world.barrier.last(), Some(&(late, Err(libc::EIO))));
    assert_eq!(world.notes(), ["n2 (rank 2) terminated before first barrier"]);
}

#[test]
fn a_barrier_that_hangs_drains_who_is_missing() {
    let mut world = World::new(3);
    world.config.barrier_timeout = Some(5.0);
    let config = Box::new(world.config.clone());
    world.happen(0, Event::Config(config));
    world.start("0-2", false);
    world.all_started(0..3);
    world.enter_barrier(0);
    world.enter_barrier(1);
    world.pass(6.0);
    let reason = format!("2 job {JOB} start timeout: possible node hang");
    assert_eq!(world.drained, [reason]);
    assert_eq!(world.notes(), ["start barrier timeout waiting for 1/3 nodes (rank 2)"]);
}

#[test]
fn cancel_signals_shells_and_ends_with_a_status() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.all_started(0..2);
    world.cancel();
    assert_eq!(world.signals, [(0, libc::SIGTERM), (1, libc::SIGTERM)]);
    for rank in 0..2 {
        world.exited(rank, WaitStatus::exited(143));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(143)));
    assert_eq!(world.notes(), Vec::<String>::new(), "the job manager knows the exception");
    world.assert_ended();
}

#[test]
fn what_cannot_be_killed_is_drained_and_the_job_ends() {
    let config = Config { kill_timeout: 1.0, max_kill_count: 3, ..Config::default() };
    let mut world = World::with(2, config);
    world.start("0-1", false);
    world.all_started(0..2);
    world.cancel();
    world.exited(0, WaitStatus::signaled(libc::SIGKILL));
    world.pass(100.0);
    assert_eq!(world.killed, [libc::SIGKILL; 5]);
    assert_eq!(world.drained, [format!("1 unkillable user processes for job {JOB}")]);
    assert_eq!(world.released().last(), Some(&("1".to_string(), true)));
    assert_eq!(world.status(), Some(WaitStatus(libc::SIGKILL)));
}

/// [kernel-kills]
#[test]
fn what_the_kernel_can_kill_drains_nothing() {
    for (cgroup_kill, kill_signal, drained) in
        [(true, Signal::KILL, 0), (false, Signal::KILL, 1), (true, Signal::TERM, 1)]
    {
        let mut config = Config { kill_timeout: 1.0, max_kill_count: 3, ..Config::default() };
        (config.cgroup_kill, config.kill_signal) = (cgroup_kill, kill_signal);
        let mut world = World::with(2, config);
        world.start("0-1", false);
        world.all_started(0..2);
        world.cancel();
        world.exited(0, WaitStatus::signaled(libc::SIGKILL));
        let is_said = |world: &World| world.warnings.iter().any(|text| text.contains("the kernel"));
        while world.drained.is_empty() && !is_said(&world) {
            world.pass(0.5);
        }
        if drained == 0 {
            assert_eq!(world.signals.last(), Some(&(1, libc::SIGKILL)));
            world.exited(1, WaitStatus::signaled(libc::SIGKILL));
        }
        world.pass(100.0);
        assert_eq!(world.drained.len(), drained, "{:?}", world.drained);
        assert_eq!(world.released().last().map(|(_, is_final)| *is_final), Some(true));
    }
}

/// [give-up-drains]
#[test]
fn a_rank_is_drained_with_the_names_of_what_cannot_be_killed() {
    let config = Config { kill_timeout: 1.0, max_kill_count: 3, ..Config::default() };
    let mut world = World::with(4, config);
    world.start("0-3", false);
    world.all_started(0..4);
    world.cancel();
    let name = |world: &mut World, rank, processes: &str| {
        let unit = world.unit_of(rank);
        world.report(rank, &unit, UnitEvent::LeftOver { processes: processes.to_string() });
    };
    let sleep = "pid 12 (user 0, \"sleep\")";
    name(&mut world, 1, "pid 11 (user 1, \"sh\"), pid 12 (user 0, \"sleep\")");
    name(&mut world, 1, sleep);
    name(&mut world, 2, &"x".repeat(4000));
    world.exited(3, WaitStatus::signaled(libc::SIGKILL));
    // A new leader is told again.
    world.unload(0);
    world.load(0);
    world.start("0-3", true);
    world.cancel();
    world.pass(100.0);
    let plain = format!("unkillable user processes for job {JOB}");
    let reasons = [
        format!("0 {plain}"),
        format!("1 {plain}: {sleep}"),
        format!("2 {plain}: {}", "x".repeat(512)),
    ];
    assert_eq!(world.drained, reasons);
    assert_eq!(world.released().last().map(|(_, is_final)| *is_final), Some(true));
}

/// Its systemd does not answer, say.
#[test]
fn a_rank_whose_shell_never_ran_is_drained_for_that() {
    let config = Config { kill_timeout: 1.0, max_kill_count: 3, ..Config::default() };
    let mut world = World::with(2, config);
    world.start("0-1", false);
    world.started(0);
    world.cancel();
    world.exited(0, WaitStatus::signaled(libc::SIGKILL));
    world.pass(100.0);
    assert_eq!(world.drained, [format!("1 shell of job {JOB} was seen neither to run nor to end")]);
    assert_eq!(world.released().last(), Some(&("1".to_string(), true)));
}

/// The leader's shell waits for the output of a rank that is away.
#[test]
fn shells_are_not_killed_while_a_rank_is_away() {
    let config = Config { kill_timeout: 1.0, peer_timeout: 60.0, ..Config::default() };
    let mut world = World::with(3, config);
    (0..3).for_each(|rank| world.make_lasting(rank));
    world.start("1-2", false);
    world.all_started(1..3);
    world.lose(2);
    world.cancel();
    world.exited(1, WaitStatus(0));
    world.pass(10.0);
    assert_eq!(world.signals, [(1, libc::SIGTERM)], "the tasks get SIGKILL meanwhile");
    assert_eq!(world.killed, [libc::SIGKILL; 10]);
    world.load(2);
    world.make_lasting(2);
    while world.signals.len() == 1 {
        world.pass(0.1);
    }
    world.pass(0.8);
    assert_eq!(world.signals, [(1, libc::SIGTERM), (2, libc::SIGTERM)]);
    world.pass(20.0);
    assert_eq!(world.signals[2..], [(2, libc::SIGKILL); 4]);
}

/// [shells-spared]: what they write goes to rank 0's KVS.
#[test]
fn shells_are_not_killed_while_rank_0_is_away() {
    let config = Config { kill_timeout: 1.0, ..Config::default() };
    let mut world = World::with(3, config);
    world.start("1", false);
    world.all_started(1..2);
    world.cancel();
    world.pass(2.5);
    world.hold_kills = true;
    world.pass(30.0);
    assert_eq!(world.signals, [(1, libc::SIGTERM)]);
    world.hold_kills = false;
    world.deliver_held();
    world.pass(1.5);
    assert_eq!(world.signals, [(1, libc::SIGTERM), (1, libc::SIGKILL)]);
}

#[test]
fn the_time_limit_raises_a_timeout_and_moves() {
    let mut world = World::new(2);
    world.start("1", false);
    world.started(1);
    let set = |world: &mut World, expiration: f64| {
        let request = RequestId::Remote(1);
        world.happen(0, Event::Expiration { request, id: JOB, expiration: WallTime(expiration) });
    };
    set(&mut world, 1e9 + 50.0);
    world.pass(30.0);
    set(&mut world, 1e9 + 80.0);
    world.pass(40.0);
    assert_eq!(world.notes(), Vec::<String>::new());
    world.pass(11.0);
    let timeout = Exception {
        severity: 0,
        kind: "timeout".into(),
        note: "resource allocation expired".into(),
    };
    assert_eq!(world.responses.last(), Some(&Response::Exception(timeout)));
    assert_eq!(world.signals.first(), Some(&(1, libc::SIGALRM)));
    assert_eq!(world.answers, [Ok(()), Ok(())]);
    set(&mut world, -1.0);
    assert_eq!(world.answers.last(), Some(&Err(libc::EINVAL)));
}

#[test]
fn a_shell_that_cannot_be_started_fails_the_job_in_words() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.started(0);
    let unit = world.unit_of(1);
    let (errnum, message) = (libc::ENOENT, "/x/shell: No such file or directory".to_string());
    world.report(1, &unit, UnitEvent::Failed(StartFailure { errnum, message }));
    world.pass(0.1);
    assert_eq!(
        world.notes(),
        ["job shell exec error on broker n1 (rank 1): /x/shell: No such file or directory"]
    );
    assert_eq!(world.signals, [(0, libc::SIGTERM)]);
    world.exited(0, WaitStatus::exited(1));
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(127)));
    assert!(!world.responses.contains(&Response::Start {}));
    world.assert_ended();
}

#[test]
fn output_is_logged_once_and_acknowledged() {
    let mut world = World::new(2);
    world.start("1", false);
    world.started(1);
    world.output(1, 0, "one\ntw");
    world.output(1, 6, "o\n");
    world.exited(1, WaitStatus(0));
    world.pass(1.0);
    let data: String = world
        .events
        .iter()
        .filter(|event| event.name == "log")
        .filter_map(|event| event.context["data"].as_str())
        .collect();
    assert_eq!(data, "one\ntwo\n");
    world.assert_ended();
}

#[test]
fn a_bad_request_fails_its_job_and_no_other() {
    let mut world = World::new(1);
    let mut bad = super::start("0", false);
    bad["R"] = serde_json::json!({"version": 7});
    world.happen(0, super::start_event(RequestId::Remote(1), &bad));
    assert_eq!(world.notes().len(), 1);
    assert!(world.notes()[0].contains(&JOB.to_string()), "{:?}", world.notes());
    world.assert_ended();
    let mut bad = super::start("0", false);
    bad["jobspec"] =
        serde_json::json!({"attributes": {"system": {"exec": {"bulkexec": {"x": 1}}}}});
    world.happen(0, super::start_event(RequestId::Remote(2), &bad));
    assert!(world.notes()[1].contains("bulkexec: unknown key \"x\""), "{:?}", world.notes());
    world.responses.drain(..2);
    world.assert_ended();
}

/// [ranks-exist]
#[test]
fn a_job_with_ranks_that_the_instance_lacks_fails_at_once() {
    let mut world = World::new(1);
    world.happen(0, super::start_event(RequestId::Remote(1), &super::start("0,100-4999", false)));
    let note = format!(
        "start request for job {JOB}: R: ranks 100-4999 do not exist: the instance has 100 ranks"
    );
    assert_eq!(world.notes(), [note]);
    assert!(world.launched.is_empty() && world.drained.is_empty());
    world.assert_ended();
}

#[test]
fn a_guests_job_without_an_imp_is_refused() {
    let mut world = World::new(1);
    let mut guest = super::start("0", false);
    guest["userid"] = serde_json::json!(12345);
    world.happen(0, super::start_event(RequestId::Remote(1), &guest));
    assert!(world.notes()[0].contains("no IMP configured"), "{:?}", world.notes());
    assert!(world.launched.is_empty());
    world.assert_ended();
}

/// [helper-asks-nobody]
#[test]
fn the_imps_helper_asks_for_a_device_policy_only_where_one_is_configured() {
    for (property, expected) in [
        ("CPUWeight", "env -u INVOCATION_ID flux imp_exec_helper 77"),
        ("DevicePolicy", "flux imp_exec_helper 77"),
        ("DeviceAllow", "flux imp_exec_helper 77"),
    ] {
        let mut node = Alone::new(0);
        let properties = BTreeMap::from([(property.to_string(), "x".to_string())]);
        let imp = Some("/imp".to_string());
        node.hear(Event::Config(Box::new(Config { imp, properties, ..Config::default() })));
        let mut guest = super::start("0", false);
        guest["userid"] = serde_json::json!(12345);
        node.hear(super::start_event(RequestId::Remote(1), &guest));
        let effects =
            node.hear(Event::Kvs { id: JOB, result: KvsResult::Created(Ok(Creation::Made)) });
        let launched = effects.iter().find_map(|effect| match effect {
            Effect::Unit(_, UnitCommand::Launch(spec)) => {
                spec.environment.get("FLUX_IMP_EXEC_HELPER")
            }
            _ => None,
        });
        assert_eq!(launched.map(String::as_str), Some(expected), "{property}");
    }
}

/// [info-above]
#[test]
fn a_shell_hears_whom_to_ask_about_its_job() {
    let mut node = Alone::new(1);
    let asked = shells(1, "mark", Mode::Start);
    let shells = Box::new(ShellsRequest { parent: BrokerRank(7), leader: BrokerRank(5), ..asked });
    let effects = node.hear(Event::Shells { request: RequestId::Remote(1), shells });
    let uri = effects.iter().find_map(|effect| match effect {
        Effect::Unit(_, UnitCommand::Launch(spec)) => spec.environment.get("FLUX_URI").cloned(),
        _ => None,
    });
    assert_eq!(uri, Some(format!("local:///test/1?run={}-mark&info=7", JOB.0)));
}

#[test]
fn no_job_runs_with_a_service_that_there_is_not() {
    let service = Some("x".to_string());
    let mut world = World::with(1, Config { service, ..Config::default() });
    world.start("0", false);
    assert!(world.notes()[0].contains("exec.service 'x' cannot start"), "{:?}", world.notes());
    assert!(world.launched.is_empty());
    world.assert_ended();
}

#[test]
fn nobody_enters_another_users_barrier() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.all_started(0..2);
    let credential = super::Credential { userid: 9999, owner: false, local: true };
    let request = RequestId::Remote(5);
    let rank = super::BrokerRank(0);
    world.happen(0, Event::ShellBarrier { request, credential, id: JOB, rank, entry: None });
    assert_eq!(world.barrier, [(5, Err(libc::EPERM))]);
    let ranks = "0".to_string();
    world.happen(0, Event::CriticalRanks { request, credential, id: JOB, ranks });
    assert_eq!(world.answers, [Err(libc::EPERM)]);
}

/// The module of its own rank is not loaded. A nested instance that heard anything else would fail.
#[test]
fn critical_ranks_that_another_broker_has_passed_on_are_to_be_said_again() {
    let mut world = World::new(2);
    world.start("1", false);
    world.all_started(1..2);
    for (rank, local) in [(0, true), (0, false), (1, false)] {
        let credential = Credential { userid: OWNER, owner: true, local };
        let (request, ranks) = (RequestId::Remote(5), "0".to_string());
        world.happen(rank, Event::CriticalRanks { request, credential, id: JOB, ranks });
    }
    assert_eq!(world.answers, [Err(libc::ENOENT), Err(libc::ENOSYS), Ok(())]);
}

/// Its broker is stopping, or its module is being loaded again.
#[test]
fn a_shell_that_enters_the_barrier_where_no_module_is_is_to_ask_again() {
    let mut world = World::new(3);
    world.start("1-2", false);
    world.all_started(1..3);
    for here in [0, 1] {
        let request = RequestId::Remote(70 + here);
        let (id, rank, entry) = (JOB, BrokerRank(2), Some(BarrierEntry::of_shell(1)));
        let credential = Credential { userid: OWNER, owner: true, local: true };
        let event = Event::ShellBarrier { request, credential, id, rank, entry };
        world.happen(here as usize, event);
    }
    assert_eq!(world.barrier, [(70, Err(libc::ENOSYS)), (71, Err(libc::ENOSYS))]);
}

/// [barrier-named]
#[test]
fn a_shell_enters_each_barrier_through_another_client() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.all_started(0..2);
    let mut asked = 80;
    let mut enter = |world: &mut World, rank: u32, client: u64| {
        asked += 1;
        let request = RequestId::Remote(asked);
        let credential = Credential { userid: OWNER, owner: true, local: true };
        let (id, entry) = (JOB, BarrierEntry { number: 1, client: Some(ClientId(client)) });
        let (rank, entry) = (BrokerRank(rank), Some(entry));
        let event = Event::ShellBarrier { request, credential, id, rank, entry };
        world.happen(rank.0 as usize, event);
        world.pass(0.5);
        asked
    };
    let first = [enter(&mut world, 0, 1), enter(&mut world, 1, 2)];
    assert_eq!(world.barrier.split_off(0), first.map(|request| (request, Ok(()))));
    world.unload(0);
    world.load(0);
    world.start("0-1", true);
    let second = enter(&mut world, 0, 3);
    let again = enter(&mut world, 0, 1);
    assert_eq!(world.barrier.split_off(0), [(again, Ok(()))], "it waits for the other shell");
    world.exited(1, WaitStatus::exited(1));
    world.pass(1.0);
    assert_eq!(world.barrier, [(second, Err(libc::EIO))]);
}

/// Simulator seed 6734362: its rank had lost the records of the shell and of its epilog.
#[test]
fn no_shell_is_started_again_when_all_have_ended_and_the_job_manager_has_not_heard_of_a_start() {
    let world = found_complete(false, None);
    // They have run (simulator seed 11145495).
    assert_eq!(world.responses[0], Response::Start {}, "{:?}", world.responses);
    assert_eq!(world.notes(), Vec::<String>::new(), "its shells are not lost");
    let starts = |world: &World| world.responses.contains(&Response::Start {});
    assert!(!starts(&found_complete(true, None)), "it was said");
    let failed = found_complete(false, Some(&Exception::fatal("failed".to_string())));
    assert!(!starts(&failed), "it may have failed before: {:?}", failed.responses);
}

/// A rank that is away when a new leader asks is asked again.
#[test]
fn no_shell_is_started_on_a_rank_that_comes_back_when_all_have_ended() {
    let mut world = World::running(2, "0-1");
    world.fail_moves = 9;
    for rank in [0, 1] {
        world.exited(rank, WaitStatus(0));
    }
    for rank in [0, 1] {
        world.unload(rank);
        world.disks[rank].records.clear();
    }
    world.load(0);
    (world.fail_moves, world.launched) = (0, Vec::new());
    world.responses.clear();
    world.start("0-1", false);
    world.pass(1.0);
    world.load(1);
    world.pass(20.0);
    assert_eq!(world.launched, [0; 0]);
    world.assert_ended();
}

/// A job of which only its exec eventlog knows, which has `complete`, is asked for again, and ends.
fn found_complete(reattach: bool, exception: Option<&Exception>) -> World {
    let mut world = World::running(2, "0-1");
    world.fail_moves = 9;
    for rank in [0, 1] {
        world.exited(rank, WaitStatus(0));
    }
    assert!(world.event_names().contains(&"complete"), "{:?}", world.event_names());
    for rank in [0, 1] {
        world.unload(rank);
        world.disks[rank].records.clear();
        world.load(rank);
    }
    (world.fail_moves, world.launched) = (0, Vec::new());
    world.responses.clear();
    world.events.extend(exception.map(|exception| ExecEvent::exception(WallTime(1e9), exception)));
    world.start("0-1", reattach);
    world.pass(20.0);
    assert_eq!(world.launched, [0; 0]);
    assert_eq!(world.status(), Some(WaitStatus(0)), "{:?}", world.responses);
    world.assert_ended();
    world
}

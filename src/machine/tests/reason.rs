//! Why a job was ended: the records of its shells know it when the job manager has forgotten it.

use super::recovery::{Alone, STARTED};
use super::{JOB, World, facts};
use crate::machine::{Effect, Event, RequestId};
use crate::port::Note;
use crate::port::supervisor::{StartFailure, UnitCommand, UnitEvent};
use crate::proto::peer::{Mode, Order};
use crate::proto::{BrokerRank, EndReason, JobException, Response, UnitName, WaitStatus, WallTime};

/// Rank 0's broker is killed, and so all. The KVS goes back to a time at which the job ran and
/// nothing was wrong with it. Then everybody comes back.
fn crash(world: &mut World) {
    world.nodes.fill_with(|| None);
    world.requests.clear();
    world.responses.clear();
    let is_early = |name: &str| ["init", "starting"].contains(&name);
    world.events.retain(|event| is_early(&event.name));
    for rank in 0..world.nodes.len() {
        world.load(rank);
    }
}

/// The shell on `rank` ends while nobody looks.
fn exit_unseen(world: &mut World, rank: usize, signal: i32) {
    world.nodes.fill_with(|| None);
    let unit = world.unit_of(rank);
    let record = world.disks[rank].records.get_mut(&unit).expect("a record");
    record.exited = Some(WaitStatus::signaled(signal));
    world.disks[rank].dead.push(unit);
}

/// A job of two ranks that was cancelled. Both shells have ended of it.
fn cancelled() -> World {
    let mut world = World::running(3, "1-2");
    world.cancel();
    for rank in 1..3 {
        exit_unseen(&mut world, rank, libc::SIGTERM);
    }
    world
}

/// Types of the fatal exceptions that the job manager was told.
fn kinds(world: &World) -> Vec<&str> {
    let mut kinds = Vec::new();
    for response in &world.responses {
        if let Response::Exception(exception) = response
            && exception.severity == 0
        {
            kinds.push(exception.kind.as_str());
        }
    }
    kinds
}

fn assert_said_before_finish(world: &World) {
    let at = |is: fn(&Response) -> bool| world.responses.iter().position(is);
    let said = at(|response| matches!(response, Response::Exception(_)));
    let finish = at(|response| matches!(response, Response::Finish { .. }));
    assert!(said.is_some() && said < finish, "{:?}", world.responses);
}

/// [reason-outlives]
#[test]
fn a_cancel_that_the_job_manager_has_forgotten_is_raised_again() {
    let mut world = cancelled();
    crash(&mut world);
    world.start("1-2", true);
    world.pass(1.0);
    assert_eq!(kinds(&world), ["cancel"]);
    assert_said_before_finish(&world);
    assert!(world.event_names().contains(&"debug.exception"));
    assert_eq!(world.status(), Some(WaitStatus::signaled(libc::SIGTERM)));
    world.assert_ended();
}

/// [reason-outlives]
#[test]
fn so_is_a_cancel_of_a_job_that_has_not_started_for_the_job_manager() {
    let mut world = cancelled();
    crash(&mut world);
    world.start("1-2", false);
    world.pass(1.0);
    assert_eq!(kinds(&world), ["cancel"]);
    assert_eq!(world.launched, [1, 2], "nothing was started a second time");
    world.assert_ended();
}

/// [reason-outlives]
#[test]
fn a_timeout_that_the_job_manager_has_forgotten_is_raised_again_with_its_note() {
    let mut world = World::running(3, "1-2");
    let request = RequestId::Remote(1);
    world.happen(
        0,
        Event::Expiration { request, id: JOB, expiration: WallTime(1e9 + world.now + 1.0) },
    );
    world.pass(2.0);
    assert_eq!(kinds(&world), ["timeout"]);
    for rank in 1..3 {
        exit_unseen(&mut world, rank, libc::SIGALRM);
    }
    crash(&mut world);
    world.start("1-2", true);
    world.pass(1.0);
    assert_eq!(kinds(&world), ["timeout"]);
    assert_eq!(world.notes(), ["resource allocation expired"]);
    world.assert_ended();
}

/// [one-fatal]
#[test]
fn a_time_limit_is_no_reason_after_another() {
    let mut world = World::running(3, "1-2");
    let request = RequestId::Remote(1);
    world.happen(
        0,
        Event::Expiration { request, id: JOB, expiration: WallTime(1e9 + world.now + 5.0) },
    );
    let unit = world.unit_of(2);
    world.report(2, &unit, UnitEvent::Lost { message: "node was rebooted".into() });
    world.pass(1.0);
    assert_eq!(kinds(&world), ["exec"]);
    world.unload(0);
    world.pass(10.0);
    assert_eq!(kinds(&world), ["exec"]);
    assert!(world.raised.is_empty(), "{:?}", world.raised);
}

/// [reason-outlives]
#[test]
fn one_record_is_enough() {
    for rank in 1..3 {
        let mut world = cancelled();
        world.disks[rank].records.clear();
        crash(&mut world);
        world.start("1-2", true);
        world.pass(1.0);
        assert_eq!(kinds(&world), ["cancel"], "without the record of rank {rank}");
        assert_said_before_finish(&world);
        world.assert_ended();
    }
}

/// [reason-outlives]
#[test]
fn a_shell_that_still_runs_is_ended_for_the_same_reason() {
    let mut world = World::running(3, "1-2");
    world.cancel();
    exit_unseen(&mut world, 2, libc::SIGTERM);
    crash(&mut world);
    world.signals.clear();
    world.start("1-2", true);
    world.pass(0.5);
    assert_eq!(kinds(&world), ["cancel"]);
    assert_eq!(world.signals, [], "it has had its first signal, and may be at its end");
    world.pass(world.config.kill_timeout);
    assert_eq!(world.killed, [libc::SIGKILL], "its tasks");
    world.exited(1, WaitStatus::signaled(libc::SIGTERM));
    world.assert_ended();
}

/// [reason-outlives]
#[test]
fn the_status_that_an_exception_has_asked_for_outlives_it() {
    let failed = || {
        let mut world = World::running(3, "1-2");
        let (kind, wait_status) = ("exec".to_string(), Some(WaitStatus::exited(3)));
        let exception = JobException { id: JOB, kind, severity: 0, wait_status };
        world.happen(1, Event::Exception(exception));
        world
    };
    let mut world = failed();
    for rank in 1..3 {
        exit_unseen(&mut world, rank, libc::SIGTERM);
    }
    crash(&mut world);
    world.start("1-2", true);
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(3)));
    // A leader that knows the exception from the exec eventlog hears the status, too.
    let mut world = failed();
    crash(&mut world);
    world.start("1-2", true);
    world.pass(0.1);
    world.unload(1);
    world.load(1);
    world.pass(1.0);
    assert!(world.event_names().contains(&"debug.exception"));
    for rank in 1..3 {
        world.exited(rank, WaitStatus::signaled(libc::SIGTERM));
    }
    world.pass(1.0);
    assert_eq!((kinds(&world), world.status()), (vec!["exec"], Some(WaitStatus::exited(3))));
}

/// [reason-outlives]: it has raised the exception itself, or came to its end just before a cancel.
#[test]
fn a_shell_that_had_ended_knows_of_the_exception_too() {
    let mut world = World::running(3, "1");
    let (unit, status) = (world.unit_of(1), WaitStatus::exited(127));
    world.report(1, &unit, UnitEvent::Exited { status });
    world.cancel();
    crash(&mut world);
    world.start("1", true);
    world.pass(1.0);
    assert_eq!(kinds(&world), ["cancel"]);
}

/// [reason-outlives]
#[test]
fn what_is_found_wrong_waits_until_all_ranks_were_heard() {
    let mut world = World::running(3, "1-2");
    // Nobody has ended the job: the shell of rank 1 has failed by itself, and rank 2 is away.
    exit_unseen(&mut world, 1, libc::SIGSEGV);
    crash(&mut world);
    world.nodes[2] = None;
    world.start("1-2", true);
    world.pass(1.0);
    assert_eq!(kinds(&world), [""; 0]);
    world.load(2);
    world.pass(10.0);
    assert_eq!(kinds(&world), ["exec"]);
    assert!(world.notes()[0].contains("Segmentation fault"), "{:?}", world.notes());
    world.exited(2, WaitStatus::signaled(libc::SIGTERM));
    world.assert_ended();
}

/// [reason-outlives]: the shell of rank 1 cannot be started, so that of rank 2 is not.
#[test]
fn what_was_found_wrong_first_counts() {
    let mut world = World::new(3);
    world.start("1-2", false);
    world.disks[1].records.clear();
    crash(&mut world);
    world.nodes[2] = None;
    world.start("1-2", false);
    let (unit, message) = (world.unit_of(1), "no such program".to_string());
    let failed = UnitEvent::Failed(StartFailure { errnum: libc::ENOENT, message }).of(&unit);
    world.happen(1, Event::Supervisor(failed));
    world.pass(1.0);
    world.load_unseen(2);
    let unit = world.unit_of(2);
    world.report(2, &unit, UnitEvent::NeverStarted);
    world.pass(6.0);
    assert!(world.notes()[0].contains("no such program"), "{:?}", world.notes());
    world.assert_ended();
}

/// [reason-outlives]: a later leader could start no shell on a rank that was released.
#[test]
fn nothing_is_released_before_a_failure_counts() {
    let mut world = World::new(3);
    world.start("0-2", false);
    world.all_started(0..2);
    // The job manager has not heard of a start, and asks again.
    crash(&mut world);
    world.nodes[2] = None;
    world.start("0-2", false);
    world.exited(1, WaitStatus::exited(1));
    world.pass(5.0);
    assert_eq!((world.released(), kinds(&world)), (vec![], vec![]));
    world.load(2);
    world.pass(5.0);
    world.started(2);
    world.pass(5.0);
    assert_eq!(world.released(), [("1".to_string(), false)]);
}

/// [reason-outlives]: the next leader excuses a rank that was released and does not answer (simulator
/// seed 40019085).
#[test]
fn a_rank_whose_shell_is_lost_is_not_released_before_that_counts() {
    let mut world = World::running(3, "0-2");
    world.disks[1].records.clear();
    crash(&mut world);
    world.nodes[2] = None;
    world.start("0-2", true);
    world.pass(5.0);
    assert_eq!((world.released(), kinds(&world)), (vec![], vec![]));
    world.load(2);
    world.pass(5.0);
    assert_eq!(kinds(&world), ["exec"]);
    assert_eq!(world.released(), [("1".to_string(), false)]);
}

/// [reason-outlives]
#[test]
fn a_rank_that_does_not_come_back_is_not_waited_for_for_ever() {
    let mut world = cancelled();
    world.disks[1].records.clear();
    crash(&mut world);
    world.nodes[2] = None;
    world.start("1-2", true);
    let timeout = world.config.peer_timeout;
    world.pass(timeout / 2.0);
    assert_eq!(kinds(&world), [""; 0]);
    world.pass(timeout);
    assert_eq!(kinds(&world), ["exec"]);
}

/// A shell that has passed on the first signal and is at its end dies of a second.
#[test]
fn each_shell_gets_one_signal_at_first() {
    for held in [None, Some(2)] {
        let mut world = World::running(3, "1-2");
        (0..3).for_each(|rank| world.unload(rank));
        (0..3).for_each(|rank| world.load(rank));
        // The leader has not heard of the shell on rank 2 when the job is cancelled.
        world.hold_answers_of = held;
        world.start("1-2", true);
        world.cancel();
        world.deliver_held();
        world.pass(1.0);
        world.signals.sort_unstable();
        assert_eq!(world.signals, [(1, libc::SIGTERM), (2, libc::SIGTERM)], "{held:?}");
    }
}

/// The broker between it and the leader has died: before the cancel, or after the signal.
#[test]
fn a_shell_out_of_reach_gets_its_one_signal() {
    for before in [true, false] {
        let mut world = World::running(3, "1-2");
        (0..3).for_each(|rank| world.make_lasting(rank));
        if before {
            world.cut_off(2);
        }
        world.cancel();
        if !before {
            world.cut_off(2);
        }
        world.pass(1.0);
        world.signals.sort_unstable();
        let once = [(1, libc::SIGTERM), (2, libc::SIGTERM)];
        assert_eq!(world.signals, once, "cut off before: {before}");
    }
}

/// Its parent dies when it has passed the signal on, or with the signal. The leader asks it itself,
/// and hears again that its shell runs.
#[test]
fn a_shell_whose_parent_is_lost_gets_its_one_signal() {
    for is_passed_on in [true, false] {
        let mut world = World::running(6, "1-5");
        (0..6).for_each(|rank| world.make_lasting(rank));
        if is_passed_on {
            world.cancel();
            world.lose(2);
        } else {
            world.nodes[2] = None;
            world.cancel();
            world.cut_off(2);
        }
        world.pass(1.0);
        let mut signals = world.signals;
        signals.retain(|(rank, _)| *rank != 2);
        signals.sort_unstable();
        let once = [1, 3, 4, 5].map(|rank| (rank, libc::SIGTERM));
        assert_eq!(signals, once, "passed on: {is_passed_on}");
    }
}

#[test]
fn a_later_leader_that_was_told_of_the_exception_does_not_raise_it_again() {
    let mut world = World::running(3, "1-2");
    world.cancel();
    world.unload(1);
    world.load(1);
    world.pass(1.0);
    for rank in 1..3 {
        world.exited(rank, WaitStatus::signaled(libc::SIGTERM));
    }
    world.pass(1.0);
    assert_eq!(kinds(&world), [""; 0]);
    world.assert_ended();
}

/// [reason-first]
#[test]
fn the_reason_is_written_once_and_before_the_signal() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "d", Mode::Start);
    node.unit(STARTED);
    let unit = UnitName::new(false, BrokerRank(1), JOB, facts(1).instance);
    let reason = EndReason::new("cancel", "", None);
    let order = |signal, reason: &EndReason| Order::Signal {
        signal,
        all: false,
        reason: Some(reason.clone()),
    };
    let signal = |signal| Effect::Unit(unit.clone(), UnitCommand::Signal { signal, all: false });
    let note = Note::EndReason(reason.clone());
    let kept = Effect::Unit(unit.clone(), UnitCommand::Note(note));
    assert_eq!(node.order("d", 1, order(15, &reason)), [kept, signal(15)]);
    let other = EndReason::new("timeout", "late", None);
    assert_eq!(node.order("d", 1, order(14, &other)), [signal(14)], "the first reason stays");
}

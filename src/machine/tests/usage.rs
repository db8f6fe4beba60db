//! What jobs use, and memory that was short.

use super::World;
use crate::config::Config;
use crate::port::supervisor::UnitEvent;
use crate::proto::{BrokerRank, ExecEvent, Response, Usage, WaitStatus, WallTime};

fn usage(memory: u64) -> Usage {
    Usage { memory: Some(memory), user: Some(1_500_000), ..Usage::default() }
}

/// What the supervisor does with a record as well.
fn measure(world: &mut World, rank: usize, usage: &Usage) {
    let unit = world.unit_of(rank);
    let event = UnitEvent::Usage(Box::new(usage.clone()));
    world.report(rank, &unit, event);
}

fn exceptions(world: &World) -> Vec<String> {
    let notes = world.responses.iter().filter_map(|response| match response {
        Response::Exception(exception) if exception.kind == "oom" => {
            assert_ne!(exception.severity, 0, "the job may cope");
            Some(exception.note.clone())
        }
        _ => None,
    });
    notes.collect()
}

/// [usage-kept]
#[test]
fn what_each_rank_has_used_is_put_beside_the_job() {
    let mut world = World::running(4, "1-3");
    for rank in 1..3 {
        measure(&mut world, rank, &usage(rank as u64));
        world.exited(rank, WaitStatus(0));
    }
    world.exited(3, WaitStatus(0));
    world.pass(1.0);
    world.assert_ended();
    let job = world.usage.take().expect("usage");
    assert_eq!((job.ranks.to_string(), job.memory), ("1-2".to_string(), vec![Some(1), Some(2)]));
    assert_eq!(job.unknown[&BrokerRank(3)], "not measured");
}

/// [usage-kept]
#[test]
fn a_leader_that_takes_over_hears_of_it_again() {
    let mut world = World::running(3, "1-2");
    world.make_lasting(1);
    world.make_lasting(2);
    measure(&mut world, 2, &usage(7));
    world.exited(2, WaitStatus(0));
    world.pass(1.0);
    world.unload(1);
    world.load(1);
    world.pass(5.0);
    measure(&mut world, 1, &usage(8));
    world.exited(1, WaitStatus(0));
    world.pass(20.0);
    let job = world.usage.take().expect("usage");
    assert_eq!(job.memory, [Some(8), Some(7)]);
}

#[test]
fn a_rank_that_is_lost_says_why_nothing_is_known() {
    let mut world = World::running(3, "1-2");
    measure(&mut world, 1, &usage(7));
    world.exited(1, WaitStatus(0));
    let unit = world.unit_of(2);
    world.report(2, &unit, UnitEvent::Lost { message: "node was rebooted".to_string() });
    world.report(2, &unit, UnitEvent::Gone);
    world.pass(300.0);
    let job = world.usage.take().expect("usage");
    assert_eq!(job.unknown[&BrokerRank(2)], "node was rebooted");
}

#[test]
fn nothing_is_kept_of_a_job_that_is_not_measured() {
    for (is_wanted, is_measured) in [(false, true), (true, false)] {
        let mut world = World::with(2, Config { usage: is_wanted, ..Config::default() });
        world.start("1", false);
        world.started(1);
        if is_measured {
            measure(&mut world, 1, &usage(7));
        }
        world.exited(1, WaitStatus(0));
        world.pass(1.0);
        world.assert_ended();
        assert_eq!(world.usage, None);
    }
}

/// [oom-told]
#[test]
fn memory_that_was_short_is_told_once_with_the_limit_that_was_reached() {
    let mut world = World::running(4, "1-3");
    world.make_lasting(1);
    let own =
        Usage { limit: Some(20 << 30), oom_kills: Some(2), at_own_limit: true, ..usage(20 << 30) };
    let above = Usage { oom_kills: Some(1), ..usage(3 << 29) };
    measure(&mut world, 2, &own);
    measure(&mut world, 3, &above);
    world.pass(0.1);
    let expected = [
        "out of memory on n1 (rank 2): 2 processes killed at the job's limit of 20G",
        "out of memory on n2 (rank 3): 1 process killed for the node, or a limit above the job, \
         while the job's peak was 1.5G",
    ];
    assert_eq!(exceptions(&world), expected);
    world.unload(1);
    world.load(1);
    world.pass(10.0);
    for rank in 1..4 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(20.0);
    assert_eq!(exceptions(&world), expected, "a later leader does not say it again");
    assert_eq!(world.usage.take().expect("usage").oom_kills, [Some(2), Some(1)]);
}

/// [oom-told]
#[test]
fn a_status_alone_is_no_sign_of_it() {
    let mut world = World::running(2, "1");
    measure(&mut world, 1, &Usage { oom_kills: Some(0), at_own_limit: true, ..usage(1) });
    world.exited(1, WaitStatus(libc::SIGKILL));
    world.pass(1.0);
    assert_eq!(exceptions(&world), [""; 0]);
}

/// The job's user writes the exec eventlog. Ranks that are not the job's are not counted up to.
#[test]
fn a_forged_eventlog_does_not_hold_up_who_takes_over() {
    let mut world = World::running(2, "1");
    world.make_lasting(1);
    let most = "0-16777214".parse().expect("ranks");
    world.events.extend(vec![ExecEvent::oom(WallTime(1.0), &most); 10_000]);
    world.unload(1);
    world.load(1);
    world.pass(10.0);
    measure(&mut world, 1, &Usage { oom_kills: Some(1), ..usage(1) });
    world.exited(1, WaitStatus(0));
    world.pass(20.0);
    assert_eq!(exceptions(&world), [""; 0], "it hides what is told of this job alone");
    assert_eq!(world.usage.take().expect("usage").oom_kills, [Some(1)]);
}

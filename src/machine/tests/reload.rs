//! Modules that come and go while a job runs.

use super::{JOB, World};
use crate::machine::RequestId;
use crate::proto::peer::StreamEnd;
use crate::proto::{ReleasedRanks, Response, WaitStatus};

fn end(mut world: World, members: std::ops::Range<usize>, reattached: usize) {
    let launched = world.launched.len();
    for rank in members.clone() {
        world.exited(rank, WaitStatus::exited(rank as i32));
    }
    world.pass(20.0);
    assert_eq!(launched, members.len(), "nothing was started twice");
    assert_eq!(world.status(), Some(WaitStatus::exited(members.end as i32 - 1)));
    assert_eq!(world.notes(), Vec::<String>::new());
    let count = |wanted: &Response| world.responses.iter().filter(|r| *r == wanted).count();
    assert_eq!(count(&Response::Start {}), 1);
    assert_eq!(count(&Response::Reattached {}), reattached);
    let names = world.event_names();
    for name in ["init", "starting", "shell-exit", "complete", "done"] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{name} in {names:?}");
    }
    assert_eq!(names.last(), Some(&"done"));
    world.assert_ended();
}

impl World {
    /// The broker of a rank dies, as its peers see it.
    pub(super) fn lose(&mut self, rank: usize) {
        self.nodes[rank] = None;
        self.cut_off(rank);
    }

    /// A broker on the way to a rank dies: who waits for an answer from there hears that.
    pub(super) fn cut_off(&mut self, rank: usize) {
        let held: Vec<u64> =
            self.requests.keys().filter(|(at, _)| *at == rank).map(|(_, id)| *id).collect();
        for id in held {
            self.end(rank, RequestId::Remote(id), StreamEnd::BrokerGone);
        }
        self.settle();
    }
}

#[test]
fn the_coordinators_module_is_reloaded() {
    let mut world = World::running(8, "2-7");
    world.unload(0);
    world.load(0);
    world.start("2-7", true);
    world.pass(1.0);
    end(world, 2..8, 1);
}

#[test]
fn the_coordinators_module_is_away_while_the_job_ends() {
    let mut world = World::running(4, "2-3");
    world.unload(0);
    world.exited(2, WaitStatus::exited(2));
    world.exited(3, WaitStatus::exited(3));
    world.pass(1.0);
    world.load(0);
    world.start("2-3", true);
    world.pass(1.0);
    assert_eq!(
        world.responses[1..],
        [
            Response::Reattached {},
            Response::Finish { status: WaitStatus::exited(3) },
            Response::Release { ranks: ReleasedRanks::All, is_final: true },
        ]
    );
}

#[test]
fn the_leaders_module_is_reloaded() {
    let mut world = World::running(8, "2-7");
    world.output(5, 0, "before\n");
    world.pass(0.1);
    world.unload(2);
    world.output(5, 7, "meanwhile\n");
    world.pass(0.05);
    world.load(2);
    world.pass(1.0);
    world.output(5, 17, "after\n");
    world.pass(0.1);
    let logged: String = world
        .events
        .iter()
        .filter(|event| event.name == "log")
        .filter_map(|event| event.context["data"].as_str())
        .collect();
    assert_eq!(logged, "before\nmeanwhile\nafter\n");
    assert!(world.event_names().contains(&"reattach"));
    end(world, 2..8, 0);
}

#[test]
fn a_followers_module_is_reloaded() {
    for rank in 3..8 {
        let mut world = World::running(8, "2-7");
        world.unload(rank);
        world.pass(1.0);
        world.load(rank);
        world.pass(10.0);
        end(world, 2..8, 0);
    }
}

#[test]
fn a_shell_exits_while_its_module_is_away() {
    let mut world = World::running(4, "1-3");
    world.unload(3);
    world.exited(3, WaitStatus::exited(3));
    world.load(3);
    world.pass(1.0);
    world.exited(1, WaitStatus::exited(1));
    world.exited(2, WaitStatus::exited(2));
    world.pass(10.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(3)));
    world.assert_ended();
}

/// Its shell may not have heard before that the leader shell has ended (chaos seeds 5943 and 8000).
#[test]
fn a_shell_has_as_long_to_end_when_its_module_is_back() {
    let mut world = World::running(4, "1-3");
    let timeout = world.config.shell_exit_timeout.expect("it is set");
    world.exited(2, WaitStatus(0));
    world.unload(3);
    world.pass(1.0);
    world.exited(1, WaitStatus(0));
    world.pass(timeout * 2.0);
    world.load(3);
    world.pass(timeout * 0.9);
    assert_eq!(world.notes(), [""; 0]);
    world.pass(timeout * 0.2);
    assert_eq!(
        world.notes(),
        ["job shells still active on n2 (rank 3) 30s after leader shell exit"]
    );
}

#[test]
fn a_new_leader_gives_as_long_to_a_shell_that_it_hears_of_late() {
    let mut world = World::running(4, "1-3");
    let timeout = world.config.shell_exit_timeout.expect("it is set");
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
    }
    (0..4).for_each(|rank| world.unload(rank));
    (0..3).for_each(|rank| world.load(rank));
    world.start("1-3", true);
    world.pass(timeout * 0.9);
    world.load(3);
    ends_well_in_time(world);
}

/// The shell of rank 3 ends just before its time is over.
fn ends_well_in_time(mut world: World) {
    world.pass(world.config.shell_exit_timeout.expect("it is set") * 0.9);
    assert_eq!(world.notes(), [""; 0]);
    world.exited(3, WaitStatus(0));
    world.pass(20.0);
    assert_eq!(world.status(), Some(WaitStatus(0)));
    world.assert_ended();
}

/// It has the request, and takes long to answer.
#[test]
fn a_shell_of_which_nothing_was_heard_is_not_said_to_run() {
    let mut world = World::running(4, "1-3");
    let timeout = world.config.shell_exit_timeout.expect("it is set");
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
    }
    (0..4).for_each(|rank| world.unload(rank));
    (0..4).for_each(|rank| world.load(rank));
    world.hold_answers_of = Some(3);
    world.start("1-3", true);
    world.pass(timeout * 1.5);
    world.hold_answers_of = None;
    world.deliver_held();
    ends_well_in_time(world);
}

/// systemd is slow to answer the module that is back: whether the shell runs is not known yet.
#[test]
fn a_shell_that_was_not_looked_at_is_not_said_to_run() {
    for has_new_leader in [false, true] {
        let mut world = World::running(4, "1-3");
        let timeout = world.config.shell_exit_timeout.expect("it is set");
        if has_new_leader {
            (0..3).for_each(|rank| world.unload(rank));
        }
        world.unload(3);
        let records = world.load_unseen(3);
        if has_new_leader {
            (0..3).for_each(|rank| world.load(rank));
            world.start("1-3", true);
        }
        (1..3).for_each(|rank| world.exited(rank, WaitStatus(0)));
        world.pass(timeout * 1.5);
        assert_eq!(world.notes(), [""; 0], "{has_new_leader}");
        for record in records {
            world.look_at_unit(3, &record);
        }
        world.pass(timeout * 0.9);
        assert_eq!(world.notes(), [""; 0], "{has_new_leader}");
        world.pass(timeout * 0.2);
        assert_eq!(
            world.notes(),
            ["job shells still active on n2 (rank 3) 30s after leader shell exit"]
        );
    }
}

#[test]
fn all_modules_are_reloaded_in_any_order() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let mut world = World::running(4, "1-3");
        for rank in order {
            world.unload(rank);
        }
        for rank in order {
            world.load(rank);
            if rank == 0 {
                world.start("1-3", true);
            }
            world.pass(0.3);
        }
        world.pass(10.0);
        end(world, 1..4, 1);
    }
}

#[test]
fn a_job_that_was_never_reported_started_is_adopted_not_started_again() {
    let mut world = World::new(3);
    world.start("1-2", false);
    world.started(1);
    for rank in 0..3 {
        world.unload(rank);
    }
    for rank in 0..3 {
        world.load(rank);
    }
    world.start("1-2", false);
    world.pass(1.0);
    world.all_started(2..3);
    world.pass(1.0);
    assert_eq!(world.launched, [1, 2]);
    assert_eq!(world.responses, [Response::Start {}]);
}

#[test]
fn an_exception_while_the_leader_is_away_ends_the_job() {
    let mut world = World::running(3, "1-2");
    world.unload(1);
    world.cancel();
    world.load(1);
    world.pass(1.0);
    assert!(world.signals.contains(&(1, libc::SIGTERM)), "{:?}", world.signals);
    assert!(world.signals.contains(&(2, libc::SIGTERM)), "{:?}", world.signals);
}

#[test]
fn a_shell_waits_in_the_barrier_while_its_leader_is_reloaded() {
    let mut world = World::new(4);
    world.start("1-3", false);
    world.all_started(1..4);
    let first = world.enter_barrier(2);
    world.unload(1);
    world.load(1);
    world.pass(1.0);
    assert_eq!(world.barrier, []);
    world.enter_barrier(1);
    world.enter_barrier(3);
    world.pass(0.1);
    assert_eq!(world.barrier.len(), 3);
    assert!(world.barrier.contains(&(first, Ok(()))));
}

#[test]
fn a_lost_parents_children_are_asked_by_the_leader() {
    let mut world = World::running(8, "0-7");
    world.happen(0, critical("0-3,5-7"));
    // Rank 4 is the parent of 5 to 7 in a tree of two.
    world.lose(4);
    world.pass(1.0);
    assert_eq!(world.notes(), ["node failure on n4 (shell rank 4)"], "not fatal");
    for rank in [0, 1, 2, 3, 5, 6, 7] {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus(0)));
    assert_eq!(world.released().last().map(|r| r.1), Some(true));
}

fn critical(ranks: &str) -> super::Event {
    super::Event::CriticalRanks {
        request: super::RequestId::Remote(3),
        credential: super::Credential { userid: super::OWNER, owner: true, local: true },
        id: JOB,
        ranks: ranks.to_string(),
    }
}

#[test]
fn a_lost_critical_node_fails_the_job() {
    let mut world = World::running(3, "0-2");
    world.lose(2);
    world.pass(0.1);
    assert_eq!(world.notes(), ["node failure on n2 (rank 2)"]);
    assert_eq!(world.signals, [(0, libc::SIGTERM), (1, libc::SIGTERM)]);
}

#[test]
fn a_leader_that_does_not_come_back_is_replaced_after_the_timeout() {
    let mut world = World::running(4, "1-3");
    world.unload(1);
    world.pass(world.config.peer_timeout + 20.0);
    assert!(world.notes()[0].contains("node failure on n0"), "{:?}", world.notes());
    for rank in [2, 3] {
        assert!(world.signals.contains(&(rank, libc::SIGTERM)), "{:?}", world.signals);
        world.exited(rank as usize, WaitStatus::exited(1));
    }
    world.pass(1.0);
    assert_eq!(world.released().last().map(|r| r.1), Some(true));
}

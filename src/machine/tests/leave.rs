//! A shell that has left its unit: an empty cgroup says nothing of the job's processes.

use super::{JOB, World};
use crate::port::supervisor::UnitEvent;
use crate::proto::WaitStatus;

fn reason(rank: u32) -> String {
    format!("{rank} processes of job {JOB} may run outside of their unit")
}

fn note(rank: u32) -> String {
    format!(
        "job shell left its unit on n{rank} (rank {rank}): processes of the job may run outside \
         of it"
    )
}

fn end(mut world: World, ranks: &[usize]) {
    for rank in ranks {
        world.exited(*rank, WaitStatus::exited(1));
    }
    world.pass(1.0);
    world.assert_ended();
}

impl World {
    /// The shell on `rank` lives outside of its unit.
    fn left(&mut self, rank: usize) {
        let unit = self.unit_of(rank);
        if let Some(record) = self.disks[rank].records.get_mut(&unit) {
            record.left = true;
        }
        self.report(rank, &unit, UnitEvent::Left);
    }
}

#[test]
fn a_rank_whose_shell_left_its_unit_is_drained_before_it_is_released() {
    let mut world = World::running(3, "0-2");
    world.left(1);
    world.pass(0.1);
    assert_eq!(world.drained, [reason(1)]);
    assert_eq!(world.notes(), [note(1)]);
    assert!(world.signals.contains(&(1, libc::SIGTERM)), "{:?}", world.signals);
    assert_eq!(world.released(), [], "it lives");
    world.exited(1, WaitStatus(0));
    world.pass(1.0);
    assert_eq!(world.released(), [("1".to_string(), false)]);
    assert_eq!(world.drained, [reason(1)], "once");
    end(world, &[0, 2]);
}

#[test]
fn a_leave_that_is_heard_after_the_exit_drains_as_well() {
    let mut world = World::running(3, "0-2");
    // The agent hears both before it can tell.
    world.unload(0);
    world.left(1);
    world.exited(1, WaitStatus(0));
    assert_eq!(world.drained, [] as [&str; 0]);
    world.load(0);
    world.start("0-2", true);
    world.pass(5.0);
    assert_eq!(world.drained, [reason(1)]);
    assert_eq!(world.notes(), [note(1)]);
    end(world, &[0, 2]);
}

#[test]
fn a_leave_is_told_by_the_next_life_of_its_agent() {
    let mut world = World::running(3, "0-2");
    world.unload(1);
    let unit = world.unit_of(1);
    world.disks[1].records.get_mut(&unit).expect("a record").left = true;
    world.load(1);
    world.pass(5.0);
    assert_eq!(world.drained, [reason(1)]);
    end(world, &[0, 1, 2]);
}

#[test]
fn a_new_leader_drains_again_but_not_what_was_released() {
    let mut world = World::running(4, "1-3");
    world.left(2);
    world.left(3);
    world.exited(3, WaitStatus(0));
    world.pass(1.0);
    assert_eq!(world.released(), [("3".to_string(), false)]);
    assert_eq!(world.drained, [reason(2), reason(3)]);
    world.unload(1);
    world.load(1);
    world.pass(5.0);
    assert_eq!(world.drained, [reason(2), reason(3), reason(2)]);
    end(world, &[1, 2]);
}

#[test]
fn a_shell_that_nobody_leads_and_that_has_left_is_drained_by_its_rank() {
    let mut world = World::new(2);
    world.start("1", false);
    world.started(1);
    world.left(1);
    world.drained.clear();
    world.unload(1);
    world.unload(0);
    world.load(0);
    world.make_stoppable(1);
    world.load(1);
    world.pass(world.config.peer_timeout * 3.0);
    assert_eq!(world.drained, [reason(1)]);
    assert_eq!(world.records(), 0);
}

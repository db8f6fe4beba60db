//! A rank that was stopped for longer than `peer-timeout`: when it wakes, the time has jumped, and it
//! has not heard what others have said meanwhile.

use super::World;
use crate::machine::Event;
use crate::port::supervisor::SupervisorEvent;
use crate::proto::{Mute, Response};

impl World {
    /// Nobody does anything for longer than `peer-timeout`. Timers are due then.
    pub(super) fn stop_all(&mut self) {
        self.now += self.config.peer_timeout * 5.0;
    }
}

#[test]
fn a_leader_asks_again_when_it_wakes_before_it_gives_up() {
    let mut world = World::running(3, "0-1");
    (0..2).for_each(|rank| world.make_lasting(rank));
    world.unload(1);
    world.pass(10.0);
    world.load(1);
    world.stop_all();
    world.pass(10.0);
    assert_eq!((world.notes(), &world.drained), (vec![], &vec![]));
    world.unload(1);
    world.stop_all();
    world.pass(10.0);
    assert_eq!(world.notes(), Vec::<String>::new(), "it may come back, too");
    world.pass(world.config.peer_timeout);
    assert_eq!(world.notes(), ["node failure on n1 (rank 1)"]);
}

#[test]
fn a_coordinator_asks_again_when_it_wakes_before_it_gives_up() {
    let mut world = World::running(3, "1-2");
    world.unload(1);
    world.pass(10.0);
    world.load(1);
    world.stop_all();
    world.pass(10.0);
    assert_eq!(world.errors, Vec::<String>::new());
    assert_eq!(world.responses, [Response::Start {}]);
}

#[test]
fn a_rank_that_wakes_waits_for_what_systemd_has_said_before_it_drains_itself() {
    let mut world = World::running(2, "0-1");
    let what = "a sign of life".to_string();
    world.happen(1, Event::Supervisor(SupervisorEvent::Silent { who: Mute::Systemd, what }));
    world.pass(10.0);
    world.stop_all();
    world.pass(1.0);
    world.happen(1, Event::Supervisor(SupervisorEvent::Answers { who: Mute::Systemd }));
    world.pass(600.0);
    assert_eq!(world.drained, Vec::<String>::new());
}

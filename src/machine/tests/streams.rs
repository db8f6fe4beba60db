//! Streams of one leader that lead to the same rank.

use super::*;
use crate::proto::peer::ShellsRequest;

/// A request of the leader for rank 2.
fn request_for_2() -> Box<ShellsRequest> {
    let mut world = World::running(3, "0-2");
    world.unload(2);
    world.load(2);
    world.hold_asked = true;
    world.pass(2.0);
    let asked = world.held.into_iter().find_map(|(rank, event)| match event {
        Event::Shells { shells, .. } if rank == 2 => Some(shells),
        _ => None,
    });
    asked.expect("rank 2 is asked again")
}

/// [orphans-asked] Seed 7 of the profile large: the request of an older tree came after that of a newer
/// one, so that no tree led to the rank any more, and its shell waited in the barrier for ever.
#[test]
fn a_rank_that_a_parent_has_lost_to_another_request_is_asked_again() {
    let mut world = World::running(3, "0-2");
    let request = RequestId::Remote(9999);
    world.happen(2, Event::Shells { request, shells: request_for_2() });
    world.pass(2.0);
    for rank in 0..3 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(1.0);
    world.assert_ended();
}

//! Ranks and commits that a leader gives up.

use super::{Credential, JOB, OWNER, World};
use crate::machine::{Event, RequestId};
use crate::proto::{ExecEvent, WaitStatus};

/// [drained-first]
#[test]
fn a_rank_is_not_released_before_it_is_drained() {
    for is_last in [false, true] {
        let mut world = World::running(3, "0-1");
        (0..2).for_each(|rank| world.make_lasting(rank));
        let credential = Credential { userid: OWNER, owner: true, local: true };
        let (request, ranks) = (RequestId::Remote(3), "0".to_string());
        world.happen(0, Event::CriticalRanks { request, credential, id: JOB, ranks });
        world.hold_drains = true;
        world.lose(1);
        world.pass(world.config.peer_timeout + 20.0);
        assert!(world.drained[0].starts_with("1 lost contact"), "{:?}", world.drained);
        if is_last {
            world.exited(0, WaitStatus(0));
        }
        world.pass(600.0);
        let others = if is_last { vec![("0".to_string(), false)] } else { vec![] };
        assert_eq!(world.released(), others);
        world.deliver_held();
        world.pass(1.0);
        assert_eq!(world.released().last(), Some(&("1".to_string(), is_last)));
    }
}

/// [missing-said]
#[test]
fn output_of_a_commit_that_is_given_up_is_said_to_be_missing_and_counts() {
    let mut world = World::running(2, "0-1");
    world.fail_commits = 10;
    world.output(0, 0, "first\n");
    world.pass(4.5);
    world.output(0, 6, "second\n");
    world.pass(8.0);
    assert_eq!(world.fail_commits, 0);
    world.output(0, 13, "third\n");
    world.pass(1.0);
    let logged = |world: &World| {
        let of =
            |event: &ExecEvent| Some((event.logged()?.2, event.context.contains_key("missing")));
        world.events.iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(logged(&world), [(13, true), (6, false)]);
    world.unload(0);
    world.load(0);
    world.start("0-1", true);
    world.started(0);
    world.output(0, 13, "third\n");
    world.pass(1.0);
    assert_eq!(logged(&world), [(13, true), (6, false)], "what follows is not said twice");
}

//! A node that has lost what it knew when its power was cut.

use super::recovery::{Alone, report, shells};
use super::{Facts, Node, World, facts, ready, start, start_event};
use crate::config::Config;
use crate::machine::{Event, RequestId};
use crate::port::supervisor::REBOOTED;
use crate::proto::WallTime;
use crate::proto::peer::Mode;

/// [reboot-named]
#[test]
fn a_rank_that_knows_nothing_says_whether_its_node_was_rebooted_since() {
    for (ran_for, clock_is_ahead, rebooted) in
        [(5.0, 0.0, false), (45.0, 0.0, true), (5.0, 3600.0, false), (45.0, -3600.0, true)]
    {
        let facts = Facts { uptime: 10.0, ..facts(1) };
        let mut node = Alone::with(ready(Node::new(Config::default(), facts)));
        node.hear(Event::Timeout);
        // It was loaded 10 s ago already.
        node.now += 20.0;
        let mut request = shells(1, "job", Mode::Adopt);
        request.issued = WallTime(1e9 + node.now + clock_is_ahead);
        request.command.allocated = Some(WallTime(request.issued.0 - ran_for));
        let request = Event::Shells { request: RequestId::Remote(1), shells: Box::new(request) };
        let told: Vec<_> = node.hear(request).iter().filter_map(report).collect();
        assert_eq!(format!("{told:?}").contains(REBOOTED), rebooted, "{told:?}");
        assert_eq!(format!("{told:?}").contains("nothing is known"), !rebooted, "{told:?}");
    }
}

/// [reboot-named]
#[test]
fn a_job_whose_node_has_lost_its_record_hears_that_it_was_rebooted() {
    let mut world = World::new(3);
    (0..3).for_each(|rank| world.make_lasting(rank));
    let request = world.request();
    world.happen(0, start_event(request, &start("1-2", false)));
    world.all_started(1..3);
    world.pass(60.0);
    world.lose(2);
    world.disks[2].records.clear();
    let facts = Facts { uptime: 10.0, ..facts(2) };
    world.nodes[2] = Some(Node::new(world.config.clone(), facts));
    world.make_lasting(2);
    world.pass(10.0);
    assert_eq!(world.notes(), ["job shell lost on n1 (rank 2): node was rebooted"]);
}

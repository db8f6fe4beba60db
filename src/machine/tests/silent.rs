//! A systemd that does not answer.

use super::{World, start, start_event};
use crate::machine::Event;
use crate::port::supervisor::UnitEvent;

#[test]
fn a_rank_whose_systemd_hangs_drains_itself() {
    for answers in [true, false] {
        let mut world = World::new(3);
        (0..3).for_each(|rank| world.make_lasting(rank));
        let request = world.request();
        world.happen(0, start_event(request, &start("0-2", false)));
        world.all_started(0..3);
        let what = "a sign of life".to_string();
        world.happen(2, Event::Unit(UnitEvent::Silent { what }));
        world.pass(60.0);
        if answers {
            world.happen(2, Event::Unit(UnitEvent::Answers));
        }
        world.pass(600.0);
        let drained = format!("{:?}", world.drained);
        assert_eq!(drained.matches("systemd has not answered").count(), usize::from(!answers));
        // What is unknown is not dead.
        assert!(world.notes().is_empty(), "{:?}", world.notes());
    }
}

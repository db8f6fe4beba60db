//! Ranks that say nothing when they are asked.

use std::collections::BTreeSet;

use super::recovery::Alone;
use super::recovery::{lead_of, question_of};
use super::{World, facts, start, start_event};
use crate::config::Config;
use crate::machine::mono_time::MonoTime;
use crate::machine::{Effect, Effects, Event, Listing, Node, Now, RequestId};
use crate::proto::peer::{Mode, StreamName};
use crate::proto::{WaitStatus, WallTime};

fn end(mut world: World, ranks: std::ops::Range<usize>) {
    for rank in ranks {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(1.0);
    world.assert_ended();
}

/// The request to lead, and the one for the shell of another rank.
#[test]
fn a_request_that_is_lost_without_an_error_is_made_again() {
    for (job, ranks) in [("1", 1..2), ("0-1", 0..2)] {
        let mut world = World::new(3);
        world.hold_asked = true;
        world.start(job, false);
        world.hold_asked = false;
        assert_eq!(world.held.len(), 1, "{job}");
        world.held.clear();
        world.pass(9.0);
        assert!(!world.launched.contains(&1), "its rank may be slow");
        world.pass(3.0);
        world.all_started(ranks.clone());
        end(world, ranks);
    }
}

/// The module there is gone, and comes back.
#[test]
fn a_lost_request_is_made_again_when_its_rank_can_be_reached() {
    let mut world = World::new(3);
    world.hold_asked = true;
    world.start("0-2", false);
    world.hold_asked = false;
    world.held.clear();
    world.lose(1);
    world.pass(12.0);
    world.load(1);
    world.pass(10.0);
    world.all_started(0..3);
    end(world, 0..3);
}

#[test]
fn a_rank_that_has_the_request_is_not_asked_for_anything_again() {
    let mut world = World::new(3);
    world.hold_answers_of = Some(1);
    world.start("0-2", false);
    world.all_started(0..3);
    let (launched, messages) = (world.launched.clone(), world.messages);
    world.pass(35.0);
    assert_eq!((world.questions.len(), world.messages), (3, messages), "each 10 s");
    world.hold_answers_of = None;
    let held = std::mem::take(&mut world.held);
    world.queue.extend(held);
    assert_eq!(world.launched, launched);
    end(world, 0..3);
}

/// It has nothing to say while a shell is slow to start. Seen by `tests/nodes`, seed 5.
#[test]
fn a_leader_that_has_the_request_is_not_given_up_for_the_time_before() {
    let mut world = World::new(3);
    let almost = world.config.peer_timeout * 0.8;
    world.lose(1);
    world.start("1-2", false);
    world.pass(almost);
    world.load(1);
    world.pass(25.0);
    assert_eq!(world.launched, [1, 2]);
    world.lose(1);
    world.pass(almost);
    assert!(world.errors.iter().all(|text| !text.contains("gave up")), "{:?}", world.errors);
    world.load(1);
    world.pass(10.0);
    world.all_started(1..3);
    end(world, 1..3);
}

/// The same of another rank of the job.
#[test]
fn a_rank_that_has_the_request_is_not_given_up_for_the_time_before() {
    let mut world = World::new(3);
    let almost = world.config.peer_timeout * 0.8;
    world.lose(2);
    world.start("1-2", false);
    world.pass(almost);
    world.load(2);
    world.pass(25.0);
    assert_eq!(world.launched, [1, 2]);
    world.unload(2);
    world.pass(almost);
    assert_eq!(world.notes(), [""; 0]);
    world.load(2);
    world.pass(10.0);
    world.all_started(1..3);
    end(world, 1..3);
}

/// [parent-asked], and the question is lost.
#[test]
fn a_parent_that_says_nothing_is_asked_again() {
    let mut agent = Alone::new(1);
    agent.shells(7, 1, "d", Mode::Start);
    for _ in 0..2 {
        agent.now += 301.0;
        let effects = agent.hear(Event::Timeout);
        assert!(effects.iter().any(|e| question_of(e).is_some()), "{effects:?}");
    }
}

/// [stream-named]
#[test]
fn no_two_streams_of_a_rank_have_one_name() {
    let names = |loaded: f64| {
        let (mut node, mut out) = (Node::new(Config::default(), facts(0)), Effects::default());
        let now = Now { mono: MonoTime(0.0), wall: WallTime(loaded) };
        node.handle(now, Event::RunningAsked(Listing::default()), &mut out);
        for number in 1..4 {
            let start = start_event(RequestId::Remote(number), &start("1", false));
            node.handle(now, start, &mut out);
        }
        let name = |effect: &Effect| Some(lead_of(effect)?.1.stream);
        out.list.iter().filter_map(name).collect::<BTreeSet<StreamName>>()
    };
    let (first, second) = (names(1e9 - 1.0), names(1e9));
    assert_eq!((first.len(), second.len()), (3, 3));
    assert!(first.is_disjoint(&second), "{first:?} {second:?}");
}

//! Streams of one leader that lead to the same rank.

use super::*;
use crate::proto::peer::{RankReport, Report, Reports, ShellsRequest};

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

/// How often the leader asks rank 2 when the stream that leads to it has brought these reports about it.
fn asks_after(reports: &[Report]) -> usize {
    let mut world = World::running(3, "0-2");
    // From now on the leader asks rank 2 itself.
    world.unload(2);
    world.load(2);
    world.pass(2.0);
    let asked = world.requests.range((2, 0)..(3, 0)).next_back();
    let Some((_, (0, Awaited::Reports(stream)))) = asked else { panic!("no stream") };
    let stream = *stream;
    world.hold_asked = true;
    for report in reports {
        let reports = vec![RankReport { ranks: BrokerRank(2).into(), report: report.clone() }];
        world.happen(0, Event::Reported { stream, result: Ok(Reports { reports }) });
    }
    world.pass(2.0);
    let is_asked =
        |(rank, event): &&(usize, Event)| *rank == 2 && matches!(event, Event::Shells { .. });
    world.held.iter().filter(is_asked).count()
}

/// [orphans-asked]
#[test]
fn a_stream_does_not_lead_to_a_rank_that_it_has_lost() {
    let asked_again = Report::Unreachable { end: StreamEnd::AskedAgain };
    assert_eq!(asks_after(std::slice::from_ref(&Report::Orphaned)), 1);
    assert_eq!(asks_after(&[Report::Orphaned, Report::Orphaned]), 1, "said twice");
    assert_eq!(
        asks_after(&[Report::Orphaned, asked_again.clone()]),
        1,
        "a newer stream leads to it"
    );
    assert_eq!(asks_after(&[asked_again]), 1);
}

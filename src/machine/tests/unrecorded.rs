//! Shells whose records were lost. Their units are known all the same.

use std::collections::BTreeMap;
use std::ops::Range;

use super::recovery::{Alone, STARTED, launches};
use super::{JOB, OWNER, World, facts, record};
use crate::machine::{Credential, Effect, Event, Listing, RequestId, StreamItem};
use crate::port::Note;
use crate::port::supervisor::{SupervisorEvent, UnitCommand, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::{Mode, Report};
use crate::proto::{BarrierEntry, BrokerRank, Response, UnitName, WaitStatus};

impl World {
    /// The record on a rank is lost, and made again from the unit.
    fn make_again(&mut self, rank: usize, output_lost: bool) {
        let note = Note::MadeAgain { output_lost };
        for record in self.disks[rank].records.values_mut() {
            record.notes = BTreeMap::from([(note.key(), note.value())]);
        }
    }
}

/// All shells on these ranks run, and have passed the barrier.
fn past_the_barrier(size: usize) -> World {
    let ranks = format!("0-{}", size - 1);
    let mut world = World::new(size);
    world.start(&ranks, false);
    world.all_started(0..size);
    for _ in 0..2 {
        for rank in 0..size {
            world.enter_barrier(rank);
        }
        world.pass(0.1);
    }
    assert_eq!(world.barrier.len(), 2 * size);
    world
}

fn reload_all(world: &mut World, size: usize) {
    (0..size).for_each(|rank| world.unload(rank));
    (0..size).for_each(|rank| world.load(rank));
    world.start(&format!("0-{}", size - 1), true);
    world.pass(1.0);
}

/// [record-lost-barrier]
#[test]
fn a_lost_record_does_not_cost_the_job() {
    for lost in [0..1, 2..3, 0..2, 0..3] {
        for first in [0, 2] {
            let mut world = past_the_barrier(3);
            lost.clone().for_each(|rank| world.make_again(rank, false));
            reload_all(&mut world, 3);
            // No clock runs for shells that have come and gone.
            world.pass(4000.0);
            let ranks = (first..3).chain(0..first);
            for rank in ranks {
                world.exited(rank, WaitStatus::exited(i32::from(rank == 1)));
                world.pass(1.0);
            }
            assert_eq!(world.notes(), [""; 0], "{lost:?}, {first}");
            assert_eq!(world.status(), Some(WaitStatus::exited(1)), "{lost:?}, {first}");
            assert!(!world.event_names().contains(&"log"), "nothing was lost");
        }
    }
}

/// [barrier-fails]: all brokers were killed when rank 2 had not heard that it may leave the barrier,
/// and the next leader hears of rank 1's end first.
#[test]
fn nobody_is_refused_before_all_ranks_have_said_how_often_they_have_entered() {
    let mut world = past_the_barrier(3);
    (0..3).for_each(|rank| world.unload(rank));
    for rank in 0..3 {
        // Nor was there time to note that the others have left it.
        world.disks[rank].records.values_mut().for_each(|record| {
            record.notes.remove("barrier-passed");
        });
        world.load(rank);
    }
    world.hold_answers_of = Some(2);
    world.start("0-2", true);
    enters_again(&mut world, 2);
    world.exited(1, WaitStatus::exited(3));
    world.pass(1.0);
    assert_eq!(answer(&world, 2), None);
    world.deliver_held();
    world.pass(1.0);
    assert_eq!(answer(&world, 2), Some(Ok(())));
    assert_eq!(world.notes(), [""; 0]);
}

/// [record-lost-barrier]
#[test]
fn who_has_certainly_not_entered_still_fails_the_job() {
    let mut world = World::new(3);
    world.start("0-2", false);
    world.all_started(0..3);
    world.enter_barrier(0);
    world.pass(0.1);
    world.make_again(0, false);
    reload_all(&mut world, 3);
    world.exited(1, WaitStatus::exited(0));
    world.pass(0.1);
    assert!(world.notes()[0].contains("terminated before first barrier"), "{:?}", world.notes());
}

/// [record-lost-barrier]
#[test]
fn a_shell_that_enters_again_is_counted_again() {
    let mut world = World::new(3);
    world.start("0-2", false);
    world.all_started(0..3);
    world.enter_barrier(1);
    world.make_again(1, false);
    reload_all(&mut world, 3);
    let requests: Vec<u64> = (0..3).map(|rank| world.enter_barrier(rank)).collect();
    world.pass(0.1);
    let is_let_go = |request| world.barrier.contains(&(request, Ok(())));
    assert!(requests.into_iter().all(is_let_go), "{:?}", world.barrier);
}

/// [missing-said]
#[test]
fn output_that_was_lost_with_the_record_is_said_to_be_missing_once() {
    let mut world = past_the_barrier(2);
    world.make_again(1, true);
    for _ in 0..3 {
        reload_all(&mut world, 2);
    }
    let missing = |world: &World| {
        let ranks = world.events.iter().filter_map(|event| event.logged_missing());
        ranks.collect::<Vec<_>>()
    };
    assert_eq!(missing(&world), [BrokerRank(1)]);
    let text = world.events.iter().find_map(|event| event.context.get("data")?.as_str());
    assert!(text.is_some_and(|text| text.contains("was lost")), "{text:?}");
}

/// What is known of a unit that has lost its record.
fn made_again(digest: &str) -> Box<UnitRecord> {
    let note = Note::MadeAgain { output_lost: true };
    let unit = UnitName::new(false, BrokerRank(1), JOB, facts(1).instance);
    let spec = UnitSpec { userid: 500, size: 2, ..UnitSpec::bare(unit, digest.into()) };
    let notes = BTreeMap::from([(note.key(), note.value())]);
    Box::new(UnitRecord { notes, ..record(&spec) })
}

fn reports(effects: &[Effect]) -> Vec<Report> {
    let items = effects.iter().filter_map(|effect| match effect {
        Effect::Stream { item: StreamItem::Reports(reports), .. } => Some(reports),
        _ => None,
    });
    items.flat_map(|reports| &reports.reports).map(|report| report.report.clone()).collect()
}

fn has(effects: &[Effect], wanted: fn(&UnitCommand) -> bool) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Unit(_, command) if wanted(command)))
}

fn collects(effects: &[Effect]) -> bool {
    has(effects, |command| matches!(command, UnitCommand::Collect))
}

/// [unrecorded-known]
#[test]
fn the_leader_of_the_same_job_adopts_the_unit() {
    for mode in [Mode::Start, Mode::Adopt] {
        let mut rank = Alone::new(1);
        rank.hear(Event::Supervisor(SupervisorEvent::Found(made_again("d"))));
        rank.unit(STARTED);
        let effects = rank.shells(1, 1, "d", mode);
        assert_eq!(launches(&effects), 0);
        let told = reports(&effects);
        assert_eq!(told, [Report::Running, Report::RecordLost { output: true }]);
    }
}

/// [unrecorded-known]
#[test]
fn a_unit_of_another_job_is_ended_first() {
    let mut rank = Alone::new(1);
    rank.hear(Event::Supervisor(SupervisorEvent::Found(made_again("other"))));
    rank.unit(STARTED);
    let effects = rank.shells(1, 1, "d", Mode::Start);
    assert!(collects(&effects) && launches(&effects) == 0);
    let kills = |command: &UnitCommand| {
        matches!(command, UnitCommand::Signal { signal: libc::SIGKILL, all: false, .. })
    };
    assert!(has(&effects, kills), "else it says that its tasks have died, in the new job's name");
    rank.unit(UnitEvent::Exited { status: WaitStatus(9) });
    assert_eq!(launches(&rank.unit(UnitEvent::Gone)), 1);
}

/// [unrecorded-known]
#[test]
fn a_unit_that_is_found_too_late_is_ended() {
    for digest in ["d", "other"] {
        let mut rank = Alone::new(1);
        let told = reports(&rank.shells(1, 1, "d", Mode::Adopt));
        assert!(matches!(&told[..], [Report::Lost { .. }, Report::Gone]), "{told:?}");
        let effects = rank.hear(Event::Supervisor(SupervisorEvent::Found(made_again(digest))));
        assert!(collects(&effects), "nobody counts on it");
        rank.unit(STARTED);
        rank.unit(UnitEvent::Exited { status: WaitStatus(15) });
        let effects = rank.unit(UnitEvent::Gone);
        assert!(has(&effects, |command| matches!(command, UnitCommand::Forget)));
        assert_eq!(reports(&effects), [], "the leader does not hear of it");
    }
}

/// All brokers were killed when ranks 0 and 1 had left the barrier, and rank 2 had not heard of it.
/// All records are lost.
fn one_still_waits() -> World {
    let mut world = past_the_barrier(3);
    reload_all(&mut world, 3);
    (0..3).for_each(|rank| world.make_again(rank, false));
    reload_all(&mut world, 3);
    enters_again(&mut world, 2);
    assert_eq!(answer(&world, 2), None, "nobody knows that the others have passed");
    world
}

/// The connector says the shell's last entry.
fn enters_again(world: &mut World, rank: usize) {
    let credential = Credential { userid: OWNER, owner: true, local: true };
    let (request, entry) = (RequestId::Remote(70 + rank as u64), Some(BarrierEntry::of_shell(2)));
    let event =
        Event::ShellBarrier { request, credential, id: JOB, rank: BrokerRank(rank as u32), entry };
    world.happen(rank, event);
    world.pass(1.0);
}

fn answer(world: &World, rank: usize) -> Option<Result<(), i32>> {
    let mut answers = world.barrier.iter();
    answers.rfind(|(to, _)| *to == 70 + rank as u64).map(|(_, result)| *result)
}

#[test]
fn who_still_waits_is_let_go_when_the_others_have_said_their_entry_again() {
    let mut world = one_still_waits();
    enters_again(&mut world, 0);
    assert_eq!(answer(&world, 2), None, "rank 1 is out");
    enters_again(&mut world, 1);
    assert_eq!((0..3).map(|rank| answer(&world, rank)).collect::<Vec<_>>(), [Some(Ok(())); 3]);
    assert_eq!(world.notes(), [""; 0]);
}

#[test]
fn who_still_waits_is_let_go_when_the_others_have_ended() {
    let mut world = one_still_waits();
    enters_again(&mut world, 0);
    world.exited(1, WaitStatus::exited(3));
    world.pass(1.0);
    assert_eq!(answer(&world, 2), Some(Ok(())), "its tasks were never started otherwise");
    assert_eq!(world.notes(), [""; 0]);
}

/// Rank 2 was released, and has lost all that it knew of its shell. The job manager has forgotten that
/// the job has started. The ranks `early` are there when the next leader asks.
fn released_and_asked(early: Range<usize>) -> World {
    let mut world = past_the_barrier(3);
    world.exited(2, WaitStatus::exited(3));
    world.pass(2.0);
    assert_eq!(world.released(), [("2".to_string(), false)]);
    (0..3).for_each(|rank| world.unload(rank));
    world.disks[2].records.clear();
    world.launched.clear();
    for rank in early {
        // Nor was there time to note that the others have left the barrier.
        world.disks[rank].records.values_mut().for_each(|record| {
            record.notes.remove("barrier-passed");
        });
        world.load(rank);
    }
    // It ran before rank 0's module was loaded.
    let listing = Listing { run: vec![JOB], cleanup: Vec::new() };
    world.happen(0, Event::RunningAsked(listing));
    world.start("0-2", false);
    world.pass(10.0);
    world
}

/// The same. `late`: the rank answers the next leader only when it is asked again.
fn released_and_forgotten(late: bool) -> World {
    let mut world = released_and_asked(if late { 0..2 } else { 0..3 });
    if late {
        world.load(2);
        world.pass(10.0);
    }
    world
}

/// [released-not-started] (simulator seed 230211482)
#[test]
fn a_shell_is_not_started_again_on_a_rank_that_was_released() {
    for late in [false, true] {
        let mut world = released_and_forgotten(late);
        assert_eq!(world.launched, [0; 0], "the rank may be another job's: {late}");
        world.exited(0, WaitStatus(0));
        world.exited(1, WaitStatus(0));
        world.pass(1.0);
        assert_eq!(world.notes(), [""; 0], "its shell has ended as it should: {late}");
        assert_eq!(world.status(), Some(WaitStatus::exited(3)), "{late}");
        let missing = world.events.iter().filter_map(|event| event.logged_missing());
        assert_eq!(missing.collect::<Vec<_>>(), [BrokerRank(2)], "{late}");
        world.assert_ended();
    }
}

/// [released-not-started] (simulator seed 250038271)
#[test]
fn a_job_has_started_whose_released_rank_is_heard_last() {
    let mut world = released_and_asked(0..2);
    let (unit, before) = (world.unit_of(2), world.responses.len());
    let mut record = world.disks[0].records[&world.unit_of(0)].clone();
    record.spec.unit = unit.clone();
    world.exited(0, WaitStatus(0));
    world.exited(1, WaitStatus(0));
    world.pass(2.0);
    // Its node was booted, and what is left of the unit is told later.
    world.disks[2].dead.clear();
    world.load_found(2, &[record]);
    world.report(2, &unit, UnitEvent::Lost { message: "node was rebooted".to_string() });
    world.pass(10.0);
    let said = |what: fn(&Response) -> bool| world.responses[before..].iter().any(what);
    assert!(said(|said| matches!(said, Response::Finish { .. })));
    assert!(said(|said| matches!(said, Response::Start { .. })), "no finish without it");
}

/// [released-not-started]
#[test]
fn who_still_waits_is_let_go_although_a_released_rank_has_lost_its_count() {
    let mut world = released_and_forgotten(false);
    enters_again(&mut world, 0);
    enters_again(&mut world, 1);
    assert_eq!([0, 1].map(|rank| answer(&world, rank)), [Some(Ok(())); 2]);
    assert_eq!(world.notes(), [""; 0]);
}

/// [released-not-started] (simulator seed 820005725)
#[test]
fn who_still_waits_is_let_go_when_a_released_rank_is_given_up() {
    let mut world = released_and_asked(0..2);
    enters_again(&mut world, 0);
    enters_again(&mut world, 1);
    assert_eq!([0, 1].map(|rank| answer(&world, rank)), [None; 2], "rank 2 may come");
    world.pass(world.config.peer_timeout);
    assert_eq!([0, 1].map(|rank| answer(&world, rank)), [Some(Ok(())); 2]);
    assert_eq!(world.notes(), [""; 0]);
}

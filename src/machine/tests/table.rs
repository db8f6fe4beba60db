//! Every state against every input: nothing panics, and every job still comes to its end.

mod inputs;
mod worlds;

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::LazyLock;

use super::World;
use super::moment;
use crate::machine::{Awaited, Event, Input, Machine, Pair, Role, STATES, all_pairs};
use crate::port::supervisor::UnitEvent;
use crate::proto::peer::StreamEnd;
use crate::proto::{BrokerRank, PerilogRelease, Stage, UnitName, WaitStatus};
use worlds::Named;

/// A value of an input, and where it happens.
struct Case {
    world: &'static str,
    make: fn() -> World,
    rank: usize,
    wait: f64,
    event: Event,
    /// What the rank meets with it.
    pairs: Vec<Pair>,
}

/// Every value of every input that reaches a role, or the node itself, on every rank of every
/// world.
static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let mut cases = Vec::new();
    for (name, make) in worlds::WORLDS {
        let world = make();
        for (rank, node) in world.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            for input in Input::ALL {
                for (wait, event) in inputs::values(*input, &world, rank) {
                    let mono = world.now + wait;
                    let pairs = node.pairs(moment(mono), &event);
                    if !pairs.is_empty() || input.machines().is_empty() {
                        cases.push(Case { world: name, make: *make, rank, wait, event, pairs });
                    }
                }
            }
        }
    }
    cases
});

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, rank {}, after {} s: {:?}", self.world, self.rank, self.wait, self.event)
    }
}

impl Case {
    /// Plays it in a world of its own, to the job's end.
    fn play(&self) {
        let mut world = (self.make)();
        let ended = ends(&world);
        if let Event::Known { asked, .. } = &self.event {
            let (asker, to) = (Role::Agent, BrokerRank(0));
            world.questions.push((self.rank, Awaited::Known { asker, to, asked: asked.clone() }));
        }
        world.now += self.wait;
        world.happen(self.rank, self.event.clone());
        if let Event::Disconnected { request } = self.event {
            // The other end of the stream learns it, too.
            world.end(self.rank, request, StreamEnd::BrokerGone);
            world.settle();
        }
        let running = world.nodes[0].as_ref().map_or(0, |node| node.coordinator.jobs().count());
        finish(&mut world);
        let starts = 1 + usize::from(matches!(self.event, Event::Start { .. }));
        let all = ends(&world);
        assert!((running..=ended + starts).contains(&all), "{self}: {:?}", world.responses);
        for (rank, node) in world.nodes.iter().enumerate() {
            let left = node.as_ref().expect("it was loaded").left_over();
            assert!(left.is_empty(), "{self}: rank {rank} still keeps {left}");
        }
        assert_eq!(world.records(), 0, "{self}: a record was left behind");
    }
}

/// How many final releases the job manager was told.
fn ends(world: &World) -> usize {
    world.released().iter().filter(|(_, is_final)| *is_final).count()
}

/// Ends everything that can end, from outside.
fn finish(world: &mut World) {
    world.hold_asked = false;
    world.lose_released = None;
    world.lose_namespace = false;
    world.fail_commits = 0;
    world.checkpoint = Ok(());
    world.deliver_held();
    for rank in 0..3 {
        if world.nodes[rank].is_none() {
            world.lose(rank);
            world.load(rank);
        }
    }
    for rank in 0..3 {
        world.happen(rank, Event::Disconnected { request: inputs::SENT });
    }
    world.pass(10.0);
    world.cancel();
    for rank in 0..3 {
        let has_agent = world.nodes[rank].as_ref().is_some_and(|node| !node.agents.is_empty());
        if has_agent || world.launched.contains(&(rank as u32)) {
            world.started(rank);
            world.exited(rank, WaitStatus::exited(1));
            let unit = world.unit_of(rank);
            world.report(rank, &unit, UnitEvent::Gone);
            for stage in [Stage::Prolog, Stage::Epilog] {
                end_script(world, rank, stage);
            }
        }
    }
    // An agent that has lied says no more, and epilogs have no time limit.
    let release = PerilogRelease { id: super::JOB, ranks: None, drain: true, kill: false };
    world.happen(0, Event::PerilogRelease { request: inputs::SENT, release });
    world.pass(2000.0);
}

fn end_script(world: &mut World, rank: usize, stage: Stage) {
    let unit = world.unit_of_stage(rank, stage);
    let exited = UnitEvent::Exited { status: WaitStatus(0) };
    for event in [UnitEvent::Started { pid: 7 }, exited, UnitEvent::Gone] {
        world.report(rank, &unit, event);
    }
}

#[test]
fn every_state_answers_every_input() {
    for case in CASES.iter() {
        let played = catch_unwind(|| case.play());
        assert!(played.is_ok(), "{case}");
    }
}

#[test]
fn every_input_has_a_value() {
    let there: BTreeSet<Input> = CASES.iter().map(|case| case.event.input()).collect();
    let missing = Input::ALL.iter().filter(|input| !there.contains(input));
    assert_eq!(missing.collect::<Vec<_>>(), [&Input::CheckpointDue], "it comes with a timeout");
}

#[test]
fn every_possible_pair_is_met() {
    let met = |cases: &[&Case]| -> BTreeSet<Pair> {
        cases.iter().flat_map(|case| case.pairs.iter().copied()).collect()
    };
    let all: Vec<&Case> = CASES.iter().collect();
    assert_eq!(pairs_missing(&met(&all)), [""; 0]);
    let without: Vec<&Case> =
        CASES.iter().filter(|case| case.event.input() != Input::Linked).collect();
    assert_eq!(pairs_missing(&met(&without)).len(), 4, "the states in which a link can be made");
}

/// Simulator seed 820093755: the unit of an earlier run of the id was told to have started.
#[test]
fn what_happens_to_the_unit_of_another_run_does_not_happen_to_the_shell() {
    let world = World::running(2, "0-1");
    let node = world.nodes[1].as_ref().expect("it was loaded");
    let met = |unit: &UnitName| {
        let started = UnitEvent::Started { pid: 7 }.of(unit);
        node.pairs(moment(world.now), &Event::Supervisor(started)).len()
    };
    let unit = world.unit_of(1);
    assert_eq!((met(&unit), met(&unit.of_stage(Stage::Shell, true))), (1, 0));
}

/// Possible pairs that are not among these.
fn pairs_missing(met: &BTreeSet<Pair>) -> Vec<String> {
    let possible = all_pairs().filter(|pair| pair.impossible().is_none());
    possible.filter(|pair| !met.contains(pair)).map(|pair| pair.to_string()).collect()
}

#[test]
fn there_is_a_world_for_every_state() {
    assert_eq!(states_missing(worlds::WORLDS), [""; 0]);
    let without_opening: Vec<Named> =
        worlds::WORLDS.iter().filter(|(name, _)| !name.starts_with("opening")).copied().collect();
    assert_eq!(states_missing(&without_opening), ["leader opening"]);
}

/// States that no role has on any rank of these worlds.
fn states_missing(worlds: &[Named]) -> Vec<String> {
    let mut there = BTreeSet::new();
    for (_, make) in worlds {
        let world = make();
        for node in world.nodes.iter().flatten() {
            there.extend(node.positions(super::JOB));
        }
    }
    let all = STATES.iter().flat_map(|(of, states)| states.iter().map(move |s| (*of, *s)));
    let is_there = |(of, state): &(Machine, &str)| {
        there.iter().any(|position| (position.machine, position.state) == (*of, *state))
    };
    all.filter(|of| !is_there(of)).map(|(of, state)| format!("{} {state}", of.name())).collect()
}

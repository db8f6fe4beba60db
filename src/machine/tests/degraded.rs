//! Prologs that mark their nodes.

use serde_json::json;

use super::perilog::{perilog, world};
use super::{JOB, World, facts, start, start_event};
use crate::config::PerilogConfig;
use crate::machine::{Credential, Event, Node};
use crate::port::supervisor::UnitEvent;
use crate::proto::{
    DegradedNode, DegradedNodes, Exception, Idset, JobEvent, Response, Stage, WaitStatus,
};

const ROOT: Credential = Credential { userid: 0, owner: false, local: true };
const DONE: WaitStatus = WaitStatus(0);

/// A job on four ranks whose prologs run. It says that it tolerates so many degraded nodes.
fn preparing(tolerance: u32, max_tolerance: u32) -> World {
    let mut world = world(4, PerilogConfig { max_tolerance, ..perilog() });
    let mut request = start("0-3", false);
    request["jobspec"] = json!({ "attributes": { "system": { "exec": {
        "prolog-tolerance": tolerance } } } });
    let to = world.request();
    world.happen(0, start_event(to, &request));
    for rank in 0..4 {
        world.script_started(rank, Stage::Prolog);
    }
    world
}

impl World {
    /// The prolog on this rank marks its node, and the mark is written.
    fn mark(&mut self, rank: usize, reason: &str) {
        self.ask_to_mark(rank, ROOT, reason);
        let unit = self.unit_of_stage(rank, Stage::Prolog);
        self.report(rank, &unit, UnitEvent::Marked { is_written: true });
    }

    fn ask_to_mark(&mut self, rank: usize, credential: Credential, reason: &str) {
        let degraded = DegradedNode { id: JOB, reason: reason.to_string() };
        let request = self.request();
        self.happen(rank, Event::Degraded { request, credential, degraded });
    }

    fn end_prologs(&mut self) {
        for rank in 0..4 {
            self.script_exited(rank, Stage::Prolog, DONE);
        }
        self.pass(0.05);
    }

    fn shells(&self) -> usize {
        self.units().iter().filter(|unit| unit.starts_with("shell")).count()
    }

    fn told_of(&self) -> Vec<&DegradedNodes> {
        let nodes = self.posted.iter().map(|event| match event {
            JobEvent::NodeDegraded(nodes) => Some(nodes),
            _ => None,
        });
        nodes.flatten().collect()
    }

    fn severities(&self) -> Vec<i32> {
        let severity = |response: &Response| match response {
            Response::Exception(Exception { severity, .. }) => Some(*severity),
            _ => None,
        };
        self.responses.iter().filter_map(severity).collect()
    }
}

#[test]
fn shells_start_when_the_job_was_told() {
    let mut world = preparing(2, 2);
    world.hold_holds = true;
    world.mark(3, "hot");
    world.mark(1, "no scratch");
    world.end_prologs();
    let nodes = DegradedNodes {
        ranks: Idset::from_iter([1, 3]),
        shell_ranks: Idset::from_iter([1, 3]),
        nodelist: "n[1,3]".to_string(),
        reasons: vec!["no scratch".to_string(), "hot".to_string()],
    };
    assert_eq!(world.told_of(), [&nodes]);
    assert_eq!(world.shells(), 0, "the KVS does not have it yet");
    world.hold_holds = false;
    world.deliver_held();
    assert_eq!(world.shells(), 4);
    assert_eq!(world.severities(), [2]);
    assert_eq!(world.drained.len(), 2);
}

#[test]
fn a_job_starts_with_no_more_degraded_nodes_than_it_tolerates() {
    for (tolerance, most) in [(0, 2), (1, 2), (2, 1), (9, 0)] {
        let mut world = preparing(tolerance, most);
        world.mark(1, "no scratch");
        world.mark(3, "hot");
        world.end_prologs();
        assert_eq!(world.shells(), 0, "{tolerance} of {most}");
        assert_eq!(world.severities(), [0], "{tolerance} of {most}");
    }
}

#[test]
fn the_first_node_is_never_tolerated() {
    let mut world = preparing(2, 2);
    world.mark(0, "no scratch");
    world.end_prologs();
    assert_eq!((world.shells(), world.severities()), (0, vec![0]));
}

#[test]
fn a_prolog_is_answered_when_its_mark_is_written() {
    let mut world = preparing(2, 2);
    world.ask_to_mark(1, ROOT, "no scratch");
    assert_eq!(world.answers, []);
    let unit = world.unit_of_stage(1, Stage::Prolog);
    world.report(1, &unit, UnitEvent::Marked { is_written: true });
    assert_eq!(world.answers, [Ok(())]);
    world.ask_to_mark(1, ROOT, "hot");
    world.report(1, &unit, UnitEvent::Marked { is_written: false });
    assert_eq!(world.answers[1..], [Err(libc::ENOSPC)]);
}

#[test]
fn only_a_prolog_that_runs_marks_its_node() {
    let mut world = preparing(2, 2);
    let guest = Credential { userid: 99, owner: false, local: true };
    world.ask_to_mark(1, guest, "no scratch");
    assert_eq!(world.answers, [Err(libc::EPERM)]);
    world.end_prologs();
    world.ask_to_mark(1, ROOT, "too late");
    assert_eq!(world.answers[1..], [Err(libc::ENOENT)]);
    assert_eq!(world.told_of().len(), 0);
}

#[test]
fn a_mark_outlives_its_module() {
    let mut world = preparing(2, 2);
    (0..4).for_each(|rank| world.make_lasting(rank));
    world.mark(2, "no scratch");
    world.lose(2);
    world.load(2);
    world.pass(20.0);
    world.end_prologs();
    world.pass(20.0);
    assert_eq!(world.told_of().len(), 1, "{:?}", world.responses);
    assert_eq!(world.shells(), 4);
}

/// The leader asks a module that was loaded just now before this one has seen its scripts.
#[test]
fn a_prolog_is_told_to_ask_again_while_its_rank_does_not_know_it() {
    let mut world = preparing(2, 2);
    (0..4).for_each(|rank| world.make_lasting(rank));
    world.lose(2);
    world.nodes[2] = Some(Node::new(world.config.clone(), facts(2)));
    world.pass(20.0);
    world.ask_to_mark(2, ROOT, "no scratch");
    assert_eq!(world.answers, [Err(libc::EAGAIN)]);
}

//! Nodes that are drained while jobs run there.

use serde_json::{Value, json};

use super::{JOB, World, start, start_event};
use crate::machine::Event;
use crate::proto::{DegradedNodes, Idset, JobEvent, NodeChange, ResourceNews, WallTime};

/// When jobs are allocated (`start()`), in seconds since the epoch.
const ALLOCATED: f64 = 1e9 + 0.001;

/// A job on ranks 1 to 3 that is told of degraded nodes, or not. Nothing was heard of nodes yet.
fn begun(is_told: bool) -> World {
    let mut world = World::new(4);
    let to = world.request();
    world.happen(0, start_event(to, &request(is_told, false)));
    world
}

fn request(is_told: bool, reattach: bool) -> Value {
    let mut request = start("1-3", reattach);
    request["jobspec"] = json!({ "attributes": { "system": { "exec": {
        "tell-degraded": is_told } } } });
    request
}

/// The same, and it runs.
fn running(is_told: bool) -> World {
    let mut world = begun(is_told);
    world.news(&[], true);
    world.all_started(1..4);
    world
}

fn ranks(text: &str) -> Idset {
    text.parse().expect("ranks")
}

impl World {
    /// What the instance says of its nodes: ranks, when after the allocation, and a reason.
    fn news(&mut self, changes: &[(&str, f64, Option<&str>)], is_up_to_date: bool) {
        let change = |&(of, after, reason): &(&str, f64, Option<&str>)| NodeChange {
            at: WallTime(ALLOCATED + after),
            ranks: ranks(of),
            drained: reason.map(str::to_string),
        };
        let changes = changes.iter().map(change).collect();
        self.happen(0, Event::Resources(ResourceNews { changes, is_up_to_date }));
    }

    /// Which ranks the job was told of, and why.
    fn told(&self) -> Vec<(String, String)> {
        let told = |event: &JobEvent| match event {
            JobEvent::NodeDegraded(nodes) => {
                Some((nodes.ranks.to_string(), nodes.reasons.join("; ")))
            }
            _ => None,
        };
        self.posted.iter().filter_map(told).collect()
    }

    fn parent_says(&mut self, after: f64, of: &str, reason: &str) {
        let nodes = vec![(ranks(of), reason.to_string())];
        self.happen(0, Event::ParentDegraded { at: WallTime(ALLOCATED + after), nodes });
    }
}

fn said(of: &str, reason: &str) -> (String, String) {
    (of.to_string(), reason.to_string())
}

#[test]
fn a_job_that_wants_it_is_told_of_its_drained_nodes() {
    let mut world = running(true);
    world.news(&[("0", 5.0, Some("hot")), ("2-3", 5.0, Some("hot"))], false);
    let nodes = DegradedNodes {
        ranks: ranks("2-3"),
        shell_ranks: ranks("1-2"),
        nodelist: "n[1-2]".to_string(),
        reasons: vec!["hot".to_string(); 2],
    };
    assert_eq!(world.posted, [JobEvent::NodeDegraded(nodes)]);
    assert_eq!(world.raised, ["drained: n[1-2] (rank 2-3): hot"]);
    // Another reason of a node that is drained already is no news.
    world.news(
        &[("2", 6.0, Some("very hot")), ("2", 7.0, None), ("2", 8.0, Some("hot again"))],
        false,
    );
    assert_eq!(world.told()[1..], [said("2", "hot again")]);
}

#[test]
fn one_that_does_not_is_not() {
    let mut world = running(false);
    world.news(&[("1", 5.0, Some("hot"))], false);
    assert_eq!((world.told(), world.raised.len()), (vec![], 0));
}

#[test]
fn what_was_drained_while_it_began_is_told_when_it_has_started() {
    let mut world = begun(true);
    world.news(&[("1", -5.0, Some("old")), ("2", 1.0, Some("mended")), ("2", 2.0, None)], false);
    world.news(&[], true);
    world.news(&[("3", 3.0, Some("hot"))], false);
    assert!(world.told().is_empty());
    world.all_started(1..4);
    assert_eq!(world.told(), [said("3", "hot")]);
}

#[test]
fn a_job_is_not_told_again_of_what_its_leader_has_told() {
    let mut world = running(true);
    let own = format!("degraded for job {JOB}: no scratch");
    world.news(
        &[("2", 5.0, Some(own.as_str())), ("3", 5.0, Some("degraded for job fZZ: hot"))],
        false,
    );
    assert_eq!(world.told(), [said("3", "degraded for job fZZ: hot")]);
}

#[test]
fn a_job_that_ends_is_not_told() {
    let mut world = running(true);
    world.cancel();
    world.news(&[("2", 5.0, Some("hot"))], false);
    assert!(world.told().is_empty());
}

/// The KVS has what an earlier coordinator said, so the exception is not raised again.
#[test]
fn a_new_coordinator_says_the_same_again_word_for_word() {
    let mut world = running(true);
    world.news(&[("2-3", 5.0, Some("hot"))], false);
    world.unload(0);
    world.load(0);
    let to = world.request();
    world.happen(0, start_event(to, &request(true, true)));
    world.news(&[("2-3", 5.0, Some("hot"))], false);
    assert_eq!(world.told().len(), 1);
    world.news(&[], true);
    assert_eq!(world.told(), [said("2-3", "hot; hot"), said("2-3", "hot; hot")]);
    assert_eq!(world.raised.len(), 1);
}

#[test]
fn an_instance_drains_what_its_parent_has_drained() {
    let mut world = World::new(4);
    world.parent_says(1.0, "1-2", "hot");
    world.news(&[("1", 0.5, Some("by its user")), ("3", 2.0, Some("x")), ("3", 3.0, None)], false);
    assert!(world.drained.is_empty());
    world.news(&[], true);
    assert_eq!(world.drained, ["2 hot"]);
    world.news(&[("2", 1.5, Some("hot"))], false);
    // It is drained, and of the other the user has said later that it is well.
    world.parent_says(2.5, "2-3", "hot");
    assert_eq!(world.drained.len(), 1);
    world.parent_says(3.5, "3", "hot");
    assert_eq!(world.drained[1..], ["3 hot"]);
}

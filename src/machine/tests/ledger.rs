//! What has become of the shells of an earlier life.

use serde_json::{Value, json};

use super::recovery::{Alone, STARTED};
use super::{JOB, facts, moment, record};
use crate::machine::{Effect, Event, Level, MonoTime};
use crate::port::supervisor::{StartFailure, SupervisorEvent, UnitEvent, UnitSpec};
use crate::proto::peer::Mode;
use crate::proto::{BrokerRank, JobId, UnitName, WaitStatus};

fn unit(job: u64) -> UnitName {
    UnitName::new(false, BrokerRank(1), JobId(job), facts(1).instance)
}

fn find(node: &mut Alone, job: u64) {
    let record = record(&UnitSpec::bare(unit(job), "digest".into()));
    node.hear(Event::Supervisor(SupervisorEvent::Found(Box::new(record))));
}

fn tell(node: &mut Alone, job: u64, event: UnitEvent) {
    node.hear(Event::Supervisor(event.of(&unit(job))));
}

/// What is logged of it in the next two seconds.
fn told(node: &mut Alone) -> Vec<String> {
    let end = node.now + 2.0;
    let mut lines = Vec::new();
    while let Some(MonoTime(next)) = node.node.next_timeout().filter(|at| at.0 < end) {
        node.now = next;
        lines.extend(node.hear(Event::Timeout).into_iter().filter_map(|effect| match effect {
            Effect::Log { level: Level::Info, text } if text.contains("found") => Some(text),
            _ => None,
        }));
    }
    lines
}

fn stats(node: &Alone) -> Value {
    node.node.stats(moment(node.now))["restart"].clone()
}

/// [restart-told]
#[test]
fn what_was_found_is_told_once_when_it_is_known_of_all() {
    let mut node = Alone::new(1);
    (1..=4).for_each(|job| find(&mut node, job));
    tell(&mut node, 1, STARTED);
    tell(&mut node, 2, STARTED);
    tell(&mut node, 2, UnitEvent::Exited { status: WaitStatus::exited(7) });
    tell(&mut node, 3, UnitEvent::Lost { message: "node was rebooted".to_string() });
    assert_eq!(told(&mut node), [""; 0], "nothing is known of one");
    tell(&mut node, 4, UnitEvent::NeverStarted);
    let line = format!(
        "4 shells of earlier jobs found: 1 run on, 1 had ended ({}: exit 7), \
         1 lost ({}: node was rebooted), 1 were never started",
        JobId(2),
        JobId(3)
    );
    assert_eq!(told(&mut node), [line]);
    // What ends later has not ended meanwhile.
    tell(&mut node, 1, UnitEvent::Exited { status: WaitStatus(0) });
    assert_eq!(told(&mut node), [""; 0]);
    let wanted = json!({
        "found": 4, "running": 1, "ended": 1, "lost": 1, "never-started": 1, "unwanted": 0
    });
    assert_eq!(stats(&node), wanted);
}

/// [restart-told]
#[test]
fn what_was_not_the_jobs_own_unit_holds_up_nothing() {
    let mut node = Alone::new(1);
    find(&mut node, 1);
    let failure = StartFailure { errnum: libc::EEXIST, message: "another's".to_string() };
    tell(&mut node, 1, UnitEvent::Failed(failure));
    assert_eq!(told(&mut node).len(), 1);
    assert_eq!(stats(&node)["never-started"], 1);
}

/// [restart-told]
#[test]
fn not_all_jobs_are_named() {
    let mut node = Alone::new(1);
    (1..=20).for_each(|job| find(&mut node, job));
    (1..=20).for_each(|job| tell(&mut node, job, UnitEvent::Exited { status: WaitStatus(0) }));
    let told = told(&mut node);
    assert!(told[0].contains("20 had ended") && told[0].contains("and 12 more"), "{told:?}");
}

/// [restart-told]
#[test]
fn what_nobody_counts_on_is_counted() {
    let mut node = Alone::new(1);
    find(&mut node, JOB.0);
    node.unit(STARTED);
    assert_eq!(stats(&node)["unwanted"], 0);
    node.shells(1, 1, "of another job", Mode::Start);
    assert_eq!(stats(&node)["unwanted"], 1);
}

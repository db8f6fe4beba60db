//! Entries into the shell barrier that a record holds (`rfc/0008-recovery.md`, entry-said-again).

use serde_json::{Value, json};

use super::{JOB, OWNER, World};
use crate::config::Config;
use crate::machine::{Credential, Event, MonoTime, Now};
use crate::port::supervisor::UnitEvent;
use crate::proto::{BarrierEntry, BrokerRank, ClientId, Json, WaitStatus, WallTime};

impl World {
    /// The client of a rank's shell says its entry of this number.
    fn say_entry(&mut self, rank: usize, number: u32) -> u64 {
        let request = self.request();
        let credential = Credential { userid: OWNER, owner: true, local: true };
        let entry = Some(BarrierEntry { number, client: Some(ClientId(rank as u64)) });
        let broker = BrokerRank(rank as u32);
        self.happen(
            rank,
            Event::ShellBarrier { request, credential, id: JOB, rank: broker, entry },
        );
        self.pass(0.1);
        self.last_request
    }

    /// All modules end and come back, as after the death of rank 0's broker.
    fn restart(&mut self) {
        (0..self.nodes.len()).for_each(|rank| self.unload(rank));
        (0..self.nodes.len()).for_each(|rank| self.load(rank));
        self.barrier.clear();
        self.start("0-2", true);
        self.pass(1.0);
    }
}

/// A job on three ranks, all of whose shells run.
fn started() -> World {
    started_with(Config { fanout: 2, ..Config::default() })
}

fn started_with(config: Config) -> World {
    let mut world = World::with(3, config);
    world.start("0-2", false);
    world.all_started(0..3);
    world.pass(0.1);
    world
}

#[test]
fn an_entry_in_a_record_counts_when_it_is_said_again() {
    let mut world = started();
    world.say_entry(0, 1);
    world.restart();
    let second = world.say_entry(1, 1);
    let third = world.say_entry(2, 1);
    assert_eq!(world.barrier, [], "what rank 0's shell wrote may be lost");
    let first = world.say_entry(0, 1);
    for entry in [first, second, third] {
        assert!(world.barrier.contains(&(entry, Ok(()))), "{:?}", world.barrier);
    }
}

#[test]
fn one_whose_barrier_was_complete_counts_at_once() {
    let mut world = started();
    (0..3).for_each(|rank| _ = world.say_entry(rank, 1));
    assert_eq!(world.barrier.len(), 3);
    world.restart();
    // It has not heard that it may go.
    let again = world.say_entry(2, 1);
    assert!(world.barrier.contains(&(again, Ok(()))), "{:?}", world.barrier);
}

#[test]
fn one_of_a_shell_that_has_ended_counts() {
    let mut world = started();
    (0..3).for_each(|rank| _ = world.say_entry(rank, 1));
    world.say_entry(0, 2);
    world.restart();
    world.exited(0, WaitStatus::exited(1));
    world.pass(1.0);
    let refused = world.say_entry(1, 2);
    assert!(world.barrier.iter().any(|(entry, result)| *entry == refused && result.is_err()));
    assert!(world.notes().is_empty(), "it was in the second barrier: {:?}", world.notes());
}

/// From the second barrier, although rank 1 ends after a restart.
fn assert_rank_2_is_let_go(mut world: World) {
    world.restart();
    world.exited(1, WaitStatus::exited(0));
    world.pass(1.0);
    let again = world.say_entry(2, 2);
    assert!(world.barrier.contains(&(again, Ok(()))), "{:?}", world.barrier);
}

#[test]
fn nothing_is_refused_because_an_entry_was_not_said_again() {
    let mut world = started();
    (0..3).for_each(|rank| _ = world.say_entry(rank, 1));
    // All are in the second barrier, and leave it. Rank 2 does not hear that, rank 1 ends.
    world.say_entry(0, 2);
    world.say_entry(1, 2);
    world.say_entry(2, 2);
    let passed = world.unit_of(0);
    world.disks[0].records.get_mut(&passed).expect("a record").notes.remove("barrier-passed");
    assert_rank_2_is_let_go(world);
}

#[test]
fn nothing_is_refused_because_an_entry_was_lost_of_a_barrier_that_another_has_left() {
    let mut world = started();
    (0..3).for_each(|rank| _ = world.say_entry(rank, 1));
    (0..3).for_each(|rank| _ = world.say_entry(rank, 2));
    // The disk of rank 1 was full when its shell entered the second time. Rank 2 has not heard that
    // its shell may leave.
    for (rank, entered) in [(1, 1), (2, 2)] {
        let unit = world.unit_of(rank);
        let notes = &mut world.disks[rank].records.get_mut(&unit).expect("a record").notes;
        notes.insert("barrier-entered".to_string(), Json::of(&entered));
        notes.insert("barrier-passed".to_string(), Json::of(&1));
    }
    assert_rank_2_is_let_go(world);
}

#[test]
fn one_that_is_said_again_after_its_barrier_was_complete_is_passed() {
    let mut world = started();
    (0..3).for_each(|rank| _ = world.say_entry(rank, 1));
    let unit = world.unit_of(1);
    world.disks[1].records.get_mut(&unit).expect("a record").notes.remove("barrier-passed");
    for rank in [1, 2] {
        world.unload(rank);
        world.load(rank);
        world.pass(30.0);
    }
    // Rank 2 has said that it passed, and the leader has told all ranks: this is answered at once.
    // The leader is away, so that only the agent can note it.
    world.unload(0);
    world.say_entry(1, 1);
    assert!(world.disks[1].records[&unit].notes.contains_key("barrier-passed"));
}

/// Its namespace goes with the job, and what they wrote before is in it.
#[test]
fn shells_that_cannot_be_killed_do_not_leave_the_barrier_after_their_job() {
    let config = Config { kill_timeout: 1.0, max_kill_count: 1, ..Config::default() };
    let mut world = started_with(config);
    let first = world.say_entry(0, 1);
    let second = world.say_entry(1, 1);
    world.cancel();
    world.pass(100.0);
    assert_eq!(world.released(), [("all".to_string(), true)]);
    let third = world.say_entry(2, 1);
    for entry in [first, second, third] {
        let is_refused = |(to, result): &(u64, Result<(), _>)| *to == entry && result.is_err();
        assert!(world.barrier.iter().any(is_refused), "{entry}: {:?}", world.barrier);
    }
}

/// Simulator seed 109405 of an earlier release. The job was cancelled, and the record of the shell that
/// has ended of it is lost. That it was cancelled is known from ranks that come back later.
#[test]
fn who_was_ended_has_not_passed_although_its_record_is_lost() {
    for are_said_before in [true, false] {
        assert_nobody_passes_one_that_was_ended(are_said_before);
    }
}

/// The clients say their entries before or after the leader asks their ranks.
fn assert_nobody_passes_one_that_was_ended(are_said_before: bool) {
    let mut world = started();
    (0..3).for_each(|rank| _ = world.say_entry(rank, 1));
    (1..3).for_each(|rank| _ = world.say_entry(rank, 2));
    world.cancel();
    (0..3).for_each(|rank| world.unload(rank));
    let unit = world.unit_of(0);
    let record = world.disks[0].records.get_mut(&unit).expect("a record");
    record.exited = Some(WaitStatus::signaled(libc::SIGTERM));
    let made_again = Json::of(&json!({ "output-lost": false }));
    record.notes = [("made-again".to_string(), made_again)].into();
    world.barrier.clear();
    world.events.retain(|event| event.name != "debug.exception");
    world.load(0);
    world.start("0-2", true);
    world.pass(1.0);
    for rank in 1..3 {
        world.load(rank);
        if are_said_before {
            world.say_entry(rank, 2);
            world.pass(10.0);
        } else {
            world.pass(10.0);
            world.say_entry(rank, 2);
        }
    }
    let refused = world.barrier.iter().filter(|(_, result)| result.is_err());
    assert_eq!((refused.count(), world.barrier.len()), (2, 2), "{:?}", world.barrier);
}

/// What the exec eventlog says of shells that are waited for.
fn told(world: &World) -> Vec<&str> {
    let told = world.events.iter().filter(|event| event.context.contains_key("barrier"));
    told.filter_map(|event| event.context["data"].as_str()).collect()
}

/// [barrier-told]
#[test]
fn a_job_whose_barrier_waits_long_is_told_once_for_whom() {
    let barrier_timeout = Some(100.0);
    let mut world = started_with(Config { barrier_timeout, ..Config::default() });
    world.say_entry(0, 1);
    world.say_entry(2, 1);
    world.pass(8.0);
    assert_eq!(told(&world), [""; 0], "it is not long yet");
    world.pass(80.0);
    assert_eq!(told(&world), ["start barrier: 2 of 3 shells; waiting for n1\n"]);
    let logged = world.events.iter().filter_map(crate::proto::ExecEvent::logged).count();
    assert_eq!(logged, 0, "no shell has written it");
    assert_eq!(stats(&world)["drains"], 0);
    world.pass(20.0);
    assert_eq!(stats(&world)["drains"], 1, "who was waited for");
    assert!(world.notes()[0].contains("waiting for 1/3 nodes (rank 1)"), "{:?}", world.notes());
}

#[test]
fn a_barrier_that_completes_or_fails_is_not_told() {
    let barrier_timeout = Some(100.0);
    let begin = || {
        let mut world = started_with(Config { barrier_timeout, ..Config::default() });
        world.say_entry(0, 1);
        world.say_entry(2, 1);
        world
    };
    let (mut complete, mut failed, mut canceled) = (begin(), begin(), begin());
    complete.say_entry(1, 1);
    failed.exited(1, WaitStatus::exited(1));
    canceled.cancel();
    for mut world in [complete, failed, canceled] {
        world.pass(30.0);
        assert_eq!(told(&world), [""; 0]);
    }
}

/// What rank 0, which leads the job, shows.
fn stats(world: &World) -> Value {
    let (mono, wall) = (MonoTime(world.now), WallTime(1e9 + world.now));
    let stats = world.nodes[0].as_ref().map(|node| node.stats(Now { mono, wall }));
    stats.unwrap_or_default()
}

fn shown(world: &World) -> Value {
    stats(world)["jobs"][JOB.to_string()].take()
}

#[test]
fn statistics_say_what_a_job_waits_for() {
    let barrier_timeout = Some(100.0);
    let mut world = World::with(12, Config { barrier_timeout, fanout: 20, ..Config::default() });
    world.start("0-11", false);
    world.all_started(0..2);
    world.pass(1.0);
    let starting = json!({ "count": 10, "ranks": "2-9" });
    let stats = shown(&world);
    assert_eq!((&stats["state"], &stats["starting"]), (&json!("launching"), &starting), "{stats}");
    assert_eq!(stats["barrier"], Value::Null, "nobody waits");
    world.all_started(2..12);
    world.pass(1.0);
    world.say_entry(3, 1);
    let pending = json!({ "count": 11, "ranks": "0-2,4-8" });
    let stats = shown(&world);
    assert_eq!(stats["barrier"], json!({ "number": 1, "entered": 1, "pending": pending }));
    assert!(stats["timers"]["barrier"].as_f64().is_some_and(|left| left > 90.0), "{stats}");
    assert_eq!((&stats["state"], &stats["failure"]), (&json!("running"), &Value::Null));
    world.cancel();
    world.pass(1.0);
    let stats = shown(&world);
    assert_eq!(stats["failure"]["type"], "cancel", "{stats}");
    assert!(stats["failure"]["since"].as_f64().is_some_and(|since| since >= 1e9), "{stats}");
    assert!(stats["timers"]["kill-tasks"].is_number(), "{stats}");
    // Something of it stays.
    let status = WaitStatus::exited(0);
    world.report(1, &world.unit_of(1), UnitEvent::Exited { status });
    world.pass(1.0);
    assert_eq!(shown(&world)["leftover"], json!({ "count": 1, "ranks": "1" }));
    assert_eq!(shown(&world)["left_over"], Value::Null);
    let processes = "pid 47 (user 0, \"sleep\")".to_string();
    world.report(1, &world.unit_of(1), UnitEvent::LeftOver { processes: processes.clone() });
    world.pass(1.0);
    assert_eq!(shown(&world)["left_over"], json!({ "1": processes }));
}

//! What reading the machines has found wrong, each with the test that would have found it.

use super::recovery::lasting;
use super::{JOB, Node, World, facts};
use crate::machine::{Awaited, Event, Fault, KvsOp, KvsResult, Listing, RequestId};
use crate::port::supervisor::{Method, SupervisorEvent, UnitEvent};
use crate::proto::peer::Question;
use crate::proto::{BrokerRank, ExecEvent, Idset, JobException, Response, WaitStatus, WallTime};

fn cancel() -> Event {
    Event::Exception(JobException {
        id: JOB,
        kind: "cancel".into(),
        severity: 0,
        wait_status: None,
    })
}

#[test]
fn a_cancel_that_overtakes_the_lead_request_is_not_lost() {
    let mut world = World::new(3);
    // The leader's rank hears of the exception before it hears of the job.
    world.happen(1, cancel());
    world.hold_asked = true;
    world.start("1-2", false);
    world.happen(0, cancel());
    world.hold_asked = false;
    world.deliver_held();
    world.pass(0.1);
    for rank in 1..3 {
        world.started(rank as usize);
        world.pass(0.1);
        assert!(world.signals.contains(&(rank, libc::SIGTERM)), "{:?}", world.signals);
        world.exited(rank as usize, WaitStatus::exited(143));
    }
    world.pass(1.0);
    world.assert_ended();
}

#[test]
fn what_ended_shells_leave_behind_has_a_limit() {
    let mut world = World::new(1);
    world.start("0", false);
    world.started(0);
    let unit = world.unit_of(0);
    let status = WaitStatus(0);
    world.report(0, &unit, UnitEvent::Exited { status });
    world.pass(0.05);
    assert_eq!(world.status(), Some(status));
    world.pass(1000.0);
    assert_eq!(world.drained, [format!("0 unkillable user processes for job {JOB}")]);
    assert_eq!(world.released(), [("all".to_string(), true)]);
}

#[test]
fn a_leader_that_lost_the_namespace_ends_the_shells_before_it_releases_them() {
    let mut world = World::new(3);
    world.start("1-2", false);
    world.all_started(1..3);
    world.unload(1);
    world.lose_namespace = true;
    world.load(1);
    world.pass(world.config.peer_timeout * 0.9);
    assert_eq!(world.notes(), Vec::<String>::new(), "it may come back");
    world.pass(world.config.peer_timeout);
    assert!(world.notes()[0].contains("failed to create guest ns"), "{:?}", world.notes());
    assert_eq!(world.released(), []);
    for rank in 1..3 {
        assert!(world.signals.contains(&(rank, libc::SIGTERM)), "{:?}", world.signals);
        world.exited(rank as usize, WaitStatus::exited(143));
    }
    world.pass(1.0);
    world.assert_ended();
}

#[test]
fn start_comes_before_finish_also_when_the_link_is_slow() {
    let mut world = World::new(1);
    world.hold_op = Some(KvsOp::Link);
    world.start("0", false);
    world.started(0);
    world.exited(0, WaitStatus(0));
    assert_eq!(world.responses, []);
    world.happen(0, Event::Kvs { id: JOB, result: KvsResult::Linked(Ok(())) });
    assert_eq!(
        world.responses[..2],
        [Response::Start {}, Response::Finish { status: WaitStatus(0) }]
    );
    world.assert_ended();
}

#[test]
fn a_job_is_found_again_without_a_rank_that_it_can_do_without() {
    let mut world = World::running(3, "0-2");
    let ranks = "0-1".parse().unwrap_or_default();
    let credential = super::Credential { userid: super::OWNER, owner: true, local: true };
    let request = RequestId::Remote(3);
    world.happen(0, Event::CriticalRanks { request, credential, id: JOB, ranks });
    world.unload(0);
    world.lose(2);
    world.load(0);
    world.start("0-2", true);
    world.pass(world.config.peer_timeout + 10.0);
    assert!(world.responses.contains(&Response::Reattached {}), "{:?}", world.responses);
    assert_eq!(world.notes(), ["node failure on n2 (shell rank 2)"], "not fatal");
}

#[test]
fn a_new_leader_releases_no_rank_a_second_time() {
    let mut world = World::running(4, "1-3");
    world.exited(3, WaitStatus(0));
    world.pass(1.0);
    world.unload(1);
    world.load(1);
    world.pass(1.0);
    world.exited(2, WaitStatus(0));
    world.pass(1.0);
    world.exited(1, WaitStatus(0));
    world.pass(1.0);
    let releases = [("3", false), ("2", false), ("1", true)];
    assert_eq!(world.released(), releases.map(|(ranks, last)| (ranks.to_string(), last)));
    world.assert_ended();
}

/// A job of three ranks, one of which was released. Then rank 0's module was loaded again.
fn released_before_a_reload(prepare: impl FnOnce(&mut World)) -> World {
    let mut world = World::running(4, "1-3");
    world.exited(3, WaitStatus(0));
    world.pass(1.0);
    world.unload(0);
    world.load(0);
    prepare(&mut world);
    world.start("1-3", true);
    world.pass(1.0);
    world
}

/// The partial releases since rank 0's module was loaded again, and the final one.
fn later_releases(mut world: World) -> Vec<(String, bool)> {
    world.exited(2, WaitStatus(0));
    world.pass(1.0);
    world.exited(1, WaitStatus(0));
    world.pass(1.0);
    let releases = world.released().split_off(1);
    world.assert_ended();
    releases
}

fn releases<const N: usize>(list: [(&str, bool); N]) -> Vec<(String, bool)> {
    list.map(|(ranks, last)| (ranks.to_string(), last)).to_vec()
}

/// [released-known]
#[test]
fn a_new_coordinator_releases_no_rank_a_second_time() {
    let world = released_before_a_reload(|_| ());
    assert_eq!(later_releases(world), releases([("2", false), ("1", true)]));
    // Nor does a new leader that only its coordinator can tell.
    let world = released_before_a_reload(|world| {
        world.unload(1);
        world.load(1);
    });
    assert_eq!(later_releases(world), releases([("2", false), ("1", true)]));
}

/// [released-known]
#[test]
fn a_release_that_the_job_manager_has_forgotten_is_said_again() {
    let world = released_before_a_reload(|world| world.lose_released = Some(Ok(Idset::new())));
    assert_eq!(later_releases(world), releases([("3", false), ("2", false), ("1", true)]));
}

/// [released-known]
#[test]
fn released_ranks_that_cannot_be_looked_up_are_looked_up_again() {
    let unknown = || Some(Err(Fault::new(libc::EIO, "no")));
    let warnings = |world: &World| {
        world.warnings.iter().filter(|text| text.contains("released ranks")).count()
    };
    let mut world = released_before_a_reload(|world| world.lose_released = unknown());
    world.pass(20.0);
    assert_eq!(warnings(&world), 1);
    world.lose_released = None;
    world.pass(5.0);
    assert_eq!(later_releases(world), releases([("2", false), ("1", true)]));
    // For ever it is not looked up.
    let mut world = released_before_a_reload(|world| world.lose_released = unknown());
    world.pass(world.config.peer_timeout * 2.0);
    assert_eq!(warnings(&world), 2);
    assert_eq!(later_releases(world), releases([("3", false), ("2", false), ("1", true)]));
}

/// [released-known]
#[test]
fn what_happens_while_the_released_ranks_are_looked_up_is_kept() {
    let mut world = released_before_a_reload(|world| {
        world.unload(1);
        world.load(1);
        world.hold_released = true;
    });
    world.cancel();
    assert_eq!(world.signals, [], "nobody leads yet");
    world.deliver_held();
    world.pass(1.0);
    for rank in 1..3 {
        assert!(world.signals.contains(&(rank, libc::SIGTERM)), "{:?}", world.signals);
    }
    assert_eq!(later_releases(world), releases([("2", false), ("1", true)]));
}

#[test]
fn a_node_that_is_lost_after_its_shell_has_ended_is_no_failure() {
    let mut world = World::running(2, "0-1");
    let unit = world.unit_of(1);
    let status = WaitStatus(0);
    world.report(1, &unit, UnitEvent::Exited { status });
    world.pass(0.1);
    world.lose(1);
    world.exited(0, WaitStatus(0));
    world.pass(1.0);
    assert_eq!(world.notes(), Vec::<String>::new());
    assert_eq!(world.status(), Some(WaitStatus(0)));
}

#[test]
fn a_lost_leader_shell_has_no_status_to_post() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.all_started(0..2);
    let unit = world.unit_of(0);
    world.report(0, &unit, UnitEvent::Lost { message: "gone".into() });
    world.pass(0.1);
    assert!(!world.event_names().contains(&"shell-exit"));
}

#[test]
fn a_shell_that_nobody_leads_is_ended_when_rank_0_does_not_know_its_job() {
    let mut world = World::new(2);
    world.start("1", false);
    world.started(1);
    // The job is cancelled while both modules are away: it is never asked for again.
    world.unload(0);
    world.unload(1);
    world.load(0);
    world.load(1);
    world.make_stoppable(1);
    world.pass(world.config.peer_timeout * 3.0);
    assert_eq!(world.records(), 0);
    assert!(world.errors.iter().any(|e| e.contains("stopping") && e.contains(&JOB.to_string())));
}

#[test]
fn a_shell_whose_job_is_known_waits_for_its_leader() {
    let mut world = World::new(3);
    world.start("1-2", false);
    world.all_started(1..3);
    world.unload(1);
    world.unload(2);
    world.load(2);
    world.pass(world.config.peer_timeout * 0.8);
    world.load(1);
    world.pass(world.config.peer_timeout * 3.0);
    assert_eq!(world.records(), 2);
    assert!(world.errors.is_empty(), "{:?}", world.errors);
}

#[test]
fn a_start_that_an_unload_swallowed_is_made_again() {
    let mut world = World::new(1);
    world.start("0", false);
    assert_eq!(world.launched, [0]);
    world.unload(0);
    world.load_unseen(0);
    world.start("0", false);
    let unit = world.unit_of(0);
    world.report(0, &unit, UnitEvent::NeverStarted);
    assert_eq!(world.launched, [0, 0]);
    assert_eq!(world.notes(), Vec::<String>::new());
}

#[test]
fn a_failed_commit_is_tried_again_in_order() {
    let mut world = World::new(1);
    world.start("0", false);
    world.started(0);
    world.fail_commits = 2;
    world.output(0, 0, "one\n");
    world.output(0, 4, "two\n");
    world.pass(10.0);
    world.exited(0, WaitStatus(0));
    world.pass(1.0);
    let logs: Vec<&str> =
        world.events.iter().filter_map(|event| event.context.get("data")?.as_str()).collect();
    assert_eq!(logs, ["one\n", "two\n"]);
    world.assert_ended();
}

#[test]
fn a_failed_move_is_tried_again() {
    for (failures, moved) in [(4, true), (5, false)] {
        let mut world = World::new(1);
        world.start("0", false);
        world.started(0);
        world.fail_moves = failures;
        world.exited(0, WaitStatus(0));
        world.pass(10.0);
        world.assert_ended();
        assert_eq!(world.has_namespace, !moved);
    }
}

#[test]
fn who_takes_over_between_the_last_commit_and_the_move_writes_no_more() {
    let mut world = World::running(3, "1-2");
    world.hold_op = Some(KvsOp::Move { usage: None });
    world.exited(1, WaitStatus(0));
    world.exited(2, WaitStatus(0));
    let before = world.event_names().join(" ");
    assert!(before.ends_with("done"), "{before}");
    world.unload(1);
    world.hold_op = None;
    world.load(1);
    world.pass(20.0);
    assert_eq!(world.event_names().join(" "), before);
    assert!(!world.has_namespace);
    world.assert_ended();
}

#[test]
fn exceptions_are_not_said_twice_to_a_new_coordinator() {
    let mut world = World::new(4);
    world.start("1-3", false);
    world.all_started(1..4);
    let credential = super::Credential { userid: super::OWNER, owner: true, local: true };
    let (request, ranks) = (RequestId::Remote(3), "0".parse().unwrap_or_default());
    world.happen(1, Event::CriticalRanks { request, credential, id: JOB, ranks });
    for rank in 1..4 {
        world.enter_barrier(rank);
    }
    world.pass(0.1);
    world.lose(3);
    world.pass(0.1);
    let before = world.notes().len();
    assert_eq!(before, 1);
    world.unload(0);
    world.load(0);
    world.start("1-3", true);
    world.pass(0.1);
    assert_eq!(world.notes().len(), before);
}

#[test]
fn a_bad_expiration_is_kept_nowhere() {
    let mut world = World::new(2);
    world.start("1", false);
    world.started(1);
    let request = RequestId::Remote(9);
    world.happen(0, Event::Expiration { request, id: JOB, expiration: WallTime(-5.0) });
    assert_eq!(world.answers, [Err(libc::EINVAL)]);
    world.unload(1);
    world.load(1);
    world.pass(1.0);
    assert_eq!(world.notes(), Vec::<String>::new());
}

#[test]
fn a_rank_that_answers_again_is_not_counted_as_away() {
    let mut world = World::new(3);
    world.start("0-2", false);
    world.started(0);
    world.started(1);
    world.unload(2);
    world.load_unseen(2);
    world.pass(1.0);
    // Another outage long after must not use up the first one's patience.
    world.pass(world.config.peer_timeout);
    world.unload(1);
    world.load(1);
    world.pass(5.0);
    assert_eq!(world.notes(), Vec::<String>::new());
}

#[test]
fn the_barrier_of_a_subtree_is_one_message() {
    let mut world = World::with(9, crate::config::Config { fanout: 2, ..Default::default() });
    world.start("0-8", false);
    world.all_started(0..9);
    let before = world.messages;
    for rank in 0..9 {
        world.enter_barrier(rank);
    }
    // Nobody waits for more than the last entry: one message of each child, and one order to each.
    assert_eq!(world.barrier.len(), 9);
    assert_eq!(world.messages - before, 2 * 8);
}

#[test]
fn the_end_of_a_shell_and_of_its_unit_are_one_message() {
    let mut world = World::running(9, "0-8");
    let before = world.messages;
    for rank in 1..9 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(0.05);
    assert_eq!(world.messages - before, 8);
}

#[test]
fn an_exception_without_a_coordinator_goes_to_the_job_manager() {
    let mut world = World::new(3);
    world.start("1-2", false);
    world.all_started(1..3);
    world.unload(0);
    world.exited(2, WaitStatus::exited(1));
    world.pass(0.1);
    assert_eq!(world.raised, ["n1 (rank 2) terminated before first barrier"]);
    assert_eq!(world.notes(), Vec::<String>::new());
}

#[test]
fn shells_of_unknown_state_are_not_called_active() {
    let mut world = World::running(3, "0-2");
    world.unload(2);
    world.exited(0, WaitStatus(0));
    world.exited(1, WaitStatus(0));
    world.pass(29.95);
    world.load(2);
    world.pass(0.2);
    assert_eq!(world.notes(), Vec::<String>::new(), "it was away when the clock ran out");
}

#[test]
fn a_job_that_is_refused_ends_what_an_earlier_try_has_started() {
    let mut world = World::new(3);
    world.start("1-2", false);
    world.started(1);
    world.started(2);
    for rank in 0..3 {
        world.unload(rank);
    }
    for rank in 0..3 {
        world.load(rank);
    }
    world.responses.clear();
    let mut refused = super::start("1-2", false);
    refused["jobspec"] =
        serde_json::json!({"attributes": {"system": {"exec": {"bulkexec": {"x": 1}}}}});
    world.happen(0, super::start_event(RequestId::Remote(7), &refused));
    world.pass(0.1);
    assert_eq!(world.released(), [], "they still run");
    for rank in 1..3 {
        assert!(world.signals.contains(&(rank, libc::SIGTERM)), "{:?}", world.signals);
        world.exited(rank as usize, WaitStatus::exited(143));
    }
    world.pass(1.0);
    world.assert_ended();
}

#[test]
fn an_agent_without_a_shell_does_not_wait_for_a_dead_leader() {
    let mut world = World::new(8);
    // One rank does not answer, so the leader has not done with the others.
    world.unload(7);
    world.start("1-7", true);
    assert!(world.nodes[5].as_ref().is_some_and(|node| !node.agents.is_empty()));
    // The leader's broker dies, and nobody tells the agents.
    world.lose(1);
    world.unload(0);
    world.load(0);
    world.pass(1000.0);
    for rank in 2..7 {
        assert!(world.nodes[rank].as_ref().is_some_and(|node| node.agents.is_empty()));
    }
}

#[test]
fn the_last_events_of_a_short_job_are_one_commit() {
    let mut world = World::new(1);
    world.start("0", false);
    world.started(0);
    let before = world.commits;
    world.exited(0, WaitStatus(0));
    assert_eq!(world.commits, before + 1);
    world.assert_ended();
    // A job whose leftovers take long does not hold its events back.
    let mut world = World::new(1);
    world.start("0", false);
    world.started(0);
    let before = world.commits;
    let (unit, status) = (world.unit_of(0), WaitStatus(0));
    world.report(0, &unit, UnitEvent::Exited { status });
    world.pass(10.0);
    assert_eq!(world.commits, before + 1);
    assert_eq!(world.event_names().last(), Some(&"complete"));
}

#[test]
fn the_leader_shells_status_is_known_without_its_rank() {
    let mut world = World::running(4, "1-3");
    world.exited(1, WaitStatus::exited(3));
    world.pass(1.0);
    assert_eq!(world.released(), [("1".to_string(), false)]);
    world.lose(1);
    world.pass(world.config.peer_timeout + 20.0);
    for rank in [2, 3] {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(3)));
}

#[test]
fn a_released_ranks_status_outlives_its_leader_and_its_node() {
    let mut world = World::running(4, "1-3");
    world.exited(3, WaitStatus::exited(7));
    world.pass(1.0);
    world.unload(1);
    world.lose(3);
    world.load(1);
    world.pass(world.config.peer_timeout + 20.0);
    for rank in [1, 2] {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(7)));
    assert_eq!(world.notes(), Vec::<String>::new());
}

#[test]
fn a_lost_broker_is_waited_for_where_units_outlive_it() {
    let mut world = World::new(2);
    let ready = SupervisorEvent::Ready { method: Method::Systemd, notice: None };
    world.happen(0, Event::Supervisor(ready));
    world.start("0-1", false);
    world.all_started(0..2);
    world.lose(1);
    world.pass(world.config.peer_timeout * 0.9);
    assert_eq!(world.notes(), Vec::<String>::new(), "its shell may run on");
    world.pass(world.config.peer_timeout);
    assert_eq!(world.notes(), ["node failure on n1 (rank 1)"]);
    assert!(world.drained[0].starts_with("1 lost contact"), "{:?}", world.drained);
}

/// [missing-said]
#[test]
fn output_that_a_lost_node_may_have_kept_is_said_to_be_missing() {
    let mut world = World::running(3, "0-2");
    let (unit, status) = (world.unit_of(2), WaitStatus(0));
    world.report(2, &unit, UnitEvent::Exited { status });
    world.pass(0.1);
    world.lose(2);
    world.pass(1.0);
    let missing: Vec<BrokerRank> =
        world.events.iter().filter_map(ExecEvent::logged_missing).collect();
    assert_eq!(missing, [BrokerRank(2)]);
}

/// Rank 3 was released and is lost, and neither rank 0 nor the job's leader has heard of it in this life.
fn released_and_lost(status: WaitStatus) -> World {
    let mut world = World::running(4, "1-3");
    world.exited(3, status);
    world.pass(1.0);
    assert_eq!(world.released(), [("3".to_string(), false)]);
    world.unload(1);
    world.lose(3);
    world.lose(0);
    world.load(0);
    world.load(1);
    world.start("1-3", true);
    world.pass(world.config.peer_timeout * 2.0);
    world
}

/// [missing-said]
#[test]
fn output_that_a_released_rank_may_have_kept_is_said_to_be_missing() {
    let world = released_and_lost(WaitStatus(0));
    assert_eq!(world.notes(), Vec::<String>::new());
    let missing: Vec<BrokerRank> =
        world.events.iter().filter_map(ExecEvent::logged_missing).collect();
    assert_eq!(missing, [BrokerRank(3)]);
}

/// [released-status]
#[test]
fn a_status_counts_although_its_rank_was_released_and_cannot_be_asked() {
    let mut world = released_and_lost(WaitStatus(512));
    world.exited(1, WaitStatus(0));
    world.exited(2, WaitStatus(0));
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus(512)));
    assert_eq!(world.event_names().iter().filter(|name| **name == "debug.status").count(), 1);
}

/// [released-status]
#[test]
fn no_rank_is_released_before_a_checkpoint_holds_the_status() {
    let mut world = lasting(4);
    world.start("1-3", false);
    world.all_started(1..4);
    world.checkpoint = Err(Fault::new(libc::ENOSPC, "No space left on device"));
    world.exited(3, WaitStatus(512));
    world.pass(10.0);
    assert_eq!(world.event_names().iter().filter(|name| **name == "debug.status").count(), 1);
    assert_eq!(world.released(), []);
    world.checkpoint = Ok(());
    world.pass(10.0);
    assert_eq!(world.released(), [("3".to_string(), false)]);
    world.exited(2, WaitStatus(512));
    world.pass(0.2);
    assert_eq!(world.released().len(), 2, "the same status is not waited for again");
}

/// [released-status]
#[test]
fn a_status_whose_commit_was_lost_is_posted_by_the_next_leader() {
    let mut world = World::running(4, "1-3");
    world.exited(3, WaitStatus(512));
    world.pass(1.0);
    let posted = world.events.iter_mut().find(|event| event.name == "debug.status");
    *posted.expect("it is posted") = ExecEvent::status(WallTime(world.now), WaitStatus(256));
    world.unload(1);
    world.load(1);
    world.exited(2, WaitStatus(0));
    world.pass(1.0);
    assert_eq!(world.released().len(), 2);
    let posted = world.events.iter().filter(|event| event.name == "debug.status");
    let posted: Vec<_> = posted.filter_map(|event| event.raw_status("wait_status")).collect();
    assert_eq!(posted, [WaitStatus(256), WaitStatus(512)]);
}

/// [released-not-started], although the job manager has heard of no start.
#[test]
fn a_rank_that_was_released_starts_no_shell_although_its_record_is_lost() {
    for is_away in [false, true] {
        let mut world = lasting(4);
        world.start("1-3", false);
        // Rank 3 does not tell that its shell runs, so the job manager hears of no start.
        world.all_started(1..3);
        for rank in [1, 2, 3, 1, 2, 3] {
            world.enter_barrier(rank);
        }
        world.exited(2, WaitStatus(512));
        world.pass(2.0);
        assert_eq!(world.responses.len(), 1, "{:?}", world.responses);
        assert_eq!(world.released(), [("2".to_string(), false)]);
        (0..3).for_each(|rank| world.lose(rank));
        world.disks[2].records.clear();
        world.load(1);
        if !is_away {
            world.load(2);
        }
        // The job manager asks the new coordinator for what runs before it lists its jobs.
        world.nodes[0] = Some(Node::new(world.config.clone(), facts(0)));
        world.make_lasting(0);
        world.start("1-3", false);
        world.happen(0, Event::RunningAsked(Listing { run: vec![JOB], cleanup: vec![] }));
        world.pass(1.0);
        if is_away {
            world.load(2);
        }
        world.pass(5.0);
        assert_eq!(world.launched, [1, 2, 3], "each once");
        assert_eq!(world.notes(), Vec::<String>::new(), "it had ended");
    }
}

#[test]
fn a_rank_whose_shell_is_gone_misses_its_leader_before_long() {
    let mut world = World::running(3, "1-2");
    let asks_leader = |(rank, awaited): &(usize, Awaited)| {
        let Awaited::Known { asked, .. } = awaited else { return false };
        *rank == 2 && matches!(asked.question, Question::Leader { .. })
    };
    world.pass(2.0 * world.config.peer_timeout);
    assert!(!world.questions.iter().any(asks_leader), "while its shell runs it asks rarely");
    world.exited(2, WaitStatus(0));
    world.pass(world.config.peer_timeout + 1.0);
    assert!(world.questions.iter().any(asks_leader));
}

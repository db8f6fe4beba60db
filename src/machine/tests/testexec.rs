//! Mocked jobs (`attributes.system.exec.test`).

use serde_json::{Value, json};

use super::{JOB, OWNER, World, moment, start, start_event};
use crate::config::Config;
use crate::machine::{Credential, Event, RequestId};
use crate::proto::{ExecEvent, ReleasedRanks, Response, WaitStatus, WallTime};

const GUEST: u32 = 42;

/// Asks for a mocked job on ranks that do not exist.
fn ask(world: &mut World, userid: u32, test: &Value, reattach: bool) {
    let mut payload = start("7-9", reattach);
    payload["userid"] = json!(userid);
    payload["jobspec"] =
        json!({ "attributes": { "system": { "duration": 0.0, "exec": { "test": test } } } });
    let request = world.request();
    world.happen(0, start_event(request, &payload));
}

fn asked(test: &Value) -> World {
    let mut world = World::new(1);
    ask(&mut world, OWNER, test, false);
    world
}

/// The job's user has it start or end.
fn say(world: &mut World, userid: u32, event: &str, status: i32) -> Result<(), i32> {
    let credential = Credential { userid, owner: userid == OWNER, local: true };
    let (event, status) = (event.to_string(), WaitStatus(status));
    let request = RequestId::Remote(9);
    world.happen(0, Event::Override { request, credential, id: JOB, event, status });
    world.answers.pop().expect("an answer")
}

fn all_of_it(status: WaitStatus) -> [Response; 3] {
    let release = Response::Release { ranks: ReleasedRanks::All, is_final: true };
    [Response::Start {}, Response::Finish { status }, release]
}

#[test]
fn a_mocked_job_runs_for_its_time_and_asks_no_rank() {
    let mut world = asked(&json!({ "run_duration": "10s", "wait_status": 256 }));
    world.pass(9.0);
    assert_eq!(world.responses, [Response::Start {}]);
    world.pass(2.0);
    assert_eq!(world.responses, all_of_it(WaitStatus(256)));
    assert_eq!(world.event_names(), ["init", "starting", "recoverable", "complete", "done"]);
    assert_eq!((world.launched.len(), world.messages, world.drained.len()), (0, 0, 0));
    world.assert_ended();
}

#[test]
fn a_cancelled_one_ends_with_the_signal() {
    let mut world = asked(&json!({ "run_duration": "100s" }));
    world.cancel();
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus(15)));
    world.assert_ended();
}

#[test]
fn exceptions_are_mocked() {
    let mut world = asked(&json!({ "mock_exception": "init" }));
    assert_eq!(world.notes(), ["mock initialization exception generated"]);
    assert_eq!(world.status(), None);
    world.assert_ended();
    let mut world = asked(&json!({ "mock_exception": "run" }));
    world.pass(1.0);
    assert_eq!(world.notes(), ["mock run exception generated"]);
    assert_eq!(
        (world.responses.first(), world.status()),
        (Some(&Response::Start {}), Some(WaitStatus(15)))
    );
    world.assert_ended();
}

#[test]
fn its_user_lets_it_start_and_end() {
    let mut world = asked(&json!({ "override": 1 }));
    world.pass(100.0);
    assert_eq!(world.responses, []);
    assert_eq!(say(&mut world, OWNER, "finish", 0), Err(libc::EINVAL), "it has not started");
    assert_eq!(say(&mut world, GUEST, "start", 0), Err(libc::EPERM));
    assert_eq!(say(&mut world, OWNER, "begin", 0), Err(libc::EINVAL));
    assert_eq!(say(&mut world, OWNER, "start", 0), Ok(()));
    assert_eq!(world.responses, [Response::Start {}]);
    assert_eq!(say(&mut world, OWNER, "start", 0), Err(libc::EINVAL), "it has started");
    world.pass(100.0);
    assert_eq!(say(&mut world, OWNER, "finish", 9), Ok(()));
    world.pass(1.0);
    assert_eq!(world.responses, all_of_it(WaitStatus(9)));
    world.assert_ended();
    assert_eq!(say(&mut world, OWNER, "finish", 9), Err(libc::ENOENT), "it is forgotten");
}

#[test]
fn one_that_never_started_has_no_status() {
    let mut world = asked(&json!({ "override": 1 }));
    world.cancel();
    world.pass(1.0);
    assert_eq!((world.status(), world.responses.len()), (None, 1));
    world.assert_ended();
}

#[test]
fn another_rank_passes_on_what_the_user_says() {
    let mut world = World::new(2);
    ask(&mut world, GUEST, &json!({ "override": 1 }), false);
    assert!(world.notes()[0].contains("guests may not use test exec"), "{:?}", world.notes());
    let mut world = World::with(2, Config { testexec_allow_guests: true, ..Config::default() });
    ask(&mut world, GUEST, &json!({ "override": 1 }), false);
    for (userid, expected) in [(43, Err(libc::EPERM)), (GUEST, Ok(()))] {
        let credential = Credential { userid, owner: false, local: true };
        let (event, status, request) = ("start".to_string(), WaitStatus(0), RequestId::Remote(9));
        world.happen(1, Event::Override { request, credential, id: JOB, event, status });
        assert_eq!(world.answers.pop(), Some(expected));
    }
    assert_eq!(world.responses, [Response::Start {}]);
}

#[test]
fn nobody_overrides_a_job_that_does_not_wait() {
    let mut world = asked(&json!({}));
    assert_eq!(say(&mut world, OWNER, "start", 0), Err(libc::EINVAL));
    let mut world = World::running(1, "0");
    assert_eq!(say(&mut world, OWNER, "finish", 0), Err(libc::ENOENT));
}

/// Rank 0's broker has died. It is back after 30 s.
fn found_again(test: &Value) -> World {
    let mut world = asked(test);
    world.make_lasting(0);
    world.pass(10.0);
    world.unload(0);
    world.now += 30.0;
    world.load(0);
    world.make_lasting(0);
    world.responses.clear();
    ask(&mut world, OWNER, test, true);
    world
}

#[test]
fn a_later_leader_goes_on_from_when_it_began() {
    let mut world = found_again(&json!({ "run_duration": "100s", "wait_status": 256 }));
    assert_eq!(world.responses, [Response::Reattached {}]);
    world.pass(55.0);
    assert_eq!(world.status(), None);
    world.pass(10.0);
    assert_eq!(world.status(), Some(WaitStatus(256)));
    world.assert_ended();
    for test in
        [json!({ "run_duration": "20s" }), json!({ "run_duration": "9m", "reattach_finish": 1 })]
    {
        let mut world = found_again(&test);
        world.pass(1.0);
        assert_eq!(world.status(), Some(WaitStatus(0)), "{test}: it has ended meanwhile");
        world.assert_ended();
    }
}

/// Its user has written into the eventlog that it began in a thousand years, or ages ago.
#[test]
fn a_time_that_its_user_has_written_does_not_make_it_longer() {
    let test = json!({ "run_duration": "100s" });
    for (began, ends) in [(4e10, 101.0), (-1e308, 1.0)] {
        let mut world = asked(&test);
        world.make_lasting(0);
        world.unload(0);
        let at = |event: &&mut ExecEvent| event.name == "recoverable";
        world.events.iter_mut().find(at).expect("it has begun").timestamp = WallTime(began);
        world.load(0);
        world.make_lasting(0);
        world.responses.clear();
        ask(&mut world, OWNER, &test, true);
        world.pass(ends);
        assert_eq!(world.status(), Some(WaitStatus(0)), "{began}");
    }
}

#[test]
fn a_later_leader_of_one_that_waits_waits_as_well() {
    let test = json!({ "override": 1 });
    let mut world = asked(&test);
    world.unload(0);
    world.load(0);
    ask(&mut world, OWNER, &test, false);
    world.pass(100.0);
    assert_eq!(world.responses, []);
    assert_eq!(say(&mut world, OWNER, "start", 0), Ok(()));
    assert_eq!(world.responses, [Response::Start {}]);
}

/// [last-checkpoint]
#[test]
fn the_last_checkpoint_has_it_with_any_method() {
    let mut world = asked(&json!({ "run_duration": "100s" }));
    world.pass(10.0);
    assert_eq!(world.checkpoints, 0, "no shell outlives this broker");
    let now = moment(world.now);
    world.nodes[0].as_mut().expect("a node").finish(now);
    world.pass(1.0);
    assert_eq!(world.checkpoints, 1);
    assert!(world.nodes[0].as_ref().expect("a node").is_finished());
}

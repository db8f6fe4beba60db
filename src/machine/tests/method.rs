//! The method of one job (`attributes.system.exec.method`).

use serde_json::{Value, json};

use super::perilog::{perilog, running};
use super::{JOB, OWNER, World, facts, start, start_event};
use crate::config::Config;
use crate::machine::mono_time::MonoTime;
use crate::machine::{Effects, Event, Facts, Node, Now};
use crate::port::supervisor::{Method, SupervisorEvent};
use crate::proto::{Stage, WaitStatus, WallTime};

/// A job on all three ranks, of this user, where shells outlive brokers.
fn ask(userid: u32, method: &Value) -> World {
    let mut world = World::new(3);
    (0..3).for_each(|rank| world.make_lasting(rank));
    let mut payload = start("0-2", false);
    payload["userid"] = json!(userid);
    payload["jobspec"] = json!({ "attributes": { "system": { "exec": { "method": method } } } });
    let request = world.request();
    world.happen(0, start_event(request, &payload));
    world
}

/// Rank 2's broker dies while the job runs.
fn lose_broker(method: &str) -> World {
    let mut world = ask(OWNER, &json!(method));
    world.all_started(0..3);
    world.pass(0.1);
    world.lose(2);
    world.pass(0.1);
    world
}

#[test]
fn children_end_with_their_broker_and_units_do_not() {
    let world = lose_broker("fork");
    assert_eq!(world.notes(), ["node failure on n2 (rank 2)"]);
    assert!(world.drained.is_empty(), "{:?}", world.drained);
    let world = lose_broker("systemd");
    assert!(world.notes().is_empty(), "{:?}", world.notes());
}

#[test]
fn a_broker_that_does_not_come_back_is_not_waited_for() {
    let mut world = World::where_brokers_end(3);
    (0..3).for_each(|rank| world.make_lasting(rank));
    world.start("0-2", false);
    world.all_started(0..3);
    world.pass(0.1);
    world.lose(2);
    world.pass(0.1);
    assert_eq!(world.notes(), ["node failure on n2 (rank 2)"]);
    assert!(world.drained.is_empty(), "nothing is placed there: {:?}", world.drained);
}

#[test]
fn one_that_is_not_there_yet_is_waited_for() {
    let mut world = World::where_brokers_end(2);
    (0..2).for_each(|rank| world.make_lasting(rank));
    world.lose(1);
    world.start("0-1", false);
    world.started(0);
    world.pass(world.config.peer_timeout * 0.9);
    assert!(world.notes().is_empty(), "{:?}", world.notes());
}

#[test]
fn a_guest_gets_an_exception_for_any_method() {
    for method in ["auto", "sdexec"] {
        let world = ask(OWNER + 1, &json!(method));
        let notes = world.notes();
        assert!(notes[0].contains("guests may not choose system.exec.method"), "{notes:?}");
        assert!(world.launched.is_empty());
    }
}

#[test]
fn a_stop_keeps_jobs_where_brokers_come_back_and_shells_outlive_them() {
    let now = Now { mono: MonoTime(0.0), wall: WallTime(1e9) };
    let keeps = |method, facts: Facts, config| {
        let mut node = Node::new(config, facts);
        let ready = SupervisorEvent::Ready { method, notice: None };
        node.handle(now, Event::Supervisor(ready), &mut Effects::default());
        node.stats(now)["keeps-jobs"] == true
    };
    let waits = Node::new(Config::default(), facts(0)).stats(now);
    assert_eq!(waits["keeps-jobs"], true, "the shells that there are outlived a broker");
    assert!(keeps(Method::Systemd, facts(0), Config::default()));
    assert!(!keeps(Method::Fork, facts(0), Config::default()));
    assert!(!keeps(Method::Systemd, facts(0), Config { keep_jobs: false, ..Config::default() }));
    let ends = Facts { brokers_return: false, ..facts(0) };
    assert!(!keeps(Method::Systemd, ends, Config::default()));
    let no_connector = Some("it is not installed".to_string());
    assert!(!keeps(Method::Systemd, Facts { no_connector, ..facts(0) }, Config::default()));
}

/// Its shell had ended well, and the others do not miss it. A unit may go on there.
fn lose_epilog(is_unit: bool) {
    let mut world = running(3, perilog());
    if is_unit {
        (0..3).for_each(|rank| world.make_lasting(rank));
    }
    world.exited(2, WaitStatus(0));
    world.script_started(2, Stage::Epilog);
    world.pass(1.0);
    world.lose(2);
    world.pass(1000.0);
    assert_eq!(world.exceptions(), []);
    let may_run = format!("2 lost contact: processes of job {JOB} may still run");
    assert_eq!(world.drained, if is_unit { vec![may_run] } else { Vec::new() });
    assert_eq!(world.status(), None, "the others run on");
    for rank in 0..2 {
        world.exited(rank, WaitStatus(0));
        world.script_started(rank, Stage::Epilog);
        world.script_exited(rank, Stage::Epilog, WaitStatus(0));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus(0)));
    assert!(world.is_released());
}

#[test]
fn a_node_that_fails_in_its_epilog_does_not_fail_the_job() {
    lose_epilog(false);
    lose_epilog(true);
}

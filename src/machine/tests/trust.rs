//! What a job's user writes where he may must not hurt anybody else.

use serde_json::json;

use super::recovery::Alone;
use super::{JOB, World, start, start_event};
use crate::machine::{Answer, Credential, Effect, Event, RequestId};
use crate::port::supervisor::{Method, SupervisorEvent, UnitEvent};
use crate::proto::{ExecEvent, JobId, Response, WaitStatus};

/// A job on ranks 1 to 3 whose leader's module is away.
fn without_leader() -> World {
    let mut world = World::running(4, "1-3");
    assert_eq!(world.responses, [Response::Start {}]);
    world.unload(1);
    world
}

/// An event as the job's user has written it.
fn forged(name: &str, context: &serde_json::Value) -> ExecEvent {
    let event = json!({ "timestamp": 1.0, "name": name, "context": context });
    serde_json::from_value(event).unwrap()
}

#[test]
fn no_number_of_bytes_keeps_a_job_from_ending() {
    for bytes in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1] {
        let mut world = without_leader();
        for (rank, stream) in [("1", "stdout"), ("2", "stdout"), ("3", "stderr")] {
            let log = json!({ "stream": stream, "rank": rank, "data": "", "bytes": bytes });
            world.events.extend([forged("log", &log), forged("log", &log)]);
        }
        world.load(1);
        world.pass(1.0);
        world.output(2, u64::MAX - 2, "what\nelse\n");
        world.output(3, 0, "true\n");
        for rank in 1..4 {
            world.exited(rank, WaitStatus::exited(rank as i32));
        }
        world.pass(2.0);
        assert_eq!(world.status(), Some(WaitStatus::exited(3)));
        assert_eq!(world.notes(), Vec::<String>::new());
        let logged = |event: &&ExecEvent| event.context.get("data") == Some(&json!("true\n"));
        assert_eq!(world.events.iter().filter(logged).count(), 1, "another stream is as it was");
        world.assert_ended();
    }
}

fn statuses(world: &World) -> Vec<WaitStatus> {
    let finish = |response: &Response| match response {
        Response::Finish { status } => Some(*status),
        _ => None,
    };
    world.responses.iter().filter_map(finish).collect()
}

#[test]
fn a_status_that_the_jobs_user_has_posted_counts_for_nothing_where_the_shells_were_seen() {
    for (name, key) in [("complete", "status"), ("shell-exit", "wait_status")] {
        for lie in [0, 9 << 8] {
            let mut world = without_leader();
            world.events.push(forged(name, &json!({ key: lie })));
            world.exited(2, WaitStatus::exited(2));
            world.load(1);
            world.pass(1.0);
            for rank in [1, 3] {
                world.exited(rank, WaitStatus::exited(rank as i32));
            }
            world.pass(2.0);
            assert_eq!(statuses(&world), [WaitStatus::exited(3)], "{name} {lie}");
            let complete = world.events.iter().rfind(|event| event.name == "complete").unwrap();
            assert_eq!(complete.context["status"], 3 << 8, "a later leader reads the true one");
            let told = world.warnings.iter().filter(|text| text.contains(&JOB.to_string())).count();
            assert_eq!(told, usize::from(name == "complete"), "{:?}", world.warnings);
            world.assert_ended();
        }
    }
}

#[test]
fn where_a_shell_was_not_seen_the_status_that_was_posted_counts() {
    let mut world = without_leader();
    world.events.push(forged("complete", &json!({ "status": 5 << 8 })));
    world.lose(3);
    world.load(1);
    world.exited(1, WaitStatus::exited(0));
    world.exited(2, WaitStatus::exited(0));
    world.pass(400.0);
    assert_eq!(statuses(&world), [WaitStatus::exited(5)]);
    assert!(world.notes()[0].contains("node failure"), "{:?}", world.notes());
}

#[test]
fn a_status_that_was_said_stays_whatever_is_posted_later() {
    let mut world = without_leader();
    world.load(1);
    world.pass(1.0);
    for rank in 1..4 {
        // Something of each is left, so that the job goes on.
        let (unit, status) = (world.unit_of(rank), WaitStatus::exited(rank as i32));
        world.report(rank, &unit, UnitEvent::Exited { status });
    }
    world.pass(1.0);
    assert_eq!(statuses(&world), [WaitStatus::exited(3)]);
    world.unload(1);
    world.events.push(forged("complete", &json!({ "status": 0 })));
    world.load(1);
    world.pass(1.0);
    world.exited(1, WaitStatus::exited(1));
    for rank in 2..4 {
        let unit = world.unit_of(rank);
        world.report(rank, &unit, UnitEvent::Gone);
    }
    world.pass(2.0);
    assert_eq!(statuses(&world), [WaitStatus::exited(3)]);
    world.assert_ended();
}

/// A coordinator whose jobs 1 to 5 are user 501's, and whose job 6 is user 502's.
fn with_two_users() -> Alone {
    let mut node = Alone::new(0);
    node.hear(Event::Supervisor(SupervisorEvent::Ready { method: Method::Systemd, notice: None }));
    for id in 1..=6 {
        let mut payload = start("1-2", false);
        payload["id"] = json!(id);
        payload["userid"] = json!(user_of(id));
        node.hear(start_event(RequestId::Remote(id), &payload));
    }
    node
}

fn user_of(job: u64) -> u32 {
    if job == 6 { 502 } else { 501 }
}

/// Asks for a checkpoint, as the job's user; what is answered at once, if anything.
fn ask(node: &mut Alone, number: u64, job: u64) -> Option<String> {
    let credential = Credential { userid: user_of(job), owner: false, local: true };
    let request = RequestId::Remote(number);
    let effects = node.hear(Event::CheckpointAsked { request, credential, id: JobId(job) });
    effects.into_iter().find_map(|effect| match effect {
        Effect::Answer { answer: Answer::Done(result), .. } => {
            Some(result.unwrap_err().to_string())
        }
        _ => None,
    })
}

/// Lets a checkpoint begin, and says what it is to hold.
fn begin(node: &mut Alone) -> Vec<JobId> {
    for _ in 0..20_000 {
        for effect in node.hear(Event::Timeout) {
            if let Effect::Checkpoint { jobs, .. } = effect {
                return jobs;
            }
        }
    }
    panic!("no checkpoint was begun");
}

/// The checkpoint has been made: who is told so.
fn end(node: &mut Alone) -> Vec<u64> {
    let effects = node.hear(Event::Checkpointed(Ok(())));
    let answered = effects.into_iter().filter_map(|effect| match effect {
        Effect::Answer { to: RequestId::Remote(number), answer: Answer::Done(Ok(_)) } => {
            Some(number)
        }
        _ => None,
    });
    answered.collect()
}

#[test]
fn who_floods_the_coordinator_with_questions_keeps_nobody_else_from_an_answer() {
    let mut node = with_two_users();
    let mut numbers = 1000..;
    for job in 1..=4 {
        for _ in 0..1024 {
            assert_eq!(ask(&mut node, numbers.next().unwrap(), job), None, "job {job}");
        }
        let refusal = ask(&mut node, numbers.next().unwrap(), job);
        assert!(refusal.as_ref().is_some_and(|text| text.contains("this job")), "{refusal:?}");
    }
    let refusal = ask(&mut node, numbers.next().unwrap(), 5);
    assert!(refusal.as_ref().is_some_and(|text| text.contains("this user")), "{refusal:?}");
    assert_eq!(ask(&mut node, 1, 6), None);
    assert_eq!(begin(&mut node), [1, 2, 3, 4, 6].map(JobId));
    assert!(ask(&mut node, 2, 5).is_some(), "no room before they are answered");
    let answered = end(&mut node);
    assert!(answered.contains(&1) && answered.len() == 4097, "{}", answered.len());
    assert_eq!(ask(&mut node, 3, 5), None);
}

#[test]
fn who_does_not_wait_any_more_takes_no_room_in_a_checkpoint() {
    let mut node = with_two_users();
    for round in 0..2 {
        for number in 0..1024 {
            assert_eq!(ask(&mut node, 1000 + number, 1), None, "round {round}");
        }
        assert!(ask(&mut node, 1, 1).is_some());
        if round == 1 {
            assert_eq!(begin(&mut node), [JobId(1)]);
        }
        for number in 0..1024 {
            let request = RequestId::Remote(1000 + number);
            let effects = node.hear(Event::Disconnected { request });
            assert_eq!(effects, [Effect::Drop { to: request }]);
        }
    }
    assert_eq!(ask(&mut node, 2, 1), None, "while a checkpoint is under way");
    assert_eq!(end(&mut node), Vec::<u64>::new(), "this one came too late for it");
    assert_eq!(begin(&mut node), [JobId(1)]);
    assert_eq!(end(&mut node), [2]);
}

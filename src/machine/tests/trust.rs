//! What a job's user writes where he may must not hurt anybody else.

use serde_json::json;

use super::World;
use crate::proto::{ExecEvent, Response, WaitStatus};

/// A job on ranks 1 to 3 whose leader's module is away.
fn without_leader() -> World {
    let mut world = World::new(4);
    world.start("1-3", false);
    world.all_started(1..4);
    for _ in 0..2 {
        for rank in 1..4 {
            world.enter_barrier(rank);
        }
        world.pass(0.1);
    }
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

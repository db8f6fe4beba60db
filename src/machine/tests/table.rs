//! Every state against every input: nothing panics, and every job still comes to its end.

use serde_json::json;

use super::{JOB, World, start};
use crate::machine::{Event, Fault, KvsResult, Opened, RequestId, StreamId};
use crate::port::supervisor::{Method, UnitEvent};
use crate::proto::peer::{
    LeadReply, Mode, Order, OrderRequest, RankReport, Report, Reports, StreamEnd, VERSION, Version,
};
use crate::proto::{Idset, JobException, Response, Stream, WaitStatus};

/// Worlds with a job on ranks 1 and 2 of three, in every state that its roles have.
fn states() -> Vec<(&'static str, World)> {
    let fresh = World::new(3);
    let mut launching = World::new(3);
    launching.start("1-2", false);
    let mut half = World::new(3);
    half.start("1-2", false);
    half.started(1);
    let running = || {
        let mut world = World::new(3);
        world.start("1-2", false);
        world.all_started(1..3);
        world
    };
    let mut barrier = running();
    barrier.enter_barrier(1);
    let mut exited = running();
    exited.exited(1, WaitStatus(0));
    exited.pass(1.0);
    let mut killing = running();
    killing.cancel();
    let mut leaderless = running();
    leaderless.unload(1);
    let mut coordinatorless = running();
    coordinatorless.unload(0);
    coordinatorless.load(0);
    let mut ended = running();
    ended.exited(1, WaitStatus(0));
    ended.exited(2, WaitStatus(0));
    ended.pass(1.0);
    vec![
        ("fresh", fresh),
        ("launching", launching),
        ("half", half),
        ("running", running()),
        ("barrier", barrier),
        ("exited", exited),
        ("killing", killing),
        ("leaderless", leaderless),
        ("coordinatorless", coordinatorless),
        ("ended", ended),
    ]
}

/// A coordinator asks rank 0 to lead the job again.
fn lead(request: RequestId) -> Event {
    let payload = json!({"version": VERSION, "start": {
        "id": JOB, "userid": super::OWNER, "reattach": true, "R": start("1-2", true)["R"],
        "jobspec": {"read": {}},
    }});
    let owner = super::Credential { userid: super::OWNER, owner: true };
    super::Topic::Lead.read(request, owner, payload.to_string().as_bytes()).expect("an event")
}

fn inputs(world: &World, rank: usize) -> Vec<Event> {
    let unit = world.unit_of(rank);
    let fault = || Fault::new(libc::EIO, "broken");
    let stream = StreamId(1);
    let report = |report: Report| Event::Reported {
        stream,
        result: Ok(Reports {
            reports: vec![RankReport { ranks: Idset::from_range(0..9), report }],
        }),
    };
    let ranks = || Idset::from_range(0..9);
    let order = |order: Order| {
        Event::Order(OrderRequest {
            version: Version,
            id: JOB,
            generation: 0,
            ranks: ranks(),
            order,
        })
    };
    let kvs = |result: KvsResult| Event::Kvs { id: JOB, result };
    let request = RequestId::Remote(1);
    let opened = Opened { moved: true, ..Opened::default() };
    vec![
        Event::Timeout,
        super::start_event(request, &json!({"id": JOB})),
        super::start_event(request, &json!(null)),
        lead(request),
        Event::Shells {
            request,
            shells: Box::new(super::recovery::shells(0, "other", Mode::Start)),
        },
        order(Order::Forget),
        order(Order::Signal { signal: 9, all: true }),
        order(Order::Barrier { count: 3, failed: false }),
        order(Order::Barrier { count: 0, failed: true }),
        order(Order::Acknowledge { stream: Stream::Stderr, offset: u64::MAX, checkpointed: 0 }),
        report(Report::Running),
        report(Report::Barrier { entered: 7 }),
        report(Report::Exited { status: WaitStatus(9) }),
        report(Report::Gone),
        report(Report::Left),
        report(Report::Lost { message: "x".into() }),
        report(Report::Failed { errnum: libc::EACCES, message: "x".into() }),
        report(Report::NeverStarted),
        report(Report::Unreachable { end: StreamEnd::NotLoaded { reason: "x".into() } }),
        report(Report::Orphaned),
        report(Report::CriticalRanks { ranks: Idset::new() }),
        report(Report::Output { stream: Stream::Stdout, offset: 7, data: vec![0xff] }),
        Event::Reported { stream, result: Err(StreamEnd::Unloaded) },
        Event::Replied { stream, result: Ok(LeadReply::Response(Response::Start {})) },
        Event::Replied { stream, result: Err(StreamEnd::BrokerGone) },
        kvs(KvsResult::Appended(Err(fault()))),
        kvs(KvsResult::Linked(Err(fault()))),
        kvs(KvsResult::Opened(Ok(opened))),
        Event::Exception(JobException {
            id: JOB,
            kind: "cancel".into(),
            severity: 0,
            wait_status: Some(WaitStatus(9)),
        }),
        Event::Expiration { request, id: JOB, expiration: f64::NAN },
        Event::Expiration { request, id: JOB, expiration: 1.0 },
        Event::Parked { request, id: JOB, entry: 2 },
        Event::Unit(UnitEvent::Started { unit: unit.clone(), pid: 1 }),
        Event::Unit(UnitEvent::Left { unit: unit.clone() }),
        Event::Unit(UnitEvent::Lost { unit: unit.clone(), message: "x".into() }),
        Event::Unit(UnitEvent::Failed { unit: unit.clone(), errnum: 5, message: "x".into() }),
        Event::Unit(UnitEvent::NeverStarted { unit: unit.clone() }),
        Event::Unit(UnitEvent::Gone { unit }),
        Event::Unit(UnitEvent::Ready { method: Method::Fork, notice: None }),
        Event::Unit(UnitEvent::Unusable { message: "x".into() }),
    ]
}

/// Ends everything that can end, from outside.
fn finish(world: &mut World) {
    for rank in 0..3 {
        if world.nodes[rank].is_none() {
            world.load(rank);
        }
    }
    world.pass(10.0);
    world.cancel();
    for rank in 1..3 {
        if world.launched.contains(&(rank as u32)) {
            world.started(rank);
            world.exited(rank, WaitStatus::exited(1));
            let unit = world.unit_of(rank);
            world.happen(rank, Event::Unit(UnitEvent::Gone { unit }));
        }
    }
    world.pass(2000.0);
}

#[test]
fn every_state_answers_every_input() {
    let names: Vec<&str> = states().iter().map(|(name, _)| *name).collect();
    for (index, name) in names.iter().enumerate() {
        for rank in 0..3 {
            let count = inputs(&World::new(3), rank).len();
            for input in 0..count {
                let mut world = states().swap_remove(index).1;
                if world.nodes[rank].is_none() {
                    continue;
                }
                let event = inputs(&world, rank).swap_remove(input);
                let what = format!("{name}, rank {rank}: {event:?}");
                world.happen(rank, event);
                let asked =
                    world.nodes[0].as_ref().is_some_and(|n| n.coordinator.jobs().count() > 0);
                finish(&mut world);
                let ends = world.released().iter().filter(|(_, last)| *last).count();
                assert!(ends >= usize::from(asked), "{what}: {:?}", world.responses);
                for node in world.nodes.iter().flatten() {
                    assert!(node.leaders.is_empty(), "{what}: still led");
                }
            }
        }
    }
}

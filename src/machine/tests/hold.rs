//! Jobs in CLEANUP when rank 0 goes.

use super::{JOB, OWNER, World, start};
use crate::machine::{Event, Fault, Role};
use crate::proto::{
    Cleaning, DegradedNodes, Exception, JobEvent, JobEventlog, JobId, Response, WaitStatus,
};

impl World {
    pub(super) fn begin_hold(&mut self, rank: usize) {
        self.posted.push(JobEvent::EpilogStart);
        let event = (rank, Event::Held { id: JOB, result: self.hold_result.clone() });
        if self.hold_holds {
            self.held.push_back(event);
        } else {
            self.queue.push_back(event);
        }
    }

    pub(super) fn await_release(&mut self, rank: usize, id: JobId) {
        let event = (rank, Event::ReleaseKept { id });
        if self.hold_holds { &mut self.held } else { &mut self.queue }.push_back(event);
    }

    pub(super) fn tell(&mut self, rank: usize, asker: Role, nodes: Box<DegradedNodes>) {
        let event = JobEvent::NodeDegraded((*nodes).clone());
        let result = Ok(!self.posted.contains(&event));
        self.posted.push(event);
        let event = (rank, Event::Told { asker, id: JOB, nodes, result });
        if self.hold_holds { &mut self.held } else { &mut self.queue }.push_back(event);
    }

    pub(super) fn post(&mut self, event: JobEvent) {
        if let JobEvent::Response(response) = &event {
            self.responses.push(response.clone());
        }
        self.posted.push(event);
    }
}

/// A job on ranks 1 and 2 that runs. Its shells outlive their brokers.
fn running() -> World {
    let mut world = World::new(3);
    (0..3).for_each(|rank| world.make_lasting(rank));
    world.start("1-2", false);
    world.all_started(1..3);
    world
}

fn end_shells(world: &mut World) {
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(0.5);
}

/// What the KVS has of the job when it is in CLEANUP.
fn cleaning(log: JobEventlog) -> Event {
    let log = JobEventlog { userid: Some(OWNER), has_resources: true, is_started: true, ..log };
    let r = start("1-2", true)["R"].to_string();
    let cleaning = Cleaning::read(JOB, log, "{}", &r).expect("readable").expect("to be led");
    Event::Cleaning(Box::new(cleaning))
}

#[test]
fn a_job_that_ends_between_two_checkpoints_costs_nothing() {
    let mut world = running();
    world.pass(2.0);
    end_shells(&mut world);
    assert_eq!(world.posted, []);
    world.assert_ended();
}

#[test]
fn a_checkpoint_waits_until_the_jobs_in_cleanup_are_held() {
    let mut world = running();
    world.pass(2.0);
    let before = world.checkpoints;
    world.hold_holds = true;
    world.cancel();
    world.pass(2.0);
    assert_eq!((&world.posted[..], world.checkpoints), (&[JobEvent::EpilogStart][..], before));
    world.deliver_held();
    assert_eq!(world.checkpoints, before + 1);
    end_shells(&mut world);
    world.assert_ended();
    assert_eq!(world.posted, [JobEvent::EpilogStart, JobEvent::EpilogFinish], "once each");
}

/// [cleanup-held]. Else the checkpoint could have its `finish`, and not its release.
#[test]
fn a_checkpoint_waits_until_the_release_of_a_job_that_has_ended_is_kept() {
    let mut world = running();
    world.pass(2.0);
    let before = world.checkpoints;
    world.hold_holds = true;
    end_shells(&mut world);
    world.pass(2.0);
    assert_eq!((&world.posted[..], world.checkpoints), (&[][..], before));
    world.deliver_held();
    assert_eq!(world.checkpoints, before + 1);
    world.assert_ended();
}

#[test]
fn a_release_that_is_never_kept_keeps_no_checkpoint_for_ever() {
    let mut world = running();
    world.pass(2.0);
    let before = world.checkpoints;
    world.hold_holds = true;
    end_shells(&mut world);
    world.pass(90.0);
    assert!(world.checkpoints > before);
}

#[test]
fn a_checkpoint_does_not_wait_for_ever() {
    let mut world = running();
    world.pass(2.0);
    let before = world.checkpoints;
    world.hold_holds = true;
    world.cancel();
    world.pass(30.0);
    assert_eq!(world.checkpoints, before, "the job would be freed after a crash");
    world.pass(60.0);
    assert!(world.checkpoints > before);
    world.deliver_held();
    end_shells(&mut world);
    world.assert_ended();
}

#[test]
fn a_job_that_cannot_be_held_is_not_let_go_either() {
    let mut world = running();
    world.hold_result = Err(Fault::new(libc::ENOENT, "unknown job"));
    world.cancel();
    world.pass(2.0);
    assert!(world.warnings.iter().any(|text| text.contains("unknown job")), "{:?}", world.warnings);
    end_shells(&mut world);
    world.assert_ended();
    assert_eq!(world.posted, [JobEvent::EpilogStart], "an epilog-finish would end another's hold");
}

#[test]
fn an_unloaded_module_leaves_its_job_held_and_finds_it_again() {
    let mut world = running();
    world.cancel();
    world.unload(0);
    assert_eq!(world.posted, [JobEvent::EpilogStart]);
    world.load(0);
    world.make_lasting(0);
    let exception = Some("cancel".to_string());
    world.happen(0, cleaning(JobEventlog { exception, is_held: true, ..JobEventlog::default() }));
    end_shells(&mut world);
    world.assert_ended();
    assert_eq!(world.posted.last(), Some(&JobEvent::EpilogFinish));
    let starts = world.posted.iter().filter(|event| **event == JobEvent::EpilogStart).count();
    assert_eq!(starts, 1, "it is held already");
    let said = |event: &&JobEvent| matches!(event, JobEvent::Response(Response::Exception(_)));
    assert_eq!(world.posted.iter().find(said), None, "the job manager has the exception");
    let finish =
        world.posted.iter().any(|e| matches!(e, JobEvent::Response(Response::Finish { .. })));
    assert!(finish, "{:?}", world.posted);
}

#[test]
fn a_job_that_is_not_held_is_held_when_it_is_found() {
    let mut world = running();
    world.lose(0);
    world.load(0);
    world.make_lasting(0);
    let finish = Some(WaitStatus(0));
    world.happen(0, cleaning(JobEventlog { finish, ..JobEventlog::default() }));
    assert_eq!(world.posted, [JobEvent::EpilogStart]);
    end_shells(&mut world);
    world.assert_ended();
    assert_eq!(world.posted.last(), Some(&JobEvent::EpilogFinish));
    assert!(
        !world.posted.contains(&JobEvent::Response(Response::Finish { status: WaitStatus(0) }))
    );
}

#[test]
fn a_hold_that_was_left_behind_is_ended() {
    let mut world = World::new(3);
    let log = JobEventlog { is_released: true, is_held: true, ..JobEventlog::default() };
    world.happen(0, cleaning(log));
    assert_eq!(world.posted, [JobEvent::EpilogFinish]);
}

#[test]
fn nothing_is_held_for_shells_that_do_not_outlive_their_brokers() {
    let mut world = World::running(3, "1-2");
    world.cancel();
    world.pass(2.0);
    world.unload(0);
    assert_eq!(world.posted, []);
}

/// An exception that only the service knows of is posted for a job that nobody has asked for.
#[test]
fn what_goes_wrong_in_cleanup_is_posted() {
    let mut world = running();
    world.lose(0);
    world.load(0);
    world.make_lasting(0);
    world
        .happen(0, cleaning(JobEventlog { finish: Some(WaitStatus(0)), ..JobEventlog::default() }));
    world.lose(2);
    world.pass(2000.0);
    let is_exception = |event: &JobEvent| {
        matches!(event, JobEvent::Response(Response::Exception(Exception { .. })))
    };
    assert!(world.posted.iter().any(is_exception), "{:?}", world.posted);
}

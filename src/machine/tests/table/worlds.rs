//! Worlds with a job on ranks 1 and 2 of three. Together they have every role in every state.

use super::super::{Credential, JOB, OWNER, World, perilog};
use crate::machine::{Event, Fault, RequestId, StreamId};
use crate::port::supervisor::{StartFailure, UnitEvent};
use crate::proto::peer::{LeadReply, StreamEnd};
use crate::proto::{ReleasedRanks, Response, Stage, WaitStatus};

/// A shell's request that waits for a checkpoint.
pub(super) const ASKED: RequestId = RequestId::Remote(7);

/// A world's name, and how it is made.
pub(super) type Named = (&'static str, fn() -> World);

/// All worlds. A number in a name is the rank on which something happened.
pub(super) const WORLDS: &[Named] = &[
    ("fresh", || World::new(3)),
    ("unasked", unasked),
    ("unasked, checkpoint asked", || with_checkpoint_asked(unasked())),
    ("asked", asked),
    ("asked, checkpoint asked", || with_checkpoint_asked(asked())),
    ("opening", opening),
    ("launching", launching),
    ("half", half),
    ("running", running),
    ("present, checkpoint asked", || with_checkpoint_asked(lasting_running())),
    ("barrier", barrier),
    ("killing", killing),
    ("leaderless", leaderless),
    ("away, checkpoint asked", away_with_checkpoint_asked),
    ("away, an old stream open", away_with_an_old_stream),
    ("coordinatorless", coordinatorless),
    ("released too early", released_too_early),
    ("agent away", agent_away),
    ("pending again", pending_again),
    ("never started", never_started),
    ("never started, led", never_started_and_led),
    ("failed 1", || failed_on(1)),
    ("failed 2", || failed_on(2)),
    ("lost 1", || lost_on(1)),
    ("lost 2", || lost_on(2)),
    ("gone 1", || gone_on(1)),
    ("gone 2", || gone_on(2)),
    ("exited", exited),
    ("moving", moving),
    ("ended", ended),
    ("ended, checkpoint asked", ended_with_checkpoint_asked),
    ("no shell", no_shell),
    ("streams open", with_streams_open),
    ("opening, streams open", opening_with_streams_open),
    ("parent over, a stream open", parent_over),
    ("prologs asked", prologs_asked),
    ("prologs running", prologs_running),
    ("prologs stuck", prologs_stuck),
    ("prolog 1 ended", prolog_ended),
    ("prolog 1 gone", prolog_gone),
    ("epilogs running", epilogs_running),
];

/// Its shells outlive their brokers.
fn lasting() -> World {
    let mut world = World::new(3);
    (0..3).for_each(|rank| world.make_lasting(rank));
    world
}

fn launched(mut world: World) -> World {
    world.start("1-2", false);
    world
}

fn unit(world: &mut World, rank: usize, event: UnitEvent) {
    let event = event.of(&world.unit_of(rank));
    world.happen(rank, Event::Supervisor(event));
}

fn with_checkpoint_asked(mut world: World) -> World {
    let credential = Credential { userid: OWNER, owner: true, local: true };
    world.happen(0, Event::CheckpointAsked { request: ASKED, credential, id: JOB });
    world
}

/// The job manager asks again for a job that runs. Which ranks it has back could not be looked up, and
/// will be again.
fn unasked() -> World {
    let mut world = lasting_running();
    world.lose_released = Some(Err(Fault::new(libc::EIO, "no")));
    world.start("1-2", true);
    world
}

fn asked() -> World {
    let mut world = lasting();
    world.hold_asked = true;
    launched(world)
}

fn opening() -> World {
    let mut world = lasting();
    world.lose_namespace = true;
    world.start("1-2", true);
    world
}

fn prologs_asked() -> World {
    launched(perilog::world(3, perilog::perilog()))
}

fn prologs_running() -> World {
    let mut world = prologs_asked();
    (1..3).for_each(|rank| world.script_started(rank, Stage::Prolog));
    world
}

/// They do not end at SIGTERM.
fn prologs_stuck() -> World {
    let mut world = prologs_running();
    world.pass(100.0);
    world.pass(10.0);
    world
}

/// Not everything of the unit is gone.
fn prolog_ended() -> World {
    let mut world = prologs_running();
    let unit = world.unit_of_stage(1, Stage::Prolog);
    world.report(1, &unit, UnitEvent::Exited { status: WaitStatus(0) });
    world
}

fn prolog_gone() -> World {
    let mut world = prologs_running();
    world.script_exited(1, Stage::Prolog, WaitStatus(0));
    world
}

fn epilogs_running() -> World {
    let mut world = prolog_gone();
    world.script_exited(2, Stage::Prolog, WaitStatus(0));
    world.pass(0.05);
    world.all_started(1..3);
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
        world.script_started(rank, Stage::Epilog);
    }
    world
}

fn launching() -> World {
    launched(World::new(3))
}

fn half() -> World {
    let mut world = launching();
    world.started(1);
    world
}

fn running() -> World {
    let mut world = launching();
    world.all_started(1..3);
    world
}

fn lasting_running() -> World {
    let mut world = launched(lasting());
    world.all_started(1..3);
    world
}

fn barrier() -> World {
    let mut world = running();
    world.enter_barrier(1);
    world
}

fn killing() -> World {
    let mut world = running();
    world.cancel();
    world
}

fn leaderless() -> World {
    let mut world = running();
    world.unload(1);
    world
}

fn away_with_checkpoint_asked() -> World {
    let mut world = with_checkpoint_asked(lasting_running());
    world.unload(1);
    world
}

/// The coordinator has asked twice, and the second stream has ended.
fn away_with_an_old_stream() -> World {
    let mut world = asked();
    world.cancel();
    let (stream, result) = (StreamId(2), Err(StreamEnd::BrokerGone));
    world.happen(0, Event::Replied { stream, result });
    world
}

fn coordinatorless() -> World {
    let mut world = running();
    world.unload(0);
    world.load(0);
    world
}

/// A leader says the final release while its stream stays open.
fn released_too_early() -> World {
    let mut world = running();
    let release = Response::Release { ranks: ReleasedRanks::All, is_final: true };
    let (stream, result) = (StreamId(1), Ok(LeadReply::Response(release)));
    world.happen(0, Event::Replied { stream, result });
    world
}

fn agent_away() -> World {
    let mut world = running();
    world.unload(2);
    world
}

/// The module of rank 2 has found a record, and does not know more yet.
fn pending_again() -> World {
    let mut world = lasting_running();
    world.unload(2);
    world.load_unseen(2);
    world
}

fn never_started() -> World {
    let mut world = launched(lasting());
    world.unload(2);
    world.load_unseen(2);
    unit(&mut world, 2, UnitEvent::NeverStarted);
    world
}

/// Nobody starts the shell of a job that has failed.
fn never_started_and_led() -> World {
    let mut world = launched(lasting());
    world.unload(1);
    world.load_unseen(1);
    unit(&mut world, 1, UnitEvent::NeverStarted);
    world.cancel();
    world.pass(0.3);
    world
}

fn failed_on(rank: usize) -> World {
    let mut world = launching();
    let message = "no such program".to_string();
    unit(&mut world, rank, UnitEvent::Failed(StartFailure { errnum: libc::ENOENT, message }));
    world
}

fn lost_on(rank: usize) -> World {
    let mut world = running();
    let message = "no trace of it is left".to_string();
    unit(&mut world, rank, UnitEvent::Lost { message });
    world
}

fn gone_on(rank: usize) -> World {
    let mut world = running();
    world.exited(rank, WaitStatus(0));
    world.pass(1.0);
    world
}

/// Processes are left of both shells.
fn exited() -> World {
    let mut world = running();
    for rank in 1..3 {
        unit(&mut world, rank, UnitEvent::Exited { status: WaitStatus(0) });
    }
    world.pass(0.05);
    world
}

/// A commit is tried again before the data can move.
fn moving() -> World {
    let mut world = running();
    world.fail_commits = 100;
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
        world.pass(0.05);
    }
    world
}

fn end_shells(world: &mut World) {
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
    }
}

fn ended() -> World {
    let mut world = running();
    end_shells(&mut world);
    world.pass(0.2);
    world
}

fn ended_with_checkpoint_asked() -> World {
    let mut world = with_checkpoint_asked(lasting_running());
    end_shells(&mut world);
    world
}

/// The shells of a job that ran are not there. No checkpoint says that the job has ended.
fn no_shell() -> World {
    let mut world = lasting();
    world.checkpoint = Err(Fault::new(libc::ENOSPC, "No space left on device"));
    world.start("1-2", true);
    world.pass(0.1);
    world
}

/// Rank 2 stalls before it hears that the job has ended, so rank 1 still waits for its reports. The
/// module of rank 2 was loaded again meanwhile, so the leader, too, has a stream to it.
fn with_streams_open() -> World {
    let mut world = lasting_running();
    world.unload(2);
    world.load(2);
    world.pass(1.0);
    end_shells(&mut world);
    world.nodes[2] = None;
    world.pass(5.0);
    world
}

/// Rank 2 stalls before it hears that the job has ended, and rank 1 has nothing left of it.
fn parent_over() -> World {
    let mut world = lasting_running();
    end_shells(&mut world);
    world.nodes[2] = None;
    world.pass(5.0);
    world
}

fn opening_with_streams_open() -> World {
    let mut world = with_streams_open();
    world.lose_namespace = true;
    world.start("1-2", true);
    world
}

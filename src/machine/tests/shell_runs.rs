//! What a rank says of its own shell to the others of the job.

use super::recovery::Alone;
use super::{Credential, JOB, OWNER, World};
use crate::machine::{Answer, Effect, Event, RequestId};
use crate::port::supervisor::{UnitCommand, UnitEvent};
use crate::proto::peer::Mode;
use crate::proto::{BrokerRank, WaitStatus};

const USER: Credential = Credential { userid: OWNER, owner: false, local: true };
const STRANGER: Credential = Credential { userid: 99, owner: false, local: true };

/// The errno with which the question is answered; 0 if the shell runs.
fn asked(alone: &mut Alone, credential: Credential) -> i32 {
    let request = RequestId::Remote(7);
    let effects = alone.hear(Event::ShellRuns { request, credential, id: JOB, rank: None });
    match effects.as_slice() {
        [Effect::Answer { to, answer: Answer::Done(result) }] if *to == request => {
            result.as_ref().err().map_or(0, |fault| fault.errnum)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shell_runs_until_it_has_ended() {
    let mut alone = Alone::new(1);
    assert_eq!(asked(&mut alone, USER), libc::ENOENT);
    let launched = alone.shells(1, 1, "digest", Mode::Start);
    let unit = launched.iter().find_map(|effect| match effect {
        Effect::Unit(_, UnitCommand::Launch(spec)) => Some(spec.unit.clone()),
        _ => None,
    });
    let unit = unit.expect("it is launched");
    assert_eq!(asked(&mut alone, USER), 0, "it is going to");
    alone.hear(Event::Supervisor(UnitEvent::Started { pid: 100 }.of(&unit)));
    assert_eq!(asked(&mut alone, USER), 0);
    assert_eq!(asked(&mut alone, STRANGER), libc::EPERM);
    alone.hear(Event::Supervisor(UnitEvent::Exited { status: WaitStatus(0) }.of(&unit)));
    assert_eq!(asked(&mut alone, USER), libc::ESRCH);
}

/// Else others would wait for it (simulator seed 1730).
#[test]
fn a_shell_of_which_nothing_is_known_does_not_run() {
    let mut alone = Alone::new(1);
    alone.shells(1, 1, "digest", Mode::Adopt);
    assert_eq!(asked(&mut alone, USER), libc::ESRCH);
}

/// What the module of this rank says of the shell on another.
fn said_of(world: &mut World, asked: usize, rank: u32) -> i32 {
    let (request, rank) = (RequestId::Remote(7), Some(BrokerRank(rank)));
    world.happen(asked, Event::ShellRuns { request, credential: USER, id: JOB, rank });
    world.answers.pop().expect("it is answered").err().unwrap_or(0)
}

#[test]
fn the_leaders_module_knows_which_other_shells_have_ended_or_were_given_up() {
    let mut world = World::running(4, "0-3");
    let request = RequestId::Remote(3);
    let ranks = "0-1,3".parse().expect("an idset");
    world.happen(0, Event::CriticalRanks { request, credential: USER, id: JOB, ranks });
    assert_eq!(said_of(&mut world, 0, 2), 0);
    world.unload(2);
    world.pass(world.config.peer_timeout * 0.5);
    assert_eq!(said_of(&mut world, 0, 2), 0, "it may come back");
    world.pass(world.config.peer_timeout);
    assert_eq!(said_of(&mut world, 0, 2), libc::ESRCH);
    world.exited(3, WaitStatus(0));
    world.pass(0.1);
    assert_eq!(said_of(&mut world, 0, 3), libc::ESRCH);
    assert_eq!(said_of(&mut world, 0, 1), 0);
    assert_eq!(said_of(&mut world, 0, 9), 0, "no rank of the job");
    assert_eq!(said_of(&mut world, 1, 2), 0, "it does not lead the job, and does not know");
}

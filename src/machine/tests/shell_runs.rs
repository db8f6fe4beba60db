//! What a rank says of its own shell to the others of the job.

use super::recovery::Alone;
use super::{Credential, JOB, OWNER};
use crate::machine::{Answer, Effect, Event, RequestId};
use crate::port::supervisor::{UnitCommand, UnitEvent};
use crate::proto::WaitStatus;
use crate::proto::peer::Mode;

const USER: Credential = Credential { userid: OWNER, owner: false, local: true };
const STRANGER: Credential = Credential { userid: 99, owner: false, local: true };

/// The errno with which the question is answered; 0 if the shell runs.
fn asked(alone: &mut Alone, credential: Credential) -> i32 {
    let request = RequestId::Remote(7);
    let effects = alone.hear(Event::ShellRuns { request, credential, id: JOB });
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
        Effect::Unit(UnitCommand::Launch(spec)) => Some(spec.unit.clone()),
        _ => None,
    });
    let unit = unit.expect("it is launched");
    assert_eq!(asked(&mut alone, USER), 0, "it is going to");
    alone.hear(Event::Unit(UnitEvent::Started { unit: unit.clone(), pid: 100 }));
    assert_eq!(asked(&mut alone, USER), 0);
    assert_eq!(asked(&mut alone, STRANGER), libc::EPERM);
    alone.hear(Event::Unit(UnitEvent::Exited { unit, status: WaitStatus(0) }));
    assert_eq!(asked(&mut alone, USER), libc::ESRCH);
}

//! Commits that ended shells have left.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::{Credential, JOB, World, facts, record};
use crate::machine::{
    Answer, Effect, Effects, Event, Fault, KvsOp, KvsResult, MonoTime, RequestId,
};
use crate::port::Note;
use crate::port::supervisor::{SupervisorEvent, UnitCommand, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::Mode;
use crate::proto::{Bequest, BrokerRank, JobId, UnitName, WaitStatus};

use super::recovery::Alone;

const CLIENT: &str = "0011223344556677";
const USER: Credential = Credential { userid: super::OWNER, owner: false, local: true };
const STRANGER: Credential = Credential { userid: 99, owner: false, local: true };

fn bequest() -> Arc<Bequest> {
    let commits = json!([{ "number": 1, "commit": { "flags": 0, "ops": [] } }]);
    let bequest = json!({ "client": CLIENT, "shell": false, "commits": commits });
    Arc::new(serde_json::from_value(bequest).expect("a bequest"))
}

fn leave(number: u64, credential: Credential) -> Event {
    let request = RequestId::Remote(number);
    Event::KeepCommits { request, credential, id: JOB, bequest: bequest() }
}

fn answer_of(effects: &[Effect], number: u64) -> Option<Option<i32>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Answer { to: RequestId::Remote(to), answer: Answer::Done(result) }
            if *to == number =>
        {
            Some(result.as_ref().err().map(|fault| fault.errnum))
        }
        _ => None,
    })
}

/// A rank with a running shell.
fn with_shell() -> (Alone, UnitName) {
    let mut alone = Alone::new(1);
    let asked = alone.shells(1, 1, "digest", Mode::Start);
    let unit = asked.iter().find_map(|effect| match effect {
        Effect::Unit(_, UnitCommand::Launch(spec)) => Some(spec.unit.clone()),
        _ => None,
    });
    (alone, unit.expect("it is launched"))
}

/// A shell of another job is found, with as many commits as one job may leave.
fn find_full(alone: &mut Alone, job: JobId, userid: u32) {
    let unit = UnitName::new(false, BrokerRank(1), job, facts(1).instance);
    let commit = json!({ "flags": 0, "ops": ["x".repeat((16 << 20) - 1000)] });
    let commits = json!([{ "number": 1, "commit": commit }]);
    let bequest = json!({ "client": CLIENT, "shell": false, "commits": commits });
    let note = Note::Commits(Arc::new(serde_json::from_value(bequest).expect("a bequest")));
    let spec = UnitSpec { userid, size: 1, ..UnitSpec::bare(unit, "another".into()) };
    let notes = BTreeMap::from([(note.key(), note.value())]);
    let record = UnitRecord { notes, ..record(&spec) };
    alone.hear(Event::Supervisor(SupervisorEvent::Found(Box::new(record))));
}

/// [user-requests-bounded]
#[test]
fn a_user_with_many_jobs_leaves_no_more_than_so_much_on_a_rank() {
    let (mut alone, unit) = with_shell();
    for job in 1..5 {
        find_full(&mut alone, JobId(job + 1000), super::OWNER);
        find_full(&mut alone, JobId(job + 2000), 99);
    }
    let taken = alone.hear(leave(7, USER));
    assert_eq!(answer_of(&taken, 7), None, "others have theirs: {taken:?}");
    let written = UnitEvent::Kept { client: CLIENT.to_string(), is_written: true };
    alone.hear(Event::Supervisor(written.of(&unit)));
    find_full(&mut alone, JobId(3000), super::OWNER);
    let refused = alone.hear(leave(8, USER));
    assert_eq!(answer_of(&refused, 8), Some(Some(libc::ENOSPC)));
}

#[test]
fn who_leaves_commits_is_answered_when_they_are_written() {
    let (mut alone, unit) = with_shell();
    let taken = alone.hear(leave(7, USER));
    let note = Note::Commits(bequest());
    let written = Effect::Unit(unit.clone(), UnitCommand::Note(note));
    assert_eq!(taken, [written]);
    let kept = |is_written| {
        let (unit, client) = (unit.clone(), CLIENT.to_string());
        Event::Supervisor(UnitEvent::Kept { client, is_written }.of(&unit))
    };
    assert_eq!(answer_of(&alone.hear(kept(true)), 7), Some(None));
    alone.hear(leave(8, USER));
    assert_eq!(answer_of(&alone.hear(kept(false)), 8), Some(Some(libc::ENOSPC)));
}

#[test]
fn who_waits_when_the_module_is_unloaded_is_to_offer_them_again() {
    let (mut alone, _) = with_shell();
    alone.hear(leave(7, USER));
    let mut out = Effects::default();
    alone.node.shut_down(&mut out);
    assert_eq!(answer_of(&out.list, 7), Some(Some(libc::ENOSYS)));
}

#[test]
fn only_the_jobs_user_may_leave_commits_and_only_where_its_shell_is() {
    let (mut alone, _) = with_shell();
    assert_eq!(answer_of(&alone.hear(leave(7, STRANGER)), 7), Some(Some(libc::EPERM)));
    let mut elsewhere = Alone::new(2);
    assert_eq!(answer_of(&elsewhere.hear(leave(7, USER)), 7), Some(Some(libc::ENOENT)));
}

#[test]
fn a_new_leader_does_not_hear_that_a_rank_is_gone_before_its_commits_are_done_again() {
    let mut world = World::running(3, "1-2");
    world.happen(1, leave(7, Credential { userid: super::OWNER, owner: true, local: true }));
    world.exited(1, WaitStatus::exited(0));
    assert_eq!(world.recommitted, [] as [&str; 0]);
    world.unload(1);
    world.load(1);
    world.pass(1.0);
    assert_eq!(world.recommitted, [CLIENT], "with the record's words");
    world.exited(2, WaitStatus::exited(0));
    world.assert_ended();
}

/// The shell lives, and does them again itself.
#[test]
fn those_of_the_shell_are_done_again_when_it_has_ended() {
    let mut world = World::running(3, "1-2");
    let of_shell = Arc::new(Bequest { shell: true, ..Bequest::clone(&bequest()) });
    let (request, credential) = (RequestId::Remote(7), USER);
    world.happen(1, Event::KeepCommits { request, credential, id: JOB, bequest: of_shell });
    world.unload(1);
    world.load(1);
    world.pass(1.0);
    assert_eq!(world.recommitted, [] as [&str; 0]);
    world.exited(1, WaitStatus::exited(0));
    assert_eq!(world.recommitted, [CLIENT]);
    world.exited(2, WaitStatus::exited(0));
    world.assert_ended();
}

#[test]
fn another_leader_has_them_done_again_too() {
    let (mut alone, unit) = with_shell();
    alone.hear(leave(7, USER));
    alone.hear(Event::Supervisor(UnitEvent::Gone.of(&unit)));
    let again = alone.shells(2, 2, "digest", Mode::Adopt);
    let op = KvsOp::Recommit(bequest());
    assert!(again.contains(&Effect::Kvs { id: JOB, op }), "{again:?}");
    assert!(!format!("{again:?}").contains("Gone"), "{again:?}");
}

/// [recommit-tried]
#[test]
fn what_cannot_be_done_again_is_tried_five_times() {
    for failures in 1..=5 {
        let (mut alone, unit) = with_shell();
        alone.hear(leave(7, USER));
        alone.hear(Event::Supervisor(UnitEvent::Gone.of(&unit)));
        let mut effects = alone.shells(2, 2, "digest", Mode::Adopt);
        let op = KvsOp::Recommit(bequest());
        let asked = Effect::Kvs { id: JOB, op };
        let mut answer = |alone: &mut Alone, result| {
            assert!(effects.contains(&asked), "{effects:?}");
            assert!(!format!("{effects:?}").contains("Gone"), "{effects:?}");
            let result = KvsResult::Recommitted { client: CLIENT.to_string(), result };
            effects = alone.hear(Event::Kvs { id: JOB, result });
            assert!(!effects.contains(&asked), "not before the pause is over: {effects:?}");
            if alone.node.next_timeout().is_some_and(|at| at <= MonoTime(alone.now + 1.0)) {
                alone.now += 1.0;
                effects.extend(alone.hear(Event::Timeout));
            }
            effects.clone()
        };
        for _ in 1..failures {
            answer(&mut alone, Err(Fault::new(libc::EIO, "no")));
        }
        let is_lost = failures == 5;
        let result = if is_lost { Err(Fault::new(libc::EIO, "no")) } else { Ok(()) };
        let last = format!("{:?}", answer(&mut alone, result));
        assert!(last.contains("Gone"), "{last}");
        assert_eq!(last.contains("may be lost"), is_lost, "{last}");
    }
}

//! What users other than the instance owner send, and what they leave running.

use serde_json::json;

use super::recovery::{Alone, STARTED, ends_with, launches};
use super::{Credential, JOB, OWNER, World, facts, start};
use crate::machine::context::Now;
use crate::machine::mono_time::MonoTime;
use crate::machine::{Answer, Effect, Event, RequestId, StreamItem, Topic};
use crate::port::supervisor::{UnitCommand, UnitEvent};
use crate::proto::peer::{Mode, Order, OrderRequest, StreamEnd, Version};
use crate::proto::{BarrierEntry, BrokerRank, Idset, Signal, UnitName, WaitStatus, WallTime};

const SHELL_USER: Credential = Credential { userid: OWNER, owner: false, local: true };

fn barrier(number: u64, credential: Credential, entry: Option<u32>) -> Event {
    let request = RequestId::Remote(number);
    Event::ShellBarrier {
        request,
        credential,
        id: JOB,
        rank: BrokerRank(1),
        entry: entry.map(BarrierEntry::of_shell),
    }
}

fn critical(credential: Credential, ranks: &str) -> Event {
    let request = RequestId::Remote(9);
    Event::CriticalRanks { request, credential, id: JOB, ranks: ranks.to_string() }
}

fn answers(effects: &[Effect]) -> Vec<i32> {
    let errnum = |fault: Option<&super::Fault>| fault.map_or(0, |fault| fault.errnum);
    let of = |effect: &Effect| match effect {
        Effect::Answer { answer: Answer::Barrier(result), .. } => {
            Some(errnum(result.as_ref().err()))
        }
        Effect::Answer { answer: Answer::Done(result), .. } => Some(errnum(result.as_ref().err())),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

fn notes(effects: &[Effect]) -> usize {
    let is_note = |e: &&Effect| matches!(e, Effect::Unit(_, UnitCommand::Note(_)));
    effects.iter().filter(is_note).count()
}

/// [bad-start-fails-its-job]
#[test]
fn a_jobspec_of_any_depth_reaches_its_leader() {
    let mut world = World::new(3);
    let mut payload = start("1-2", false);
    payload["jobspec"] = json!({"attributes": {"user": "DEEP"}});
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    let payload = payload.to_string().replace("\"DEEP\"", &deep);
    let owner = Credential { userid: OWNER, owner: true, local: true };
    let event = Topic::Start.read(RequestId::Remote(1), owner, payload.as_bytes());
    world.happen(0, event.expect("an event"));
    world.all_started(1..3);
    assert_eq!(world.notes(), Vec::<String>::new());
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(1.0);
    world.assert_ended();
}

/// [guest-own-job]
#[test]
fn an_id_that_is_issued_again_is_its_new_users() {
    let mut node = Alone::new(1);
    let user = |userid| Credential { userid, owner: false, local: true };
    let mut first = super::recovery::shells(1, "first", Mode::Start);
    first.command.userid = 601;
    node.hear(Event::Shells { request: RequestId::Remote(1), shells: Box::new(first) });
    node.unit(STARTED);
    assert_eq!(answers(&node.hear(critical(user(601), "0"))), [0]);
    let mut second = super::recovery::shells(1, "second", Mode::Start);
    second.command.userid = 602;
    node.hear(Event::Shells { request: RequestId::Remote(2), shells: Box::new(second) });
    node.unit(UnitEvent::Exited { status: WaitStatus(0) });
    assert_eq!(launches(&node.unit(UnitEvent::Gone)), 1);
    node.unit(STARTED);
    assert_eq!(answers(&node.hear(critical(user(602), "1"))), [0]);
    assert_eq!(answers(&node.hear(critical(user(601), "0"))), [libc::EPERM]);
    assert_eq!(answers(&node.hear(barrier(3, user(601), None))), [libc::EPERM]);
}

/// [guest-sees-own]
#[test]
fn a_user_is_told_of_the_users_own_jobs_and_of_nothing_else() {
    let now = Now { mono: MonoTime(0.0), wall: WallTime(0.0) };
    let user = |userid| Credential { userid, owner: false, local: true };
    let mut world = World::new(3);
    let payload = start("0-1", false);
    let owner = Credential { userid: OWNER, owner: true, local: true };
    let event = Topic::Start.read(RequestId::Remote(1), owner, payload.to_string().as_bytes());
    world.happen(0, event.expect("an event"));
    world.all_started(0..2);
    for rank in 0..2 {
        let node = world.nodes[rank].as_ref().expect("a node");
        let (all, own) = (node.stats(now), node.stats_for(SHELL_USER, now));
        for key in ["jobs", "coordinated", "shells", "scripts"] {
            assert_eq!(own[key], all[key], "{key}");
        }
        assert!(own["shells"][JOB.to_string()]["unit"].is_string(), "{own}");
        assert!(
            own["config"].is_null() && own["units-started"].is_null() && own["records"].is_null()
        );
        for other in [602, u32::MAX] {
            let told = node.stats_for(user(other), now);
            for key in ["jobs", "coordinated", "shells", "scripts"] {
                assert_eq!(told[key], json!({}), "{key} of {other}");
            }
            assert!(!told.to_string().contains(&JOB.f58plain()[1..]), "{told}");
        }
    }

    // The id is issued again while the shell of its first user still runs.
    let mut node = Alone::new(1);
    let mut first = super::recovery::shells(1, "first", Mode::Start);
    first.command.userid = 601;
    node.hear(Event::Shells { request: RequestId::Remote(1), shells: Box::new(first) });
    node.unit(STARTED);
    let mut second = super::recovery::shells(1, "second", Mode::Start);
    second.command.userid = 602;
    node.hear(Event::Shells { request: RequestId::Remote(2), shells: Box::new(second) });
    assert_eq!(node.node.stats_for(user(602), now)["shells"], json!({}));
}

/// [user-requests-bounded]
#[test]
fn critical_ranks_are_the_jobs_own_and_are_kept_once() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    let first = node.hear(critical(SHELL_USER, "0-1"));
    assert_eq!((answers(&first), notes(&first)), (vec![0], 1));
    for same in ["0-1", "0,1", "[0-1]"] {
        let again = node.hear(critical(SHELL_USER, same));
        assert_eq!((answers(&again), notes(&again)), (vec![0], 0), "{same}");
    }
    let long = vec!["0"; 10_000].join(",");
    for (bad, errnum) in [
        ("2", libc::EINVAL),
        ("0-16777215", libc::EINVAL),
        (&long, libc::EINVAL),
        ("x", libc::EPROTO),
    ] {
        let refused = node.hear(critical(SHELL_USER, bad));
        assert_eq!((answers(&refused), notes(&refused)), (vec![errnum], 0), "{bad:.20}");
    }
}

/// [user-requests-bounded]
#[test]
fn one_request_is_kept_for_each_entry_of_the_barrier() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    let mut kept = 0;
    for number in 10..1000 {
        let effects = node.hear(barrier(number, SHELL_USER, Some(1)));
        assert_eq!(answers(&effects), [] as [i32; 0]);
        let dropped = effects.iter().filter(|e| matches!(e, Effect::Drop { .. })).count();
        assert_eq!(notes(&effects), usize::from(number == 10), "the record says it once");
        kept += 1 - dropped;
    }
    assert_eq!(kept, 1);
    for bad in [0, 65, u32::MAX] {
        assert_eq!(answers(&node.hear(barrier(9, SHELL_USER, Some(bad)))), [libc::EINVAL]);
    }
    // Without numbers each is the next entry, up to the same limit.
    for number in 2000..2063 {
        assert_eq!(answers(&node.hear(barrier(number, SHELL_USER, None))), [] as [i32; 0]);
    }
    assert_eq!(answers(&node.hear(barrier(9, SHELL_USER, None))), [libc::EINVAL]);
    let mut unloaded = super::Effects::default();
    node.node.shut_down(&mut unloaded);
    assert_eq!(answers(&unloaded.list), [libc::ENOSYS; 64], "they enter again");
}

/// [older-leader-refused]
#[test]
fn a_user_who_empties_his_eventlog_does_not_make_his_leader_an_older_one() {
    let mut world = World::running(2, "0-1");
    for wiped in [false, false, true] {
        world.unload(0);
        if wiped {
            world.events.clear();
        }
        world.load(0);
        world.start("0-1", true);
        world.pass(1.0);
    }
    for rank in 0..2 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus(0)), "rank 1 obeys the new leader");
    world.assert_ended();
}

/// [user-requests-bounded]
#[test]
fn no_request_waits_in_the_barrier_of_a_shell_that_has_ended() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    assert_eq!(answers(&node.hear(barrier(10, SHELL_USER, Some(1)))), [] as [i32; 0]);
    let exited = node.unit(UnitEvent::Exited { status: WaitStatus(0) });
    let dropped = exited.iter().filter(|e| matches!(e, Effect::Drop { .. })).count();
    assert_eq!(dropped, 1, "{exited:?}");
    for (number, entry) in [(11, Some(1)), (12, Some(2)), (13, None)] {
        let effects = node.hear(barrier(number, SHELL_USER, entry));
        assert_eq!((answers(&effects), notes(&effects)), (vec![libc::ENOENT], 0));
    }
    node.unit(UnitEvent::Gone);
    assert_eq!(answers(&node.hear(barrier(14, SHELL_USER, Some(3)))), [libc::ENOENT]);
}

/// [output-bounded]
#[test]
fn output_that_was_cut_off_is_logged_once_and_one_that_fills_the_disk_ends_its_job() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.all_started(0..2);
    let truncated =
        UnitEvent::OutputTruncated { stream: crate::proto::Stream::Stderr, kept: 100, dropped: 23 };
    let unit = world.unit_of(1);
    world.report(1, &unit, truncated.clone());
    world.report(1, &unit, truncated);
    world.unload(0);
    world.load(0);
    world.start("0-1", true);
    world.pass(1.0);
    let said: Vec<_> = world.events.iter().filter_map(|e| e.logged_truncation()).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(world.notes(), Vec::<String>::new());
    world.report(1, &unit, UnitEvent::OutputOverflow { allocated: 1 << 40 });
    world.pass(0.1);
    let [note] = &world.notes()[..] else { panic!("{:?}", world.notes()) };
    assert!(note.contains("output on n1 (rank 1)") && note.contains("1099511627776"), "{note}");
    assert!(world.signals.contains(&(0, libc::SIGTERM)), "the other shell is ended, too");
    for rank in 0..2 {
        world.exited(rank, WaitStatus::exited(143));
    }
    world.pass(1.0);
    assert_eq!(world.status(), Some(WaitStatus::exited(143)));
}

/// A guest's shell on rank 1, which is led or not.
fn guests_shell(node: &mut Alone, digest: &str) -> UnitName {
    let mut request = super::recovery::shells(1, digest, Mode::Start);
    (request.command.userid, request.command.multiuser) = (42, true);
    node.hear(Event::Shells { request: RequestId::Remote(1), shells: Box::new(request) });
    let unit = UnitName::new(true, BrokerRank(1), JOB, facts(1).instance);
    node.hear(Event::Supervisor(STARTED.of(&unit)));
    unit
}

/// Lets time pass until nothing happens for an hour; what was signalled and drained.
fn pass(node: &mut Alone) -> (Vec<(i32, bool)>, Vec<String>, Vec<Effect>) {
    let (mut signals, mut drains, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let end = node.now + 3600.0;
    while let Some(next) = node.node.next_timeout().filter(|at| *at < MonoTime(end)) {
        node.now = next.0;
        for effect in node.hear(Event::Timeout) {
            match effect {
                Effect::Unit(_, UnitCommand::Signal { signal, all, .. }) => {
                    signals.push((signal, all))
                }
                Effect::Drain { ranks, reason, .. } => drains.push(format!("{ranks}: {reason}")),
                other => rest.push(other),
            }
        }
    }
    (signals, drains, rest)
}

/// The IMP is asked again and again, and the kernel once.
fn assert_imp_then_kernel(signals: &[(i32, bool)]) {
    let kernel = (libc::SIGKILL, true);
    assert!(signals.len() > 3, "{signals:?}");
    assert_eq!(signals.iter().filter(|signal| **signal == kernel).count(), 1, "{signals:?}");
    let is_known = |signal: &(i32, bool)| [kernel, (Signal::USR1.number(), false)].contains(signal);
    assert!(signals.iter().all(is_known), "{signals:?}");
    assert_ne!(signals.first(), Some(&kernel));
}

/// [known-or-ended] [unwanted-killed] [kernel-kills]
#[test]
fn a_guest_that_nobody_wants_is_killed_by_the_imp_and_its_rank_drained() {
    let mut node = Alone::new(1);
    let unit = guests_shell(&mut node, "job");
    node.hear(Event::Disconnected { request: RequestId::Remote(1) });
    let question = crate::proto::peer::Question::Manager;
    let asker = crate::machine::Role::Agent;
    let (id, to, digest, result) = (JOB, BrokerRank(0), "job".into(), Ok(false));
    let answer = Event::KnownAnswered { id, asker, to, digest, question, result };
    let effects = node.hear(answer);
    let processes = "pid 12 (user 0, \"sleep\")".to_string();
    node.hear(Event::Supervisor(UnitEvent::LeftOver { processes: processes.clone() }.of(&unit)));
    let collects = |e: &&Effect| matches!(e, Effect::Unit(_, UnitCommand::Collect));
    assert_eq!(effects.iter().filter(collects).count(), 1);
    let (signals, drains, _) = pass(&mut node);
    assert_imp_then_kernel(&signals);
    assert_eq!(drains, [format!("1: unkillable user processes for job {JOB}: {processes}")]);
    // It ends after all.
    node.hear(Event::Supervisor(UnitEvent::Gone.of(&unit)));
    assert_eq!(pass(&mut node), (vec![], vec![], vec![]));
}

/// [leftovers-killed]
#[test]
fn what_a_guests_shell_has_left_behind_is_killed_by_the_imp_or_its_rank_drained() {
    let mut node = Alone::new(1);
    let unit = guests_shell(&mut node, "job");
    node.hear(Event::Supervisor(UnitEvent::Stopping.of(&unit)));
    let (signals, drains, rest) = pass(&mut node);
    assert_imp_then_kernel(&signals);
    assert_eq!(drains, [] as [String; 0], "its leader drains");
    let told = |effects: &[Effect]| {
        let reports = effects.iter().filter(|effect| match effect {
            Effect::Stream { item: StreamItem::Reports(reports), .. } => {
                json!(reports).to_string().contains("unkillable")
            }
            _ => false,
        });
        reports.count()
    };
    assert_eq!(told(&rest), 1);
    let mut request = super::recovery::shells(2, "job", Mode::Adopt);
    (request.command.userid, request.command.multiuser) = (42, true);
    let again = Event::Shells { request: RequestId::Remote(2), shells: Box::new(request) };
    assert_eq!(told(&node.hear(again)), 1, "a new leader hears it, too");
}

/// [leftovers-killed]
#[test]
fn a_leader_drains_a_rank_with_unkillable_leftovers_and_ends_its_job() {
    let mut world = World::running(2, "0-1");
    world.exited(0, WaitStatus(0));
    let unit = world.unit_of(1);
    world.report(1, &unit, UnitEvent::Stopping);
    world.pass(3600.0);
    assert_eq!(world.drained.len(), 1, "{:?}", world.drained);
    assert!(world.drained[0].contains("unkillable user processes"), "{:?}", world.drained);
    assert!(world.released().last().is_some_and(|(_, is_final)| *is_final), "it has ended");
}

/// [digest-differs] [unwanted-killed]
#[test]
fn a_job_does_not_wait_for_ever_for_a_guest_who_had_its_id() {
    let mut node = Alone::new(1);
    let unit = guests_shell(&mut node, "before the rollback");
    let fenced = node.shells(2, 1, "after it", Mode::Start);
    assert_eq!(launches(&fenced), 0);
    let (signals, drains, rest) = pass(&mut node);
    assert!(signals.contains(&(Signal::USR1.number(), false)), "{signals:?}");
    assert_eq!(drains.len(), 1);
    let failed = |effect: &Effect| match effect {
        Effect::Stream { item: StreamItem::Reports(reports), .. } => {
            json!(reports).to_string().contains("cannot be ended")
        }
        _ => false,
    };
    assert!(rest.iter().any(failed), "{rest:?}");
    let again = node.shells(3, 1, "after it", Mode::Adopt);
    assert_eq!(launches(&again), 0);
    assert!(again.iter().any(failed), "at once: {again:?}");
    // The job is over, and then the guest's processes end.
    let ranks = Idset::from_range(1..2);
    let forget = OrderRequest {
        version: Version,
        id: JOB,
        digest: "after it".into(),
        generation: 1,
        ranks,
        order: Order::Forget,
    };
    let over = node.hear(Event::Order(forget));
    assert!(ends_with(&over, &StreamEnd::Forgotten), "{over:?}");
    let gone = node.hear(Event::Supervisor(UnitEvent::Gone.of(&unit)));
    let forgets = |e: &&Effect| matches!(e, Effect::Unit(_, UnitCommand::Forget));
    assert_eq!(gone.iter().filter(forgets).count(), 1, "{gone:?}");
}

//! A systemd that does not answer.

use super::{World, start, start_event};
use crate::machine::Event;
use crate::port::supervisor::SupervisorEvent;
use crate::proto::{ExecEvent, Mute, WaitStatus};

#[test]
fn a_rank_whose_systemd_hangs_drains_itself() {
    for answers in [true, false] {
        let mut world = World::new(3);
        (0..3).for_each(|rank| world.make_lasting(rank));
        let request = world.request();
        world.happen(0, start_event(request, &start("0-2", false)));
        world.all_started(0..3);
        let what = "a sign of life".to_string();
        world.happen(2, Event::Supervisor(SupervisorEvent::Silent { who: Mute::Systemd, what }));
        world.pass(60.0);
        if answers {
            world.happen(2, Event::Supervisor(SupervisorEvent::Answers { who: Mute::Systemd }));
        }
        world.pass(600.0);
        let drained = format!("{:?}", world.drained);
        assert_eq!(drained.matches("systemd has not answered").count(), usize::from(!answers));
        // What is unknown is not dead.
        assert!(world.notes().is_empty(), "{:?}", world.notes());
    }
}

/// [disk-drains]
#[test]
fn a_rank_whose_disk_takes_no_records_drains_itself() {
    let mut world = World::running(3, "0-1");
    let message = "cannot write the record /x: Read-only file system".to_string();
    world.happen(1, Event::Supervisor(SupervisorEvent::DiskFails { message }));
    world.pass(10.0);
    let drained = format!("{:?}", world.drained);
    let reason = "job-exec cannot keep records of jobs: cannot write the record /x: Read-only";
    assert_eq!(drained.matches(reason).count(), 1, "{drained}");
    assert!(world.notes().is_empty(), "{:?}", world.notes());
}

/// [silence-told]
#[test]
fn a_disk_that_hangs_is_told_as_what_it_is() {
    let silent = |who| {
        let what = "/var/lib/flux".to_string();
        Event::Supervisor(SupervisorEvent::Silent { who, what })
    };
    let mut world = World::running(2, "0-1");
    world.happen(1, silent(Mute::Systemd));
    world.pass(5.0);
    world.happen(1, silent(Mute::Disk));
    world.happen(1, Event::Supervisor(SupervisorEvent::Answers { who: Mute::Systemd }));
    world.pass(1.0);
    let text = format!("{:?}", world.events.last());
    let told = "the disk on n1 (rank 1) does not answer: waiting for /var/lib/flux";
    assert!(text.contains(told), "{text}");
    world.pass(600.0);
    let drained = format!("{:?}", world.drained);
    assert_eq!(drained.matches("the disk has not answered").count(), 1, "{drained}");
}

/// What the exec eventlog says of it: rank, and seconds since the world began.
fn said(world: &World) -> Vec<(u32, u64)> {
    let silences = world.events.iter().filter_map(ExecEvent::logged_silence);
    silences.map(|(rank, since)| (rank.0, since - 1_000_000_000)).collect()
}

#[test]
fn a_job_is_told_once_that_systemd_hangs_on_a_node_of_it() {
    let silent = || {
        Event::Supervisor(SupervisorEvent::Silent {
            who: Mute::Systemd,
            what: "a sign of life".to_string(),
        })
    };
    let mut world = World::running(3, "0-1");
    world.pass(100.0);
    let now = world.now as u64;
    world.happen(2, silent());
    world.pass(1.0);
    assert_eq!(said(&world), [], "nothing of the job is there");
    world.happen(1, silent());
    world.pass(1.0);
    assert_eq!(said(&world), [(1, now + 1)]);
    let text = format!("{:?}", world.events.last());
    assert!(text.contains("systemd on n1 (rank 1) does not answer: waiting for a sign"), "{text}");
    // Another leader is told everything, and reads what the log says.
    world.lose(0);
    world.load(0);
    world.start("0-1", true);
    world.pass(10.0);
    assert_eq!(said(&world).len(), 1);
    world.happen(1, Event::Supervisor(SupervisorEvent::Answers { who: Mute::Systemd }));
    world.pass(10.0);
    let now = world.now as u64;
    world.happen(1, silent());
    world.pass(1.0);
    assert_eq!(said(&world)[1..], [(1, now)]);
    // All the same a shell ends if systemd says so, and no more is said of it.
    world.exited(1, WaitStatus(0));
    world.pass(10.0);
    assert_eq!(said(&world).len(), 2);
}

#[test]
fn a_job_that_comes_while_systemd_hangs_is_told_so() {
    let mut world = World::new(2);
    let what = "the list of units".to_string();
    world.happen(1, Event::Supervisor(SupervisorEvent::Silent { who: Mute::Systemd, what }));
    world.pass(7.0);
    world.start("0-1", false);
    world.pass(1.0);
    assert_eq!(said(&world), [(1, 0)]);
}

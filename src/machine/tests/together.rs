//! `epilog-start = "job"`: epilogs begin when all shells of the job have ended.

use super::perilog::{DONE, perilog, prepared, run, running};
use super::{JOB, World};
use crate::config::{Config, PerilogConfig};
use crate::machine::Event;
use crate::proto::{Stage, WallTime};

#[test]
fn epilogs_can_wait_for_the_last_shell_of_the_job() {
    let mut world = running(2, PerilogConfig { epilogs_together: true, ..perilog() });
    world.exited(0, DONE);
    world.pass(1.0);
    assert!(!world.units().contains(&"epilog-0".to_string()));
    world.ask_for_release();
    assert_eq!(
        world.answers.pop(),
        Some(Err(libc::ENOENT)),
        "it is not its epilog that is waited for"
    );
    world.exited(1, DONE);
    world.pass(0.05);
    for rank in 0..2 {
        world.script_exited(rank, Stage::Epilog, DONE);
    }
    world.assert_ended();
}

/// [give-up-drains]. Simulator seed 880003423: all nodes of the job were drained.
#[test]
fn who_only_waits_for_the_epilogs_of_all_is_not_drained_for_what_another_cannot_kill() {
    let config = Config {
        fanout: 2,
        imp: Some("/bin/imp".to_string()),
        perilog: Some(PerilogConfig { epilogs_together: true, ..perilog() }),
        shell_exit_timeout: None,
        ..Config::default()
    };
    let mut world = World::with(3, config);
    world.is_guests = true;
    let mut world = run(prepared(world, 3), 3);
    world.exited(0, DONE);
    world.pass(1.0);
    // A new leader is told the same.
    world.unload(1);
    world.load(1);
    world.exited(1, DONE);
    let (request, expiration) = (world.request(), WallTime(1e9 + world.now + 1.0));
    world.happen(0, Event::Expiration { request, id: JOB, expiration });
    world.pass(5000.0);
    assert_eq!(world.drained, [format!("2 unkillable user processes for job {JOB}")]);
    for rank in 0..2 {
        world.script_exited(rank, Stage::Epilog, DONE);
    }
    world.pass(20.0);
    assert!(world.is_released());
}

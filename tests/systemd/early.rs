//! A user manager that is not on its bus yet, as at boot, or while the bus is restarted.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use job_exec_rs::adapter::worker::WorkerConfig;
use job_exec_rs::port::supervisor::{Method, SupervisorEvent};
use job_exec_rs::proto::ExecMethod;

use crate::support::{self, Harness};

/// A runtime directory whose bus ends as soon as somebody is connected.
struct Early {
    runtime: tempfile::TempDir,
    bus: UnixListener,
}

impl Early {
    fn new() -> Self {
        let runtime = tempfile::tempdir().unwrap();
        std::fs::create_dir(runtime.path().join("systemd")).unwrap();
        let bus = UnixListener::bind(runtime.path().join("bus")).unwrap();
        Self { runtime, bus }
    }

    fn manager(&self) -> UnixListener {
        UnixListener::bind(self.runtime.path().join("systemd/private")).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.runtime.path().join("bus")
    }

    fn config(&self, records: &Path) -> WorkerConfig {
        let mut config = support::config(ExecMethod::Systemd, records);
        config.bus_address = Some(format!("unix:path={}", self.path().display()));
        config
    }

    fn worker(&self, records: &Path) -> Harness {
        let worker = Harness::start(self.config(records));
        drop(self.bus.accept().unwrap());
        worker
    }
}

#[test]
fn a_manager_that_runs_is_waited_for() {
    if !support::bus() {
        return;
    }
    let (early, records) = (Early::new(), tempfile::tempdir().unwrap());
    let _manager = early.manager();
    let mut h = early.worker(records.path());
    std::fs::remove_file(early.path()).unwrap();
    symlink(real_bus(), early.path()).unwrap();
    let method = h.wait("Ready", |event| match event {
        SupervisorEvent::Ready { method, .. } => Some(*method),
        SupervisorEvent::Unusable { message } => panic!("unusable: {message}"),
        _ => None,
    });
    assert_eq!(method, Method::Systemd);
}

fn real_bus() -> String {
    let address = std::env::var("DBUS_SESSION_BUS_ADDRESS").unwrap();
    address.strip_prefix("unix:path=").unwrap().split(',').next().unwrap().to_string()
}

/// As sd_bus_open_user(3) takes them.
#[test]
fn each_address_of_a_list_is_tried_and_its_escapes_are_read() {
    if !support::bus() {
        return;
    }
    let (early, records) = (Early::new(), tempfile::tempdir().unwrap());
    symlink(real_bus(), early.runtime.path().join("a bus; ours")).unwrap();
    let mut config = early.config(records.path());
    let directory = early.runtime.path().display();
    config.bus_address =
        Some(format!("unix:path={directory}/none;unix:path={directory}/a%20bus%3b%20ours"));
    let (mut h, _, (method, _)) = Harness::ready(config);
    assert_eq!(method, Method::Systemd);
    h.stop();
}

#[test]
fn one_that_is_waited_for_does_not_keep_the_module_from_its_end() {
    let (early, records) = (Early::new(), tempfile::tempdir().unwrap());
    let _manager = early.manager();
    let mut h = early.worker(records.path());
    h.stop();
    let told = h.told();
    assert!(matches!(&told[..], [SupervisorEvent::Unusable { .. }]), "{told:?}");
}

#[test]
fn one_that_has_ended_is_not() {
    let (early, records) = (Early::new(), tempfile::tempdir().unwrap());
    // Its socket is left.
    drop(early.manager());
    assert_refused(&mut early.worker(records.path()));
}

/// As where no user bus is installed.
#[test]
fn one_without_a_bus_is_not() {
    let (early, records) = (Early::new(), tempfile::tempdir().unwrap());
    let _manager = early.manager();
    std::fs::remove_file(early.path()).unwrap();
    assert_refused(&mut Harness::start(early.config(records.path())));
}

/// At once: the harness waits no longer than the worker would wait for a manager.
fn assert_refused(h: &mut Harness) {
    let message = h.wait("Unusable", |event| match event {
        SupervisorEvent::Ready { .. } => panic!("there is no systemd"),
        SupervisorEvent::Unusable { message } => Some(message.clone()),
        _ => None,
    });
    assert!(message.contains("enable lingering"), "{message}");
}

//! A tracker and the simulated systemd. Calls and news arrive at once.

use std::path::PathBuf;

use job_exec_rs::port::supervisor::{Limits, Started};
use job_exec_rs::proto::{BrokerRank, InstanceId, JobId};
use job_exec_rs::supervisor::tracker::Tracker;
use job_exec_rs::supervisor::{Backend, BackendEvent, OutputPaths};

use super::*;
use crate::sample;

struct Wire {
    tracker: Tracker,
    systemd: SimSystemd,
    connection: u64,
    spec: UnitSpec,
}

impl Wire {
    /// Connected and ready, without a unit.
    fn new() -> Self {
        let mut wire = Self {
            tracker: tracker(),
            systemd: SimSystemd::default(),
            connection: 0,
            spec: spec(),
        };
        wire.connect();
        wire
    }

    fn unit(&self) -> UnitName {
        self.spec.unit.clone()
    }

    fn connect(&mut self) {
        self.connection = self.systemd.connect().expect("systemd is there");
        self.tracker.handle_connected();
        self.talk();
        assert!(self.tracker.is_ready());
    }

    /// Delivers calls and news until there are no more.
    fn talk(&mut self) {
        loop {
            let asks = self.tracker.take_asks();
            asks.iter().for_each(|ask| self.ask(ask));
            if !self.deliver_news() && asks.is_empty() {
                return;
            }
        }
    }

    fn ask(&mut self, ask: &Ask) {
        self.systemd.handle_ask(self.connection, ask, Some(&self.spec));
    }

    fn deliver_news(&mut self) -> bool {
        let news = self.systemd.take_news();
        let some = !news.is_empty();
        news.into_iter().for_each(|(_, news)| self.tracker.handle_news(news));
        some
    }

    fn start(&mut self) {
        let output =
            OutputPaths { stdout: PathBuf::new(), stderr: PathBuf::new(), end: PathBuf::new() };
        self.tracker.start(&self.spec.clone(), &output);
        self.talk();
    }

    /// Starts the unit and executes its program.
    #[track_caller]
    fn run(&mut self) {
        self.start();
        self.acts(&[Act::Run(self.unit())]);
        self.process(SimSystemd::handle_forked);
        self.silence();
        self.process(SimSystemd::handle_executed);
        self.started();
    }

    fn process(&mut self, happens: impl FnOnce(&mut SimSystemd, &UnitName)) {
        let unit = self.unit();
        happens(&mut self.systemd, &unit);
        self.talk();
    }

    fn exit(&mut self, status: WaitStatus, populated: bool) {
        self.process(|systemd, unit| systemd.handle_exited(unit, status, populated));
    }

    fn collect(&mut self) {
        let unit = self.unit();
        self.tracker.collect(&unit);
        self.talk();
    }

    #[track_caller]
    fn acts(&mut self, acts: &[Act]) {
        assert_eq!(self.systemd.take_acts(), acts);
    }

    /// The next event, without the one that follows each list.
    fn next(&mut self) -> Option<BackendEvent> {
        std::iter::from_fn(|| self.tracker.next_event())
            .find(|event| *event != BackendEvent::Listed)
    }

    fn terminate(&self) -> Act {
        Act::Signal { unit: self.unit(), signal: libc::SIGTERM, all: true }
    }

    #[track_caller]
    fn started(&mut self) {
        match self.next() {
            Some(BackendEvent::Started { unit, started }) => {
                let id = self.systemd.invocation_id(&unit).map(str::to_string);
                assert_eq!(Some(started.invocation_id), id);
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn exited(&mut self, status: WaitStatus) {
        let unit = self.unit();
        assert_eq!(self.next(), Some(BackendEvent::Exited { unit, status }));
    }

    #[track_caller]
    fn empty(&mut self) {
        let unit = self.unit();
        assert!(!self.systemd.lives(&unit) && !self.systemd.has(&unit));
        assert_eq!(self.next(), Some(BackendEvent::Empty(unit)));
    }

    #[track_caller]
    fn silence(&mut self) {
        assert_eq!(self.next(), None);
    }
}

pub(super) fn tracker() -> Tracker {
    let exec_failure = |_: &UnitSpec, code, _: &str| (libc::ENOENT, format!("{code:?}"));
    Tracker::new(Limits { starts_in_flight: 1, ..Limits::default() }, exec_failure)
}

pub(super) fn spec() -> UnitSpec {
    let unit = UnitName::new(false, BrokerRank(0), JobId(1), InstanceId::new("/sim", 1));
    UnitSpec { stop_timeout: Some(Duration::from_secs(5)), ..sample::spec(unit) }
}

const OK: WaitStatus = WaitStatus(0);

#[test]
fn success_remains_until_it_is_stopped() {
    let mut wire = Wire::new();
    wire.run();
    let unit = wire.unit();
    assert_eq!(wire.systemd.executions(&unit), 1);
    assert_eq!(wire.systemd.digest(&unit), Some("digest"));
    wire.exit(OK, false);
    wire.exited(OK);
    assert_eq!(wire.systemd.units().collect::<Vec<_>>(), [&unit]);
    wire.collect();
    wire.empty();
    wire.acts(&[]);
}

#[test]
fn failure_remains_until_it_is_reset() {
    let mut wire = Wire::new();
    wire.run();
    let status = WaitStatus::exited(1);
    wire.exit(status, false);
    wire.exited(status);
    assert!(wire.systemd.has(&wire.unit()));
    wire.collect();
    wire.empty();
}

#[test]
fn a_quick_exit_is_an_exit() {
    for status in [OK, WaitStatus::exited(1)] {
        let mut wire = Wire::new();
        wire.start();
        wire.process(SimSystemd::handle_forked);
        wire.exit(status, false);
        wire.started();
        wire.exited(status);
        assert_eq!(wire.systemd.executions(&wire.unit()), 1);
    }
}

#[test]
fn a_program_that_cannot_be_executed() {
    let mut wire = Wire::new();
    wire.start();
    wire.process(SimSystemd::handle_forked);
    wire.process(|systemd, unit| systemd.handle_exec_failed(unit, 203));
    let (unit, errnum, message) = (wire.unit(), libc::ENOENT, "Some(203)".to_string());
    let failed = BackendEvent::Failed { unit: unit.clone(), errnum, message };
    assert_eq!(wire.next(), Some(failed));
    assert!(!wire.systemd.has(&unit), "reset");
    assert_eq!(wire.systemd.executions(&unit), 0);
}

#[test]
fn what_is_left_behind_is_ended() {
    let mut wire = Wire::new();
    wire.run();
    wire.exit(OK, true);
    wire.exited(OK);
    wire.collect();
    let unit = wire.unit();
    let [terminate, Act::Alarm { number, .. }] = &wire.systemd.take_acts()[..] else {
        panic!("SIGTERM, then an alarm");
    };
    assert_eq!(*terminate, wire.terminate());
    wire.silence();
    wire.process(|systemd, unit| systemd.handle_alarm(unit, *number + 1));
    wire.acts(&[]);
    wire.process(|systemd, unit| systemd.handle_alarm(unit, *number));
    wire.acts(&[Act::Signal { unit: unit.clone(), signal: libc::SIGKILL, all: true }]);
    assert!(wire.systemd.lives(&unit));
    wire.silence();
    wire.process(SimSystemd::handle_emptied);
    wire.empty();
}

#[test]
fn a_failure_ends_what_it_leaves_behind() {
    let mut wire = Wire::new();
    wire.run();
    let status = WaitStatus::exited(7);
    wire.exit(status, true);
    wire.exited(status);
    let terminate = wire.terminate();
    assert_eq!(wire.systemd.take_acts()[0], terminate);
    wire.collect();
    wire.silence();
    wire.process(SimSystemd::handle_emptied);
    wire.empty();
}

#[test]
fn a_unit_that_runs_is_stopped() {
    let mut wire = Wire::new();
    wire.spec.stop_timeout = None;
    wire.run();
    wire.collect();
    let terminate = wire.terminate();
    wire.acts(&[terminate]);
    let status = WaitStatus::signaled(libc::SIGTERM);
    wire.exit(status, false);
    wire.exited(status);
    wire.empty();
}

#[test]
fn a_guests_unit_is_activating_until_the_imp_says_that_it_is_ready() {
    let mut wire = Wire::new();
    (wire.spec.multiuser, wire.spec.stop_timeout) = (true, None);
    wire.start();
    let unit = wire.unit();
    let active = |wire: &Wire| wire.systemd.units.get(&unit)?.properties(&unit).active;
    for (step, expected) in [
        (SimSystemd::handle_forked as fn(&mut SimSystemd, &UnitName), Active::Activating),
        (SimSystemd::handle_ready, Active::Activating),
        (SimSystemd::handle_executed, Active::Activating),
        (SimSystemd::handle_ready, Active::Active),
    ] {
        wire.process(step);
        assert_eq!(active(&wire), Some(expected));
    }
    wire.started();
    // There is no stop timeout, so no alarm, and only the IMP gets a signal.
    wire.systemd.take_acts();
    wire.systemd.stop(&unit);
    let signal = Act::Signal { unit: unit.clone(), signal: libc::SIGTERM, all: false };
    assert_eq!(wire.systemd.take_acts(), [signal]);
}

#[test]
fn a_guests_processes_are_waited_for() {
    let mut wire = Wire::new();
    wire.spec.multiuser = true;
    wire.start();
    wire.process(SimSystemd::handle_forked);
    wire.started();
    wire.process(SimSystemd::handle_executed);
    wire.exit(OK, true);
    wire.exited(OK);
    wire.systemd.take_acts();
    wire.collect();
    wire.acts(&[]);
    // It is down, but not removed.
    assert!(wire.systemd.has(&wire.unit()));
    wire.silence();
    wire.process(SimSystemd::handle_emptied);
    wire.empty();
}

#[test]
fn signals_are_for_processes() {
    let mut wire = Wire::new();
    wire.run();
    let unit = wire.unit();
    wire.tracker.signal(&unit, libc::SIGUSR1, false);
    wire.talk();
    wire.acts(&[Act::Signal { unit: unit.clone(), signal: libc::SIGUSR1, all: false }]);
    wire.exit(OK, true);
    wire.tracker.signal(&unit, libc::SIGUSR1, false);
    wire.tracker.signal(&unit, libc::SIGUSR2, true);
    wire.talk();
    wire.acts(&[Act::Signal { unit, signal: libc::SIGUSR2, all: true }]);
}

#[test]
fn systemd_is_executed_again_in_the_middle_of_a_start() {
    let mut wire = Wire::new();
    let output =
        OutputPaths { stdout: PathBuf::new(), stderr: PathBuf::new(), end: PathBuf::new() };
    wire.tracker.start(&spec(), &output);
    let asks = wire.tracker.take_asks();
    asks.iter().for_each(|ask| wire.ask(ask));
    // systemd gets the call, but its answer is lost.
    let start = asks.iter().find(|ask| matches!(ask.call, Call::Start(_))).expect("start");
    wire.systemd.take_news();
    wire.process(SimSystemd::handle_forked);
    wire.systemd.take_news();
    wire.systemd.leave();
    assert!(!wire.systemd.is_present() && wire.systemd.connect().is_none());
    wire.deliver_news();
    wire.tracker.handle_news(SimSystemd::no_reply(start.number));
    wire.process(SimSystemd::handle_executed);
    wire.silence();
    wire.systemd.come_back();
    wire.talk();
    wire.started();
    wire.exit(OK, false);
    wire.exited(OK);
    assert_eq!(wire.systemd.executions(&wire.unit()), 1);
}

#[test]
fn a_start_job_that_is_lost_is_made_again() {
    let mut wire = Wire::new();
    wire.start();
    let run = Act::Run(wire.unit());
    wire.acts(std::slice::from_ref(&run));
    wire.process(SimSystemd::lose_job);
    wire.acts(std::slice::from_ref(&run));
    // While systemd is away it starts no process.
    wire.systemd.leave();
    wire.process(SimSystemd::handle_forked);
    wire.systemd.come_back();
    wire.talk();
    wire.acts(&[run]);
    wire.process(SimSystemd::handle_forked);
    wire.process(SimSystemd::handle_executed);
    wire.started();
    assert_eq!(wire.systemd.executions(&wire.unit()), 1);
}

#[test]
fn an_exit_while_systemd_is_away_is_found() {
    let mut wire = Wire::new();
    wire.run();
    wire.systemd.leave();
    wire.talk();
    let status = WaitStatus::exited(3);
    wire.exit(status, false);
    wire.collect();
    wire.silence();
    wire.systemd.come_back();
    wire.talk();
    wire.exited(status);
    wire.empty();
}

#[test]
fn a_signal_to_nobody_is_made_up_for() {
    let mut wire = Wire::new();
    wire.run();
    // systemd leaves and is back at once. The exit comes before the tracker has subscribed again.
    wire.systemd.leave();
    wire.systemd.come_back();
    let unit = wire.unit();
    wire.systemd.handle_exited(&unit, OK, false);
    assert!(!wire.systemd.take_news().iter().any(|(_, n)| matches!(n, News::Changed { .. })));
    wire.tracker.handle_news(News::ManagerAway);
    wire.tracker.handle_news(News::ManagerBack);
    wire.talk();
    wire.exited(OK);
}

#[test]
fn an_exit_while_the_bus_is_restarted_is_found() {
    let mut wire = Wire::new();
    wire.run();
    assert_eq!(wire.systemd.restart_bus(), [wire.connection]);
    wire.tracker.handle_lost();
    wire.exit(OK, false);
    wire.silence();
    wire.connect();
    wire.exited(OK);
    wire.collect();
    wire.empty();
}

#[test]
fn a_cgroup_becomes_empty_without_a_bus() {
    let mut wire = Wire::new();
    wire.spec.multiuser = true;
    wire.start();
    wire.process(SimSystemd::handle_forked);
    wire.started();
    wire.exit(OK, true);
    wire.exited(OK);
    wire.collect();
    wire.systemd.restart_bus();
    wire.tracker.handle_lost();
    wire.silence();
    wire.process(SimSystemd::handle_emptied);
    wire.empty();
}

#[test]
fn units_seem_to_end_while_systemd_reloads() {
    let mut wire = Wire::new();
    wire.run();
    wire.systemd.reload();
    let news = wire.systemd.take_news();
    let garbage = news.iter().filter(|(_, news)| matches!(news, News::Changed { .. }));
    assert_eq!(garbage.count(), 2);
    news.into_iter().for_each(|(_, news)| wire.tracker.handle_news(news));
    wire.talk();
    wire.silence();
    assert!(wire.tracker.is_ready());
    wire.exit(OK, false);
    wire.exited(OK);
}

#[test]
fn a_name_that_is_taken_starts_nothing() {
    let mut wire = Wire::new();
    wire.run();
    let unit = wire.unit();
    let id = wire.systemd.invocation_id(&unit).map(str::to_string);
    // The broker is killed. The next one has no records.
    wire.systemd.disconnect(wire.connection);
    wire.tracker = tracker();
    wire.connect();
    let Some(BackendEvent::Unrecorded(found)) = wire.next() else { panic!("it is found") };
    assert_eq!(found.started.map(|started| started.invocation_id), id);
    wire.start();
    assert_eq!(wire.next(), Some(BackendEvent::Exists(unit.clone())));
    wire.tracker.find(&unit, "digest", None);
    wire.talk();
    wire.started();
    assert_eq!(wire.systemd.invocation_id(&unit), id.as_deref());
    assert_eq!(wire.systemd.executions(&unit), 1);
}

#[test]
fn nothing_survives_a_reboot() {
    let mut wire = Wire::new();
    wire.run();
    let unit = wire.unit();
    let invocation_id = wire.systemd.invocation_id(&unit).map(str::to_string).expect("it runs");
    wire.systemd.reboot();
    assert!(!wire.systemd.lives(&unit));
    wire.tracker = tracker();
    wire.connect();
    let known = Started { pid: 1, invocation_id: invocation_id.clone() };
    wire.tracker.find(&unit, "digest", Some(&known));
    wire.talk();
    assert_eq!(wire.next(), Some(BackendEvent::Absent(unit.clone())));
    wire.run();
    assert_ne!(wire.systemd.invocation_id(&unit), Some(invocation_id.as_str()));
    assert_eq!(wire.systemd.executions(&unit), 2);
}

#[test]
fn the_slice_of_an_earlier_job_is_stopped_without_the_unit_that_has_its_name_now() {
    let mut wire = Wire::new();
    wire.spec.measured = true;
    let own = slice_of(&wire.spec);
    let earlier = slice_of(&UnitSpec { digest: "abc".into(), ..wire.spec.clone() });
    wire.systemd.slices.lock().insert(earlier.clone(), Slice::default());
    wire.run();
    wire.systemd.stop_slice(&earlier);
    wire.acts(&[]);
    wire.systemd.count_processes();
    assert!(wire.systemd.slices.lock().get(&own).is_some_and(|slice| slice.lives));
    wire.systemd.stop_slice(&own);
    let told = Act::Signal { unit: wire.unit(), signal: libc::SIGTERM, all: true };
    assert_eq!(wire.systemd.take_acts().first(), Some(&told));
}

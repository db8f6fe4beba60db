//! Tests of the tracker: each plays systemd's part itself.

mod at_exit;
mod leave;
mod patience;
mod quota;
mod slices;
mod trouble;
mod unrecorded;

use std::path::PathBuf;

use super::*;
use crate::proto::{BrokerRank, InstanceId, JobId, WaitStatus};

const PID: u32 = 7;

struct Talk {
    tracker: Tracker,
    asks: Vec<Ask>,
    /// The cgroup that the kernel shows of units. Empty: it shows none.
    seen: String,
}

impl Talk {
    /// A tracker that is connected to a systemd without units.
    fn ready() -> Self {
        let mut talk = Self::unconnected();
        talk.tracker.handle_connected();
        talk.listed(&[]);
        talk
    }

    fn unconnected() -> Self {
        let limits = Limits { starts_in_flight: 2, ..Limits::default() };
        let exec_failure = |_: &UnitSpec, code, _: &str| (libc::ENOENT, format!("{code:?}"));
        Self { tracker: Tracker::new(limits, exec_failure), asks: Vec::new(), seen: String::new() }
    }

    /// The pauses of which nothing comes here are left out. The kernel answers at once.
    fn take_asks(&mut self) {
        for ask in self.tracker.take_asks() {
            match ask.call {
                Call::Patience => {}
                Call::SeenGroup(_) => {
                    let answer = Ok(CallAnswer::ControlGroup(self.seen.clone()));
                    self.tracker.handle_news(News::Answer { number: ask.number, answer });
                }
                _ => self.asks.push(ask),
            }
        }
    }

    /// Expect this call as the next one.
    #[track_caller]
    fn asked(&mut self, call: &Call) -> u64 {
        self.take_asks();
        assert!(!self.asks.is_empty(), "nothing is asked, expected {call:?}");
        let ask = self.asks.remove(0);
        assert_eq!(ask.call, *call);
        ask.number
    }

    #[track_caller]
    fn answer(&mut self, call: &Call, answer: Result<CallAnswer, Refusal>) {
        let number = self.asked(call);
        self.tracker.handle_news(News::Answer { number, answer });
    }

    #[track_caller]
    fn nothing_asked(&mut self) {
        self.take_asks();
        assert_eq!(self.asks, [], "nothing was to be asked");
    }

    /// Answer all calls on a new connection, the list included.
    #[track_caller]
    fn listed(&mut self, units: &[&UnitName]) {
        let number = self.list();
        let names = units.iter().map(ToString::to_string).collect();
        self.tracker.handle_news(News::Answer { number, answer: Ok(CallAnswer::Listed(names)) });
    }

    #[track_caller]
    fn list(&mut self) -> u64 {
        self.take_asks();
        let at = self.asks.iter().position(|ask| ask.call == Call::List).expect("list");
        assert_eq!(self.asks[at - 1].call, Call::Subscribe, "subscribed before");
        self.asks.drain(..=at).next_back().map_or(0, |ask| ask.number)
    }

    /// The number of a call that comes before the list.
    #[track_caller]
    fn list_with(&mut self, call: &Call) -> u64 {
        self.take_asks();
        self.asks.iter().find(|ask| ask.call == *call).expect("it is asked").number
    }

    /// Answer the two calls for properties, as systemd does: with all properties.
    #[track_caller]
    fn looked(&mut self, unit: &UnitName, all: &Changes) {
        let properties = || Ok(CallAnswer::Properties(all.clone()));
        self.answer(&Call::Service(unit.clone()), properties());
        self.answer(&Call::Unit(unit.clone()), properties());
    }

    fn changed(&mut self, unit: &UnitName, changes: Changes) {
        let half = Changes { active: None, control_group: None, ..changes.clone() };
        let changes = Changes { control_group: None, ..changes };
        self.tracker.handle_news(News::Changed { unit: unit.clone(), changes: half, whole: false });
        self.tracker.handle_news(News::Changed { unit: unit.clone(), changes, whole: true });
    }

    #[track_caller]
    fn start(&mut self, unit: &UnitName) {
        self.tracker.start(&spec(unit), &output());
        self.asked(&Call::Watch(unit.clone()));
    }

    /// A unit that was started and runs.
    #[track_caller]
    fn run(&mut self, unit: &UnitName) {
        self.start(unit);
        self.answer(&Call::Start(unit.clone()), Ok(CallAnswer::Done));
        self.changed(unit, running("a"));
        self.event(started(unit, "a"));
        self.asked(&Call::ReadBack(unit.clone()));
    }

    #[track_caller]
    fn event(&mut self, event: BackendEvent) {
        assert_eq!(self.next(), Some(event));
    }

    #[track_caller]
    fn silence(&mut self) {
        assert_eq!(self.next(), None);
    }

    /// The next event, without the one that follows each list.
    fn next(&mut self) -> Option<BackendEvent> {
        std::iter::from_fn(|| self.tracker.next_event())
            .find(|event| *event != BackendEvent::Listed)
    }
}

fn unit(job: u64) -> UnitName {
    UnitName::new(false, BrokerRank(0), JobId(job), InstanceId::new("/test", 1))
}

fn spec(unit: &UnitName) -> UnitSpec {
    UnitSpec {
        userid: 1,
        size: 1,
        argv: vec!["/bin/shell".to_string()],
        ..UnitSpec::bare(unit.clone(), "digest".into())
    }
}

fn output() -> OutputPaths {
    OutputPaths { stdout: PathBuf::new(), stderr: PathBuf::new(), end: PathBuf::new() }
}

/// All properties of a unit that runs. Signals do not have the digest, but it does no harm here.
fn running(invocation: &str) -> Changes {
    Changes {
        active: Some(Active::Active),
        was_active: Some(true),
        job: Some(false),
        invocation_id: Some(invocation.to_string()),
        main_pid: Some(PID),
        main_code: Some(0),
        main_status: Some(0),
        result: Some("success".to_string()),
        digest: Some("digest".to_string()),
        userid: Some(1),
        size: Some(4),
        control_group: Some("/group".to_string()),
    }
}

/// The unit has exited with this code, and remains in systemd.
fn exited(code: i32) -> Changes {
    let (active, result) = match code {
        0 => (Active::Active, "success"),
        _ => (Active::Failed, "exit-code"),
    };
    Changes {
        active: Some(active),
        main_code: Some(libc::CLD_EXITED),
        main_status: Some(code),
        result: Some(result.to_string()),
        ..running("a")
    }
}

/// The properties that systemd has for a unit that does not exist.
fn stub() -> Changes {
    Changes {
        active: Some(Active::Inactive),
        main_pid: Some(0),
        was_active: Some(false),
        digest: Some(String::new()),
        ..running("")
    }
}

fn inactive() -> Changes {
    Changes { active: Some(Active::Inactive), ..exited(0) }
}

fn refusal(name: &str) -> Refusal {
    Refusal { name: name.to_string(), text: String::new() }
}

fn started(unit: &UnitName, invocation: &str) -> BackendEvent {
    let started = Started { pid: PID, invocation_id: invocation.to_string() };
    BackendEvent::Started { unit: unit.clone(), started }
}

fn exit(unit: &UnitName, code: i32) -> BackendEvent {
    BackendEvent::Exited { unit: unit.clone(), status: WaitStatus::exited(code) }
}

#[test]
fn a_unit_from_start_to_end() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    talk.answer(&Call::Start(unit.clone()), Ok(CallAnswer::Done));
    let forked =
        Changes { active: Some(Active::Activating), was_active: Some(false), ..running("a") };
    talk.changed(&unit, forked);
    talk.silence();
    talk.changed(&unit, running("a"));
    talk.event(started(&unit, "a"));
    talk.asked(&Call::ReadBack(unit.clone()));
    talk.changed(&unit, exited(0));
    talk.event(exit(&unit, 0));

    talk.tracker.collect(&unit);
    let group = "/real".to_string();
    talk.answer(&Call::ControlGroup(unit.clone()), Ok(CallAnswer::ControlGroup(group.clone())));
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.nothing_asked();
    talk.changed(&unit, inactive());
    talk.asked(&Call::IsEmpty { unit: unit.clone(), group, is_down: true });
    talk.silence();
    talk.tracker.handle_news(News::Emptied { unit: unit.clone() });
    talk.event(BackendEvent::Empty(unit.clone()));
    talk.asked(&Call::Unwatch(unit));
    talk.nothing_asked();
}

#[test]
fn a_failed_unit_is_reset() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.signal(&unit, libc::SIGUSR1, true);
    talk.asked(&Call::Kill { unit: unit.clone(), signal: libc::SIGUSR1, all: true });
    talk.changed(&unit, exited(3));
    talk.event(exit(&unit, 3));
    talk.tracker.collect(&unit);
    let no_group = Ok(CallAnswer::ControlGroup(String::new()));
    talk.answer(&Call::ControlGroup(unit.clone()), no_group);
    talk.answer(&Call::Reset(unit.clone()), Ok(CallAnswer::Done));
    talk.asked(&Call::IsEmpty { unit: unit.clone(), group: String::new(), is_down: true });
    talk.tracker.handle_news(News::Emptied { unit: unit.clone() });
    talk.event(BackendEvent::Empty(unit));
}

#[test]
fn a_program_that_cannot_be_executed() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    talk.answer(&Call::Start(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, Changes { was_active: Some(false), ..exited(203) });
    let message = "Some(203)".to_string();
    talk.event(BackendEvent::Failed { unit: unit.clone(), errnum: libc::ENOENT, message });
    talk.asked(&Call::Unwatch(unit.clone()));
    let reset = talk.asked(&Call::Reset(unit.clone()));

    // This is not the answer to the stop of the next unit of that name.
    talk.start(&unit);
    talk.tracker.handle_news(News::Answer { number: reset, answer: Ok(CallAnswer::Done) });
    talk.answer(&Call::Start(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, exited(0));
    talk.event(started(&unit, "a"));
    talk.event(exit(&unit, 0));
    talk.asked(&Call::ReadBack(unit.clone()));
    talk.tracker.collect(&unit);
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.asked(&Call::Stop(unit));
}

#[test]
fn few_starts_are_in_flight() {
    let mut talk = Talk::ready();
    for job in 1..=3 {
        talk.tracker.start(&spec(&unit(job)), &output());
    }
    talk.asked(&Call::Watch(unit(1)));
    talk.answer(&Call::Start(unit(1)), Ok(CallAnswer::Done));
    talk.asked(&Call::Watch(unit(2)));
    talk.asked(&Call::Start(unit(2)));
    talk.asked(&Call::Watch(unit(3)));
    talk.nothing_asked();
    talk.changed(&unit(1), running("a"));
    talk.asked(&Call::ReadBack(unit(1)));
    talk.asked(&Call::Start(unit(3)));
}

#[test]
fn an_exit_without_a_connection_is_found() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.handle_lost();
    talk.tracker.handle_news(News::Changed {
        unit: unit.clone(),
        changes: inactive(),
        whole: true,
    });
    talk.tracker.signal(&unit, libc::SIGTERM, false);
    talk.nothing_asked();
    talk.tracker.handle_connected();
    talk.listed(&[&unit]);
    let number = talk.asked(&Call::Service(unit.clone()));
    let whole = talk.asked(&Call::Unit(unit.clone()));
    talk.asked(&Call::Kill { unit: unit.clone(), signal: libc::SIGTERM, all: false });
    for number in [number, whole] {
        talk.tracker
            .handle_news(News::Answer { number, answer: Ok(CallAnswer::Properties(exited(4))) });
    }
    talk.event(exit(&unit, 4));
    talk.silence();
}

#[test]
fn a_unit_that_is_gone_is_absent() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.silence();
    talk.listed(&[]);
    talk.event(BackendEvent::Absent(unit));
}

#[test]
fn a_start_whose_answer_was_lost_is_adopted() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    let stale = talk.asked(&Call::Start(unit.clone()));
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.tracker
        .handle_news(News::Answer { number: stale, answer: Err(refusal(Refusal::UNIT_EXISTS)) });
    talk.listed(&[&unit]);
    // Signals do not say whose it is.
    talk.changed(&unit, Changes { digest: None, ..running("a") });
    talk.silence();
    talk.looked(&unit, &running("a"));
    talk.event(started(&unit, "a"));
    talk.asked(&Call::ReadBack(unit));
    talk.nothing_asked();
}

#[test]
fn a_start_that_was_lost_is_made_again() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    talk.answer(&Call::Start(unit.clone()), Err(refusal(Refusal::NO_REPLY)));
    talk.nothing_asked();
    talk.tracker.handle_news(News::ManagerAway);
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[]);
    // The call arrives later after all.
    talk.answer(&Call::Start(unit.clone()), Err(refusal(Refusal::UNIT_EXISTS)));
    talk.looked(&unit, &running("a"));
    talk.event(started(&unit, "a"));
}

/// [manager-ended]
#[test]
fn a_start_is_not_made_again_by_another_user_manager() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let began = |talk: &mut Talk, when| {
        let number = talk.list_with(&Call::Manager);
        let answer = Ok(CallAnswer::Manager(ManagerId(when)));
        talk.tracker.handle_news(News::Answer { number, answer });
        talk.listed(&[]);
    };
    talk.tracker.handle_news(News::ManagerBack);
    began(&mut talk, 7);
    assert_eq!(talk.tracker.manager(), Some(ManagerId(7)));
    talk.start(&unit);
    talk.asked(&Call::Start(unit.clone()));
    for when in [7, 8] {
        talk.tracker.handle_lost();
        talk.tracker.handle_connected();
        began(&mut talk, when);
        if when == 7 {
            talk.asked(&Call::Start(unit.clone()));
            talk.silence();
        }
    }
    talk.event(BackendEvent::ManagerEnded(unit.clone()));
    talk.asked(&Call::Unwatch(unit));
    talk.nothing_asked();
}

#[test]
fn a_quota_for_the_question_which_user_manager_it_is_has_it_asked_again() {
    let mut talk = Talk::unconnected();
    talk.tracker.handle_connected();
    let number = talk.list_with(&Call::Manager);
    let answer = Err(refusal(Refusal::QUOTA));
    talk.tracker.handle_news(News::Answer { number, answer });
    // What it lists now does not count.
    let number = talk.list_with(&Call::List);
    let answer = Ok(CallAnswer::Listed(Vec::new()));
    talk.tracker.handle_news(News::Answer { number, answer });
    assert!(!talk.tracker.is_ready());
    talk.take_asks();
    talk.asks.retain(|ask| ask.call == Call::LaterList);
    talk.answer(&Call::LaterList, Ok(CallAnswer::Done));
    talk.listed(&[]);
    assert!(talk.tracker.is_ready());
}

#[test]
fn without_an_answer_which_user_manager_it_is_the_list_does_not_count() {
    let mut talk = Talk::unconnected();
    talk.tracker.handle_connected();
    let number = talk.list_with(&Call::Manager);
    let answer = Err(refusal("org.freedesktop.DBus.Error.Failed"));
    talk.tracker.handle_news(News::Answer { number, answer });
    assert!(!talk.tracker.is_ready());
    talk.take_asks();
    assert_eq!(talk.asks.last().map(|ask| &ask.call), Some(&Call::Reconnect));
}

/// As when it is listed again on the same connection.
#[test]
fn who_has_subscribed_already_is_listed_to() {
    let mut talk = Talk::unconnected();
    talk.tracker.handle_connected();
    let number = talk.list_with(&Call::Subscribe);
    let answer = Err(refusal("org.freedesktop.systemd1.AlreadySubscribed"));
    talk.tracker.handle_news(News::Answer { number, answer });
    talk.listed(&[]);
    assert!(talk.tracker.is_ready());
}

/// Seed 911103998 of the units profile: it ends between the two answers.
#[test]
fn an_answer_of_before_it_failed_does_not_count_as_a_start() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    talk.answer(&Call::Start(unit.clone()), Ok(CallAnswer::Done));
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    let failed = Changes { was_active: Some(false), ..exited(203) };
    talk.answer(&Call::Service(unit.clone()), Ok(CallAnswer::Properties(running("a"))));
    let whole = Changes { main_pid: None, main_code: None, main_status: None, ..failed.clone() };
    talk.answer(&Call::Unit(unit.clone()), Ok(CallAnswer::Properties(whole)));
    talk.silence();
    talk.looked(&unit, &failed);
    let message = "Some(203)".to_string();
    talk.event(BackendEvent::Failed { unit, errnum: libc::ENOENT, message });
}

#[test]
fn a_start_that_was_listed_and_then_lost_is_made_again() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    talk.asked(&Call::Start(unit.clone()));
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.listed(&[&unit]);
    talk.looked(&unit, &stub());
    talk.asked(&Call::Start(unit.clone()));
    // The properties of the earlier unit say nothing about this one.
    talk.changed(&unit, Changes { digest: None, ..stub() });
    talk.nothing_asked();
}

#[test]
fn two_answers_that_it_is_absent_are_one_start() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    talk.asked(&Call::Start(unit.clone()));
    talk.tracker.handle_news(News::ManagerAway);
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    let numbers = [talk.asked(&Call::Service(unit.clone())), talk.asked(&Call::Unit(unit.clone()))];
    for number in numbers {
        let answer = Err(refusal(Refusal::NO_SUCH_UNIT));
        talk.tracker.handle_news(News::Answer { number, answer });
    }
    talk.asked(&Call::Start(unit));
    talk.nothing_asked();
}

#[test]
fn a_name_that_is_taken_is_reported() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    talk.answer(&Call::Start(unit.clone()), Err(refusal(Refusal::UNIT_EXISTS)));
    talk.event(BackendEvent::Exists(unit.clone()));
    talk.tracker.find(&unit, "another", None);
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.asked(&Call::Watch(unit.clone()));
    talk.looked(&unit, &running("a"));
    talk.event(BackendEvent::Replaced(unit));
}

#[test]
fn what_has_failed_in_an_earlier_run_and_has_the_name_is_forgotten() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let known = Started { pid: PID, invocation_id: "a".to_string() };
    talk.tracker.find(&unit, "digest", Some(&known));
    talk.asked(&Call::Watch(unit.clone()));
    talk.looked(&unit, &Changes { invocation_id: Some("b".to_string()), ..exited(3) });
    talk.event(BackendEvent::Replaced(unit.clone()));
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.answer(&Call::Reset(unit), Ok(CallAnswer::Done));
    talk.nothing_asked();
}

/// The start of the next run waited for its removal, and the module died (seed 896005549).
#[test]
fn what_has_ended_well_in_an_earlier_run_and_has_the_name_is_stopped() {
    for (digest, is_stopped) in [("of an earlier run", true), ("", false)] {
        let (mut talk, unit) = (Talk::ready(), unit(1));
        talk.tracker.find(&unit, "digest", None);
        talk.asked(&Call::Watch(unit.clone()));
        talk.looked(&unit, &Changes { digest: Some(digest.to_string()), ..exited(0) });
        talk.event(BackendEvent::Replaced(unit.clone()));
        talk.asked(&Call::Unwatch(unit.clone()));
        if is_stopped {
            // The bus has a quota of calls without an answer (seed 904003058).
            talk.answer(&Call::Stop(unit.clone()), Err(refusal(Refusal::QUOTA)));
            talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
            talk.answer(&Call::Stop(unit), Ok(CallAnswer::Done));
        }
        talk.nothing_asked();
    }
}

#[test]
fn the_stop_of_an_earlier_run_says_nothing_of_the_next() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.asked(&Call::Watch(unit.clone()));
    talk.looked(&unit, &Changes { digest: Some("other".to_string()), ..exited(0) });
    talk.event(BackendEvent::Replaced(unit.clone()));
    talk.asked(&Call::Unwatch(unit.clone()));
    let number = talk.asked(&Call::Stop(unit.clone()));
    talk.run(&unit);
    talk.tracker.handle_news(News::Answer { number, answer: Ok(CallAnswer::Done) });
    talk.tracker.collect(&unit);
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.asked(&Call::Stop(unit));
}

#[test]
fn units_are_not_believed_while_systemd_reloads() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.handle_news(News::Reloading(true));
    talk.changed(&unit, inactive());
    talk.tracker.collect(&unit);
    talk.silence();
    talk.nothing_asked();
    talk.tracker.handle_news(News::Reloading(false));
    talk.listed(&[&unit]);
    talk.looked(&unit, &running("a"));
    talk.silence();
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.asked(&Call::Stop(unit));
}

#[test]
fn only_the_latest_list_counts() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.handle_news(News::ManagerBack);
    let older = talk.list();
    talk.tracker.handle_news(News::Reloading(true));
    talk.tracker.handle_news(News::Reloading(false));
    talk.tracker
        .handle_news(News::Answer { number: older, answer: Ok(CallAnswer::Listed(Vec::new())) });
    talk.silence();
    assert!(!talk.tracker.is_ready());
    talk.listed(&[&unit]);
    assert!(talk.tracker.is_ready());
}

#[test]
fn another_invocation_is_not_the_one() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let known = Started { pid: PID, invocation_id: "a".to_string() };
    talk.tracker.find(&unit, "digest", Some(&known));
    talk.asked(&Call::Watch(unit.clone()));
    talk.looked(&unit, &running("b"));
    talk.event(BackendEvent::Replaced(unit.clone()));
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.tracker.find(&unit, "digest", Some(&known));
    talk.asked(&Call::Watch(unit.clone()));
    talk.looked(&unit, &exited(2));
    talk.event(started(&unit, "a"));
    talk.event(exit(&unit, 2));
}

#[test]
fn a_recorded_start_is_not_taken_back() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let known = Started { pid: PID, invocation_id: "a".to_string() };
    talk.tracker.find(&unit, "digest", Some(&known));
    talk.asked(&Call::Watch(unit.clone()));
    // It never reported that it was ready, and its exit code is one of systemd's own.
    talk.looked(&unit, &Changes { was_active: Some(false), ..exited(203) });
    talk.event(started(&unit, "a"));
    talk.event(exit(&unit, 203));
    talk.nothing_asked();
}

#[test]
fn what_is_looked_for_and_not_there_is_absent() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.asked(&Call::Watch(unit.clone()));
    talk.looked(&unit, &stub());
    talk.event(BackendEvent::Absent(unit.clone()));
    talk.tracker.collect(&unit);
    talk.event(BackendEvent::Empty(unit));
}

#[test]
fn without_a_list_it_connects_again() {
    let mut talk = Talk::unconnected();
    talk.tracker.start(&spec(&unit(1)), &output());
    talk.nothing_asked();
    talk.tracker.handle_connected();
    let number = talk.list();
    talk.tracker.handle_news(News::Answer { number, answer: Err(refusal(Refusal::NO_OWNER)) });
    talk.asked(&Call::Reconnect);
    talk.tracker.handle_connected();
    talk.listed(&[]);
    talk.asked(&Call::Start(unit(1)));
}

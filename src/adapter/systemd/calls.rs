//! The calls that the tracker asks for.

use std::collections::BTreeSet;
use std::io;

use tokio::time::Instant;
use zbus::message::Message;

use crate::proto::UnitName;
use crate::supervisor::tracker::{Ask, Call, CallAnswer, News, Refusal};

use super::bus::unit_path;
use super::bus::{Bus, MANAGER, MANAGER_PATH, PROPERTIES, Pending, SERVICE, SYSTEMD, UNIT};
use super::main_process::ProcessPlace;
use super::process_group::Members;
use super::properties::Property;
use super::readback::ReadBack;
use super::start::StartCall;
use super::{Systemd, cgroup, decode, environment, left, pause};

/// The part of a match rule for the signal that a unit's object sends when its properties change.
const CHANGED: &str = "interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'";

impl Systemd {
    /// Do what the tracker asks for. Calls are only queued; [`Bus::flush`] sends them.
    pub(super) fn perform(&mut self) {
        loop {
            let asks = self.tracker.take_asks();
            if asks.is_empty() {
                return;
            }
            asks.into_iter().for_each(|ask| self.perform_one(ask));
        }
    }

    fn perform_one(&mut self, ask: Ask) {
        match &ask.call {
            Call::Guard { unit, group } => self.guard(unit, group),
            Call::IsEmpty { unit, group, is_down } => self.ask_kernel(unit, group, *is_down),
            Call::Kill { signal: libc::SIGKILL, all: true, .. } => self.kill_all(ask),
            Call::Kill { unit, all: false, .. } => {
                let members = self.group_members(unit);
                if !members.is_empty() {
                    self.signalled.insert(ask.number, members);
                }
                self.ask_bus(ask);
            }
            Call::Later(_) | Call::LaterSlice(_) | Call::LaterStarts => {
                self.pauses.begin(ask.number, pause::REFUSED)
            }
            Call::LaterList => self.pauses.begin(ask.number, pause::UNHEARD),
            Call::Main { unit, pid } => {
                self.main_processes.hold(unit, *pid);
                self.ask_bus(ask);
            }
            Call::Patience => self.patience = Some(Instant::now() + self.answer_within),
            Call::ReadBack(unit) => {
                if let Some(start) = self.starts.remove(unit) {
                    self.read_back(unit, start);
                }
            }
            Call::Reconnect => {
                self.attempts = self.attempts.saturating_add(1);
                self.drop_link();
            }
            Call::SeenGroup(unit) => {
                let main = self.tracker.main_pid(unit);
                let group = main.and_then(|main| self.cgroups.of(unit, main)).unwrap_or_default();
                let answer = Ok(CallAnswer::ControlGroup(group));
                self.tracker.handle_news(News::Answer { number: ask.number, answer });
            }
            Call::Start(_) => {
                let Some(bus) = self.link.bus() else { return };
                if self.unsent.is_empty() {
                    let property = (MANAGER, "Environment");
                    bus.call_properties(Pending::Environment, MANAGER_PATH, "Get", &property);
                }
                self.unsent.push(ask);
            }
            Call::Unwatch(unit) => {
                self.cgroups.forget(unit);
                self.main_processes.forget(unit);
                self.prune_start(unit);
                if self.rules.remove(unit)
                    && let Some(bus) = self.link.bus()
                {
                    bus.remove_match(&unit_rule(unit));
                }
            }
            Call::Watch(unit) => {
                self.rules.insert(unit.clone());
                self.ask_bus(ask);
            }
            Call::WatchAll => {
                // They fill the quota that the one rule needs room in.
                let rules = std::mem::take(&mut self.rules);
                if let Some(bus) = self.link.bus() {
                    rules.iter().for_each(|unit| bus.remove_match(&unit_rule(unit)));
                }
                self.ask_bus(ask);
            }
            _ => self.ask_bus(ask),
        }
    }

    /// systemd has said which variables it has for all units. Make the starts that have waited for
    /// that.
    pub(super) fn handle_environment(&mut self, reply: Result<Message, Refusal>) {
        let unsent = std::mem::take(&mut self.unsent);
        match reply.and_then(|message| decode::decode_strings(&message)) {
            Ok(variables) => {
                let names = environment::names(&variables);
                unsent.into_iter().for_each(|ask| self.send_start(ask, &names));
            }
            Err(refusal) => {
                for Ask { number, .. } in unsent {
                    self.hear(News::Answer { number, answer: Err(refusal.clone()) });
                }
            }
        }
    }

    fn send_start(&mut self, ask: Ask, names: &BTreeSet<String>) {
        let Some(unit) = ask.call.unit().filter(|_| self.tracker.awaits(ask.number)) else {
            return;
        };
        let Some(start) = self.starts.get_mut(unit) else {
            return tracing::error!(%unit, "there are no arguments to start the unit with");
        };
        let Some(bus) = self.link.bus() else { return };
        start.unset(names);
        let body = (unit.to_string(), "fail", &start.properties, &start.auxiliary);
        bus.call_manager(Pending::Ask(ask), "StartTransientUnit", &body);
    }

    fn ask_bus(&mut self, ask: Ask) {
        if let Some(bus) = self.link.bus() {
            call(bus, ask, &self.patterns);
        }
    }

    /// The process group of a unit's main process, as it is now, without the main process.
    fn group_members(&mut self, unit: &UnitName) -> Members {
        match (self.tracker.main_pid(unit), self.cgroups.mount()) {
            (Some(main), Ok(mount)) => Members::of(unit, main, &mount),
            _ => Members::default(),
        }
    }

    /// The kernel kills what systemd may not: a guest's processes, and those that have become root.
    fn kill_all(&mut self, ask: Ask) {
        let Some(unit) = ask.call.unit() else { return };
        let main = self.tracker.main_pid(unit);
        let killed = match self.cgroups.directory(unit, main) {
            Some(directory) => cgroup::kill(&directory),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        match killed {
            Ok(()) => {
                let answer = Ok(CallAnswer::Done);
                self.tracker.handle_news(News::Answer { number: ask.number, answer });
            }
            Err(error) => {
                tracing::debug!(%unit, %error, "cgroup.kill: systemd is asked instead");
                self.ask_bus(ask);
            }
        }
    }

    /// A signal has not ended the unit's processes, and is sent again.
    pub(super) fn name_left(&mut self, unit: &UnitName, signal: i32) {
        let main = self.tracker.main_pid(unit);
        if let Some(names) = self.cgroups.directory(unit, main).and_then(|path| left::names(&path))
        {
            tracing::warn!(%unit, signal, "left after the signal, which is sent again: {names}");
            self.tracker.tell_left_over(unit, names);
        }
    }

    /// systemd has signalled the main process, or there is none any more.
    pub(super) fn signal_group(&mut self, ask: &Ask) {
        if let Call::Kill { unit, signal, .. } = &ask.call
            && let Some(members) = self.signalled.remove(&ask.number)
        {
            members.signal(unit, *signal);
        }
    }

    fn ask_kernel(&mut self, unit: &UnitName, group: &str, is_down: bool) {
        match self.cgroups.is_empty(unit, group) {
            Ok(true) => self.handle_emptied(unit),
            Ok(false) => tracing::debug!(%unit, group, "waiting for its cgroup to become empty"),
            Err(e) if !is_down => {
                tracing::debug!(%unit, group, error = %e, "cannot see whether the cgroup is empty");
            }
            Err(e) => {
                tracing::error!(%unit, group, error = %e,
                    "cannot see whether the cgroup is empty, believing systemd");
                match self.main_processes.place(unit) {
                    ProcessPlace::Ended => {
                        self.tracker.handle_news(News::Emptied { unit: unit.clone() })
                    }
                    ProcessPlace::Outside(group) => self.handle_left(unit, &group),
                    // It may be in its unit.
                    ProcessPlace::Unseen => self.main_processes.begin_wait(unit, true),
                }
            }
        }
    }

    fn guard(&mut self, unit: &UnitName, group: &str) {
        if self.cgroups.is_seen(group) {
            self.main_processes.guard(unit, group);
            self.ask_kernel(unit, group, true);
        } else {
            // systemd keeps the cgroup of a running unit, so systemd and this process have
            // different views of the hierarchy.
            tracing::warn!(%unit, group,
                "cgroup not found: it will go unnoticed if the main process leaves its unit");
        }
    }

    /// Handle that a unit's cgroup has no process. If the main process lives in another cgroup, the
    /// tracker is told that first, and that the unit is empty only when the main process has ended.
    pub(super) fn handle_emptied(&mut self, unit: &UnitName) {
        match self.main_processes.place(unit) {
            ProcessPlace::Ended => self.tracker.handle_news(News::Emptied { unit: unit.clone() }),
            ProcessPlace::Outside(group) => self.handle_left(unit, &group),
            ProcessPlace::Unseen => self.main_processes.begin_wait(unit, false),
        }
    }

    /// Handle the end of a wait for a main process: it has ended, or it still lives.
    pub(super) fn handle_main_end(&mut self, unit: &UnitName, ended: bool) {
        if ended {
            self.tracker.handle_news(News::Emptied { unit: unit.clone() });
        } else {
            self.handle_left(unit, "a cgroup that is not seen");
        }
    }

    fn handle_left(&mut self, unit: &UnitName, group: &str) {
        tracing::error!(%unit, job = %unit.job(), group,
            "the job shell has left its unit: processes of the job may run outside of it");
        self.tracker.handle_news(News::Left { unit: unit.clone() });
        self.main_processes.begin_wait(unit, true);
    }

    /// Ask whether a unit that runs has the properties that it was started with: those that were
    /// configured, and all if there are drop-ins.
    fn read_back(&mut self, unit: &UnitName, start: StartCall) {
        let Some(bus) = self.link.bus() else { return };
        // A unit's drop-ins go by its type and the parts of its name, and systemd reads new ones when it
        // reloads.
        if self.drop_ins_known.insert((unit.stage(), unit.is_multiuser())) {
            let path = unit_path(&unit.to_string());
            let pending = Pending::DropIns(unit.clone(), start.comparable());
            bus.call_properties(pending, &path, "Get", &(UNIT, "DropInPaths"));
        }
        compare(bus, unit, start.read_back, "");
    }

    /// Drop the arguments of a start that is decided, or no longer wanted.
    pub(super) fn prune_start(&mut self, unit: &UnitName) {
        if !self.tracker.is_starting(unit) {
            self.starts.remove(unit);
        }
    }
}

/// Make a call whose answer is for the tracker.
fn call(bus: &mut Bus, ask: Ask, patterns: &[String; 2]) {
    let path = ask.call.unit().map(|unit| unit_path(&unit.to_string())).unwrap_or_default();
    let name = ask.call.unit().map(ToString::to_string).unwrap_or_default();
    let call = ask.call.clone();
    let pending = Pending::Ask(ask);
    match call {
        Call::ControlGroup(_) => {
            bus.call_properties(pending, &path, "Get", &(SERVICE, "ControlGroup"))
        }
        Call::Kill { signal, all, .. } => {
            let who = if all { "all" } else { "main" };
            bus.call_manager(pending, "KillUnit", &(name, who, signal));
        }
        Call::List => {
            // Slices, because zbus encodes an array of fixed length as a struct.
            let states: &[&str] = &[];
            let patterns: &[&str] = &[&patterns[0], &patterns[1]];
            bus.call_manager(pending, "ListUnitsByPatterns", &(states, patterns));
        }
        Call::Manager => {
            let property = (MANAGER, "UserspaceTimestampMonotonic");
            bus.call_properties(pending, MANAGER_PATH, "Get", &property);
        }
        Call::Ping => bus.ping(pending),
        Call::Reset(_) => bus.call_manager(pending, "ResetFailedUnit", &(name,)),
        Call::Main { .. } | Call::Service(_) => {
            bus.call_properties(pending, &path, "GetAll", &(SERVICE,))
        }
        Call::Stop(_) => bus.call_manager(pending, "StopUnit", &(name, "replace")),
        Call::StopSlice(slice) => bus.call_manager(pending, "StopUnit", &(slice, "replace")),
        Call::Subscribe => bus.call_manager(pending, "Subscribe", &()),
        Call::Unit(_) => bus.call_properties(pending, &path, "GetAll", &(UNIT,)),
        Call::Watch(unit) => bus.add_match(pending, &unit_rule(&unit)),
        Call::WatchAll => {
            let rule = format!(
                "type='signal',sender='{SYSTEMD}',path_namespace='{MANAGER_PATH}/unit',{CHANGED}"
            );
            bus.add_match(pending, &rule);
        }
        Call::WatchPresence => bus.add_match(
            pending,
            "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',\
             member='NameOwnerChanged',arg0='org.freedesktop.systemd1'",
        ),
        Call::WatchReloading => {
            let rule = format!(
                "type='signal',sender='{SYSTEMD}',path='{MANAGER_PATH}',interface='{MANAGER}',\
                 member='Reloading'"
            );
            bus.add_match(pending, &rule);
        }
        Call::Guard { .. }
        | Call::IsEmpty { .. }
        | Call::Later(_)
        | Call::LaterList
        | Call::LaterSlice(_)
        | Call::LaterStarts
        | Call::Patience
        | Call::ReadBack(_)
        | Call::Reconnect
        | Call::SeenGroup(_)
        | Call::Start(_)
        | Call::Unwatch(_) => {}
    }
}

/// Ask which values systemd has for these properties.
pub(super) fn compare(bus: &mut Bus, unit: &UnitName, properties: Vec<Property>, drop_ins: &str) {
    let path = unit_path(&unit.to_string());
    let read_backs = properties.into_iter();
    for read_back in read_backs.filter_map(|property| ReadBack::new(unit, property, drop_ins)) {
        let key = read_back.key().to_string();
        bus.call_properties(Pending::ReadBack(read_back), &path, "Get", &(SERVICE, key));
    }
}

/// The match rule for one unit's signals. Many brokers can share a user bus, so a rule for all
/// units would deliver much that is not for us.
fn unit_rule(unit: &UnitName) -> String {
    debug_assert!(CHANGED.contains(PROPERTIES));
    let path = unit_path(&unit.to_string());
    format!("type='signal',sender='{SYSTEMD}',path='{path}',{CHANGED}")
}

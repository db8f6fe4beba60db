//! One unit at a time: what its properties and our calls' answers lead to.

use std::collections::HashMap;

use nix::errno::Errno;
use zbus::message::Message;
use zbus::{OwnedVariant, Variant};

use crate::port::supervisor::{Started, UnitSpec};
use crate::proto::UnitName;
use crate::supervisor::BackendEvent;

use super::Systemd;
use super::bus::{CallError, SERVICE, UNIT, unit_path};
use super::call::Call;
use super::link::unit_rule;
use super::start::{Start, exec_failure, start_errno};
use super::state::{Start as Outcome, State};

/// Starts of one unit that may come to nothing before it is given up.
const START_RETRIES_MAX: u32 = 8;

/// Where a unit is in its life, as far as it was reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Its exit was reported.
    Exited,
    /// systemd was, or will be, asked whether it is there.
    Finding,
    /// Waits for its turn to be started.
    Queued,
    /// It runs.
    Running,
    /// systemd was told to start it.
    Starting,
}

/// How far its removal is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Collect {
    /// systemd has accepted to stop it (or to forget its failure).
    Accepted,
    /// systemd was told to.
    Asked,
    /// Not wanted.
    No,
    /// Wanted, but systemd was not told yet.
    Wanted,
}

/// A unit that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) path: String,
    pub(super) phase: Phase,
    /// `Type=notify`.
    pub(super) notify: bool,
    /// Digest of the job whose unit it should be.
    digest: String,
    /// What was recorded of it in an earlier life.
    pub(super) known: Option<Started>,
    /// Kept until the start is decided.
    pub(super) start: Option<Box<(UnitSpec, Start)>>,
    /// The call was answered, so there is a job in systemd.
    accepted: bool,
    /// Earlier calls that came to nothing, or may have got through.
    retries: u32,
    collect: Collect,
    reset: bool,
    /// All its properties were read once.
    seen: bool,
    state: State,
}

impl Watched {
    /// The unit shall be removed.
    pub(super) fn want_collect(&mut self) {
        if self.collect == Collect::No {
            self.collect = Collect::Wanted;
        }
    }

    /// A unit of our name can be a stranger's, unless our own call has started it.
    fn is_ours(&self, started: &Started) -> bool {
        match &self.known {
            Some(known) => known.invocation_id == started.invocation_id,
            None => self.accepted || self.state.digest.as_ref() == Some(&self.digest),
        }
    }

    /// All is asked for again, because calls may have been lost.
    pub(super) fn looked(&mut self) {
        match self.collect {
            Collect::Accepted | Collect::Asked => self.collect = Collect::Wanted,
            Collect::No | Collect::Wanted => {}
        }
        self.reset = false;
        self.seen = false;
    }
}

impl Systemd {
    /// Watch a unit from now on.
    pub(super) fn watch(&mut self, unit: &UnitName, digest: &str, phase: Phase) {
        self.release(unit);
        let path = unit_path(&unit.to_string());
        if let Some(bus) = self.link.bus() {
            bus.add_match(&unit_rule(&path));
        }
        self.paths.insert(path.clone(), unit.clone());
        let watched = Watched {
            path,
            phase,
            notify: false,
            digest: digest.to_string(),
            known: None,
            start: None,
            accepted: false,
            retries: 0,
            collect: Collect::No,
            reset: false,
            seen: false,
            state: State::default(),
        };
        self.units.insert(unit.clone(), watched);
    }

    /// Watch it no longer.
    pub(super) fn release(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.remove(unit) else { return };
        self.queue.retain(|queued| queued != unit || watched.phase != Phase::Queued);
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        self.paths.remove(&watched.path);
        self.cgroups.forget(unit);
        if let Some(bus) = self.link.bus() {
            bus.remove_match(&unit_rule(&watched.path));
        }
        self.start_next();
    }

    /// Start units that wait, as many as may be in flight.
    pub(super) fn start_next(&mut self) {
        while self.in_flight < self.starts_in_flight_max
            && let Some(bus) = self.link.ready()
            && let Some(unit) = self.queue.pop_front()
        {
            let Some(watched) = self.units.get_mut(&unit) else { continue };
            let Some(start) = &watched.start else { continue };
            watched.phase = Phase::Starting;
            self.in_flight += 1;
            let auxiliary: &[(&str, &[(&str, Variant<'_>)])] = &[];
            let body = (unit.to_string(), "fail", &start.1.properties, auxiliary);
            bus.manager(Call::Start(unit), "StartTransientUnit", &body);
        }
    }

    /// Send a signal now.
    pub(super) fn kill(&mut self, unit: &UnitName, signal: i32, all: bool) {
        let Some(bus) = self.link.ready() else { return };
        let who = if all { "all" } else { "main" };
        bus.manager(Call::Kill(unit.clone()), "KillUnit", &(unit.to_string(), who, signal));
    }

    /// Nothing was started.
    pub(super) fn failed(&mut self, unit: &UnitName, errno: Errno, message: String) {
        self.release(unit);
        let (unit, errnum) = (unit.clone(), errno as i32);
        self.events.push_back(BackendEvent::Failed { unit, errnum, message });
    }

    /// Properties of a unit have changed.
    pub(super) fn changed(
        &mut self,
        unit: &UnitName,
        interface: &str,
        properties: &HashMap<&str, Variant<'_>>,
    ) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        watched.state.apply(properties);
        tracing::trace!(%unit, interface, state = ?watched.state, "changed");
        // systemd sends a change as two signals, this interface's last: only now is it whole.
        if interface == UNIT {
            self.step(unit);
        }
    }

    /// Draw conclusions from what is known.
    pub(super) fn step(&mut self, unit: &UnitName) {
        if self.step_start(unit) && self.step_exit(unit) {
            self.step_collect(unit);
        }
    }

    /// True if the program was executed.
    fn step_start(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        match watched.phase {
            Phase::Exited | Phase::Running => return true,
            // Signals do not say whose it is.
            Phase::Finding | Phase::Starting if !watched.accepted && !watched.seen => return false,
            Phase::Finding | Phase::Starting => {}
            Phase::Queued => return false,
        }
        let starting = watched.phase == Phase::Starting;
        if !watched.state.is_whole() {
            // Half a change, after signals were missed.
            self.look(unit);
            return false;
        }
        match watched.state.start(watched.notify) {
            Outcome::Pending => {
                let down = watched.state.is_down();
                if down && watched.start.is_some() {
                    // Accepted, and yet never executed: seen when systemd reloads right then.
                    if watched.accepted || !starting {
                        self.start_again(unit);
                    }
                } else if down {
                    self.absent(unit);
                }
                false
            }
            Outcome::Failed(code) => {
                let failure = watched
                    .start
                    .as_ref()
                    .map(|start| exec_failure(&start.0, code, &watched.state.result));
                if let Some(bus) = self.link.bus() {
                    let name = (unit.to_string(),);
                    bus.manager(Call::Reset(unit.clone()), "ResetFailedUnit", &name);
                }
                match failure {
                    Some((errno, message)) => self.failed(unit, errno, message),
                    // What is left of an attempt in an earlier life.
                    None => self.absent(unit),
                }
                false
            }
            Outcome::Started(started) => {
                if !watched.is_ours(&started) {
                    let unit = unit.clone();
                    self.release(&unit);
                    self.events.push_back(BackendEvent::Replaced { unit });
                    return false;
                }
                watched.phase = Phase::Running;
                self.in_flight -= usize::from(starting);
                self.events.push_back(BackendEvent::Started { unit: unit.clone(), started });
                self.read_back(unit);
                self.start_next();
                true
            }
        }
    }

    /// True if there is something to collect.
    fn step_exit(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        if watched.phase != Phase::Running {
            return true;
        }
        if let Some(status) = watched.state.exit() {
            watched.phase = Phase::Exited;
            self.events.push_back(BackendEvent::Exited { unit: unit.clone(), status });
        } else if watched.state.is_down() {
            self.absent(unit);
            return false;
        }
        true
    }

    fn step_collect(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        let down = watched.state.is_down();
        let failed = watched.state.is_failed();
        match watched.collect {
            Collect::Accepted if failed && !watched.reset => {}
            Collect::Accepted if down => return self.down(unit),
            Collect::Accepted | Collect::Asked | Collect::No => return,
            Collect::Wanted => {}
        }
        let Some(bus) = self.link.ready() else { return };
        let name = unit.to_string();
        if watched.collect == Collect::Wanted {
            let group = (SERVICE, "ControlGroup");
            bus.properties(Call::ControlGroup(unit.clone()), &watched.path, "Get", &group);
        }
        watched.collect = Collect::Asked;
        if failed {
            watched.reset = true;
            bus.manager(Call::Reset(unit.clone()), "ResetFailedUnit", &(name,));
        } else {
            bus.manager(Call::Stop(unit.clone()), "StopUnit", &(name, "replace"));
        }
    }

    /// systemd is done with the unit; its cgroup has the last word.
    fn down(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get(unit) else { return };
        let group = watched.state.control_group.as_deref().unwrap_or("");
        match self.cgroups.is_empty(unit, group) {
            Ok(true) => self.emptied(unit),
            Ok(false) => tracing::debug!(%unit, group, "waiting for its cgroup to become empty"),
            Err(e) => {
                tracing::error!(%unit, group, error = %e,
                    "cannot see whether the cgroup is empty, taking systemd's word for it");
                self.emptied(unit);
            }
        }
    }

    /// No process is left.
    pub(super) fn emptied(&mut self, unit: &UnitName) {
        self.release(unit);
        self.events.push_back(BackendEvent::Empty { unit: unit.clone() });
    }

    /// systemd does not have the unit. It keeps units with processes, so none is left.
    pub(super) fn absent(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        match (watched.phase, watched.collect) {
            (Phase::Queued, _) => {}
            // The call was lost on its way.
            (Phase::Starting, _) => self.start_again(unit),
            (Phase::Finding, _) if watched.start.is_some() => self.start_again(unit),
            (Phase::Finding | Phase::Running, _) => {
                self.release(unit);
                self.events.push_back(BackendEvent::Absent { unit: unit.clone() });
            }
            (Phase::Exited, Collect::No) => self.release(unit),
            (Phase::Exited, Collect::Accepted | Collect::Asked | Collect::Wanted) => {
                self.emptied(unit);
            }
        }
    }

    /// The program was not executed. A second start is safe: if the first got through after
    /// all, the name is taken.
    fn start_again(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        if watched.retries >= START_RETRIES_MAX {
            let message = "systemd accepts the unit, but does not start it".to_string();
            return self.failed(unit, Errno::ECANCELED, message);
        }
        tracing::info!(%unit, "systemd lost the start of the unit, starting it again");
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        watched.phase = Phase::Queued;
        watched.retries += 1;
        watched.accepted = false;
        self.queue.push_front(unit.clone());
        self.start_next();
    }

    /// A call was answered.
    pub(super) fn reply(&mut self, call: Call, reply: Result<Message, CallError>) {
        tracing::trace!(?call, ok = reply.is_ok(), "reply");
        match (call, reply) {
            (Call::AddMatch { rule }, Err(e)) => self.refused(&rule, &e),
            (Call::ControlGroup(unit), Ok(message)) => {
                let body = message.body();
                if let Some(watched) = self.units.get_mut(&unit)
                    && let Ok(Variant::Str(group)) = body.deserialize()
                {
                    watched.state.control_group = Some(group.to_string());
                }
            }
            (Call::List, reply) => self.listed(reply),
            (Call::ReadBack { unit, key, expected }, reply) => {
                compare(&unit, &key, &expected, reply);
            }
            (Call::Start(unit), Ok(_)) => {
                if let Some(watched) = self.units.get_mut(&unit) {
                    watched.accepted = true;
                    // What came before was about an earlier unit of this name.
                    watched.state = State::default();
                }
            }
            (Call::Start(unit), Err(e)) => self.start_refused(&unit, &e),
            (Call::Stop(unit) | Call::Reset(unit), reply) => self.stop_answered(&unit, reply),
            (Call::Service(unit), Ok(message)) => self.properties(&unit, SERVICE, &message),
            (Call::Unit(unit), Ok(message)) => {
                if let Some(watched) = self.units.get_mut(&unit) {
                    watched.seen = true;
                }
                self.properties(&unit, UNIT, &message);
            }
            (Call::Service(unit) | Call::Unit(unit), Err(e)) if e.is_no_unit() => {
                self.absent(&unit);
            }
            // The process, or the whole unit, is gone already: what the signal was for.
            (Call::Kill(unit), Err(error)) => tracing::debug!(%unit, %error, "signal not sent"),
            // Asked again on a connection that systemd still knows.
            (Call::Subscribe | Call::Version, _) => {}
            (call, Err(error)) => tracing::warn!(?call, %error, "call failed"),
            (Call::AddMatch { .. } | Call::Kill(_), Ok(_)) => {}
        }
    }

    fn properties(&mut self, unit: &UnitName, interface: &str, message: &Message) {
        match message.body().deserialize::<HashMap<&str, Variant<'_>>>() {
            Ok(properties) => self.changed(unit, interface, &properties),
            Err(e) => tracing::warn!(%unit, interface, error = %e, "cannot read properties"),
        }
    }

    fn start_refused(&mut self, unit: &UnitName, error: &CallError) {
        // Unknown whether it got through: found out when systemd is back.
        if error.is_absence() {
            return;
        }
        let Some(watched) = self.units.get_mut(unit) else { return };
        if watched.phase != Phase::Starting {
            return;
        }
        if error.name != "org.freedesktop.systemd1.UnitExists" {
            return self.failed(unit, start_errno(error), error.text.clone());
        }
        if watched.retries > 0 {
            watched.phase = Phase::Finding;
            self.in_flight -= 1;
            self.look(unit);
            self.start_next();
        } else {
            self.release(unit);
            self.events.push_back(BackendEvent::Exists { unit: unit.clone() });
        }
    }

    fn stop_answered(&mut self, unit: &UnitName, reply: Result<Message, CallError>) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        match reply {
            Ok(_) => {
                watched.collect = Collect::Accepted;
                self.step(unit);
            }
            Err(e) if e.is_no_unit() => self.absent(unit),
            Err(e) if e.is_absence() => {}
            Err(error) => tracing::error!(%unit, %error, "systemd does not stop the unit"),
        }
    }

    /// systemd ignores some properties without a word; say so.
    fn read_back(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        let (Some(start), Some(bus)) = (watched.start.take(), self.link.ready()) else { return };
        for property in start.1.read_back {
            let Ok(expected) = OwnedVariant::try_from(property.value) else { continue };
            let key = property.name.clone();
            let call = Call::ReadBack { unit: unit.clone(), key, expected };
            bus.properties(call, &watched.path, "Get", &(SERVICE, property.name));
        }
    }
}

fn compare(unit: &UnitName, key: &str, expected: &OwnedVariant, reply: Result<Message, CallError>) {
    match reply {
        Ok(message) => match message.body().deserialize::<Variant<'_>>() {
            Ok(value) if value == **expected => {}
            Ok(value) => {
                tracing::warn!(%unit, property = key, ?expected, found = ?value,
                    "systemd did not take over a unit property");
            }
            Err(error) => tracing::warn!(%unit, property = key, %error, "cannot read it back"),
        },
        // A unit that is gone already had no use for it.
        Err(error) => tracing::debug!(%unit, property = key, %error, "cannot read it back"),
    }
}

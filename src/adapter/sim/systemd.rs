//! The `systemd --user` of one rank, and the bus and the kernel around it, as a
//! [`Tracker`](crate::supervisor::tracker::Tracker) meets them.
//!
//! It does nothing on its own: the world hands in what clients ask ([`SimSystemd::handle_ask`]), what
//! becomes of processes (`forked`, `executed`, `exec_failed`, `exited`, `emptied`, `alarm`) and
//! what befalls systemd itself (`leave`, `back`, `reload`, `bus_restart`, `reboot`). After each
//! of these it takes what is to be delivered ([`SimSystemd::take_news`], in order for each
//! connection) and what is to be done to processes ([`SimSystemd::take_acts`]), and decides when.
//!
//! What it does as systemd does, because something depends on it:
//!
//! - A unit that is inactive, and one that failed and may be forgotten, vanishes as soon as its
//!   cgroup is empty. `RemainAfterExit` keeps one that exited with success `active`; one that
//!   failed stays until it is reset. `StartTransientUnit` of a name that is taken is refused.
//! - SIGTERM is a success, like SIGHUP, SIGINT and SIGPIPE.
//! - When the main process fails, or the unit is stopped, what is left in the cgroup gets SIGTERM
//!   and, after the stop timeout, SIGKILL; until it is empty the unit is `deactivating`. A
//!   multi-user unit (`KillMode=process`) goes down with processes left in its cgroup.
//! - The properties of a unit that is not there are those of an empty one, not an error.
//! - A connection gets signals that match its rules, and only while it is subscribed.
//!   Subscriptions end with systemd's process, rules with the bus's.
//! - What happens to processes while systemd is away, it learns when it is back.

mod unit;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::port::supervisor::UnitSpec;
use crate::proto::{UnitName, WaitStatus};
use crate::supervisor::tracker::{Active, Answer, Ask, Call, Changes, News, Refusal};

use unit::Unit;

/// What the world is to do to processes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Act {
    /// Call [`SimSystemd::handle_alarm`] with this number after this time.
    Alarm {
        /// Which unit.
        unit: UnitName,
        /// Of the alarm.
        number: u64,
        /// How long to wait.
        after: Duration,
    },
    /// Call [`SimSystemd::handle_pause_over`] with these after a while.
    Later {
        /// Who asked for it.
        connection: u64,
        /// Of the call.
        number: u64,
    },
    /// There is a job to start it: call [`SimSystemd::handle_forked`], or
    /// [`SimSystemd::lose_job`], when its turn comes.
    Run(UnitName),
    /// Deliver a signal.
    Signal {
        /// To which unit.
        unit: UnitName,
        /// Signal number.
        signal: i32,
        /// To all its processes, instead of the main process alone.
        all: bool,
    },
}

/// What happened to a unit's processes.
#[derive(Clone, Copy, Debug)]
enum Happened {
    Emptied,
    ExecFailed(i32),
    Executed,
    Exited(WaitStatus),
    Ready,
}

/// A client's connection to the bus.
#[derive(Debug, Default)]
struct Connection {
    subscribed: bool,
    watches: BTreeSet<UnitName>,
    watches_all: bool,
    watches_presence: bool,
    watches_reloading: bool,
}

impl Connection {
    fn hears(&self, unit: &UnitName) -> bool {
        self.subscribed && (self.watches_all || self.watches.contains(unit))
    }
}

/// systemd, the bus and the kernel of one rank.
#[derive(Debug, Default)]
pub(super) struct SimSystemd {
    away: bool,
    units: BTreeMap<UnitName, Unit>,
    connections: BTreeMap<u64, Connection>,
    /// Who waits for which cgroup.
    waits: BTreeSet<(u64, UnitName)>,
    /// What systemd has not seen because it was away.
    unseen: Vec<(UnitName, Happened)>,
    /// Signals are sent when the world says so.
    slow: bool,
    /// Units about which signals are to be sent.
    changed: BTreeSet<UnitName>,
    executions: BTreeMap<UnitName, u32>,
    /// Calls about units that are yet to be refused.
    refusals: u32,
    news: Vec<(u64, News)>,
    acts: Vec<Act>,
    /// The last number given: to connections, invocations, main processes and alarms.
    number: u64,
}

impl SimSystemd {
    /// One whose answers overtake its signals: these are sent by [`SimSystemd::send_signals`], as the
    /// real one sends them when it has nothing better to do.
    pub(super) fn slow() -> Self {
        Self { slow: true, ..Self::default() }
    }

    /// A new connection to the bus; `None`: there is no systemd on it.
    pub(super) fn connect(&mut self) -> Option<u64> {
        if self.away {
            return None;
        }
        let number = self.next_number();
        self.connections.insert(number, Connection::default());
        Some(number)
    }

    /// The client has hung up, or is dead.
    pub(super) fn disconnect(&mut self, connection: u64) {
        self.connections.remove(&connection);
        self.waits.retain(|(waits, _)| *waits != connection);
        self.news.retain(|(to, _)| *to != connection);
    }

    /// What is to be delivered, and to whom. [`News::Emptied`] does not come by way of the bus:
    /// it reaches its client even if the connection on which it was asked for is gone.
    pub(super) fn take_news(&mut self) -> Vec<(u64, News)> {
        std::mem::take(&mut self.news)
    }

    /// What is to be done.
    pub(super) fn take_acts(&mut self) -> Vec<Act> {
        std::mem::take(&mut self.acts)
    }

    /// The answer to a call whose answer is lost with systemd: delivered after
    /// [`News::ManagerAway`].
    pub(super) fn no_reply(number: u64) -> News {
        News::Answer { number, answer: refuse(Refusal::NO_REPLY) }
    }

    /// A call arrives on a connection; one to the kernel even if that is gone by now. `spec`: of
    /// the unit that [`Call::Start`] is about. Nothing comes of [`Call::ReadBack`], nor of
    /// [`Call::Guard`]: no process leaves its unit here. And
    /// [`Call::Reconnect`] is for the world: `disconnect` and `connect`.
    pub(super) fn handle_ask(&mut self, connection: u64, ask: &Ask, spec: Option<&UnitSpec>) {
        let number = ask.number;
        match &ask.call {
            Call::IsEmpty { unit, group } => return self.ask_kernel(connection, unit, group),
            Call::Later(_) => return self.acts.push(Act::Later { connection, number }),
            Call::Guard { .. } | Call::ReadBack(_) | Call::Reconnect => return,
            Call::Unwatch(unit) => self.waits.retain(|wait| *wait != (connection, unit.clone())),
            _ => {}
        }
        let Some(client) = self.connections.get_mut(&connection) else { return };
        match &ask.call {
            Call::Unwatch(unit) => {
                client.watches.remove(unit);
                return;
            }
            Call::Watch(unit) => {
                client.watches.insert(unit.clone());
            }
            Call::WatchAll => client.watches_all = true,
            Call::WatchPresence => client.watches_presence = true,
            Call::WatchReloading => client.watches_reloading = true,
            _ if self.away => {
                let answer = refuse(Refusal::NO_OWNER);
                return self.tell(connection, News::Answer { number, answer });
            }
            Call::Subscribe => client.subscribed = true,
            call => return self.ask_systemd(connection, number, call, spec),
        }
        self.tell(connection, News::Answer { number, answer: Ok(Answer::Done) });
    }

    /// The pause that a client wanted is over.
    pub(super) fn handle_pause_over(&mut self, connection: u64, number: u64) {
        if self.connections.contains_key(&connection) {
            self.tell(connection, News::Answer { number, answer: Ok(Answer::Done) });
        }
    }

    /// Of the calls to look at units, to stop or to reset them, it refuses the next.
    pub(super) fn refuse_one(&mut self) {
        self.refusals += 1;
    }

    fn ask_kernel(&mut self, connection: u64, unit: &UnitName, group: &str) {
        let populated = self.units.get(unit).is_some_and(Unit::lives);
        if populated && !group.is_empty() {
            self.waits.insert((connection, unit.clone()));
        } else {
            self.tell(connection, News::Emptied { unit: unit.clone() });
        }
    }

    /// The answer comes before what it brings about.
    fn ask_systemd(&mut self, connection: u64, number: u64, call: &Call, spec: Option<&UnitSpec>) {
        let may_refuse = matches!(
            call,
            Call::ControlGroup(_)
                | Call::Main { .. }
                | Call::Reset(_)
                | Call::Service(_)
                | Call::Stop(_)
                | Call::Unit(_)
        );
        let answer = match self.refusals {
            1.. if may_refuse => {
                self.refusals -= 1;
                refuse("org.freedesktop.DBus.Error.NoMemory")
            }
            _ => self.answer(call, spec),
        };
        let accepted = answer.is_ok();
        self.tell(connection, News::Answer { number, answer });
        if !accepted {
            return;
        }
        match (call, spec) {
            (Call::Kill { unit, signal, all }, _) => {
                let (unit, signal, all) = (unit.clone(), *signal, *all);
                self.acts.push(Act::Signal { unit, signal, all });
            }
            (Call::Reset(unit), _) => self.reset(unit),
            (Call::Start(_), Some(spec)) => self.start(spec),
            (Call::Stop(unit), _) => self.stop(unit),
            _ => {}
        }
    }

    fn answer(&self, call: &Call, spec: Option<&UnitSpec>) -> Result<Answer, Refusal> {
        let known = call.unit().and_then(|unit| self.units.get(unit));
        match call {
            Call::ControlGroup(unit) => {
                let group = known.map_or(String::new(), |known| known.control_group(unit));
                Ok(Answer::ControlGroup(group))
            }
            Call::List => Ok(Answer::Listed(self.units.keys().map(ToString::to_string).collect())),
            Call::Main { unit, .. } | Call::Service(unit) | Call::Unit(unit) => {
                let all = known.map_or_else(stub, |known| known.properties(unit));
                let [of_service, of_unit] = by_interface(&all);
                let is_unit = matches!(call, Call::Unit(_));
                Ok(Answer::Properties(if is_unit { of_unit } else { of_service }))
            }
            Call::Start(_) if known.is_some() => refuse(Refusal::UNIT_EXISTS),
            Call::Start(_) if spec.is_none() => refuse("org.freedesktop.DBus.Error.InvalidArgs"),
            Call::Kill { .. } | Call::Reset(_) | Call::Stop(_) if known.is_none() => {
                refuse(Refusal::NO_SUCH_UNIT)
            }
            Call::Kill { all, .. } if !known.is_some_and(|known| known.can_get_signal(*all)) => {
                refuse("org.freedesktop.systemd1.NoSuchProcess")
            }
            _ => Ok(Answer::Done),
        }
    }

    /// systemd leaves the bus, to be executed again or because it has died.
    pub(super) fn leave(&mut self) {
        if self.away {
            return;
        }
        self.tell_reloading(true);
        self.changed.clear();
        self.away = true;
        self.connections.values_mut().for_each(|client| client.subscribed = false);
        self.tell_presence(&News::ManagerAway);
    }

    /// systemd is back, and sees what it has missed. Nobody is subscribed.
    pub(super) fn come_back(&mut self) {
        if !self.away {
            return;
        }
        self.away = false;
        for (unit, happened) in std::mem::take(&mut self.unseen) {
            self.see(&unit, happened);
        }
        self.tell_presence(&News::ManagerBack);
    }

    /// systemd is there.
    pub(super) fn is_present(&self) -> bool {
        !self.away
    }

    /// systemd reads its configuration again. Meanwhile its units look as if they had ended.
    pub(super) fn reload(&mut self) {
        if self.away {
            return;
        }
        self.tell_reloading(true);
        for unit in self.units.keys().cloned().collect::<Vec<_>>() {
            self.tell_changed(&unit, &Changes { digest: None, control_group: None, ..stub() });
        }
        self.tell_reloading(false);
    }

    /// The bus ends all connections, and comes up again: these are lost.
    pub(super) fn restart_bus(&mut self) -> Vec<u64> {
        let lost = std::mem::take(&mut self.connections).into_keys().collect();
        self.news.retain(|(_, news)| matches!(news, News::Emptied { .. }));
        lost
    }

    /// The node is rebooted: nothing of it is left but what it has counted.
    pub(super) fn reboot(&mut self) {
        let executions = std::mem::take(&mut self.executions);
        *self = Self { slow: self.slow, executions, number: self.number, ..Self::default() };
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn tell(&mut self, connection: u64, news: News) {
        self.news.push((connection, news));
    }

    fn tell_presence(&mut self, news: &News) {
        let clients = self.connections.iter().filter(|(_, client)| client.watches_presence);
        self.news.extend(clients.map(|(number, _)| (*number, news.clone())));
    }

    fn tell_reloading(&mut self, begins: bool) {
        let clients = self.connections.iter();
        let clients = clients.filter(|(_, client)| client.watches_reloading && client.subscribed);
        self.news.extend(clients.map(|(number, _)| (*number, News::Reloading(begins))));
    }

    /// A change is two signals, the service's first.
    fn tell_changed(&mut self, unit: &UnitName, changes: &Changes) {
        let [of_service, of_unit] = by_interface(changes);
        for (number, _) in self.connections.iter().filter(|(_, client)| client.hears(unit)) {
            for (changes, whole) in [(&of_service, false), (&of_unit, true)] {
                let changes = changes.clone();
                self.news.push((*number, News::Changed { unit: unit.clone(), changes, whole }));
            }
        }
    }
}

fn refuse(name: &str) -> Result<Answer, Refusal> {
    Err(Refusal { name: name.to_string(), text: name.to_string() })
}

/// The properties of the service interface, and those of the unit interface.
fn by_interface(all: &Changes) -> [Changes; 2] {
    let Changes { active, was_active, job, invocation_id, .. } = all.clone();
    let of_unit = Changes { active, was_active, job, invocation_id, ..Changes::default() };
    let of_service =
        Changes { active: None, was_active: None, job: None, invocation_id: None, ..all.clone() };
    [of_service, of_unit]
}

/// The properties of a unit that is not there.
fn stub() -> Changes {
    Changes {
        active: Some(Active::Inactive),
        was_active: Some(false),
        job: Some(false),
        invocation_id: Some(String::new()),
        main_pid: Some(0),
        main_code: Some(0),
        main_status: Some(0),
        result: Some("success".to_string()),
        digest: Some(String::new()),
        control_group: Some(String::new()),
    }
}

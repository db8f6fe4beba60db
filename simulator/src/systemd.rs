//! A model of the `systemd --user` of one rank, with its bus and the kernel, as a
//! [`Tracker`](job_exec_rs::supervisor::tracker::Tracker) sees them.
//!
//! It does nothing on its own. The world tells it what clients ask ([`SimSystemd::handle_ask`]),
//! what happens to processes (the other `handle_*` methods), and what happens to systemd itself
//! (`leave`, `come_back`, `reload`, `restart_bus`, `end`, `reboot`). After each of these calls the world
//! takes the news for clients ([`SimSystemd::take_news`], in order for each connection) and the
//! acts ([`SimSystemd::take_acts`]), and decides when they take place.
//!
//! It does the following as systemd does, because the tracker depends on it:
//!
//! - An inactive unit vanishes as soon as its cgroup is empty, and so does a failed unit that may
//!   be forgotten. Other failed units stay until they are reset. With `RemainAfterExit` a unit that
//!   exited with success stays `active`, but not under the IMP, which says that it is stopping.
//!   `StartTransientUnit` is refused if the name is taken.
//! - An end by SIGTERM, SIGHUP, SIGINT or SIGPIPE is a success.
//! - When the main process fails, or the unit is stopped, the processes in the cgroup get SIGTERM
//!   and, after the stop timeout, SIGKILL. The unit is `deactivating` until the cgroup is empty. A
//!   multi-user unit (`KillMode=process`) goes down even if its cgroup has processes.
//! - A question for the properties of a unit that does not exist is answered with those of an empty
//!   unit, not with an error.
//! - A connection gets signals that match its rules, and only while it is subscribed. Subscriptions
//!   end with the process of systemd, match rules with that of the bus.
//! - A slice stays until it is stopped, and is stopped with the unit in it.
//! - systemd learns what happened to processes while it was away when it is back.

mod slices;
mod unit;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use job_exec_rs::port::supervisor::{ManagerId, UnitSpec};
use job_exec_rs::proto::{UnitName, WaitStatus};
use job_exec_rs::supervisor::tracker::{Active, Ask, Call, CallAnswer, Changes, News, Refusal};
use slices::{Slice, slice_of};
use unit::Unit;

pub(crate) use slices::Slices;

/// Something that systemd does later: the world decides when.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Act {
    /// Call [`SimSystemd::handle_alarm`] with this number after this time.
    Alarm {
        /// Which unit.
        unit: UnitName,
        /// The number of the alarm.
        number: u64,
        /// How long to wait.
        after: Duration,
    },
    /// Call [`SimSystemd::handle_pause_over`] with these after a while.
    Later {
        /// The connection that asked for it.
        connection: u64,
        /// The number of the call.
        number: u64,
    },
    /// The start job of a unit is queued. When its turn comes, call [`SimSystemd::handle_forked`]
    /// or [`SimSystemd::lose_job`].
    Run(UnitName),
    /// Deliver a signal.
    Signal {
        /// To which unit.
        unit: UnitName,
        /// Signal number.
        signal: i32,
        /// Whether all its processes get the signal, or only the main process.
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
    /// How many match rules it has.
    fn rules(&self) -> usize {
        let others = [self.watches_all, self.watches_presence, self.watches_reloading];
        self.watches.len() + others.iter().filter(|has| **has).count()
    }

    fn hears(&self, unit: &UnitName) -> bool {
        self.subscribed && (self.watches_all || self.watches.contains(unit))
    }
}

/// systemd, the bus and the kernel of one rank.
#[derive(Debug, Default)]
pub(super) struct SimSystemd {
    away: bool,
    /// When it began: a number that no other one of this node has.
    began: u64,
    units: BTreeMap<UnitName, Unit>,
    slices: Slices,
    connections: BTreeMap<u64, Connection>,
    /// Connections that wait until a unit's cgroup is empty.
    waits: BTreeSet<(u64, UnitName)>,
    /// What happened to processes while systemd was away. It sees these when it is back.
    unseen: Vec<(UnitName, Happened)>,
    /// Signals are sent only when the world calls [`SimSystemd::send_signals`].
    slow: bool,
    /// Units that have changed since the last signals about them.
    changed: BTreeSet<UnitName>,
    executions: BTreeMap<UnitName, u32>,
    /// How many of the next calls about units are refused.
    refusals: u32,
    /// How many match rules the bus grants a connection.
    rules_max: Option<usize>,
    /// Of how many calls the bus passes one on.
    passes_one_of: Option<u64>,
    news: Vec<(u64, News)>,
    acts: Vec<Act>,
    /// The last number that was given to a connection, invocation, main process or alarm.
    number: u64,
}

impl SimSystemd {
    /// A systemd whose answers overtake its signals. The real one sends signals when it has nothing
    /// else to do. This one sends them in [`SimSystemd::send_signals`].
    pub(super) fn slow() -> Self {
        Self { slow: true, ..Self::default() }
    }

    /// Makes a new connection to the bus. `None` means that systemd is not on the bus.
    pub(super) fn connect(&mut self) -> Option<u64> {
        if self.away {
            return None;
        }
        let number = self.next_number();
        self.connections.insert(number, Connection::default());
        Some(number)
    }

    /// Ends a connection, because the client has closed it or is dead.
    pub(super) fn disconnect(&mut self, connection: u64) {
        self.connections.remove(&connection);
        self.waits.retain(|(waits, _)| *waits != connection);
        self.news.retain(|(to, _)| *to != connection);
    }

    /// Takes the news, each with the connection that it is for. [`News::Emptied`] comes from the
    /// kernel, not over the bus. So its client gets it even if the connection is gone.
    pub(super) fn take_news(&mut self) -> Vec<(u64, News)> {
        self.count_processes();
        std::mem::take(&mut self.news)
    }

    /// Takes the acts.
    pub(super) fn take_acts(&mut self) -> Vec<Act> {
        std::mem::take(&mut self.acts)
    }

    /// The answer to a call that systemd did not answer before it left. It is delivered after
    /// [`News::ManagerAway`].
    pub(super) fn no_reply(number: u64) -> News {
        News::Answer { number, answer: refuse(Refusal::NO_REPLY) }
    }

    /// Handles a call that arrives on a connection. A call to the kernel arrives even if the
    /// connection is gone. `spec` belongs to the unit of a [`Call::Start`]. [`Call::ReadBack`] and
    /// [`Call::Guard`] have no effect, because no process leaves its unit here. The world itself
    /// handles [`Call::Reconnect`], with `disconnect` and `connect`.
    pub(super) fn handle_ask(&mut self, connection: u64, ask: &Ask, spec: Option<&UnitSpec>) {
        let number = ask.number;
        match &ask.call {
            Call::IsEmpty { unit, group, .. } => return self.ask_kernel(connection, unit, group),
            Call::SeenGroup(unit) => {
                let main = self.units.get(unit).filter(|known| known.has_main());
                let group = main.map_or(String::new(), |known| known.control_group(unit));
                let answer = Ok(CallAnswer::ControlGroup(group));
                return self.tell(connection, News::Answer { number, answer });
            }
            Call::Later(_) | Call::LaterList | Call::LaterSlice(_) | Call::LaterStarts => {
                return self.acts.push(Act::Later { connection, number });
            }
            Call::Guard { .. } | Call::Patience | Call::ReadBack(_) | Call::Reconnect => return,
            Call::Unwatch(unit) => self.waits.retain(|wait| *wait != (connection, unit.clone())),
            _ => {}
        }
        let Some(client) = self.connections.get_mut(&connection) else { return };
        match &ask.call {
            Call::Unwatch(unit) => {
                client.watches.remove(unit);
                return;
            }
            Call::WatchAll => client.watches.clear(),
            _ => {}
        }
        let is_full = match &ask.call {
            Call::Watch(_) | Call::WatchAll | Call::WatchPresence | Call::WatchReloading => {
                self.rules_max.is_some_and(|max| client.rules() >= max)
            }
            _ => self.passes_one_of.is_some_and(|calls| !by_lot(number).is_multiple_of(calls)),
        };
        if is_full {
            let answer = refuse(Refusal::QUOTA);
            return self.tell(connection, News::Answer { number, answer });
        }
        match &ask.call {
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
        self.tell(connection, News::Answer { number, answer: Ok(CallAnswer::Done) });
    }

    /// The pause that a client asked for with [`Call::Later`] is over.
    pub(super) fn handle_pause_over(&mut self, connection: u64, number: u64) {
        if self.connections.contains_key(&connection) {
            self.tell(connection, News::Answer { number, answer: Ok(CallAnswer::Done) });
        }
    }

    /// Refuses the next call that looks at a unit, stops it or resets it.
    pub(super) fn refuse_one(&mut self) {
        self.refusals += 1;
    }

    /// Sets the quotas of the bus: how many match rules a connection can have, and that it passes on one
    /// call of so many.
    pub(super) fn set_quotas(&mut self, rules_max: Option<usize>, passes_one_of: Option<u64>) {
        (self.rules_max, self.passes_one_of) = (rules_max, passes_one_of);
    }

    /// Whether the bus passes on all calls.
    pub(super) fn passes_all(&self) -> bool {
        self.passes_one_of.is_none_or(|calls| calls == 1)
    }

    fn ask_kernel(&mut self, connection: u64, unit: &UnitName, group: &str) {
        let populated = self.units.get(unit).is_some_and(Unit::lives);
        if populated && !group.is_empty() {
            self.waits.insert((connection, unit.clone()));
        } else {
            self.tell(connection, News::Emptied { unit: unit.clone() });
        }
    }

    /// The answer is sent before the news that the call causes.
    fn ask_systemd(&mut self, connection: u64, number: u64, call: &Call, spec: Option<&UnitSpec>) {
        let may_refuse = matches!(
            call,
            Call::ControlGroup(_)
                | Call::Main { .. }
                | Call::Reset(_)
                | Call::Service(_)
                | Call::Stop(_)
                | Call::StopSlice(_)
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
            (Call::StopSlice(slice), _) => self.stop_slice(slice),
            _ => {}
        }
    }

    fn answer(&self, call: &Call, spec: Option<&UnitSpec>) -> Result<CallAnswer, Refusal> {
        let known = call.unit().and_then(|unit| self.units.get(unit));
        match call {
            Call::ControlGroup(unit) => {
                let group = known.map_or(String::new(), |known| known.control_group(unit));
                Ok(CallAnswer::ControlGroup(group))
            }
            Call::List => {
                let slices = self.slices.lock();
                let all = self.units.keys().map(ToString::to_string).chain(slices.keys().cloned());
                Ok(CallAnswer::Listed(all.collect()))
            }
            Call::Manager => Ok(CallAnswer::Manager(ManagerId(self.began))),
            Call::Main { unit, .. } | Call::Service(unit) | Call::Unit(unit) => {
                let all = known.map_or_else(stub, |known| known.properties(unit));
                let [of_service, of_unit] = by_interface(&all);
                let is_unit = matches!(call, Call::Unit(_));
                Ok(CallAnswer::Properties(if is_unit { of_unit } else { of_service }))
            }
            Call::Start(_) if known.is_some() => refuse(Refusal::UNIT_EXISTS),
            Call::Start(_) if spec.is_none() => refuse("org.freedesktop.DBus.Error.InvalidArgs"),
            Call::Kill { .. } | Call::Reset(_) | Call::Stop(_) if known.is_none() => {
                refuse(Refusal::NO_SUCH_UNIT)
            }
            Call::Kill { all, .. } if !known.is_some_and(|known| known.can_get_signal(*all)) => {
                refuse("org.freedesktop.systemd1.NoSuchProcess")
            }
            Call::StopSlice(slice) if !self.slices.lock().contains_key(slice) => {
                refuse(Refusal::NO_SUCH_UNIT)
            }
            Call::Kill { .. }
            | Call::Ping
            | Call::Reset(_)
            | Call::Start(_)
            | Call::Stop(_)
            | Call::StopSlice(_) => Ok(CallAnswer::Done),
            // They have been answered before this.
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
            | Call::Subscribe
            | Call::Unwatch(_)
            | Call::Watch(_)
            | Call::WatchAll
            | Call::WatchPresence
            | Call::WatchReloading => unreachable!("{call:?} is none of systemd's own"),
        }
    }

    /// systemd leaves the bus, because it is executed again or has died.
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

    /// systemd is back, and sees what happened while it was away. No connection is subscribed.
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

    /// Whether systemd is on the bus.
    pub(super) fn is_present(&self) -> bool {
        !self.away
    }

    /// systemd reads its configuration again. Until it has done so, its units look as if they had
    /// ended.
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

    /// The bus restarts, which ends all connections. Returns their numbers.
    pub(super) fn restart_bus(&mut self) -> Vec<u64> {
        let lost = std::mem::take(&mut self.connections).into_keys().collect();
        self.news.retain(|(_, news)| matches!(news, News::Emptied { .. }));
        lost
    }

    /// systemd is killed, and the kernel ends all that it has started, the bus too. Another one comes back.
    /// Returns the numbers of the connections.
    pub(super) fn end(&mut self) -> Vec<u64> {
        let lost = self.restart_bus();
        let waits = std::mem::take(&mut self.waits).into_iter();
        self.news.extend(waits.map(|(waits, unit)| (waits, News::Emptied { unit })));
        let news = std::mem::take(&mut self.news);
        self.reboot();
        (self.away, self.news) = (true, news);
        lost
    }

    /// The node is rebooted. Only the counts of executions and numbers are kept.
    pub(super) fn reboot(&mut self) {
        let executions = std::mem::take(&mut self.executions);
        let began = self.next_number();
        self.slices.lock().clear();
        let slices = self.slices.clone();
        *self = Self {
            slow: self.slow,
            began,
            executions,
            slices,
            number: self.number,
            ..Self::default()
        };
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

    /// Sends the two signals about a change: that of the service interface, then that of the unit
    /// interface.
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

/// A number that follows from this one, and from whose neighbours nothing follows: a call that is made
/// again at each turn is not always the one that is refused.
fn by_lot(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}

fn refuse(name: &str) -> Result<CallAnswer, Refusal> {
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

/// The properties of a unit that does not exist.
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
        userid: None,
        size: None,
        control_group: Some(String::new()),
    }
}

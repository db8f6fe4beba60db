//! The link to systemd: lost, found again, and what is asked then.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::task::JoinHandle;
use zbus::message::Message;
use zbus::{OwnedObjectPath, Variant};

use crate::proto::UnitName;

use super::bus::{Bus, CallError, Incoming, MANAGER, MANAGER_PATH, PROPERTIES, SYSTEMD};
use super::call::Call;
use super::units::Phase;
use super::{Systemd, SystemdError};

/// Wait before the second attempt to connect; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The signal that tells about a unit; sent by the unit's own object.
const CHANGED: &str = "interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'";

/// An attempt to connect.
type Connecting = JoinHandle<Result<Bus, SystemdError>>;

/// The link to systemd.
#[derive(Debug)]
pub(super) enum Link {
    /// No connection.
    Down {
        /// An attempt to connect, once begun.
        connecting: Option<Connecting>,
    },
    /// Connected to the bus.
    Up {
        /// The connection.
        bus: Box<Bus>,
        /// What systemd is up to.
        manager: Manager,
    },
}

/// What systemd is up to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Manager {
    /// Nobody has its name: it is being re-executed, or has died.
    Away,
    /// Asked which units there are. Signals are applied, but nothing is started or stopped.
    Listing,
    /// All is known.
    Ready,
    /// It reads its configuration again, and takes its units apart for that.
    Reloading,
}

/// What a [`Link`] has to say.
#[derive(Debug)]
pub(super) enum News {
    /// An attempt to connect has ended.
    Connected(Result<Bus, SystemdError>),
    /// Something came in.
    Incoming(Incoming),
}

/// `ListUnitsByPatterns`: name, description, load, active and sub state, followed unit, path,
/// job id, type and path.
type Listed =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

impl Link {
    /// The bus, if units may be started and stopped.
    pub(super) fn ready(&mut self) -> Option<&mut Bus> {
        match self {
            Link::Up { bus, manager: Manager::Ready } => Some(bus),
            Link::Down { .. } | Link::Up { .. } => None,
        }
    }

    /// The bus, if there is one.
    pub(super) fn bus(&mut self) -> Option<&mut Bus> {
        match self {
            Link::Up { bus, .. } => Some(bus),
            Link::Down { .. } => None,
        }
    }

    /// May be dropped and called again: an attempt to connect goes on in a task of its own.
    pub(super) async fn next(&mut self, address: &str, attempts: u32) -> News {
        match self {
            Link::Up { bus, .. } => News::Incoming(bus.incoming().await),
            Link::Down { connecting } => {
                let task = connecting.get_or_insert_with(|| connect(address, attempts));
                match task.await {
                    Ok(result) => News::Connected(result),
                    // Only at the end of the runtime, together with this future.
                    Err(_) => std::future::pending().await,
                }
            }
        }
    }

    fn set(&mut self, next: Manager) {
        if let Link::Up { manager, .. } = self {
            *manager = next;
        }
    }
}

fn connect(address: &str, attempts: u32) -> Connecting {
    let address = address.to_string();
    let wait = match attempts {
        0 => Duration::ZERO,
        n => BACKOFF_MIN.saturating_mul(1 << n.min(16)).min(BACKOFF_MAX),
    };
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        Bus::connect(&address).await
    })
}

impl Systemd {
    /// Something happened on the link.
    pub(super) fn news(&mut self, news: News) {
        match news {
            News::Connected(Ok(bus)) => {
                tracing::info!(address = self.address, "connected to the user bus again");
                self.connected(bus);
            }
            News::Connected(Err(e)) => {
                self.link = Link::Down { connecting: None };
                self.attempts = self.attempts.saturating_add(1);
                // Once is enough: the state of the units is unknown until it succeeds.
                if self.attempts == 1 {
                    tracing::warn!(error = %e, "cannot connect to systemd, trying on");
                }
            }
            News::Incoming(Incoming::Closed(why)) => {
                tracing::warn!(address = self.address, why, "lost the user bus");
                self.link = Link::Down { connecting: None };
            }
            News::Incoming(Incoming::Reply(call, reply)) => self.reply(call, reply),
            News::Incoming(Incoming::Signal(signal)) => {
                if let Err(e) = self.dispatch(&signal) {
                    tracing::warn!(%signal, error = %e, "cannot read a signal");
                }
            }
        }
    }

    /// A new connection knows nothing of us.
    pub(super) fn connected(&mut self, bus: Bus) {
        self.link = Link::Up { bus: Box::new(bus), manager: Manager::Listing };
        let Some(bus) = self.link.bus() else { return };
        bus.add_match(
            "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',\
             member='NameOwnerChanged',arg0='org.freedesktop.systemd1'",
        );
        bus.add_match(&format!(
            "type='signal',sender='{SYSTEMD}',path='{MANAGER_PATH}',interface='{MANAGER}',\
             member='Reloading'"
        ));
        for path in self.paths.keys() {
            bus.add_match(&unit_rule(path));
        }
        self.list();
    }

    /// Ask which units there are. Subscribed first, so that what changes after the answer is
    /// signalled.
    fn list(&mut self) {
        self.link.set(Manager::Listing);
        // Slices: zbus takes an array of fixed length for a struct.
        let states: &[&str] = &[];
        let patterns: &[&str] = &[&self.pattern];
        if let Some(bus) = self.link.bus() {
            bus.manager(Call::Subscribe, "Subscribe", &());
            bus.manager(Call::List, "ListUnitsByPatterns", &(states, patterns));
        }
    }

    pub(super) fn listed(&mut self, reply: Result<Message, CallError>) {
        let listed: Vec<Listed> = match reply.map(|message| message.body().deserialize()) {
            Ok(Ok(listed)) => listed,
            // Asked for again when its name is back on the bus.
            Err(_) if !matches!(self.link, Link::Up { manager: Manager::Listing, .. }) => return,
            Ok(Err(e)) => return self.unlisted(&e.to_string()),
            Err(e) => return self.unlisted(&e.to_string()),
        };
        let mut present = HashSet::new();
        for (name, ..) in &listed {
            match name.parse::<UnitName>() {
                Ok(unit) if self.units.contains_key(&unit) => {
                    present.insert(unit);
                }
                Ok(_) | Err(_) => {
                    tracing::warn!(
                        unit = name,
                        "a unit of this instance and rank without a record, left alone"
                    );
                }
            }
        }
        self.link.set(Manager::Ready);
        self.attempts = 0;
        for unit in self.units.keys().cloned().collect::<Vec<_>>() {
            if present.contains(&unit) {
                self.look(&unit);
            } else {
                self.absent(&unit);
            }
        }
        for (unit, signal, all) in std::mem::take(&mut self.held_signals) {
            self.kill(&unit, signal, all);
        }
        self.start_next();
    }

    /// Without a list nothing is known: try again from the beginning.
    fn unlisted(&mut self, why: &str) {
        tracing::error!(why, "systemd does not list its units, connecting again");
        self.attempts = self.attempts.saturating_add(1);
        self.link = Link::Down { connecting: None };
    }

    fn dispatch(&mut self, signal: &Message) -> zbus::Result<()> {
        let header = signal.header();
        let (Some(path), Some(member)) = (header.path(), header.member()) else { return Ok(()) };
        let body = signal.body();
        match member.as_str() {
            "PropertiesChanged" => {
                let Some(unit) = self.paths.get(path.as_str()).cloned() else { return Ok(()) };
                if matches!(self.link, Link::Up { manager: Manager::Reloading, .. }) {
                    // Units that are taken apart have not ended; all is asked for again.
                    return Ok(());
                }
                let (interface, changed, _): (&str, HashMap<&str, Variant<'_>>, Vec<&str>) =
                    body.deserialize()?;
                self.changed(&unit, interface, &changed);
            }
            "NameOwnerChanged" => {
                let (name, _, owner): (&str, &str, &str) = body.deserialize()?;
                if name == SYSTEMD && owner.is_empty() {
                    tracing::warn!("systemd left the user bus");
                    self.link.set(Manager::Away);
                } else if name == SYSTEMD {
                    tracing::info!("systemd is back on the user bus");
                    self.list();
                }
            }
            "Reloading" => {
                let begins = body.deserialize::<bool>()?;
                tracing::debug!(begins, "systemd reloads");
                if begins {
                    self.link.set(Manager::Reloading);
                } else {
                    self.list();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The bus refused a match rule. Quotas are meant for strangers: one broad rule instead of
    /// many narrow ones fits any.
    pub(super) fn refused(&mut self, rule: &str, error: &CallError) {
        tracing::warn!(rule, %error, "match rule refused, watching all units of the user instead");
        if rule.contains("path_namespace") {
            tracing::error!(
                "units cannot be watched: raise the bus's max_match_rules_per_connection"
            );
            return;
        }
        if let Some(bus) = self.link.bus() {
            bus.add_match(&format!(
                "type='signal',sender='{SYSTEMD}',path_namespace='{MANAGER_PATH}/unit',{CHANGED}"
            ));
            self.list();
        }
    }

    /// Ask for everything about a unit. The unit interface comes last, as in signals.
    pub(super) fn look(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        let Some(bus) = self.link.ready() else { return };
        match watched.phase {
            Phase::Exited | Phase::Finding | Phase::Running | Phase::Starting => {}
            // The name is taken; the start will say so.
            Phase::Queued => return,
        }
        watched.looked();
        let service = Call::Service(unit.clone());
        bus.properties(service, &watched.path, "GetAll", &(super::bus::SERVICE,));
        bus.properties(Call::Unit(unit.clone()), &watched.path, "GetAll", &(super::bus::UNIT,));
    }
}

/// The rule for one unit's signals. Never one for all units: many brokers share a user bus.
pub(super) fn unit_rule(path: &str) -> String {
    debug_assert!(CHANGED.contains(PROPERTIES));
    format!("type='signal',sender='{SYSTEMD}',path='{path}',{CHANGED}")
}

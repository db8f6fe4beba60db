//! Shells as transient units of `systemd --user`: they outlive every broker.
//!
//! The life of a unit on the bus:
//!
//! ```text
//!  AddMatch(path) ─▶ StartTransientUnit ─▶ PropertiesChanged: the program was executed
//!                                          PropertiesChanged: it has exited  (unit remains)
//!  Get(ControlGroup), StopUnit ──────────▶ PropertiesChanged: inactive
//!                    ResetFailedUnit       if it is `failed`
//!  RemoveMatch ◀── cgroup.events: populated 0
//! ```
//!
//! What is believed of a unit is merged from its `PropertiesChanged` signals. Whenever signals
//! may have been missed (at the start, on a new connection, after systemd was re-executed or
//! reloaded) it is asked for again: subscribe, then list, then apply. Until the answer nothing
//! is concluded, and no unit is started or stopped. An unreachable systemd means that nothing
//! is known, never that something has ended.

mod bus;
mod call;
mod cgroup;
mod link;
mod properties;
mod start;
mod state;
mod units;
mod values;

use std::collections::{BTreeMap, HashMap, VecDeque};

use nix::errno::Errno;

use crate::port::supervisor::{Method, Started, UnitSpec};
use crate::proto::{BrokerRank, InstanceId, UnitName};
use crate::supervisor::{Backend, BackendDriver, BackendEvent, OutputPaths};

use bus::Bus;
use cgroup::Cgroups;
use link::Link;
use start::Start;
use units::{Phase, Watched};

/// Starts and signals that wait for an unreachable systemd; more are refused.
const WAITING_MAX: usize = 4096;

/// What a [`Systemd`] needs to know.
#[derive(Clone, Debug)]
pub struct SystemdConfig {
    /// D-Bus address of the user bus, instead of the environment's.
    pub address: Option<String>,
    /// The rank whose units these are.
    pub rank: BrokerRank,
    /// The instance that they belong to.
    pub instance: InstanceId,
    /// `StartTransientUnit` calls that may be unanswered by a running unit at a time.
    pub starts_in_flight_max: usize,
}

/// Why systemd cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemdError {
    /// A bus, but no systemd on it.
    #[error("the user bus at {address} has no systemd on it: {why}")]
    Absent {
        /// Address that was tried.
        address: String,
        /// What the bus said.
        why: String,
    },
    /// No bus there.
    #[error("cannot connect to the user bus at {address}: {source}")]
    Connect {
        /// Address that was tried.
        address: String,
        /// What went wrong.
        source: zbus::Error,
    },
    /// There is a socket, and nobody answers.
    #[error("the user bus at {address} did not answer within {seconds} s")]
    Timeout {
        /// Address that was tried.
        address: String,
        /// How long was waited.
        seconds: u64,
    },
}

/// The units of one rank, by way of the user bus.
#[derive(Debug)]
pub struct Systemd {
    address: String,
    pattern: String,
    starts_in_flight_max: usize,
    link: Link,
    /// Attempts to connect and to list since systemd last answered.
    attempts: u32,
    units: BTreeMap<UnitName, Watched>,
    /// By object path, as signals name them.
    paths: HashMap<String, UnitName>,
    /// Units that wait for their turn to be started.
    queue: VecDeque<UnitName>,
    /// Units in [`Phase::Starting`].
    in_flight: usize,
    /// Signals that wait for systemd to be reachable.
    held_signals: Vec<(UnitName, i32, bool)>,
    events: VecDeque<BackendEvent>,
    cgroups: Cgroups,
}

impl Systemd {
    /// Connect to the user bus and make sure that systemd answers on it.
    ///
    /// # Errors
    ///
    /// If it does not, within a few seconds.
    pub async fn open(config: SystemdConfig) -> Result<Self, SystemdError> {
        let address = config.address.unwrap_or_else(user_bus_address);
        let bus = Bus::connect(&address).await?;
        let mut systemd = Self {
            address,
            pattern: UnitName::pattern(config.rank, &config.instance),
            starts_in_flight_max: config.starts_in_flight_max,
            link: Link::Down { connecting: None },
            attempts: 0,
            units: BTreeMap::new(),
            paths: HashMap::new(),
            queue: VecDeque::new(),
            in_flight: 0,
            held_signals: Vec::new(),
            events: VecDeque::new(),
            cgroups: Cgroups::default(),
        };
        systemd.connected(bus);
        Ok(systemd)
    }
}

impl Backend for Systemd {
    fn method(&self) -> Method {
        Method::Systemd
    }

    fn start(&mut self, spec: &UnitSpec, output: &OutputPaths) {
        let unit = &spec.unit;
        let start = match Start::new(spec, output) {
            Ok(start) => start,
            Err(message) => return self.failed(unit, Errno::EINVAL, message),
        };
        if self.link.ready().is_none() && self.queue.len() >= WAITING_MAX {
            let message = format!("systemd is unreachable and {WAITING_MAX} units wait for it");
            return self.failed(unit, Errno::EAGAIN, message);
        }
        self.watch(unit, &spec.digest, Phase::Queued);
        if let Some(watched) = self.units.get_mut(unit) {
            watched.notify = spec.multiuser;
            watched.start = Some(Box::new((spec.clone(), start)));
        }
        self.queue.push_back(unit.clone());
        self.start_next();
    }

    fn find(&mut self, unit: &UnitName, digest: &str, known: Option<&Started>) {
        self.watch(unit, digest, Phase::Finding);
        if let Some(watched) = self.units.get_mut(unit) {
            watched.known = known.cloned();
        }
        // Otherwise the list that is on its way will tell.
        self.look(unit);
    }

    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool) {
        if self.link.ready().is_some() {
            self.kill(unit, signal, all);
        } else if self.held_signals.len() < WAITING_MAX {
            self.held_signals.push((unit.clone(), signal, all));
        } else {
            tracing::warn!(%unit, signal, "signal dropped: systemd is unreachable");
        }
    }

    fn collect(&mut self, unit: &UnitName) {
        match self.units.get_mut(unit) {
            Some(watched) => {
                watched.want_collect();
                self.step(unit);
            }
            // Looked for and not found, or not ours: nothing of it is left.
            None => self.events.push_back(BackendEvent::Empty { unit: unit.clone() }),
        }
    }

    fn forget(&mut self, unit: &UnitName) {
        self.release(unit);
    }
}

impl BackendDriver for Systemd {
    async fn flush(&mut self) {
        if let Link::Up { bus, .. } = &mut self.link {
            bus.flush().await;
        }
    }

    async fn next(&mut self) -> Option<BackendEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        tokio::select! {
            news = self.link.next(&self.address, self.attempts) => self.news(news),
            units = self.cgroups.emptied() => units.iter().for_each(|unit| self.emptied(unit)),
        }
        self.events.pop_front()
    }

    async fn close(&mut self) {
        let down = Link::Down { connecting: None };
        if let Link::Up { bus, .. } = std::mem::replace(&mut self.link, down) {
            bus.close().await;
        }
    }
}

/// The user bus, as sd_bus_open_user(3) finds it; without an environment, where logind puts it.
fn user_bus_address() -> String {
    std::env::var("DBUS_SESSION_BUS_ADDRESS").ok().filter(|a| !a.is_empty()).unwrap_or_else(|| {
        let directory = std::env::var("XDG_RUNTIME_DIR")
            .ok()
            .filter(|d| !d.is_empty())
            .unwrap_or_else(|| format!("/run/user/{}", nix::unistd::getuid()));
        format!("unix:path={directory}/bus")
    })
}

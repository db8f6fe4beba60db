//! Shells as transient units of `systemd --user`. They outlive every broker.
//!
//! The [`Tracker`] decides what is known of the units and what to ask next. This adapter connects
//! it to the world: the bus, the kernel's cgroups, and the time to wait before it connects again or
//! repeats a refused call.

mod address;
mod bus;
mod calls;
mod cgroup;
mod decode;
mod environment;
mod error;
mod execution;
mod left;
mod link;
mod main_process;
mod pause;
mod process_group;
mod program;
mod properties;
mod readback;
mod start;
mod usage;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::errno::Errno;
use tokio::time::Instant;

use crate::port::supervisor::{Limits, ManagerId, Method, Started, UnitSpec};
use crate::proto::{BrokerRank, InstanceId, SliceName, Stage, UnitName, Usage};
use crate::supervisor::cgroup2;
use crate::supervisor::tracker::{Ask, Call, CallAnswer, News, Tracker};
use crate::supervisor::{Backend, BackendDriver, BackendEvent, OutputPaths};

use bus::{Bus, Incoming, Pending};
use cgroup::Cgroups;
use environment::Inherited;
use link::{Connection, Happening};
use main_process::MainProcesses;
use pause::Pauses;
use process_group::Members;
use start::StartCall;

pub(crate) use address::{is_standard, manager_listens};
pub use error::SystemdError;
pub use properties::PropertyError;
pub use usage::counted;

#[doc(hidden)]
pub use decode::decode_properties;

/// How long the end of the module waits for units that are being removed.
const REMOVALS_WAIT: Duration = Duration::from_secs(1);

/// Looks at configured properties before any job has them.
///
/// # Errors
/// The first that no unit can have.
pub fn check_properties(properties: &BTreeMap<String, String>) -> Result<(), PropertyError> {
    properties::parse(properties).map(drop)
}

/// What a [`Systemd`] needs to know.
#[derive(Clone, Debug)]
pub struct SystemdConfig {
    /// D-Bus addresses of the user bus, the first of which that answers is taken. `None`: the
    /// environment's.
    pub address: Option<String>,
    /// The rank whose units these are.
    pub rank: BrokerRank,
    /// The instance that they belong to.
    pub instance: InstanceId,
    /// How much is done at once.
    pub limits: Limits,
    /// How long systemd may leave a call without an answer, before it is looked what became of it.
    pub answer_within: Duration,
    /// Units are to be confined to CPUs.
    pub confines: bool,
}

/// The units of one rank, through the user bus.
#[derive(Debug)]
pub struct Systemd {
    address: String,
    /// Globs for the names of units and of their slices.
    patterns: [String; 2],
    /// systemd's own cgroup.
    control_group: String,
    link: Connection,
    /// How often it was tried to connect, or to list units, since systemd last answered.
    attempts: u32,
    tracker: Tracker,
    /// What units have of the broker.
    inherited: Inherited,
    /// Arguments of `StartTransientUnit` for units that are to be started.
    starts: BTreeMap<UnitName, StartCall>,
    /// Starts that wait until systemd has said which variables it has for all units. It does not say
    /// when these change, so it is asked each time.
    unsent: Vec<Ask>,
    /// Units of which the bus was asked for signals, each by a rule of its own.
    rules: BTreeSet<UnitName>,
    /// Of which kinds of units, multiuser or not, it was asked since the last list whether they have
    /// drop-ins.
    drop_ins_known: BTreeSet<(Stage, bool)>,
    cgroups: Cgroups,
    main_processes: MainProcesses,
    /// Whom a signal is for as well when systemd has sent it to the main process, by the number of
    /// the call.
    signalled: BTreeMap<u64, Members>,
    /// Signals that were asked for. Who is left when one is asked for again is named.
    killed: BTreeSet<(UnitName, i32)>,
    pauses: Pauses,
    answer_within: Duration,
    /// When the tracker has been patient for long enough.
    patience: Option<Instant>,
}

impl Systemd {
    /// Connect to the user bus and make sure that systemd answers on it.
    ///
    /// # Errors
    ///
    /// If systemd does not answer within a few seconds, or cannot confine units and is to.
    pub async fn open(config: SystemdConfig) -> Result<Self, SystemdError> {
        let address = config.address.unwrap_or_else(address::of_user_bus);
        let bus = Bus::connect(&address).await?;
        if config.confines {
            let why = |why| SystemdError::CannotConfine { why };
            cgroup::check_cpuset(bus.control_group()).map_err(why)?;
        }
        let mut systemd = Self {
            address,
            patterns: [
                UnitName::pattern(config.rank, &config.instance),
                SliceName::pattern(config.rank, &config.instance),
            ],
            control_group: String::new(),
            link: Connection::down(),
            attempts: 0,
            tracker: Tracker::new(config.limits, start::exec_failure),
            inherited: Inherited::of_broker(),
            starts: BTreeMap::new(),
            unsent: Vec::new(),
            rules: BTreeSet::new(),
            drop_ins_known: BTreeSet::new(),
            cgroups: Cgroups::default(),
            main_processes: MainProcesses::default(),
            signalled: BTreeMap::new(),
            killed: BTreeSet::new(),
            pauses: Pauses::default(),
            answer_within: config.answer_within,
            patience: None,
        };
        systemd.handle_connected(Box::new(bus));
        Ok(systemd)
    }

    fn handle_connected(&mut self, bus: Box<Bus>) {
        self.control_group = bus.control_group().to_string();
        self.link = Connection::Up(bus);
        self.tracker.handle_connected();
        self.perform();
    }

    /// There is no connection any more. Calls that were not answered never will be.
    fn drop_link(&mut self) {
        self.link = Connection::down();
        self.unsent.clear();
        self.rules.clear();
        self.signalled.clear();
    }

    /// Handle what happened on the link.
    fn handle_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Connected(Ok(bus)) => {
                tracing::info!(address = self.address, "connected to the user bus again");
                self.handle_connected(bus);
            }
            Happening::Connected(Err(e)) => {
                self.link = Connection::down();
                self.attempts = self.attempts.saturating_add(1);
                // Logged once. It changes nothing until an attempt succeeds.
                if self.attempts == 1 {
                    tracing::warn!(error = %e, "cannot connect to systemd, trying again");
                }
            }
            Happening::Incoming(Incoming::Closed(why)) => {
                tracing::warn!(address = self.address, why, "lost the user bus");
                self.drop_link();
                self.tracker.handle_lost();
            }
            Happening::Incoming(Incoming::Reply(Pending::Ask(ask), reply)) => {
                self.signal_group(&ask);
                if ask.call == Call::List {
                    self.drop_ins_known.clear();
                }
                let answer = decode::decode_answer(&ask.call, reply);
                self.hear(News::Answer { number: ask.number, answer });
            }
            Happening::Incoming(Incoming::Reply(Pending::ReadBack(read_back), reply)) => {
                read_back.handle_answer(reply);
            }
            Happening::Incoming(Incoming::Reply(Pending::DropIns(unit, properties), reply)) => {
                let drop_ins = reply.and_then(|message| decode::decode_strings(&message));
                let drop_ins = drop_ins.unwrap_or_default().join(" ");
                if let Some(bus) = self.link.bus().filter(|_| !drop_ins.is_empty()) {
                    calls::compare(bus, &unit, properties, &drop_ins);
                }
            }
            Happening::Incoming(Incoming::Reply(Pending::Check(_), _)) => {}
            Happening::Incoming(Incoming::Reply(Pending::Environment, reply)) => {
                self.handle_environment(reply);
            }
            Happening::Incoming(Incoming::Signal(signal)) => match decode::decode_signal(&signal) {
                Ok(Some(news)) => self.hear(news),
                Ok(None) => {}
                Err(e) => tracing::warn!(%signal, error = %e, "cannot read a signal"),
            },
        }
    }

    fn hear(&mut self, news: News) {
        self.tracker.handle_news(news);
        if self.tracker.is_ready() {
            self.attempts = 0;
        }
        self.perform();
    }
}

impl Backend for Systemd {
    fn method(&self) -> Method {
        self.tracker.method()
    }

    fn manager(&self) -> Option<ManagerId> {
        self.tracker.manager()
    }

    fn start(&mut self, spec: &UnitSpec, output: &OutputPaths) {
        match StartCall::new(spec, output, &self.inherited) {
            Ok(start) => {
                self.starts.insert(spec.unit.clone(), start);
                self.tracker.start(spec, output);
            }
            Err(error) => {
                self.tracker.fail(&spec.unit, Errno::EINVAL as i32, error.to_string());
            }
        }
        self.perform();
        self.prune_start(&spec.unit);
    }

    fn find(&mut self, unit: &UnitName, digest: &str, known: Option<&Started>) {
        self.tracker.find(unit, digest, known);
        self.perform();
    }

    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool) {
        if !self.killed.insert((unit.clone(), signal)) {
            self.name_left(unit, signal);
        }
        self.tracker.signal(unit, signal, all);
        self.perform();
    }

    fn collect(&mut self, unit: &UnitName) {
        self.tracker.collect(unit);
        self.perform();
    }

    fn hold(&mut self, unit: &UnitName) {
        self.tracker.hold(unit);
        self.perform();
    }

    fn forget(&mut self, unit: &UnitName) {
        self.killed.retain(|(killed, _)| killed != unit);
        self.tracker.forget(unit);
        self.perform();
    }

    fn usage(&mut self, spec: &UnitSpec) -> Option<Usage> {
        // Else the slices of the system's manager would be looked at.
        if !spec.measured || self.control_group.is_empty() {
            return None;
        }
        let manager = cgroup2::file(&self.cgroups.mount().ok()?, &self.control_group, "");
        usage::read(&usage::directory(&manager, spec), spec)
    }

    fn drop_usage(&mut self, unit: &UnitName) {
        self.tracker.drop_usage(unit);
        self.perform();
    }

    fn spare(&mut self, unit: &UnitName) {
        self.tracker.spare(unit);
    }
}

impl BackendDriver for Systemd {
    async fn flush(&mut self) {
        if let Some(bus) = self.link.bus() {
            bus.flush().await;
        }
    }

    async fn next(&mut self) -> Option<BackendEvent> {
        if let Some(event) = self.tracker.next_event() {
            return Some(event);
        }
        tokio::select! {
            happening = self.link.next(&self.address, self.attempts) => self.handle_happening(happening),
            units = self.cgroups.wait_emptied() => {
                units.iter().for_each(|unit| self.handle_emptied(unit));
                self.perform();
            }
            (unit, ended) = self.main_processes.wait_ended() => {
                self.handle_main_end(&unit, ended);
                self.perform();
            }
            () = wait_until(self.patience) => {
                self.patience = None;
                self.hear(News::PatienceOver);
            }
            number = self.pauses.wait_ended() => {
                self.hear(News::Answer { number, answer: Ok(CallAnswer::Done) });
            }
        }
        self.tracker.next_event()
    }

    async fn close(&mut self) {
        // systemd refuses to remove a unit for a client that is not there any more: it asks the bus who
        // that is. What takes longer the next life does.
        let removals = async {
            while self.tracker.is_removing() {
                self.flush().await;
                self.next().await;
            }
        };
        let _: Result<(), _> = tokio::time::timeout(REMOVALS_WAIT, removals).await;
        let down = Connection::down();
        if let Connection::Up(bus) = std::mem::replace(&mut self.link, down) {
            bus.close().await;
        }
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

//! One rank: its module while it is loaded, and what outlives the module (disk, systemd and
//! shells).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use job_exec_rs::config::{self, Config};
use job_exec_rs::machine::{Effects, Event, Facts, Node};
use job_exec_rs::port::disk::Disk;
use job_exec_rs::port::supervisor::{
    Limits, ManagerId, Method, Started, SupervisorEvent, UnitSpec,
};
use job_exec_rs::proto::{BrokerRank, InstanceId, UnitName, Usage};
use job_exec_rs::supervisor::tracker::{News, Tracker};
use job_exec_rs::supervisor::{Backend, Core, OutputPaths, PulseWatch};

use super::disk::SimDisk;
use super::held_up::HeldUp;
use super::request::Life;
use super::script::Script;
use super::shell::Shell;
use super::systemd::{SimSystemd, Slices};

/// User id of the instance's owner.
pub(super) const OWNER: u32 = 1;

/// User ids of guests that have jobs.
pub(super) const GUESTS: std::ops::Range<u32> = 2..4;
/// User id of a guest that has no job.
pub(super) const STRANGER: u32 = 4;

/// The real core and tracker of the supervisor, for one life of the module.
pub(super) struct Supervisor {
    pub(super) core: Core,
    pub(super) backend: TrackerBackend,
    pub(super) connection: Option<u64>,
    events: Arc<Mutex<Vec<SupervisorEvent>>>,
}

/// The real tracker, and the specifications of the units that it starts.
pub(super) struct TrackerBackend {
    pub(super) tracker: Tracker,
    pub(super) specs: BTreeMap<UnitName, UnitSpec>,
    /// Signals that were asked for, as the adapter keeps them.
    killed: BTreeSet<(UnitName, i32)>,
    /// What the kernel has counted, as the adapter reads it.
    slices: Slices,
}

impl Supervisor {
    /// Makes a supervisor that is connected to the bus, and recovers the units that have records.
    pub(super) fn new(
        disk: &SimDisk,
        boot: u32,
        rank: BrokerRank,
        connection: u64,
        slices: &Slices,
    ) -> io::Result<Self> {
        let events: Arc<Mutex<Vec<SupervisorEvent>>> = Arc::default();
        let sink = Arc::clone(&events);
        let sink = Box::new(move |event| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        });
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let exec_failure =
            |_: &UnitSpec, _: Option<i32>, _: &str| (libc::EIO, "start failed".to_string());
        let limits = Limits { starts_in_flight: 4, ..Limits::default() };
        let mut supervisor = Self {
            core: Core::new(disk, format!("boot-{boot}"), limits, sink),
            backend: TrackerBackend {
                tracker: Tracker::new(limits, exec_failure),
                specs: BTreeMap::new(),
                killed: BTreeSet::new(),
                slices: slices.clone(),
            },
            connection: Some(connection),
            events,
        };
        supervisor.backend.tracker.handle_connected();
        supervisor.core.recover(rank, &instance(), &mut supervisor.backend)?;
        Ok(supervisor)
    }

    /// Passes the tracker's events on to the core.
    pub(super) fn pass_events(&mut self) {
        while let Some(event) = self.backend.tracker.next_event() {
            self.core.handle_event(event, &mut self.backend);
        }
    }

    /// Takes the events for the node.
    pub(super) fn take_events(&mut self) -> Vec<SupervisorEvent> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Backend for TrackerBackend {
    fn method(&self) -> Method {
        self.tracker.method()
    }

    fn manager(&self) -> Option<ManagerId> {
        self.tracker.manager()
    }

    fn start(&mut self, spec: &UnitSpec, output: &OutputPaths) {
        self.specs.insert(spec.unit.clone(), spec.clone());
        self.tracker.start(spec, output);
    }

    fn find(&mut self, unit: &UnitName, digest: &str, known: Option<&Started>) {
        self.tracker.find(unit, digest, known);
    }

    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool) {
        if !self.killed.insert((unit.clone(), signal))
            && let Some(pid) = self.tracker.main_pid(unit)
        {
            self.tracker.tell_left_over(unit, format!("pid {pid} (user {OWNER}, \"left\")"));
        }
        self.tracker.signal(unit, signal, all);
    }

    fn collect(&mut self, unit: &UnitName) {
        self.tracker.collect(unit);
    }

    fn hold(&mut self, unit: &UnitName) {
        self.tracker.hold(unit);
    }

    fn forget(&mut self, unit: &UnitName) {
        self.specs.remove(unit);
        self.killed.retain(|(killed, _)| killed != unit);
        self.tracker.forget(unit);
    }

    fn usage(&mut self, spec: &UnitSpec) -> Option<Usage> {
        self.slices.usage(spec)
    }

    fn drop_usage(&mut self, unit: &UnitName) {
        self.tracker.drop_usage(unit);
    }

    fn spare(&mut self, unit: &UnitName) {
        self.tracker.spare(unit);
    }
}

/// One rank.
pub(super) struct Rank {
    pub(super) node: Option<Node>,
    pub(super) supervisor: Option<Supervisor>,
    pub(super) effects: Effects,
    /// Counts the lives of the module.
    pub(super) life: u32,
    pub(super) broker_up: bool,
    /// Since when the broker runs.
    pub(super) up_since: f64,
    /// When the broker takes requests of its clients: until then it is only just starting.
    pub(super) online_at: f64,
    /// The broker shuts down, and has unloaded its KVS.
    pub(super) kvs_unloaded: bool,
    /// How many brokers ran here before this one.
    pub(super) brokers: u32,
    pub(super) disk: SimDisk,
    pub(super) systemd: SimSystemd,
    /// Whether systemd is about to leave. What it says until then reaches nobody.
    pub(super) muted: bool,
    /// systemd answers nothing until this time.
    pub(super) hangs_until: f64,
    /// What systemd has said of its units while it answers nothing. It is sent later.
    pub(super) held_news: Vec<(u64, News)>,
    /// Since when its disk has answered nothing, and until when.
    pub(super) disk_hangs: (f64, f64),
    /// What waits for its supervisor meanwhile.
    pub(super) held_up: Vec<HeldUp>,
    /// The module's watch over its supervisor.
    pub(super) pulse: PulseWatch,
    /// How often the node was booted again.
    pub(super) boot: u32,
    /// How many user managers have ended.
    pub(super) managers: u32,
    /// When it was booted.
    pub(super) booted: f64,
    /// All shells that were executed here.
    pub(super) shells: Vec<Shell>,
    /// All prologs and epilogs that were executed here.
    pub(super) scripts: Vec<Script>,
    /// Whether a module ended with facts that a full disk did not take.
    pub(super) facts_lost: bool,
    /// Whether records, and perhaps output files, were lost.
    pub(super) files_lost: bool,
    /// Files that somebody has removed in this life of the module. It can make records again.
    pub(super) swept: BTreeSet<String>,
    /// Its bus refuses calls until then.
    pub(super) bus_is_full_until: f64,
    /// Whether its disk was full at any time.
    pub(super) disk_was_full: bool,
    /// Digests of jobs whose program could not be executed here.
    pub(super) not_executed: BTreeSet<String>,
    /// Digests of jobs of which a script could not be executed here.
    pub(super) scripts_not_executed: BTreeSet<String>,
    /// When its module was loaded.
    pub(super) ready_at: f64,
    /// The broker does nothing until this time.
    pub(super) stalled_until: f64,
    /// Its supervisor does nothing either until this time.
    pub(super) stopped_until: f64,
    /// Events that have reached a stalled broker, each with the life of the module that it is for.
    pub(super) held: Vec<(Life, Event)>,
    /// Its broker was killed, and its parent's has not noticed. The request with which that notices
    /// gets no answer (rfc/0008, 8.5).
    pub(super) unnoticed: bool,
    /// The error of the wall clock, in seconds.
    pub(super) clock: f64,
    /// Its module waits for its last checkpoint.
    pub(super) is_leaving: bool,
    /// Its module is another release than those of most ranks.
    pub(super) is_other_release: bool,
    /// The next module will be another release.
    pub(super) next_is_other_release: bool,
}

impl Rank {
    /// A node with a broker that has no module yet.
    pub(super) fn new(slow_systemd: bool, disk: SimDisk) -> Self {
        Self {
            node: None,
            supervisor: None,
            effects: Effects::default(),
            life: 0,
            broker_up: true,
            up_since: 0.0,
            online_at: 0.0,
            kvs_unloaded: false,
            brokers: 0,
            disk,
            systemd: if slow_systemd { SimSystemd::slow() } else { SimSystemd::default() },
            muted: false,
            hangs_until: f64::NEG_INFINITY,
            held_news: Vec::new(),
            disk_hangs: (f64::NEG_INFINITY, f64::NEG_INFINITY),
            held_up: Vec::new(),
            pulse: PulseWatch::default(),
            boot: 0,
            managers: 0,
            booted: f64::NEG_INFINITY,
            shells: Vec::new(),
            scripts: Vec::new(),
            facts_lost: false,
            files_lost: false,
            swept: BTreeSet::new(),
            bus_is_full_until: 0.0,
            disk_was_full: false,
            not_executed: BTreeSet::new(),
            scripts_not_executed: BTreeSet::new(),
            ready_at: 0.0,
            stalled_until: 0.0,
            stopped_until: 0.0,
            held: Vec::new(),
            unnoticed: false,
            clock: 0.0,
            is_leaving: false,
            is_other_release: false,
            next_is_other_release: false,
        }
    }

    /// The shell that a unit runs now.
    pub(super) fn current_shell(&self, unit: &UnitName) -> Option<usize> {
        let invocation = self.systemd.invocation_id(unit)?;
        self.shells.iter().rposition(|shell| {
            shell.unit == *unit && shell.invocation == invocation && !shell.lost_with_manager
        })
    }

    /// Every shell that was ever executed for this job here.
    pub(super) fn shells_of<'a>(&'a self, digest: &'a str) -> impl Iterator<Item = &'a Shell> {
        self.shells.iter().filter(move |shell| shell.digest == digest)
    }
}

/// The instance that all units belong to.
pub(super) fn instance() -> InstanceId {
    InstanceId::new("/sim", 1)
}

pub(super) fn config(fanout: u32, perilog: Option<config::PerilogConfig>) -> Config {
    Config { fanout, imp: Some("/bin/imp".to_string()), perilog, ..Config::default() }
}

/// `broker` tells the brokers of this rank apart, as a process id does.
pub(super) fn new_node(rank: u32, broker: u32, uptime: f64, config: Config) -> Node {
    let facts = Facts {
        rank: BrokerRank(rank),
        hostname: format!("sim{rank}"),
        owner: OWNER,
        directory: String::new(),
        instance: instance(),
        uptime,
        size: u32::MAX,
        shell_uri: format!("resume:///sim?rank={rank}&broker={broker}"),
        no_connector: None,
        job_shell: "/bin/shell".to_string(),
        brokers_return: true,
        confines: false,
        nested: false,
        working_directory: None,
    };
    Node::new(config, facts)
}

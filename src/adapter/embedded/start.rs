//! From nothing to an instance whose supervisors are ready.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

use super::config::InstanceConfig;
use super::control::Inward;
use super::error::InstanceError;
use super::event::Happening;
use crate::adapter::worker::{Worker, WorkerConfig};
use crate::config::Config;
use crate::machine::{Facts, Node};
use crate::port::supervisor::{Method, Supervisor, UnitCommand, UnitEvent};
use crate::proto::{BrokerRank, InstanceId, UnitName};

/// Every rank's supervisor, ready.
pub(super) struct Supervision {
    pub(super) workers: Vec<Worker>,
    pub(super) method: Method,
    pub(super) notice: Option<String>,
    /// Units of an earlier instance; they are being stopped.
    pub(super) leftovers: Vec<UnitName>,
    /// What the supervisors said meanwhile, for the nodes.
    pub(super) events: Vec<(BrokerRank, UnitEvent)>,
}

/// The nodes of all ranks.
pub(super) fn nodes(config: &InstanceConfig, ranks: u32, statedir: &Path) -> Vec<Node> {
    let instance = identity(statedir);
    let config_of = Config {
        // There is no leader shell that outlasts the others: commands end when they end.
        shell_exit_timeout: None,
        // A checkpoint of these files costs nothing, and nobody should wait for one.
        checkpoint_interval: 0.01,
        ..config.config.clone()
    };
    let working_directory = std::env::current_dir().ok();
    let working_directory = working_directory.map(|path| path.to_string_lossy().into_owned());
    let node = |rank| {
        let facts = Facts {
            rank: BrokerRank(rank),
            owner: nix::unistd::getuid().as_raw(),
            instance: instance.clone(),
            shell_uri: String::new(),
            no_connector: None,
            job_shell: "flux-shell".to_string(),
            nested: false,
            working_directory: working_directory.clone(),
        };
        Node::new(config_of.clone(), facts)
    };
    (0..ranks).map(node).collect()
}

/// As many ranks as were asked for, and those up to the last that an earlier instance on this
/// directory has left a record on: or what still runs there would never be stopped.
fn ranks(config: &InstanceConfig, statedir: &Path) -> u32 {
    let entries = std::fs::read_dir(statedir).into_iter().flatten().flatten();
    let left = entries.filter_map(|entry| {
        let name = entry.file_name();
        let rank: u32 = name.to_str()?.strip_prefix("rank-")?.parse().ok()?;
        let mut files = std::fs::read_dir(entry.path()).ok()?.flatten();
        files
            .any(|file| file.path().extension().is_some_and(|ext| ext == "record"))
            .then_some(rank + 1)
    });
    left.max().unwrap_or(0).max(config.ranks).max(1)
}

/// Stays the same when the directory is used again, so that what is left is found.
fn identity(statedir: &Path) -> InstanceId {
    InstanceId::new(&statedir.to_string_lossy(), nix::unistd::getuid().as_raw())
}

impl Supervision {
    /// Starts the workers of all ranks and waits until each has said that it is ready.
    pub(super) fn start(
        config: &InstanceConfig,
        statedir: &Path,
        sender: &Sender<Inward>,
        inbox: &Receiver<Inward>,
    ) -> Result<Self, InstanceError> {
        let mut workers = Vec::new();
        let mut waiting = ranks(config, statedir);
        for rank in (0..waiting).map(BrokerRank) {
            workers.push(worker(config, statedir, rank, sender)?);
        }
        let mut supervision = Self {
            workers,
            method: Method::Fork,
            notice: None,
            leftovers: Vec::new(),
            events: Vec::new(),
        };

        while waiting > 0 {
            match inbox.recv() {
                Ok(Inward::Unit(rank, event)) => {
                    waiting -= u32::from(matches!(event, UnitEvent::Ready { .. }));
                    supervision.take(rank, event)?;
                }
                // Nobody can control an instance that does not exist yet.
                Ok(Inward::Cancel(..) | Inward::Kill | Inward::Leave) => (),
                Err(error) => return Err(InstanceError::Unusable(error.to_string())),
            }
        }
        Ok(supervision)
    }

    fn take(&mut self, rank: BrokerRank, event: UnitEvent) -> Result<(), InstanceError> {
        match event {
            UnitEvent::Unusable { message } => return Err(InstanceError::Unusable(message)),
            UnitEvent::Found(record) => {
                // Its job manager is gone, so nobody wants it; the node never hears of it, and
                // has it forgotten as nobody's unit when it is gone.
                let unit = record.spec.unit;
                let collect = UnitCommand::Collect { unit: unit.clone() };
                if let Some(worker) = self.workers.get_mut(rank.0 as usize) {
                    worker.submit(collect);
                }
                self.leftovers.push(unit);
            }
            event => {
                if let UnitEvent::Ready { method, notice } = &event {
                    self.method = *method;
                    self.notice.clone_from(notice);
                }
                self.events.push((rank, event));
            }
        }
        Ok(())
    }

    /// What is to be told of it.
    pub(super) fn news(&self) -> Vec<Happening> {
        let ready = Happening::Ready { method: self.method, notice: self.notice.clone() };
        let leftovers = self.leftovers.iter().cloned();
        let leftovers = leftovers.map(|unit| Happening::Leftover { unit });
        [ready].into_iter().chain(leftovers).collect()
    }
}

fn worker(
    config: &InstanceConfig,
    statedir: &Path,
    rank: BrokerRank,
    sender: &Sender<Inward>,
) -> Result<Worker, InstanceError> {
    let worker_config = WorkerConfig {
        method: config.config.method,
        instance: identity(statedir),
        rank,
        directory: statedir.join(format!("rank-{rank}")),
        starts_in_flight_max: config.config.starts_in_flight,
        output: config.config.output,
        bus_address: config.bus_address.clone(),
        dispatch: config.dispatch.clone(),
    };
    let sender = sender.clone();
    Worker::start(worker_config, move |event| {
        // The instance ends first only when it gave up: then nobody listens any more.
        drop(sender.send(Inward::Unit(rank, event)));
    })
    .map_err(|error| InstanceError::Thread { rank, error })
}

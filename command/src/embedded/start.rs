//! Starts the supervisors and nodes of an instance.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

use job_exec_rs::adapter::worker::{ANSWER_WITHIN, Worker, WorkerConfig, uptime};
use job_exec_rs::config::Config;
use job_exec_rs::machine::{Facts, Node};
use job_exec_rs::port::supervisor::{Method, Supervisor, SupervisorEvent, UnitCommand};
use job_exec_rs::proto::{BrokerRank, InstanceId, JobId, UnitName};
use job_exec_rs::supervisor::OuterJob;

use super::config::InstanceConfig;
use super::control::Inward;
use super::error::InstanceError;
use super::event::Happening;

/// The supervisors of all ranks, which are ready.
pub(super) struct Supervision {
    pub(super) workers: Vec<Worker>,
    pub(super) method: Method,
    pub(super) notice: Option<String>,
    /// Units of an earlier instance, which are being stopped.
    pub(super) leftovers: Vec<UnitName>,
    /// Units of an earlier instance that run on.
    pub(super) adopted: Vec<UnitName>,
    /// The jobs that this instance goes on with.
    jobs: BTreeSet<JobId>,
    /// Events of the supervisors so far, for the nodes.
    pub(super) events: Vec<(BrokerRank, SupervisorEvent)>,
}

/// The nodes of all ranks.
pub(super) fn nodes(config: &InstanceConfig, ranks: u32, statedir: &Path) -> Vec<Node> {
    let instance = identity(statedir);
    let config_of = Config {
        // There is no leader shell that ends last. Commands end at any time.
        shell_exit_timeout: None,
        // A checkpoint costs nothing here, so nobody should wait for one.
        checkpoint_interval: 0.01,
        ..config.config.clone()
    };
    let working_directory = std::env::current_dir().ok();
    let working_directory = working_directory.map(|path| path.to_string_lossy().into_owned());
    let node = |rank| {
        let facts = Facts {
            rank: BrokerRank(rank),
            hostname: String::new(),
            owner: nix::unistd::getuid().as_raw(),
            directory: String::new(),
            instance: instance.clone(),
            size: ranks,
            uptime: uptime(),
            shell_uri: String::new(),
            no_connector: None,
            job_shell: "flux-shell".to_string(),
            nested: false,
            brokers_return: true,
            confines: false,
            working_directory: working_directory.clone(),
        };
        Node::new(config_of.clone(), facts)
    };
    (0..ranks).map(node).collect()
}

/// How many ranks there are: as many as were asked for, or up to the last rank of which an earlier
/// instance has left a record in this directory. Otherwise what still runs on that rank would never
/// be stopped.
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

/// The id of the instance. It is the same when the directory is used again, so that units of an
/// earlier instance are found.
fn identity(statedir: &Path) -> InstanceId {
    InstanceId::new(&statedir.to_string_lossy(), nix::unistd::getuid().as_raw())
}

impl Supervision {
    /// Starts the workers of all ranks and waits until each has said that it is ready. Units of
    /// `jobs` run on, others are stopped.
    pub(super) fn start(
        config: &InstanceConfig,
        statedir: &Path,
        jobs: BTreeSet<JobId>,
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
            adopted: Vec::new(),
            jobs,
            events: Vec::new(),
        };

        while waiting > 0 {
            match inbox.recv() {
                Ok(Inward::Supervisor(rank, event)) => {
                    waiting -= u32::from(matches!(event, SupervisorEvent::Ready { .. }));
                    supervision.handle_event(rank, event)?;
                }
                // No other thread has a `Control` yet.
                Ok(Inward::Cancel(..) | Inward::Kill | Inward::Leave) => (),
                Err(error) => return Err(InstanceError::Unusable(error.to_string())),
            }
        }
        Ok(supervision)
    }

    fn handle_event(
        &mut self,
        rank: BrokerRank,
        event: SupervisorEvent,
    ) -> Result<(), InstanceError> {
        match event {
            SupervisorEvent::Unusable { message } => return Err(InstanceError::Unusable(message)),
            SupervisorEvent::Found(record) if self.jobs.contains(&record.spec.job) => {
                self.adopted.push(record.spec.unit.clone());
                self.events.push((rank, SupervisorEvent::Found(record)));
            }
            SupervisorEvent::Found(record) => {
                // The job manager of this unit is gone, so nobody wants the unit. The node is not
                // told that it was found. When the node is told that the unit is gone, it finds no
                // job for it and has it forgotten.
                let unit = record.spec.unit;
                if let Some(worker) = self.workers.get_mut(rank.0 as usize) {
                    worker.submit(unit.clone(), UnitCommand::Collect);
                }
                self.leftovers.push(unit);
            }
            event => {
                if let SupervisorEvent::Ready { method, notice } = &event {
                    self.method = *method;
                    self.notice.clone_from(notice);
                }
                self.events.push((rank, event));
            }
        }
        Ok(())
    }

    /// What the observer gets about the start.
    pub(super) fn happenings(&self) -> Vec<Happening> {
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
        method: config.config.method(),
        instance: identity(statedir),
        rank,
        directory: statedir.join(format!("rank-{rank}")),
        outer_job: OuterJob::find(None),
        answer_within: ANSWER_WITHIN,
        confines: false,
        limits: config.config.limits(),
        bus_address: config.bus_address.clone(),
        dispatch: config.dispatch.clone(),
    };
    let sender = sender.clone();
    Worker::start(worker_config, move |event| {
        // If the instance has ended, nobody listens.
        drop(sender.send(Inward::Supervisor(rank, event)));
    })
    .map_err(|error| InstanceError::Thread { rank, error })
}

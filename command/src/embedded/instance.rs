//! The instance: it gives events to the nodes and carries out their effects, in one thread.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use job_exec_rs::adapter::worker::Worker;
use job_exec_rs::machine::{Credential, Effects, Event, Listing, MonoTime, Node, Now};
use job_exec_rs::port::supervisor::{Method, StartFailure, SupervisorEvent, UnitEvent};
use job_exec_rs::proto::{
    BarrierEntry, BrokerRank, Exception, JobId, StartRequest, UnitName, WallTime,
};
use serde_json::Value;

use super::config::InstanceConfig;
use super::control::{Control, Inward};
use super::directory::StateDirectory;
use super::error::InstanceError;
use super::event::{Happening, InstanceEvent};
use super::jobs::JobFiles;
use super::kvs::Kvs;
use super::manager::{JobOutcome, JobRequest, KeptJob, Manager};
use super::messages::{Asker, Messages};
use super::shell::Shells;
use super::start::{Supervision, nodes};

mod perform;

/// How long [`Instance::stop`] waits for units to end after all jobs have ended.
const SETTLE: Duration = Duration::from_secs(10);

/// One rank.
struct Rank {
    node: Node,
    effects: Effects,
    worker: Worker,
}

/// A function that gets each event.
type Observer<'a> = Box<dyn FnMut(&InstanceEvent) + 'a>;

/// An instance of several ranks on this host.
pub struct Instance<'a> {
    ranks: Vec<Rank>,
    inbox: Receiver<Inward>,
    sender: Sender<Inward>,
    queue: VecDeque<(BrokerRank, Event)>,
    messages: Messages,
    manager: Manager,
    files: JobFiles,
    shells: Shells,
    kvs: Kvs,
    /// Units that a supervisor still has.
    units: BTreeSet<UnitName>,
    observer: Observer<'a>,
    began: Instant,
    hostname: String,
    method: Method,
    left: bool,
    /// Dropped last, because the files of the supervisors are in it.
    directory: StateDirectory,
}

impl<'a> Instance<'a> {
    /// Starts all ranks. `observer` gets each event from now on.
    ///
    /// # Errors
    /// If the directory or a supervisor cannot be used.
    pub fn start(
        config: &InstanceConfig,
        observer: impl FnMut(&InstanceEvent) + 'a,
    ) -> Result<Self, InstanceError> {
        let directory = StateDirectory::open(config.statedir.as_deref())?;
        let path = directory.path().to_path_buf();
        let kvs = Kvs::new(&path.join("kvs"))
            .map_err(|error| InstanceError::Directory { path: path.join("kvs"), error })?;
        let (files, kept) = jobs(config, &path.join("kvs/manager"))?;
        let (sender, inbox) = mpsc::channel();
        let adopted = kept.iter().map(|(id, _)| *id).collect();
        let supervision = Supervision::start(config, &path, adopted, &sender, &inbox)?;
        let happenings = supervision.happenings();
        let host = nix::sys::utsname::uname().ok();
        let hostname = host.and_then(|host| host.nodename().to_str().map(str::to_string));
        let size = u32::try_from(supervision.workers.len()).unwrap_or(u32::MAX);
        let nodes = nodes(config, size, &path).into_iter().zip(supervision.workers);
        let ranks = nodes.map(|(node, worker)| Rank { node, effects: Effects::default(), worker });
        let found = supervision.leftovers.into_iter().chain(supervision.adopted);
        let mut instance = Self {
            ranks: ranks.collect(),
            inbox,
            sender,
            queue: VecDeque::new(),
            messages: Messages::default(),
            manager: Manager::default(),
            files,
            shells: Shells::default(),
            kvs,
            units: found.collect(),
            observer: Box::new(observer),
            began: Instant::now(),
            hostname: hostname.unwrap_or_else(|| "localhost".to_string()),
            method: supervision.method,
            left: false,
            directory,
        };
        for what in happenings {
            instance.tell(None, what);
        }
        for (rank, event) in supervision.events {
            instance.handle_supervisor(rank, event);
        }
        for (id, job) in kept {
            instance.adopt(id, job);
        }
        instance.queue.push_back((BrokerRank(0), Event::RunningAsked(Listing::default())));
        instance.handle_queue();
        Ok(instance)
    }

    /// The directory of its files.
    pub fn statedir(&self) -> &Path {
        self.directory.path()
    }

    /// How commands are started.
    pub fn method(&self) -> Method {
        self.method
    }

    /// A handle that controls the instance from another thread or from the observer.
    pub fn control(&self) -> Control {
        Control(self.sender.clone())
    }

    /// Units that a supervisor still has.
    pub fn units(&self) -> impl Iterator<Item = &UnitName> {
        self.units.iter()
    }

    /// Jobs that are not over, the oldest first.
    pub fn jobs(&self) -> Vec<JobId> {
        self.manager.active()
    }

    /// Starts a job. It runs while [`Instance::wait`] does.
    ///
    /// # Errors
    /// If it asks for no ranks, or for ranks that do not exist.
    pub fn submit(&mut self, request: JobRequest) -> Result<JobId, InstanceError> {
        let size = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        if request.ranks.last().is_none_or(|last| last >= size) {
            return Err(InstanceError::Ranks { asked: request.ranks, size });
        }
        let now = self.now();
        let userid = nix::unistd::getuid().as_raw();
        let (id, payload) = self.manager.submit(&request, userid, &self.hostname, now.wall);
        let ranks = request.ranks.clone();
        self.tell(Some(id), Happening::Submit { command: request.command.clone() });
        self.tell(Some(id), Happening::Alloc { ranks });
        self.keep(id);
        self.ask(id, request, &payload);
        Ok(id)
    }

    /// Goes on with a job of an earlier instance.
    fn adopt(&mut self, id: JobId, job: KeptJob) {
        let (submitted, payload) = (job.submitted.clone(), job.start.clone());
        self.manager.adopt(id, job);
        self.tell(Some(id), Happening::Adopted { command: submitted.command.clone() });
        self.ask(id, submitted, &payload);
    }

    /// The job manager asks the coordinator for a job.
    fn ask(&mut self, id: JobId, submitted: JobRequest, payload: &Value) {
        self.shells.add(id, submitted);
        let request = self.messages.open(Asker::Manager(id));
        let start = Box::new(StartRequest::read(payload.to_string().as_bytes()));
        self.queue.push_back((BrokerRank(0), Event::Start { request, start }));
    }

    /// Changes the time at which a job is ended, in seconds since the epoch. 0 removes the limit.
    pub fn set_expiration(&mut self, id: JobId, expiration: f64) {
        self.manager.set_expiration(id, expiration);
        self.keep(id);
        let request = self.messages.open(Asker::Manager(id));
        let event = Event::Expiration { request, id, expiration: WallTime(expiration) };
        self.queue.push_back((BrokerRank(0), event));
    }

    /// Runs until the job is over and returns its outcome. After [`Control::leave`] it returns the
    /// outcome so far.
    pub fn wait(&mut self, id: JobId) -> JobOutcome {
        self.handle_queue();
        while self.manager.is_active(id) && !self.left {
            self.step(None);
        }
        self.manager.outcome(id)
    }

    /// Runs until all jobs and units have ended, then ends the supervisors. Returns the units that
    /// are left, because no signal ended them in time, or because of [`Control::leave`].
    pub fn stop(mut self) -> Vec<UnitName> {
        self.handle_queue();
        while !self.manager.active().is_empty() && !self.left {
            self.step(None);
        }
        let deadline = Instant::now() + SETTLE;
        while !self.units.is_empty() && !self.left && Instant::now() < deadline {
            self.step(Some(deadline));
        }
        // A worker first carries out the commands that it has, then ends. The directory is removed
        // after that.
        for rank in self.ranks.drain(..) {
            rank.worker.stop();
        }
        self.units.iter().cloned().collect()
    }

    /// Waits for the next message or timer, until `deadline` at most, and handles it.
    fn step(&mut self, deadline: Option<Instant>) {
        let timers = self.ranks.iter().filter_map(|rank| rank.node.next_timeout());
        let left = timers.min().map(|at| (at - self.now().mono).max(0.0));
        // A timer that does not fit into a `Duration` never fires.
        let left = left.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let until = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let received = match [left, until].into_iter().flatten().min() {
            Some(timeout) => self.inbox.recv_timeout(timeout),
            None => self.inbox.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(inward) => self.handle_inward(inward),
            // The channel never disconnects, because this instance holds a sender.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => (),
        }
        let now = self.now().mono;
        let due = |rank: &&Rank| rank.node.next_timeout().is_some_and(|at| at <= now);
        let due = self.ranks.iter().filter(due).map(|r| (r.node.facts().rank, Event::Timeout));
        self.queue.extend(due.collect::<Vec<_>>());
        self.handle_queue();
    }

    fn handle_inward(&mut self, inward: Inward) {
        match inward {
            Inward::Cancel(id, note) => {
                let ids = id.map_or_else(|| self.manager.active(), |id| vec![id]);
                for id in ids {
                    let kind = "cancel".to_string();
                    self.raise(id, Exception { severity: 0, kind, note: note.clone() });
                }
            }
            Inward::Kill => {
                for unit in self.units.clone() {
                    self.signal(unit, libc::SIGKILL);
                }
            }
            Inward::Leave => self.left = true,
            Inward::Supervisor(rank, event) => self.handle_supervisor(rank, event),
        }
    }

    /// Handles all events in the queue, and those that they cause.
    fn handle_queue(&mut self) {
        while let Some((to, event)) = self.queue.pop_front() {
            let now = self.now();
            let Some(rank) = self.ranks.get_mut(to.0 as usize) else { continue };
            rank.node.handle(now, event, &mut rank.effects);
            for effect in std::mem::take(&mut rank.effects.list) {
                self.perform(to, effect);
            }
        }
    }

    fn now(&self) -> Now {
        // A clock before 1970 counts as 1970.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mono = MonoTime(self.began.elapsed().as_secs_f64());
        Now { mono, wall: WallTime(wall.as_secs_f64()) }
    }

    fn tell(&mut self, id: Option<JobId>, what: Happening) {
        let timestamp = self.now().wall;
        (self.observer)(&InstanceEvent { timestamp, id, what });
    }

    fn handle_supervisor(&mut self, rank: BrokerRank, event: SupervisorEvent) {
        let SupervisorEvent::Unit(unit, event) = event else {
            return self.queue.push_back((rank, Event::Supervisor(event)));
        };
        if let Some(what) = happening_of(unit.clone(), &event) {
            self.tell(Some(unit.job()), what);
        }
        if let UnitEvent::Started { .. } = event {
            self.queue.push_back((rank, Event::Supervisor(event.of(&unit))));
            self.enter_barrier(rank, unit);
        } else if let Some(event) = self.shells.pass_or_hold(&unit, event) {
            self.queue.push_back((rank, Event::Supervisor(event.of(&unit))));
        }
    }

    fn enter_barrier(&mut self, rank: BrokerRank, unit: UnitName) {
        let id = unit.job();
        let request = self.messages.open(Asker::Unit(unit.clone()));
        self.shells.enter_barrier(unit);
        let credential =
            Credential { userid: nix::unistd::getuid().as_raw(), owner: true, local: true };
        // Its only barrier. A shell that had entered in an earlier life does not enter another.
        let entry = Some(BarrierEntry::of_shell(1));
        self.queue.push_back((rank, Event::ShellBarrier { request, credential, id, rank, entry }));
    }

    fn leave_barrier(&mut self, unit: &UnitName) {
        for event in self.shells.leave_barrier(unit) {
            self.queue.push_back((unit.rank(), Event::Supervisor(event.of(unit))));
        }
    }

    fn raise(&mut self, id: JobId, exception: Exception) {
        let is_fatal = exception.severity == 0;
        let Some((what, event)) = self.manager.raise(id, exception) else { return };
        self.tell(Some(id), what);
        let ranks = self.ranks.iter().map(|rank| (rank.node.facts().rank, event.clone()));
        self.queue.extend(ranks.collect::<Vec<_>>());
        if is_fatal {
            // A real shell that is told to end leaves the barrier.
            for unit in self.shells.units_in_barrier(id) {
                self.leave_barrier(&unit);
            }
        }
    }
}

/// The jobs that an earlier instance has left, if this one is to go on with them.
fn jobs(
    config: &InstanceConfig,
    directory: &Path,
) -> Result<(JobFiles, Vec<(JobId, KeptJob)>), InstanceError> {
    let failed = |error| InstanceError::Directory { path: directory.to_path_buf(), error };
    let files = JobFiles::new(directory).map_err(failed)?;
    if config.adopt {
        let left = files.load().map_err(failed)?;
        return Ok((files, left));
    }
    files.forget_all().map_err(failed)?;
    Ok((files, Vec::new()))
}

/// What the observer gets of a unit's event.
fn happening_of(unit: UnitName, event: &UnitEvent) -> Option<Happening> {
    Some(match event.clone() {
        UnitEvent::Exited { status } => Happening::UnitExited { unit, status },
        UnitEvent::Failed(StartFailure { message, .. }) => Happening::UnitFailed { unit, message },
        UnitEvent::Gone => Happening::UnitGone { unit },
        UnitEvent::Left => Happening::UnitLeft { unit },
        UnitEvent::Lost { message } => Happening::UnitLost { unit, message },
        UnitEvent::NeverStarted => {
            Happening::UnitFailed { unit, message: "it was never started".to_string() }
        }
        UnitEvent::Output { stream, data, .. } => {
            Happening::Output { rank: unit.rank(), stream, data }
        }
        UnitEvent::Started { pid } => Happening::UnitStarted { unit, pid },
        UnitEvent::Kept { .. }
        | UnitEvent::LeftOver { .. }
        | UnitEvent::Marked { .. }
        | UnitEvent::OutputLost { .. }
        | UnitEvent::OutputOverflow { .. }
        | UnitEvent::OutputTruncated { .. }
        | UnitEvent::Stopping
        | UnitEvent::Usage(_) => return None,
    })
}

//! What starts shells on this rank: a worker thread, if it has systemd, and the broker's own
//! subprocesses.

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use super::error::LoadError;
use crate::adapter::libflux::{
    Constrain, Driver, Futures, Handle, Inbox, Inward, Launchers, Rexec, Timer,
};
use crate::adapter::worker::{ANSWER_WITHIN, READY_WITHIN, Worker, WorkerConfig, has_records};
use crate::config::Config;
use crate::machine::Event;
use crate::port::supervisor::{Method, Supervisor, SupervisorEvent, UnitCommand};
use crate::proto::{ExecMethod, Mute, UnitName};
use crate::supervisor::PulseWatch;

/// How often it is looked whether the disk holds the worker up, in seconds.
const LOOK_PAUSE: f64 = 10.0;

/// The worker. The node sends it commands, and unload joins its thread.
#[derive(Clone)]
struct SharedWorker(Arc<Mutex<Option<Worker>>>);

impl SharedWorker {
    fn busy_for(&self) -> Duration {
        let worker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        worker.as_ref().map_or(Duration::ZERO, Worker::busy_for)
    }
}

impl Supervisor for SharedWorker {
    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        let mut worker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing comes after `stop`, which takes it: the last commands of a node come before.
        if let Some(worker) = worker.as_mut() {
            worker.submit(unit, command);
        }
    }
}

/// The supervisors of this rank, and the way of their events to the node.
pub(super) struct Supervision {
    driver: Weak<Driver>,
    inbox: Arc<Inbox>,
    /// None where there is no systemd.
    worker: Option<(SharedWorker, Constrain<SharedWorker>)>,
    /// Where the worker has its records.
    directory: PathBuf,
    pulse: RefCell<PulseWatch>,
    look: OnceCell<Timer>,
}

impl Supervision {
    /// Starts them, and passes on what they have found on the node.
    ///
    /// # Errors
    /// If shells cannot be started as configured.
    pub(super) fn start(
        handle: Handle,
        config: &Config,
        worker_config: WorkerConfig,
        inbox: &Arc<Inbox>,
        driver: &Rc<Driver>,
        futures: &Rc<Futures>,
    ) -> Result<Rc<Self>, LoadError> {
        let (rank, directory) = (worker_config.rank, worker_config.directory.clone());
        let worker = find_worker(config, worker_config, inbox)?;
        let weak = Rc::downgrade(driver);
        let sink = move |event| {
            if let Some(driver) = Weak::upgrade(&weak) {
                driver.handle(Event::Supervisor(event));
            }
        };
        let rexec = Rexec::new(handle, Rc::clone(futures), rank.0, config.limits(), sink.clone());
        let units = worker.map(|worker| {
            let units = Constrain::new(worker.clone(), config, Rc::clone(futures), sink.clone());
            (worker, units)
        });
        let launched = units.as_ref().map(|(_, units)| units.clone()).map_err(Clone::clone);
        driver.set_supervisor(Box::new(Launchers::new(launched, rexec, sink)));
        let refusal = units.as_ref().err().cloned();
        let (driver, inbox) = (Rc::downgrade(driver), Arc::clone(inbox));
        let (pulse, look, worker) = (RefCell::default(), OnceCell::new(), units.ok());
        let supervision = Rc::new(Self { driver, inbox, worker, directory, pulse, look });
        supervision.pass_on();
        if supervision.worker.is_some() {
            let this = Rc::downgrade(&supervision);
            let timer = Timer::new(handle, move || {
                if let Some(supervision) = this.upgrade() {
                    supervision.look();
                }
            })?;
            timer.set(Some(LOOK_PAUSE));
            let _ = supervision.look.set(timer);
        }
        if let Some(message) = refusal {
            supervision.choose_children(handle, config, &message);
        }
        Ok(supervision)
    }

    fn choose_children(&self, handle: Handle, config: &Config, why: &str) {
        let notice = (config.method() != ExecMethod::Fork).then(|| {
            format!("jobs run as children of the broker and will not survive its restart: {why}")
        });
        if let Some(driver) = self.driver.upgrade() {
            driver
                .handle(Event::Supervisor(SupervisorEvent::Ready { method: Method::Fork, notice }));
        }
        handle.log(libc::LOG_DEBUG, "shells are started by the broker's rexec service");
    }

    /// Tells the node when the disk holds the worker up, and when it does not any more.
    fn look(&self) {
        let Some((worker, _)) = &self.worker else { return };
        let busy_for = worker.busy_for();
        if let Some(is_held_up) = self.pulse.borrow_mut().look(busy_for, ANSWER_WITHIN)
            && let Some(driver) = self.driver.upgrade()
        {
            let what = self.directory.display().to_string();
            driver.handle(Event::Supervisor(match is_held_up {
                true => SupervisorEvent::Silent { who: Mute::Disk, what },
                false => SupervisorEvent::Answers { who: Mute::Disk },
            }));
        }
        if let Some(timer) = self.look.get() {
            timer.set(Some(LOOK_PAUSE));
        }
    }

    /// Gives the node what the worker has said.
    pub(super) fn pass_on(&self) {
        let Some(driver) = self.driver.upgrade() else { return };
        for item in self.inbox.take() {
            match item {
                Inward::Log(level, text) => driver.log(level, &text),
                Inward::Supervisor(event) => {
                    let unusable = matches!(event, SupervisorEvent::Unusable { .. });
                    let event = match &self.worker {
                        Some((_, units)) => units.pass(event),
                        None => Some(event),
                    };
                    if let Some(event) = event {
                        driver.handle(Event::Supervisor(event));
                    }
                    if unusable {
                        // An operator sees that a module is missing, but not that it starts nothing.
                        driver.stop_with_error();
                    }
                }
            }
        }
    }

    /// Ends the worker and joins its thread, because the broker unmaps the module's code at unload.
    pub(super) fn stop(&self) {
        if let Some((shared, _)) = &self.worker {
            let worker = shared.0.lock().ok().and_then(|mut worker| worker.take());
            if let Some(worker) = worker {
                worker.stop();
            }
        }
    }
}

/// A worker that has systemd, or why there is none.
fn find_worker(
    config: &Config,
    worker_config: WorkerConfig,
    inbox: &Arc<Inbox>,
) -> Result<Result<SharedWorker, String>, LoadError> {
    let directory = worker_config.directory.clone();
    let worker = match config.method() {
        ExecMethod::Fork => Err("exec.method is fork".to_string()),
        ExecMethod::Auto | ExecMethod::Systemd => start_worker(worker_config, inbox)?,
    };
    let Err(message) = &worker else { return Ok(worker) };
    let message = message.clone();
    match config.method() {
        ExecMethod::Systemd => {
            Err(LoadError::NoSystemd { configured: config.method_setting(), message })
        }
        // Without systemd these shells would count as lost, but run on.
        ExecMethod::Auto | ExecMethod::Fork if has_records(&directory) => {
            Err(LoadError::Recorded { directory, message })
        }
        ExecMethod::Auto | ExecMethod::Fork => match config.needs_units() {
            Some(key) => Err(LoadError::NotConfined { key, message }),
            None => Ok(worker),
        },
    }
}

/// Starts the worker and waits until it is ready or says why it cannot work. The reactor does
/// not run yet, so nothing else waits meanwhile.
fn start_worker(
    config: WorkerConfig,
    inbox: &Arc<Inbox>,
) -> Result<Result<SharedWorker, String>, LoadError> {
    let (verdict, ready) = mpsc::channel();
    let (queue, directory) = (Arc::clone(inbox), config.directory.clone());
    let worker = Worker::start(config, move |event| {
        match &event {
            // Only the first of these is received. Later ones cannot be sent.
            SupervisorEvent::Ready { .. } => drop(verdict.send(Ok(()))),
            SupervisorEvent::Unusable { message } => drop(verdict.send(Err(message.clone()))),
            _ => (),
        }
        queue.push(Inward::Supervisor(event));
    })
    .map_err(LoadError::Thread)?;
    match ready.recv_timeout(READY_WITHIN) {
        Ok(Ok(())) => Ok(Ok(SharedWorker(Arc::new(Mutex::new(Some(worker)))))),
        Ok(Err(message)) => {
            worker.stop();
            // The notice of method `fork` has the reason, so the log need not have it.
            drop(inbox.take());
            Ok(Err(message))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(LoadError::ThreadEnded),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            worker.stop();
            Err(LoadError::DiskSilent { directory })
        }
    }
}

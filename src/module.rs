//! The broker module: `mod_main`, wiring, and the way out.
//!
//! Loaded as `job-exec` (by `[modules.job-exec]`, or from a module path of its own) it serves
//! that name by itself; loaded as `job-exec-rs` it registers the service, and says so clearly
//! when upstream's job-exec still holds it.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::adapter::libflux::{
    Driver, FdWatcher, Futures, Handle, Inbox, Inward, Rexec, dispatch, fenced, resume_uri,
};
use crate::adapter::worker::{Worker, WorkerConfig};
use crate::config::{Config, MethodConfig};
use crate::machine::{Facts, Node};
use crate::port::supervisor::{Method, Supervisor, UnitCommand, UnitEvent};
use crate::proto::{BrokerRank, InstanceId};

mod handlers;
mod state_directory;

use handlers::SERVICE;
use state_directory::{Candidates, Place};

/// How long a shell waits for a broker that is not expected back.
const GONE_FOR_GOOD: &str = "10s";

/// Why the module could not be loaded, or had to go.
type Failure = String;

/// Entry point of the broker module (flux-core `flux_module_main_f`).
///
/// # Safety
/// Called by the broker alone, on a thread of the module's own, with a valid handle and
/// `argc` strings in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mod_main(
    handle: *mut flux_sys::flux_t,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    // SAFETY: the broker passes the module's own handle, valid until mod_main returns.
    let Some(handle) = (unsafe { Handle::new(handle) }) else { return -1 };
    let count = usize::try_from(argc).unwrap_or(0);
    let arguments: Vec<String> = (0..count)
        // SAFETY: the broker passes `argc` NUL-terminated strings.
        .map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned())
        .collect();
    let mut result = -1;
    fenced(handle, "mod_main", || match run(handle, &arguments) {
        Ok(()) => result = 0,
        Err(reason) => handle.log(libc::LOG_ERR, &reason),
    });
    if result < 0 {
        nix::errno::Errno::EINVAL.set();
    }
    result
}

/// From load to unload.
fn run(handle: Handle, arguments: &[String]) -> Result<(), Failure> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let conf = handle.ask("config.get", "{}").map_err(|e| format!("config.get: {e}"))?;
    let conf: Value = serde_json::from_str(&conf).map_err(|e| format!("config.get: {e}"))?;
    let config = Config::new(&conf, arguments).map_err(|e| format!("error parsing config: {e}"))?;
    let name = handle.module_name().unwrap_or_else(|| SERVICE.to_string());
    if name != SERVICE {
        register(handle, &name)?;
    }
    let place = place(handle, &config)?;
    let facts = facts(handle, &place)?;
    let directory = place.directory;
    let rank = facts.rank;
    let instance = facts.instance.clone();
    let futures = Rc::new(Futures::new(handle));
    let node = Node::new(config.clone(), facts);
    let driver = Driver::new(handle, SERVICE, Rc::clone(&futures), node).map_err(|e| text(&e))?;
    let inbox = Arc::new(Inbox::new().map_err(|e| format!("eventfd: {e}"))?);
    let mut supervision = Supervision::start(
        handle,
        &config,
        WorkerConfig {
            method: MethodConfig::Systemd,
            instance,
            rank,
            directory,
            starts_in_flight_max: config.starts_in_flight,
            output: config.output,
            bus_address: None,
            dispatch: dispatch(Arc::clone(&inbox)),
        },
        &inbox,
        &driver,
        &futures,
    )?;
    let result = serve(handle, &name, arguments, &driver, &inbox, rank);
    driver.shutdown();
    supervision.stop();
    result
}

fn serve(
    handle: Handle,
    name: &str,
    arguments: &[String],
    driver: &Rc<Driver>,
    inbox: &Arc<Inbox>,
    rank: BrokerRank,
) -> Result<(), Failure> {
    let weak = Rc::downgrade(driver);
    let queue = Arc::clone(inbox);
    let _inbox = FdWatcher::new(handle, inbox.fd(), move || {
        if let Some(driver) = weak.upgrade() {
            drain_inbox(&driver, &queue);
        }
    })
    .map_err(|e| e.to_string())?;
    let _handlers = handlers::all(handle, name, arguments, driver).map_err(|e| e.to_string())?;
    handle.subscribe("job-exception").map_err(|e| e.to_string())?;
    if rank == BrokerRank(0) {
        let hello = json!({ "service": SERVICE }).to_string();
        handle
            .ask("job-manager.exec-hello", &hello)
            .map_err(|e| format!("job-manager.exec-hello: {e}"))?;
    }
    handle.run_reactor().map_err(|e| e.to_string())
}

fn drain_inbox(driver: &Driver, inbox: &Inbox) {
    for item in inbox.take() {
        match item {
            Inward::Log(level, text) => driver.log(level, &text),
            Inward::Unit(event) => {
                let unusable = matches!(event, UnitEvent::Unusable { .. });
                driver.unit(event);
                if unusable {
                    // Better no module, which is seen, than one that starts nothing.
                    driver.fail();
                }
            }
        }
    }
}

fn register(handle: Handle, name: &str) -> Result<(), Failure> {
    handle.register_service(SERVICE).map_err(|error| {
        if error.errnum == libc::EEXIST {
            format!(
                "cannot register the service '{SERVICE}' for {name}: another module serves it \
                 (flux-core's own job-exec?); remove that one first: flux module remove job-exec"
            )
        } else {
            format!("cannot register the service '{SERVICE}' for {name}: {error}")
        }
    })
}

/// Where records and output are kept.
fn place(handle: Handle, config: &Config) -> Result<Place, Failure> {
    let rank = handle.rank().map_err(|e| e.to_string())?;
    let of_service = std::env::var("STATE_DIRECTORY").ok().filter(|_| !is_job(handle));
    let candidates = Candidates {
        configured: config.state_directory.clone(),
        of_service,
        statedir: handle.attribute("statedir"),
        rundir: handle.attribute("rundir"),
        rank,
    };
    let place = candidates.choose(has_records).ok_or("neither statedir nor rundir is set")?;
    if let Some(notice) = place.notice.as_ref().filter(|_| !is_job(handle)) {
        handle.log(libc::LOG_WARNING, notice);
    }
    Ok(place)
}

/// This instance is itself a job.
fn is_job(handle: Handle) -> bool {
    handle.attribute("jobid").is_some_and(|id| !id.is_empty())
}

fn facts(handle: Handle, place: &Place) -> Result<Facts, Failure> {
    let owner = nix::unistd::getuid().as_raw();
    let working_directory = std::env::current_dir().ok();
    let rank = handle.rank().map_err(|e| e.to_string())?;
    let (shell_uri, no_connector) = shell_uri(handle, rank, place.lasts)?;
    Ok(Facts {
        rank: BrokerRank(rank),
        owner,
        instance: InstanceId::new(&place.directory.to_string_lossy(), owner),
        shell_uri,
        no_connector,
        nested: is_job(handle),
        job_shell: handle.builtin("shell_path").ok_or("flux-core names no job shell")?,
        working_directory: working_directory.map(|path| path.to_string_lossy().into_owned()),
    })
}

/// What shells connect to, and why they do without the resume connector, if they do. A broker
/// comes back if its instance is no job, and either finds its peers by configuration, as a
/// system instance does, or has a place that outlives it. Shells wait for such a broker, and only
/// for a short time for others.
fn shell_uri(
    handle: Handle,
    rank: u32,
    place_lasts: bool,
) -> Result<(String, Option<String>), Failure> {
    let local = handle.attribute("local-uri").ok_or("local-uri is not set")?;
    let is_configured = handle.attribute("broker.boot-method").is_some_and(|m| m == "config");
    let comes_back = !is_job(handle) && (is_configured || place_lasts);
    match resume_uri(&local, rank) {
        Ok(uri) if comes_back => Ok((uri, None)),
        Ok(uri) => Ok((format!("{uri}?timeout={GONE_FOR_GOOD}"), None)),
        Err(why) => {
            let notice = format!("job shells may end with this broker: no resume connector: {why}");
            handle.log(libc::LOG_WARNING, &notice);
            Ok((local, Some(why.to_string())))
        }
    }
}

fn has_records(directory: &std::path::Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|e| e == "record"))
}

/// The supervisor in use: a worker thread for systemd, or the broker's own subprocesses.
struct Supervision {
    worker: Option<Arc<std::sync::Mutex<Option<Worker>>>>,
}

/// The worker, shared between the node, which commands it, and unload, which joins it.
struct SharedWorker(Arc<std::sync::Mutex<Option<Worker>>>);

impl Supervisor for SharedWorker {
    fn submit(&mut self, command: UnitCommand) {
        if let Ok(mut worker) = self.0.lock()
            && let Some(worker) = worker.as_mut()
        {
            worker.submit(command);
        }
    }
}

impl Supervision {
    fn start(
        handle: Handle,
        config: &Config,
        worker_config: WorkerConfig,
        inbox: &Arc<Inbox>,
        driver: &Rc<Driver>,
        futures: &Rc<Futures>,
    ) -> Result<Self, Failure> {
        let rank = worker_config.rank;
        let directory = worker_config.directory.clone();
        let refusal = match config.method {
            MethodConfig::Fork => String::new(),
            MethodConfig::Auto | MethodConfig::Systemd => {
                match Self::systemd(worker_config, inbox, driver)? {
                    Ok(supervision) => return Ok(supervision),
                    Err(refusal) => refusal,
                }
            }
        };
        if config.method == MethodConfig::Systemd {
            return Err(format!("exec.method=systemd: {refusal}"));
        }
        // Without systemd these would count as lost, and run on unseen.
        if !refusal.is_empty() && has_records(&directory) {
            return Err(format!(
                "shells of running jobs are recorded in {}, and systemd, which runs them, does \
                 not answer: {refusal}",
                directory.display()
            ));
        }
        let sink = Rc::downgrade(driver);
        let rexec = Rexec::new(handle, Rc::clone(futures), rank.0, config.output, move |event| {
            if let Some(driver) = Weak::upgrade(&sink) {
                driver.unit(event);
            }
        });
        driver.set_supervisor(Box::new(rexec));
        let notice = (!refusal.is_empty()).then(|| {
            format!(
                "jobs run as children of the broker and will not survive its restart: {refusal}"
            )
        });
        driver.unit(UnitEvent::Ready { method: Method::Fork, notice });
        handle.log(libc::LOG_DEBUG, "shells are started by the broker's rexec service");
        Ok(Self { worker: None })
    }

    /// Starts the worker and waits until it is ready, or says why not. The reactor does not
    /// run yet: nobody else waits.
    fn systemd(
        config: WorkerConfig,
        inbox: &Arc<Inbox>,
        driver: &Rc<Driver>,
    ) -> Result<Result<Self, String>, Failure> {
        let (verdict, ready) = mpsc::channel();
        let queue = Arc::clone(inbox);
        let worker = Worker::start(config, move |event| {
            match &event {
                // After the first verdict nobody listens here any more.
                UnitEvent::Ready { .. } => drop(verdict.send(Ok(()))),
                UnitEvent::Unusable { message } => drop(verdict.send(Err(message.clone()))),
                _ => (),
            }
            queue.push(Inward::Unit(event));
        })
        .map_err(|e| format!("supervisor thread: {e}"))?;
        match ready.recv() {
            Ok(Ok(())) => {
                let shared = Arc::new(std::sync::Mutex::new(Some(worker)));
                driver.set_supervisor(Box::new(SharedWorker(Arc::clone(&shared))));
                drain_inbox(driver, inbox);
                Ok(Ok(Self { worker: Some(shared) }))
            }
            Ok(Err(message)) => {
                worker.stop();
                // What it said of itself is for the fork method's notice, not for the log.
                drop(inbox.take());
                Ok(Err(message))
            }
            Err(_) => Err("the supervisor thread ended at once".to_string()),
        }
    }

    /// Ends the worker and joins its thread: after unload its code is gone.
    fn stop(&mut self) {
        if let Some(shared) = self.worker.take() {
            let worker = shared.lock().ok().and_then(|mut worker| worker.take());
            if let Some(worker) = worker {
                worker.stop();
            }
        }
    }
}

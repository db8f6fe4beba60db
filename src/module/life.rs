//! The module from load to unload: it makes its parts, lets them hear, and ends them.
//!
//! If the module is loaded as `job-exec` (by `[modules.job-exec]`, or from a module path of its
//! own), it already has the service of that name. If it is loaded as `job-exec-rs`, it registers
//! the service. If flux-core's job-exec still has the service, the error says so.

use std::rc::Rc;
use std::sync::Arc;

use nix::unistd::{Uid, User};
use serde_json::{Value, json};

use super::error::LoadError;
use super::handlers::{self, SERVICE};
use super::site;
use super::state_directory::{Candidates, StatePlace};
use super::supervision::Supervision;
use crate::adapter::libflux::{
    BelowWatch, BrokerState, Driver, FdWatcher, Futures, Handle, Inbox, MessageHandler, OwnJob,
    ParentWatch, dispatch, follow_broker, resume_uri, watch_nodes,
};
use crate::adapter::systemd::check_properties;
use crate::adapter::worker::{ANSWER_WITHIN, WorkerConfig, has_records, uptime};
use crate::config::Config;
use crate::machine::{Facts, Node};
use crate::proto::{
    BrokerMapping, BrokerRank, ExecMethod, Fit, InstanceId, JobId, PERILOG_PLUGIN, fits,
};
use crate::supervisor::OuterJob;

/// How long a shell waits for a broker that is not expected to come back.
const GONE_FOR_GOOD: &str = "1s";

/// The loaded module.
pub(super) struct Module {
    handle: Handle,
    driver: Rc<Driver>,
    supervision: Rc<Supervision>,
    futures: Rc<Futures>,
    ears: Option<Ears>,
}

/// What passes messages and events on to the driver.
struct Ears {
    _inbox: FdWatcher,
    _handlers: Vec<MessageHandler>,
    _below: Option<Rc<BelowWatch>>,
    _parent: Option<ParentWatch>,
}

impl Module {
    /// Loads the module. It works as soon as the reactor runs.
    pub(super) fn load(handle: Handle, arguments: &[String]) -> Result<Self, LoadError> {
        match handle.attribute("version").map(|release| fits(&release)) {
            Some(Fit::TooOld(text)) => return Err(LoadError::OldFlux(text)),
            Some(Fit::Untried(text)) if handle.rank()? == 0 => {
                handle.log(libc::LOG_WARNING, &text);
            }
            Some(Fit::Tried | Fit::Untried(_)) | None => {}
        }
        let conf = handle.ask("config.get", "{}").map_err(LoadError::request("config.get"))?;
        let conf: Value = serde_json::from_str(&conf).map_err(LoadError::ConfigNotJson)?;
        let config = Config::new(&conf, arguments)?;
        check_properties(&config.properties)?;
        if let Some(text) = config.warning() {
            handle.log(libc::LOG_WARNING, &text);
        }
        if config.perilog.is_some() && handle.rank()? == 0 && has_plugin(handle, PERILOG_PLUGIN) {
            return Err(LoadError::PerilogTwice);
        }
        JobId::show_ascii(handle.shows_ascii_f58());
        let name = handle.module_name().unwrap_or_else(|| SERVICE.to_string());
        if name != SERVICE {
            register(handle, &name)?;
        }
        let inbox = Arc::new(Inbox::new().map_err(LoadError::EventFd)?);
        let mut module = Self::start(handle, config, &inbox)?;
        match module.listen(&name, arguments, &inbox) {
            Ok(ears) => {
                module.ears = Some(ears);
                Ok(module)
            }
            Err(error) => {
                module.close();
                Err(error)
            }
        }
    }

    /// The supervisors of this rank.
    pub(super) fn supervision(&self) -> &Rc<Supervision> {
        &self.supervision
    }

    /// Makes the last checkpoint, and ends all parts.
    pub(super) fn unload(mut self) {
        // Shells that end meanwhile leave commits. Without handlers libflux would answer them that
        // there is no such method.
        if let Err(error) = self.driver.finish() {
            self.handle.log(libc::LOG_ERR, &format!("no last checkpoint was made: {error}"));
        }
        drop(self.ears.take());
        self.close();
    }

    fn start(handle: Handle, config: Config, inbox: &Arc<Inbox>) -> Result<Self, LoadError> {
        let place = place(handle, &config)?;
        let facts = facts(handle, &place, config.constrain_resources)?;
        if config.method() != ExecMethod::Fork {
            warn_of_site(handle, facts.owner);
        }
        let worker = WorkerConfig {
            method: ExecMethod::Systemd,
            instance: facts.instance.clone(),
            rank: facts.rank,
            directory: place.directory,
            outer_job: outer_job(handle),
            answer_within: ANSWER_WITHIN,
            confines: config.constrain_resources,
            limits: config.limits(),
            bus_address: None,
            dispatch: dispatch(Arc::clone(inbox)),
        };
        let futures = Rc::new(Futures::new(handle));
        let node = Node::new(config.clone(), facts);
        let driver = Driver::new(handle, SERVICE, Rc::clone(&futures), node, uptime)?;
        let supervision = Supervision::start(handle, &config, worker, inbox, &driver, &futures)?;
        Ok(Self { handle, driver, supervision, futures, ears: None })
    }

    fn listen(&self, name: &str, arguments: &[String], inbox: &Inbox) -> Result<Ears, LoadError> {
        let Self { handle, driver, futures, .. } = self;
        let (handle, rank) = (*handle, self.handle.rank()?);
        let heard = Rc::clone(&self.supervision);
        let _inbox = FdWatcher::new(handle, inbox.fd(), move || heard.pass_on())?;
        let _handlers = handlers::all(handle, name, arguments, driver)?;
        let _below = has_brokers_below(handle)
            .then(|| BelowWatch::start(handle, rank, futures))
            .transpose()?;
        if name != SERVICE {
            leave_with_broker(handle, rank, futures);
        }
        handle.subscribe("job-exception")?;
        if rank == 0 {
            let hello = json!({ "service": SERVICE }).to_string();
            let topic = "job-manager.exec-hello";
            handle.ask(topic, &hello).map_err(|error| match error.errnum {
                // flux-core `job-manager/start.c`, `hello_cb()`
                libc::EINVAL => LoadError::OtherService { error },
                _ => LoadError::request(topic)(error),
            })?;
            driver.find_cleaning();
            watch_nodes(futures, driver);
        }
        let parent = if rank == 0 { own_job(handle) } else { None };
        let _parent = parent.and_then(|job| ParentWatch::start(handle, job, driver));
        Ok(Ears { _inbox, _handlers, _below, _parent })
    }

    fn close(self) {
        self.driver.shut_down();
        self.supervision.stop();
        self.futures.close();
    }
}

/// Ends the module when its broker has come to rc3. rc3 unloads the modules that flux-core's
/// modprobe knows by name, and a module that is loaded by hand from its own file is not one of them.
/// The broker takes a module that is left for a failure.
fn leave_with_broker(handle: Handle, rank: u32, futures: &Rc<Futures>) {
    follow_broker(rank, futures, move |told| match told {
        Ok(BrokerState::Finalize) => handle.stop_reactor(),
        Ok(_) => (),
        Err(why) => {
            let text = "nothing unloads this module when the broker ends";
            handle.log(libc::LOG_WARNING, &format!("{text}: {why}"));
        }
    });
}

/// The job manager has a plugin of this name (flux-core `job-manager/jobtap.c`).
fn has_plugin(handle: Handle, name: &str) -> bool {
    handle.ask("job-manager.jobtap-query", &json!({ "name": name }).to_string()).is_ok()
}

fn register(handle: Handle, name: &str) -> Result<(), LoadError> {
    handle.register_service(SERVICE).map_err(|error| {
        let name = name.to_string();
        if error.errnum == libc::EEXIST {
            LoadError::ServiceTaken { name }
        } else {
            LoadError::Service { name, error }
        }
    })
}

/// Where records and output are kept.
fn place(handle: Handle, config: &Config) -> Result<StatePlace, LoadError> {
    let rank = handle.rank()?;
    let of_service = std::env::var("STATE_DIRECTORY").ok().filter(|_| !is_job(handle));
    let candidates = Candidates {
        configured: config.state_directory.clone(),
        of_service,
        statedir: handle.attribute("statedir"),
        removes_statedir: handle
            .attribute("statedir-cleanup")
            .is_some_and(|removes| removes != "0"),
        rundir: handle.attribute("rundir"),
        rank,
    };
    let place = candidates.choose(has_records).ok_or(LoadError::NoPlace)?;
    if let Some(notice) = place.notice.as_ref().filter(|_| is_configured(handle)) {
        handle.log(libc::LOG_WARNING, notice);
    }
    Ok(place)
}

/// The job that this instance is in its parent, if it is one that has nodes there.
fn own_job(handle: Handle) -> Option<OwnJob> {
    let attribute = |name| handle.attribute(name).filter(|value| !value.is_empty());
    Some(OwnJob {
        parent_uri: attribute("parent-uri")?,
        id: attribute("jobid")?.parse().ok()?,
        mapping: BrokerMapping::read(&attribute("broker.mapping")?).ok()?,
        size: attribute("size")?.parse().ok()?,
    })
}

/// The job that this broker is part of.
fn outer_job(handle: Handle) -> Option<OuterJob> {
    OuterJob::find(handle.attribute("jobid"))
}

/// This instance is itself a job, or runs inside one.
fn is_job(handle: Handle) -> bool {
    outer_job(handle).is_some()
}

fn facts(handle: Handle, place: &StatePlace, confines: bool) -> Result<Facts, LoadError> {
    let owner = nix::unistd::getuid().as_raw();
    let working_directory = std::env::current_dir().ok();
    let rank = handle.rank()?;
    let (shell_uri, no_connector) = shell_uri(handle, rank, place.lasts)?;
    Ok(Facts {
        rank: BrokerRank(rank),
        hostname: handle.attribute("hostname").unwrap_or_default(),
        owner,
        directory: place.directory.to_string_lossy().into_owned(),
        instance: InstanceId::new(&place.directory.to_string_lossy(), owner),
        size: handle.attribute("size").and_then(|size| size.parse().ok()).unwrap_or(u32::MAX),
        uptime: uptime(),
        shell_uri,
        no_connector,
        nested: is_job(handle),
        brokers_return: is_configured(handle),
        confines,
        job_shell: handle.builtin("shell_path").ok_or(LoadError::NoJobShell)?,
        working_directory: working_directory.map(|path| path.to_string_lossy().into_owned()),
    })
}

/// The URI that shells connect to, and why they do not use the resume connector, if they do not.
/// A broker comes back if its instance is no job, and either finds its peers by configuration, as a
/// system instance does, or has a directory that outlives it. Shells wait for such a broker. They
/// wait only [`GONE_FOR_GOOD`] for any other.
fn shell_uri(
    handle: Handle,
    rank: u32,
    place_lasts: bool,
) -> Result<(String, Option<String>), LoadError> {
    let local = handle.attribute("local-uri").ok_or(LoadError::NoLocalUri)?;
    let comes_back = is_configured(handle) || !is_job(handle) && place_lasts;
    match resume_uri(&local, rank) {
        Ok(uri) if comes_back => Ok((uri, None)),
        Ok(uri) => Ok((format!("{uri}&timeout={GONE_FOR_GOOD}"), None)),
        Err(why) => {
            let notice = format!("job shells end with this broker: no resume connector: {why}");
            let level = if is_configured(handle) { libc::LOG_WARNING } else { libc::LOG_INFO };
            handle.log(level, &notice);
            Ok((local, Some(why.to_string())))
        }
    }
}

/// The instance finds its peers by configuration, as a system instance does.
fn is_configured(handle: Handle) -> bool {
    !is_job(handle) && handle.attribute("broker.boot-method").is_some_and(|m| m == "config")
}

/// flux-broker-attributes(7)
fn has_brokers_below(handle: Handle) -> bool {
    handle.attribute("tbon.descendants").is_some_and(|count| count != "0")
}

/// Says what keeps jobs from outliving a system instance's brokers.
fn warn_of_site(handle: Handle, owner: u32) {
    let user = User::from_uid(Uid::from_raw(owner)).ok().flatten();
    let user = user.map_or_else(|| owner.to_string(), |user| user.name);
    if let Some(text) = site::ends_with_login(&user).filter(|_| is_configured(handle)) {
        handle.log(libc::LOG_WARNING, &text);
    }
}

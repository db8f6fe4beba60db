//! The supervisor's thread.
//!
//! The worker connects the supervisor's core to the state directory and to the backend that
//! `exec.method` asks for. That is why this adapter names others. The backends themselves only know
//! the supervisor's traits.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use crate::adapter::fork::Fork;
use crate::adapter::host::{HostDisk, has_user_manager, keep_mapped};
use crate::adapter::systemd::{Systemd, SystemdConfig, SystemdError, is_standard, manager_listens};
use crate::port::supervisor::{
    Limits, StartFailure, Supervisor, SupervisorEvent, UnitCommand, UnitEvent,
};
use crate::proto::{BrokerRank, ExecMethod, InstanceId, UnitName};
use crate::supervisor::{BackendDriver, Core, OuterJob, OutputWatch, Pulse, Sink};

/// Each with the unit that it is about.
type Commands = mpsc::UnboundedReceiver<(UnitName, UnitCommand)>;

/// Default of [`WorkerConfig::answer_within`]. A systemd that is short of memory can take long, and
/// what is asked of it again only adds to that.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long the end of the thread is waited for. A disk that does not answer can hold it up for ever.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// How long the worker waits, if nothing else happens, before it tries again to write facts that
/// found no space on the disk.
const LATE_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long systemd is waited for, if there are records, because it may run their shells, or if a
/// user manager runs: the bus may be on its way, at boot or after a restart. A node that is short of
/// memory or processors can keep its user manager from answering for some seconds.
const SYSTEMD_PATIENCE: Duration = Duration::from_secs(30);

/// How long a user manager is waited for that is to run all the time, for example while somebody starts
/// it again. It ends after at most 120 s (`TimeoutStopSec` of user@.service).
const MANAGER_PATIENCE: Duration = Duration::from_secs(150);

/// How long a worker takes at most until it is ready, or says that it cannot be, if its disk answers. It
/// waits for systemd, then for the list of its units, and is not slow with what it has found.
pub const READY_WITHIN: Duration =
    Duration::from_secs(MANAGER_PATIENCE.as_secs() + 2 * SYSTEMD_PATIENCE.as_secs());

/// Pause before systemd is tried again.
const SYSTEMD_PAUSE: Duration = Duration::from_millis(500);

/// How many commands are obeyed before the calls that they cause are sent, so that few writes are
/// needed.
const COMMAND_BATCH_MAX: usize = 64;

/// What a [`Worker`] needs to know.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// How to start shells.
    pub method: ExecMethod,
    /// The instance that the units belong to.
    pub instance: InstanceId,
    /// The rank that they run on.
    pub rank: BrokerRank,
    /// Where records and output files are. It is made with mode 0700 if it is missing.
    pub directory: PathBuf,
    /// The job that this process is part of: what it starts must not leave that job.
    pub outer_job: Option<OuterJob>,
    /// How long systemd may leave a call without an answer, before it is looked what became of it.
    pub answer_within: Duration,
    /// Units are to be confined to the CPUs of their jobs.
    pub confines: bool,
    /// How much is done at once, and kept.
    pub limits: Limits,
    /// D-Bus addresses of the user bus. `None`: the environment's.
    pub bus_address: Option<String>,
    /// Where the thread logs to.
    pub dispatch: tracing::Dispatch,
}

/// Why shells are not started by systemd.
#[derive(Debug, thiserror::Error)]
enum NoSystemd {
    #[error("exec.method is \"fork\"")]
    NotWanted,
    #[error("{0}")]
    InJob(OuterJob),
    #[error(transparent)]
    Unreachable(#[from] SystemdError),
}

impl NoSystemd {
    /// It, and what to do about it.
    fn message(&self) -> String {
        let hint = match self {
            Self::InJob(_) => return self.to_string(),
            Self::Unreachable(SystemdError::CannotConfine { .. }) => {
                "delegate it (Delegate= of user@.service)"
            }
            Self::Unreachable(SystemdError::TooOld { .. }) => return self.to_string(),
            Self::NotWanted | Self::Unreachable(_) => {
                "enable lingering for the instance owner (loginctl enable-linger) or check \
                 DBUS_SESSION_BUS_ADDRESS and XDG_RUNTIME_DIR"
            }
        };
        format!("{self}; {hint}")
    }

    /// What somebody should know whose shells are children instead.
    fn notice(&self) -> String {
        match self {
            Self::InJob(_) => format!("jobs are plain child processes: {self}"),
            Self::NotWanted | Self::Unreachable(_) => format!(
                "jobs will not survive a restart of this broker: {self}, so shells are plain child \
                 processes; for systemd units, enable lingering for the instance owner \
                 (loginctl enable-linger) and set exec.method to \"auto\" or \"systemd\""
            ),
        }
    }
}

/// The local supervisor: one thread, which is gone when [`stop`](Worker::stop) returns.
#[derive(Debug)]
pub struct Worker {
    commands: Option<mpsc::UnboundedSender<(UnitName, UnitCommand)>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    /// Hears of the end of the thread.
    ended: std_mpsc::Receiver<()>,
    /// Where it logs to. The thread that submits commands may have nothing of its own.
    dispatch: tracing::Dispatch,
}

/// What the thread and its worker both see.
#[derive(Debug, Default)]
struct Shared {
    pulse: Pulse,
    /// The worker does not wait for the thread any more: it is to do nothing more.
    is_given_up: AtomicBool,
}

impl Shared {
    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Start the thread. `sink` is called on it, for each event, and must not block.
    ///
    /// # Errors
    ///
    /// If the thread or the runtime cannot be started. All other errors are reported as events.
    pub fn start(
        config: WorkerConfig,
        sink: impl Fn(SupervisorEvent) + Send + Sync + 'static,
    ) -> io::Result<Worker> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let dispatch = config.dispatch.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let (ends, ended) = std_mpsc::channel();
        let thread =
            std::thread::Builder::new().name("supervisor".to_string()).spawn(move || {
                let _ends = ends;
                let dispatch = config.dispatch.clone();
                tracing::dispatcher::with_default(&dispatch, || {
                    let sink = Arc::new(sink);
                    let events = Arc::clone(&sink);
                    let events = Box::new(move |event| events(event));
                    let body = || runtime.block_on(run(config, &theirs, events, receiver));
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
                        sink(SupervisorEvent::Unusable { message: panicked(&*panic) });
                    }
                    // This ends the connection's reader task as well, so nothing outlives this
                    // thread.
                    drop(runtime);
                });
            })?;
        Ok(Worker { commands: Some(sender), thread: Some(thread), shared, ended, dispatch })
    }

    /// Obey the commands that were submitted, end the thread, and wait until it has ended.
    ///
    /// systemd units go on running and are found again by the next worker on the same directory.
    /// Child processes (`fork`) are killed, because nobody could learn how they end.
    pub fn stop(mut self) {
        self.end(STOP_WITHIN);
    }

    /// For how long the thread has been held up in one call.
    pub fn busy_for(&self) -> Duration {
        self.shared.pulse.busy_for()
    }

    fn say(&self, text: &str) {
        tracing::dispatcher::with_default(&self.dispatch, || tracing::error!("{text}"));
    }

    fn end(&mut self, within: Duration) {
        drop(self.commands.take());
        let Some(thread) = self.thread.take() else { return };
        // The thread sends nothing. Its end is that it cannot.
        if self.ended.recv_timeout(within) == Err(std_mpsc::RecvTimeoutError::Timeout) {
            self.shared.is_given_up.store(true, Ordering::Relaxed);
            keep_mapped();
            return self.say("the disk does not answer: the supervisor's thread is left behind");
        }
        if thread.join().is_err() {
            self.say("the supervisor's thread has panicked");
        }
    }
}

/// What to report when the thread has panicked, so that the supervisor does not merely look idle.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let reason = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown panic");
    format!("internal error in the supervisor: {reason}")
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end(STOP_WITHIN);
    }
}

impl Supervisor for Worker {
    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        let name = unit.clone();
        let sent = self.commands.as_ref().is_some_and(|to| to.send((unit, command)).is_ok());
        if !sent {
            self.say(&format!("command for {name} dropped: the supervisor's thread has ended"));
        }
    }
}

async fn run(config: WorkerConfig, shared: &Shared, sink: Sink, commands: Commands) {
    shared.pulse.begin();
    let open = HostDisk::open(&config.directory).and_then(|disk| {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok((disk, boot_id.trim().to_string(), OutputWatch::new(&config.directory)))
    });
    let (disk, boot_id, watch) = match open {
        Ok(open) => open,
        Err(e) => {
            let directory = config.directory.display();
            let message = format!("cannot use the state directory {directory}: {e}");
            return refuse_all(message, sink, commands).await;
        }
    };
    let core = Core::new(Arc::new(disk), boot_id, config.limits, sink);
    let systemd = match (config.method, &config.outer_job) {
        (ExecMethod::Fork, _) => Err(NoSystemd::NotWanted),
        (_, Some(job)) => Err(NoSystemd::InJob(job.clone())),
        (ExecMethod::Auto | ExecMethod::Systemd, None) => open_systemd(&config, &commands).await,
    };
    match (systemd, config.method) {
        (Ok(systemd), _) => {
            serve(core, systemd, (&config, shared), watch, None, commands).await;
        }
        (Err(e), ExecMethod::Systemd) => {
            refuse_all(e.message(), |event| core.report(event), commands).await;
        }
        // The module ends, and what waits is for the next one, not for a child that would be killed.
        (Err(NoSystemd::Unreachable(_)), _) if commands.is_closed() => {}
        (Err(e), ExecMethod::Auto | ExecMethod::Fork) => {
            let notice = Some(e.notice());
            serve(core, Fork::new(), (&config, shared), watch, notice, commands).await;
        }
    }
}

/// Whether there are records of an earlier life.
pub fn has_records(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|e| e == "record"))
}

/// How long the node has been up, in seconds. The time for which it was suspended counts: to others it
/// goes by as well. Timers run by the same clock, so that what they say can be compared.
pub fn uptime() -> f64 {
    // Each Linux that runs a broker has this clock.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0.0, |up| Duration::from(up).as_secs_f64())
}

/// Gives up as soon as nobody is left who could submit a command.
async fn open_systemd(config: &WorkerConfig, commands: &Commands) -> Result<Systemd, NoSystemd> {
    let until = Instant::now() + patience(config);
    loop {
        let opened = Systemd::open(SystemdConfig {
            address: config.bus_address.clone(),
            rank: config.rank,
            instance: config.instance.clone(),
            limits: config.limits,
            answer_within: config.answer_within,
            confines: config.confines,
        });
        match opened.await {
            Err(error) if error.may_pass() && Instant::now() < until && !commands.is_closed() => {
                // At boot this is as it should be. If it stays, the module says so.
                tracing::info!(%error, "cannot connect to systemd yet, trying again");
                tokio::time::sleep(SYSTEMD_PAUSE).await;
            }
            opened => return opened.map_err(NoSystemd::from),
        }
    }
}

fn patience(config: &WorkerConfig) -> Duration {
    let address = config.bus_address.as_deref();
    if is_standard(address) && has_user_manager() {
        MANAGER_PATIENCE
    } else if has_records(&config.directory) || manager_listens(address) {
        SYSTEMD_PATIENCE
    } else {
        Duration::ZERO
    }
}

async fn serve<B: BackendDriver>(
    mut core: Core,
    mut backend: B,
    (config, shared): (&WorkerConfig, &Shared),
    watch: OutputWatch,
    notice: Option<String>,
    mut commands: Commands,
) {
    if let Err(e) = core.recover(config.rank, &config.instance, &mut backend) {
        let message = format!("cannot read the records in {}: {e}", config.directory.display());
        return refuse_all(message, |event| core.report(event), commands).await;
    }
    let mut batch = Vec::with_capacity(COMMAND_BATCH_MAX);
    let settled = settle(&mut core, &mut backend, &mut commands, &mut batch);
    match tokio::time::timeout(SYSTEMD_PATIENCE, settled).await {
        Ok(true) => {}
        Ok(false) => return backend.close().await,
        Err(_) => {
            let seconds = SYSTEMD_PATIENCE.as_secs();
            let message = format!("systemd has not told its units within {seconds} s");
            backend.close().await;
            return refuse_all(message, |event| core.report(event), commands).await;
        }
    }
    core.report(SupervisorEvent::Ready { method: backend.method(), notice });
    for (unit, command) in batch.drain(..) {
        core.handle_command(&unit, command, &mut backend);
    }
    while !shared.is_given_up() {
        shared.pulse.begin();
        // Mostly it is the records that grew, by what was done just now.
        if let Some(grown) = watch.grown_already() {
            core.handle_growth(&grown, &mut backend);
        }
        shared.pulse.rest();
        backend.flush().await;
        tokio::select! {
            n = commands.recv_many(&mut batch, COMMAND_BATCH_MAX) => {
                if n == 0 {
                    break;
                }
                shared.pulse.begin();
                for (unit, command) in batch.drain(..).take_while(|_| !shared.is_given_up()) {
                    core.handle_command(&unit, command, &mut backend);
                }
            }
            event = backend.next() => {
                shared.pulse.begin();
                if let Some(event) = event {
                    core.handle_event(event, &mut backend);
                }
            }
            grown = watch.grown() => {
                shared.pulse.begin();
                core.handle_growth(&grown, &mut backend);
            }
            () = tokio::time::sleep(LATE_RETRY_PAUSE), if core.is_late() => {
                shared.pulse.begin();
                core.retry_late(&mut backend);
            }
        }
    }
    if !shared.is_given_up() {
        core.write_late(&mut backend);
    }
    backend.close().await;
}

/// Wait until all that is left of an earlier life was reported. Commands that come meanwhile are
/// kept. Returns false if the worker is to end.
async fn settle<B: BackendDriver>(
    core: &mut Core,
    backend: &mut B,
    commands: &mut Commands,
    early: &mut Vec<(UnitName, UnitCommand)>,
) -> bool {
    while !core.is_settled() {
        backend.flush().await;
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => early.push(command),
                None => return false,
            },
            event = backend.next() => {
                if let Some(event) = event {
                    core.handle_event(event, backend);
                }
            }
        }
    }
    true
}

/// Refuse commands that expect an answer, and drop the others.
async fn refuse_all(message: String, report: impl Fn(SupervisorEvent), mut commands: Commands) {
    report(SupervisorEvent::Unusable { message: message.clone() });
    while let Some((unit, command)) = commands.recv().await {
        match command {
            UnitCommand::Collect | UnitCommand::Launch(_) | UnitCommand::Signal { .. } => {
                let (errnum, message) = (Errno::ENXIO as i32, message.clone());
                report(UnitEvent::Failed(StartFailure { errnum, message }).of(&unit));
            }
            UnitCommand::Note(note) => {
                if let Some(answer) = UnitEvent::of_note(&note, false) {
                    report(answer.of(&unit));
                }
            }
            UnitCommand::Forget | UnitCommand::OutputAck { .. } => {
                tracing::debug!(%unit, "command dropped: {message}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use super::*;
    use crate::proto::JobId;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// [hang-left]
    #[test]
    fn a_thread_that_is_held_up_is_left_behind() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let (hold, held) = std_mpsc::channel::<()>();
        let (ends, ended) = std_mpsc::channel();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let _ends = ends;
            theirs.pulse.begin();
            // It hangs in a call until the test lets it go.
            let _ = held.recv();
            assert!(theirs.is_given_up());
        });
        let dispatch = tracing::Dispatch::new(subscriber);
        let mut worker = Worker { commands: None, thread: Some(thread), shared, ended, dispatch };
        worker.end(Duration::ZERO);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("left behind"), "{text}");
        drop(hold);
        // It has come to its end: nobody can send any more.
        assert_eq!(worker.ended.recv(), Err(std_mpsc::RecvError));
    }

    #[test]
    fn a_command_that_nobody_takes_is_said_to_be_lost() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let (commands, receiver) = mpsc::unbounded_channel();
        drop(receiver);
        let dispatch = tracing::Dispatch::new(subscriber);
        let (_, ended) = std_mpsc::channel();
        let shared = Arc::default();
        let mut worker = Worker { commands: Some(commands), thread: None, shared, ended, dispatch };
        let unit = UnitName::new(false, BrokerRank(0), JobId(1), InstanceId::new("/test", 1));
        worker.submit(unit.clone(), UnitCommand::Forget);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains(&format!("command for {unit} dropped")), "{text}");
    }

    #[test]
    fn the_uptime_is_the_one_that_the_kernel_shows() {
        let shown = || {
            let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
            text.split(' ').next().and_then(|up| up.parse::<f64>().ok()).expect("seconds")
        };
        let (before, up, after) = (shown(), uptime(), shown());
        // The kernel cuts off what is less than a hundredth.
        assert!(before <= up && up < after + 0.01, "{before} {up} {after}");
    }
}

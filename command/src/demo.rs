//! `job-exec-rs demo`

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::rc::Rc;

use clap::Args;
use job_exec_rs::config::Config;
use job_exec_rs::port::supervisor::Method as Started;
use job_exec_rs::proto::{Idset, InstanceId, UnitName};
use job_exec_rs_command::embedded::{
    Control, Happening, Instance, InstanceConfig, InstanceEvent, JobOutcome, JobRequest,
};

use super::console::{Console, Style};
use super::crash;
use super::failure::Failure;
use super::method::Method;
use super::own_systemd;
use super::signals::{INTERRUPTED, SignalThread};
use super::story;

/// Show what this is: a job that outlives a crash, and three small ones, in ten seconds
///
/// Runs a job in an instance that is a process of its own, without Flux, kills the instance with
/// SIGKILL, and starts it again: the same processes run on, and the job ends with its true status
/// and all output. Then an instance inside this process runs a job whose ranks end one after the
/// other, a job that fails, and one that is cancelled. At the end it looks for what they may have
/// left behind.
///
/// The crash needs a systemd --user. Where none answers and systemd is installed, this starts one
/// of its own for as long as it runs: as root, or where the user has a cgroup. Elsewhere one line
/// says what is missing, and the other jobs run as children of this process.
///
/// With --crash it stops after the crash, and exits with 1 where there can be none. With --flux as
/// well this happens to the brokers of a real Flux.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Ranks of the instance
    #[arg(short = 'N', long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=8))]
    nodes: u32,
    /// The crash alone
    #[arg(long, conflicts_with = "method")]
    crash: bool,
    /// With --crash: a real Flux, installed on this host, whose brokers are killed
    #[arg(long, requires = "crash")]
    flux: bool,
    /// How commands are started
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// In a systemd of its own
    #[arg(long, hide = true)]
    inside: bool,
}

/// Ends at a different time on each rank, a second apart.
const STAGGERED: &str =
    "echo \"rank $FLUX_TASK_RANK of $FLUX_JOB_SIZE\"; sleep $((FLUX_TASK_RANK + 1))";
/// Fails on the last rank.
const FAILING: &str = "test $FLUX_TASK_RANK -lt $((FLUX_JOB_SIZE - 1)) || exit 3";

/// What the demonstration notes while its jobs run.
#[derive(Default)]
struct Notes {
    method: Option<Started>,
    /// Units of the job that is being shown.
    current: BTreeMap<UnitName, u32>,
    /// Units of all jobs.
    all: BTreeMap<UnitName, u32>,
    /// The units of the job that is being shown are to be listed as soon as all run.
    list_units: bool,
    /// The job that is being shown is to be cancelled as soon as it runs.
    cancel: bool,
}

impl Notes {
    fn take(&mut self, event: &InstanceEvent, control: Option<&Control>) -> io::Result<()> {
        match &event.what {
            Happening::Ready { method, .. } => {
                self.method = Some(*method);
                let why = match method {
                    Started::Fork => "they end with this process",
                    Started::Systemd => {
                        "the user bus answers, and systemd is on it: commands would outlive \
                         this process"
                    }
                };
                writeln!(io::stdout(), "           {why}")?;
            }
            Happening::Submit { .. } => self.current.clear(),
            Happening::UnitStarted { unit, pid } => {
                self.current.insert(unit.clone(), *pid);
                self.all.insert(unit.clone(), *pid);
            }
            Happening::Start => {
                if let Some(method) = self.method.filter(|_| self.list_units) {
                    story::units(&mut io::stdout(), method, &self.current)?;
                }
                if let Some(control) = control.filter(|_| self.cancel) {
                    control.cancel(event.id, "the demonstration cancels it");
                }
            }
            _ => (), // the console shows the rest
        }
        Ok(())
    }
}

/// Tells the story.
pub(super) fn demo(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let ranks = arguments.nodes;
    if arguments.flux {
        return crash::flux(ranks);
    }
    if matches!(arguments.method, Method::Fork) {
        return small_jobs(ranks, Method::Fork);
    }
    if let Err(why) = crash::can_be(ranks) {
        if arguments.inside {
            return Err(why);
        }
        if let Some(ended) = own_systemd::run("job-exec-rs: no crash is shown:")? {
            return Ok(ended);
        }
        // `own_systemd` has said on stderr why there is none.
        if arguments.crash || matches!(arguments.method, Method::Systemd) {
            return Ok(ExitCode::FAILURE);
        }
        return small_jobs(ranks, Method::Fork);
    }
    crash::crash(ranks)?;
    if arguments.crash {
        line("\nWith Flux: job-exec-rs install")?;
        return Ok(ExitCode::SUCCESS);
    }
    small_jobs(ranks, Method::Systemd)
}

fn small_jobs(ranks: u32, method: Method) -> Result<ExitCode, Failure> {
    let config = InstanceConfig {
        ranks,
        config: Config { method: method.into(), ..Config::default() },
        statedir: None,
        adopt: false,
        bus_address: None,
        dispatch: tracing::dispatcher::get_default(Clone::clone),
    };
    let control: Rc<OnceCell<Control>> = Rc::default();
    let notes = RefCell::new(Notes::default());
    let style = Style { progress: true, label: ranks > 1, ranks, json: false };
    // All on stdout: one story, in one order.
    let mut console = Console::new(style, io::stdout(), io::stdout(), Rc::clone(&control));
    let observer = |event: &InstanceEvent| {
        console.show(event);
        // Without stdout the console has cancelled everything.
        let _ = notes.borrow_mut().take(event, control.get());
    };
    heading(
        "An instance in one process",
        &format!(
            "{ranks} ranks, each with the supervisor and the state machines that it has in a real \
         broker.\nOnly the network between them, the job manager and the KVS are stand-ins."
        ),
    )?;
    let mut instance = Instance::start(&config, observer).map_err(Failure::new)?;
    let _signals = SignalThread::of_instance(control.get_or_init(|| instance.control()).clone())?;
    let identity =
        InstanceId::new(&instance.statedir().to_string_lossy(), nix::unistd::getuid().as_raw());
    jobs(&mut instance, ranks, &notes)?;
    let left = instance.stop();
    let notes = notes.into_inner();
    ending(notes.method.unwrap_or(Started::Fork), &identity, &notes.all, &left)
}

fn jobs(instance: &mut Instance<'_>, ranks: u32, notes: &RefCell<Notes>) -> Result<(), Failure> {
    heading(
        "A job whose ranks end at different times",
        "Each rank is given back when nothing of the job is left on it. The last ranks go with\n\
         the final release, after the job's data is in the KVS.",
    )?;
    notes.borrow_mut().list_units = true;
    if is_interrupted(&run(instance, ranks, &["sh", "-c", STAGGERED])?) {
        return Ok(());
    }
    notes.borrow_mut().list_units = false;
    heading(
        "A job that fails",
        "One rank exits with 3. The largest wait status of all ranks is the job's.",
    )?;
    let outcome = run(instance, ranks, &["sh", "-c", FAILING])?;
    line(&format!("           flux run would exit with {}", outcome.exit_code()))?;
    if is_interrupted(&outcome) {
        return Ok(());
    }
    heading(
        "A job that is cancelled",
        "sleep 600 gets SIGTERM as soon as it runs; what does not end would get SIGKILL.",
    )?;
    notes.borrow_mut().cancel = true;
    run(instance, ranks, &["sleep", "600"])?;
    Ok(())
}

/// A signal to this process has ended the job. It ends the demonstration as well.
fn is_interrupted(outcome: &JobOutcome) -> bool {
    outcome.exceptions.iter().any(|exception| exception.note.starts_with(INTERRUPTED))
}

fn run(instance: &mut Instance<'_>, ranks: u32, command: &[&str]) -> Result<JobOutcome, Failure> {
    let command = command.iter().map(ToString::to_string).collect();
    let request = JobRequest { command, ranks: Idset::from_range(0..ranks), duration: 0.0 };
    let id = instance.submit(request).map_err(Failure::new)?;
    Ok(instance.wait(id))
}

fn ending(
    method: Started,
    identity: &InstanceId,
    pids: &BTreeMap<UnitName, u32>,
    left: &[UnitName],
) -> Result<ExitCode, Failure> {
    heading("What is left", &format!("{}:", story::question(method, identity)))?;
    let mut found = story::left_behind(method, identity, pids);
    found.extend(left.iter().map(|unit| format!("{unit}: its supervisor still knows it")));
    if found.is_empty() {
        line(&format!("  nothing, of {} units", pids.len()))?;
        line("\nWith Flux: job-exec-rs install")?;
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure(format!("left behind:\n  {}", found.join("\n  "))))
}

fn heading(heading: &str, text: &str) -> Result<(), Failure> {
    story::chapter(&mut io::stdout(), heading, text).map_err(|e| Failure(format!("stdout: {e}")))
}

fn line(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|e| Failure(format!("stdout: {e}")))
}

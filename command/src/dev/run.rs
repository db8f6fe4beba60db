//! `job-exec-rs-dev run`

use std::cell::OnceCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Args;
use job_exec_rs::config::Config;
use job_exec_rs::proto::{Idset, parse_fsd};
use job_exec_rs_command::embedded::{Instance, InstanceConfig, JobRequest};

use job_exec_rs_command::console::{Console, Style};
use job_exec_rs_command::failure::Failure;
use job_exec_rs_command::method::Method;
use job_exec_rs_command::signals::SignalThread;

/// Ranks of one instance: each has a thread, and systemd a connection, of its own.
const RANKS_MAX: i64 = 512;

/// Run a command, once on each rank of an instance inside this process
///
/// Its output is passed on; what happens to the job is told on stderr. The exit status is the
/// largest of all ranks: the exit code, or 128 and the signal; 126 or 127 if the command
/// cannot be executed or is not there. Ctrl-C cancels the job: SIGTERM, and SIGKILL for what
/// does not end; a second one kills it at once.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  job-exec-rs-dev run hostname
  job-exec-rs-dev run -N4 --label -- sh -c 'echo $FLUX_TASK_RANK of $FLUX_JOB_SIZE; exit 3'
  job-exec-rs-dev run -N2 -t 1.5m --method systemd ./simulate --steps 100
  job-exec-rs-dev run --json true | jq -r .name

The command finds FLUX_JOB_ID, FLUX_JOB_SIZE, FLUX_JOB_NNODES, FLUX_TASK_RANK and
FLUX_BROKER_RANK in its environment.")]
pub(super) struct Arguments {
    /// Ranks to run the command on
    #[arg(short = 'N', long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    nodes: u32,
    /// How the command is started
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// End the job after this time: N[ms|s|m|h|d]; 0 is no limit
    #[arg(short, long, value_name = "FSD", default_value = "0", value_parser = time_limit)]
    time_limit: f64,
    /// Wait this long between the signals of a cancel
    #[arg(long, value_name = "FSD", default_value = "5s", value_parser = kill_timeout)]
    kill_timeout: f64,
    /// Put the rank before each line of output
    #[arg(short, long)]
    label: bool,
    /// Write every event as a JSON object, one on a line, and nothing else
    #[arg(long)]
    json: bool,
    /// Say nothing about the job
    #[arg(short, long)]
    quiet: bool,
    /// Keep records and event logs in this directory, instead of a temporary one
    #[arg(long, value_name = "DIR")]
    statedir: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

fn time_limit(text: &str) -> Result<f64, String> {
    let seconds = parse_fsd(text).map_err(|e| e.to_string())?;
    Ok(if seconds.is_finite() { seconds } else { 0.0 })
}

fn kill_timeout(text: &str) -> Result<f64, String> {
    match parse_fsd(text).map_err(|e| e.to_string())? {
        seconds if seconds > 0.0 && seconds.is_finite() => Ok(seconds),
        _ => Err("expected more than 0, and an end".to_string()),
    }
}

/// Runs the job and ends as it did.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let style = Style {
        json: arguments.json,
        label: arguments.label && arguments.nodes > 1,
        progress: !arguments.quiet,
        ranks: arguments.nodes,
    };
    let config = InstanceConfig {
        ranks: arguments.nodes,
        config: Config {
            method: arguments.method.into(),
            kill_timeout: arguments.kill_timeout,
            ..Config::default()
        },
        statedir: arguments.statedir.clone(),
        adopt: false,
        bus_address: None,
        dispatch: tracing::dispatcher::get_default(Clone::clone),
    };
    let control = Rc::new(OnceCell::new());
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let mut console = Console::new(style, stdout, stderr, Rc::clone(&control));
    let mut instance =
        Instance::start(&config, |event| console.show(event)).map_err(Failure::new)?;
    let control = control.get_or_init(|| instance.control());
    let _signals = SignalThread::of_instance(control.clone())?;
    let request = JobRequest {
        command: arguments.command.clone(),
        ranks: Idset::from_range(0..arguments.nodes),
        duration: arguments.time_limit,
    };
    let id = instance.submit(request).map_err(Failure::new)?;
    let outcome = instance.wait(id);
    let left = instance.stop();
    if left.is_empty() {
        return Ok(ExitCode::from(outcome.exit_code()));
    }
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    Err(Failure(format!("not ended: {}", left.join(", "))))
}

//! One life of the instance that the demonstration kills. It is a process of its own, which tells
//! what happens as JSON on its stdout.

use std::cell::OnceCell;
use std::io::{self, BufRead, BufReader, Lines};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::rc::Rc;

use clap::Args;
use job_exec_rs::config::Config;
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::Idset;
use job_exec_rs_command::embedded::{Control, Instance, InstanceConfig, JobRequest};
use serde_json::Value;

use super::console::{Console, Style};
use super::failure::Failure;
use super::interrupts::Interrupts;

/// One life of the instance of the demonstration
///
/// It goes on with the jobs that an earlier life has left in the directory, and ends when all jobs
/// have ended. It cancels them when its stdin is closed.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Where records, output and the KVS are
    statedir: PathBuf,
    /// Ranks of the instance
    ranks: u32,
    /// The command of a new job
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// The configuration of each life.
pub(super) fn config(statedir: &Path, ranks: u32, adopt: bool) -> InstanceConfig {
    InstanceConfig {
        ranks,
        config: Config { method: ExecMethod::Systemd.into(), ..Config::default() },
        statedir: Some(statedir.to_path_buf()),
        adopt,
        bus_address: None,
        dispatch: tracing::dispatcher::get_default(Clone::clone),
    }
}

/// Lives.
pub(super) fn live(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let config = config(&arguments.statedir, arguments.ranks, true);
    let control = Rc::new(OnceCell::new());
    let style = Style { json: true, ranks: arguments.ranks, ..Style::default() };
    let mut console = Console::new(style, io::stdout(), io::stderr(), Rc::clone(&control));
    let mut instance =
        Instance::start(&config, |event| console.show(event)).map_err(Failure::new)?;
    cancel_at_end_of_stdin(control.get_or_init(|| instance.control()).clone())?;
    if !arguments.command.is_empty() {
        let ranks = Idset::from_range(0..arguments.ranks);
        let request = JobRequest { command: arguments.command.clone(), ranks, duration: 0.0 };
        instance.submit(request).map_err(Failure::new)?;
    }
    for id in instance.jobs() {
        instance.wait(id);
    }
    let left = instance.stop();
    if left.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    Err(Failure(format!("could not be ended: {}", left.join(", "))))
}

/// The parent holds the other end. So it is closed also when the parent dies.
fn cancel_at_end_of_stdin(control: Control) -> Result<(), Failure> {
    let wait = move || {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        control.cancel(None, "the demonstration has ended");
    };
    let thread = std::thread::Builder::new().name("stdin".to_string()).spawn(wait);
    thread.map(drop).map_err(Failure::new)
}

/// A life, seen from the parent.
pub(super) struct Life<'a> {
    child: Child,
    events: Option<Lines<BufReader<ChildStdout>>>,
    interrupts: &'a Interrupts,
}

impl<'a> Life<'a> {
    /// Begins a life. With a `command` it submits a job.
    pub(super) fn begin(
        statedir: &Path,
        ranks: u32,
        command: &[&str],
        interrupts: &'a Interrupts,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::new)?;
        let mut child = Command::new(program)
            .arg("demo-life")
            .arg(statedir)
            .arg(ranks.to_string())
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the parent: this one is killed, or told by its stdin.
            .process_group(0)
            .spawn()
            .map_err(Failure::new)?;
        interrupts.keep_open(child.stdin.take());
        let events = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Ok(Self { child, events, interrupts })
    }

    /// The process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next event, as [`job_exec_rs_command::embedded::InstanceEvent::to_json`] gives it.
    /// `None` when the life has ended.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Failure> {
        let line = self.events.as_mut().and_then(Iterator::next).transpose();
        let Some(line) = line.map_err(Failure::new)? else { return Ok(None) };
        // A life that is killed while it writes leaves half of a line.
        Ok(serde_json::from_str(&line).ok())
    }

    /// Kills it with SIGKILL. What it has told before can still be read.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill().map_err(Failure::new)?;
        self.child.wait().map(drop).map_err(Failure::new)
    }

    /// Waits for its end, and says whether all was well.
    pub(super) fn end(mut self) -> Result<bool, Failure> {
        self.child.wait().map(|status| status.success()).map_err(Failure::new)
    }
}

impl Drop for Life<'_> {
    /// A life that the story has no use for any more cancels its job, and ends.
    fn drop(&mut self) {
        self.interrupts.close();
        self.events = None;
        // It was waited for before, or it ends now.
        let _ = self.child.wait();
    }
}

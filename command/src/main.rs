//! The command line tool: its arguments, and which module carries out which command.

mod broker;
mod crash;
mod degraded;
mod demo;
mod doctor;
mod flux_paths;
mod freeze;
mod install;
mod interrupts;
mod life;
mod logs;
mod manual;
mod metrics;
mod out;
mod own_systemd;
mod paint;
mod perilog;
mod processes;
mod programs;
mod reach;
mod running;
mod site;
mod stats;
mod status;
mod story;
mod table;
mod units;
mod usage;
mod why;

use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use job_exec_rs_command::{console, failure, log, method, signals};

/// A job execution service for Flux: jobs as systemd units, that outlive their brokers.
///
/// The service itself is a broker module; `install` puts it where Flux finds it. `demo` shows,
/// without Flux, what it does.
#[derive(Debug, Parser)]
#[command(name = "job-exec-rs", version = job_exec_rs::BUILD, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    /// Say more on stderr: -v what happens, -vv everything (RUST_LOG overrides it)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  job-exec-rs demo                           a job that outlives a kill -9, and what else it does
  job-exec-rs demo --crash --flux            the same with the brokers of a real Flux
  sudo -u flux job-exec-rs doctor --all      is every node fit
  sudo job-exec-rs install                   let Flux load the module from its next start on";

#[derive(Debug, Subcommand)]
enum Command {
    Degraded(degraded::Arguments),
    Demo(demo::Arguments),
    Doctor(doctor::Arguments),
    #[command(hide = true)]
    DemoLife(life::Arguments),
    /// Freeze a job: its processes stand still until thaw
    ///
    /// For the instance owner. On each rank where a shell of the job runs, systemd freezes the job's slice.
    /// The shell, its tasks and all that they have started get no CPU any more. They keep their memory, their
    /// files and their connections. Prologs and epilogs are not frozen.
    ///
    /// The job's time limit goes on. So do the timeouts of Flux, of MPI, and of those that talk to the job. The
    /// service itself knows nothing of the freeze: it outlives modules and brokers, and ends by thaw alone.
    ///
    /// A frozen job that is cancelled ends. A process that handles SIGTERM, as the shell does, gets it only after
    /// thaw. SIGKILL ends it while it is frozen: with the default kill-timeout that is after 25 s. The IMP of
    /// another user's job is frozen as well, and kills nothing: such a job ends when it is thawed, or by the
    /// kernel's kill at the end of the escalation.
    ///
    /// The exit status is 1 if a rank does not answer, or has no slice of the job (exec.usage is false, or the
    /// method is fork), or if systemd refuses. What is frozen elsewhere stays frozen.
    #[command(after_help = "\
Examples:
  job-exec-rs freeze f2XyZ
  job-exec-rs units --all -no '{rank} {state}' f2XyZ   is it frozen everywhere
  job-exec-rs thaw f2XyZ")]
    Freeze(freeze::Arguments),
    Install(install::Arguments),
    Logs(logs::Arguments),
    Metrics(metrics::Arguments),
    Perilog(perilog::Arguments),
    Status(status::Arguments),
    /// Let a frozen job go on
    ///
    /// For the instance owner. On each rank where a shell of the job runs, systemd thaws the job's slice. A job
    /// that is not frozen is none the worse for it. The exit status is that of freeze.
    Thaw(freeze::Arguments),
    Uninstall(install::UninstallArguments),
    Units(units::Arguments),
    Usage(usage::Arguments),
    Why(why::Arguments),
}

/// From arguments to exit status: 0, or 1 after an error.
fn main() -> ExitCode {
    let cli = Cli::parse();
    log::to_stderr(cli.verbose);
    let result = match cli.command {
        Command::Degraded(arguments) => degraded::degraded(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Doctor(arguments) => Ok(doctor::doctor(&arguments)),
        Command::DemoLife(arguments) => life::live(&arguments),
        Command::Freeze(arguments) => freeze::carry_out(&arguments, ("freeze", "frozen")),
        Command::Install(arguments) => install::install(&arguments, &Cli::command()),
        Command::Logs(arguments) => logs::logs(&arguments),
        Command::Metrics(arguments) => metrics::metrics(&arguments),
        Command::Perilog(arguments) => perilog::perilog(&arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Thaw(arguments) => freeze::carry_out(&arguments, ("thaw", "thawed")),
        Command::Uninstall(arguments) => install::uninstall(&arguments, &Cli::command()),
        Command::Units(arguments) => units::units(&arguments),
        Command::Usage(arguments) => usage::usage(&arguments),
        Command::Why(arguments) => why::why(&arguments),
    };
    result.unwrap_or_else(|failure| failure.end("job-exec-rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}

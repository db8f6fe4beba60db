//! The command line tool: its arguments, and which module carries out which command.

mod broker;
mod crash;
mod degraded;
mod demo;
mod doctor;
mod flux_paths;
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
    Install(install::Arguments),
    Logs(logs::Arguments),
    Metrics(metrics::Arguments),
    Perilog(perilog::Arguments),
    Status(status::Arguments),
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
        Command::Install(arguments) => install::install(&arguments, &Cli::command()),
        Command::Logs(arguments) => logs::logs(&arguments),
        Command::Metrics(arguments) => metrics::metrics(&arguments),
        Command::Perilog(arguments) => perilog::perilog(&arguments),
        Command::Status(arguments) => status::status(&arguments),
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

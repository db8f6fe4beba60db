//! `job-exec-rs-dev`: what developers of the service use. No package installs it.

mod run;
mod sim;

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use job_exec_rs_command::log;

/// For developers of job-exec-rs: the simulator, and commands run with the machinery of the service
/// inside this process, without Flux.
#[derive(Debug, Parser)]
#[command(name = "job-exec-rs-dev", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    /// Say more on stderr: -v what happens, -vv everything (RUST_LOG overrides it)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  job-exec-rs-dev run -N4 --label hostname       one command on four ranks of this host
  job-exec-rs-dev run -t 10s -- make check       end it after ten seconds
  job-exec-rs-dev sim --seeds 2000 --coverage    the simulated world, from 2000 seeds";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Sim(sim::Arguments),
}

/// From arguments to exit status: that of the job for `run`, else 0, or 1 after an error.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(arguments) => {
            log::to_stderr(cli.verbose);
            run::run(&arguments)
        }
        // Errors that simulated supervisors log are expected.
        Command::Sim(arguments) => sim::sim(&arguments),
    };
    result.unwrap_or_else(|failure| failure.end("job-exec-rs-dev"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}

//! Log lines of programs.

use tracing_subscriber::EnvFilter;

/// Has the service log to stderr, the more the larger `verbose`. `RUST_LOG` overrides it.
pub fn to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "job_exec_rs=info",
        2.. => "job_exec_rs=trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
}

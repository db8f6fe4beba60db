//! `job-exec-rs degraded`: a prolog marks its node.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use job_exec_rs::proto::{DegradedNode, JobId};
use serde_json::json;

use super::broker;
use super::failure::Failure;

/// How long a broker, or its module, may be away. A site's unit starts a broker again after 30 s
/// (flux-core `etc/flux.service.in`).
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two tries. A broker that is away says nothing when it is back.
const PAUSE: Duration = Duration::from_secs(1);

/// In a prolog: say that this node is degraded, and let the job decide whether it starts
///
/// A job that tolerates so many degraded nodes starts (--setattr=exec.prolog-tolerance=N, up to
/// exec.perilog.max-tolerance), and is told which they are. Any other job fails. The node is drained
/// in both cases. The mark is kept when this command has ended with status 0; the prolog has to end
/// with status 0, too. With several reasons, use it several times.
///
/// An IMP gives scripts the PATH /usr/sbin:/usr/bin:/sbin:/bin: if Flux is elsewhere, name this command
/// with its directory. Root needs access.allow-root-owner or access.allow-guest-user in the configuration
/// of the broker.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  mountpoint -q /scratch || job-exec-rs degraded --reason 'no /scratch' || exit 1")]
pub(super) struct Arguments {
    /// What is wrong with the node, in one line
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The job, if it is not that of the prolog
    #[arg(value_name = "JOBID", env = "FLUX_JOB_ID")]
    job: JobId,
}

pub(super) fn degraded(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let degraded = DegradedNode { id: arguments.job, reason: arguments.reason.clone() };
    let payload = json!(degraded).to_string();
    let until = Instant::now() + PATIENCE;
    loop {
        match ask(&payload) {
            Ok(()) => return Ok(ExitCode::SUCCESS),
            Err(Trouble { is_away: true, .. }) if Instant::now() < until => thread::sleep(PAUSE),
            Err(Trouble { failure, .. }) => return Err(failure),
        }
    }
}

struct Trouble {
    failure: Failure,
    /// The broker, or its module, is being started again.
    is_away: bool,
}

/// Each try has a connection of its own: that of a broker that has ended is of no use. The request
/// names this rank, because the broker would pass one without a rank up the tree while the module is
/// away, and there it would mark another node.
fn ask(payload: &str) -> Result<(), Trouble> {
    let has_uri = std::env::var_os("FLUX_URI").is_some();
    let trouble =
        |away: &[i32], errnum, failure| Trouble { is_away: away.contains(&errnum), failure };
    let lost = [libc::ECONNRESET, libc::EPIPE];
    let absent: &[i32] = if has_uri { &[libc::ECONNREFUSED, libc::ENOENT] } else { &[] };
    let flux =
        broker::connect().map_err(|error| trouble(absent, error.errnum(), Failure::new(error)))?;
    let rank = flux.rank().map_err(|error| trouble(&lost, error.errnum(), Failure::new(error)))?;
    let away = [libc::EAGAIN, libc::ECONNRESET, libc::EHOSTUNREACH, libc::ENOSYS, libc::EPIPE];
    let asked = flux.ask_rank(rank, "job-exec.degraded", payload).map(drop);
    asked.map_err(|error| trouble(&away, error.errnum, Failure::new(error)))
}

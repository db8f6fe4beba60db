//! How a job's shells are run (flux-core `exec_cmd.c`).

use std::collections::BTreeMap;

use crate::config;
use crate::machine::context::Context;
use crate::proto::peer::ShellCommand;
use crate::proto::{
    ExecMethod, JobDigest, JobId, Jobspec, JobspecError, Place, Scripts, StartRequest, WallTime,
};

/// Why this configuration cannot run a job, for the job's owner.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum CannotRun {
    /// R has a time limit before 1970.
    #[error("Invalid resource set expiration {0:.2}")]
    Expiration(WallTime),
    /// The job is a guest's, and its method was chosen.
    #[error("guests may not choose system.exec.method (it asks for {0})")]
    GuestMethod(ExecMethod),
    /// The job is a guest's, and is to be mocked.
    #[error("guests may not use test exec implementation (exec.testexec.allow-guests is not set)")]
    GuestTest,
    /// The user's own settings are wrong.
    #[error(transparent)]
    Jobspec(#[from] JobspecError),
    /// The instance is configured to use what there is not.
    #[error("exec.service '{0}' cannot start job shells (expected rexec or sdexec)")]
    Service(String),
    /// The job is a guest's.
    #[error("unable run multiuser job with no IMP configured! (exec.imp is not set)")]
    NoImp,
}

/// What the user wants, and the command for every shell of the job.
///
/// # Errors
/// When this configuration cannot run the job.
pub(super) fn check(
    cx: Context,
    start: &StartRequest,
) -> Result<(Jobspec, ShellCommand), CannotRun> {
    let jobspec = start.jobspec.clone()?;
    let expiration = start.r.expiration();
    if expiration < WallTime::UNSET {
        return Err(CannotRun::Expiration(expiration));
    }
    let is_guests = start.userid != cx.facts.owner;
    if let Some(method) = jobspec.method.filter(|_| is_guests) {
        return Err(CannotRun::GuestMethod(method));
    }
    if jobspec.test.is_some() {
        let command = adopting_command(cx, start);
        if is_guests && !cx.config.testexec_allow_guests {
            return Err(CannotRun::GuestTest);
        }
        return Ok((jobspec, command));
    }
    if let Some(service) = cx.config.unknown_service() {
        return Err(CannotRun::Service(service.to_string()));
    }
    let command = shell_command(cx, start, &jobspec)?;
    Ok((jobspec, command))
}

fn shell_command(
    cx: Context,
    start: &StartRequest,
    jobspec: &Jobspec,
) -> Result<ShellCommand, CannotRun> {
    let found = adopting_command(cx, start);
    let mut environment = BTreeMap::new();
    environment.insert("FLUX_KVS_NAMESPACE".to_string(), start.id.namespace());
    let mut argv = Vec::new();
    if found.multiuser {
        let imp = cx.config.imp.as_ref().ok_or(CannotRun::NoImp)?;
        argv.extend([imp.clone(), "exec".to_string()]);
        environment.insert("FLUX_IMP_EXEC_HELPER".to_string(), helper(cx, start.id));
    }
    let shell = jobspec.job_shell.as_ref().or(cx.config.job_shell.as_ref());
    argv.push(shell.unwrap_or(&cx.facts.job_shell).clone());
    argv.push(start.id.0.to_string());
    Ok(ShellCommand {
        method: jobspec.method.unwrap_or_default(),
        argv,
        environment,
        properties: cx.config.properties.clone(),
        resources: cx.facts.confines.then(|| start.r.clone()),
        // The IMP ends what its shell has left behind. systemd has not the rights to.
        stop_timeout: (!found.multiuser).then_some(cx.config.kill_timeout),
        ..found
    })
}

/// The command that tells the IMP what to run (RFC 15; flux-core `imp_exec_helper.c`). In a unit it
/// also looks the unit's device policy up, with the module sdbus, so that the IMP can put it into
/// force. Where no such policy is configured it need not, and sdbus need not be loaded.
fn helper(cx: Context, id: JobId) -> String {
    let is_policy = |name: &String| name.starts_with("Device");
    let has_policy = cx.facts.confines || cx.config.properties.keys().any(is_policy);
    let command = format!("flux imp_exec_helper {}", id.0);
    if has_policy { command } else { format!("env -u INVOCATION_ID {command}") }
}

/// A command for a leader that only looks for shells: nothing can be started with it.
pub(super) fn adopting_command(cx: Context, start: &StartRequest) -> ShellCommand {
    ShellCommand {
        userid: start.userid,
        size: u32::try_from(start.r.len()).unwrap_or(u32::MAX),
        multiuser: start.userid != cx.facts.owner,
        digest: JobDigest::new(start.id, start.userid, &start.r),
        method: ExecMethod::Auto,
        argv: Vec::new(),
        environment: BTreeMap::new(),
        properties: BTreeMap::new(),
        resources: None,
        allocated: Some(start.r.starttime()).filter(|time| *time > WallTime::UNSET),
        scripts: scripts(cx, start),
        stop_timeout: None,
    }
}

/// Which scripts the job gets. A mocked one has none.
fn scripts(cx: Context, start: &StartRequest) -> Option<Scripts> {
    let is_mocked = start.jobspec.as_ref().is_ok_and(|jobspec| jobspec.test.is_some());
    let perilog = cx.config.perilog.as_ref().filter(|_| !is_mocked)?;
    let place = |script: &config::ScriptConfig| match script.per_rank {
        true => Place::EachRank,
        false => Place::FirstRank,
    };
    Some(Scripts {
        ranks: start.r.ranks().clone(),
        prolog: perilog.prolog.as_ref().map(place),
        epilog: perilog.epilog.as_ref().map(place),
        epilogs_together: perilog.epilogs_together,
    })
}

/// The component name in `log` events: what was run.
pub(super) fn component(command: &ShellCommand) -> &str {
    command.argv.first().and_then(|path| path.rsplit('/').next()).unwrap_or("shell")
}

//! From a leader's command to the unit of this rank.

use std::time::Duration;

use crate::machine::context::{Context, Facts};
use crate::port::supervisor::UnitSpec;
use crate::proto::peer::ShellsRequest;
use crate::proto::{BrokerRank, JobId, Stream, UnitName};

/// How much of this rank's output the leader has.
pub(super) fn positions(request: &ShellsRequest, rank: BrokerRank) -> [u64; 2] {
    [Stream::Stdout, Stream::Stderr].map(|stream| {
        let position = request.output.iter().find(|p| p.rank == rank && p.stream == stream);
        position.map_or(0, |p| p.offset)
    })
}

/// All that the supervisor needs to start the shell.
pub(super) fn unit_spec(cx: Context, id: JobId, request: &ShellsRequest) -> UnitSpec {
    let (facts, command) = (cx.facts, &request.command);
    let mut environment = command.environment.clone();
    if !facts.shell_uri.is_empty() {
        environment.insert("FLUX_URI".to_string(), shell_uri(facts, id, request));
    }
    UnitSpec {
        unit: UnitName::new(command.multiuser, facts.rank, id, facts.instance.clone()),
        job: id,
        rank: facts.rank,
        digest: command.digest.clone(),
        userid: command.userid,
        size: command.size,
        method: command.method,
        multiuser: command.multiuser,
        scripts: command.scripts.clone(),
        began: None,
        shell_failed: None,
        end_reason: None,
        description: format!("User workload for Flux job {}", id.f58plain()),
        argv: command.argv.clone(),
        environment,
        unset_environment: Vec::new(),
        working_directory: facts.working_directory.clone(),
        properties: command.properties.clone(),
        resources: command.resources.clone(),
        measured: cx.config.usage,
        stop_timeout: command.stop_timeout.map(Duration::from_secs_f64),
    }
}

/// The connector has to know which of the job's runs it belongs to, and whom to ask about the job
/// (`rfc/0010-connector.md`, 10.4; [info-above]).
fn shell_uri(facts: &Facts, id: JobId, request: &ShellsRequest) -> String {
    let uri = &facts.shell_uri;
    if !facts.has_connector() {
        return uri.clone();
    }
    let mark = if uri.contains('?') { '&' } else { '?' };
    let (digest, info) = (request.command.digest.as_str(), request.parent.0);
    format!("{uri}{mark}run={}-{digest}&info={info}", id.0)
}

//! The agent of one job on one rank: its shell, and the subtree of ranks below it.
//!
//! A parent answers for its children: their reports go up with its own, in one message when
//! the whole subtree has reached the same stage, else after [`GATHER_SECONDS`].

use std::collections::BTreeMap;

use crate::machine::agent::eviction::Eviction;
use crate::machine::agent::shell::Shell;
use crate::machine::effect::{Effect, Effects, Role, StreamItem};
use crate::machine::event::{Credential, Fault, RequestId, StreamId};
use crate::machine::tree;
use crate::machine::{Context, Facts};
use crate::planted::Bug;
use crate::port::supervisor::{UnitCommand, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::peer::{
    Mode, Order, OrderRequest, Question, RankReport, Report, Reports, ShellCommand, ShellsRequest,
    StreamEnd,
};
use crate::proto::{BrokerRank, Idset, JobDigest, JobId, Stream, UnitName};
use fence::Fence;

mod eviction;
mod fence;
mod output;
pub(in crate::machine) mod shell;

/// How often an agent makes sure that its parent still has the job, in seconds. Each rank is
/// asked by its children only, so the cost does not grow with the job.
const PROBE_SECONDS: f64 = 300.0;

/// How long reports wait for those of the rest of the subtree, in seconds.
const GATHER_SECONDS: f64 = 0.01;

/// A subtree below this agent.
#[derive(Clone, Debug, PartialEq)]
struct Child {
    root: BrokerRank,
    ranks: Idset,
}

/// One job on this rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Agent {
    id: JobId,
    userid: u32,
    upstream: Option<RequestId>,
    /// Who waits at the other end of it.
    parent: BrokerRank,
    /// The newest leader's generation.
    generation: u64,
    /// It was told that the job is over.
    over: bool,
    digest: JobDigest,
    ranks: Idset,
    children: BTreeMap<StreamId, Child>,
    shell: Option<Shell>,
    outbox: Vec<RankReport>,
    /// How far each rank of the subtree is, to see when all are at the same stage.
    stages: BTreeMap<BrokerRank, u8>,
    /// A rank has reached a later stage since the last message.
    advanced: bool,
    send_at: Option<f64>,
    /// When to ask rank 0 about a job that nobody leads.
    ask_at: Option<f64>,
    /// What to start once more if the supervisor finds that an earlier life never did.
    unstarted: Option<Box<UnitSpec>>,
    /// This leader was told that nothing of the job is here: it may have given the rank back.
    denied: Option<u64>,
    /// A request that came late, until its leader has confirmed it.
    late: Option<(RequestId, Box<ShellsRequest>)>,
    /// The shell is of another job that had the same id.
    fence: Option<Fence>,
    /// The shell is being ended, because nobody wants it.
    eviction: Option<Eviction>,
}

impl Agent {
    /// A job that was never heard of on this rank.
    pub(super) fn new(id: JobId, userid: u32) -> Self {
        Self {
            id,
            userid,
            upstream: None,
            parent: BrokerRank(0),
            generation: 0,
            over: false,
            digest: JobDigest::default(),
            ranks: Idset::new(),
            children: BTreeMap::new(),
            shell: None,
            outbox: Vec::new(),
            stages: BTreeMap::new(),
            advanced: false,
            send_at: None,
            ask_at: None,
            unstarted: None,
            denied: None,
            late: None,
            fence: None,
            eviction: None,
        }
    }

    /// A job whose shell was found on disk.
    pub(super) fn found(cx: Context, record: &UnitRecord) -> Self {
        let mut agent = Self::new(record.spec.job, record.spec.userid);
        agent.digest = record.spec.digest.as_str().into();
        agent.shell = Some(Shell::found(record));
        agent.ask_at = Some(cx.now.mono + cx.config.peer_timeout);
        agent
    }

    /// The job is in this rank's hands: somebody above wants its reports.
    pub(super) fn is_led(&self) -> bool {
        self.upstream.is_some()
    }

    /// Nobody listens to this request any more.
    pub(super) fn disconnected(&mut self, cx: Context, request: RequestId, out: &mut Effects) {
        if self.late.take_if(|(to, _)| *to == request).is_some() {
            out.push(Effect::Drop { to: request });
        }
        if self.upstream == Some(request) {
            self.upstream = None;
            self.ask_at = Some(cx.now.mono + cx.config.peer_timeout);
            out.push(Effect::Drop { to: request });
        }
    }

    /// Rank 0 has said whether the job manager has this job running. If it has, a leader will
    /// come; if not, nobody will ever end the shell but this agent. Or a parent has said
    /// whether it still has the job.
    pub(super) fn known(
        &mut self,
        cx: Context,
        question: Question,
        result: Result<bool, Fault>,
        out: &mut Effects,
    ) {
        if let Question::Leader { generation } = question {
            return self.confirmed(cx, generation, result == Ok(true), out);
        }
        let parent = question == Question::Parent;
        if parent != self.upstream.is_some() {
            // Asked before it was led, or before it was not: the answer says nothing now.
            self.ask_at.get_or_insert(cx.now.mono + cx.config.peer_timeout);
            return;
        }
        if parent {
            if result == Ok(true) {
                self.ask_at = Some(cx.now.mono + PROBE_SECONDS);
                return;
            }
            // Its broker has died, and nobody told us. Rank 0 is asked next.
            if let Some(to) = self.upstream.take() {
                out.end(to, StreamEnd::ParentGone);
            }
            self.ask_at = Some(cx.now.mono + cx.config.peer_timeout);
            return;
        }
        if result != Ok(false) {
            self.ask_at = Some(cx.now.mono + cx.config.peer_timeout);
            return;
        }
        if self.shell.is_none() {
            self.children.clear();
        }
        self.evict(cx, "the job manager does not have this job running", out);
        self.disown();
    }

    pub(super) fn may_be_asked_by(&self, credential: Credential) -> bool {
        credential.may_act_for(self.userid)
    }

    /// For [`super::Position`].
    pub(super) fn state_name(&self) -> &'static str {
        self.shell.as_ref().map_or("none", Shell::state_name)
    }

    pub(super) fn shell(&self) -> Option<&Shell> {
        self.shell.as_ref()
    }

    pub(super) fn next_timeout(&self) -> Option<f64> {
        let evict_at = self.eviction.as_ref().map(Eviction::next_timeout);
        [self.send_at, self.ask_at, evict_at].into_iter().flatten().reduce(f64::min)
    }

    /// Takes a new leader (or parent): start what may be started, and tell it everything. An old
    /// one, if there still is one, hears that it has been replaced.
    pub(super) fn shells(
        &mut self,
        cx: Context,
        to: RequestId,
        request: ShellsRequest,
        out: &mut Effects,
    ) {
        if request.command.digest != self.digest {
            // What was said of another job with this id says nothing of this one.
            (self.generation, self.denied) = (0, None);
        }
        if self.is_stale(request.generation) {
            return out.end(to, StreamEnd::superseded("another leader has taken over"));
        }
        if is_late(cx, &request) {
            return self.confirm(to, request, out);
        }
        self.take(cx, to, request, out);
    }

    /// A request to start shells that was long on its way: does its leader still lead? Also asked
    /// where clocks differ, at the cost of a round trip.
    fn confirm(&mut self, to: RequestId, request: ShellsRequest, out: &mut Effects) {
        let question = Question::Leader { generation: request.generation };
        out.push(Effect::Known {
            to: request.leader,
            question,
            asker: Role::Agent,
            id: self.id,
            digest: request.command.digest.clone(),
        });
        if let Some((to, _)) = self.late.replace((to, Box::new(request))) {
            out.end(to, StreamEnd::AskedAgain);
        }
    }

    fn confirmed(&mut self, cx: Context, generation: u64, leads: bool, out: &mut Effects) {
        let asked = |late: &mut (RequestId, Box<ShellsRequest>)| late.1.generation == generation;
        let Some((to, request)) = self.late.take_if(asked) else { return };
        if leads && !self.is_stale(generation) {
            return self.take(cx, to, *request, out);
        }
        out.end(to, StreamEnd::superseded("its leader does not lead the job any more"));
    }

    fn take(&mut self, cx: Context, to: RequestId, request: ShellsRequest, out: &mut Effects) {
        if let Some((to, _)) = self.late.take() {
            out.end(to, StreamEnd::AskedAgain);
        }
        if let Some(old) = self.upstream.replace(to) {
            let end = if request.generation > self.generation {
                StreamEnd::superseded("another leader has taken over")
            } else {
                StreamEnd::AskedAgain
            };
            out.end(old, end);
        }
        self.generation = self.generation.max(request.generation);
        self.parent = request.parent;
        self.digest.clone_from(&request.command.digest);
        // An id that was issued again can be another user's job.
        self.userid = request.command.userid;
        self.ask_at = Some(cx.now.mono + PROBE_SECONDS);
        self.fence = None;
        self.outbox.clear();
        self.stages.clear();
        self.children.clear();
        self.ranks = request.ranks.clone();
        self.own_shell(cx, &request, out);
        let mut below = request.ranks.clone();
        below.remove(cx.facts.rank.0);
        for (root, ranks) in tree::split(&below, request.arity) {
            let stream = out.stream();
            let output = request.output.iter().filter(|p| ranks.contains_rank(p.rank));
            out.push(Effect::Shells {
                role: Role::Agent,
                stream,
                to: root,
                request: Box::new(ShellsRequest {
                    parent: cx.facts.rank,
                    ranks: ranks.clone(),
                    output: output.copied().collect(),
                    ..request.clone()
                }),
            });
            self.children.insert(stream, Child { root, ranks });
        }
        self.send_if_complete(cx, out);
    }

    fn own_shell(&mut self, cx: Context, request: &ShellsRequest, out: &mut Effects) {
        if !request.ranks.contains_rank(cx.facts.rank) {
            return;
        }
        let digest = &request.command.digest;
        let has_denied = self.has_denied(request.generation);
        let reports = match &mut self.shell {
            Some(shell) if shell.digest != *digest && !Bug::ReissuedIdAdopted.is_planted() => {
                return self.fence_off(cx, request, out);
            }
            Some(shell) if !(request.mode == Mode::Start && shell.may_start_again()) => {
                if request.mode == Mode::Start {
                    let spec = unit_spec(cx, self.id, &request.command);
                    self.unstarted = Some(Box::new(spec));
                }
                shell.set_size(request.command.size);
                shell.snapshot(positions(request, cx.facts.rank), out)
            }
            None if request.mode == Mode::Adopt || has_denied => {
                self.denied = Some(request.generation);
                let message = "nothing is known of it on its node".to_string();
                vec![Report::Lost { message }, Report::Gone]
            }
            Some(_) | None => {
                let spec = unit_spec(cx, self.id, &request.command);
                self.shell = Some(Shell::new(&spec));
                out.push(Effect::Unit(UnitCommand::Launch(Box::new(spec))));
                Vec::new()
            }
        };
        for report in reports {
            self.gather(cx, cx.facts.rank, report);
        }
    }

    /// A message of a leader that has been replaced, or of a parent that it has asked: it may
    /// have been on its way for long. 0 is of a leader that knows of no other.
    fn is_stale(&self, generation: u64) -> bool {
        generation != 0 && generation < self.generation
    }

    /// What this leader has asked before it was told, by another way through the tree, may come
    /// after it.
    fn has_denied(&self, generation: u64) -> bool {
        self.denied.is_some_and(|denied| generation <= denied)
    }

    /// A child's stream has brought reports, or has ended.
    pub(super) fn child(
        &mut self,
        cx: Context,
        stream: StreamId,
        result: Result<Reports, StreamEnd>,
        out: &mut Effects,
    ) {
        let Some(child) = self.children.get(&stream).cloned() else { return };
        match result {
            Ok(reports) => {
                for RankReport { ranks, report } in reports.reports {
                    for rank in ranks.intersection(&child.ranks).ranks() {
                        self.gather(cx, rank, report.clone());
                    }
                }
            }
            Err(StreamEnd::Superseded { .. }) => {
                // Somebody else looks after them.
                self.children.remove(&stream);
            }
            Err(end) => {
                self.children.remove(&stream);
                // Its root may have been asked by the leader itself; then the others are left.
                if end != StreamEnd::AskedAgain {
                    self.gather(cx, child.root, Report::Unreachable { end });
                }
                for rank in child.ranks.ranks().filter(|rank| *rank != child.root) {
                    self.gather(cx, rank, Report::Orphaned);
                }
            }
        }
        self.send_if_complete(cx, out);
    }

    /// The supervisor has news of this job's unit.
    pub(super) fn unit(&mut self, cx: Context, event: UnitEvent, out: &mut Effects) {
        let Some(shell) = &mut self.shell else { return };
        let unstarted = self.unstarted.take();
        if let (UnitEvent::NeverStarted { .. }, Some(spec)) = (&event, unstarted) {
            return out.push(Effect::Unit(UnitCommand::Launch(spec)));
        }
        if matches!(event, UnitEvent::Stopping { .. }) {
            let first = cx.config.stop_timer.map_or(cx.config.kill_timeout, f64::from);
            self.eviction.get_or_insert_with(|| Eviction::start(cx.now.mono, first, cx.config));
        }
        let reports = shell.unit_event(event, out);
        let is_done = shell.is_done();
        if is_done {
            self.eviction = None;
        }
        if self.fence.is_some() {
            // Not this job's: nobody above wants to hear of it.
            if is_done {
                self.unfence(cx, out);
            }
        } else {
            for report in reports {
                self.gather(cx, cx.facts.rank, report);
            }
        }
        self.send_if_complete(cx, out);
    }

    /// The shell on this rank enters the barrier.
    pub(super) fn barrier(
        &mut self,
        cx: Context,
        to: RequestId,
        entry: Option<u32>,
        out: &mut Effects,
    ) {
        let shell = self.shell.as_mut().filter(|_| self.fence.is_none());
        let Some(shell) = shell else {
            return out.barrier(to, Err(no_shell(self.id)));
        };
        for report in shell.enter_barrier(to, entry, out) {
            self.gather(cx, cx.facts.rank, report);
        }
        self.send_if_complete(cx, out);
    }

    /// A nested instance on this rank named its critical shells.
    ///
    /// # Errors
    /// What is no idset of the job's shells, or nothing to keep it with.
    pub(super) fn critical(
        &mut self,
        cx: Context,
        ranks: &str,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        let shell = self.shell.as_mut().filter(|_| self.fence.is_none());
        let shell = shell.ok_or_else(|| no_shell(self.id))?;
        if let Some(report) = shell.set_critical(self.id, ranks, out)? {
            self.gather(cx, cx.facts.rank, report);
            self.send(out);
        }
        Ok(())
    }

    /// Obeys an order, and passes it on.
    pub(super) fn order(&mut self, cx: Context, request: &OrderRequest, out: &mut Effects) {
        if self.is_stale(request.generation) {
            return;
        }
        if request.ranks.contains_rank(cx.facts.rank)
            && let Some(shell) = &mut self.shell
        {
            // Of a fenced shell nothing more is wanted than its end.
            if self.fence.is_none() {
                shell.order(&request.order, out);
            }
        }
        if request.order == Order::Forget {
            self.disown();
        }
        for child in self.children.values() {
            let ranks = request.ranks.intersection(&child.ranks);
            if !ranks.is_empty() {
                let request = OrderRequest { ranks, ..request.clone() };
                out.push(Effect::Order { to: child.root, request });
            }
        }
        if request.order == Order::Forget {
            self.children.clear();
            if let Some(to) = self.upstream.take() {
                out.end(to, StreamEnd::Forgotten);
            }
        }
    }

    pub(super) fn timeout(&mut self, cx: Context, out: &mut Effects) {
        let now = cx.now.mono;
        self.evict_further(cx, out);
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            let (to, question) = match self.upstream {
                Some(_) => (self.parent, Question::Parent),
                None => (BrokerRank(0), Question::Manager),
            };
            let (id, digest) = (self.id, self.digest.clone());
            out.push(Effect::Known { to, question, asker: Role::Agent, id, digest });
        }
        if self.send_at.is_some_and(|at| at <= now) {
            self.send(out);
        }
    }

    /// The module is unloaded: say so to whoever listens, and keep the barrier.
    pub(super) fn shutdown(&mut self, out: &mut Effects) {
        if let Some((to, _)) = self.late.take() {
            out.end(to, StreamEnd::Unloaded);
        }
        if let Some(to) = self.upstream.take() {
            out.end(to, StreamEnd::Unloaded);
        }
        if let Some(shell) = &self.shell {
            shell.park(out);
        }
    }

    /// The job's digest, if it was told that the job is over: then nothing may be started for it
    /// any more.
    pub(super) fn over(&self) -> Option<&JobDigest> {
        self.over.then_some(&self.digest)
    }

    /// Nothing of the job is left on this rank, and nobody wants to hear of it.
    pub(super) fn is_done(&self) -> bool {
        self.upstream.is_none()
            && self.late.is_none()
            && self.children.is_empty()
            && self.shell.as_ref().is_none_or(Shell::is_done)
    }

    /// Puts a report into the outbox; the same news of several ranks is one report.
    fn gather(&mut self, cx: Context, rank: BrokerRank, report: Report) {
        if self.upstream.is_none() {
            return; // a new leader will be told everything
        }
        if let Some(stage) = stage(&report) {
            let known = self.stages.entry(rank).or_default();
            self.advanced |= stage > *known;
            *known = (*known).max(stage);
        }
        let after = self.outbox.iter().rposition(|r| r.ranks.contains_rank(rank)).unwrap_or(0);
        let same = self.outbox.iter_mut().skip(after).find(|r| r.report == report);
        match same {
            Some(same) if !matches!(report, Report::Output { .. }) => {
                same.ranks.insert(rank.0);
            }
            Some(_) | None => {
                self.outbox.push(RankReport { ranks: Idset::from_iter([rank]), report });
            }
        }
        self.send_at.get_or_insert(cx.now.mono + GATHER_SECONDS);
    }

    fn send_if_complete(&mut self, cx: Context, out: &mut Effects) {
        // A leaf has nobody to wait for; others wait unless all ranks have got further.
        let alone = self.children.is_empty();
        let furthest = self.stages.values().max();
        let complete = alone
            || (self.advanced && self.ranks.ranks().all(|rank| self.stages.get(&rank) == furthest));
        if complete || self.send_at.is_some_and(|at| at <= cx.now.mono) {
            self.send(out);
        }
    }

    fn send(&mut self, out: &mut Effects) {
        self.send_at = None;
        self.advanced = false;
        if self.outbox.is_empty() {
            return;
        }
        if let Some(to) = self.upstream {
            let reports = Reports { reports: std::mem::take(&mut self.outbox) };
            out.push(Effect::Stream { to, item: StreamItem::Reports(reports) });
        }
    }
}

fn no_shell(id: JobId) -> Fault {
    Fault::new(libc::ENOENT, format!("{id}: this rank runs no shell of the job"))
}

/// It may start something, and it was longer on its way than a rank may be away.
fn is_late(cx: Context, request: &ShellsRequest) -> bool {
    let age = (cx.now.wall - request.issued).abs();
    request.mode == Mode::Start && request.generation != 0 && age > cx.config.peer_timeout / 2.0
}

/// How far a shell is, or none if the report does not tell.
fn stage(report: &Report) -> Option<u8> {
    match report {
        Report::Running => Some(1),
        Report::Exited { .. } => Some(2),
        Report::Failed { .. }
        | Report::Gone
        | Report::Lost { .. }
        | Report::NeverStarted
        | Report::Orphaned
        | Report::Unreachable { .. } => Some(3),
        Report::Barrier { .. }
        | Report::CriticalRanks { .. }
        | Report::Left
        | Report::Output { .. }
        | Report::OutputOverflow { .. }
        | Report::OutputTruncated { .. }
        | Report::Pending
        | Report::Unkillable => None,
    }
}

fn positions(request: &ShellsRequest, rank: BrokerRank) -> [u64; 2] {
    [Stream::Stdout, Stream::Stderr].map(|stream| {
        let position = request.output.iter().find(|p| p.rank == rank && p.stream == stream);
        position.map_or(0, |p| p.offset)
    })
}

/// flux-core's shell has a way of its own to find a broker again (flux-core `shell/shell.c`).
fn argv(facts: &Facts, command: &ShellCommand) -> Vec<String> {
    let mut argv = command.argv.clone();
    if facts.no_connector.is_some()
        && let Some(at) = argv.iter().position(|argument| *argument == facts.job_shell)
    {
        argv.insert(at + 1, "--reconnect".to_string());
    }
    argv
}

fn unit_spec(cx: Context, id: JobId, command: &ShellCommand) -> UnitSpec {
    let facts = cx.facts;
    let mut environment = command.environment.clone();
    if !facts.shell_uri.is_empty() {
        environment.insert("FLUX_URI".to_string(), facts.shell_uri.clone());
    }
    UnitSpec {
        unit: UnitName::new(command.multiuser, facts.rank, id, facts.instance.clone()),
        job: id,
        rank: facts.rank,
        digest: command.digest.as_str().to_string(),
        userid: command.userid,
        size: command.size,
        multiuser: command.multiuser,
        description: format!("User workload for Flux job {}", id.f58plain()),
        argv: argv(facts, command),
        environment,
        unset_environment: Vec::new(),
        working_directory: facts.working_directory.clone(),
        properties: command.properties.clone(),
        forget_failed: facts.nested,
        stop_timeout: command.stop_timeout.map(std::time::Duration::from_secs_f64),
    }
}

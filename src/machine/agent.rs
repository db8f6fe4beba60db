//! The agent of one job on one rank: its shell, and the subtree of ranks below it.
//!
//! ```text
//!            a leader or parent asks
//!   Unled ───────────────────────────▶ Led ──▶ reports go up, orders come down
//!     ▲ └─ asks rank 0: unwanted?        │ └─ asks its parent: does it still have the job?
//!     └──────────────────────────────────┘
//!        the stream has ended, the parent has not the job, or the job is over
//! ```
//!
//! A parent answers for its children: their reports go up with its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::machine::context::{Context, Now};
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::{Credential, Fault, RequestId, Role, StreamId};
use crate::machine::mono_time::MonoTime;
use crate::machine::peer_request::PeerRequest;
use crate::port::supervisor::{REBOOTED, UnitEvent, UnitRecord};
use crate::proto::peer::{Mode, Order, OrderRequest, Question, Report, ShellsRequest, StreamEnd};
use crate::proto::{
    BarrierEntry, Bequest, BrokerRank, EndReason, Idset, JobDigest, JobException, JobId, UnitName,
};
use late::{Late, is_late};
use local_shell::{Claim, LocalShell};
use shell::Shell;
use subtree::Child;
use upstream::{Gathering, Led, Over, Unled, Upstream};

mod barrier;
mod client_commits;
mod eviction;
mod known;
mod late;
mod launch;
mod local_shell;
mod mark;
mod output;
mod perilog;
mod recorded;
mod script;
mod shell;
mod subtree;
mod unwanted;
mod upstream;

/// How often an agent makes sure that its parent still has the job, in seconds. Each rank is
/// asked by its children only, so the cost does not grow with the job.
const PROBE_SECONDS: f64 = 300.0;

/// How long an agent that nobody leads waits before it asks rank 0 about the job, in seconds, and
/// asks again if that cannot say yet. Leaders mostly come before that.
const ASK_SECONDS: f64 = 3.0;

/// Of a shell that was started, as its leader says.
const NOT_KNOWN: &str = "nothing is known of it on its node";

/// One job on this rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Agent {
    id: JobId,
    userid: u32,
    digest: JobDigest,
    upstream: Upstream,
    /// The newest leader's generation.
    generation: u64,
    /// The leader of this generation was told that nothing of the job is here: it may have given
    /// the rank back.
    denied: Option<u64>,
    late: Option<Late>,
    /// This rank and all below it.
    ranks: Idset,
    children: BTreeMap<StreamId, Child>,
    /// The shell on this rank, with what is to be done about it.
    local_shell: Option<LocalShell>,
}

impl Agent {
    /// Of a job that was never heard of on this rank.
    pub(super) fn new(id: JobId, userid: u32) -> Self {
        Self {
            id,
            userid,
            digest: JobDigest::default(),
            upstream: Upstream::Unled(Unled { ask_at: None, over: Over::No }),
            generation: 0,
            denied: None,
            late: None,
            ranks: Idset::new(),
            children: BTreeMap::new(),
            local_shell: None,
        }
    }

    /// Of a job whose shell, or script, was found on disk.
    pub(super) fn found(cx: Context, record: &UnitRecord, out: &mut Effects) -> Self {
        Self {
            digest: record.spec.digest.clone(),
            upstream: Upstream::Unled(Unled { ask_at: Some(ask_soon(cx)), over: Over::No }),
            local_shell: Some(LocalShell::found(cx, record, out)),
            ..Self::new(record.spec.job, record.spec.userid)
        }
    }

    /// A unit without a record was found when the job was known here already, by an agent that has no
    /// shell. Whoever leads was told so, and does not count on one.
    pub(super) fn take_found(&mut self, cx: Context, record: &UnitRecord, out: &mut Effects) {
        if let Some(there) = &mut self.local_shell {
            if there.find(cx, record, out) {
                return;
            }
            let text =
                format!("{}: {} is left alone: another unit is here", self.id, record.spec.unit);
            there.leave_alone(record.spec.unit.clone());
            return out.log(Level::Error, text);
        }
        let is_wanted = self.digest == record.spec.digest
            && matches!(self.upstream, Upstream::Unled(Unled { over: Over::No, .. }));
        let claim = if is_wanted { Claim::Own } else { Claim::Foreign };
        let mut there = LocalShell::found(cx, record, out);
        there.claim = claim;
        self.local_shell = Some(there);
        if is_wanted {
            self.upstream.ask_at_mut().get_or_insert(ask_soon(cx));
        } else {
            self.evict(cx, "nobody counts on it", out);
        }
    }

    /// Somebody above wants the reports of the job.
    fn is_led(&self) -> bool {
        matches!(self.upstream, Upstream::Led(_))
    }

    /// It is this very job, and somebody above wants its reports.
    pub(super) fn is_led_as(&self, digest: &JobDigest) -> bool {
        self.is_led() && self.digest == *digest
    }

    /// It has a shell of this very job.
    pub(super) fn has_shell_of(&self, digest: &JobDigest) -> bool {
        self.shell().is_some_and(|shell| shell.digest() == digest)
    }

    pub(super) fn may_be_asked_by(&self, credential: Credential) -> bool {
        credential.may_act_for(self.userid)
    }

    /// For `coverage/`.
    #[cfg(any(test, feature = "coverage"))]
    pub(super) fn state_name(&self) -> &'static str {
        self.shell().map_or("none", Shell::state_name)
    }

    /// For `coverage/`.
    #[cfg(any(test, feature = "coverage"))]
    pub(super) fn script_state_name(&self, stage: crate::proto::Stage) -> &'static str {
        let script = self.local_shell.as_ref().and_then(|there| there.perilog.script(stage));
        script.map_or("none", |script| script.state_name())
    }

    /// The scripts that have not ended, for `stats-get`.
    pub(super) fn script_stats(&self, now: Now) -> Value {
        let active = self.local_shell.iter().flat_map(|there| there.perilog.active());
        active.map(|script| script.stats(now)).collect()
    }

    pub(super) fn shell(&self) -> Option<&Shell> {
        self.local_shell.as_ref().map(|there| &there.shell)
    }

    /// Whether the shell has ended, or nothing is known of it.
    pub(super) fn shell_has_ended(&self) -> bool {
        self.shell().map_or(self.denied.is_some(), |shell| shell.unit.has_ended())
    }

    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        let evict_at = self.local_shell.as_ref().and_then(LocalShell::next_timeout);
        [self.upstream.next_timeout(), evict_at].into_iter().flatten().min()
    }

    /// The job's digest, if this rank was told that the job is over: then nothing may be started
    /// for it any more.
    pub(super) fn over_digest(&self) -> Option<&JobDigest> {
        let over = matches!(self.upstream, Upstream::Unled(Unled { over, .. }) if over != Over::No);
        over.then_some(&self.digest)
    }

    /// Nothing of the job is left on this rank, and nobody wants to hear of it.
    pub(super) fn is_done(&self, cx: Context) -> bool {
        !self.is_led()
            && self.late.is_none()
            && self.children.is_empty()
            && self.local_shell.as_ref().is_none_or(|there| there.is_done(cx))
    }

    /// Nobody listens to this request any more.
    pub(super) fn handle_disconnect(&mut self, cx: Context, request: RequestId, out: &mut Effects) {
        if self.late.take_if(|late| late.to == request).is_some() {
            out.push(Effect::Drop { to: request });
        }
        let left = |there: &mut LocalShell| {
            there.shell.is_left_by(request) || there.perilog.is_left_by(request)
        };
        if self.local_shell.as_mut().is_some_and(left) {
            out.push(Effect::Drop { to: request });
        }
        if matches!(&self.upstream, Upstream::Led(led) if led.to == request) {
            self.lose_leader(cx);
            out.push(Effect::Drop { to: request });
        }
    }

    /// Nobody leads any more; rank 0 is asked about the job if no other leader comes.
    fn lose_leader(&mut self, cx: Context) {
        let ask_at = Some(ask_soon(cx));
        self.upstream = Upstream::Unled(Unled { ask_at, over: Over::No });
    }

    /// A leader or parent asks for shells: start what may be started, and tell it everything. An
    /// old one, if there still is one, hears that it has been replaced.
    pub(super) fn handle_shells(
        &mut self,
        cx: Context,
        to: RequestId,
        request: ShellsRequest,
        out: &mut Effects,
    ) {
        if request.command.digest != self.digest {
            // What was said of another job with this id says nothing of this one.
            (self.generation, self.denied) = (0, None);
        } else if let Upstream::Unled(Unled { over: Over::Forgotten, .. }) = self.upstream {
            return out.end(to, StreamEnd::superseded("the job has ended"));
        }
        if self.is_stale(request.generation) {
            return out.end(to, StreamEnd::superseded("another leader has taken over"));
        }
        if is_late(cx, &request) {
            return self.confirm(to, request, out);
        }
        self.obey(cx, to, request, out);
    }

    /// A message of a leader that has been replaced, or of a parent that it has asked: it may
    /// have been on its way for long. 0 is of a leader that knows of no other.
    fn is_stale(&self, generation: u64) -> bool {
        generation != 0 && generation < self.generation
    }

    fn obey(&mut self, cx: Context, to: RequestId, request: ShellsRequest, out: &mut Effects) {
        if let Some(late) = self.late.take() {
            out.end(late.to, StreamEnd::AskedAgain);
        }
        let led = Led {
            to,
            parent: request.parent,
            probe: if request.parent == request.leader {
                Question::Leader { generation: request.generation }
            } else {
                Question::Parent
            },
            ask_at: Some(cx.now.mono + PROBE_SECONDS),
            reports: Gathering::default(),
        };
        if let Upstream::Led(old) = std::mem::replace(&mut self.upstream, Upstream::Led(led)) {
            let is_newer = request.generation > self.generation;
            let superseded = || StreamEnd::superseded("another leader has taken over");
            out.end(old.to, if is_newer { superseded() } else { StreamEnd::AskedAgain });
        }
        self.generation = self.generation.max(request.generation);
        self.digest.clone_from(&request.command.digest);
        // An id that was issued again can be another user's job.
        self.userid = request.command.userid;
        self.ranks = request.ranks.clone();
        self.claim_shell(cx, &request, out);
        self.ask_children(cx, &request, out);
        self.send_if_ready(cx, out);
    }

    /// Starts the rank's shell, or finds it, or ends what is there instead.
    fn claim_shell(&mut self, cx: Context, request: &ShellsRequest, out: &mut Effects) {
        if !request.ranks.contains_rank(cx.facts.rank) {
            return;
        }
        let digest = &request.command.digest;
        let starts = matches!(request.mode, Mode::Prepare | Mode::Start);
        let was_denied = self.has_denied(request.generation);
        let spec = || Box::new(launch::unit_spec(cx, self.id, request));
        let scripts = request.command.scripts.as_ref();
        match &mut self.local_shell {
            Some(there) if there.shell.digest() != digest => self.fence_off(cx, request, out),
            Some(there) if !(starts && there.shell.may_start_again()) => {
                there.claim = Claim::Own;
                there.perilog.want(request.mode, scripts, spec());
                if request.mode == Mode::Adopt {
                    there.shell.lose_if_waiting(why_unknown(cx, request));
                }
                let positions = launch::positions(request, cx.facts.rank);
                let reports = there.tell_again(cx, positions, out);
                self.gather(cx, reports);
                self.advance(cx, out);
            }
            None if !starts || was_denied => {
                self.denied = Some(request.generation);
                let message = why_unknown(cx, request).to_string();
                self.gather(cx, [Report::Lost { message }, Report::Gone]);
            }
            Some(_) | None => {
                let spec = spec();
                let mut there = LocalShell::new(Shell::new(&spec), Claim::Own);
                there.perilog = self.local_shell.take().map(|old| old.perilog).unwrap_or_default();
                there.perilog.want(request.mode, scripts, spec);
                let reports = there.perilog.tell_again(cx);
                self.local_shell = Some(there);
                self.gather(cx, reports);
                self.advance(cx, out);
            }
        }
    }

    /// Does what can be done now for the shell, and for the scripts before and behind it.
    fn advance(&mut self, cx: Context, out: &mut Effects) {
        let Some(there) = &mut self.local_shell else { return };
        let reports = there.advance(cx, self.id, out);
        if !there.is_foreign() {
            self.gather(cx, reports);
        }
        self.drain_for_scripts(cx, out);
    }

    /// What this leader has asked before it was told, by another way through the tree, may come
    /// after it.
    fn has_denied(&self, generation: u64) -> bool {
        self.denied.is_some_and(|denied| generation <= denied)
    }

    /// The unit is of another run of this id.
    #[cfg(any(test, feature = "coverage"))]
    pub(super) fn has_another(&self, unit: &UnitName) -> bool {
        self.local_shell.as_ref().is_some_and(|there| there.has_another(unit))
    }

    /// The supervisor has news of this job's unit.
    pub(super) fn handle_unit(
        &mut self,
        cx: Context,
        unit: &UnitName,
        event: UnitEvent,
        out: &mut Effects,
    ) {
        let Some(there) = &mut self.local_shell else { return };
        if there.has_another(unit) {
            if matches!(event, UnitEvent::Gone | UnitEvent::NeverStarted) {
                there.forget_another(unit, out);
            }
            return;
        }
        if unit.is_script() {
            let reports = there.perilog.handle_unit(cx, unit, event, out);
            return self.settle(cx, reports, out);
        }
        if event == UnitEvent::NeverStarted
            && there.perilog.awaits_shell()
            && there.shell.start_failure().is_none()
        {
            there.shell.wait();
            return self.advance(cx, out);
        }
        if event == UnitEvent::Stopping {
            let first = cx.config.stop_timer.map_or(cx.config.kill_timeout, f64::from);
            there.evict_after(first, cx);
        }
        let reports = there.shell.handle_unit(event, out);
        let is_done = there.shell.unit.is_done();
        if is_done {
            there.eviction = None;
            // Mostly the job ends now. If its leader ends first, its word is missed before long.
            let soon = cx.now.mono + cx.config.peer_timeout;
            if let Upstream::Led(led) = &mut self.upstream {
                led.ask_at = led.ask_at.map(|at| at.min(soon));
            }
        }
        self.settle(cx, reports, out);
    }

    /// systemd does not answer on this rank.
    pub(super) fn handle_silence(&mut self, cx: Context, out: &mut Effects) {
        self.settle(cx, Vec::new(), out);
    }

    /// Something has changed for this rank's shell, or for a script.
    fn settle(&mut self, cx: Context, reports: Vec<Report>, out: &mut Effects) {
        if self.own().is_some() {
            self.gather(cx, reports);
        }
        self.advance(cx, out);
        // Nobody above wants to hear of another job's shell.
        if self.local_shell.as_ref().is_some_and(|there| there.is_foreign() && there.is_done(cx)) {
            self.unfence(cx, out);
        }
        self.send_if_ready(cx, out);
    }

    /// What is here of this job, not of another one that had its id.
    fn own(&mut self) -> Option<&mut LocalShell> {
        self.local_shell.as_mut().filter(|there| !there.is_foreign())
    }

    fn own_shell(&mut self) -> Result<&mut Shell, Fault> {
        let message = format!("{}: this rank runs no shell of the job", self.id);
        let none = Fault::new(libc::ENOENT, message);
        self.own().map(|there| &mut there.shell).ok_or(none)
    }

    /// The shell on this rank enters the barrier.
    pub(super) fn handle_barrier(
        &mut self,
        cx: Context,
        to: RequestId,
        entry: Option<BarrierEntry>,
        out: &mut Effects,
    ) {
        match self.own_shell() {
            Ok(shell) => {
                let reports = shell.enter_barrier(to, entry, out);
                self.gather(cx, reports);
                self.send_if_ready(cx, out);
            }
            Err(fault) => out.barrier(to, Err(fault)),
        }
    }

    /// A nested instance on this rank named its critical shells.
    ///
    /// # Errors
    /// What is no idset of the job's shells, or nothing to keep it with.
    pub(super) fn handle_critical_ranks(
        &mut self,
        cx: Context,
        ranks: &str,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        let id = self.id;
        if let Some(report) = self.own_shell()?.set_critical(id, ranks, out)? {
            self.gather(cx, [report]);
            self.send(out);
        }
        Ok(())
    }

    /// Whose shell is here, and how many bytes of commits are kept for it.
    pub(super) fn kept(&self) -> Option<(u32, usize)> {
        self.local_shell.as_ref().map(|there| (there.shell.userid(), there.shell.kept_bytes()))
    }

    /// A client of the job on this rank leaves commits. It is answered when they are kept. So many
    /// bytes are kept for other jobs of its user.
    ///
    /// # Errors
    /// Nothing to keep them with, or no room.
    pub(super) fn handle_keep_commits(
        &mut self,
        to: RequestId,
        bequest: &Arc<Bequest>,
        others: usize,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        self.own_shell()?.keep_commits(to, bequest, others, out)
    }

    /// The prolog on this rank marks the node as degraded. It is answered when the mark is kept.
    ///
    /// # Errors
    /// No prolog of the job runs here, or what it says is no reason.
    pub(super) fn mark(
        &mut self,
        to: RequestId,
        reason: &str,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        let id = self.id;
        let prolog = self.own().and_then(|there| there.perilog.running_prolog());
        let none = || {
            let message = format!("{id}: no prolog of the job runs on this rank");
            Fault::new(libc::ENOENT, message)
        };
        prolog.ok_or_else(none)?.mark(id, to, reason, out)
    }

    /// Commits that a client has left were done again, or cannot be.
    pub(super) fn handle_recommitted(
        &mut self,
        cx: Context,
        client: &str,
        result: Result<(), Fault>,
        out: &mut Effects,
    ) {
        let is_done = result.is_ok();
        let again =
            self.own_shell().map(|shell| shell.handle_recommitted(cx.now.mono, client, is_done));
        if let Err(fault) = result {
            let level = if matches!(again, Ok(true)) { Level::Debug } else { Level::Error };
            let text = format!("{}: commits of client {client} may be lost: {fault}", self.id);
            out.log(level, text);
        }
        if again.is_ok() {
            self.settle(cx, Vec::new(), out);
        }
    }

    /// Obeys an order, and passes it on.
    pub(super) fn handle_order(&mut self, cx: Context, request: &OrderRequest, out: &mut Effects) {
        // Of another job with this id, whose request has not come, or waits to be confirmed.
        let is_others = request.digest != self.digest;
        if let Some(Late { request: late, .. }) = &mut self.late
            && matches!(request.order, Order::Conclude { .. })
            && (&late.command.digest, late.generation) == (&request.digest, request.generation)
        {
            late.mode = Mode::Conclude;
        }
        if is_others || self.is_stale(request.generation) {
            return;
        }
        // Of another job's shell nothing more is wanted than its end.
        if request.ranks.contains_rank(cx.facts.rank)
            && let Some(there) = &mut self.local_shell
        {
            there.handle_order(cx, &request.order, out);
            self.advance(cx, out);
        }
        for child in self.children.values() {
            let ranks = request.ranks.intersection(&child.ranks);
            if !ranks.is_empty() {
                let request = OrderRequest { ranks, ..request.clone() };
                out.send(child.root, PeerRequest::Order(request));
            }
        }
        if request.order == Order::Forget {
            // What is left here nobody ends any more but this agent.
            let ask_at =
                self.shell().is_some_and(|shell| shell.unit.may_live()).then(|| ask_soon(cx));
            let ask_at = ask_at.or(*self.upstream.ask_at_mut());
            let unled = Upstream::Unled(Unled { ask_at, over: Over::Forgotten });
            if let Upstream::Led(led) = std::mem::replace(&mut self.upstream, unled) {
                out.end(led.to, StreamEnd::Forgotten);
            }
            self.start_nothing();
        }
    }

    /// The job is over: nothing is to be started for it any more.
    fn start_nothing(&mut self) {
        self.children.clear();
        if let Some(there) = &mut self.local_shell {
            there.start_nothing();
        }
    }

    pub(super) fn handle_timeout(&mut self, cx: Context, out: &mut Effects) {
        self.evict_further(cx, out);
        if let Ok(shell) = self.own_shell() {
            shell.handle_timeout(cx.now.mono, out);
        }
        if let Some(there) = &mut self.local_shell {
            let reports = there.perilog.handle_timeout(cx, self.id, out);
            self.settle(cx, reports, out);
        }
        if self.upstream.ask_at_mut().take_if(|at| *at <= cx.now.mono).is_some() {
            let (to, question) = match &self.upstream {
                Upstream::Led(led) => (led.parent, led.probe),
                Upstream::Unled(_) => (BrokerRank(0), Question::Manager),
            };
            out.ask_known(to, Role::Agent, question, (self.id, self.digest.clone()));
            if let Upstream::Led(led) = &mut self.upstream {
                // A question to another rank than 0 can be lost.
                led.ask_at = Some(cx.now.mono + PROBE_SECONDS);
            }
        }
        if let Upstream::Led(led) = &self.upstream
            && led.reports.is_due(cx.now.mono)
        {
            self.send(out);
        }
    }

    /// The job manager published an exception of this job.
    pub(super) fn handle_exception(
        &mut self,
        cx: Context,
        exception: &JobException,
        out: &mut Effects,
    ) {
        if let Some(there) = self.own().filter(|_| exception.severity == 0) {
            there.shell.handle_exception(exception, out);
            let reason = EndReason::new(&exception.kind, "", exception.wait_status);
            there.perilog.cancel(cx, reason, out);
        }
    }

    /// The module is unloaded: say so to whoever listens, and keep the barrier.
    pub(super) fn shut_down(&mut self, out: &mut Effects) {
        if let Some(late) = self.late.take() {
            out.end(late.to, StreamEnd::Unloaded);
        }
        if let Upstream::Led(led) = &self.upstream {
            out.end(led.to, StreamEnd::Unloaded);
        }
        if let Some(there) = &mut self.local_shell {
            there.shell.shut_down(out);
            there.perilog.shut_down(self.id, out);
        }
    }
}

/// When an agent that nobody leads asks rank 0 about its job.
fn ask_soon(cx: Context) -> MonoTime {
    cx.now.mono + ASK_SECONDS
}

/// Why nothing is known of a shell that was started, as its leader says. Both times are the
/// instance's, so this rank's clock does not matter.
fn why_unknown(cx: Context, request: &ShellsRequest) -> &'static str {
    let uptime = cx.facts.uptime + (cx.now.mono - cx.born.mono);
    let is_older = |allocated| request.issued - allocated > uptime;
    if request.command.allocated.is_some_and(is_older) { REBOOTED } else { NOT_KNOWN }
}

//! The coordinator: rank 0's end of every job. It knows nothing of shells.
//!
//! It sends the leader of each job one request, and passes the leader's answers on to the job
//! manager. It asks a leader whose module is away again, with doubling pauses. After
//! `peer-timeout` it asks the job's next rank to lead, and the lost rank counts as a failed node.

use std::collections::BTreeMap;

use crate::machine::away::Away;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, KvsOp, Level, StreamItem};
use crate::machine::event::{Credential, Fault, Listing, RequestId, StreamId};
use crate::machine::mono_time::MonoTime;
use crate::machine::peer_request::PeerRequest;
use crate::proto::peer::{LeadNote, LeadReply, LeadRequest, StreamEnd, StreamName, Version};
use crate::proto::{
    BrokerRank, Exception, Idset, JobDigest, JobEvent, JobException, JobId, ReleasedRanks,
    Response, StartError, StartRequest, WaitStatus, WallTime,
};

use checkpoint::{Checkpoint, Waiting};
use degraded::Nodes;
use delayed::{Delayed, LeaderReply};
use hold::Holds;
use unasked::Unasked;

mod asked;
mod checkpoint;
mod cleaning;
mod degraded;
mod delayed;
mod hold;
mod sweep;
mod unasked;

/// The leader of a job, seen from here.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LeaderLink {
    /// It was asked to lead, and has not answered yet.
    Asked { stream: StreamId },
    /// It does not answer, and is asked again at `retry_at`.
    Away { retry_at: MonoTime },
    /// It leads. It hears of exceptions by itself.
    Present { stream: StreamId },
    /// Nobody was asked yet: the ranks that the job manager has back are being looked up, or will be
    /// again.
    Unasked { look_at: Option<MonoTime> },
}

/// A job that the job manager has asked for.
#[derive(Clone, Debug, PartialEq)]
struct Coordinated {
    /// The job manager's request. None: it has asked nobody, because the job was in CLEANUP when it
    /// or this service was started again.
    request: Option<RequestId>,
    start: StartRequest,
    digest: JobDigest,
    /// A leader may have begun it: one was asked, or it may have been allocated before this coordinator
    /// came up.
    again: bool,
    /// The leader's rank.
    rank: BrokerRank,
    leader: LeaderLink,
    /// Leaders on its rank do not answer. None if the rank has said that it has the request.
    away: Option<Away>,
    /// Ranks that were given up on.
    lost: Idset,
    /// The first fatal exception.
    exception: Option<JobException>,
    /// What the job manager was told.
    passed_on: Vec<Response>,
    /// Ranks that the job manager has back.
    released: Idset,
    /// The largest status that leaders have told.
    status: WaitStatus,
    /// A checkpoint may write its reference when the job's data was moved already.
    is_stray: bool,
}

/// All jobs that the job manager has asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Coordinator {
    jobs: BTreeMap<JobId, Coordinated>,
    checkpoint: Checkpoint,
    holds: Holds,
    delayed: Delayed,
    nodes: Nodes,
    /// What the job manager has, and has not asked for.
    unasked: Unasked,
}

impl Coordinator {
    /// The job manager starts, or finds again, a job. A bad request fails its own job: an error
    /// response would end the service for all jobs.
    pub(super) fn handle_start(
        &mut self,
        cx: Context,
        request: RequestId,
        start: Result<StartRequest, StartError>,
        out: &mut Effects,
    ) {
        self.touch(cx);
        match start.and_then(|start| self.with_ranks(cx, start)) {
            Ok(start) => {
                let again = self.unasked.may_have_run(start.id);
                let mut job = Coordinated::new(Some(request), start, again);
                if job.again || job.start.reattach {
                    job.is_stray = true;
                    out.push(Effect::Kvs { id: job.start.id, op: KvsOp::Released });
                } else {
                    job.ask(out);
                }
                let id = job.start.id;
                self.holds.forget(id);
                self.unasked.ask(id);
                if let Some(old) = self.jobs.insert(id, job) {
                    old.close(out);
                    if let Some(to) = old.request {
                        out.push(Effect::Drop { to });
                    }
                }
                self.tell_started(id, out);
            }
            Err(error @ (StartError::Field { id, .. } | StartError::R { id, .. })) => {
                out.log(Level::Error, error.to_string());
                let exception = Response::Exception(Exception::fatal(error.to_string()));
                let release = Response::Release { ranks: ReleasedRanks::All, is_final: true };
                for response in [exception, release] {
                    let item = StreamItem::Response { id, response };
                    out.push(Effect::Stream { to: request, item });
                }
                out.push(Effect::Drop { to: request });
            }
            // There is no job to fail. The job manager never sends this.
            Err(error @ StartError::Id(_)) => {
                out.log(Level::Error, error.to_string());
                let fault = Fault::new(libc::EPROTO, error.to_string());
                out.done(request, Err(fault));
            }
        }
    }

    /// Refuses a job with ranks that the instance does not have. One that may have run is found or given
    /// up, rank by rank. A mocked job has nothing on its ranks.
    fn with_ranks(&self, cx: Context, start: StartRequest) -> Result<StartRequest, StartError> {
        let size = cx.facts.size;
        let is_mocked = start.jobspec.as_ref().is_ok_and(|jobspec| jobspec.test.is_some());
        let lacks = start.r.ranks().last().is_some_and(|last| last >= size);
        if !lacks || is_mocked || start.reattach || self.unasked.may_have_run(start.id) {
            return Ok(start);
        }
        let ranks: Idset = start.r.ranks().iter().filter(|rank| *rank >= size).collect();
        let reason = format!("ranks {ranks} do not exist: the instance has {size} ranks");
        Err(StartError::Field { id: start.id, key: "R", reason })
    }

    /// The job manager has listed its jobs. From now on it asks only for jobs that did not run when
    /// this coordinator came up, or wait for their prolog.
    pub(super) fn handle_running_asked(&mut self, listing: Listing) {
        self.unasked.list(listing, |id| self.jobs.contains_key(id));
    }

    /// The KVS has told which ranks the job manager has back. If it cannot, it is asked again: on a rank
    /// that was released a shell could be started a second time. In the end no rank counts as released;
    /// the job manager only records a partial release, so a second one does no harm.
    pub(super) fn handle_released(
        &mut self,
        cx: Context,
        id: JobId,
        result: Result<Idset, Fault>,
        out: &mut Effects,
    ) {
        let is_unasked = |job: &&mut Coordinated| matches!(job.leader, LeaderLink::Unasked { .. });
        let Some(job) = self.jobs.get_mut(&id).filter(is_unasked) else { return };
        match result {
            Ok(released) => job.released = released.intersection(job.start.r.ranks()),
            // The KVS has no such job.
            Err(fault) if fault.errnum == libc::ENOENT => {}
            Err(fault) => {
                let (now, is_first) = (cx.now.mono, job.away.is_none());
                let away = job.away.get_or_insert_with(|| Away::new(now));
                let gives_up = away.is_over(now, cx.config.peer_timeout);
                if is_first || gives_up {
                    let text = format!("{id}: cannot look up its released ranks: {fault}");
                    out.log(Level::Warning, text);
                }
                if !gives_up {
                    job.leader = LeaderLink::Unasked { look_at: Some(now + away.pause(now)) };
                    return;
                }
            }
        }
        job.away = None;
        job.ask(out);
    }

    /// A leader has answered, or its stream has ended.
    pub(super) fn handle_reply(
        &mut self,
        cx: Context,
        id: JobId,
        reply: LeaderReply,
        out: &mut Effects,
    ) {
        let is_cleaned_up = self.jobs.get(&id).is_none_or(Coordinated::is_cleaned_up);
        let closed = self.prepares_checkpoint() && !is_cleaned_up;
        if self.delayed.holds_back(cx, id, &reply, closed) {
            self.delayed.push(cx, id, reply);
        } else {
            self.take_reply(cx, id, reply, out);
        }
    }

    /// A checkpoint waits for holds or a release, or for what it writes to be looked up.
    fn prepares_checkpoint(&self) -> bool {
        self.holds.is_waiting() || self.checkpoint.is_prepared()
    }

    /// Takes what leaders have said while a checkpoint was being prepared.
    fn open_gate(&mut self, cx: Context, out: &mut Effects) {
        for (id, replies) in self.delayed.take() {
            for reply in replies {
                self.take_reply(cx, id, reply, out);
            }
        }
    }

    fn take_reply(
        &mut self,
        cx: Context,
        id: JobId,
        (stream, result): LeaderReply,
        out: &mut Effects,
    ) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_asked_by(stream)) else {
            return;
        };
        match result {
            Ok(LeadReply::Note(LeadNote::Changed { mark })) => {
                let waiting = job.waiting(mark, false);
                self.checkpoint.wait(id, waiting);
            }
            Ok(LeadReply::Note(LeadNote::Progress { status })) => {
                job.set_present(stream);
                job.status = job.status.max(status);
            }
            Ok(LeadReply::Response(response)) => {
                job.set_present(stream);
                let has_started = job.start.reattach;
                let is_end = job.pass_on(response, out);
                let starts = job.start.reattach && !has_started;
                job.is_stray |= (is_end || job.is_cleaned_up()) && self.checkpoint.is_writing(id);
                if is_end {
                    let waiting = job.waiting(0, true);
                    self.checkpoint.wait(id, waiting);
                    self.jobs.remove(&id);
                    self.holds.end(id, out);
                }
                self.checkpoint.sweep_while(cx, !self.jobs.is_empty());
                if starts {
                    self.tell_started(id, out);
                }
            }
            Err(end) => {
                job.handle_leader_end(cx, &end, out);
                return self.want_hold(cx, id, out);
            }
        }
        self.want_hold(cx, id, out);
        self.touch(cx);
    }

    /// A job that is in CLEANUP now is to be held. While an epilog runs that can take long, and
    /// users see it.
    fn want_hold(&mut self, cx: Context, id: JobId, out: &mut Effects) {
        if self.jobs.get(&id).is_some_and(Coordinated::is_cleaned_up) {
            self.holds.want(id);
            if cx.config.perilog.as_ref().is_some_and(|perilog| perilog.epilog.is_some()) {
                self.holds.ask(out);
            }
        }
    }

    /// Something has changed: a checkpoint is made soon.
    pub(super) fn touch(&mut self, cx: Context) {
        self.checkpoint.touch(cx);
    }

    /// Something that nobody else tells of has changed, as a job that is submitted and waits.
    pub(super) fn handle_kvs_changed(&mut self, cx: Context) {
        self.checkpoint.note_change(cx);
    }

    /// The checkpoint under way has ended.
    pub(super) fn handle_checkpointed(
        &mut self,
        cx: Context,
        result: Result<(), Fault>,
        out: &mut Effects,
    ) {
        self.checkpoint.handle_made(cx, result, out);
        self.open_gate(cx, out);
    }

    /// The commit that makes the checkpoint under way was sent: what the job manager hears from now
    /// on comes later.
    pub(super) fn handle_checkpoint_begun(&mut self, cx: Context, out: &mut Effects) {
        self.checkpoint.handle_begun();
        self.open_gate(cx, out);
    }

    /// The jobs that [`Self::open_gate`] can touch.
    pub(super) fn gated(&self) -> Vec<JobId> {
        self.delayed.jobs()
    }

    /// A shell wants to know when its guest namespace is durable.
    pub(super) fn handle_checkpoint_asked(
        &mut self,
        cx: Context,
        request: RequestId,
        credential: Credential,
        id: JobId,
        out: &mut Effects,
    ) {
        let fault = match self.jobs.get(&id) {
            None => Fault::new(libc::ENOENT, format!("{id}: no such job runs")),
            Some(job) if !credential.owner && credential.userid != job.start.userid => {
                Fault::new(libc::EPERM, format!("{id}: the job belongs to another user"))
            }
            Some(_) => return self.checkpoint.ask(cx, id, credential.userid, request, out),
        };
        out.done(request, Err(fault));
    }

    /// Whether this is a request for a checkpoint that waits.
    pub(super) fn has_asked(&self, request: RequestId) -> bool {
        self.checkpoint.has_asked(request)
    }

    /// Nobody listens to this request any more.
    pub(super) fn handle_disconnect(&mut self, request: RequestId, out: &mut Effects) {
        self.checkpoint.handle_disconnect(request, out);
    }

    /// The module is about to be unloaded, perhaps with the whole instance, whose guest namespaces
    /// end with it.
    pub(super) fn make_last_checkpoint(&mut self, cx: Context) {
        let jobs = self.jobs.values().any(|job| job.is_lasting(cx));
        self.checkpoint.make_last(cx, jobs);
    }

    /// Whether the last checkpoint has ended.
    pub(super) fn is_last_checkpoint_made(&self) -> bool {
        self.checkpoint.is_last_made()
    }

    /// The module is being unloaded.
    pub(super) fn shut_down(&mut self, shells_survive: bool, out: &mut Effects) {
        self.checkpoint.shut_down(out);
        if shells_survive {
            self.holds.ask(out);
        }
    }

    /// When [`Self::advance_checkpoint`] is due.
    pub(super) fn next_checkpoint(&self) -> Option<MonoTime> {
        let begins = self.holds.next_timeout().or_else(|| self.checkpoint.next_timeout());
        [begins, self.delayed.next_timeout()].into_iter().flatten().min()
    }

    /// Makes a checkpoint, if it is time, and if the jobs are held that it would have in CLEANUP.
    pub(super) fn advance_checkpoint(&mut self, cx: Context, out: &mut Effects) {
        let now = cx.now.mono;
        if self.delayed.next_timeout().is_some_and(|at| at <= now) {
            self.open_gate(cx, out);
        }
        if !self.checkpoint.is_due(now) {
            // The job for which it was due has ended while it waited for holds.
            self.holds.stop_waiting();
        } else if cx.shells_survive && self.holds.keep_waiting(now, out) {
            return;
        }
        let runs = |job: &Coordinated| job.start.reattach && job.is_lasting(cx);
        let running = self.jobs.iter().filter(|(_, job)| runs(job)).map(|(id, _)| *id);
        self.checkpoint.handle_timeout(cx, running, out);
        for id in self.checkpoint.writing() {
            if let Some(job) = self.jobs.get_mut(id) {
                job.is_stray |= job.is_cleaned_up();
            }
        }
        if !self.prepares_checkpoint() {
            self.open_gate(cx, out);
        }
    }

    /// Leaders hear exceptions by themselves. The first fatal one is kept for later leaders, and for
    /// a leader that heard of it before it heard of its job.
    pub(super) fn handle_exception(
        &mut self,
        cx: Context,
        exception: &JobException,
        out: &mut Effects,
    ) {
        if exception.severity == 0 {
            self.unasked.cancel(exception.id);
        }
        let Some(job) = self.jobs.get_mut(&exception.id) else { return };
        if exception.severity != 0 || job.exception.is_some() {
            return;
        }
        job.exception = Some(exception.clone());
        if matches!(job.leader, LeaderLink::Asked { .. }) && job.rank != cx.facts.rank {
            job.ask(out);
        }
        self.want_hold(cx, exception.id, out);
        self.holds.join(cx.now.mono, out);
        self.checkpoint.touch(cx);
        self.checkpoint.hurry();
    }

    /// Whether the job manager has this very job running, or could have it again after a crash.
    ///
    /// # Errors
    /// It cannot be said yet: the job manager may ask for the job, or, until the first checkpoint, may
    /// have again after a crash what an earlier coordinator has ended. That checkpoint is made now.
    pub(super) fn has(
        &mut self,
        cx: Context,
        id: JobId,
        digest: &JobDigest,
    ) -> Result<bool, Fault> {
        let runs = self.jobs.get(&id).is_some_and(|job| job.digest == *digest);
        if runs || self.checkpoint.has_ended(id, digest) {
            return Ok(true);
        }
        let not_yet = |why: &str| Err(Fault::new(libc::EAGAIN, why));
        if !self.checkpoint.is_made() {
            self.checkpoint.make_first(cx);
            return not_yet("no checkpoint has been made since the coordinator was loaded");
        }
        if !self.jobs.contains_key(&id) && !self.unasked.leaves_out(id) {
            return not_yet("the job manager may ask for the job yet");
        }
        if !self.jobs.contains_key(&id) {
            // An earlier coordinator may have gone before it could.
            self.checkpoint.take_back(cx, id);
        }
        Ok(false)
    }

    /// The rank of the job's leader, which keeps the time limit.
    pub(super) fn leader_of(&self, id: JobId) -> Option<BrokerRank> {
        self.jobs.get(&id).map(|job| job.rank)
    }

    /// Puts a new time limit into R, for later leaders.
    pub(super) fn set_expiration(&mut self, id: JobId, expiration: WallTime) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|_| expiration >= WallTime::UNSET) {
            job.start.r.set_expiration(expiration);
        }
    }

    /// A rank has the request to lead, and nothing to say yet: it is there.
    pub(super) fn handle_present(&mut self, id: JobId, held: StreamId) {
        if let Some(job) = self.jobs.get_mut(&id)
            && job.leader == (LeaderLink::Asked { stream: held })
        {
            job.away = None;
        }
    }

    pub(super) fn next_timeout(&self, id: JobId) -> Option<MonoTime> {
        match self.jobs.get(&id)?.leader {
            LeaderLink::Away { retry_at } => Some(retry_at),
            LeaderLink::Unasked { look_at } => look_at,
            LeaderLink::Asked { .. } | LeaderLink::Present { .. } => None,
        }
    }

    pub(super) fn handle_timeout(&mut self, cx: Context, id: JobId, out: &mut Effects) {
        let (Some(job), now) = (self.jobs.get_mut(&id), cx.now.mono) else { return };
        if let LeaderLink::Away { retry_at } = job.leader
            && retry_at <= now
        {
            if job.away.as_mut().is_some_and(|away| away.is_over(now, cx.config.peer_timeout)) {
                job.give_up_leader(out);
            } else {
                job.ask(out);
            }
        }
        if let LeaderLink::Unasked { look_at: Some(look_at) } = job.leader
            && look_at <= now
        {
            job.leader = LeaderLink::Unasked { look_at: None };
            out.push(Effect::Kvs { id, op: KvsOp::Released });
        }
    }

    /// For `coverage/`.
    #[cfg(any(test, feature = "coverage"))]
    pub(super) fn state_name(&self, id: JobId) -> &'static str {
        match self.jobs.get(&id).map(|job| &job.leader) {
            None => "none",
            Some(LeaderLink::Unasked { .. }) => "unasked",
            Some(LeaderLink::Asked { .. }) => "asked",
            Some(LeaderLink::Present { .. }) => "present",
            Some(LeaderLink::Away { .. }) => "away",
        }
    }

    /// Seconds since the last checkpoint.
    pub(super) fn checkpoint_age(&self, now: MonoTime) -> Option<f64> {
        self.checkpoint.age(now)
    }

    /// Each job, whose it is, and the rank of its leader.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (JobId, u32, BrokerRank)> {
        self.jobs.iter().map(|(id, job)| (*id, job.start.userid, job.rank))
    }
}

impl Coordinated {
    fn new(request: Option<RequestId>, start: StartRequest, again: bool) -> Self {
        Self {
            request,
            digest: JobDigest::new(start.id, start.userid, &start.r),
            again,
            rank: start.leader_rank(),
            leader: LeaderLink::Unasked { look_at: None },
            away: None,
            lost: Idset::new(),
            exception: None,
            passed_on: Vec::new(),
            released: Idset::new(),
            status: WaitStatus::default(),
            is_stray: false,
            start,
        }
    }

    fn waiting(&self, mark: u64, ended: bool) -> Waiting {
        let is_stray = ended && self.is_stray;
        Waiting { leader: self.rank, digest: self.digest.clone(), mark, ended, is_stray }
    }

    /// This is the stream on which its leader answers.
    fn is_asked_by(&self, stream: StreamId) -> bool {
        [LeaderLink::Asked { stream }, LeaderLink::Present { stream }].contains(&self.leader)
    }

    /// The status that the job manager was told.
    fn finish(&self) -> Option<WaitStatus> {
        self.passed_on.iter().find_map(|response| match response {
            Response::Finish { status } => Some(*status),
            _ => None,
        })
    }

    /// Its leader has answered on this stream.
    fn set_present(&mut self, stream: StreamId) {
        (self.leader, self.away) = (LeaderLink::Present { stream }, None);
    }

    /// Asks its rank to lead.
    fn ask(&mut self, out: &mut Effects) {
        self.close(out);
        let stream = out.stream();
        self.leader = LeaderLink::Asked { stream };
        let request = LeadRequest {
            version: Version,
            stream: StreamName::default(),
            start: self.start.clone(),
            again: self.again,
            exception: self.exception.clone(),
            lost: self.lost.clone(),
            finish: self.finish(),
            status: self.status,
            released: self.released.clone(),
        };
        self.again = true;
        out.send(self.rank, PeerRequest::Lead { stream, lead: Box::new(request) });
    }

    /// Nobody wants to hear its leader's stream any more.
    fn close(&self, out: &mut Effects) {
        if let LeaderLink::Asked { stream } | LeaderLink::Present { stream } = self.leader {
            out.push(Effect::Drop { to: RequestId::Local(stream) });
        }
    }

    /// Passes an answer on to the job manager, unless that has had it. Returns whether it was the
    /// last one.
    fn pass_on(&mut self, response: Response, out: &mut Effects) -> bool {
        let Some(response) = self.only_news(response) else { return false };
        let is_end = matches!(response, Response::Release { is_final: true, .. });
        if self.passed_on.contains(&response) {
            return is_end;
        }
        if matches!(response, Response::Start {}) {
            // From now on leaders find the shells and start none.
            self.start.reattach = true;
        }
        // A later leader may find shells started that an earlier one had given up.
        let started = |r: &Response| matches!(r, Response::Start {} | Response::Reattached {});
        let is_again =
            started(&response) && (self.finish().is_some() || self.passed_on.iter().any(started));
        if !is_again {
            self.say(response.clone(), out);
        }
        self.passed_on.push(response);
        if let Some(to) = self.request.filter(|_| is_end) {
            out.push(Effect::Drop { to });
        }
        is_end
    }

    /// Tells the job manager. If that has not asked, the event is posted that it would post.
    fn say(&self, response: Response, out: &mut Effects) {
        let id = self.start.id;
        if let Some(to) = self.request {
            return out.push(Effect::Stream { to, item: StreamItem::Response { id, response } });
        }
        let is_fatal = |r: &Response| matches!(r, Response::Exception(e) if e.severity == 0);
        if self.exception.is_none() || !is_fatal(&response) {
            out.push(Effect::Post { id, event: JobEvent::Response(response) });
        }
    }

    /// It goes on when its broker is back: so does a mocked job with any method.
    fn is_lasting(&self, cx: Context) -> bool {
        cx.shells_survive || self.start.jobspec.as_ref().is_ok_and(|jobspec| jobspec.test.is_some())
    }

    /// The job manager has it in CLEANUP.
    fn is_cleaned_up(&self) -> bool {
        self.exception.is_some() || self.passed_on.iter().any(Response::is_end_of_run)
    }

    /// Leaves out ranks that were released before. Returns nothing if nothing is left to say.
    fn only_news(&mut self, response: Response) -> Option<Response> {
        let Response::Release { ranks, is_final } = response else { return Some(response) };
        let said = match &ranks {
            ReleasedRanks::All => self.start.r.ranks(),
            ReleasedRanks::These(ranks) => ranks,
        };
        let news = said.difference(&self.released);
        if news.is_empty() && !is_final {
            return None;
        }
        let all_said = self.released.union(said);
        let is_first = std::mem::replace(&mut self.released, all_said).is_empty();
        let ranks = if is_first { ranks } else { ReleasedRanks::These(news) };
        Some(Response::Release { ranks, is_final })
    }

    fn handle_leader_end(&mut self, cx: Context, end: &StreamEnd, out: &mut Effects) {
        let (id, rank, now) = (self.start.id, self.rank, cx.now.mono);
        let level = Away::note(&mut self.away, now, end);
        out.log(level, format!("{id}: leader on rank {rank} does not answer: {end}"));
        let pause = self.away.as_ref().map_or(0.0, |away| away.pause(now));
        self.leader = LeaderLink::Away { retry_at: now + pause };
    }

    /// Has the job's next rank lead. If none is left this rank leads, to bring the job to its end.
    fn give_up_leader(&mut self, out: &mut Effects) {
        self.lost.insert(self.rank.0);
        let next = self.start.r.ranks().ranks().find(|rank| !self.lost.contains_rank(*rank));
        self.rank = next.unwrap_or(BrokerRank(0));
        let id = self.start.id;
        let away = self.away.take();
        let refusal = away.as_ref().and_then(Away::refusal);
        let why = refusal.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let text = format!("{id}: gave up on its leader{why}; rank {} leads", self.rank);
        out.log(Level::Error, text);
        self.ask(out);
    }
}

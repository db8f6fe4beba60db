//! The client's commits to one KVS namespace: which of them it holds after the broker was away, and
//! who does those again that it lacks.
//!
//! Commits that no checkpoint has are handed over to the rank's module before the client ends,
//! because nobody else could do them again. A job shell hands them over when it gives its service up.
//! What it still does after that takes about as long as the answer, so it does not have to wait when
//! it closes its connection.

use serde_json::json;

use crate::context::Context;
use crate::errnum::{
    BAD_ANSWER, BUSY, NO_ENTRY, NO_HOST, NO_NAMESPACE, NO_SERVICE, NO_SPACE, TOO_LARGE,
    is_unknown_method, is_unreachable,
};
use crate::ledger::{Found, Ledger, RUN_KEY};
use crate::packet::{ANY_RANK, Header, Packet};
use crate::question::{PAUSE_FIRST, PAUSE_MAX, Question};
use crate::wire::Own;

/// The rank of the coordinator, which makes checkpoints.
const RANK_0: u32 = 0;
/// A checkpoint is requested when done commits take this fraction of their limit.
const COVER_PART: usize = 4;
/// Seconds until a checkpoint is requested again after an error.
const COVER_PAUSE: f64 = 2.0;
/// How often commits are offered to a module that is not there, with growing pauses. A reload, and
/// the end of a broker after its modules, take less.
const TRIES_MAX: u32 = 16;
/// How often a client that ends asks its rank or rank 0, in all.
const ASKED_MAX: u32 = 2 * TRIES_MAX;

/// What the connector knows of the namespace since the connection was restored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Settling {
    /// Which commits the namespace holds: commits are passed on.
    Done,
    /// Nothing, and nothing is needed until the client commits again.
    Unknown,
    /// Nothing: it is asked when the question's time has come.
    Due,
    /// A commit without operations was sent. When it is answered, all commits of the old
    /// connection have been applied, and the nearest rank has seen the result: it answers a
    /// commit when it has received the root that holds it (flux-core `modules/kvs/kvs.c`,
    /// `setroot_event_process`). From then on the rank also knows the namespace; it can reorder
    /// commits that arrive before that.
    Fencing,
    /// The run that the namespace belongs to is being looked up.
    Asking,
    /// The client's own key is being looked up.
    Looking,
    /// The client ends. The commits that it has offered to its rank before are offered again.
    Offering,
    /// This many commits that the client believes to be done are being done again.
    Replaying(usize),
    /// It is another run's: commits to it are not done.
    Foreign,
}

/// The connector's view of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Namespace<P> {
    ledger: Ledger<P>,
    settling: Settling,
    /// What [`Settling`] asks for; or whether the rank keeps the commits of a client that ends.
    question: Question,
    /// Seconds that attempts to settle took which failed.
    waited: f64,
    /// The request for a checkpoint.
    cover: Question,
    /// Such a request has succeeded before, so checkpoints are made: done commits are kept until
    /// the next one.
    is_covered: bool,
    /// The version of the ledger that was handed over last.
    handed: Option<u64>,
    /// That is kept: the client was answered.
    is_kept: bool,
    /// The client's rank was asked to keep the commits, and may do them again. That of a shell waits
    /// for its end.
    may_be_kept: bool,
    /// What commits to another run's namespace are answered.
    answer: String,
    /// Answers to commits of the client, with their matchtags.
    answers: Vec<(u32, P)>,
    /// Its commits are in other hands, or lost with it.
    is_over: bool,
}

impl<P: Packet> Namespace<P> {
    pub(crate) fn new(ledger: Ledger<P>, settling: Settling) -> Self {
        Self {
            ledger,
            settling,
            question: Question::default(),
            waited: 0.0,
            cover: Question::default(),
            is_covered: false,
            handed: None,
            is_kept: false,
            may_be_kept: false,
            answer: String::new(),
            answers: Vec::new(),
            is_over: false,
        }
    }

    /// Enters a commit of the client, and sends it if nothing has to be asked before. Returns it as it
    /// is sent. None if it cannot be read.
    pub(crate) fn commit(&mut self, cx: &mut Context<P>, request: &P) -> Option<P> {
        let Header { matchtag, rank, .. } = request.header();
        let home = (rank == ANY_RANK).then(|| request.to_rank(cx.client.home()));
        let request = self.ledger.enter(matchtag, home.as_ref().unwrap_or(request))?;
        self.bound(cx);
        match self.settling {
            // If the namespace were restored between this commit and the next, the next would be done
            // and this one not. So it is sent with those that have to be done again.
            Settling::Unknown => {
                self.settling = Settling::Due;
                self.question.plan(cx.now);
            }
            Settling::Foreign => self.discard(),
            _ => cx.wire.send(request.clone()),
        }
        Some(request)
    }

    /// A commit of the client has its answer.
    pub(crate) fn answered(&mut self, cx: &mut Context<P>, tag: u32, errnum: i32) {
        self.ledger.answered(tag, errnum == 0);
        self.bound(cx);
    }

    /// The connection was lost. Which commits the namespace holds is unknown.
    pub(crate) fn lost(&mut self, cx: &Context<P>) {
        self.cover = Question::default();
        (self.handed, self.is_kept) = (None, false);
        self.question.lost(cx.now);
        self.settling = Settling::Due;
        if self.ledger.is_empty() {
            self.question.cancel();
            self.settling = Settling::Unknown;
        }
    }

    /// Whether nothing has to be asked before messages are passed on.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.settling, Settling::Done | Settling::Unknown | Settling::Foreign)
    }

    /// Whether it is another run's.
    pub(crate) fn is_foreign(&self) -> bool {
        self.settling == Settling::Foreign
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn ledger(&self) -> &Ledger<P> {
        &self.ledger
    }

    /// Answers to commits of the client that the connector gives itself, with their matchtags.
    pub(crate) fn take_answers(&mut self) -> Vec<(u32, P)> {
        std::mem::take(&mut self.answers)
    }

    /// Bytes that count against [`crate::Limits::retained_max`]. Where checkpoints are made, done commits
    /// count too, because they are kept until a checkpoint has them.
    pub(crate) fn kept(&self) -> usize {
        let is_bound = self.cover.is_open() || self.is_covered;
        self.ledger.bytes - if is_bound { 0 } else { self.ledger.closed_bytes }
    }

    /// When to call [`Namespace::settle`]; if the connection is live, [`Namespace::timeout`].
    pub(crate) fn next(&self, is_live: bool) -> Option<f64> {
        let cover = self.cover.next().filter(|_| is_live);
        [self.question.next(), cover].into_iter().flatten().reduce(f64::min)
    }

    /// Asks what the namespace holds, if it is time.
    pub(crate) fn settle(&mut self, cx: &mut Context<P>) {
        if self.settling == Settling::Due && self.question.is_due(cx.now) {
            self.ask(cx, Settling::Fencing, "kvs.commit", self.ledger.fence());
        }
    }

    /// Offers commits again, or asks for a checkpoint again.
    pub(crate) fn timeout(&mut self, cx: &mut Context<P>) {
        if self.question.is_due(cx.now) {
            self.question.cancel();
            self.bequeath(cx);
        }
        if self.cover.is_due(cx.now) {
            self.cover.cancel();
            if cx.client.is_closing {
                self.bequeath(cx);
            } else {
                self.bound(cx);
            }
        }
    }

    /// Asks the client's own rank. A broker whose KVS or module is away would pass on what is for any
    /// rank: then a later commit could be done and an earlier one be refused, and commits be kept by
    /// another rank's module.
    fn ask(&mut self, cx: &mut Context<P>, settling: Settling, topic: &str, payload: String) {
        self.settling = settling;
        let own = Own::Ledger(self.ledger.namespace.clone());
        self.question.ask(cx, own, (topic, payload, cx.client.home()));
    }

    /// There is an answer to the question. `is_whole`: all commits of the client are in the ledger.
    pub(crate) fn heard(&mut self, cx: &mut Context<P>, answer: &P, is_whole: bool) {
        self.question.answered();
        let errnum = answer.header().errnum;
        match self.settling {
            Settling::Fencing if errnum != 0 => self.wait(cx, errnum),
            Settling::Fencing if cx.client.is_of(self.ledger.job()) => {
                let look = self.ledger.look_up(RUN_KEY);
                self.ask(cx, Settling::Asking, "kvs.lookup-plus", look);
            }
            Settling::Fencing => self.look(cx, is_whole),
            Settling::Asking => self.run_found(cx, answer, is_whole),
            Settling::Looking => self.looked(cx, answer),
            Settling::Offering => self.offered_again(cx, answer),
            _ => self.bequeathed(cx, answer),
        }
    }

    /// The namespace does not exist. Its restoration may take time.
    fn wait(&mut self, cx: &Context<P>, errnum: i32) {
        self.waited += self.question.fail(cx.now);
        self.settling = Settling::Due;
        let comes = matches!(errnum, NO_HOST | NO_NAMESPACE | NO_SERVICE);
        if comes && self.waited < cx.client.limits.patience {
            return;
        }
        // It will not return, or its answer cannot be read (errno 0). Its commits can be neither
        // looked up nor done again.
        let errnum = if errnum == 0 { BAD_ANSWER } else { errnum };
        let why = "kvs.commit: the restarted broker does not have the namespace any more";
        let open = self.ledger.unanswered(u64::MAX);
        self.answers.extend(open.map(|(tag, commit)| (tag, commit.refusal(errnum, why))));
        self.is_over = true;
    }

    /// The run that the namespace belongs to was looked up.
    fn run_found(&mut self, cx: &mut Context<P>, answer: &P, is_whole: bool) {
        let Some(found) = Found::of(answer) else {
            return self.wait(cx, answer.header().errnum);
        };
        // A leader can end between making the namespace and saying whose it is, and the next one is as
        // far away as its broker. If it is never said, the namespace is taken for the own run's.
        let patience = cx.client.limits.patience - PAUSE_MAX;
        let own = cx.client.run.as_ref().map(|run| &run.digest);
        match found.text() {
            None if self.waited < patience => self.wait(cx, NO_NAMESPACE),
            Some(digest) if Some(&digest) != own => {
                self.settling = Settling::Foreign;
                self.answer = found.as_answer();
                self.discard();
            }
            _ => self.look(cx, is_whole),
        }
    }

    /// Commits to another run's namespace are not done. The client is told that they were: it is
    /// about to be ended, and the error that it would raise would be one of the other run.
    fn discard(&mut self) {
        let open = self.ledger.unanswered(u64::MAX);
        self.answers.extend(open.map(|(tag, commit)| (tag, commit.answer(&self.answer))));
        self.ledger.clear();
    }

    /// Asks which commits the namespace holds.
    ///
    /// If the answer to what was offered was lost, the rank may have it, and do the commits again. If
    /// the client did them as well, each could be done twice. So a client that ends leaves them to the
    /// rank, if that takes them. A rank waits for the end of a shell, so a shell does its own.
    fn look(&mut self, cx: &mut Context<P>, is_whole: bool) {
        let leaves_them = cx.client.is_closing && is_whole && self.may_be_kept;
        if !(leaves_them && self.offer(cx, Settling::Offering)) {
            let look = self.ledger.look();
            self.ask(cx, Settling::Looking, "kvs.lookup-plus", look);
        }
    }

    fn looked(&mut self, cx: &mut Context<P>, answer: &P) {
        let found = Found::of(answer);
        let held = found.as_ref().and_then(Found::number);
        let (Some(found), Some(held)) = (found, held) else {
            return self.wait(cx, answer.header().errnum);
        };
        self.question.succeed();
        self.waited = 0.0;
        let open = self.ledger.unanswered(held);
        self.answers.extend(open.map(|(tag, commit)| (tag, commit.answer(&found.as_answer()))));
        self.ledger.holds(held);
        // Those that the namespace lacks are done again.
        let mut left = 0;
        for (is_open, commit) in self.ledger.after(held) {
            if is_open {
                // The answer goes to the cx.client.
                cx.wire.send(commit.clone());
            } else {
                left += 1;
                let own = Own::Replay(self.ledger.namespace.clone());
                let payload = String::from_utf8_lossy(commit.payload());
                cx.wire.ask(own, "kvs.commit", &payload, cx.client.home());
            }
        }
        self.settling = if left == 0 { Settling::Done } else { Settling::Replaying(left) };
        self.bound(cx);
    }

    /// A commit was done again that the client believes to be done, or was not.
    pub(crate) fn replayed(&mut self, cx: &mut Context<P>, errnum: i32) {
        let Settling::Replaying(left) = self.settling else { return };
        self.settling = match left {
            // It was not done: settle from the beginning.
            _ if matches!(errnum, NO_HOST | NO_NAMESPACE | NO_SERVICE) => {
                self.question.plan(cx.now + PAUSE_FIRST);
                Settling::Due
            }
            1 => Settling::Done,
            left => Settling::Replaying(left - 1),
        };
        self.bound(cx);
    }

    /// Keeps the remembered commits within their limit. While some are being done again this waits: a
    /// checkpoint may begin before that, and would not have them.
    fn bound(&mut self, cx: &mut Context<P>) {
        let limit = cx.client.limits.commits_max;
        let is_large = self.ledger.closed_bytes > limit / COVER_PART;
        if !is_large || self.cover.is_open() || self.settling != Settling::Done {
            return;
        }
        if self.ledger.job().is_some() && self.cover.next().is_none() {
            self.ask_covered(cx);
        } else if !self.is_covered {
            self.ledger.drop_oldest(limit);
        }
    }

    fn ask_covered(&mut self, cx: &mut Context<P>) {
        let own = Own::Cover(self.ledger.namespace.clone(), self.ledger.mark());
        let payload = json!({ "id": self.ledger.job() }).to_string();
        self.cover.ask(cx, own, ("job-exec.checkpoint", payload, RANK_0));
    }

    /// A checkpoint has the commits up to `mark`, or there is an error.
    pub(crate) fn covered(&mut self, cx: &mut Context<P>, mark: u64, errnum: i32) {
        self.cover.answered();
        if errnum == 0 {
            self.is_covered = true;
            self.ledger.covered(mark);
        } else if !cx.client.is_closing {
            self.cover.plan(cx.now + COVER_PAUSE);
        } else {
            self.is_over = self.question.tries() >= ASKED_MAX;
            self.question.fail_for(cx.now, COVER_PAUSE);
        }
        if !cx.client.is_closing {
            self.bound(cx);
        } else if errnum == 0 {
            // Commits that were made meanwhile.
            self.bequeath(cx);
        }
    }

    /// The client is about to end.
    pub(crate) fn bequeath(&mut self, cx: &mut Context<P>) {
        if self.handed == Some(self.ledger.version) {
            self.is_over |= cx.client.is_closing && self.is_kept;
        } else if !self.cover.is_open() {
            self.offer(cx, self.settling);
        }
    }

    /// Asks the client's rank to keep its commits. Returns false if there are none that it could keep.
    fn offer(&mut self, cx: &mut Context<P>, settling: Settling) -> bool {
        let again = settling == Settling::Offering;
        let Some(payload) = self.ledger.bequest(cx.client.was_shell, again) else { return false };
        (self.handed, self.is_kept) = (Some(self.ledger.version), false);
        self.may_be_kept = !cx.client.was_shell;
        self.ask(cx, settling, "job-exec.keep-commits", payload);
        true
    }

    fn offered_again(&mut self, cx: &Context<P>, answer: &P) {
        self.settling = Settling::Due;
        if answer.header().errnum == 0 {
            self.is_over = true;
        } else if self.is_early(cx, answer) && self.question.tries() < TRIES_MAX {
            self.question.fail(cx.now);
        } else {
            // It does not have them.
            (self.may_be_kept, self.handed) = (false, None);
            self.question.succeed();
            self.question.plan(cx.now);
        }
    }

    /// Whether the client's module was asked too early, or too late: it is being reloaded, or the
    /// broker is stopping. A client that does not know its rank may have been answered by the module
    /// of another one, which does not know the job.
    fn is_early(&self, cx: &Context<P>, answer: &P) -> bool {
        match answer.header().errnum {
            _ if is_unreachable(answer) => true,
            // What the client has left through an earlier broker, or an earlier time, is being written.
            BUSY => true,
            NO_SERVICE => !is_unknown_method(answer),
            NO_ENTRY => cx.client.is_of(self.ledger.job()) && cx.client.rank.is_none(),
            _ => false,
        }
    }

    fn bequeathed(&mut self, cx: &mut Context<P>, answer: &P) {
        // Else it has committed more since, and waits for a checkpoint before it offers that.
        if self.handed.take() != Some(self.ledger.version) {
            return;
        }
        let is_early = self.is_early(cx, answer);
        match answer.header().errnum {
            0 if !cx.client.is_closing => {
                (self.handed, self.is_kept) = (Some(self.ledger.version), true)
            }
            // They are offered again when it closes its connection.
            _ if !cx.client.is_closing => {}
            _ if is_early && self.question.tries() < TRIES_MAX => drop(self.question.fail(cx.now)),
            // The module has no room for them, or stays away. A checkpoint takes longer, and has them.
            errnum if is_early || matches!(errnum, NO_SPACE | TOO_LARGE) => self.ask_covered(cx),
            // Kept; or this is no rank of the job.
            _ => self.is_over = true,
        }
    }
}

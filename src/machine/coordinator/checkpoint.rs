//! The group checkpoint: one `FLUX_KVS_SYNC` commit for everything that has changed.
//!
//! When rank 0's broker is killed, the KVS loses what it has not checkpointed. So agents keep what
//! they have until a checkpoint holds it. At most one checkpoint is under way, and one begins at
//! most every `exec.checkpoint-interval`. So its cost does not grow with the rate of jobs, and the
//! interval bounds how much has to be found again.
//!
//! The KVS also changes for jobs that only wait. The adapter looks for that
//! ([`Event::KvsChanged`](crate::machine::Event::KvsChanged)).

use std::collections::{BTreeMap, BTreeSet};

use super::asked::Asked;
use super::sweep::Sweep;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::{Fault, RequestId};
use crate::machine::mono_time::MonoTime;
use crate::machine::peer_request::PeerRequest;
use crate::proto::peer::{CoveredRequest, Version};
use crate::proto::{BrokerRank, JobDigest, JobId};

/// What a job's leader waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) leader: BrokerRank,
    pub(super) digest: JobDigest,
    pub(super) mark: u64,
    pub(super) ended: bool,
    /// It has ended, and its reference may be there again.
    pub(super) is_stray: bool,
}

/// How far the last checkpoint is, before the module is unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Last {
    #[default]
    Unwanted,
    /// The next one takes all running jobs, and begins as soon as it can.
    Wanted,
    Begun,
}

/// Whether the next checkpoint begins without a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Haste {
    #[default]
    None,
    /// It does.
    Wanted,
    /// The one under way did, so the next one does not: there are not more than two for each
    /// interval.
    Had,
}

/// The checkpoint that is being made.
#[derive(Clone, Debug, Default, PartialEq)]
struct UnderWay {
    /// The jobs whose leaders wait for it.
    jobs: BTreeMap<JobId, Waiting>,
    /// Its commit was sent.
    begun: bool,
    /// Jobs whose references it writes.
    writing: BTreeSet<JobId>,
    /// Jobs whose references it removes.
    removing: BTreeSet<JobId>,
    /// Something has changed meanwhile.
    changed: bool,
}

/// What waits for the next checkpoint, and the one under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Checkpoint {
    waiting: BTreeMap<JobId, Waiting>,
    under_way: Option<UnderWay>,
    /// Jobs that nobody runs any more, and whose references may be there again.
    strays: BTreeSet<JobId>,
    /// Shells that wait.
    asked: Asked,
    due: Option<MonoTime>,
    haste: Haste,
    /// When the last one since this coordinator came up was made.
    made: Option<MonoTime>,
    last: Last,
    /// Why the last one was not made, which was said.
    trouble: Option<Fault>,
    sweep: Sweep,
}

impl Checkpoint {
    /// Something has changed that a crash must not undo for long.
    pub(super) fn touch(&mut self, cx: Context) {
        self.want_within(cx, cx.config.checkpoint_interval);
    }

    /// A rank waits for the first one since this coordinator came up.
    pub(super) fn make_first(&mut self, cx: Context) {
        self.want_within(cx, 0.0);
    }

    /// The KVS has changed, perhaps for jobs that only wait.
    pub(super) fn note_change(&mut self, cx: Context) {
        self.touch(cx);
    }

    fn want_within(&mut self, cx: Context, seconds: f64) {
        match &mut self.under_way {
            Some(under_way) => under_way.changed = true,
            None => {
                let at = cx.now.mono + seconds;
                self.due = Some(self.due.map_or(at, |due| due.min(at)));
            }
        }
    }

    /// The checkpoint under way may have a job in CLEANUP that is not held. The next one has the hold.
    pub(super) fn hurry(&mut self) {
        if self.under_way.is_some() && self.haste == Haste::None {
            self.haste = Haste::Wanted;
        }
    }

    /// Removes the reference to a job that nobody runs any more, if its data is in its place.
    pub(super) fn take_back(&mut self, cx: Context, id: JobId) {
        self.strays.insert(id);
        self.touch(cx);
    }

    /// A leader wants to be told when what it has committed is covered.
    pub(super) fn wait(&mut self, id: JobId, waiting: Waiting) {
        self.waiting.insert(id, waiting);
    }

    /// A shell of this user wants to be told when what is in its guest namespace now is durable.
    pub(super) fn ask(
        &mut self,
        cx: Context,
        id: JobId,
        userid: u32,
        to: RequestId,
        out: &mut Effects,
    ) {
        let taken = if cx.shells_survive {
            self.asked.take(to, id, userid)
        } else {
            let message = "no checkpoints are made for shells that do not survive";
            Err(Fault::new(libc::ENOSYS, message))
        };
        match taken {
            Ok(()) => self.touch(cx),
            Err(fault) => out.done(to, Err(fault)),
        }
    }

    /// Whether this is the request of a shell that waits.
    pub(super) fn has_asked(&self, request: RequestId) -> bool {
        self.asked.contains(request)
    }

    /// Nobody listens to this request any more.
    pub(super) fn handle_disconnect(&mut self, request: RequestId, out: &mut Effects) {
        if self.asked.remove(request) {
            out.push(Effect::Drop { to: request });
        }
    }

    /// Nobody will answer any more.
    pub(super) fn shut_down(&mut self, out: &mut Effects) {
        for to in self.asked.take_all() {
            let fault = Fault::new(libc::ENOSYS, "the coordinator is being unloaded");
            out.done(to, Err(fault));
        }
    }

    /// This job has ended, and no checkpoint says so yet.
    pub(super) fn has_ended(&self, id: JobId, digest: &JobDigest) -> bool {
        let under_way = self.under_way.iter().map(|under_way| &under_way.jobs);
        under_way
            .chain([&self.waiting])
            .filter_map(|jobs| jobs.get(&id))
            .any(|job| job.ended && job.digest == *digest)
    }

    /// A checkpoint was made since this coordinator came up: it covers what earlier ones said.
    pub(super) fn is_made(&self) -> bool {
        self.made.is_some()
    }

    /// How old what the last one holds is at most, in seconds.
    pub(super) fn age(&self, now: MonoTime) -> Option<f64> {
        self.made.map(|made| now - made)
    }

    /// The one under way writes this job's reference.
    pub(super) fn is_writing(&self, id: JobId) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.writing.contains(&id))
    }

    /// Jobs whose references the one under way writes.
    pub(super) fn writing(&self) -> impl Iterator<Item = &JobId> {
        self.under_way.iter().flat_map(|under_way| &under_way.writing)
    }

    /// The next checkpoint is the last one, and takes all running jobs. None is made if nothing runs
    /// and nothing waits for one. `jobs`: some outlive their broker.
    pub(super) fn make_last(&mut self, cx: Context, jobs: bool) {
        let waits = cx.shells_survive && (!self.waiting.is_empty() || self.has_strays());
        if jobs || waits {
            self.last = Last::Wanted;
            self.due = Some(cx.now.mono);
        }
    }

    /// Whether the last one has ended, or none was wanted.
    pub(super) fn is_last_made(&self) -> bool {
        self.last == Last::Unwanted && self.under_way.is_none()
    }

    /// Whether one is to begin now.
    pub(super) fn is_due(&self, now: MonoTime) -> bool {
        self.next_timeout().is_some_and(|at| at <= now)
    }

    /// None is begun while another is under way.
    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        let times = [self.due, self.sweep.due()];
        times.into_iter().flatten().min().filter(|_| self.under_way.is_none())
    }

    /// Running jobs have their turn while there are any.
    pub(super) fn sweep_while(&mut self, cx: Context, jobs: bool) {
        self.sweep.go_on_while(cx.now.mono, jobs && cx.shells_survive);
    }

    /// Makes a checkpoint, if it is time. Where no shell outlives its broker there is nothing to find
    /// again, so nothing is made durable; but for mocked jobs, by the last one.
    pub(super) fn handle_timeout(
        &mut self,
        cx: Context,
        running: impl Iterator<Item = JobId> + Clone,
        out: &mut Effects,
    ) {
        let now = cx.now.mono;
        if !self.is_due(now) {
            return;
        }
        let turn = if self.last == Last::Wanted {
            self.last = Last::Begun;
            running.collect()
        } else {
            self.sweep.take_due(now, running)
        };
        if turn.is_empty() && self.due.is_none_or(|at| at > now) {
            return;
        }
        self.due = None;
        let jobs = std::mem::take(&mut self.waiting);
        let mut under_way = UnderWay { jobs, ..UnderWay::default() };
        let is_durable = cx.shells_survive || self.last == Last::Begun;
        if is_durable {
            let jobs = &under_way.jobs;
            let waiting = jobs.iter().filter(|(_, job)| !job.ended).map(|(id, _)| *id);
            under_way.writing = waiting.chain(self.asked.jobs()).chain(turn).collect();
            let stray = jobs.iter().filter(|(_, job)| job.is_stray).map(|(id, _)| *id);
            under_way.removing = stray.chain(std::mem::take(&mut self.strays)).collect();
            let [jobs, ended] =
                [&under_way.writing, &under_way.removing].map(|ids| ids.iter().copied().collect());
            out.push(Effect::Checkpoint { jobs, ended });
        }
        self.under_way = Some(under_way);
        self.asked.begin();
        if !is_durable {
            self.handle_made(cx, Ok(()), out);
        }
    }

    /// The commit of the one under way was sent.
    pub(super) fn handle_begun(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.begun = true;
        }
    }

    /// One is under way, and its commit was not sent yet.
    pub(super) fn is_prepared(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| !under_way.begun)
    }

    /// A reference is to be removed, and after an unload nobody would know.
    fn has_strays(&self) -> bool {
        !self.strays.is_empty() || self.waiting.values().any(|job| job.is_stray)
    }

    /// The checkpoint under way has ended.
    pub(super) fn handle_made(
        &mut self,
        cx: Context,
        result: Result<(), Fault>,
        out: &mut Effects,
    ) {
        let Some(UnderWay { jobs, mut removing, changed, .. }) = self.under_way.take() else {
            return;
        };
        let is_made = result.is_ok();
        match result {
            Ok(()) => {
                self.made = Some(cx.now.mono);
                self.trouble = None;
                for to in self.asked.take_made() {
                    out.done(to, Ok(()));
                }
                for (id, job) in jobs {
                    let Waiting { leader: to, digest, mark, ended, .. } = job;
                    let request = CoveredRequest { version: Version, id, digest, mark, ended };
                    out.send(to, PeerRequest::Covered(request));
                }
            }
            Err(fault) => {
                if self.trouble.as_ref() != Some(&fault) {
                    out.log(Level::Error, format!("checkpoint of the KVS: {fault}"));
                    self.trouble = Some(fault);
                }
                for (id, job) in jobs {
                    self.waiting.entry(id).or_insert(job);
                }
                self.strays.append(&mut removing);
                self.asked.put_back();
            }
        }
        if self.last == Last::Begun && !self.has_strays() {
            self.last = Last::Unwanted;
        }
        let hurries = self.haste == Haste::Wanted;
        self.haste = if hurries { Haste::Had } else { Haste::None };
        if hurries || self.last == Last::Wanted || self.last == Last::Begun && is_made {
            self.due = Some(cx.now.mono);
        } else if changed || !is_made {
            self.due = Some(cx.now.mono + cx.config.checkpoint_interval);
        }
    }
}

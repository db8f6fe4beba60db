//! Jobs that were in CLEANUP when rank 0's broker or module was started again.

use super::{Coordinated, Coordinator};
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::Fault;
use crate::proto::{Cleaning, JobEvent, JobId, Response};

impl Coordinator {
    /// Leads a job in CLEANUP to its end: the job manager does not ask for it again.
    pub(in crate::machine) fn handle_cleaning(
        &mut self,
        cx: Context,
        cleaning: Cleaning,
        out: &mut Effects,
    ) {
        let Cleaning { start, exception, finish, released, is_released, is_held } = cleaning;
        let id = start.id;
        self.unasked.read(id);
        // The job manager has asked for this job before, and it came to CLEANUP only after that.
        if self.jobs.contains_key(&id) {
            return;
        }
        if is_released {
            if is_held {
                out.push(Effect::Post { id, event: JobEvent::EpilogFinish });
            }
            return;
        }
        out.log(Level::Info, format!("{id}: found in CLEANUP, and led to its end"));
        self.touch(cx);
        let started = start.reattach.then_some(Response::Start {});
        let finished = finish.map(|status| Response::Finish { status });
        let mut job = Coordinated {
            exception,
            passed_on: started.into_iter().chain(finished).collect(),
            released: released.intersection(start.r.ranks()),
            status: finish.unwrap_or_default(),
            is_stray: true,
            ..Coordinated::new(None, start, true)
        };
        job.ask(out);
        self.jobs.insert(id, job);
        if is_held {
            self.holds.find(id);
        } else {
            // Nothing keeps the job manager from freeing it at the job's next event, so it is held now.
            self.holds.want(id);
            self.holds.ask(out);
        }
    }

    /// This job in CLEANUP needs nobody to lead it to its end.
    pub(in crate::machine) fn handle_not_cleaning(&mut self, id: JobId) {
        self.unasked.read(id);
    }

    /// The KVS has a hold, or it could not be made.
    pub(in crate::machine) fn handle_held(
        &mut self,
        cx: Context,
        id: JobId,
        result: Result<(), Fault>,
        out: &mut Effects,
    ) {
        self.holds.handle_held(id, result.is_ok());
        if let Err(fault) = &result
            && self.jobs.contains_key(&id)
        {
            out.log(Level::Warning, format!("{id}: cannot be held in CLEANUP: {fault}"));
        }
        self.advance_checkpoint(cx, out);
    }

    /// The KVS has the release of this job.
    pub(in crate::machine) fn handle_release_kept(
        &mut self,
        cx: Context,
        id: JobId,
        out: &mut Effects,
    ) {
        self.holds.handle_release_kept(id);
        self.advance_checkpoint(cx, out);
    }
}

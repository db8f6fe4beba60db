//! Shells that nobody wants, and those of another job that had the same id.

use super::Agent;
use crate::machine::Context;
use crate::machine::agent::eviction::{Eviction, Step};
use crate::machine::agent::shell::Shell;
use crate::machine::effect::{Effect, Effects, Level};
use crate::planted::Bug;
use crate::proto::Idset;
use crate::proto::peer::{Order, Report, ShellsRequest};

/// Keeps a job and the shell of another with its id apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fence {
    /// The shell cannot be ended, and the job was told so.
    Refused,
    /// This is to be obeyed when the shell is gone.
    Waiting(Box<ShellsRequest>),
}

impl Agent {
    /// Ends the shell, which nobody wants.
    pub(super) fn evict(&mut self, cx: Context, why: &str, out: &mut Effects) {
        let Some(shell) = &mut self.shell else { return };
        out.log(Level::Error, format!("{}: stopping {}: {why}", self.id, shell.unit()));
        shell.end(out);
        if !shell.is_done() {
            let first = cx.config.kill_timeout;
            self.eviction.get_or_insert_with(|| Eviction::start(cx.now.mono, first, cx.config));
        }
    }

    pub(super) fn evict_further(&mut self, cx: Context, out: &mut Effects) {
        let step = self.eviction.as_mut().and_then(|eviction| eviction.step(cx.now.mono));
        let (Some(step), Some(shell)) = (step, &mut self.shell) else { return };
        if Bug::UnwantedGuestLives.is_planted() && shell.is_multiuser() {
            return;
        }
        let (signal, all) = if shell.is_multiuser() {
            (cx.config.stop_timer_signal, false)
        } else {
            (cx.config.kill_signal.number(), true)
        };
        shell.order(&Order::Signal { signal, all }, out);
        if step == Step::SignalAndDrain {
            self.give_up_eviction(cx, out);
        }
    }

    /// A leader drains the rank itself; without one, or with that of another job, nobody else
    /// would.
    fn give_up_eviction(&mut self, cx: Context, out: &mut Effects) {
        let Some(shell) = &mut self.shell else { return };
        let text = format!("{}: cannot end {}: draining its rank", self.id, shell.unit());
        out.log(Level::Error, text);
        if self.fence.is_none() && self.upstream.is_some() {
            for report in shell.set_unkillable() {
                self.gather(cx, cx.facts.rank, report);
            }
        } else {
            let reason = format!("unkillable user processes for job {}", self.id);
            out.push(Effect::Drain { ranks: Idset::from_iter([cx.facts.rank]), reason });
        }
        if self.fence.is_some() {
            self.refuse_fenced(cx);
        }
        self.send_if_complete(cx, out);
    }

    /// Nothing can be started here: the shell of another job with the same id lives on.
    fn refuse_fenced(&mut self, cx: Context) {
        self.fence = Some(Fence::Refused);
        let message = "processes of another job, which had the same id, cannot be ended";
        let report = Report::Failed { errnum: libc::EBUSY, message: message.to_string() };
        self.gather(cx, cx.facts.rank, report);
    }

    /// Nothing is to be started for the job any more.
    pub(super) fn disown(&mut self) {
        self.over = true;
        self.unstarted = None;
        self.fence = None;
    }

    /// The shell that is here is of another job: it is ended before anything is started.
    pub(super) fn fence_off(&mut self, cx: Context, request: &ShellsRequest, out: &mut Effects) {
        self.fence = Some(Fence::Waiting(Box::new(request.clone())));
        if self.eviction.as_ref().is_some_and(Eviction::is_given_up) {
            return self.refuse_fenced(cx);
        }
        let why = "it belongs to another job, which had the same id before the KVS went back to a \
                   checkpoint";
        self.evict(cx, why, out);
        if self.shell.as_ref().is_some_and(Shell::is_done) {
            return self.unfence(cx, out);
        }
        self.gather(cx, cx.facts.rank, Report::Pending);
    }

    /// The other job's shell is gone: the name is free.
    pub(super) fn unfence(&mut self, cx: Context, out: &mut Effects) {
        match self.fence.take() {
            Some(Fence::Waiting(request)) => {
                self.shell = None;
                self.own_shell(cx, &request, out);
            }
            Some(Fence::Refused) => self.shell = None,
            None => (),
        }
    }
}

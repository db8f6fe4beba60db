//! The start barrier of a job's shells (flux-core `shell/shell.c`, `shell_barrier`).
//!
//! A shell sends its request without a matchtag and waits for the answer by its topic, so an
//! error cannot be matched to its request. The connector sends the request with a matchtag of
//! its own, as often as needed. It adds the number of the entry, so that the service can tell
//! a repeated request from the next entry.

use serde_json::Value;

use crate::context::Context;
use crate::errnum::{NO_SERVICE, is_unreachable};
use crate::packet::{ANY_RANK, Packet};
use crate::question::Question;
use crate::wire::Own;

const TOPIC: &str = "job-exec.shell-barrier";

/// The shell's progress through its barriers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Barrier<P> {
    /// The shell's last request. It is kept after its answer, to be said again.
    request: Option<P>,
    /// Whether the shell waits for its answer.
    waits: bool,
    /// How many barriers it has entered.
    entered: u32,
    question: Question,
}

impl<P> Default for Barrier<P> {
    fn default() -> Self {
        Self { request: None, waits: false, entered: 0, question: Question::default() }
    }
}

impl<P: Packet> Barrier<P> {
    /// The shell enters its next barrier. What becomes of the last one does not matter any more.
    pub(crate) fn enter(&mut self, cx: &mut Context<P>, request: P) {
        self.question.withdraw(cx);
        let entered = self.entered + 1;
        *self = Self { request: Some(request), waits: true, entered, ..Self::default() };
        self.say(cx);
    }

    /// Says the last entry, also to a broker that is back after the entry was answered: the module
    /// can have lost how often the shell has entered, while others wait for it.
    pub(crate) fn say(&mut self, cx: &mut Context<P>) {
        let Some(request) = &self.request else { return };
        let mut payload: Value = serde_json::from_slice(request.payload()).unwrap_or_default();
        if let Some(payload) = payload.as_object_mut() {
            payload.insert("entry".to_string(), self.entered.into());
            payload.insert("client".to_string(), cx.client.name().into());
        }
        self.question.ask(cx, Own::Barrier, (TOPIC, payload.to_string(), ANY_RANK));
    }

    /// When to call [`Barrier::timeout`].
    pub(crate) fn next(&self) -> Option<f64> {
        self.question.next()
    }

    pub(crate) fn timeout(&mut self, cx: &mut Context<P>) {
        if self.question.is_due(cx.now) {
            self.say(cx);
        }
    }

    /// The service has answered.
    pub(crate) fn answered(&mut self, cx: &mut Context<P>, answer: &P) {
        self.question.answered();
        let errnum = answer.header().errnum;
        // The module is just being loaded, or the broker is shutting down.
        let is_early = errnum == NO_SERVICE || is_unreachable(answer);
        if is_early && (self.waits || cx.is_patient()) {
            self.question.fail(cx.now);
            return;
        }
        let Some(request) = self.take_waiting() else { return };
        let text = String::from_utf8_lossy(answer.payload());
        cx.wire.give(match errnum {
            0 => request.answer(&text),
            errnum => request.refusal(errnum, &text),
        });
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self, cx: &mut Context<P>, errnum: i32, why: &str) {
        if let Some(request) = self.take_waiting() {
            cx.wire.give(request.refusal(errnum, why));
        }
    }

    /// The request that the shell waits for, which now gets its answer.
    fn take_waiting(&mut self) -> Option<&P> {
        let waits = std::mem::take(&mut self.waits);
        self.request.as_ref().filter(|_| waits)
    }
}

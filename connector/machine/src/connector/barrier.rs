//! The start barrier of a job's shells (flux-core `shell/shell.c`, `shell_barrier`).
//!
//! A shell sends its request without a matchtag and waits for the answer by its topic, so an
//! error cannot be matched to its request. The connector sends the request with a matchtag of
//! its own, as often as needed. It adds the number of the entry, so that the service can tell
//! a repeated request from the next entry.

use serde_json::Value;

use crate::connector::restore::Own;
use crate::connector::{Connector, Phase};
use crate::flight::{NO_SERVICE, is_unreachable};
use crate::packet::Packet;

const TOPIC: &str = "job-exec.shell-barrier";
/// Pauses before the service is asked again, in seconds: each is twice the last.
const RETRY_FIRST: f64 = 0.1;
const RETRY_MAX: f64 = 2.0;

/// The shell's progress through its barriers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Barrier<P> {
    /// The shell's last request. It is kept after its answer, to be said again.
    request: Option<P>,
    /// Whether the shell waits for its answer.
    waits: bool,
    /// How many barriers it has entered.
    entered: u32,
    pub(crate) retry_at: Option<f64>,
    tries: u32,
}

impl<P> Default for Barrier<P> {
    fn default() -> Self {
        Self { request: None, waits: false, entered: 0, retry_at: None, tries: 0 }
    }
}

impl<P> Barrier<P> {
    /// The request that the shell waits for, which now gets its answer.
    pub(crate) fn take_waiting(&mut self) -> Option<&P> {
        let waits = std::mem::take(&mut self.waits);
        self.request.as_ref().filter(|_| waits)
    }
}

impl<P: Packet> Connector<P> {
    pub(crate) fn enter_barrier(&mut self, request: P) {
        let Barrier { entered, .. } = self.barrier;
        let entered = entered + 1;
        self.barrier =
            Barrier { request: Some(request), waits: true, entered, ..Barrier::default() };
        if self.phase == Phase::Live {
            self.ask_barrier();
        }
    }

    /// Says the last entry, also to a broker that is back after the entry was answered: the module
    /// can have lost how often the shell has entered, while others wait for it.
    pub(crate) fn ask_barrier(&mut self) {
        self.barrier.retry_at = None;
        let Some(request) = &self.barrier.request else { return };
        let mut payload: Value = serde_json::from_slice(request.payload()).unwrap_or_default();
        if let Some(payload) = payload.as_object_mut() {
            payload.insert("entry".to_string(), self.barrier.entered.into());
            payload.insert("client".to_string(), format!("{:016x}", self.id).into());
        }
        self.ask(Own::Barrier(self.barrier.entered), TOPIC, &payload.to_string());
    }

    pub(crate) fn barrier_answered(&mut self, now: f64, entry: u32, packet: &P) {
        if entry != self.barrier.entered {
            return; // of an entry that was said again, and answered before
        }
        let errnum = packet.header().errnum;
        // The module is just being loaded, or the broker is shutting down.
        let is_early = errnum == NO_SERVICE || is_unreachable(packet);
        if is_early && (self.barrier.waits || now < self.patient_until) {
            let pause = RETRY_FIRST * f64::from(1u32 << self.barrier.tries.min(10));
            self.barrier.tries += 1;
            self.barrier.retry_at = Some(now + pause.min(RETRY_MAX));
            return;
        }
        let Some(request) = self.barrier.take_waiting() else { return };
        let text = String::from_utf8_lossy(packet.payload());
        let answer = match errnum {
            0 => request.answer(&text),
            errnum => request.refusal(errnum, &text),
        };
        self.deliver(answer);
    }
}

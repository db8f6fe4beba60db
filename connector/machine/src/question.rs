//! A question that is asked again until it is answered.

use crate::context::Context;
use crate::packet::Packet;
use crate::wire::Own;

/// Pauses after a question that has failed, in seconds: each is twice the last.
pub(crate) const PAUSE_FIRST: f64 = 0.1;
pub(crate) const PAUSE_MAX: f64 = 2.0;
/// The first pause if most often the answer is another one after some milliseconds.
const PAUSE_SHORT: f64 = 0.01;
/// Seconds until a question that nobody answers is asked again; then twice as long each time. Who
/// was asked may have ended before it read the question. Brokers do not tell.
const UNANSWERED_FIRST: f64 = 2.0;
const UNANSWERED_MAX: f64 = 30.0;

/// A pause that was `first` seconds, and doubles with each try up to `max`.
pub(crate) fn doubled(first: f64, max: f64, tries: u32) -> f64 {
    (first * f64::from(1u32 << tries.min(10))).min(max)
}

/// When a question is asked, and which answer is its own. Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Question {
    /// The matchtag with which it is under way.
    open: Option<u32>,
    /// When to ask.
    at: Option<f64>,
    /// When to ask again, because there is no answer. None if brokers see to one.
    again_at: Option<f64>,
    /// How often it has failed in a row.
    tries: u32,
    /// How often in a row nobody has answered, before the last time.
    unanswered: u32,
}

impl Question {
    /// Asks at this time, or earlier if that is planned.
    pub(crate) fn plan(&mut self, at: f64) {
        self.at = Some(self.at.map_or(at, |known| known.min(at)));
    }

    /// Asks again after a pause. Returns the pause.
    pub(crate) fn fail(&mut self, now: f64) -> f64 {
        let pause = doubled(PAUSE_FIRST, PAUSE_MAX, self.tries);
        self.fail_for(now, pause);
        pause
    }

    /// Asks again after a short pause.
    pub(crate) fn fail_shortly(&mut self, now: f64) {
        self.fail_for(now, doubled(PAUSE_SHORT, PAUSE_MAX, self.tries));
    }

    /// Asks again after this pause.
    pub(crate) fn fail_for(&mut self, now: f64, pause: f64) {
        self.tries += 1;
        self.at = Some(now + pause);
    }

    /// Does not ask what was planned.
    pub(crate) fn cancel(&mut self) {
        self.at = None;
    }

    /// When to ask next.
    pub(crate) fn next(&self) -> Option<f64> {
        if self.open.is_some() { self.again_at } else { self.at }
    }

    pub(crate) fn is_due(&self, now: f64) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether it is asked, or will be.
    pub(crate) fn is_planned(&self) -> bool {
        self.open.is_some() || self.at.is_some()
    }

    /// Asks. Only the answer to the last question counts.
    pub(crate) fn ask<P: Packet>(
        &mut self,
        cx: &mut Context<P>,
        own: Own,
        (topic, payload, rank): (&str, String, u32),
    ) {
        self.withdraw(cx);
        (self.at, self.again_at) = (None, None);
        self.open = Some(cx.wire.ask(own, topic, &payload, rank));
    }

    /// Asks somebody who may never answer.
    pub(crate) fn ask_patiently<P: Packet>(
        &mut self,
        cx: &mut Context<P>,
        own: Own,
        request: (&str, String, u32),
    ) {
        self.unanswered = if self.open.is_some() { self.unanswered + 1 } else { 0 };
        self.ask(cx, own, request);
        let pause = doubled(UNANSWERED_FIRST, UNANSWERED_MAX, self.unanswered);
        self.again_at = Some(cx.now + pause);
    }

    /// There is an answer, or an error.
    pub(crate) fn answered(&mut self) {
        (self.open, self.again_at) = (None, None);
    }

    /// The answer does not matter any more.
    pub(crate) fn withdraw<P: Packet>(&mut self, cx: &mut Context<P>) {
        if let Some(tag) = self.open.take() {
            cx.wire.withdraw(tag);
        }
    }

    /// It has not failed this time.
    pub(crate) fn succeed(&mut self) {
        self.tries = 0;
    }

    /// The connection was lost, and with it the question. It is asked as soon as there is one.
    pub(crate) fn lost(&mut self, now: f64) {
        self.answered();
        self.at = Some(now);
    }

    /// How often it has failed in a row.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }
}

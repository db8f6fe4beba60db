//! When to ask the other end of a channel, until it has answered.

/// Pauses before an end that cannot be reached is asked again, in seconds: each is twice the last.
const PAUSE_FIRST: f64 = 0.1;
const PAUSE_MAX: f64 = 2.0;
/// Seconds until an end that does not answer is asked again; then twice as long each time. It may
/// have ended before it read the question. Brokers do not tell.
const ASK_AGAIN_FIRST: f64 = 2.0;
const ASK_AGAIN_MAX: f64 = 30.0;

/// The times of one question. All are in seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inquiry {
    /// When to ask.
    ask_at: Option<f64>,
    /// The question, or the one whether the other end's broker runs, is under way.
    is_open: bool,
    /// When to ask again, because there is no answer.
    ask_again_at: Option<f64>,
    /// Questions in a row that failed.
    tries: u32,
    /// Questions in a row that nobody has answered, before the last one.
    unanswered: u32,
}

impl Inquiry {
    /// Asks at this time, or earlier if that is planned.
    pub(crate) fn ask_by(&mut self, at: f64) {
        self.ask_at = Some(self.ask_at.map_or(at, |known| known.min(at)));
    }

    /// Does not ask what was planned.
    pub(crate) fn cancel(&mut self) {
        self.ask_at = None;
    }

    /// When to ask next.
    pub(crate) fn next(&self) -> Option<f64> {
        if self.is_open { self.ask_again_at } else { self.ask_at }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The question is sent.
    pub(crate) fn asked(&mut self, now: f64) {
        let is_again = std::mem::replace(&mut self.is_open, true);
        self.unanswered = if is_again { self.unanswered + 1 } else { 0 };
        let pause = ASK_AGAIN_FIRST * f64::from(1u32 << self.unanswered.min(10));
        (self.ask_at, self.ask_again_at) = (None, Some(now + pause.min(ASK_AGAIN_MAX)));
    }

    /// There is an answer, or an error.
    pub(crate) fn answered(&mut self) {
        (self.is_open, self.ask_again_at) = (false, None);
    }

    /// The other end is there.
    pub(crate) fn reached(&mut self) {
        self.tries = 0;
    }

    /// Asks again after a pause.
    pub(crate) fn ask_later(&mut self, now: f64) {
        let pause = PAUSE_FIRST * f64::from(1u32 << self.tries.min(10));
        self.tries += 1;
        self.ask_at = Some(now + pause.min(PAUSE_MAX));
    }

    /// The connection was lost, and with it the question.
    pub(crate) fn lost(&mut self, now: f64) {
        self.answered();
        self.ask_at = Some(now);
    }
}

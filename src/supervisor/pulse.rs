//! Whether the supervisor's thread goes on. It waits for news without blocking; only a call to the
//! disk can hold it up, for as long as the disk does not answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the thread says of itself, for other threads.
#[derive(Debug)]
pub struct Pulse {
    born: Instant,
    /// Since when it has been at work, in milliseconds since `born`; `WAITS` while it waits for news.
    busy_since: AtomicU64,
}

const WAITS: u64 = u64::MAX;

impl Default for Pulse {
    fn default() -> Self {
        Self { born: Instant::now(), busy_since: AtomicU64::new(WAITS) }
    }
}

impl Pulse {
    /// The thread begins to work.
    pub fn begin(&self) {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(WAITS - 1);
        self.busy_since.store(now, Ordering::Relaxed);
    }

    /// The thread waits for news.
    pub fn rest(&self) {
        self.busy_since.store(WAITS, Ordering::Relaxed);
    }

    /// For how long it has been at the same work.
    pub fn busy_for(&self) -> Duration {
        match self.busy_since.load(Ordering::Relaxed) {
            WAITS => Duration::ZERO,
            since => self.born.elapsed().saturating_sub(Duration::from_millis(since)),
        }
    }
}

/// Who looks at the pulse.
#[derive(Debug, Default)]
pub struct PulseWatch {
    is_held_up: bool,
}

impl PulseWatch {
    /// Whether the thread is held up now, if that is news.
    pub fn look(&mut self, busy_for: Duration, patience: Duration) -> Option<bool> {
        let is_held_up = busy_for >= patience;
        let was_held_up = std::mem::replace(&mut self.is_held_up, is_held_up);
        (is_held_up != was_held_up).then_some(is_held_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_held_up_is_told_once_and_so_is_its_return() {
        let patience = Duration::from_secs(30);
        let mut watch = PulseWatch::default();
        let seconds = [0, 29, 30, 40, 50, 0, 5, 31];
        let told: Vec<_> =
            seconds.map(|busy| watch.look(Duration::from_secs(busy), patience)).to_vec();
        let (held, free) = (Some(true), Some(false));
        assert_eq!(told, [None, None, held, None, None, free, None, held]);
    }

    #[test]
    fn who_waits_for_news_is_not_busy() {
        let pulse = Pulse::default();
        assert_eq!(pulse.busy_for(), Duration::ZERO);
        pulse.begin();
        pulse.rest();
        assert_eq!(pulse.busy_for(), Duration::ZERO);
    }
}

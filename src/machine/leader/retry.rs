//! How long a leader waits before it tries something again, and when it gives up.

/// Pauses double from the first to the longest.
#[derive(Clone, Copy)]
pub(super) struct Policy {
    /// In seconds.
    pub(super) first: f64,
    /// In seconds.
    pub(super) longest: f64,
    /// How often it is tried in a row.
    pub(super) tries: u32,
}

impl Policy {
    /// The same pause each time, in seconds, until it succeeds.
    pub(super) const fn each(pause: f64) -> Self {
        Self { first: pause, longest: pause, tries: u32::MAX }
    }

    /// It has failed so many times in a row. Returns the pause before the next try, in seconds; none:
    /// it is given up.
    pub(super) fn pause(self, failures: u32) -> Option<f64> {
        let pause = self.first * f64::from(1u32 << failures.saturating_sub(1).min(16));
        (failures < self.tries).then_some(pause.min(self.longest))
    }
}

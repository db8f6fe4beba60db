//! A moment by a clock that never goes back.

use std::cmp::Ordering;
use std::ops::{Add, Sub};

/// Seconds since some fixed moment of this broker's life. Timers run by it. It means nothing to
/// another process, so that no message and no record holds one.
#[derive(Clone, Copy, Debug)]
pub struct MonoTime(pub f64);

impl Ord for MonoTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for MonoTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MonoTime {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for MonoTime {}

impl Add<f64> for MonoTime {
    type Output = Self;

    fn add(self, seconds: f64) -> Self {
        Self(self.0 + seconds)
    }
}

/// Seconds from one moment to another.
impl Sub for MonoTime {
    type Output = f64;

    fn sub(self, earlier: Self) -> f64 {
        self.0 - earlier.0
    }
}

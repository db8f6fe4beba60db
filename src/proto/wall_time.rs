//! A moment by the clock on the wall.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Seconds since the epoch, by the clock of one node. Other nodes may read another time, and it can
/// be set back: a pause is never measured by it. Messages, records and R hold such moments.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct WallTime(pub f64);

impl WallTime {
    /// No time is given (RFC 20, of R).
    pub const UNSET: Self = Self(0.0);
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Add<f64> for WallTime {
    type Output = Self;

    fn add(self, seconds: f64) -> Self {
        Self(self.0 + seconds)
    }
}

/// Seconds from one moment to another.
impl Sub for WallTime {
    type Output = f64;

    fn sub(self, earlier: Self) -> f64 {
        self.0 - earlier.0
    }
}

//! Names of streams.

use serde::{Deserialize, Serialize};

/// What a request's stream is called among all streams of the rank that asks, those of earlier loads
/// of its module included. [`Node`](crate::machine::Node) gives it to a request that leaves the rank.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct StreamName(pub u64);

//! Pauses before refused calls are tried again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Long enough to spare a busy systemd.
const PAUSE: Duration = Duration::from_secs(1);

/// Pauses, in the order in which they end.
#[derive(Debug, Default)]
pub(super) struct Pauses(VecDeque<(Instant, u64)>);

impl Pauses {
    /// Start a pause for the call with this number.
    pub(super) fn begin(&mut self, number: u64) {
        self.0.push_back((Instant::now() + PAUSE, number));
    }

    /// Wait until a pause has ended, and return its number. May be dropped and called again.
    pub(super) async fn wait_ended(&mut self) -> u64 {
        let Some((at, number)) = self.0.front().copied() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(at).await;
        self.0.pop_front();
        number
    }
}

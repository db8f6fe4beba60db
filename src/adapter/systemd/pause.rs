//! Pauses before something is asked again.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Before a refused call is tried again. Long enough to spare a busy systemd.
pub(super) const REFUSED: Duration = Duration::from_secs(1);

/// Before units are listed again of which the bus delivers no signals. That costs two questions about
/// each.
pub(super) const UNHEARD: Duration = Duration::from_secs(2);

/// Pauses, each with its end and its number.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeSet<(Instant, u64)>);

impl Pauses {
    /// Start a pause for the call with this number.
    pub(super) fn begin(&mut self, number: u64, length: Duration) {
        self.0.insert((Instant::now() + length, number));
    }

    /// Wait until a pause has ended, and return its number. May be dropped and called again.
    pub(super) async fn wait_ended(&mut self) -> u64 {
        let Some((at, number)) = self.0.first().copied() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(at).await;
        self.0.pop_first();
        number
    }
}

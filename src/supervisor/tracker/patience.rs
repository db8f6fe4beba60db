//! How long systemd may leave a call without an answer.
//!
//! The tracker asks the adapter for a pause ([`Call::Patience`]) as long as it waits for something.
//! A call that was made before the pause, and has no answer at its end, gets none any more: systemd or
//! the bus hangs, or has lost it. What became of the call is not known. So nothing is concluded: the
//! tracker connects again, lists the units and looks at each. A systemd that hangs does not answer on
//! the new connection either, and the adapter tries until it does.
//!
//! A systemd that hangs says nothing of units that end. So if there are units and nothing else is
//! asked, it is asked for a sign of life.

use super::Tracker;
use super::link::Link;
use super::messages::Call;
use crate::supervisor::backend::BackendEvent;

/// What the tracker knows about systemd's silence.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// The number of the last call before the pause that the adapter makes.
    pause: Option<u64>,
    /// The number of the last call before systemd's units were not known any more.
    unready: Option<u64>,
    /// It was reported that systemd does not answer.
    is_silent: bool,
}

impl Tracker {
    /// Ask for a pause, if there is something to wait for.
    pub(super) fn be_patient(&mut self) {
        if !self.is_ready() {
            self.patience.unready.get_or_insert(self.number);
        }
        let waits = !self.is_ready() || !self.unanswered.is_empty() || !self.units.is_empty();
        if waits && self.patience.pause.is_none() {
            self.patience.pause = Some(self.number);
            self.ask(Call::Patience);
        }
    }

    /// The pause has ended.
    pub(super) fn handle_patience_over(&mut self) {
        let Some(pause) = self.patience.pause.take() else { return };
        let oldest = self.unanswered.first_key_value().filter(|(number, _)| **number <= pause);
        let oldest = oldest.map(|(_, call)| call.to_string());
        let is_unready = self.patience.unready.is_some_and(|unready| unready <= pause);
        let what = match (oldest, self.link) {
            (Some(call), _) => call,
            (None, Link::Away) if is_unready => "systemd on the user bus".to_string(),
            (None, Link::Down) if is_unready => "a connection to systemd".to_string(),
            (None, Link::Reloading) if is_unready => "the end of its reload".to_string(),
            (None, Link::Ready) if self.unanswered.is_empty() => return self.ask(Call::Ping),
            (None, _) => return,
        };
        tracing::warn!("systemd does not answer: waiting for {what}");
        let hangs = !matches!(self.link, Link::Away | Link::Down);
        if !std::mem::replace(&mut self.patience.is_silent, true) {
            self.events.push_back(BackendEvent::Silent { what });
        }
        if hangs {
            self.handle_lost();
            self.ask(Call::Reconnect);
        }
    }

    /// systemd has listed its units.
    pub(super) fn end_silence(&mut self) {
        self.patience.unready = None;
        if std::mem::take(&mut self.patience.is_silent) {
            tracing::info!("systemd answers again");
            self.events.push_back(BackendEvent::Answers);
        }
    }
}

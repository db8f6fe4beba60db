//! What the leader says to the job manager, through its coordinator.

use crate::machine::effect::{Effect, Effects, StreamItem};
use crate::machine::event::RequestId;
use crate::proto::peer::{LeadNote, LeadReply, StreamEnd};
use crate::proto::{Exception, Response};

/// The way to the coordinator, and what was said on it: a new coordinator hears it again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Replies {
    coordinator: Option<RequestId>,
    /// It was said that all shells have started.
    started: bool,
    exceptions: Vec<Exception>,
}

impl Replies {
    pub(super) fn new(coordinator: RequestId) -> Self {
        Self { coordinator: Some(coordinator), started: false, exceptions: Vec::new() }
    }

    /// Somebody listens.
    pub(super) fn is_heard(&self) -> bool {
        self.coordinator.is_some()
    }

    /// Another coordinator listens from now on. It hears again what was said of start and
    /// exceptions. A job that can live with an exception was told of it; a lost fatal one must be
    /// said.
    pub(super) fn turn_to(&mut self, coordinator: RequestId, reattach: bool, out: &mut Effects) {
        if let Some(to) = self.coordinator.replace(coordinator) {
            // Usually nobody is there any more; a coordinator that is asks again.
            out.end(to, StreamEnd::superseded("another coordinator has taken over"));
        }
        for exception in self.exceptions.iter().filter(|e| e.severity == 0) {
            self.say(Response::Exception(exception.clone()), out);
        }
        if self.started {
            self.say_started(reattach, out);
        }
    }

    pub(super) fn say(&self, response: Response, out: &mut Effects) {
        self.reply(LeadReply::Response(response), out);
    }

    pub(super) fn say_started(&mut self, reattach: bool, out: &mut Effects) {
        self.started = true;
        self.say(if reattach { Response::Reattached {} } else { Response::Start {} }, out);
    }

    pub(super) fn say_exception(&mut self, exception: Exception, out: &mut Effects) {
        self.exceptions.push(exception.clone());
        self.say(Response::Exception(exception), out);
    }

    /// For the coordinator alone.
    pub(super) fn note(&self, note: LeadNote, out: &mut Effects) {
        self.reply(LeadReply::Note(note), out);
    }

    /// What was committed up to this mark is to be covered by a checkpoint.
    pub(super) fn ask_for_cover(&self, mark: Option<u64>, out: &mut Effects) {
        if let Some(mark) = mark {
            self.note(LeadNote::Changed { mark }, out);
        }
    }

    fn reply(&self, reply: LeadReply, out: &mut Effects) {
        if let Some(to) = self.coordinator {
            out.push(Effect::Stream { to, item: StreamItem::Reply(reply) });
        }
    }

    /// Nobody listens to this request any more.
    pub(super) fn handle_disconnect(&mut self, request: RequestId, out: &mut Effects) {
        if let Some(to) = self.coordinator.take_if(|to| *to == request) {
            out.push(Effect::Drop { to });
        }
    }

    /// Nothing more will be said.
    pub(super) fn end(&mut self, end: StreamEnd, out: &mut Effects) {
        if let Some(to) = self.coordinator.take() {
            out.end(to, end);
        }
    }
}

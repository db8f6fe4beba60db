//! Passes tracing events to the broker's log.

use std::fmt::Write;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::inbox::{Inbox, Inward};
use crate::machine::Level;

/// A dispatcher for the supervisor's thread. Only the module's thread may use the handle, so log
/// lines go through the inbox. Trace events are dropped, because the broker's log is for
/// administrators.
pub fn dispatch(inbox: Arc<Inbox>) -> Dispatch {
    Dispatch::new(ToInbox(inbox))
}

struct ToInbox(Arc<Inbox>);

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String does not fail.
        let _ = if field.name() == "message" {
            write!(self.0, "{value:?}")
        } else {
            let space = if self.0.is_empty() { "" } else { " " };
            write!(self.0, "{space}{}={value:?}", field.name())
        };
    }
}

impl Subscriber for ToInbox {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let ours = metadata.target().starts_with("job_exec_rs");
        metadata.is_event() && ours && *metadata.level() <= tracing::Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warning,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        self.0.push(Inward::Log(level, line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

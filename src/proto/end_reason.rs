//! Why the shells of a job are ended.

use serde::{Deserialize, Serialize};

use super::{Exception, WaitStatus};

/// Longest type and longest note that are kept, in bytes. A user can raise an exception with any
/// type, and each shell's record keeps it.
const TEXT_MAX: usize = 1024;

/// The note of an exception that is raised again, and whose note nobody has kept.
const LOST_NOTE: &str = "raised again after a restart: its note was lost";

/// The fatal exception (RFC 21) for which a leader has shells ended. A shell's record keeps it,
/// because the job manager may forget the exception when the KVS goes back.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EndReason {
    /// RFC 21 exception type.
    #[serde(rename = "type")]
    pub kind: String,
    /// A text for users. Empty for an exception that the job manager has published: the event has
    /// no note.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Status of the task that caused it, if the shell said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<WaitStatus>,
}

impl EndReason {
    /// For an exception of severity 0. Long texts are cut.
    pub fn new(kind: &str, note: &str, wait_status: Option<WaitStatus>) -> Self {
        Self { kind: cut(kind), note: cut(note), wait_status }
    }

    /// The exception, to be raised again.
    pub fn exception(&self) -> Exception {
        let note = if self.note.is_empty() { LOST_NOTE } else { &self.note };
        Exception { severity: 0, kind: self.kind.clone(), note: note.to_string() }
    }
}

impl From<&Exception> for EndReason {
    fn from(exception: &Exception) -> Self {
        Self::new(&exception.kind, &exception.note, None)
    }
}

fn cut(text: &str) -> String {
    let mut ends = (0..=TEXT_MAX.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text[..end].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_raised_again_as_it_was() {
        let timeout = Exception { severity: 0, kind: "timeout".into(), note: "expired".into() };
        assert_eq!(EndReason::from(&timeout).exception(), timeout);
        let cancel = EndReason::new("cancel", "", None).exception();
        assert_eq!((cancel.severity, cancel.kind.as_str()), (0, "cancel"));
        assert_eq!(cancel.note, LOST_NOTE);
    }

    #[test]
    fn what_a_user_can_write_has_a_limit() {
        let long = "ƒ".repeat(TEXT_MAX);
        let reason = EndReason::new(&format!("x{long}"), &long, None);
        assert_eq!((reason.kind.len(), reason.note.len()), (TEXT_MAX - 1, TEXT_MAX));
    }
}

//! The mark of a degraded node: what the prolog on it says is wrong with it.
//!
//! A prolog that ends well with a mark leaves it to the job whether that starts all the same. The
//! script is answered when the mark is on the disk: until then its end could come after a crash
//! without the mark.

use crate::machine::effect::Effects;
use crate::machine::event::{Fault, RequestId};
use crate::proto::JobId;

/// How long all that a prolog says of its node may be, in bytes. It goes into the job's eventlog and
/// into the reason of a drain.
const REASONS_MAX: usize = 1024;

/// What a prolog has said, and who waits until it is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mark {
    reason: Option<String>,
    waiting: Vec<RequestId>,
}

impl Mark {
    /// From the record of an earlier life.
    pub(super) fn found(&mut self, reason: String) {
        self.reason = Some(reason);
    }

    /// What is wrong with the node, if anything.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Takes what is wrong. One prolog can find several things, and each is kept once. Returns all of
    /// it.
    ///
    /// # Errors
    /// `EINVAL`: it is not one line of text, or too long.
    pub(super) fn add(&mut self, id: JobId, to: RequestId, reason: &str) -> Result<String, Fault> {
        let reason = reason.trim();
        let wrong = |what: &str| {
            let message = format!("{id}: reason {reason:?}: {what}");
            Err(Fault::new(libc::EINVAL, message))
        };
        if reason.is_empty() || reason.chars().any(char::is_control) {
            return wrong("expected one line of text");
        }
        let all = match &self.reason {
            Some(known) if known.split("; ").any(|one| one == reason) => known.clone(),
            Some(known) => format!("{known}; {reason}"),
            None => reason.to_string(),
        };
        if all.len() > REASONS_MAX {
            return wrong(&format!("all reasons of a node together: at most {REASONS_MAX} bytes"));
        }
        self.reason = Some(all.clone());
        self.waiting.push(to);
        Ok(all)
    }

    /// It is on the disk, or cannot be written there.
    pub(super) fn handle_written(&mut self, id: JobId, is_written: bool, out: &mut Effects) {
        for to in self.waiting.drain(..) {
            let message = format!("{id}: the node's mark cannot be written to the disk");
            out.done(to, if is_written { Ok(()) } else { Err(Fault::new(libc::ENOSPC, message)) });
        }
    }

    /// The module is being unloaded: who waits asks the next one.
    pub(super) fn shut_down(&mut self, id: JobId, out: &mut Effects) {
        for to in self.waiting.drain(..) {
            let message = format!("{id}: job-exec-rs is being unloaded on this rank");
            out.done(to, Err(Fault::new(libc::ENOSYS, message)));
        }
    }

    /// Forgets who does not wait any more. Returns whether it did.
    pub(super) fn is_left_by(&mut self, request: RequestId) -> bool {
        self.waiting.extract_if(.., |to| *to == request).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: JobId = JobId(7);
    const TO: RequestId = RequestId::Remote(1);

    #[test]
    fn each_reason_is_kept_once() {
        let mut mark = Mark::default();
        for (said, all) in [("a b", "a b"), (" c ", "a b; c"), ("a b", "a b; c")] {
            assert_eq!(mark.add(ID, TO, said).as_deref(), Ok(all));
        }
        assert_eq!(mark.reason(), Some("a b; c"));
    }

    #[test]
    fn what_is_no_line_of_text_is_refused() {
        let mut mark = Mark::default();
        for bad in ["", " ", "a\nb", "\u{1b}[2J", &"x".repeat(REASONS_MAX + 1)] {
            let fault = mark.add(ID, TO, bad).expect_err("refused");
            assert_eq!(fault.errnum, libc::EINVAL, "{bad:?}");
            assert!(fault.message.starts_with(&ID.to_string()), "{fault}");
        }
        assert_eq!(mark, Mark::default());
    }
}

//! What an administrator may have to do so that jobs outlive their brokers.

use crate::adapter::host::lingers;

/// What to say where the user manager of the instance owner ends with the last login. flux-core's
/// `flux.service` sees to it, and so does the rc1 task that `job-exec-rs install` writes, if it may.
pub(super) fn ends_with_login(user: &str) -> Option<String> {
    let ends = lingers(user) == Some(false);
    ends.then(|| {
        format!("jobs end when {user} has no login any more: run loginctl enable-linger {user}")
    })
}

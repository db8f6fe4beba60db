//! What an administrator may have to do so that jobs outlive their brokers.

use std::path::Path;

/// What to say where the user manager of the instance owner ends with the last login. flux-core's
/// `flux.service` sees to it, and so does the rc1 task that `job-exec-rs install` writes, if it may.
pub(super) fn ends_with_login(user: &str) -> Option<String> {
    let ends = lingers(user) == Some(false);
    ends.then(|| {
        format!("jobs end when {user} has no login any more: run loginctl enable-linger {user}")
    })
}

/// Whether a user manager runs without a login (loginctl(1), `enable-linger`). None if nobody can say.
pub fn lingers(user: &str) -> Option<bool> {
    lingers_in(Path::new("/var/lib/systemd/linger"), user)
}

/// systemd-logind keeps a file for each such user in this directory.
fn lingers_in(directory: &Path, user: &str) -> Option<bool> {
    directory.is_dir().then(|| directory.join(user).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_file_does_not_linger_and_without_a_directory_nobody_can_say() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(lingers_in(directory.path(), "flux"), Some(false));
        std::fs::write(directory.path().join("flux"), "").expect("a file");
        assert_eq!(lingers_in(directory.path(), "flux"), Some(true));
        assert_eq!(lingers_in(&directory.path().join("none"), "flux"), None);
    }
}

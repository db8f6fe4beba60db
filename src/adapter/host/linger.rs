//! Whether units of a user live without a login.

use std::path::Path;

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

//! Whether units of a user live without a login.

use std::path::Path;

use nix::unistd::{User, getuid};

/// Whether a user manager runs without a login (loginctl(1), `enable-linger`). None if nobody can say.
pub fn lingers(user: &str) -> Option<bool> {
    lingers_in(Path::new("/"), user)
}

/// Whether systemd is to run a user manager of this process's user, with a bus, all the time. If it
/// does not run, it is about to.
pub fn has_user_manager() -> bool {
    let user = User::from_uid(getuid()).ok().flatten();
    user.is_some_and(|user| has_user_manager_in(Path::new("/"), &user.name))
}

/// `/run/systemd/system` is what sd_booted(3) looks for.
fn has_user_manager_in(root: &Path, user: &str) -> bool {
    let is_booted = root.join("run/systemd/system").is_dir();
    let has_bus = root.join("usr/lib/systemd/user/dbus.socket").exists();
    is_booted && has_bus && lingers_in(root, user) == Some(true)
}

/// systemd-logind keeps a file for each such user in this directory.
fn lingers_in(root: &Path, user: &str) -> Option<bool> {
    let directory = root.join("var/lib/systemd/linger");
    directory.is_dir().then(|| directory.join(user).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: &str = "var/lib/systemd/linger";
    const BUS: &str = "usr/lib/systemd/user";

    fn root(directories: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for directory in directories {
            std::fs::create_dir_all(root.path().join(directory)).expect("a directory");
        }
        root
    }

    fn touch(root: &tempfile::TempDir, file: &str) {
        std::fs::write(root.path().join(file), "").expect("a file");
    }

    #[test]
    fn a_user_without_a_file_does_not_linger_and_without_a_directory_nobody_can_say() {
        let there = root(&[LINGER]);
        assert_eq!(lingers_in(there.path(), "flux"), Some(false));
        touch(&there, "var/lib/systemd/linger/flux");
        assert_eq!(lingers_in(there.path(), "flux"), Some(true));
        assert_eq!(lingers_in(root(&[]).path(), "flux"), None);
    }

    #[test]
    fn a_user_manager_is_to_run_where_systemd_is_booted_and_the_user_lingers_and_has_a_bus() {
        let there = root(&["run/systemd/system", BUS, LINGER]);
        touch(&there, "usr/lib/systemd/user/dbus.socket");
        assert!(!has_user_manager_in(there.path(), "flux"), "no linger");
        touch(&there, "var/lib/systemd/linger/flux");
        assert!(has_user_manager_in(there.path(), "flux"));
        std::fs::remove_dir(there.path().join("run/systemd/system")).expect("removed");
        assert!(!has_user_manager_in(there.path(), "flux"), "a container");
        std::fs::create_dir(there.path().join("run/systemd/system")).expect("made");
        std::fs::remove_file(there.path().join("usr/lib/systemd/user/dbus.socket"))
            .expect("removed");
        assert!(!has_user_manager_in(there.path(), "flux"), "no bus");
    }
}

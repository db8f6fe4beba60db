//! The instance's state directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::error::InstanceError;

/// A directory that one instance uses at a time. A temporary one is removed at the end.
#[derive(Debug)]
pub(super) struct StateDirectory {
    path: PathBuf,
    keep: bool,
    /// Held as long as the instance lives. The kernel releases the lock if the process dies.
    _lock: Flock<File>,
}

impl StateDirectory {
    /// Opens `keep`, and makes it if it does not exist. Without `keep`, makes a temporary
    /// directory.
    pub(super) fn open(keep: Option<&Path>) -> Result<Self, InstanceError> {
        let path = match keep {
            Some(path) => {
                let make = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
                make.and_then(|()| path.canonicalize()).map_err(|e| failed(path, e))?
            }
            None => temporary()?,
        };
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|e| failed(&lock_path, e))?;
        match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path, keep: keep.is_some(), _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(InstanceError::Busy { path }),
            Err((_, errno)) => Err(failed(&lock_path, errno.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(e) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), error = %e,
                "cannot remove the temporary directory");
        }
    }
}

/// Makes a directory of its own for the caller, who removes it.
///
/// # Errors
///
/// [`InstanceError::Directory`]: there is no room, or no right to write, in `$TMPDIR` or `/tmp`.
pub fn temporary() -> Result<PathBuf, InstanceError> {
    let template = std::env::temp_dir().join("job-exec-rs-XXXXXX");
    nix::unistd::mkdtemp(&template).map_err(|errno| failed(&template, errno.into()))
}

fn failed(path: &Path, error: io::Error) -> InstanceError {
    InstanceError::Directory { path: path.to_path_buf(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_goes_with_the_instance() {
        let directory = StateDirectory::open(None).expect("a directory");
        let path = directory.path().to_path_buf();
        assert!(path.is_dir());
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn one_instance_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state");
        let first = StateDirectory::open(Some(&path)).expect("the first");
        let error = StateDirectory::open(Some(&path)).expect_err("the second");
        assert!(error.to_string().contains("state"), "{error}");
        drop(first);
        assert!(StateDirectory::open(Some(&path)).is_ok(), "free again, and kept");
    }
}

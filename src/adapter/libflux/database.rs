//! The database below the KVS, on the disk (`rfc/0008-recovery.md`, [checkpoint-on-disk]).
//!
//! content-sqlite has SQLite write a commit to its write-ahead log, and not sync it. So when the KVS
//! has answered a checkpoint, a power cut can still take it back. The log is synced here, on a thread
//! of its own, before the checkpoint counts as made.
//!
//! The database file itself is never opened: to close it would end the locks that SQLite, in the same
//! process, has on it (fcntl(2), advisory record locking). The log has no locks.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::error::HandleError;
use super::handle::Handle;
use super::watcher::FdWatcher;
use crate::machine::Fault;
use crate::supervisor::with_descriptors;

/// SQLite's write-ahead log of content-sqlite (flux-core `content-sqlite.c`).
const LOG: &str = "content.sqlite-wal";

/// Whether there was something to sync.
pub(super) type Synced = Result<bool, Fault>;

/// Which file the log was when its name was synced: device and inode.
type Named = Option<(u64, u64)>;

/// What the thread has done.
struct SyncOutcome {
    result: io::Result<bool>,
    named: Named,
}

/// A sync under way.
struct UnderWay {
    thread: JoinHandle<()>,
    done: Box<dyn FnOnce(Synced)>,
}

/// The database's write-ahead log.
pub(super) struct Database {
    shared: Rc<Shared>,
    _watcher: FdWatcher,
}

struct Shared {
    directory: PathBuf,
    wake: Arc<EventFd>,
    outcome: Arc<Mutex<Option<SyncOutcome>>>,
    under_way: RefCell<Option<UnderWay>>,
    named: RefCell<Named>,
}

impl Database {
    /// The database in this directory.
    ///
    /// # Errors
    /// When there are no file descriptors left, or libflux has no memory.
    pub(super) fn new(handle: Handle, directory: &Path) -> Result<Self, HandleError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags)
            .map_err(|_| HandleError::last("eventfd of the database"))?;
        let shared = Rc::new(Shared {
            directory: directory.to_path_buf(),
            wake: Arc::new(wake),
            outcome: Arc::default(),
            under_way: RefCell::default(),
            named: RefCell::default(),
        });
        let heard = Rc::downgrade(&shared);
        let fd = shared.wake.as_fd().as_raw_fd();
        let watcher = FdWatcher::new(handle, fd, move || {
            if let Some(shared) = heard.upgrade() {
                shared.end();
            }
        })?;
        Ok(Self { shared, _watcher: watcher })
    }

    /// Has everything on the disk that SQLite has written so far. One sync is under way at a time.
    pub(super) fn sync(&self, done: impl FnOnce(Synced) + 'static) {
        let shared = &self.shared;
        let (directory, named) = (shared.directory.clone(), *shared.named.borrow());
        let (wake, outcome) = (Arc::clone(&shared.wake), Arc::clone(&shared.outcome));
        let body = move || {
            let mut named = named;
            let result = with_descriptors(|| sync_log(&directory, &mut named));
            let mut place = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(SyncOutcome { result, named });
            // The counter cannot be full: one sync is under way at a time.
            let _ = wake.write(1);
        };
        let thread = std::thread::Builder::new().name("kvs sync".to_string()).spawn(body);
        match thread {
            Ok(thread) => {
                let under_way = UnderWay { thread, done: Box::new(done) };
                shared.under_way.replace(Some(under_way));
            }
            Err(error) => done(Err(fault(&error))),
        }
    }

    /// Waits for a sync that is under way. Nobody hears of it.
    pub(super) fn stop(&self) {
        self.shared.stop();
    }
}

impl Shared {
    /// The thread runs this module's code, which goes with the module.
    fn stop(&self) {
        if let Some(UnderWay { thread, .. }) = self.under_way.take() {
            let _ = thread.join();
        }
    }

    /// The thread has ended.
    fn end(&self) {
        let _ = self.wake.read();
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(SyncOutcome { result, named }) = outcome else { return };
        let Some(UnderWay { thread, done }) = self.under_way.take() else { return };
        let _ = thread.join();
        self.named.replace(named);
        done(result.map_err(|error| fault(&error)));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop();
    }
}

fn fault(error: &io::Error) -> Fault {
    let errnum = error.raw_os_error().unwrap_or(libc::EIO);
    Fault::new(errnum, format!("{LOG} cannot be synced: {error}"))
}

/// Syncs the log, and its name in the directory if it is another file than before. Without a log SQLite
/// has another journal, and there is nothing to do: false.
fn sync_log(directory: &Path, named: &mut Named) -> io::Result<bool> {
    let log = match File::open(directory.join(LOG)) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    log.sync_data()?;
    let about = log.metadata()?;
    let file = Some((about.dev(), about.ino()));
    if *named != file {
        File::open(directory)?.sync_all()?;
        *named = file;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_synced_and_its_name_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut named = None;
        assert!(!sync_log(directory.path(), &mut named).expect("no log"));
        std::fs::write(directory.path().join(LOG), "frames").expect("a log");
        assert!(sync_log(directory.path(), &mut named).expect("synced"));
        let first = named;
        assert!(first.is_some());
        assert!(sync_log(directory.path(), &mut named).expect("synced"));
        assert_eq!(named, first);
    }

    #[test]
    fn a_log_that_cannot_be_synced_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().expect("a directory");
        // A socket cannot be opened.
        let _socket = std::os::unix::net::UnixListener::bind(directory.path().join(LOG));
        let error = sync_log(directory.path(), &mut None).expect_err("no file");
        assert!(fault(&error).message.contains(LOG), "{error}");
    }
}

//! Calls that need a descriptor for a moment, in a process that has none left.
//!
//! The broker, its modules and the connections of all shells share one limit (getrlimit(2),
//! `RLIMIT_NOFILE`). It counts the descriptors of one table, and a thread can have a table of its own
//! (unshare(2), `CLONE_FILES`). So what the end of a job needs of the disk does not depend on how many
//! shells are connected.

use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::close;

/// Copies of descriptors that are closed to make room in the thread's own table. The process keeps its
/// descriptors, and its locks: both belong to the other table.
const ROOM: std::ops::Range<i32> = 3..35;

/// Makes a call, and makes it again with a table of its own if the process has no descriptor left
/// (`EMFILE`). The result must not hold a descriptor.
///
/// # Errors
///
/// Those of the call, or if there can be no such thread.
pub(crate) fn with_descriptors<T: Send>(
    mut call: impl FnMut() -> io::Result<T> + Send,
) -> io::Result<T> {
    match call() {
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => apart(&mut call),
        made => made,
    }
}

fn apart<T: Send>(call: &mut (impl FnMut() -> io::Result<T> + Send)) -> io::Result<T> {
    let body = || {
        unshare(CloneFlags::CLONE_FILES)?;
        for copy in ROOM {
            // Not all of them need be open.
            let _ = close(copy);
        }
        call()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, body)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the call has panicked")))
    })
}

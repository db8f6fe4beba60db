//! Connections that their client has not closed when it exits.
//!
//! flux-shell can exit while a future of its own still holds the handle: then `flux_close()` does not
//! close the connection. On a busy machine this was seen of one leader shell in ten. What is lost with
//! an open connection is handed over at the exit of the process.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once};

use crate::connection::Connection;
use crate::user::User;

struct Open {
    connection: *mut Connection,
    user: Arc<User>,
}

// SAFETY: the pointer is followed only on the thread that has used the connection last.
unsafe impl Send for Open {}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());
static AT_EXIT: Once = Once::new();

/// A connection was opened.
pub(crate) fn add(connection: *mut Connection, user: Arc<User>) {
    AT_EXIT.call_once(|| {
        // SAFETY: the function takes nothing and does not unwind. It fails only without memory;
        // then connections that are left open are lost.
        unsafe { libc::atexit(close_all) };
    });
    if let Ok(mut open) = OPEN.lock() {
        open.push(Open { connection, user });
    }
}

/// The client has closed a connection.
pub(crate) fn remove(connection: *mut Connection) {
    if let Ok(mut open) = OPEN.lock() {
        open.retain(|known| !std::ptr::eq(known.connection, connection));
    }
}

/// The process exits. A connection that another thread has used last is left alone, and so is one that a
/// signal handler has interrupted, which calls `exit()`.
extern "C" fn close_all() {
    let Ok(mut open) = OPEN.try_lock() else { return };
    for Open { connection, user } in std::mem::take(&mut *open) {
        if !user.is_done_here() {
            continue;
        }
        // SAFETY: it was not removed, so it is there. This thread has used it last, and is in no
        // operation.
        let connection = unsafe { &mut *connection };
        if !connection.is_forked() {
            let _ = catch_unwind(AssertUnwindSafe(|| connection.close()));
        }
    }
}

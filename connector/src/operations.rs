//! What libflux calls (flux-core `libflux/connector.h`).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use flux_sys as sys;
use nix::errno::Errno;
use resume_machine::{Options, RETRY_COUNT, TIMEOUT};

use crate::connection::{Connection, Wait};
use crate::message::Message;

const OPERATIONS: sys::flux_handle_ops = sys::flux_handle_ops {
    setopt: Some(setopt),
    getopt: None,
    pollfd: Some(pollfd),
    pollevents: Some(pollevents),
    send: Some(send),
    recv: Some(recv),
    reconnect: None,
    impl_destroy: Some(destroy),
    send_new: None,
    _pad: [ptr::null_mut(); 4],
};

/// libflux keeps a pointer to the operations.
struct Shared(sys::flux_handle_ops);
// SAFETY: it is never written to, and its pointers are to functions, or null.
unsafe impl Sync for Shared {}
static SHARED: Shared = Shared(OPERATIONS);

/// Entry point (flux-core `connector_init_f`).
///
/// # Safety
/// Called by libflux alone: `uri` is null or a text, `errp` null or a `flux_error_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connector_init(
    uri: *const c_char,
    flags: c_int,
    errp: *mut sys::flux_error_t,
) -> *mut sys::flux_t {
    // SAFETY: null, or a text, says libflux.
    let uri = (!uri.is_null()).then(|| unsafe { CStr::from_ptr(uri) });
    let uri = uri.and_then(|uri| uri.to_str().ok()).unwrap_or_default();
    let opened = catch_unwind(|| open(uri)).unwrap_or_else(|_| Err((Errno::EIO, String::new())));
    let connection = match opened {
        Ok(connection) => Box::into_raw(Box::new(connection)),
        Err((errnum, why)) => {
            // SAFETY: null, or libflux's, says libflux.
            if let Some(error) = unsafe { errp.as_mut() } {
                say(error, &why);
            }
            errnum.set();
            return ptr::null_mut();
        }
    };
    // SAFETY: the operations live for ever; the connection is libflux's until `destroy`.
    let handle = unsafe { sys::flux_handle_create(connection.cast(), &SHARED.0, flags) };
    if handle.is_null() {
        // SAFETY: libflux has not taken it.
        drop(unsafe { Box::from_raw(connection) });
    }
    handle
}

fn open(uri: &str) -> Result<Connection, (Errno, String)> {
    let variable = |name| std::env::var(name).ok();
    let (timeout, retries) = (variable(TIMEOUT), variable(RETRY_COUNT));
    let options = Options::read(uri, timeout.as_deref(), retries.as_deref());
    let options = options.map_err(|why| (Errno::EINVAL, why))?;
    let Options { path, limits, retries } = options;
    Connection::open(path, limits, retries).map_err(|errnum| {
        let why = match errnum {
            Errno::ENOENT => format!("broker socket {path} was not found"),
            _ => format!("{path}: {}", errnum.desc()),
        };
        (errnum, why)
    })
}

/// Puts a text into libflux's buffer, cut to its size.
fn say(error: &mut sys::flux_error_t, text: &str) {
    let length = text.len().min(error.text.len() - 1);
    for (to, from) in error.text.iter_mut().zip(text.as_bytes()[..length].iter().chain([&0])) {
        *to = *from as c_char;
    }
}

/// Calls into Rust. A panic ends the call, not the client: it is a lost connection to it.
fn fenced<T>(
    connection: *mut c_void,
    failed: T,
    body: impl FnOnce(&mut Connection) -> Result<T, Errno>,
) -> T {
    // SAFETY: libflux passes what `connector_init` gave it, on one thread at a time.
    let connection = unsafe { &mut *connection.cast::<Connection>() };
    let result = catch_unwind(AssertUnwindSafe(|| body(connection)));
    result.unwrap_or(Err(Errno::EIO)).unwrap_or_else(|errnum| {
        errnum.set();
        failed
    })
}

fn wait(flags: c_int) -> Wait {
    let nonblock = flags as u32 & sys::FLUX_O_NONBLOCK != 0;
    if nonblock { Wait::No } else { Wait::Yes }
}

unsafe extern "C" fn pollfd(connection: *mut c_void) -> RawFd {
    fenced(connection, -1, |connection| Ok(connection.pollfd()))
}

unsafe extern "C" fn pollevents(connection: *mut c_void) -> c_int {
    fenced(connection, -1, |connection| {
        let (readable, writable, ended) = connection.poll();
        let events = [
            (readable, sys::FLUX_POLLIN),
            (writable, sys::FLUX_POLLOUT),
            (ended, sys::FLUX_POLLERR),
        ];
        let events = events.into_iter().filter(|(is, _)| *is);
        Ok(events.fold(0, |all, (_, event)| all | event as c_int))
    })
}

unsafe extern "C" fn send(
    connection: *mut c_void,
    message: *const sys::flux_msg_t,
    flags: c_int,
) -> c_int {
    fenced(connection, -1, |connection| {
        // SAFETY: libflux passes a valid message.
        let message = unsafe { Message::shared(message) }.ok_or(Errno::EINVAL)?;
        connection.send(&message, wait(flags)).map(|()| 0)
    })
}

unsafe extern "C" fn recv(connection: *mut c_void, flags: c_int) -> *mut sys::flux_msg_t {
    fenced(connection, ptr::null_mut(), |connection| {
        connection.receive(wait(flags)).map(Message::into_raw)
    })
}

/// As the local connector's: for tests of access control.
unsafe extern "C" fn setopt(
    connection: *mut c_void,
    option: *const c_char,
    value: *const c_void,
    size: usize,
) -> c_int {
    fenced(connection, -1, |connection| {
        if option.is_null() || value.is_null() || size != size_of::<u32>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a text, says libflux, and a number of the size that was looked at.
        let (option, value) =
            unsafe { (CStr::from_ptr(option), value.cast::<u32>().read_unaligned()) };
        if option.to_bytes_with_nul() == sys::FLUX_OPT_TESTING_USERID {
            connection.testing.0 = value;
        } else if option.to_bytes_with_nul() == sys::FLUX_OPT_TESTING_ROLEMASK {
            connection.testing.1 = value;
        } else {
            return Err(Errno::EINVAL);
        }
        Ok(0)
    })
}

unsafe extern "C" fn destroy(connection: *mut c_void) {
    let is_ours = fenced(connection, false, |connection| {
        let is_ours = !connection.is_forked();
        if is_ours {
            connection.close();
        }
        Ok(is_ours)
    });
    // What a forked child has are copies, which it may have closed, and opened something else in
    // their place. They go with it.
    if is_ours {
        // SAFETY: libflux calls this once, and nothing after it.
        drop(unsafe { Box::from_raw(connection.cast::<Connection>()) });
    }
}

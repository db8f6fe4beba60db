//! The operations that libflux calls (flux-core `libflux/connector.h`).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use flux_sys::{self as sys, libflux};
use nix::errno::Errno;
use resume_machine::{Options, OptionsError, RETRY_COUNT, TIMEOUT};

use crate::connection::{Connection, Wait};
use crate::left_open;
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

/// The release, and the commit.
const BUILD: &str = env!("JOB_EXEC_RS_BUILD");

/// libflux keeps a pointer to the operations.
struct Shared(sys::flux_handle_ops);
// SAFETY: it is never written to, and its pointers are null or point to functions.
unsafe impl Sync for Shared {}
static SHARED: Shared = Shared(OPERATIONS);

/// Entry point (flux-core `connector_init_f`).
///
/// # Safety
/// Called by libflux only: `uri` is null or a C string, `errp` is null or points to a
/// `flux_error_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connector_init(
    uri: *const c_char,
    flags: c_int,
    errp: *mut sys::flux_error_t,
) -> *mut sys::flux_t {
    // SAFETY: libflux passes null or a C string.
    let uri = (!uri.is_null()).then(|| unsafe { CStr::from_ptr(uri) });
    let uri = uri.and_then(|uri| uri.to_str().ok()).unwrap_or_default();
    let opened = catch_unwind(|| open(uri)).unwrap_or(Err(OpenError::Panic));
    let connection = match opened {
        Ok(connection) => Box::into_raw(Box::new(connection)),
        Err(error) => {
            // SAFETY: libflux passes null or a buffer of its own.
            if let Some(buffer) = unsafe { errp.as_mut() } {
                write_text(buffer, &error.to_string());
            }
            error.errnum().set();
            return ptr::null_mut();
        }
    };
    // SAFETY: the operations live for ever; libflux owns the connection until `destroy`.
    let handle = unsafe { libflux().flux_handle_create(connection.cast(), &SHARED.0, flags) };
    if handle.is_null() {
        // SAFETY: libflux has not taken the connection.
        drop(unsafe { Box::from_raw(connection) });
        return handle;
    }
    // SAFETY: as above; nobody else has it yet.
    let user = unsafe { &*connection }.user.clone();
    left_open::add(connection, user);
    handle
}

/// Why `flux_open()` fails.
#[derive(Debug)]
enum OpenError {
    /// The socket at this path, with this errno.
    Connect { path: String, errnum: Errno },
    /// libflux lacks a function.
    Library(String),
    /// A bad URI or variable.
    Options(OptionsError),
    /// A panic in the connector.
    Panic,
}

impl OpenError {
    fn errnum(&self) -> Errno {
        match self {
            Self::Connect { errnum, .. } => *errnum,
            Self::Library(_) => Errno::ENOSYS,
            Self::Options(_) => Errno::EINVAL,
            Self::Panic => Errno::EIO,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { path, errnum: Errno::ENOENT } => {
                write!(f, "broker socket {path} was not found")
            }
            Self::Connect { path, errnum } => write!(f, "{path}: {}", errnum.desc()),
            Self::Library(error) => {
                write!(f, "the resume connector {BUILD} does not fit this libflux: {error}")
            }
            Self::Options(error) => error.fmt(f),
            Self::Panic => write!(f, "internal error in the resume connector {BUILD}"),
        }
    }
}

fn open(uri: &str) -> Result<Connection, OpenError> {
    sys::load().map_err(|error| OpenError::Library(error.to_string()))?;
    let variable = |name| std::env::var(name).ok();
    let (timeout, retries) = (variable(TIMEOUT), variable(RETRY_COUNT));
    let options = Options::read(uri, timeout.as_deref(), retries.as_deref());
    let options = options.map_err(OpenError::Options)?;
    let path = options.path.to_string();
    Connection::open(options).map_err(|errnum| OpenError::Connect { path, errnum })
}

/// Writes a text to libflux's buffer, cut to its size.
fn write_text(error: &mut sys::flux_error_t, text: &str) {
    let length = text.len().min(error.text.len() - 1);
    for (to, from) in error.text.iter_mut().zip(text.as_bytes()[..length].iter().chain([&0])) {
        *to = *from as c_char;
    }
}

/// Calls into Rust. A panic ends the call with `EIO`, and not the client.
fn fenced<T>(
    connection: *mut c_void,
    failed: T,
    body: impl FnOnce(&mut Connection) -> Result<T, Errno>,
) -> T {
    // SAFETY: libflux passes the pointer of `connector_init`, on one thread at a time.
    let connection = unsafe { &mut *connection.cast::<Connection>() };
    let user = Arc::clone(&connection.user);
    let result = user.operate(|| catch_unwind(AssertUnwindSafe(|| body(connection))));
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

/// The local connector's options for tests of access control.
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
        // SAFETY: libflux passes a C string, and a value whose size was checked above.
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
    left_open::remove(connection.cast());
    let is_ours = fenced(connection, false, |connection| {
        let is_ours = !connection.is_forked();
        if is_ours {
            connection.close();
        }
        Ok(is_ours)
    });
    // A forked child has copies of the descriptors. It may have closed them and opened others with
    // the same numbers. They are closed when the child ends.
    if is_ours {
        // SAFETY: libflux calls this once, and uses the connection no more.
        drop(unsafe { Box::from_raw(connection.cast::<Connection>()) });
    }
}

//! Raw bindings to libflux-core, and two calls that no safe crate has. No logic lives here.
//!
//! Nothing is linked against libflux. [`load`] takes the one that the process has already, as a
//! broker or a shell, or else the system's. So all of this project builds where Flux is not
//! installed, and a module that is loaded into a Flux that lacks something can say so.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::OnceLock;

#[macro_use]
mod table;
#[allow(non_camel_case_types, non_upper_case_globals)]
#[allow(missing_docs, clippy::all, rustdoc::all)]
#[rustfmt::skip]
mod bindings;

pub use bindings::*;

/// The name under which every release of this ABI is found (flux-core `src/common/Makefile.am`).
pub const LIBRARY: &str = "libflux-core.so.2";

/// The libc crate lacks it (Linux `asm-generic/fcntl.h`).
const F_SETSIG: c_int = 10;

static LIBFLUX: OnceLock<Result<Libflux, libloading::Error>> = OnceLock::new();

/// Finds libflux-core and all functions of it that are called.
///
/// # Errors
/// There is no libflux-core, or it lacks a function, which the error names: it is too old.
pub fn load() -> Result<&'static Libflux, &'static libloading::Error> {
    // SAFETY: libflux-core has no initialisers that need anything, and its functions have the
    // types that are in its headers.
    LIBFLUX.get_or_init(|| unsafe { Libflux::new(LIBRARY) }).as_ref()
}

/// As [`load`], of this file if it is there: nothing has loaded it for a program, and the linker may not know
/// the directory.
///
/// # Errors
/// As those of [`load`].
pub fn load_from(file: &Path) -> Result<&'static Libflux, &'static libloading::Error> {
    let name = file.to_str().filter(|_| file.exists()).unwrap_or(LIBRARY);
    // SAFETY: as in `load`.
    LIBFLUX.get_or_init(|| unsafe { Libflux::new(name) }).as_ref()
}

/// libflux-core, for those that are called by it, or run after [`load`] has found it.
///
/// # Panics
/// If it cannot be loaded.
pub fn libflux() -> &'static Libflux {
    load().unwrap_or_else(|error| panic!("no libflux-core: {error}"))
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// glibc and musl `pthread.h`
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Lets this thread be canceled (pthread_cancel(3)), or not. Returns whether it could be before.
pub fn set_cancelable(cancelable: bool) -> bool {
    let state = if cancelable { PTHREAD_CANCEL_ENABLE } else { PTHREAD_CANCEL_DISABLE };
    let mut old = PTHREAD_CANCEL_DISABLE;
    // SAFETY: `old` outlives the call, which fails for another state only, and cancels nothing.
    unsafe { pthread_setcancelstate(state, &mut old) };
    old == PTHREAD_CANCEL_ENABLE
}

/// Keeps the library, or program, that this function is part of, in memory for as long as the process
/// lives: a thread is left behind in it (dlclose(3)).
pub fn keep_mapped() {
    let here = keep_mapped as *const () as *const c_void;
    // SAFETY: all zeros are no names and no addresses.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `found` outlives the call. A name that is found belongs to the loaded object, and stays
    // valid as long as that is loaded, as it is while this runs.
    unsafe {
        if libc::dladdr(here, &mut found) != 0 {
            libc::dlopen(found.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// Whether anybody has the file of this descriptor open for writing, which the kernel says when
/// it is asked for a read lease (fcntl(2), `F_SETLEASE`). The file must be the caller's own and
/// the descriptor open for reading only.
///
/// # Errors
/// Where the file system has no leases, for one.
pub fn has_writer(file: BorrowedFd<'_>) -> io::Result<bool> {
    match take_lease(file) {
        Ok(()) => control(file, libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Who opens the file for writing meanwhile breaks the lease, and the kernel sends this process a
/// signal. SIGIO would end it: so the signal is another one, which does nothing unless it is handled.
fn take_lease(file: BorrowedFd<'_>) -> io::Result<()> {
    control(file, F_SETSIG, libc::SIGURG)?;
    control(file, libc::F_SETLEASE, libc::F_RDLCK)
}

fn control(file: BorrowedFd<'_>, command: c_int, argument: c_int) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the call, and neither command takes memory.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    #[test]
    fn who_opens_a_file_that_is_looked_at_ends_nobody() {
        let path = std::env::temp_dir().join(format!("flux-sys-lease-{}", std::process::id()));
        std::fs::write(&path, "").expect("a file");
        let file = File::open(&path).expect("the file");
        take_lease(file.as_fd()).expect("a lease");
        // A fatal signal would end this process before the kernel returns.
        let writer = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(writer.expect_err("it is leased").kind(), io::ErrorKind::WouldBlock);
    }
}

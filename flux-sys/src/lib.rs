//! Raw bindings to libflux-core, generated from `flux/core.h`, and one system call that no safe
//! crate has. No logic lives here.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, clippy::all, rustdoc::all)]

/// Whether anybody has the file of this descriptor open for writing, which the kernel says when
/// it is asked for a read lease (fcntl(2), `F_SETLEASE`). The file must be the caller's own and
/// the descriptor open for reading only.
///
/// # Errors
/// Where the file system has no leases, for one.
pub fn has_writer(file: std::os::fd::BorrowedFd<'_>) -> std::io::Result<bool> {
    use std::os::fd::AsRawFd;
    let lease = |kind: std::ffi::c_int| {
        // SAFETY: the descriptor is borrowed for the call, and a lease is no memory.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    match lease(libc::F_RDLCK) {
        Ok(()) => lease(libc::F_UNLCK).map(|()| false),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(flux)]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

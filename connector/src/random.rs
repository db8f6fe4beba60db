//! A random number, from the kernel itself: a container can be without /dev.
#![allow(unsafe_code)]

use nix::errno::Errno;

/// A number that no other client has.
pub(crate) fn number() -> Result<u64, Errno> {
    let mut bytes = [0u8; 8];
    loop {
        // SAFETY: the kernel writes at most as many bytes as there are.
        let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match Errno::result(count) {
            // So few come at once (getrandom(2)).
            Ok(_) => return Ok(u64::from_ne_bytes(bytes)),
            // Early at boot it can wait.
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

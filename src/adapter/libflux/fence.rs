//! What keeps Rust frames whole that C has called: a panic ends this module, but not the broker, and
//! the broker does not cancel the thread meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::handle::Handle;

/// Runs the body of a callback that C has called. If it panics, this logs the panic and stops the
/// module's reactor with an error.
pub fn call(handle: Handle, name: &str, body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown panic");
        handle.log(libc::LOG_CRIT, &format!("internal error in {name}, unloading: {reason}"));
        handle.stop_reactor_with_error();
    }
}

/// While this lives, the thread is not canceled (pthread_cancel(3)): each callback from C has one.
pub struct Uncancelable(bool);

impl Uncancelable {
    pub(super) fn new() -> Self {
        Self(flux_sys::set_cancelable(false))
    }
}

impl Drop for Uncancelable {
    fn drop(&mut self) {
        flux_sys::set_cancelable(self.0);
    }
}

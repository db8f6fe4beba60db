//! Timers and file descriptors in the Flux reactor.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

use flux_sys::libflux;

use super::error::HandleError;
use super::handle::Handle;

struct Target {
    handle: Handle,
    name: &'static str,
    body: Box<dyn Fn()>,
}

/// A watcher and the closure that it calls.
struct ReactorWatcher {
    raw: *mut flux_sys::flux_watcher_t,
    _target: Box<Target>,
}

impl ReactorWatcher {
    fn new(
        handle: Handle,
        name: &'static str,
        body: impl Fn() + 'static,
        create: impl FnOnce(*mut c_void) -> *mut flux_sys::flux_watcher_t,
    ) -> Result<Self, HandleError> {
        let target = Box::new(Target { handle, name, body: Box::new(body) });
        let raw = create(ptr::from_ref(&*target).cast_mut().cast::<c_void>());
        if raw.is_null() {
            return Err(HandleError::last(name));
        }
        Ok(Self { raw, _target: target })
    }
}

impl Drop for ReactorWatcher {
    fn drop(&mut self) {
        // SAFETY: the watcher is ours; after this no callback sees the target.
        unsafe { libflux().flux_watcher_destroy(self.raw) };
    }
}

unsafe extern "C" fn fired(
    _: *mut flux_sys::flux_reactor_t,
    _: *mut flux_sys::flux_watcher_t,
    _: c_int,
    arg: *mut c_void,
) {
    let _whole = super::Uncancelable::new();
    // SAFETY: `arg` is the watcher's target, which outlives the watcher.
    let target = unsafe { &*arg.cast::<Target>() };
    super::fence::call(target.handle, target.name, || (target.body)());
}

/// A one-shot timer that can be set repeatedly.
pub struct Timer(ReactorWatcher);

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When libflux has no memory.
    pub fn new(handle: Handle, body: impl Fn() + 'static) -> Result<Self, HandleError> {
        let reactor = handle.reactor();
        // SAFETY: the target outlives the watcher.
        let create = |arg| unsafe {
            libflux().flux_timer_watcher_create(reactor, 0.0, 0.0, Some(fired), arg)
        };
        ReactorWatcher::new(handle, "timer", body, create).map(Self)
    }

    /// Sets the timer to fire once, `after` seconds from now. `None` stops it.
    pub fn set(&self, after: Option<f64>) {
        // SAFETY: the watcher is ours.
        unsafe {
            libflux().flux_watcher_stop(self.0.raw);
            if let Some(after) = after {
                libflux().flux_timer_watcher_reset(self.0.raw, after.max(0.0), 0.0);
                libflux().flux_watcher_start(self.0.raw);
            }
        }
    }
}

/// Calls a closure while a file descriptor is readable.
pub struct FdWatcher(#[allow(dead_code, reason = "kept for its Drop")] ReactorWatcher);

impl FdWatcher {
    /// Watches `fd`, which must stay open as long as this lives.
    ///
    /// # Errors
    /// When libflux has no memory.
    pub fn new(handle: Handle, fd: RawFd, body: impl Fn() + 'static) -> Result<Self, HandleError> {
        let reactor = handle.reactor();
        let readable = flux_sys::FLUX_POLLIN as c_int;
        // SAFETY: the target outlives the watcher.
        let create = |arg| unsafe {
            libflux().flux_fd_watcher_create(reactor, fd, readable, Some(fired), arg)
        };
        let watcher = ReactorWatcher::new(handle, "supervisor events", body, create)?;
        // SAFETY: the watcher is ours.
        unsafe { libflux().flux_watcher_start(watcher.raw) };
        Ok(Self(watcher))
    }
}

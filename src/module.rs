//! The broker module: `mod_main`, which the broker calls, and what becomes of its thread.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::rc::Rc;

use crate::adapter::libflux::{Handle, HandleError, fenced};

mod error;
mod handlers;
mod life;
mod site;
mod state_directory;
mod supervision;

use life::Module;
use supervision::Supervision;

/// Entry point of the broker module (flux-core `flux_module_main_f`).
///
/// The broker cancels this thread (pthread_cancel(3)) for `flux module remove --cancel`, and at its
/// own end if nothing has unloaded the module before. A thread that is canceled is unwound. No Rust
/// frame that has something to drop, or that catches panics, may be unwound so. Thus the thread can
/// be canceled only in the reactor, outside of callbacks, where this function and libflux are all
/// that is on its stack ([`Uncancelable`](crate::adapter::libflux::Uncancelable)). [`AtThreadEnd`]
/// then ends the supervisor's thread.
///
/// # Safety
/// Only the broker calls this, on a thread of the module's own, with a valid handle and
/// `argc` strings in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mod_main(
    handle: *mut flux_sys::flux_t,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    flux_sys::set_cancelable(false);
    // SAFETY: the broker's handle and arguments, as the broker has passed them.
    let Some((handle, module)) = (unsafe { begin(handle, argc, argv) }) else { return -1 };
    flux_sys::set_cancelable(true);
    let ran = handle.run_reactor();
    flux_sys::set_cancelable(false);
    // SAFETY: `begin` has made it, and nobody uses it any more.
    unsafe { end(handle, module, ran) }
}

/// Loads the module. None: the broker's log says why it cannot be loaded.
///
/// # Safety
/// As for [`mod_main`].
unsafe fn begin(
    handle: *mut flux_sys::flux_t,
    argc: c_int,
    argv: *mut *mut c_char,
) -> Option<(Handle, *mut Module)> {
    if let Err(error) = flux_sys::load() {
        // The broker's log is not to be had either.
        eprintln!("job-exec-rs: this release does not fit this Flux: {error}");
        nix::errno::Errno::ENOSYS.set();
        return None;
    }
    // SAFETY: the broker passes the module's own handle, valid until mod_main returns.
    let handle = unsafe { Handle::new(handle) }?;
    let count = usize::try_from(argc).unwrap_or(0);
    let arguments: Vec<String> = (0..count)
        // SAFETY: the broker passes `argc` NUL-terminated strings.
        .map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned())
        .collect();
    let mut loaded = None;
    fenced(handle, "mod_main", || match Module::load(handle, &arguments) {
        Ok(module) => loaded = Some(module),
        Err(error) => handle.log(libc::LOG_ERR, &error.to_string()),
    });
    let Some(module) = loaded else {
        nix::errno::Errno::EINVAL.set();
        return None;
    };
    AT_THREAD_END.with(|at_end| at_end.0.replace(Some(Rc::clone(module.supervision()))));
    Some((handle, Box::into_raw(Box::new(module))))
}

/// Unloads the module. Returns what `mod_main` is to return.
///
/// # Safety
/// `module` comes from [`begin`], and nobody uses it any more.
unsafe fn end(handle: Handle, module: *mut Module, ran: Result<(), HandleError>) -> c_int {
    // SAFETY: the caller passes what `Box::into_raw` has returned.
    let module = unsafe { Box::from_raw(module) };
    // What it holds must go while the handle is open.
    AT_THREAD_END.with(|at_end| at_end.0.take());
    let mut result = -1;
    fenced(handle, "mod_main", || {
        module.unload();
        match ran {
            Ok(()) => result = 0,
            Err(error) => handle.log(libc::LOG_ERR, &error.to_string()),
        }
    });
    if result < 0 {
        nix::errno::Errno::EINVAL.set();
    }
    result
}

/// What the module's thread ends when it is canceled. The broker has closed its handle by then, so
/// that nothing else can be done.
struct AtThreadEnd(RefCell<Option<Rc<Supervision>>>);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        if let Some(supervision) = self.0.take() {
            supervision.stop();
        }
    }
}

thread_local! {
    static AT_THREAD_END: AtThreadEnd = const { AtThreadEnd(RefCell::new(None)) };
}

//! The broker handle that `mod_main` is given.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use flux_sys::libflux;

use super::error::{HandleError, RpcError};
use super::text::{cstring, string};

/// The module's `flux_t`. It is valid while `mod_main` runs, and only on that thread. Or a connection
/// of the command line tool ([`Handle::connect`]).
#[derive(Clone, Copy)]
pub struct Handle(NonNull<flux_sys::flux_t>);

impl Handle {
    /// Wraps the handle of `mod_main`.
    ///
    /// # Safety
    /// `handle` is the broker handle of this module, used on its thread, and not used through
    /// this value after `mod_main` has returned.
    pub unsafe fn new(handle: *mut flux_sys::flux_t) -> Option<Self> {
        NonNull::new(handle).map(Self)
    }

    /// Connects to the broker that `FLUX_URI` names, or to the system instance's. The connection ends
    /// with the process.
    ///
    /// # Errors
    /// There is no libflux, no broker, or it does not let this user in.
    pub fn connect() -> Result<Self, HandleError> {
        flux_sys::load().map_err(HandleError::library)?;
        // SAFETY: a null URI means the default one.
        let handle = unsafe { libflux().flux_open(ptr::null(), 0) };
        NonNull::new(handle).map(Self).ok_or_else(|| HandleError::last("cannot connect to Flux"))
    }

    /// Connects to another broker. Its messages are handled in the reactor of `self`.
    ///
    /// # Errors
    /// There is no broker behind the URI, or it does not let this user in.
    pub(super) fn connect_beside(self, uri: &str) -> Result<Self, HandleError> {
        let text = cstring(uri);
        // SAFETY: the string outlives the call, which copies it.
        let raw = unsafe { libflux().flux_open(text.as_ptr(), 0) };
        let other = NonNull::new(raw).map(Self);
        let other = other.ok_or_else(|| HandleError::last(format!("cannot connect to {uri}")))?;
        // SAFETY: the new handle is ours, and has no reactor yet; the other one outlives it.
        let rc = unsafe { libflux().flux_set_reactor(other.as_ptr(), self.reactor()) };
        if rc < 0 {
            let error = HandleError::last("set the reactor");
            other.close();
            return Err(error);
        }
        Ok(other)
    }

    /// Ends a connection of [`Self::connect_beside`]. It must not be used any more.
    pub(super) fn close(self) {
        // SAFETY: the handle is ours, and whoever calls this does not use it again.
        unsafe { libflux().flux_close(self.as_ptr()) };
    }

    pub(super) fn as_ptr(self) -> *mut flux_sys::flux_t {
        self.0.as_ptr()
    }

    pub(super) fn reactor(self) -> *mut flux_sys::flux_reactor_t {
        // SAFETY: the handle is valid while the module runs.
        unsafe { libflux().flux_get_reactor(self.as_ptr()) }
    }

    /// Runs the reactor until it is stopped.
    ///
    /// # Errors
    /// When the reactor was stopped with an error.
    pub fn run_reactor(self) -> Result<(), HandleError> {
        // Nothing here may have a destructor before the reactor returns: `mod_main` says why.
        // SAFETY: the reactor belongs to the valid handle, and this is the module's thread.
        let rc = unsafe { libflux().flux_reactor_run(self.reactor(), 0) };
        if rc < 0 { Err(HandleError::last("reactor")) } else { Ok(()) }
    }

    /// Makes [`Handle::run_reactor`] return.
    pub fn stop_reactor(self) {
        // SAFETY: the reactor belongs to the valid handle.
        unsafe { libflux().flux_reactor_stop(self.reactor()) }
    }

    /// Makes [`Handle::run_reactor`] return an error.
    pub fn stop_reactor_with_error(self) {
        // SAFETY: the reactor belongs to the valid handle.
        unsafe { libflux().flux_reactor_stop_error(self.reactor()) }
    }

    /// Writes a line to the broker's log, with a syslog level.
    pub fn log(self, level: c_int, text: &str) {
        let text = cstring(text);
        // SAFETY: the format takes one string, and one NUL-terminated string is given.
        unsafe { (libflux().flux_log)(self.as_ptr(), level, c"%s".as_ptr(), text.as_ptr()) };
    }

    /// This broker's rank.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn rank(self) -> Result<u32, HandleError> {
        let mut rank = 0;
        // SAFETY: `rank` outlives the call.
        let rc = unsafe { libflux().flux_get_rank(self.as_ptr(), &mut rank) };
        if rc < 0 { Err(HandleError::last("get rank")) } else { Ok(rank) }
    }

    /// A broker attribute, if it is set.
    pub fn attribute(self, name: &str) -> Option<String> {
        let name = cstring(name);
        // SAFETY: the result is copied before the handle is used again.
        unsafe { string(libflux().flux_attr_get(self.as_ptr(), name.as_ptr())) }
    }

    /// The name that this module was loaded under.
    pub fn module_name(self) -> Option<String> {
        let key = c"flux::name".as_ptr();
        // SAFETY: the broker keeps the name, a string, under this key for the module's life.
        unsafe { string(libflux().flux_aux_get(self.as_ptr(), key).cast()) }
    }

    /// Whether flux-core shows job ids with `f` in this broker, and not with `ƒ`: its locale has no
    /// UTF-8, or `FLUX_F58_FORCE_ASCII` is set (RFC 19; flux-core `libutil/fluid.c`).
    pub fn shows_ascii_f58(self) -> bool {
        let mut text = [0_u8; 32];
        // SAFETY: libflux writes a string into the buffer, whose size it is told.
        let rc = unsafe {
            let buffer = text.as_mut_ptr().cast();
            libflux().flux_job_id_encode(1, c"f58".as_ptr(), buffer, text.len())
        };
        rc == 0 && text[0] == b'f'
    }

    /// A path that is compiled into flux-core.
    pub fn builtin(self, key: &str) -> Option<String> {
        let key = cstring(key);
        let hint = flux_sys::flux_conf_builtin_hint_FLUX_CONF_AUTO;
        // SAFETY: the result is a static string or null.
        unsafe { string(libflux().flux_conf_builtin_get(key.as_ptr(), hint)) }
    }

    /// Sends a request and waits for the answer. It blocks, so use it only before the reactor runs.
    ///
    /// # Errors
    /// The error that the service answered.
    pub fn ask(self, topic: &str, payload: &str) -> Result<String, RpcError> {
        self.ask_rank(flux_sys::FLUX_NODEID_ANY, topic, payload)
    }

    /// The same, of the service on this rank.
    ///
    /// # Errors
    /// The error that the service answered.
    pub fn ask_rank(self, rank: u32, topic: &str, payload: &str) -> Result<String, RpcError> {
        let (topic, payload) = (cstring(topic), cstring(payload));
        // SAFETY: both strings outlive the call, which copies them.
        let future =
            unsafe { libflux().flux_rpc(self.as_ptr(), topic.as_ptr(), payload.as_ptr(), rank, 0) };
        let mut text = ptr::null();
        // SAFETY: a null future is refused by libflux with EINVAL; `text` outlives the call.
        let rc = unsafe { libflux().flux_rpc_get(future, &mut text) };
        let answer = if rc < 0 {
            Err(RpcError::of(future))
        } else {
            // SAFETY: the payload lives as long as the future.
            Ok(unsafe { string(text) }.unwrap_or_default())
        };
        // SAFETY: the future is ours and not used again.
        unsafe { libflux().flux_future_destroy(future) };
        answer
    }

    /// Registers another service name for this module, and waits for the answer.
    ///
    /// # Errors
    /// `EEXIST` when another module has it.
    pub fn register_service(self, name: &str) -> Result<(), RpcError> {
        let name = cstring(name);
        // SAFETY: the string outlives the call, which copies it.
        let future = unsafe { libflux().flux_service_register(self.as_ptr(), name.as_ptr()) };
        // SAFETY: a null future is refused by libflux with EINVAL.
        let rc = unsafe { libflux().flux_future_get(future, ptr::null_mut()) };
        let result = if rc < 0 { Err(RpcError::of(future)) } else { Ok(()) };
        // SAFETY: the future is ours and not used again.
        unsafe { libflux().flux_future_destroy(future) };
        result
    }

    /// Subscribes to events.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn subscribe(self, topic: &str) -> Result<(), HandleError> {
        let text = cstring(topic);
        // SAFETY: the string outlives the call.
        let rc = unsafe { libflux().flux_event_subscribe(self.as_ptr(), text.as_ptr()) };
        if rc < 0 { Err(HandleError::last(format!("subscribe {topic}"))) } else { Ok(()) }
    }

    /// Whether a debug flag of this module is set (`flux module debug`).
    pub fn debug_flag(self, flag: c_int) -> bool {
        // SAFETY: the handle is valid; the flag is not cleared.
        unsafe { libflux().flux_module_debug_test(self.as_ptr(), flag, false) }
    }
}

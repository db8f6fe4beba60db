//! Commits to the KVS and lookups in it.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use super::error::{HandleError, RpcError};
use super::future::Futures;
use super::handle::Handle;
use super::text::{cstring, string};

/// The KVS, through one handle.
#[derive(Clone)]
pub(super) struct Kvs {
    handle: Handle,
    futures: Rc<Futures>,
    /// Whether it was logged that the KVS has no backing store.
    warned: Rc<Cell<bool>>,
    /// How many checkpoints were begun.
    checkpoints: Rc<Cell<u64>>,
}

impl Kvs {
    pub(super) fn new(handle: Handle, futures: Rc<Futures>) -> Self {
        Self { handle, futures, warned: Rc::default(), checkpoints: Rc::default() }
    }

    pub(super) fn futures(&self) -> &Futures {
        &self.futures
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) fn warn_once(&self, text: &str) {
        if !self.warned.replace(true) {
            self.handle.log(libc::LOG_WARNING, text);
        }
    }

    /// How many checkpoints were begun.
    pub(super) fn checkpoints(&self) -> &Cell<u64> {
        &self.checkpoints
    }

    pub(super) fn commit(
        &self,
        namespace: Option<&str>,
        flags: c_int,
        fill: impl FnOnce(*mut flux_sys::flux_kvs_txn_t) -> c_int,
    ) -> *mut flux_sys::flux_future_t {
        let namespace = namespace.map(cstring);
        let namespace = namespace.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: a transaction of our own; a null one is refused by the calls below.
        let txn = unsafe { flux_sys::flux_kvs_txn_create() };
        let future = if fill(txn) < 0 {
            ptr::null_mut()
        } else {
            // SAFETY: transaction and name live through the call, which copies them.
            unsafe { flux_sys::flux_kvs_commit(self.handle.as_ptr(), namespace, flags, txn) }
        };
        // SAFETY: ours, and not used again; errno is kept by libflux.
        unsafe { flux_sys::flux_kvs_txn_destroy(txn) };
        future
    }

    pub(super) fn lookup(
        &self,
        namespace: Option<&str>,
        key: &str,
        treeobj: bool,
        done: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        let (namespace, key) = (namespace.map(cstring), cstring(key));
        let flags = if treeobj { flux_sys::kvs_op_FLUX_KVS_TREEOBJ as c_int } else { 0 };
        let space = namespace.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let handle = self.handle.as_ptr();
        // SAFETY: the strings live through the call, which copies them.
        let future = unsafe { flux_sys::flux_kvs_lookup(handle, space, flags, key.as_ptr()) };
        self.take_lookup(future, treeobj, done);
    }

    /// Reads `key` of the primary namespace, and again each time it changes, until `is_it` finds
    /// what it looks for.
    pub(super) fn watch_until(
        &self,
        key: &str,
        is_it: impl Fn(&str) -> bool + 'static,
        done: impl FnOnce(Result<(), RpcError>) + 'static,
    ) {
        let (key, handle) = (cstring(key), self.handle.as_ptr());
        let flags = flux_sys::kvs_op_FLUX_KVS_WATCH as c_int;
        // SAFETY: the string lives through the call, which copies it.
        let future = unsafe { flux_sys::flux_kvs_lookup(handle, ptr::null(), flags, key.as_ptr()) };
        let mut done = Some(done);
        self.futures.then_each(future, move |result, future| {
            let found = result.and_then(|_| value_of(future, false)).map(|text| is_it(&text));
            // After it was found, what still comes is the end of the cancelled watch.
            if !matches!(found, Ok(false))
                && let Some(done) = done.take()
            {
                if found.is_ok() {
                    // SAFETY: the future is a lookup of ours with the watch flag, and lives.
                    unsafe { flux_sys::flux_kvs_lookup_cancel(future) };
                }
                done(found.map(drop));
            }
        });
    }

    /// Passes what a lookup finds to `done`: the value, or the tree object as JSON.
    pub(super) fn take_lookup(
        &self,
        future: *mut flux_sys::flux_future_t,
        treeobj: bool,
        done: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        self.futures.then_once(future, move |result, future| {
            done(result.and_then(|_| value_of(future, treeobj)));
        });
    }
}

/// What a lookup that has succeeded has found.
fn value_of(future: *mut flux_sys::flux_future_t, treeobj: bool) -> Result<String, RpcError> {
    let mut text = ptr::null();
    // SAFETY: the lookup has succeeded; the text is copied while the future lives.
    let rc = unsafe {
        if treeobj {
            flux_sys::flux_kvs_lookup_get_treeobj(future, &mut text)
        } else {
            flux_sys::flux_kvs_lookup_get(future, &mut text)
        }
    };
    if rc < 0 {
        return Err(RpcError::from(HandleError::last("KVS lookup")));
    }
    // SAFETY: as above.
    Ok(unsafe { string(text) }.unwrap_or_default())
}

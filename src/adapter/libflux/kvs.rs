//! Commits to the KVS and lookups in it.

use std::cell::{Cell, OnceCell};
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use flux_sys::libflux;

use super::database::{Database, Synced};
use super::error::{HandleError, RpcError};
use super::flow::Promise;
use super::future::{Answered, Futures};
use super::handle::Handle;
use super::text::{cstring, string};

/// The KVS, through one handle.
#[derive(Clone)]
pub(super) struct Kvs {
    handle: Handle,
    futures: Rc<Futures>,
    /// Whether it was logged why checkpoints do not help, or not fully. One reason is enough.
    warned: Rc<Cell<bool>>,
    database: Rc<OnceCell<Database>>,
}

impl Kvs {
    pub(super) fn new(handle: Handle, futures: Rc<Futures>) -> Self {
        let (warned, database) = Default::default();
        Self { handle, futures, warned, database }
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

    /// Waits for a sync that is under way: its thread must not outlive the module.
    pub(super) fn stop(&self) {
        if let Some(database) = self.database.get() {
            database.stop();
        }
    }

    /// Syncs to the disk what the KVS has given to its backing store. False: nothing had to be synced.
    pub(super) async fn sync(&self) -> Synced {
        if self.database.get().is_none() {
            let Some(directory) = self.handle.attribute("statedir") else { return Ok(false) };
            let database = Database::new(self.handle, directory.as_ref());
            let database = database.map_err(RpcError::from)?;
            // There was none a moment ago, and nothing was awaited since.
            let _ = self.database.set(database);
        }
        let Some(database) = self.database.get() else { return Ok(false) };
        let (keep, synced) = self.futures.promise();
        database.sync(keep);
        synced.await
    }

    /// Whether the backing store outlives this broker: the next one that is started on it finds it.
    pub(super) fn lasts(&self) -> bool {
        let removes = self.handle.attribute("statedir-cleanup");
        removes.is_none_or(|removes| removes == "0")
    }

    pub(super) fn commit(
        &self,
        namespace: Option<&str>,
        flags: c_int,
        fill: impl FnOnce(*mut flux_sys::flux_kvs_txn_t) -> c_int,
    ) -> Answered {
        let namespace = namespace.map(cstring);
        let namespace = namespace.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: a transaction of our own; a null one is refused by the calls below.
        let txn = unsafe { libflux().flux_kvs_txn_create() };
        let future = if fill(txn) < 0 {
            ptr::null_mut()
        } else {
            // SAFETY: transaction and name live through the call, which copies them.
            unsafe { libflux().flux_kvs_commit(self.handle.as_ptr(), namespace, flags, txn) }
        };
        // SAFETY: ours, and not used again; errno is kept by libflux.
        unsafe { libflux().flux_kvs_txn_destroy(txn) };
        self.futures.fulfilled(future)
    }

    pub(super) fn lookup(&self, namespace: Option<&str>, key: &str, treeobj: bool) -> Answered {
        let (namespace, key) = (namespace.map(cstring), cstring(key));
        let flags = if treeobj { flux_sys::kvs_op_FLUX_KVS_TREEOBJ as c_int } else { 0 };
        let space = namespace.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let handle = self.handle.as_ptr();
        // SAFETY: the strings live through the call, which copies them.
        let future = unsafe { libflux().flux_kvs_lookup(handle, space, flags, key.as_ptr()) };
        self.take_lookup(future, treeobj)
    }

    /// Reads `key` of the primary namespace, and again each time it changes, until it is found
    /// as it is to be.
    pub(super) fn watch_until(
        &self,
        key: &str,
        is_found: impl Fn(&str) -> bool + 'static,
    ) -> Promise<Result<(), RpcError>> {
        let (keep, seen) = self.futures.promise();
        let (key, handle) = (cstring(key), self.handle.as_ptr());
        let flags = flux_sys::kvs_op_FLUX_KVS_WATCH as c_int;
        // SAFETY: the string lives through the call, which copies it.
        let future = unsafe { libflux().flux_kvs_lookup(handle, ptr::null(), flags, key.as_ptr()) };
        let mut keep = Some(keep);
        self.futures.then_each(future, move |result, future| {
            let goes_on = result.is_ok();
            let found = result.and_then(|_| value_of(future, false)).map(|text| is_found(&text));
            // After it was found, what still comes is the end of the cancelled watch.
            if !matches!(found, Ok(false))
                && let Some(keep) = keep.take()
            {
                if goes_on {
                    // SAFETY: the future is a lookup of ours with the watch flag, and lives.
                    unsafe { libflux().flux_kvs_lookup_cancel(future) };
                }
                keep(found.map(drop));
            }
        });
        seen
    }

    /// What a lookup finds: the value, or the tree object as JSON.
    pub(super) fn take_lookup(
        &self,
        future: *mut flux_sys::flux_future_t,
        treeobj: bool,
    ) -> Answered {
        let (keep, found) = self.futures.promise();
        self.futures.then_once(future, move |result, future| {
            keep(result.and_then(|_| value_of(future, treeobj)));
        });
        found
    }
}

/// What a lookup that has succeeded has found.
fn value_of(future: *mut flux_sys::flux_future_t, treeobj: bool) -> Result<String, RpcError> {
    let mut text = ptr::null();
    // SAFETY: the lookup has succeeded; the text is copied while the future lives.
    let rc = unsafe {
        if treeobj {
            libflux().flux_kvs_lookup_get_treeobj(future, &mut text)
        } else {
            libflux().flux_kvs_lookup_get(future, &mut text)
        }
    };
    if rc < 0 {
        return Err(RpcError::from(HandleError::last("KVS lookup")));
    }
    // SAFETY: as above.
    Ok(unsafe { string(text) }.unwrap_or_default())
}

//! RPCs whose answers are passed to closures, or awaited by flows.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::rc::Rc;

use flux_sys::libflux;

use super::error::{HandleError, RpcError};
use super::flow::{Flows, Promise};
use super::handle::Handle;
use super::text::{cstring, string};

type RawFuture = *mut flux_sys::flux_future_t;

/// The answer that a flow awaits.
pub(super) type Answered = Promise<Result<String, RpcError>>;

/// Called with each answer. The raw future is for payloads that are not strings.
type Callback = Box<dyn FnMut(Result<String, RpcError>, RawFuture)>;

/// `flux_future_then(3)`: waits as long as it takes.
const NO_LIMIT: f64 = -1.0;

struct PendingFuture {
    handle: Handle,
    callback: RefCell<Callback>,
    streaming: bool,
    registry: Rc<RefCell<BTreeSet<usize>>>,
}

/// Sends RPCs. Answers that come after it was dropped are ignored.
pub struct Futures {
    handle: Handle,
    registry: Rc<RefCell<BTreeSet<usize>>>,
    flows: Rc<Flows>,
}

impl Futures {
    /// Sends through `handle`.
    pub fn new(handle: Handle) -> Self {
        Self { handle, registry: Rc::default(), flows: Rc::default() }
    }

    /// Begins a flow, now. It goes with all that is pending.
    pub(super) fn spawn(&self, flow: impl Future<Output = ()> + 'static) {
        self.flows.spawn(flow);
    }

    /// A function that keeps a promise, and the promise: for calls that pass their outcome to a closure.
    pub(super) fn promise<T: 'static>(&self) -> (impl FnOnce(T) + 'static, Promise<T>) {
        self.flows.promise()
    }

    /// Sends a request to `topic` on any rank.
    pub(super) fn ask(&self, topic: &str, payload: &str) -> Answered {
        self.fulfilled(self.send(topic, None, payload, 0))
    }

    /// Waits until `future` is fulfilled. Null, which libflux returns after an error, counts as a
    /// failure.
    pub(super) fn fulfilled(&self, future: RawFuture) -> Answered {
        let (keep, answered) = self.promise();
        self.then_once(future, move |result, _| keep(result));
        answered
    }

    /// Sends a request to `topic` on `nodeid` (`None`: any rank), and passes the answer to `then`.
    pub fn rpc(
        &self,
        topic: &str,
        nodeid: Option<u32>,
        payload: &str,
        then: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        let future = self.send(topic, nodeid, payload, 0);
        self.then_once(future, move |result, _| then(result));
    }

    /// The same, and after `seconds` without an answer `then` gets `ETIMEDOUT`.
    pub fn rpc_within(
        &self,
        seconds: f64,
        topic: &str,
        nodeid: u32,
        payload: &str,
        then: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        let future = self.send(topic, Some(nodeid), payload, 0);
        let callback = once(move |result, _| then(result));
        self.then(future, false, seconds, callback);
    }

    /// Waits for so many seconds.
    pub(super) fn pause(&self, seconds: f64) -> Promise<()> {
        let (keep, over) = self.promise();
        // SAFETY: without a function that would fulfil it the future only waits.
        let future = unsafe { libflux().flux_future_create(None, ptr::null_mut()) };
        if future.is_null() {
            let error = HandleError::last("flux_future_create");
            self.handle.log(libc::LOG_ERR, &error.to_string());
            keep(());
            return over;
        }
        // SAFETY: the future is ours, and the handle has a reactor.
        unsafe { libflux().flux_future_set_reactor(future, self.handle.reactor()) };
        self.then(future, false, seconds, once(move |_, _| keep(())));
        over
    }

    /// Sends a request and passes each of its answers to `each`. The first error is the last
    /// answer; a regular end is `ENODATA`.
    pub fn stream(
        &self,
        topic: &str,
        nodeid: u32,
        payload: &str,
        each: impl FnMut(Result<String, RpcError>) + 'static,
    ) {
        self.open(topic, Some(nodeid), payload, each);
    }

    /// As [`Self::stream`], of the nearest rank that has the service.
    pub fn stream_anywhere(
        &self,
        topic: &str,
        payload: &str,
        each: impl FnMut(Result<String, RpcError>) + 'static,
    ) {
        self.open(topic, None, payload, each);
    }

    /// Gives up all that is pending. What waits for an answer holds what it needs then, often these
    /// `Futures` themselves, so neither would be dropped without this.
    pub fn close(&self) {
        self.flows.close();
        loop {
            let pending = self.registry.borrow_mut().pop_first();
            let Some(future) = pending else { return };
            // SAFETY: what is registered was not destroyed; no callback runs during unload.
            unsafe { libflux().flux_future_destroy(future as RawFuture) };
        }
    }

    fn open(
        &self,
        topic: &str,
        nodeid: Option<u32>,
        payload: &str,
        mut each: impl FnMut(Result<String, RpcError>) + 'static,
    ) {
        let flags = flux_sys::FLUX_RPC_STREAMING as c_int;
        let future = self.send(topic, nodeid, payload, flags);
        self.then(future, true, NO_LIMIT, Box::new(move |result, _| each(result)));
    }

    /// Sends a request that wants no answer.
    pub fn notify(&self, topic: &str, nodeid: Option<u32>, payload: &str) {
        let flags = flux_sys::FLUX_RPC_NORESPONSE as c_int;
        let future = self.send(topic, nodeid, payload, flags);
        if future.is_null() {
            let error = HandleError::last(format!("send {topic}"));
            self.handle.log(libc::LOG_ERR, &error.to_string());
        }
        // SAFETY: the future is ours (or null) and not used again.
        unsafe { libflux().flux_future_destroy(future) };
    }

    fn send(&self, topic: &str, nodeid: Option<u32>, payload: &str, flags: c_int) -> RawFuture {
        let topic = cstring(topic);
        // There is no NUL in it, because serde_json escapes it.
        let payload = CString::new(payload).unwrap_or_default();
        let nodeid = nodeid.unwrap_or(flux_sys::FLUX_NODEID_ANY);
        let handle = self.handle.as_ptr();
        // SAFETY: both strings outlive the call, which copies them.
        unsafe { libflux().flux_rpc(handle, topic.as_ptr(), payload.as_ptr(), nodeid, flags) }
    }

    /// Calls `then` when `future` is fulfilled. Null, which libflux returns after an error, counts
    /// as a failure.
    pub(super) fn then_once(
        &self,
        future: RawFuture,
        then: impl FnOnce(Result<String, RpcError>, RawFuture) + 'static,
    ) {
        self.then(future, false, NO_LIMIT, once(then));
    }

    /// The same for a future with many answers. The first error is the last answer.
    pub(super) fn then_each(
        &self,
        future: RawFuture,
        each: impl FnMut(Result<String, RpcError>, RawFuture) + 'static,
    ) {
        self.then(future, true, NO_LIMIT, Box::new(each));
    }

    fn then(&self, future: RawFuture, streaming: bool, seconds: f64, mut callback: Callback) {
        if future.is_null() {
            return callback(Err(RpcError::of(future)), future);
        }
        let pending = Box::new(PendingFuture {
            handle: self.handle,
            callback: RefCell::new(callback),
            streaming,
            registry: Rc::clone(&self.registry),
        });
        self.registry.borrow_mut().insert(future as usize);
        let arg = Box::into_raw(pending).cast::<c_void>();
        // SAFETY: `arg` stays valid until the future is destroyed, which frees it through aux.
        let rc = unsafe {
            libflux().flux_future_aux_set(future, c"job-exec-rs".as_ptr(), arg, Some(free_pending));
            libflux().flux_future_then(future, seconds, Some(take_answer), arg)
        };
        if rc < 0 {
            let error = HandleError::last("flux_future_then");
            self.handle.log(libc::LOG_ERR, &error.to_string());
            self.registry.borrow_mut().remove(&(future as usize));
            // SAFETY: it lives until the future is destroyed, which nobody else does.
            let pending = unsafe { &*arg.cast::<PendingFuture>() };
            (pending.callback.borrow_mut())(Err(error.into()), future);
            // SAFETY: the future is ours and not used again.
            unsafe { libflux().flux_future_destroy(future) };
        }
    }
}

fn once(then: impl FnOnce(Result<String, RpcError>, RawFuture) + 'static) -> Callback {
    let mut then = Some(then);
    Box::new(move |result, future| {
        if let Some(then) = then.take() {
            then(result, future);
        }
    })
}

impl Drop for Futures {
    fn drop(&mut self) {
        self.close();
    }
}

unsafe extern "C" fn free_pending(arg: *mut c_void) {
    let _whole = super::Uncancelable::new();
    // SAFETY: `arg` came from Box::into_raw, and libflux frees aux items once.
    drop(unsafe { Box::from_raw(arg.cast::<PendingFuture>()) });
}

unsafe extern "C" fn take_answer(future: RawFuture, arg: *mut c_void) {
    let _whole = super::Uncancelable::new();
    // SAFETY: `arg` is the PendingFuture of this future, alive until the future is destroyed below.
    let pending = unsafe { &*arg.cast::<PendingFuture>() };
    let mut goes_on = false;
    super::fence::call(pending.handle, "RPC", || {
        let mut text = ptr::null();
        // Not every future holds a string payload. For the others this only tells success.
        // SAFETY: the future is fulfilled; `text` outlives the call.
        let rc = unsafe { libflux().flux_rpc_get(future, &mut text) };
        let result = if rc == 0 {
            // SAFETY: the payload lives until the future is reset or destroyed.
            Ok(unsafe { string(text) }.unwrap_or_default())
        } else {
            Err(RpcError::of(future))
        };
        goes_on = pending.streaming && result.is_ok();
        (pending.callback.borrow_mut())(result, future);
        if goes_on {
            // SAFETY: the future is ours; resetting waits for the next answer.
            unsafe { libflux().flux_future_reset(future) };
        }
    });
    if !goes_on {
        pending.registry.borrow_mut().remove(&(future as usize));
        // SAFETY: the future is ours and not used again; this frees `pending`.
        unsafe { libflux().flux_future_destroy(future) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_pending_goes_although_it_holds_its_own_sender() {
        if let Err(why) = flux_sys::load() {
            let test = "future::what_is_pending_goes_although_it_holds_its_own_sender";
            // What a test prints is shown only if it fails.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
            return;
        }
        // SAFETY: the address is a string; the handle is used by this thread alone.
        let handle = unsafe { Handle::new(libflux().flux_open(c"loop://".as_ptr(), 0)) };
        let handle = handle.expect("a handle that leads back to itself");
        let futures = Rc::new(Futures::new(handle));
        for _ in 0..3 {
            let held = Rc::clone(&futures);
            futures.rpc("kvs.commit", None, "{}", move |_| held.notify("kvs.sync", None, "{}"));
        }
        let held = Rc::clone(&futures);
        futures.spawn(async move {
            let answer = held.ask("kvs.commit", "{}").await;
            panic!("nobody answers: {answer:?}");
        });
        assert_eq!(Rc::strong_count(&futures), 5);
        futures.close();
        assert_eq!(Rc::strong_count(&futures), 1);
        drop(futures);
        handle.close();
    }
}

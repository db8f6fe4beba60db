//! Asks rank 0's resource module to drain ranks.
//!
//! A request can be lost with a broker on its way, or come while the resource module is away. It is
//! sent again until it is answered, because jobs would be started where processes of others may still
//! run. To drain a rank a second time changes nothing: mode `update` keeps the first reason.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::json;

use super::{Futures, Handle, HandleError, RpcError, Timer};

/// flux-core `resource/drain.c`, `drain_cb()`
const DRAIN: &str = "resource.drain";

/// Pause before what did not get through is sent again, in seconds.
const AGAIN_PAUSE: f64 = 2.0;
/// How many such pauses there are before the same is done with what has neither an answer nor an error:
/// flux-core does not answer the request with which a broker finds out that the one above it is dead.
const SILENT_PAUSES: u32 = 15;

/// What comes in place of an answer: nobody has heard the request, or nobody can say.
const NOT_ANSWERED: [i32; 4] = [libc::EAGAIN, libc::ECONNRESET, libc::EHOSTUNREACH, libc::ENOSYS];

struct Drain {
    targets: String,
    reason: String,
    /// It was logged that it did not get through.
    is_said: bool,
    /// After so many pauses it is sent again.
    pauses: u32,
    done: Box<dyn FnOnce()>,
}

impl Drain {
    fn text(&self) -> String {
        format!("drain {} ({})", self.targets, self.reason)
    }
}

/// The drains that this rank has asked for.
pub(super) struct Drains {
    handle: Handle,
    futures: Rc<Futures>,
    timer: RefCell<Option<Timer>>,
    /// What has no answer yet, by the number of its drain.
    open: RefCell<BTreeMap<u64, Drain>>,
    last: Cell<u64>,
}

impl Drains {
    /// # Errors
    /// If libflux has no memory.
    pub(super) fn new(handle: Handle, futures: Rc<Futures>) -> Result<Rc<Self>, HandleError> {
        let (timer, open, last) = Default::default();
        let drains = Rc::new(Self { handle, futures, timer, open, last });
        let this = Rc::downgrade(&drains);
        let timer = Timer::new(handle, move || {
            if let Some(drains) = this.upgrade() {
                drains.send_again();
            }
        })?;
        drains.timer.replace(Some(timer));
        Ok(drains)
    }

    /// Passes to `done` that the resource module has answered.
    pub(super) fn ask(
        self: &Rc<Self>,
        targets: String,
        reason: String,
        done: impl FnOnce() + 'static,
    ) {
        let number = self.last.get() + 1;
        self.last.set(number);
        let drain = Drain { targets, reason, is_said: false, pauses: 0, done: Box::new(done) };
        let is_idle = self.open.borrow().is_empty();
        self.open.borrow_mut().insert(number, drain);
        self.send(number);
        if is_idle {
            self.set_timer();
        }
    }

    /// A pause has ended.
    fn send_again(self: &Rc<Self>) {
        let mut due = Vec::new();
        for (number, drain) in self.open.borrow_mut().iter_mut() {
            drain.pauses = drain.pauses.saturating_sub(1);
            due.extend((drain.pauses == 0).then_some(*number));
        }
        due.into_iter().for_each(|number| self.send(number));
        self.set_timer();
    }

    fn set_timer(&self) {
        if let Some(timer) = &*self.timer.borrow() {
            timer.set((!self.open.borrow().is_empty()).then_some(AGAIN_PAUSE));
        }
    }

    fn send(self: &Rc<Self>, number: u64) {
        let payload = match self.open.borrow_mut().get_mut(&number) {
            None => return,
            Some(drain) => {
                drain.pauses = SILENT_PAUSES;
                json!({ "targets": drain.targets, "reason": drain.reason, "mode": "update" })
            }
        };
        let this = Rc::downgrade(self);
        self.futures.rpc(DRAIN, Some(0), &payload.to_string(), move |result| {
            if let Some(drains) = this.upgrade() {
                drains.handle_answer(number, result.err());
            }
        });
    }

    fn handle_answer(&self, number: u64, error: Option<RpcError>) {
        if let Some(error) = error.as_ref().filter(|it| NOT_ANSWERED.contains(&it.errnum)) {
            return self.handle_silence(number, error);
        }
        let Some(drain) = self.open.borrow_mut().remove(&number) else { return };
        if let Some(error) = error {
            self.handle.log(libc::LOG_ERR, &format!("{}: {error}", drain.text()));
        }
        (drain.done)();
    }

    fn handle_silence(&self, number: u64, error: &RpcError) {
        let mut open = self.open.borrow_mut();
        let Some(drain) = open.get_mut(&number) else { return };
        drain.pauses = 1;
        if !std::mem::replace(&mut drain.is_said, true) {
            let text = format!(
                "{}: not answered, trying again, and keeping the ranks until then: {error}",
                drain.text()
            );
            self.handle.log(libc::LOG_WARNING, &text);
        }
    }

    /// The module is being unloaded.
    pub(super) fn give_up(&self) {
        for drain in self.open.take().into_values() {
            let text = format!("{}: not answered before this module was unloaded", drain.text());
            self.handle.log(libc::LOG_ERR, &text);
        }
    }
}

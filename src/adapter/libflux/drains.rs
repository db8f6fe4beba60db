//! Asks rank 0's resource module to drain ranks.
//!
//! A request can be lost with a broker on its way, or come while the resource module is away. It is
//! sent again then, because jobs would be started where processes of others may still run. To drain
//! a rank a second time changes nothing: mode `update` keeps the first reason.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::json;

use super::{Futures, Handle, HandleError, RpcError, Timer};

/// flux-core `resource/drain.c`, `drain_cb()`
const DRAIN: &str = "resource.drain";

/// Pause before what did not get through is sent again, in seconds.
const AGAIN_PAUSE: f64 = 2.0;

/// What comes in place of an answer: nobody has heard the request, or nobody can say.
const NOT_ANSWERED: [i32; 4] = [libc::EAGAIN, libc::ECONNRESET, libc::EHOSTUNREACH, libc::ENOSYS];

struct Drain {
    targets: String,
    reason: String,
    /// It was logged that it did not get through.
    is_said: bool,
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
    /// What is to be sent again.
    waiting: RefCell<Vec<Drain>>,
}

impl Drains {
    /// # Errors
    /// If libflux has no memory.
    pub(super) fn new(handle: Handle, futures: Rc<Futures>) -> Result<Rc<Self>, HandleError> {
        let (timer, waiting) = (RefCell::default(), RefCell::default());
        let drains = Rc::new(Self { handle, futures, timer, waiting });
        let this = Rc::downgrade(&drains);
        let timer = Timer::new(handle, move || {
            if let Some(drains) = this.upgrade() {
                let waiting = drains.waiting.take();
                waiting.into_iter().for_each(|drain| drains.send(drain));
            }
        })?;
        drains.timer.replace(Some(timer));
        Ok(drains)
    }

    pub(super) fn ask(self: &Rc<Self>, targets: String, reason: String) {
        self.send(Drain { targets, reason, is_said: false });
    }

    fn send(self: &Rc<Self>, drain: Drain) {
        let payload = json!({ "targets": drain.targets, "reason": drain.reason, "mode": "update" });
        let this = Rc::downgrade(self);
        self.futures.rpc(DRAIN, Some(0), &payload.to_string(), move |result| {
            if let (Err(error), Some(drains)) = (result, this.upgrade()) {
                drains.handle_error(drain, &error);
            }
        });
    }

    fn handle_error(&self, mut drain: Drain, error: &RpcError) {
        if !NOT_ANSWERED.contains(&error.errnum) {
            return self.handle.log(libc::LOG_ERR, &format!("{}: {error}", drain.text()));
        }
        if !drain.is_said {
            let text = format!("{}: not answered, trying again: {error}", drain.text());
            self.handle.log(libc::LOG_WARNING, &text);
        }
        drain.is_said = true;
        self.waiting.borrow_mut().push(drain);
        if let Some(timer) = &*self.timer.borrow() {
            timer.set(Some(AGAIN_PAUSE));
        }
    }

    /// The module is being unloaded.
    pub(super) fn give_up(&self) {
        for drain in self.waiting.take() {
            let text = format!("{}: not answered before this module was unloaded", drain.text());
            self.handle.log(libc::LOG_ERR, &text);
        }
    }
}

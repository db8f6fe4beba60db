//! Looks whether the KVS has changed since the last checkpoint.
//!
//! `kvs.wait-version` would tell of it unasked. But the KVS keeps a request that waits when its
//! sender is gone, and logs an error for it when it is unloaded (flux-core `modules/kvs/kvs.c`,
//! `ctx->requests`), so each clean stop would log one. The events of commits
//! (`kvs.namespace-primary-setroot`) are one message for each commit. A look is one request and its
//! answer, which rank 0's broker gives from memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde_json::json;

use super::checkpoint::RootVersion;
use super::{Futures, Handle, HandleError, Timer};

/// Pause after a checkpoint, and between two looks, in seconds.
const LOOK_PAUSE: f64 = 4.0;

/// Looks until there is a change, and then no more.
pub(super) struct Unsaved {
    futures: Rc<Futures>,
    timer: RefCell<Option<Timer>>,
    changed: Box<dyn Fn()>,
    /// The version that the last checkpoint saved; none while there is nothing to look for.
    saved: Cell<Option<u64>>,
}

impl Unsaved {
    /// `changed` is called when the primary namespace may be another than what was saved.
    ///
    /// # Errors
    /// If libflux has no memory.
    pub(super) fn new(
        handle: Handle,
        futures: Rc<Futures>,
        changed: impl Fn() + 'static,
    ) -> Result<Rc<Self>, HandleError> {
        let (timer, saved) = (RefCell::default(), Cell::default());
        let unsaved = Rc::new(Self { futures, timer, changed: Box::new(changed), saved });
        let this = Rc::downgrade(&unsaved);
        let timer = Timer::new(handle, move || {
            if let Some(unsaved) = this.upgrade() {
                unsaved.look();
            }
        })?;
        unsaved.timer.replace(Some(timer));
        Ok(unsaved)
    }

    /// A checkpoint has saved this version.
    pub(super) fn look_after(&self, saved: u64) {
        self.saved.set(Some(saved));
        self.set_timer();
    }

    /// A checkpoint begins, which saves what has changed until now.
    pub(super) fn stop(&self) {
        self.saved.set(None);
    }

    fn look(self: &Rc<Self>) {
        let Some(saved) = self.saved.get() else { return };
        let this = Rc::downgrade(self);
        let payload = json!({ "namespace": "primary" }).to_string();
        self.futures.rpc("kvs.getroot", None, &payload, move |result| {
            let Some(unsaved) = this.upgrade() else { return };
            if unsaved.saved.get() != Some(saved) {
                return;
            }
            let version = result.ok().and_then(|answer| serde_json::from_str(&answer).ok());
            match version {
                Some(RootVersion { rootseq }) if rootseq == saved => unsaved.set_timer(),
                // Nor is it known that nothing has changed when the KVS does not say. If it is at
                // fault, the log says so of the checkpoint.
                _ => {
                    unsaved.stop();
                    (unsaved.changed)();
                }
            }
        });
    }

    fn set_timer(&self) {
        if let Some(timer) = &*self.timer.borrow() {
            timer.set(Some(LOOK_PAUSE));
        }
    }
}

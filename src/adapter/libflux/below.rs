//! Has a broker that shuts down notice that a broker below it is gone.
//!
//! A broker that leaves RUN waits until those below it have left, and only on rank 0 does
//! `broker.shutdown-timeout` end that (flux-core `broker/state_machine.c`, `action_shutdown()`). It
//! notices that one of them was killed when it cannot send it a message (flux-core
//! `modules/overlay/overlay.c`, `overlay_sendmsg_child()`). In RUN there are always messages: rank
//! 0's heartbeat. A broker whose parent has died gets none to pass on. It would wait for ever, and
//! refuse the broker that is started in the place of the one that was killed. So this sends those
//! below it something (`rfc/0008-recovery.md`, [below-noticed]).

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use serde_json::Value;

use super::{BrokerState, Futures, Handle, HandleError, RpcError, Timer, follow_broker};

/// Tells who is below the broker (flux-core `modules/overlay/overlay.c`).
const HEALTH: &str = "overlay.health";
/// Any request would do: no answer is wanted.
const PING: &str = "broker.ping";

/// Pause between two messages to each broker below, in seconds.
const PING_PAUSE: f64 = 1.0;

/// Waits until the broker leaves RUN, and then looks after those below it.
pub struct BelowWatch {
    handle: Handle,
    rank: u32,
    futures: Weak<Futures>,
    timer: RefCell<Option<Timer>>,
}

impl BelowWatch {
    /// Begins to follow the states of this rank's broker.
    ///
    /// # Errors
    /// When libflux has no memory.
    pub fn start(
        handle: Handle,
        rank: u32,
        futures: &Rc<Futures>,
    ) -> Result<Rc<Self>, HandleError> {
        let watch = Rc::new(Self {
            handle,
            rank,
            futures: Rc::downgrade(futures),
            timer: RefCell::default(),
        });
        let this = Rc::downgrade(&watch);
        let timer = Timer::new(handle, move || {
            if let Some(watch) = this.upgrade() {
                watch.ping_all();
            }
        })?;
        watch.timer.replace(Some(timer));
        let this = Rc::downgrade(&watch);
        follow_broker(rank, futures, move |told| match (this.upgrade(), told) {
            (None, _) | (_, Ok(BrokerState::Running)) => (),
            (Some(watch), Ok(BrokerState::Leaving | BrokerState::Finalize)) => watch.ping_all(),
            (Some(watch), Err(why)) => warn(watch.handle, &why),
        });
        Ok(watch)
    }

    fn ping_all(&self) {
        let Some(futures) = self.futures.upgrade() else { return };
        let (handle, sender) = (self.handle, Weak::clone(&self.futures));
        futures.rpc(HEALTH, Some(self.rank), "{}", move |result| match result {
            Ok(answer) => {
                let Some(futures) = sender.upgrade() else { return };
                for rank in read_online(&answer) {
                    futures.notify(PING, Some(rank), "{}");
                }
            }
            // The overlay is unloaded already, and has nobody below it.
            Err(RpcError { errnum: libc::ENOSYS, .. }) => (),
            Err(error) => warn(handle, &format!("{HEALTH}: {error}")),
        });
        if let Some(timer) = &*self.timer.borrow() {
            timer.set(Some(PING_PAUSE));
        }
    }
}

fn warn(handle: Handle, why: &str) {
    let text = "brokers below that are killed while this one shuts down go unnoticed";
    handle.log(libc::LOG_WARNING, &format!("{text}: {why}"));
}

/// The brokers directly below that are not known to be gone.
fn read_online(answer: &str) -> Vec<u32> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let children = answer["children"].as_array().into_iter().flatten();
    let online = children.filter(|child| {
        let status = child["status"].as_str();
        status.is_some_and(|status| status != "lost" && status != "offline")
    });
    online.filter_map(|child| child["rank"].as_u64()?.try_into().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_gets_no_message() {
        let answer = r#"{"rank":1,"status":"partial","duration":1.5,"children":[
            {"rank":3,"status":"full","duration":1.5},
            {"rank":4,"status":"lost","duration":0.1,"error":"lost connection"},
            {"rank":5,"status":"offline","duration":0.1},
            {"rank":6,"status":"degraded","duration":1.0}]}"#;
        assert_eq!(read_online(answer), [3, 6]);
        assert!(read_online("").is_empty() && read_online("{}").is_empty());
    }
}

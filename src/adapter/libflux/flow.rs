//! Flows: async functions on the module's own thread, which the reactor's callbacks drive.
//!
//! A flow waits for promises. A callback of the reactor keeps a promise, and the flow goes on inside
//! that callback. Nothing here blocks, and no thread is waited for.
//!
//! No crate's executor is used, because a flow has to begin inside [`Flows::spawn`], even when another
//! flow calls that: then its first request leaves before whatever the caller sends next. `LocalPool` of
//! futures-executor and async-executor begin it later, and `LocalPool` panics when it is run inside
//! itself.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Body = Pin<Box<dyn Future<Output = ()>>>;

/// The flows that have not ended.
#[derive(Default)]
pub(super) struct Flows {
    /// By number, without those that are being polled.
    waiting: RefCell<BTreeMap<u64, (Body, Waker)>>,
    last: Cell<u64>,
    woken: Arc<Mutex<VecDeque<u64>>>,
    /// Borrowed by the call that polls what was woken. Calls inside it leave that to it.
    running: RefCell<()>,
}

impl Flows {
    /// Begins a flow, now.
    pub(super) fn spawn(&self, body: impl Future<Output = ()> + 'static) {
        let number = self.last.get() + 1;
        self.last.set(number);
        let waker = Waker::from(Arc::new(Bell { number, woken: Arc::clone(&self.woken) }));
        self.waiting.borrow_mut().insert(number, (Box::pin(body), waker));
        self.run(Some(number));
    }

    /// A function that keeps a promise, and the promise. A flow that awaits a promise whose function was
    /// dropped never goes on; `close` drops it.
    pub(super) fn promise<T: 'static>(self: &Rc<Self>) -> (impl FnOnce(T) + 'static, Promise<T>) {
        let promise = Promise(Rc::default());
        let (flows, slot) = (Rc::clone(self), Rc::clone(&promise.0));
        let keep = move |value| {
            if let Slot::Awaited(waker) = slot.replace(Slot::Kept(value)) {
                waker.wake();
            }
            flows.run(None);
        };
        (keep, promise)
    }

    /// Drops all flows. Who waits for a promise may hold these, so they would not go by themselves.
    pub(super) fn close(&self) {
        drop(self.waiting.take());
    }

    fn run(&self, first: Option<u64>) {
        let outermost = self.running.try_borrow_mut();
        if let Some(number) = first {
            self.poll(number);
        }
        if outermost.is_ok() {
            while let Some(number) = self.next_woken() {
                self.poll(number);
            }
        }
    }

    fn next_woken(&self) -> Option<u64> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn poll(&self, number: u64) {
        let flow = self.waiting.borrow_mut().remove(&number);
        let Some((mut body, waker)) = flow else { return };
        if body.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.waiting.borrow_mut().insert(number, (body, waker));
        }
    }
}

/// Wakes a flow. It is `Send`, because wakers are.
struct Bell {
    number: u64,
    woken: Arc<Mutex<VecDeque<u64>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.number);
    }
}

/// A value that comes later. The request that it answers has been sent already: several promises can be
/// awaited one after another while all their requests are under way.
pub(super) struct Promise<T>(Rc<RefCell<Slot<T>>>);

#[derive(Default)]
enum Slot<T> {
    #[default]
    Open,
    Awaited(Waker),
    Kept(T),
}

impl<T> Future for Promise<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.0.replace(Slot::Awaited(context.waker().clone())) {
            Slot::Kept(value) => Poll::Ready(value),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows, and what they have said.
    #[derive(Default)]
    struct World {
        flows: Rc<Flows>,
        said: RefCell<Vec<String>>,
    }

    impl World {
        fn say(&self, word: &str) {
            self.said.borrow_mut().push(word.to_string());
        }

        fn said(&self) -> String {
            self.said.take().join(" ")
        }
    }

    #[test]
    fn a_flow_begins_at_once_and_goes_on_where_a_promise_is_kept() {
        let world = Rc::new(World::default());
        let (keep_first, first) = world.flows.promise();
        let (keep_second, second) = world.flows.promise();
        let flow = Rc::clone(&world);
        world.flows.spawn(async move {
            flow.say("begun");
            flow.say(first.await);
            flow.say(second.await);
        });
        assert_eq!(world.said(), "begun");
        // It was kept before anybody waits for it.
        keep_second("second");
        assert_eq!(world.said(), "");
        keep_first("first");
        assert_eq!(world.said(), "first second");
        assert!(world.flows.waiting.borrow().is_empty());
    }

    #[test]
    fn a_flow_begins_another_before_it_goes_on_itself() {
        let world = Rc::new(World::default());
        let (keep, kept) = world.flows.promise();
        let flow = Rc::clone(&world);
        world.flows.spawn(async move {
            let other = Rc::clone(&flow);
            flow.flows.spawn(async move {
                other.say("inner");
                kept.await;
                other.say("kept");
            });
            flow.say("outer");
        });
        assert_eq!(world.said(), "inner outer");
        keep(());
        assert_eq!(world.said(), "kept");
    }

    #[test]
    fn a_flow_that_is_woken_while_it_is_polled_is_polled_again() {
        let world = Rc::new(World::default());
        let (keep, mut kept) = world.flows.promise();
        let (mut keep, flow) = (Some(keep), Rc::clone(&world));
        world.flows.spawn(async move {
            std::future::poll_fn(|context| {
                let polled = Pin::new(&mut kept).poll(context);
                if let Some(keep) = keep.take() {
                    keep(());
                }
                polled
            })
            .await;
            flow.say("kept");
        });
        assert_eq!(world.said(), "kept");
    }

    #[test]
    fn flows_go_with_all_that_they_hold_and_nothing_calls_back_into_them() {
        let world = Rc::new(World::default());
        let (keep, kept) = world.flows.promise();
        let flow = Rc::clone(&world);
        world.flows.spawn(async move {
            kept.await;
            flow.say("kept");
        });
        assert_eq!(Rc::strong_count(&world), 2);
        world.flows.close();
        assert_eq!(Rc::strong_count(&world), 1);
        keep(());
        assert_eq!(world.said(), "");
    }

    #[test]
    fn a_promise_that_nobody_keeps_ends_nothing() {
        let world = Rc::new(World::default());
        let (keep, kept) = world.flows.promise::<()>();
        let flow = Rc::clone(&world);
        world.flows.spawn(async move {
            kept.await;
            flow.say("kept");
        });
        drop(keep);
        let flow = Rc::clone(&world);
        world.flows.spawn(async move { flow.say("next") });
        assert_eq!(world.said(), "next");
        world.flows.close();
        assert_eq!(Rc::strong_count(&world), 1);
    }
}

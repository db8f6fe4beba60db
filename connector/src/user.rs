//! Who uses a connection, for those who would close it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

/// Who uses a connection.
#[derive(Default)]
pub(crate) struct User {
    /// The thread that has used it last. Another one may be using it at this moment.
    thread: AtomicUsize,
    /// An operation is under way.
    is_busy: AtomicBool,
}

impl User {
    /// Has an operation done on this thread. A signal can interrupt it, and its handler can call
    /// `exit()`.
    pub(crate) fn operate<T>(&self, operation: impl FnOnce() -> T) -> T {
        self.thread.store(this_thread(), Ordering::Relaxed);
        self.is_busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let result = operation();
        compiler_fence(Ordering::SeqCst);
        self.is_busy.store(false, Ordering::Relaxed);
        result
    }

    /// Whether it was this thread that has used it last, and is in no operation.
    pub(crate) fn is_done_here(&self) -> bool {
        let is_here = self.thread.load(Ordering::Relaxed) == this_thread();
        is_here && !self.is_busy.load(Ordering::Relaxed)
    }
}

/// What tells this thread from all others that live.
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

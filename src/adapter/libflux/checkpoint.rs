//! The group checkpoint (flux-core `libkvs/kvs_commit.h`, `FLUX_KVS_SYNC`).
//!
//! A checkpoint of the KVS does not include guest namespaces. So one commit to the primary
//! namespace writes a reference to the root of each guest namespace whose leader has asked for it,
//! next to the job's `guest`, and requests the checkpoint.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;

use super::error::RpcError;
use super::kvs::Kvs;
use super::text::cstring;
use crate::machine::Fault;
use crate::proto::JobId;

/// The key of the reference, in the job's directory of the primary namespace.
pub(super) const CHECKPOINT_KEY: &str = "guest-checkpoint";

type Done = Box<dyn FnOnce(Result<(), Fault>)>;

/// A checkpoint whose roots are being looked up.
struct Gathering {
    kvs: Kvs,
    left: Cell<usize>,
    roots: RefCell<Vec<(JobId, String)>>,
    done: RefCell<Option<Done>>,
}

impl Kvs {
    /// Makes a checkpoint of the KVS that includes the guest namespaces of `jobs`. Without a
    /// backing store there are no checkpoints, and the KVS cannot be rolled back to one, so that is
    /// not an error.
    pub(super) fn checkpoint(
        &self,
        jobs: &[JobId],
        done: impl FnOnce(Result<(), Fault>) + 'static,
    ) {
        let gathering = Rc::new(Gathering {
            kvs: self.clone(),
            left: Cell::new(jobs.len()),
            roots: RefCell::default(),
            done: RefCell::new(Some(Box::new(done))),
        });
        if jobs.is_empty() {
            return gathering.commit();
        }
        for id in jobs {
            let (id, gathering) = (*id, Rc::clone(&gathering));
            self.lookup(Some(&id.namespace()), ".", true, move |result| {
                // If it was grafted in the meantime, it is in the primary namespace.
                if let Ok(root) = result {
                    gathering.roots.borrow_mut().push((id, root));
                }
                gathering.left.set(gathering.left.get() - 1);
                if gathering.left.get() == 0 {
                    gathering.commit();
                }
            });
        }
    }
}

impl Gathering {
    fn commit(&self) {
        let flags = flux_sys::kvs_commit_flags_FLUX_KVS_SYNC as c_int;
        let roots = self.roots.take();
        let future = self.kvs.commit(None, flags, |txn| {
            for (id, root) in &roots {
                let (key, root) = (cstring(&id.kvs_key(CHECKPOINT_KEY)), cstring(root));
                // SAFETY: the transaction is valid, the strings live through the call.
                let put = unsafe {
                    flux_sys::flux_kvs_txn_put_treeobj(txn, 0, key.as_ptr(), root.as_ptr())
                };
                if put < 0 {
                    return put;
                }
            }
            0
        });
        let (done, kvs) = (self.done.take(), self.kvs.clone());
        self.kvs.futures().then_once(future, move |result, _| {
            if let Some(done) = done {
                done(kvs.checkpointed(result));
            }
        });
    }
}

impl Kvs {
    fn checkpointed(&self, result: Result<String, RpcError>) -> Result<(), Fault> {
        match result {
            Err(error) if error.errnum == libc::ENOSYS => {
                self.warn_once(
                    "the KVS has no backing store: when rank 0's broker is killed, all jobs are \
                     lost",
                );
                Ok(())
            }
            result => result.map(|_| ()).map_err(Fault::from),
        }
    }
}

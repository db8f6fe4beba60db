//! The group checkpoint (flux-core `libkvs/kvs_commit.h`, `FLUX_KVS_SYNC`).
//!
//! A checkpoint of the KVS does not include guest namespaces. So one commit to the primary
//! namespace writes a reference to the root of each guest namespace whose leader has asked for it,
//! next to the job's `guest`, and requests the checkpoint.
//!
//! A root is looked up before the commit. If its job's data is moved in between, the commit writes a
//! reference that nobody removes any more. So the checkpoint after the job's end does.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;

use flux_sys::libflux;
use serde::Deserialize;

use super::error::RpcError;
use super::guest_namespace::{CHECKPOINT_KEY, Root};
use super::kvs::Kvs;
use super::text::cstring;
use crate::machine::Fault;
use crate::proto::JobId;

/// The answer to a commit, and to `kvs.getroot`: how many roots the namespace has had.
#[derive(Deserialize)]
pub(super) struct Version {
    pub(super) rootseq: u64,
}

type Done = Box<dyn FnOnce(Result<Option<u64>, Fault>)>;

/// A checkpoint whose roots are being looked up.
struct Gathering {
    kvs: Kvs,
    left: Cell<usize>,
    roots: RefCell<Vec<(JobId, String)>>,
    /// Jobs whose data is where it belongs.
    moved: RefCell<Vec<JobId>>,
    begun: Box<dyn Fn()>,
    done: RefCell<Option<Done>>,
}

impl Kvs {
    /// Makes a checkpoint of the KVS that includes the guest namespaces of `jobs`, and no reference
    /// to one of `ended` whose data was moved. If it was not, that may be all there is. Without a
    /// backing store there are no checkpoints, and the KVS cannot be rolled back to one, so that is
    /// not an error. `begun`: its commit was sent. `done` gets the version of the primary namespace that
    /// was saved.
    pub(super) fn checkpoint(
        &self,
        jobs: &[JobId],
        ended: &[JobId],
        begun: impl Fn() + 'static,
        done: impl FnOnce(Result<Option<u64>, Fault>) + 'static,
    ) {
        let gathering = Rc::new(Gathering {
            kvs: self.clone(),
            left: Cell::new(jobs.len() + ended.len()),
            roots: RefCell::default(),
            moved: RefCell::default(),
            begun: Box::new(begun),
            done: RefCell::new(Some(Box::new(done))),
        });
        if jobs.is_empty() && ended.is_empty() {
            return gathering.commit();
        }
        for id in jobs {
            let (id, gathering) = (*id, Rc::clone(&gathering));
            self.lookup_then(Some(&id.namespace()), ".", true, move |result| {
                // If it was grafted in the meantime, it is in the primary namespace.
                if let Ok(root) = result {
                    gathering.roots.borrow_mut().push((id, root));
                }
                gathering.take_one();
            });
        }
        for id in ended {
            let (id, gathering) = (*id, Rc::clone(&gathering));
            self.lookup_then(None, &id.kvs_key("guest"), true, move |result| {
                if result.is_ok_and(|treeobj| Root::of(treeobj).is_ok()) {
                    gathering.moved.borrow_mut().push(id);
                }
                gathering.take_one();
            });
        }
    }
}

impl Gathering {
    fn take_one(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.commit();
        }
    }

    fn commit(&self) {
        let flags = flux_sys::kvs_commit_flags_FLUX_KVS_SYNC as c_int;
        let (roots, moved) = (self.roots.take(), self.moved.take());
        let future = self.kvs.commit(None, flags, |txn| {
            for (id, root) in &roots {
                let (key, root) = (cstring(&id.kvs_key(CHECKPOINT_KEY)), cstring(root));
                // SAFETY: the transaction is valid, the strings live through the call.
                let put = unsafe {
                    libflux().flux_kvs_txn_put_treeobj(txn, 0, key.as_ptr(), root.as_ptr())
                };
                if put < 0 {
                    return put;
                }
            }
            moved.iter().fold(0, |rc, id| {
                let key = cstring(&id.kvs_key(CHECKPOINT_KEY));
                // SAFETY: as above.
                rc.min(unsafe { libflux().flux_kvs_txn_unlink(txn, 0, key.as_ptr()) })
            })
        });
        (self.begun)();
        let (done, kvs) = (self.done.take(), self.kvs.clone());
        self.kvs.futures().then_once(future, move |result, _| {
            let Some(done) = done else { return };
            match kvs.checkpointed(result) {
                Ok(Some(saved)) => {
                    let unsynced = kvs.unsynced_warning();
                    kvs.sync(move |synced| {
                        done(synced.map(|is_synced| {
                            if !is_synced {
                                unsynced();
                            }
                            Some(saved)
                        }));
                    });
                }
                other => done(other),
            }
        });
    }
}

impl Kvs {
    /// Says once that nobody has the checkpoint on the disk.
    fn unsynced_warning(&self) -> impl FnOnce() + 'static {
        let warn = self.warning();
        let lasts = self.lasts();
        move || {
            if lasts {
                warn(
                    "the KVS is not kept by content-sqlite with a write-ahead log: a power cut of \
                     this node can forget jobs",
                );
            }
        }
    }

    fn checkpointed(&self, result: Result<String, RpcError>) -> Result<Option<u64>, Fault> {
        match result {
            Err(error) if error.errnum == libc::ENOSYS => {
                self.warn_once(
                    "the KVS has no backing store: when rank 0's broker is killed, all jobs are \
                     lost",
                );
                Ok(None)
            }
            result => {
                let text = result.map_err(Fault::from)?;
                let version = serde_json::from_str(&text);
                let Version { rootseq } = version.map_err(|error| {
                    Fault::new(libc::EPROTO, format!("answer to a commit: {error}"))
                })?;
                Ok(Some(rootseq))
            }
        }
    }
}

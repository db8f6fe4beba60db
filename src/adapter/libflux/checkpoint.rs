//! The group checkpoint (flux-core `libkvs/kvs_commit.h`, `FLUX_KVS_SYNC`).
//!
//! A checkpoint of the KVS does not include guest namespaces. So one commit to the primary
//! namespace writes a reference to the root of each guest namespace whose leader has asked for it,
//! next to the job's `guest`, and requests the checkpoint.
//!
//! A root is looked up before the commit. If its job's data is moved in between, the commit writes a
//! reference that nobody removes any more. So the checkpoint after the job's end does.

use std::ffi::c_int;

use flux_sys::libflux;
use serde::Deserialize;

use super::error::RpcError;
use super::future::Answered;
use super::guest_namespace::{CHECKPOINT_KEY, Root};
use super::kvs::Kvs;
use super::text::cstring;
use crate::machine::Fault;
use crate::proto::JobId;

/// The answer to a commit, and to `kvs.getroot`: how many roots the namespace has had.
#[derive(Deserialize)]
pub(super) struct RootVersion {
    pub(super) rootseq: u64,
}

/// A guest namespace's root. None: it was grafted in the meantime, so the primary namespace has it. After
/// any other error a checkpoint would lack what leaders take for kept.
fn unless_grafted(root: Result<String, RpcError>) -> Result<Option<String>, Fault> {
    match root {
        Ok(root) => Ok(Some(root)),
        Err(error) if error.errnum == libc::ENOTSUP => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Kvs {
    /// Makes a checkpoint of the KVS that includes the guest namespaces of `jobs`, and no reference
    /// to one of `ended` whose data was moved. If it was not, that may be all there is. Without a
    /// backing store there are no checkpoints, and the KVS cannot be rolled back to one, so that is
    /// not an error. `begun`: its commit was sent. Returns the version of the primary namespace that
    /// was saved.
    pub(super) async fn checkpoint(
        &self,
        jobs: &[JobId],
        ended: &[JobId],
        begun: impl FnOnce(),
    ) -> Result<Option<u64>, Fault> {
        let root = |id: &JobId| (*id, self.lookup(Some(&id.namespace()), ".", true));
        let guest = |id: &JobId| (*id, self.lookup(None, &id.kvs_key("guest"), true));
        let root_lookups: Vec<_> = jobs.iter().map(root).collect();
        let guest_lookups: Vec<_> = ended.iter().map(guest).collect();
        let (mut roots, mut moved) = (Vec::new(), Vec::new());
        for (id, root) in root_lookups {
            roots.extend(unless_grafted(root.await)?.map(|root| (id, root)));
        }
        for (id, guest) in guest_lookups {
            let is_there = guest.await.is_ok_and(|treeobj| Root::of(treeobj).is_ok());
            moved.extend(is_there.then_some(id));
        }
        let commit = self.commit_checkpoint(&roots, &moved);
        begun();
        let Some(saved) = self.checkpointed(commit.await)? else { return Ok(None) };
        let is_synced = self.sync().await?;
        if !is_synced && self.lasts() {
            self.warn_once(
                "the KVS is not kept by content-sqlite with a write-ahead log: a power cut of this \
                 node can forget jobs",
            );
        }
        Ok(Some(saved))
    }

    /// Commits these roots, and that jobs whose data is where it belongs need none.
    fn commit_checkpoint(&self, roots: &[(JobId, String)], moved: &[JobId]) -> Answered {
        let flags = flux_sys::kvs_commit_flags_FLUX_KVS_SYNC as c_int;
        self.commit(None, flags, |txn| {
            for (id, root) in roots {
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
        })
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
                let RootVersion { rootseq } = version.map_err(|error| {
                    Fault::new(libc::EPROTO, format!("answer to a commit: {error}"))
                })?;
                Ok(Some(rootseq))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_namespace_that_is_gone_may_be_missing_in_a_checkpoint() {
        let error = |errnum| Err(RpcError { errnum, message: String::new() });
        assert_eq!(unless_grafted(Ok("root".to_string())), Ok(Some("root".to_string())));
        assert_eq!(unless_grafted(error(libc::ENOTSUP)), Ok(None));
        for errnum in [libc::EIO, libc::ENOSYS, libc::EHOSTUNREACH, libc::ENOMEM] {
            let failed = unless_grafted(error(errnum)).map_err(|fault| fault.errnum);
            assert_eq!(failed, Err(errnum));
        }
    }
}

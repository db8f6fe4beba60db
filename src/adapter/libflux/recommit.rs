//! Does commits to a guest namespace again that a client has left.

use resume_machine::own_key;
use serde_json::json;

use super::error::RpcError;
use super::future::Answered;
use super::kvs::Kvs;
use crate::proto::{Bequest, Commit, JobId};

impl Kvs {
    /// Commits what the namespace lacks, in order. As the connector does it, an empty commit comes
    /// first: when it is answered, this rank knows the namespace, and has seen all that was
    /// committed before.
    pub(super) async fn recommit(&self, id: JobId, bequest: &Bequest) -> Result<(), RpcError> {
        self.commit_again(id, &Commit { flags: 0, ops: json!([]).into() }).await?;
        let own = self.lookup(Some(&id.namespace()), &own_key(&bequest.client), false).await;
        let held = match own {
            Ok(text) => text.parse().ok(),
            Err(error) if error.errnum == libc::ENOENT => None,
            Err(error) => return Err(error),
        };
        for commit in bequest.lacking(held) {
            self.commit_again(id, commit).await?;
        }
        Ok(())
    }

    fn commit_again(&self, id: JobId, commit: &Commit) -> Answered {
        self.futures().ask("kvs.commit", &commit.payload(&id.namespace()))
    }
}

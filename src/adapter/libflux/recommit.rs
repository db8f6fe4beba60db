//! Does commits to a guest namespace again that a client has left.

use std::collections::VecDeque;
use std::sync::Arc;

use resume_machine::own_key;
use serde_json::json;

use super::error::RpcError;
use super::kvs::Kvs;
use crate::machine::{Fault, KvsResult};
use crate::proto::{Bequest, Commit, JobId};

type Done = Box<dyn FnOnce(Result<(), RpcError>)>;

impl Kvs {
    /// Commits what the namespace lacks, in order. As the connector does it, an empty commit comes
    /// first: when it is answered, this rank knows the namespace, and has seen all that was
    /// committed before.
    pub(super) fn recommit(
        &self,
        id: JobId,
        bequest: Arc<Bequest>,
        done: Box<dyn FnOnce(KvsResult)>,
    ) {
        let client = bequest.client.clone();
        let done: Done = Box::new(move |result: Result<(), RpcError>| {
            done(KvsResult::Recommitted { client, result: result.map_err(Fault::from) });
        });
        let this = self.clone();
        let fence = Commit { flags: 0, ops: json!([]).into() };
        self.commit_again(id, &fence, move |result| match result {
            Ok(_) => this.recommit_lacking(id, bequest, done),
            Err(error) => done(Err(error)),
        });
    }

    fn recommit_lacking(&self, id: JobId, bequest: Arc<Bequest>, done: Done) {
        let this = self.clone();
        self.lookup(Some(&id.namespace()), &own_key(&bequest.client), false, move |found| {
            let held = match found {
                Ok(text) => text.parse().ok(),
                Err(error) if error.errnum == libc::ENOENT => None,
                Err(error) => return done(Err(error)),
            };
            let lacking = bequest.lacking(held).cloned().collect();
            this.recommit_each(id, lacking, done);
        });
    }

    fn recommit_each(&self, id: JobId, mut lacking: VecDeque<Commit>, done: Done) {
        let Some(commit) = lacking.pop_front() else { return done(Ok(())) };
        let this = self.clone();
        self.commit_again(id, &commit, move |result| match result {
            Ok(_) => this.recommit_each(id, lacking, done),
            Err(error) => done(Err(error)),
        });
    }

    fn commit_again(
        &self,
        id: JobId,
        commit: &Commit,
        done: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        self.futures().rpc("kvs.commit", None, &commit.payload(&id.namespace()), done);
    }
}

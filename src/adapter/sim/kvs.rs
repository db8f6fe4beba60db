//! What matters of the KVS: guest namespaces, and the primary one they are moved to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::machine::{Fault, KvsOp, KvsResult, Opened};
use crate::proto::{ExecEvent, JobId};

/// The KVS of an instance. Commits are applied in the order in which they arrive.
#[derive(Default)]
pub(super) struct Kvs {
    /// Live guest namespaces: they die with rank 0.
    guests: BTreeMap<JobId, Vec<ExecEvent>>,
    /// What was grafted.
    moved: BTreeMap<JobId, Vec<ExecEvent>>,
}

impl Kvs {
    pub(super) fn apply(&mut self, id: JobId, op: KvsOp) -> KvsResult {
        let missing = || Fault::new(libc::ENOTSUP, "no such namespace");
        match op {
            KvsOp::Append(events) => KvsResult::Appended(match self.guests.get_mut(&id) {
                Some(log) => {
                    log.extend(events);
                    Ok(())
                }
                None => Err(missing()),
            }),
            KvsOp::Create { .. } => KvsResult::Created(match self.guests.entry(id) {
                Entry::Occupied(_) => Err(Fault::new(libc::EEXIST, "exists")),
                Entry::Vacant(entry) => {
                    entry.insert(Vec::new());
                    Ok(())
                }
            }),
            KvsOp::Finish(events) => KvsResult::Finished(match self.guests.remove(&id) {
                Some(mut log) => {
                    log.extend(events);
                    self.moved.insert(id, log);
                    Ok(())
                }
                None => Err(missing()),
            }),
            KvsOp::Link => KvsResult::Linked(Ok(())),
            KvsOp::Open { .. } => KvsResult::Opened(match self.moved.get(&id) {
                Some(log) => Ok(Opened { events: log.clone(), moved: true }),
                None => match self.guests.get(&id) {
                    Some(log) => Ok(Opened { events: log.clone(), moved: false }),
                    None => Err(missing()),
                },
            }),
        }
    }

    /// Rank 0 has died.
    pub(super) fn crash(&mut self) {
        self.guests.clear();
    }

    pub(super) fn log(&self, id: JobId) -> Option<&[ExecEvent]> {
        self.moved.get(&id).map(Vec::as_slice)
    }
}

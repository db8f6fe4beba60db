//! A model of the KVS: guest namespaces, which are lost with rank 0's broker, and a primary
//! namespace, which then goes back to its last checkpoint.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use job_exec_rs::machine::{Creation, Fault, KvsOp, KvsResult, Opened};
use job_exec_rs::proto::{Bequest, ExecEvent, JobId};
use resume_machine::{RUN_KEY, own_key};
use serde_json::{Value, json};

use super::manager::Manager;

/// A guest namespace.
#[derive(Clone, Default)]
struct Guest {
    log: Vec<ExecEvent>,
    /// Lines that shells have committed.
    lines: Vec<String>,
    /// Other keys.
    keys: BTreeMap<String, Value>,
    sequence: u64,
}

/// Guest namespaces. A copy of one shares what is written to neither of them.
type Guests = BTreeMap<JobId, Rc<Guest>>;

/// Copies of guest namespaces on their way into a checkpoint.
#[derive(Clone, Default)]
pub(super) struct Roots(Guests);

/// The primary namespace.
#[derive(Clone, Default)]
struct Primary {
    /// Guest namespaces that were moved here when their jobs ended.
    moved: Guests,
    /// Copies of guest namespaces that were put here for a checkpoint.
    roots: Guests,
    /// The job manager's state, as of its last commit.
    manager: Manager,
    /// How many commits have changed it.
    version: u64,
}

/// The KVS of an instance. Commits are applied in the order in which they arrive.
#[derive(Default)]
pub(super) struct Kvs {
    guests: Guests,
    primary: Primary,
    checkpoint: Primary,
    /// What a power cut leaves: the last checkpoint that was synced.
    synced: Primary,
    /// Checkpoints that are being written. Each outlives the broker when that has ended.
    writing: BTreeMap<u64, Primary>,
    /// Checkpoints that are being synced. Each outlives a power cut when that has ended.
    syncing: BTreeMap<u64, Primary>,
    last: u64,
    rollbacks: u32,
}

impl Kvs {
    pub(super) fn apply(&mut self, id: JobId, op: KvsOp) -> KvsResult {
        let missing = || Fault::new(libc::ENOTSUP, "no such namespace");
        match op {
            KvsOp::Append { events, run } => KvsResult::Appended(match self.guests.get_mut(&id) {
                Some(guest) => {
                    let guest = Rc::make_mut(guest);
                    guest.log.extend(events);
                    if let Some(run) = run {
                        let data = BASE64_STANDARD.encode(run.as_str());
                        let val = json!({ "data": data, "type": "val", "ver": 1 });
                        guest.keys.insert(RUN_KEY.to_string(), val);
                    }
                    Ok(())
                }
                None => Err(missing()),
            }),
            KvsOp::Create { .. } => KvsResult::Created(match self.guests.entry(id) {
                Entry::Occupied(_) => Ok(Creation::Existed),
                Entry::Vacant(entry) => {
                    entry.insert(Rc::default());
                    Ok(Creation::Made)
                }
            }),
            KvsOp::Link => {
                self.primary.version += 1;
                self.primary.moved.remove(&id);
                KvsResult::Linked(Ok(()))
            }
            KvsOp::Move { .. } => self.graft(self.roots(&[id])),
            KvsOp::Open { .. } => KvsResult::Opened(Ok(self.open(id))),
            KvsOp::Recommit(bequest) => {
                let result = self.recommit(id, &bequest);
                KvsResult::Recommitted { client: bequest.client.clone(), result }
            }
            KvsOp::Released => {
                let job = self.primary.manager.jobs.get(&id);
                KvsResult::Released(Ok(job.map(|job| job.released.clone()).unwrap_or_default()))
            }
        }
    }

    /// Puts a copy of a guest namespace in the place of its link.
    pub(super) fn graft(&mut self, roots: Roots) -> KvsResult {
        self.primary.version += 1;
        KvsResult::Moved(match roots.0.into_iter().next() {
            Some((id, guest)) => {
                self.primary.moved.insert(id, guest);
                self.primary.roots.remove(&id);
                Ok(())
            }
            None => Err(Fault::new(libc::ENOTSUP, "no such namespace")),
        })
    }

    /// Removes the guest namespace of a job whose data was moved.
    pub(super) fn remove(&mut self, id: JobId) {
        self.guests.remove(&id);
    }

    fn open(&mut self, id: JobId) -> Opened {
        if let Some(guest) = self.primary.moved.get(&id) {
            // Who has moved it may have died before it was removed.
            self.guests.remove(&id);
            return Opened { events: guest.log.clone(), moved: true, ..Opened::default() };
        }
        if let Some(guest) = self.guests.get(&id) {
            return Opened { events: guest.log.clone(), moved: false, ..Opened::default() };
        }
        let guest = self.primary.roots.get(&id).cloned().unwrap_or_default();
        let events = guest.log.clone();
        self.guests.insert(id, guest);
        Opened { events, moved: false, ..Opened::default() }
    }

    fn recommit(&mut self, id: JobId, bequest: &Bequest) -> Result<(), Fault> {
        let missing = |errnum| Fault::new(errnum, "no such namespace");
        let look = json!({ "key": own_key(&bequest.client) });
        let found = self.handle_client_lookup(id, &look).map_err(missing)?;
        let held = found["val"]["data"].as_str().and_then(number_of);
        for commit in bequest.lacking(held) {
            // What is nested too deeply has no operations here.
            let payload = serde_json::from_str(&commit.payload("")).unwrap_or_default();
            self.handle_client_commit(id, &payload).map_err(missing)?;
        }
        Ok(())
    }

    /// The job manager commits its eventlogs.
    pub(super) fn commit(&mut self, manager: &Manager) {
        self.primary.manager = manager.clone();
        self.primary.version += 1;
    }

    /// The job manager, as of its last commit.
    pub(super) fn manager(&self) -> &Manager {
        &self.primary.manager
    }

    /// Looks up the roots of guest namespaces, for a checkpoint.
    pub(super) fn roots(&self, jobs: &[JobId]) -> Roots {
        let root = |id: &JobId| Some((*id, self.guests.get(id)?.clone()));
        Roots(jobs.iter().filter_map(root).collect())
    }

    /// Makes a `FLUX_KVS_SYNC` commit with these roots, without those of the jobs that have ended
    /// and whose data was moved. Returns the number of the checkpoint, which is durable only when
    /// [`Self::end_checkpoint`] is called with it.
    pub(super) fn begin_checkpoint(&mut self, roots: Roots, ended: &[JobId]) -> u64 {
        self.primary.roots.extend(roots.0);
        for id in ended.iter().filter(|id| self.primary.moved.contains_key(id)) {
            self.primary.roots.remove(id);
        }
        self.primary.version += 1;
        self.last += 1;
        self.writing.insert(self.last, self.primary.clone());
        self.last
    }

    /// A checkpoint was written, to the page cache. Returns false if the broker died before that.
    pub(super) fn write_checkpoint(&mut self, number: u64) -> bool {
        let Some(primary) = self.writing.remove(&number) else { return false };
        self.checkpoint = primary.clone();
        self.syncing.insert(number, primary);
        true
    }

    /// A checkpoint was synced. Returns false if the broker died before that.
    pub(super) fn end_checkpoint(&mut self, number: u64) -> bool {
        let Some(primary) = self.syncing.remove(&number) else { return false };
        self.synced = primary;
        true
    }

    /// Rank 0's node, whose broker has died, has lost its power. Returns what the next job manager
    /// reads.
    pub(super) fn lose_unsynced(&mut self) -> Manager {
        self.checkpoint = self.synced.clone();
        self.crash()
    }

    /// Whether the primary namespace has changed since the last checkpoint.
    pub(super) fn has_changed(&self) -> bool {
        self.primary.version > self.checkpoint.version
    }

    /// The job manager, as the next one would read it if rank 0's broker died now.
    pub(super) fn kept_manager(&self) -> &Manager {
        &self.checkpoint.manager
    }

    /// Rank 0's broker has died. Returns what the next job manager reads.
    pub(super) fn crash(&mut self) -> Manager {
        self.rollbacks += 1;
        self.guests.clear();
        self.writing.clear();
        self.syncing.clear();
        self.primary = self.checkpoint.clone();
        self.remove_stray_roots();
        self.primary.manager.clone()
    }

    /// As the task `mend-jobs` of `cli/rc1.py` does.
    fn remove_stray_roots(&mut self) {
        let Primary { moved, roots, .. } = &mut self.primary;
        roots.retain(|id, _| !moved.contains_key(id));
    }

    /// Jobs whose data was moved, and whose root is there still.
    pub(super) fn stray_roots(&self) -> Vec<JobId> {
        let Primary { moved, roots, .. } = &self.primary;
        roots.keys().filter(|id| moved.contains_key(id)).copied().collect()
    }

    /// Jobs whose data was moved, and whose guest namespace is there still.
    pub(super) fn stray_guests(&self) -> Vec<JobId> {
        let moved = &self.primary.moved;
        self.guests.keys().filter(|id| moved.contains_key(id)).copied().collect()
    }

    /// The eventlog of a live guest namespace.
    pub(super) fn live_log(&self, id: JobId) -> Option<&[ExecEvent]> {
        self.guests.get(&id).map(|guest| guest.log.as_slice())
    }

    pub(super) fn moved_log(&self, id: JobId) -> Option<&[ExecEvent]> {
        self.primary.moved.get(&id).map(|guest| guest.log.as_slice())
    }

    /// Lines that shells of a job that has ended have committed.
    pub(super) fn lines(&self, id: JobId) -> Option<&[String]> {
        self.primary.moved.get(&id).map(|guest| guest.lines.as_slice())
    }

    /// Lines that shells of a job that runs have committed.
    pub(super) fn live_lines(&self, id: JobId) -> &[String] {
        self.guests.get(&id).map(|guest| guest.lines.as_slice()).unwrap_or_default()
    }

    /// How often rank 0's broker has died.
    pub(super) fn rollbacks(&self) -> u32 {
        self.rollbacks
    }

    /// Handles a shell's `kvs.commit`. Returns the answer or an errno.
    pub(super) fn handle_client_commit(
        &mut self,
        id: JobId,
        payload: &Value,
    ) -> Result<Value, i32> {
        let guest = Rc::make_mut(self.guests.get_mut(&id).ok_or(libc::ENOTSUP)?);
        for op in payload["ops"].as_array().into_iter().flatten() {
            match (op["key"].as_str().unwrap_or_default(), &op["dirent"]) {
                ("notes", Value::String(note)) => guest.lines.push(note.clone()),
                (key, Value::Null) => drop(guest.keys.remove(key)),
                (key, dirent) => drop(guest.keys.insert(key.to_string(), dirent.clone())),
            }
        }
        guest.sequence += 1;
        Ok(json!({ "rootref": "root", "rootseq": guest.sequence }))
    }

    /// Handles a shell's `kvs.lookup-plus`. Returns the answer or an errno.
    pub(super) fn handle_client_lookup(&self, id: JobId, payload: &Value) -> Result<Value, i32> {
        let guest = self.guests.get(&id).ok_or(libc::ENOTSUP)?;
        let val = payload["key"].as_str().and_then(|key| guest.keys.get(key));
        Ok(match val {
            Some(val) => json!({ "val": val, "rootref": "root", "rootseq": guest.sequence }),
            None => json!({ "errno": 2, "rootref": "root", "rootseq": guest.sequence }),
        })
    }
}

/// The number in the value of a connector's key, which is base64 as all values are (RFC 11).
fn number_of(data: &str) -> Option<u64> {
    String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use job_exec_rs::proto::WallTime;

    use super::*;

    const ID: JobId = JobId(1);

    fn events(name: &str) -> Vec<ExecEvent> {
        vec![ExecEvent::bare(WallTime(1.0), name)]
    }

    fn append(name: &str) -> KvsOp {
        KvsOp::Append { events: events(name), run: None }
    }

    #[test]
    fn after_a_crash_everything_is_as_the_last_durable_checkpoint_has_it() {
        let mut kvs = Kvs::default();
        kvs.apply(ID, KvsOp::Create { userid: 1 });
        kvs.apply(ID, append("init"));
        let first = kvs.begin_checkpoint(kvs.roots(&[ID]), &[]);
        assert!(kvs.write_checkpoint(first) && kvs.end_checkpoint(first));
        kvs.apply(ID, append("starting"));
        let second = kvs.begin_checkpoint(kvs.roots(&[ID]), &[]);
        kvs.crash();
        assert!(!kvs.write_checkpoint(second), "it died before it was written");
        let opened = kvs.apply(ID, KvsOp::Open { userid: 1 });
        let expected = Opened { events: events("init"), moved: false, ..Opened::default() };
        assert_eq!(opened, KvsResult::Opened(Ok(expected)));
    }

    #[test]
    fn after_a_power_cut_everything_is_as_the_last_synced_checkpoint_has_it() {
        let mut kvs = Kvs::default();
        let (mut manager, mut numbers) = (Manager::default(), Vec::new());
        for _ in 0..2 {
            manager.submit(1, 0.0, 0.0);
            kvs.commit(&manager);
            numbers.push(kvs.begin_checkpoint(Roots::default(), &[]));
        }
        assert!(kvs.write_checkpoint(numbers[0]) && kvs.end_checkpoint(numbers[0]));
        assert!(kvs.write_checkpoint(numbers[1]));
        assert_eq!(kvs.crash().jobs.len(), 2);
        assert_eq!(kvs.lose_unsynced().jobs.len(), 1);
    }

    #[test]
    fn a_namespace_that_no_checkpoint_holds_comes_back_empty() {
        let mut kvs = Kvs::default();
        kvs.apply(ID, KvsOp::Create { userid: 1 });
        kvs.apply(ID, append("init"));
        kvs.crash();
        let opened = kvs.apply(ID, KvsOp::Open { userid: 1 });
        assert_eq!(opened, KvsResult::Opened(Ok(Opened::default())));
        assert_eq!(kvs.moved_log(ID), None);
    }
}

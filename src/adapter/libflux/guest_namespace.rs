//! A job's guest namespace in the KVS, the link to it, and its eventlog (flux-core `namespace.c`).

use std::collections::BTreeMap;
use std::ffi::c_int;

use flux_sys::libflux;
use resume_machine::{RUN_KEY, is_users};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::error::RpcError;
use super::eventlog::EVENTLOG_KEY;
use super::future::Answered;
use super::kvs::Kvs;
use super::text::cstring;
use crate::machine::{Creation, Fault, KvsOp, KvsResult, Opened};
use crate::proto::{ExecEvent, JobDigest, JobEventlog, JobId, JobUsage, decode_eventlog};

/// The key under which leaders that take over are counted, in the job's directory of the primary
/// namespace.
const LEADERS_KEY: &str = "guest-leaders";

/// The key of the reference that a checkpoint holds, in the job's directory of the primary namespace.
pub(super) const CHECKPOINT_KEY: &str = "guest-checkpoint";

/// The key of what the job has used, in the job's directory of the primary namespace.
const USAGE_KEY: &str = "usage";

/// A job's namespace that is there, or was made again.
struct LiveNamespace {
    opened: Opened,
    /// The job's directory has no link to it.
    lacks_link: bool,
}

impl Kvs {
    /// Carries out `op`.
    pub(super) async fn run(&self, id: JobId, op: KvsOp) -> KvsResult {
        match op {
            KvsOp::Append { events, run } => {
                KvsResult::Appended(outcome(self.append(id, &events, run.as_ref()).await))
            }
            KvsOp::Create { userid } => KvsResult::Created(match self.create(id, userid).await {
                Ok(_) => Ok(Creation::Made),
                Err(error) if error.errnum == libc::EEXIST => Ok(Creation::Existed),
                Err(error) => Err(error.into()),
            }),
            KvsOp::Link => {
                KvsResult::Linked(outcome(self.commit(None, 0, |txn| put_link(txn, id)).await))
            }
            KvsOp::Move { usage } => KvsResult::Moved(self.graft(id, usage.as_deref()).await),
            KvsOp::Recommit(bequest) => {
                let result = self.recommit(id, &bequest).await.map_err(Fault::from);
                KvsResult::Recommitted { client: bequest.client.clone(), result }
            }
            KvsOp::Open { userid } => KvsResult::Opened(self.take_over(id, userid).await),
            KvsOp::Released => {
                let eventlog = self.lookup(None, &id.kvs_key("eventlog"), false).await;
                let released = eventlog.map(|text| JobEventlog::read(&text).released);
                KvsResult::Released(released.map_err(Fault::from))
            }
        }
    }

    fn append(&self, id: JobId, events: &[ExecEvent], run: Option<&JobDigest>) -> Answered {
        let flags = flux_sys::kvs_commit_flags_FLUX_KVS_TXN_COMPACT as c_int;
        self.commit(Some(&id.namespace()), flags, |txn| {
            let appended = if events.is_empty() { 0 } else { put_events(txn, events) };
            appended.min(run.map_or(0, |run| put_run(txn, run)))
        })
    }

    fn create(&self, id: JobId, userid: u32) -> Answered {
        let (name, handle) = (cstring(&id.namespace()), self.handle().as_ptr());
        // SAFETY: the name lives through the call, which copies it.
        let future =
            unsafe { libflux().flux_kvs_namespace_create(handle, name.as_ptr(), userid, 0) };
        self.futures().fulfilled(future)
    }

    /// Grafts the namespace. The root is looked up after the last commit was answered, because on
    /// ranks other than 0 the answer to a commit still names the root before it (flux-core `kvs.c`,
    /// setroot_event_process).
    async fn graft(&self, id: JobId, usage: Option<&JobUsage>) -> Result<(), Fault> {
        let (namespace, flags) = (id.namespace(), flux_sys::kvs_op_FLUX_KVS_READDIR);
        let look = json!({ "namespace": namespace, "flags": flags, "key": "." }).to_string();
        let found = self.futures().ask("kvs.lookup-plus", &look).await?;
        let root: FoundRoot = serde_json::from_str(&found)
            .map_err(|error| Fault::new(libc::EPROTO, error.to_string()))?;
        let commit = self.commit(None, 0, |txn| {
            put_graft(txn, id, &root).min(usage.map_or(0, |usage| put_usage(txn, id, usage)))
        });
        commit.await?;
        if let Some(usage) = usage {
            // For the eye: who owns the job can write over it.
            let memo = json!({ "id": id, "memo": usage.memo() });
            self.futures().notify("job-manager.memo", None, &memo.to_string());
        }
        self.remove(id);
        Ok(())
    }

    /// Removes the namespace. Nobody waits for it.
    fn remove(&self, id: JobId) {
        let (name, handle) = (cstring(&id.namespace()), self.handle());
        // SAFETY: the name lives through the call, which copies it.
        let future = unsafe { libflux().flux_kvs_namespace_remove(handle.as_ptr(), name.as_ptr()) };
        self.futures().then_once(future, move |result, _| {
            if let Err(error) = result {
                let text = format!("{id}: removing the guest namespace failed: {error}");
                handle.log(libc::LOG_ERR, &text);
            }
        });
    }

    /// Finds the guest namespace of a running job. If flux-core's job-exec has grafted it, which it
    /// does when it is unloaded, the namespace is created again from there.
    async fn open(&self, id: JobId, userid: u32) -> Result<LiveNamespace, Fault> {
        let treeobj = self.find_treeobj(&id.kvs_key("guest")).await?;
        let lacks_link = match Root::of(treeobj) {
            Ok(root) => {
                let opened = read(&self.read_eventlog(id, &root.treeobj).await?, true)?;
                if opened.moved {
                    // Who has moved it may have died before it was removed.
                    self.remove(id);
                }
                if opened.moved || self.create_again(id, userid, &root).await? {
                    return Ok(LiveNamespace { opened, lacks_link: true });
                }
                true
            }
            // There is a link to the namespace, or no link yet.
            Err(treeobj) => treeobj["type"] != "symlink",
        };
        // The namespace itself decides.
        loop {
            let opened = match self.lookup(Some(&id.namespace()), ".", true).await {
                Ok(root) => Some(read(&self.read_eventlog(id, &root).await?, false)?),
                Err(error) if error.errnum == libc::ENOTSUP => self.restore(id, userid).await?,
                Err(error) => return Err(error.into()),
            };
            if let Some(opened) = opened {
                return Ok(LiveNamespace { opened, lacks_link });
            }
        }
    }

    /// Creates the namespace with this root. False: it still exists, and is newer than the root.
    async fn create_again(&self, id: JobId, userid: u32, root: &Root) -> Result<bool, Fault> {
        let (name, root) = (cstring(&id.namespace()), cstring(&root.blobref));
        let (name, root, handle) = (name.as_ptr(), root.as_ptr(), self.handle().as_ptr());
        // SAFETY: the strings live through the call, which copies them.
        let future =
            unsafe { libflux().flux_kvs_namespace_create_with(handle, name, root, userid, 0) };
        match self.futures().fulfilled(future).await {
            Ok(_) => Ok(true),
            Err(error) if error.errnum == libc::EEXIST => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Restores a namespace that was lost with rank 0's broker, from the last checkpoint. If no
    /// checkpoint has it, it is created empty: what the nodes still know is recovered from there.
    /// None: it exists after all.
    async fn restore(&self, id: JobId, userid: u32) -> Result<Option<Opened>, Fault> {
        let treeobj = self.find_treeobj(&id.kvs_key(CHECKPOINT_KEY)).await?;
        let Ok(root) = Root::of(treeobj) else {
            return match self.create(id, userid).await {
                Ok(_) => Ok(Some(Opened::default())),
                Err(error) if error.errnum == libc::EEXIST => Ok(None),
                Err(error) => Err(error.into()),
            };
        };
        let opened = read(&self.read_eventlog(id, &root.treeobj).await?, false)?;
        let is_created = self.create_again(id, userid, &root).await?;
        Ok(is_created.then_some(opened))
    }

    /// The tree object under a key of the primary namespace. Empty if there is none.
    async fn find_treeobj(&self, key: &str) -> Result<String, Fault> {
        Ok(unless_absent(self.lookup(None, key, true).await)?.unwrap_or_default())
    }

    /// Opens the namespace, counts the leaders that have taken over, and links the namespace where no
    /// link stands, in one commit. The count is in the primary namespace, where the job's user cannot
    /// change it.
    async fn take_over(&self, id: JobId, userid: u32) -> Result<Opened, Fault> {
        let LiveNamespace { opened, lacks_link } = self.open(id, userid).await?;
        if opened.moved {
            return Ok(opened);
        }
        let key = id.kvs_key(LEADERS_KEY);
        let leaders = counted(self.lookup(None, &key, false).await)?.saturating_add(1);
        let commit = self.commit(None, 0, |txn| {
            let count = put_count(txn, &key, leaders);
            count.min(if lacks_link { put_link(txn, id) } else { 0 })
        });
        if let Err(error) = commit.await {
            if lacks_link {
                return Err(error.into());
            }
            self.handle().log(libc::LOG_ERR, &format!("{id}: {key}: {error}"));
        }
        Ok(Opened { leaders, ..opened })
    }
}

/// The root directory of a guest namespace: the answer of `kvs.lookup-plus` to `FLUX_KVS_READDIR`
/// (flux-core `modules/kvs/kvs.c`). `kvs.lookup` does not say which root it has read.
#[derive(Deserialize)]
struct FoundRoot {
    val: Directory,
    rootref: String,
}

/// RFC 11.
#[derive(Deserialize)]
struct Directory {
    data: BTreeMap<String, IgnoredAny>,
}

impl FoundRoot {
    fn treeobj(&self) -> String {
        json!({ "data": [self.rootref], "type": "dirref", "ver": 1 }).to_string()
    }

    /// Keys that are not the user's.
    fn own_keys(&self) -> impl Iterator<Item = &str> {
        let names = self.val.data.keys().map(String::as_str);
        names.filter(|name| !is_users(name))
    }
}

/// The root of a guest namespace, as the primary namespace holds it.
pub(super) struct Root {
    treeobj: String,
    blobref: String,
}

impl Root {
    /// The root, or the tree object as it is if it is not one.
    pub(super) fn of(treeobj: String) -> Result<Self, Value> {
        let object: Value = serde_json::from_str(&treeobj).unwrap_or_default();
        match (object["type"].as_str(), object.pointer("/data/0").and_then(Value::as_str)) {
            (Some("dirref"), Some(blobref)) => Ok(Self { blobref: blobref.to_string(), treeobj }),
            _ => Err(object),
        }
    }
}

/// Appends to the eventlog. The result is libflux's.
fn put_events(txn: *mut flux_sys::flux_kvs_txn_t, events: &[ExecEvent]) -> c_int {
    let text: String = events.iter().map(ExecEvent::encode).collect();
    let (key, text) = (cstring(EVENTLOG_KEY), cstring(&text));
    let append = flux_sys::kvs_op_FLUX_KVS_APPEND as c_int;
    // SAFETY: libflux refuses a null transaction, and the strings live through the call.
    unsafe { libflux().flux_kvs_txn_put(txn, append, key.as_ptr(), text.as_ptr()) }
}

/// Says whose namespace it is (`rfc/0010-connector.md`, 10.4). The result is libflux's.
fn put_run(txn: *mut flux_sys::flux_kvs_txn_t, run: &JobDigest) -> c_int {
    let (key, run) = (cstring(RUN_KEY), cstring(run.as_str()));
    // SAFETY: as in `put_events`.
    unsafe { libflux().flux_kvs_txn_put(txn, 0, key.as_ptr(), run.as_ptr()) }
}

/// Links the namespace in the job's directory. The result is libflux's.
fn put_link(txn: *mut flux_sys::flux_kvs_txn_t, id: JobId) -> c_int {
    let (key, namespace) = (cstring(&id.kvs_key("guest")), cstring(&id.namespace()));
    // SAFETY: as in `put_events`.
    unsafe {
        libflux().flux_kvs_txn_symlink(txn, 0, key.as_ptr(), namespace.as_ptr(), c".".as_ptr())
    }
}

/// Counts leaders. The result is libflux's.
fn put_count(txn: *mut flux_sys::flux_kvs_txn_t, key: &str, count: u64) -> c_int {
    let (key, count) = (cstring(key), cstring(&count.to_string()));
    // SAFETY: as in `put_events`.
    unsafe { libflux().flux_kvs_txn_put(txn, 0, key.as_ptr(), count.as_ptr()) }
}

/// Grafts the namespace with this root. The result is libflux's.
fn put_graft(txn: *mut flux_sys::flux_kvs_txn_t, id: JobId, found: &FoundRoot) -> c_int {
    let (key, root) = (cstring(&id.kvs_key("guest")), cstring(&found.treeobj()));
    // SAFETY: as in `put_events`.
    let put = unsafe { libflux().flux_kvs_txn_put_treeobj(txn, 0, key.as_ptr(), root.as_ptr()) };
    // The keys of connectors go with the move. Without them a leader that takes over before it would
    // have commits done again that are there.
    let own = found.own_keys().map(|name| format!("guest.{name}"));
    let more = [CHECKPOINT_KEY, LEADERS_KEY].map(str::to_string);
    own.chain(more).fold(put, |rc, key| {
        let key = cstring(&id.kvs_key(&key));
        // SAFETY: as in `put_events`.
        rc.min(unsafe { libflux().flux_kvs_txn_unlink(txn, 0, key.as_ptr()) })
    })
}

/// Puts what the job has used beside it. The result is libflux's.
fn put_usage(txn: *mut flux_sys::flux_kvs_txn_t, id: JobId, usage: &JobUsage) -> c_int {
    let (key, usage) = (cstring(&id.kvs_key(USAGE_KEY)), cstring(&json!(usage).to_string()));
    // SAFETY: as in `put_events`.
    unsafe { libflux().flux_kvs_txn_put(txn, 0, key.as_ptr(), usage.as_ptr()) }
}

fn read(eventlog: &str, grafted: bool) -> Result<Opened, Fault> {
    let events = decode_eventlog(eventlog).map_err(|e| Fault::new(libc::EPROTO, e.to_string()))?;
    let moved = grafted && events.last().is_some_and(|event| event.name == "done");
    Ok(Opened { events, moved, ..Opened::default() })
}

fn outcome(result: Result<String, RpcError>) -> Result<(), Fault> {
    result.map(|_| ()).map_err(Fault::from)
}

/// What a lookup has found. Only one error says that there is nothing under the key.
fn unless_absent(found: Result<String, RpcError>) -> Result<Option<String>, Fault> {
    match found {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.errnum == libc::ENOENT => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How many leaders were counted so far. A smaller number must not take the place of one that could
/// not be read: agents would refuse the leader as an earlier one.
fn counted(found: Result<String, RpcError>) -> Result<u64, Fault> {
    let Some(count) = unless_absent(found)? else { return Ok(0) };
    count.trim().parse().map_err(|_| {
        Fault::new(libc::EPROTO, format!("{LEADERS_KEY}: expected a number, got {count:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [older-leader-refused]
    #[test]
    fn only_a_count_that_is_not_there_is_none() {
        let error = |errnum| Err(RpcError { errnum, message: String::new() });
        let count = |text: &str| counted(Ok(text.to_string()));
        assert_eq!(counted(error(libc::ENOENT)), Ok(0));
        assert_eq!((count("7"), count("7\n")), (Ok(7), Ok(7)));
        for errnum in [libc::EIO, libc::ENOSYS, libc::EHOSTUNREACH, libc::ENOTDIR] {
            assert_eq!(counted(error(errnum)).map_err(|fault| fault.errnum), Err(errnum));
        }
        for text in ["", "-1", "seven"] {
            assert_eq!(count(text).map_err(|fault| fault.errnum), Err(libc::EPROTO));
        }
    }
}

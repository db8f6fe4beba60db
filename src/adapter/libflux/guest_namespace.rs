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
use super::kvs::Kvs;
use super::text::cstring;
use crate::machine::{Creation, Fault, KvsOp, KvsResult, Opened};
use crate::proto::{ExecEvent, JobDigest, JobEventlog, JobId, decode_eventlog};

/// The key under which leaders that take over are counted, in the job's directory of the primary
/// namespace.
const LEADERS_KEY: &str = "guest-leaders";

/// The key of the reference that a checkpoint holds, in the job's directory of the primary namespace.
pub(super) const CHECKPOINT_KEY: &str = "guest-checkpoint";

type Done = Box<dyn FnOnce(KvsResult)>;

/// A job's namespace that is there, or was made again.
struct LiveNamespace {
    opened: Opened,
    /// The job's directory has no link to it.
    lacks_link: bool,
}

type OnLive = Box<dyn FnOnce(Result<LiveNamespace, Fault>)>;

impl Kvs {
    /// Carries out `op` and passes its outcome to `done`.
    pub(super) fn run(&self, id: JobId, op: KvsOp, done: impl FnOnce(KvsResult) + 'static) {
        match op {
            KvsOp::Append { events, run } => {
                let (namespace, text) = (id.namespace(), encode(&events));
                let commit = self.append(&namespace, &text, run.as_ref());
                self.futures().then_once(commit, |result, _| {
                    done(KvsResult::Appended(outcome(result)));
                });
            }
            KvsOp::Create { userid } => self.create(id, userid, |result| {
                done(KvsResult::Created(match result {
                    Ok(_) => Ok(Creation::Made),
                    Err(error) if error.errnum == libc::EEXIST => Ok(Creation::Existed),
                    Err(error) => Err(error.into()),
                }));
            }),
            KvsOp::Link => {
                self.link(id, |result| done(KvsResult::Linked(outcome(result))));
            }
            KvsOp::Move => self.graft_root(id, Box::new(done)),
            KvsOp::Recommit(bequest) => {
                let this = self.clone();
                self.futures().spawn(async move {
                    let result = this.recommit(id, &bequest).await.map_err(Fault::from);
                    done(KvsResult::Recommitted { client: bequest.client.clone(), result });
                });
            }
            KvsOp::Open { userid } => {
                let this = self.clone();
                let take_over = move |found| this.take_over(id, found, Box::new(done));
                self.open(id, userid, Box::new(take_over));
            }
            KvsOp::Released => self.lookup_then(None, &id.kvs_key("eventlog"), false, |result| {
                let released = result.map(|text| JobEventlog::read(&text).released);
                done(KvsResult::Released(released.map_err(Fault::from)));
            }),
        }
    }

    fn append(
        &self,
        namespace: &str,
        text: &str,
        run: Option<&JobDigest>,
    ) -> *mut flux_sys::flux_future_t {
        let flags = flux_sys::kvs_commit_flags_FLUX_KVS_TXN_COMPACT as c_int;
        self.commit(Some(namespace), flags, |txn| {
            let appended = if text.is_empty() { 0 } else { put_events(txn, text) };
            appended.min(run.map_or(0, |run| put_run(txn, run)))
        })
    }

    fn link(&self, id: JobId, done: impl FnOnce(Result<String, RpcError>) + 'static) {
        let future = self.commit(None, 0, |txn| put_link(txn, id));
        self.futures().then_once(future, |result, _| done(result));
    }

    fn create(
        &self,
        id: JobId,
        userid: u32,
        done: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        let name = cstring(&id.namespace());
        // SAFETY: the name lives through the call, which copies it.
        let future = unsafe {
            libflux().flux_kvs_namespace_create(self.handle().as_ptr(), name.as_ptr(), userid, 0)
        };
        self.futures().then_once(future, |result, _| done(result));
    }

    /// Grafts the namespace. The root is looked up after the last commit was answered, because on
    /// ranks other than 0 the answer to a commit still names the root before it (flux-core `kvs.c`,
    /// setroot_event_process).
    fn graft_root(&self, id: JobId, done: Done) {
        let this = self.clone();
        let (namespace, flags) = (id.namespace(), flux_sys::kvs_op_FLUX_KVS_READDIR);
        let look = json!({ "namespace": namespace, "flags": flags, "key": "." }).to_string();
        self.futures().rpc("kvs.lookup-plus", None, &look, move |result| {
            let root = result.map_err(Fault::from).and_then(|found| {
                serde_json::from_str(&found).map_err(|e| Fault::new(libc::EPROTO, e.to_string()))
            });
            match root {
                Ok(root) => this.graft(id, &root, done),
                Err(fault) => done(KvsResult::Moved(Err(fault))),
            }
        });
    }

    fn graft(&self, id: JobId, found: &FoundRoot, done: Done) {
        let future = self.commit(None, 0, |txn| {
            let (key, root) = (cstring(&id.kvs_key("guest")), cstring(&found.treeobj()));
            // SAFETY: the transaction is valid, the strings live through the call.
            let put =
                unsafe { libflux().flux_kvs_txn_put_treeobj(txn, 0, key.as_ptr(), root.as_ptr()) };
            // The keys of connectors go with the move. Without them a leader that takes over before
            // it would have commits done again that are there.
            let own = found.own_keys().map(|name| format!("guest.{name}"));
            let more = [CHECKPOINT_KEY, LEADERS_KEY].map(str::to_string);
            own.chain(more).fold(put, |rc, key| {
                let key = cstring(&id.kvs_key(&key));
                // SAFETY: as above.
                rc.min(unsafe { libflux().flux_kvs_txn_unlink(txn, 0, key.as_ptr()) })
            })
        });
        let this = self.clone();
        self.futures().then_once(future, move |result, _| {
            if result.is_ok() {
                this.remove(id);
            }
            done(KvsResult::Moved(outcome(result)));
        });
    }

    fn remove(&self, id: JobId) {
        let name = cstring(&id.namespace());
        let handle = self.handle();
        // SAFETY: the name lives through the call, which copies it.
        let future = unsafe { libflux().flux_kvs_namespace_remove(handle.as_ptr(), name.as_ptr()) };
        self.futures().then_once(future, move |result, _| {
            if let Err(error) = result {
                let text = format!("{id}: removing the guest namespace failed: {error}");
                handle.log(libc::LOG_ERR, &text);
            }
        });
    }

    fn read_eventlog_then(
        &self,
        id: JobId,
        root: &str,
        done: impl FnOnce(Result<String, Fault>) + 'static,
    ) {
        let (this, root) = (self.clone(), root.to_string());
        self.futures().spawn(async move { done(this.read_eventlog(id, &root).await) });
    }

    /// Finds the guest namespace of a running job. If flux-core's job-exec has grafted it, which it
    /// does when it is unloaded, the namespace is created again from there.
    fn open(&self, id: JobId, userid: u32, done: OnLive) {
        let this = self.clone();
        self.lookup_then(None, &id.kvs_key("guest"), true, move |result| {
            let treeobj = match unless_absent(result) {
                Ok(treeobj) => treeobj.unwrap_or_default(),
                Err(fault) => return done(Err(fault)),
            };
            match Root::of(treeobj) {
                Ok(root) => this.open_grafted(id, userid, root, done),
                // There is a link to the namespace, or no link yet. The namespace itself decides.
                Err(treeobj) => this.open_live(id, userid, treeobj["type"] != "symlink", done),
            }
        });
    }

    fn open_live(&self, id: JobId, userid: u32, lacks_link: bool, done: OnLive) {
        let this = self.clone();
        self.lookup_then(Some(&id.namespace()), ".", true, move |result| match result {
            Ok(root) => this.read_eventlog_then(id, &root, move |result| {
                let opened = result.and_then(|text| read(&text, false));
                done(opened.map(|opened| LiveNamespace { opened, lacks_link }));
            }),
            Err(error) if error.errnum == libc::ENOTSUP => {
                this.restore(id, userid, lacks_link, done);
            }
            Err(error) => done(Err(error.into())),
        });
    }

    fn open_grafted(&self, id: JobId, userid: u32, root: Root, done: OnLive) {
        let this = self.clone();
        self.read_eventlog_then(id, &root.treeobj.clone(), move |result| {
            let opened = result.and_then(|text| read(&text, true));
            match opened.map(|opened| LiveNamespace { opened, lacks_link: true }) {
                Ok(found) if !found.opened.moved => {
                    this.create_again(id, userid, &root, found, done);
                }
                found => {
                    if found.is_ok() {
                        // Who has moved it may have died before it was removed.
                        this.remove(id);
                    }
                    done(found);
                }
            }
        });
    }

    fn create_again(
        &self,
        id: JobId,
        userid: u32,
        root: &Root,
        found: LiveNamespace,
        done: OnLive,
    ) {
        let (name, root) = (cstring(&id.namespace()), cstring(&root.blobref));
        let handle = self.handle().as_ptr();
        // SAFETY: the strings live through the call, which copies them.
        let future = unsafe {
            libflux().flux_kvs_namespace_create_with(
                handle,
                name.as_ptr(),
                root.as_ptr(),
                userid,
                0,
            )
        };
        let this = self.clone();
        self.futures().then_once(future, move |result, _| match result {
            // The namespace still exists, and is newer than what was grafted.
            Err(error) if error.errnum == libc::EEXIST => {
                this.open_live(id, userid, found.lacks_link, done);
            }
            Err(error) => done(Err(error.into())),
            Ok(_) => done(Ok(found)),
        });
    }

    /// Restores a namespace that was lost with rank 0's broker, from the last checkpoint.
    fn restore(&self, id: JobId, userid: u32, lacks_link: bool, done: OnLive) {
        let this = self.clone();
        self.lookup_then(None, &id.kvs_key(CHECKPOINT_KEY), true, move |result| {
            let treeobj = match unless_absent(result) {
                Ok(treeobj) => treeobj.unwrap_or_default(),
                Err(fault) => return done(Err(fault)),
            };
            let Ok(root) = Root::of(treeobj) else {
                return this.restore_empty(id, userid, lacks_link, done);
            };
            this.clone().read_eventlog_then(id, &root.treeobj.clone(), move |result| match result
                .and_then(|text| read(&text, false))
            {
                Ok(opened) => {
                    let found = LiveNamespace { opened, lacks_link };
                    this.create_again(id, userid, &root, found, done);
                }
                Err(fault) => done(Err(fault)),
            });
        });
    }

    /// Creates an empty namespace, because no checkpoint has the old one. What the nodes still know
    /// is recovered from there.
    fn restore_empty(&self, id: JobId, userid: u32, lacks_link: bool, done: OnLive) {
        self.create(id, userid, move |result| {
            let found = LiveNamespace { opened: Opened::default(), lacks_link };
            done(result.map(|_| found).map_err(Fault::from));
        });
    }

    /// Counts the leaders that have taken over, and links the namespace where no link stands, in one
    /// commit. The count is in the primary namespace, where the job's user cannot change it.
    fn take_over(&self, id: JobId, found: Result<LiveNamespace, Fault>, done: Done) {
        let LiveNamespace { opened, lacks_link } = match found {
            Ok(found) if !found.opened.moved => found,
            found => return done(KvsResult::Opened(found.map(|found| found.opened))),
        };
        let this = self.clone();
        let key = id.kvs_key(LEADERS_KEY);
        self.lookup_then(None, &key.clone(), false, move |count| {
            let before = match counted(count) {
                Ok(before) => before,
                Err(fault) => return done(KvsResult::Opened(Err(fault))),
            };
            let leaders = before.saturating_add(1);
            let commit = this.commit(None, 0, |txn| {
                let (key, count) = (cstring(&key), cstring(&leaders.to_string()));
                // SAFETY: the transaction is valid, the strings live through the call.
                let put =
                    unsafe { libflux().flux_kvs_txn_put(txn, 0, key.as_ptr(), count.as_ptr()) };
                put.min(if lacks_link { put_link(txn, id) } else { 0 })
            });
            let handle = this.handle();
            this.futures().then_once(commit, move |result, _| {
                if let Err(error) = result {
                    if lacks_link {
                        return done(KvsResult::Opened(Err(error.into())));
                    }
                    handle.log(libc::LOG_ERR, &format!("{id}: {key}: {error}"));
                }
                done(KvsResult::Opened(Ok(Opened { leaders, ..opened })));
            });
        });
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
fn put_events(txn: *mut flux_sys::flux_kvs_txn_t, text: &str) -> c_int {
    let (key, text) = (cstring(EVENTLOG_KEY), cstring(text));
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

fn encode(events: &[ExecEvent]) -> String {
    events.iter().map(ExecEvent::encode).collect()
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

//! Commits of this client to one KVS namespace, so that each is done exactly once.
//!
//! Each commit carries one more operation: it sets the client's own key in the namespace to
//! the commit's number. A transaction is applied whole or not at all. So the key says which
//! commits the namespace holds, also after the KVS went back to a checkpoint.

use std::borrow::Cow;
use std::collections::VecDeque;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::packet::Packet;

/// Clients' own keys begin with this. They are in the namespace's root directory, which the KVS
/// stores with each commit anyway: in a directory of theirs they would cost each commit one more
/// object.
const OWN_PREFIX: &str = "resume-";
/// Digits of a client's number in its key.
const CLIENT_DIGITS: usize = 16;
/// Says which run of its job a namespace belongs to. The job's leader sets it.
pub const RUN_KEY: &str = "resume-run";
/// The namespace that outlives the instance. Clients' keys would stay in it for ever.
const PRIMARY: &str = "primary";
/// flux-core `libkvs/kvs.h`.
const FLUX_KVS_APPEND: u32 = 32;

/// The key that a client sets with each commit to a namespace.
#[must_use]
pub fn own_key(client: &str) -> String {
    format!("{OWN_PREFIX}{client}")
}

/// Whether a key in the root directory of a guest namespace is the job's user's, and not this
/// service's.
#[must_use]
pub fn is_users(key: &str) -> bool {
    let is_client = |rest: &str| {
        rest.len() == CLIENT_DIGITS && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    key != RUN_KEY && !key.strip_prefix(OWN_PREFIX).is_some_and(is_client)
}

/// The payload of `kvs.commit` (flux-core `modules/kvs/kvs.c`, `commit_request_cb`).
#[derive(Deserialize)]
struct Commit<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    flags: i64,
    #[serde(borrow)]
    ops: &'a RawValue,
}

#[derive(Deserialize)]
struct Operation {
    flags: u32,
}

/// How the connector keeps a commit from being lost or done twice.
pub(crate) enum Treatment {
    /// With the ledger of this namespace.
    Ledger(String),
    /// It is repeated, because doing it twice is the same as once.
    Repeat,
    /// It is refused after a loss.
    Refuse,
}

/// How to treat a commit with this payload.
pub(crate) fn treatment(payload: &[u8]) -> Treatment {
    let Ok(commit) = serde_json::from_slice::<Commit>(payload) else { return Treatment::Refuse };
    if commit.namespace != PRIMARY {
        return Treatment::Ledger(commit.namespace.into_owned());
    }
    match serde_json::from_str::<Vec<Operation>>(commit.ops.get()) {
        Ok(ops) if ops.iter().all(|op| op.flags & FLUX_KVS_APPEND == 0) => Treatment::Repeat,
        _ => Treatment::Refuse,
    }
}

/// A commit that a restored namespace may lack.
#[derive(Clone, Debug, PartialEq)]
struct Entry<P> {
    number: u64,
    /// The commit as it is sent, with the client's key in it.
    packet: P,
    /// Its matchtag while the client has no answer.
    tag: Option<u32>,
}

/// Commits to one namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ledger<P> {
    pub(crate) namespace: String,
    client: String,
    /// The client's own key.
    key: String,
    entries: VecDeque<Entry<P>>,
    next: u64,
    /// Another one when there is something else to hand over: a new entry, or one less that was
    /// refused.
    pub(crate) version: u64,
    /// Encoded size of all entries.
    pub(crate) bytes: usize,
    /// Encoded size of the entries whose commits are done.
    pub(crate) closed_bytes: usize,
}

impl<P: Packet> Ledger<P> {
    /// The ledger of the client of this name.
    pub(crate) fn new(namespace: &str, client: &str) -> Self {
        Self {
            namespace: namespace.to_string(),
            key: own_key(client),
            client: client.to_string(),
            entries: VecDeque::new(),
            next: 1,
            version: 0,
            bytes: 0,
            closed_bytes: 0,
        }
    }

    /// The job whose guest namespace this is (flux-core `libjob/job.c`, `flux_job_kvs_namespace`).
    pub(crate) fn job(&self) -> Option<u64> {
        self.namespace.strip_prefix("job-")?.parse().ok()
    }

    /// Enters a commit. Returns the message to send.
    pub(crate) fn enter(&mut self, tag: u32, packet: &P) -> Option<P> {
        let number = self.next;
        let payload = self.numbered(packet.payload(), number)?;
        let packet = packet.with_payload(&payload);
        self.next += 1;
        self.version += 1;
        self.bytes += packet.size();
        self.entries.push_back(Entry { number, packet: packet.clone(), tag: Some(tag) });
        Some(packet)
    }

    fn numbered(&self, payload: &[u8], number: u64) -> Option<String> {
        let Commit { namespace, flags, ops } = serde_json::from_slice(payload).ok()?;
        let ops = ops.get().trim().strip_suffix(']')?.trim_end();
        let comma = if ops.ends_with('[') { "" } else { "," };
        let namespace = serde_json::to_string(&namespace).ok()?;
        let data = BASE64_STANDARD.encode(number.to_string());
        let dirent = json!({ "data": data, "type": "val", "ver": 1 });
        let own = json!({ "key": self.key, "flags": 0, "dirent": dirent });
        Some(format!(r#"{{"namespace":{namespace},"flags":{flags},"ops":{ops}{comma}{own}]}}"#))
    }

    /// The client has its answer to a commit. One that was done is kept, because the KVS may forget it.
    /// One that was refused will never be done.
    pub(crate) fn answered(&mut self, tag: u32, is_done: bool) {
        let at = self.entries.iter().position(|entry| entry.tag == Some(tag));
        let Some(at) = at else { return };
        if is_done {
            self.entries[at].tag = None;
            self.closed_bytes += self.entries[at].packet.size();
        } else if let Some(entry) = self.entries.remove(at) {
            self.version += 1;
            self.forget(&entry);
        }
    }

    /// The namespace holds all commits up to this number.
    pub(crate) fn holds(&mut self, held: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.number <= held) {
            if entry.tag.take().is_some() {
                self.closed_bytes += entry.packet.size();
            }
        }
    }

    fn forget(&mut self, entry: &Entry<P>) {
        self.bytes -= entry.packet.size();
        if entry.tag.is_none() {
            self.closed_bytes -= entry.packet.size();
        }
    }

    /// The number up to which all commits are done.
    pub(crate) fn mark(&self) -> u64 {
        let open = self.entries.iter().find(|entry| entry.tag.is_some());
        open.map_or(self.next, |entry| entry.number) - 1
    }

    /// A checkpoint holds all commits up to this number.
    pub(crate) fn covered(&mut self, mark: u64) {
        while self.entries.front().is_some_and(|e| e.number <= mark && e.tag.is_none()) {
            if let Some(entry) = self.entries.pop_front() {
                self.forget(&entry);
            }
        }
    }

    /// Drops the oldest done commits until at most `bytes_max` bytes of them are left.
    pub(crate) fn drop_oldest(&mut self, bytes_max: usize) {
        while self.closed_bytes > bytes_max {
            let Some(at) = self.entries.iter().position(|entry| entry.tag.is_none()) else {
                return;
            };
            let Some(entry) = self.entries.remove(at) else { return };
            self.forget(&entry);
        }
    }

    /// The payload of a commit without operations.
    pub(crate) fn fence(&self) -> String {
        json!({ "namespace": self.namespace, "flags": 0, "ops": [] }).to_string()
    }

    /// The payload of a lookup of the client's own key.
    pub(crate) fn look(&self) -> String {
        self.look_up(&self.key)
    }

    /// The payload of a lookup.
    pub(crate) fn look_up(&self, key: &str) -> String {
        json!({ "namespace": self.namespace, "flags": 0, "key": key }).to_string()
    }

    /// Forgets all commits.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        (self.bytes, self.closed_bytes) = (0, 0);
    }

    /// The payload of a commit that removes the client's own key.
    pub(crate) fn farewell(&self) -> String {
        let ops = json!([{ "key": self.key, "flags": 0, "dirent": null }]);
        json!({ "namespace": self.namespace, "flags": 0, "ops": ops }).to_string()
    }

    /// What others need to do the commits that no checkpoint has again: the payload of
    /// `job-exec.keep-commits`. None if there are none.
    pub(crate) fn bequest(&self, shell: bool, again: bool) -> Option<String> {
        let id = self.job()?;
        let commits = self.entries.iter().filter_map(|entry| {
            let commit = serde_json::from_slice::<&RawValue>(entry.packet.payload()).ok()?;
            Some(Bequeathed { number: entry.number, commit })
        });
        let commits: Vec<Bequeathed> = commits.collect();
        let bequest = Bequest { id, client: &self.client, shell, again, commits: &commits };
        (!commits.is_empty()).then(|| serde_json::to_string(&bequest).ok())?
    }

    /// Whether there are commits that no checkpoint has, as far as is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All commits after `held`, and whether the client still waits.
    pub(crate) fn after(&self, held: u64) -> impl Iterator<Item = (bool, &P)> {
        let missing = self.entries.iter().filter(move |entry| entry.number > held);
        missing.map(|entry| (entry.tag.is_some(), &entry.packet))
    }

    /// The commits up to `held` that are not answered yet, with their matchtags.
    pub(crate) fn unanswered(&self, held: u64) -> impl Iterator<Item = (u32, &P)> {
        let held = self.entries.iter().filter(move |entry| entry.number <= held);
        held.filter_map(|entry| Some((entry.tag?, &entry.packet)))
    }
}

/// The payload of `job-exec.keep-commits`.
#[derive(Serialize)]
struct Bequest<'a> {
    id: u64,
    client: &'a str,
    /// It is the job shell, which does its commits again itself as long as it lives.
    shell: bool,
    /// They were offered before the rank's broker was lost, and the client leaves them to the rank.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
    commits: &'a [Bequeathed<'a>],
}

/// A commit that somebody else may have to do again.
#[derive(Serialize)]
struct Bequeathed<'a> {
    number: u64,
    commit: &'a RawValue,
}

/// The answer of `kvs.lookup-plus` (flux-core `modules/kvs/kvs.c`).
#[derive(Deserialize)]
pub(crate) struct Found {
    val: Option<TreeObject>,
    rootref: String,
    rootseq: i64,
}

#[derive(Deserialize)]
struct TreeObject {
    data: String,
}

impl Found {
    /// None if it is an error, or cannot be read.
    pub(crate) fn of<P: Packet>(answer: &P) -> Option<Self> {
        let answer = Some(answer).filter(|answer| answer.header().errnum == 0)?;
        serde_json::from_slice(answer.payload()).ok()
    }

    /// The number of the last commit that the namespace holds; 0 if it holds none. None if the
    /// value cannot be read.
    pub(crate) fn number(&self) -> Option<u64> {
        if self.val.is_none() { Some(0) } else { self.text()?.parse().ok() }
    }

    /// The value, if there is one that is text.
    pub(crate) fn text(&self) -> Option<String> {
        let bytes = BASE64_STANDARD.decode(&self.val.as_ref()?.data).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// The answer that a commit would get now.
    pub(crate) fn as_answer(&self) -> String {
        json!({ "rootref": self.rootref, "rootseq": self.rootseq }).to_string()
    }
}

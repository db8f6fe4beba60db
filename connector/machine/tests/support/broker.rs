//! A broker and its KVS, which go back to the last checkpoint when they are killed.

use std::collections::{BTreeMap, VecDeque};

use resume_machine::{Kind, Packet};
use serde_json::{Value, json};

use super::support::Message;

/// A namespace: what was appended to its log, and the other keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespace {
    pub(crate) log: Vec<u64>,
    keys: BTreeMap<String, Value>,
    seq: u64,
}

/// All that lives with the broker's process, and what outlives it.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    pub(crate) namespaces: BTreeMap<String, Namespace>,
    checkpoint: BTreeMap<String, Namespace>,
    /// Requests that have reached the broker, in order.
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) outbox: VecDeque<Message>,
    /// Commits that wait for their turn, in order, with the connection that they came over.
    commits: VecDeque<(u32, Message)>,
    connection: u32,
    watches: Vec<(Message, usize)>,
    pub(crate) subscriptions: Vec<String>,
    /// Each entry of a barrier, whenever it came.
    pub(crate) barriers: Vec<u64>,
    /// Numbers of jobs that were submitted, whenever.
    pub(crate) submitted: Vec<u64>,
    /// It is on its way down: services are gone already.
    pub(crate) is_stopping: bool,
}

impl Broker {
    pub(crate) fn new(namespaces: &[&str]) -> Self {
        let namespaces: BTreeMap<String, Namespace> =
            namespaces.iter().map(|name| (name.to_string(), Namespace::default())).collect();
        Self { checkpoint: namespaces.clone(), namespaces, ..Self::default() }
    }

    pub(crate) fn checkpoint(&mut self) {
        self.checkpoint = self.namespaces.clone();
    }

    /// A follower's broker is killed: the KVS knows nothing of it.
    pub(crate) fn kill_follower(&mut self) {
        self.outbox.clear();
        self.watches.clear();
        self.subscriptions.clear();
        // One on its way down has passed nothing on.
        if std::mem::take(&mut self.is_stopping) {
            self.inbox.clear();
        }
    }

    /// What the last connection had passed on comes before anything of the next one, and
    /// nobody hears of it.
    pub(crate) fn disconnect(&mut self) {
        while self.step() {}
        self.connection += 1;
        self.outbox.clear();
        self.watches.clear();
        self.subscriptions.clear();
    }

    /// Rank 0's is killed. The namespaces are not there before somebody restores them.
    pub(crate) fn kill_rank_0(&mut self) {
        self.kill_follower();
        self.inbox.clear();
        self.commits.clear();
        self.namespaces.clear();
    }

    pub(crate) fn restore(&mut self) {
        if self.namespaces.is_empty() {
            self.namespaces = self.checkpoint.clone();
        }
    }

    /// Does the oldest request.
    pub(crate) fn step(&mut self) -> bool {
        let Some(request) = self.inbox.pop_front() else { return false };
        if request.kind == Kind::Request {
            self.serve(request);
        }
        true
    }

    fn answer(&mut self, request: &Message, payload: &Value) {
        self.outbox.push_back(request.answer(&payload.to_string()));
    }

    fn refuse(&mut self, request: &Message, errnum: i32) {
        self.outbox.push_back(request.refusal(errnum, "no"));
    }

    fn serve(&mut self, request: Message) {
        let payload = request.json();
        if self.is_stopping {
            let errnum = if request.topic == "state-machine.wait" { 2 } else { 38 };
            return self.refuse(&request, errnum);
        }
        match request.topic.as_str() {
            "state-machine.wait" | "kvs.lookup" => self.answer(&request, &json!({})),
            "event.subscribe" => {
                self.subscriptions.push(payload["topic"].to_string());
                self.answer(&request, &json!({}));
            }
            "job-ingest.submit" => {
                self.submitted.extend(payload["n"].as_u64());
                self.answer(&request, &json!({}));
            }
            "job-exec.shell-barrier" => {
                self.barriers.extend(payload["entry"].as_u64());
                self.answer(&request, &json!({}));
            }
            "kvs.commit" => self.commits.push_back((self.connection, request)),
            "kvs.lookup-plus" => self.lookup(&request, &payload),
            "kvs-watch.lookup" => {
                self.watches.push((request, 0));
                self.notify();
            }
            _ => self.refuse(&request, 38),
        }
    }

    /// Does the oldest commit.
    pub(crate) fn apply(&mut self) {
        let Some((connection, request)) = self.commits.pop_front() else { return };
        let answers = self.outbox.len();
        self.commit(&request, &request.json());
        if connection != self.connection {
            // Watches hear of it, whoever asked for it does not.
            self.outbox.remove(answers);
        }
    }

    fn commit(&mut self, request: &Message, payload: &Value) {
        let name = payload["namespace"].as_str().unwrap_or_default();
        let Some(namespace) = self.namespaces.get_mut(name) else {
            return self.refuse(request, 95);
        };
        for op in payload["ops"].as_array().into_iter().flatten() {
            let key = op["key"].as_str().unwrap_or_default();
            match op["dirent"].as_u64() {
                Some(number) if key == "log" => namespace.log.push(number),
                _ => {
                    namespace.keys.insert(key.to_string(), op["dirent"].clone());
                }
            }
        }
        namespace.seq += 1;
        let answer = json!({ "rootref": "root", "rootseq": namespace.seq });
        self.answer(request, &answer);
        self.notify();
    }

    fn lookup(&mut self, request: &Message, payload: &Value) {
        let name = payload["namespace"].as_str().unwrap_or_default();
        let Some(namespace) = self.namespaces.get(name) else {
            return self.refuse(request, 95);
        };
        let key = payload["key"].as_str().unwrap_or_default();
        let answer = match namespace.keys.get(key) {
            Some(val) => json!({ "val": val, "rootref": "root", "rootseq": namespace.seq }),
            None => json!({ "errno": 2, "rootref": "root", "rootseq": namespace.seq }),
        };
        self.answer(request, &answer);
    }

    /// Watches of the log hear of what is new.
    fn notify(&mut self) {
        let mut watches = std::mem::take(&mut self.watches);
        watches.retain_mut(|(request, seen)| {
            let name = request.json()["namespace"].as_str().unwrap_or_default().to_string();
            let Some(namespace) = self.namespaces.get(&name) else {
                self.refuse(request, 95);
                return false;
            };
            let new: Vec<u64> = namespace.log[*seen..].to_vec();
            *seen = namespace.log.len();
            for number in new {
                self.answer(request, &json!({ "entry": number }));
            }
            true
        });
        self.watches.extend(watches);
    }
}

//! A model of a broker and its KVS, which goes back to the last checkpoint when it is killed.

use std::collections::{BTreeMap, VecDeque};

use resume_machine::{Kind, Packet};
use serde_json::{Value, json};

use super::support::Message;

/// A namespace: the entries of its log, and the other keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespace {
    pub(crate) log: Vec<u64>,
    keys: BTreeMap<String, Value>,
    seq: u64,
}

/// The state of the broker's process, and the state that outlives it.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    pub(crate) namespaces: BTreeMap<String, Namespace>,
    checkpoint: BTreeMap<String, Namespace>,
    /// Requests that have reached the broker, in order.
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) outbox: VecDeque<Message>,
    /// Commits that are not applied yet, in order, with the number of their connection.
    commits: VecDeque<(u32, Message)>,
    connection: u32,
    watches: Vec<(Message, usize)>,
    pub(crate) subscriptions: Vec<String>,
    /// The numbers of all entries of a barrier.
    pub(crate) barriers: Vec<u64>,
    /// Numbers of all jobs that were submitted.
    pub(crate) submitted: Vec<u64>,
    /// It is shutting down, and its services are unloaded already.
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

    /// A follower's broker is killed. This does not affect the KVS.
    pub(crate) fn kill_follower(&mut self) {
        self.outbox.clear();
        self.watches.clear();
        self.subscriptions.clear();
        // A broker that is shutting down passes no request on.
        if std::mem::take(&mut self.is_stopping) {
            self.inbox.clear();
        }
    }

    /// Requests of the last connection are served before those of the next one, and their answers
    /// are dropped.
    pub(crate) fn disconnect(&mut self) {
        while self.step() {}
        self.connection += 1;
        self.outbox.clear();
        self.watches.clear();
        self.subscriptions.clear();
    }

    /// Rank 0's broker is killed. The namespaces do not exist until they are restored.
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

    /// Serves the oldest request.
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

    /// Applies the oldest commit.
    pub(crate) fn apply(&mut self) {
        let Some((connection, request)) = self.commits.pop_front() else { return };
        let answers = self.outbox.len();
        self.commit(&request, &request.json());
        if connection != self.connection {
            // Watches are notified; the client of the old connection gets no answer.
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

    /// Sends new entries to the watches of the log.
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

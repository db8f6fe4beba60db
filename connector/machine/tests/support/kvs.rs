//! Requests of clients of the KVS.

use serde_json::{Value, json};

use super::support::Message;

/// A request with many answers.
pub(crate) fn stream(topic: &str, tag: u32, payload: &Value) -> Message {
    Message { streaming: true, ..Message::ask(topic, tag, payload) }
}

/// A commit that appends one number to the log.
pub(crate) fn append(namespace: &str, number: u64) -> Value {
    let op = json!({ "key": "log", "flags": 32, "dirent": number });
    json!({ "namespace": namespace, "flags": 0, "ops": [op] })
}

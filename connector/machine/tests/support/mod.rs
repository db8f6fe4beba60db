//! Messages for the tests.

use resume_machine::{ANY_RANK, Header, Kind, Packet};
use serde_json::{Value, json};

/// A message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) topic: String,
    pub(crate) tag: u32,
    pub(crate) rank: u32,
    pub(crate) errnum: i32,
    pub(crate) noresponse: bool,
    pub(crate) streaming: bool,
    pub(crate) payload: String,
    pub(crate) hops: Vec<String>,
}

impl Message {
    pub(crate) fn new(kind: Kind, topic: &str, tag: u32, payload: &Value) -> Self {
        Self {
            kind,
            topic: topic.to_string(),
            tag,
            rank: ANY_RANK,
            errnum: 0,
            noresponse: false,
            streaming: false,
            payload: payload.to_string(),
            hops: Vec::new(),
        }
    }

    pub(crate) fn ask(topic: &str, tag: u32, payload: &Value) -> Self {
        Self::new(Kind::Request, topic, tag, payload)
    }

    pub(crate) fn stream(topic: &str, tag: u32, payload: &Value) -> Self {
        Self { streaming: true, ..Self::ask(topic, tag, payload) }
    }

    pub(crate) fn one_way(topic: &str, payload: &Value) -> Self {
        Self { noresponse: true, ..Self::ask(topic, 0, payload) }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.payload).unwrap_or(Value::Null)
    }
}

impl Packet for Message {
    fn header(&self) -> Header<'_> {
        Header {
            kind: self.kind,
            topic: &self.topic,
            matchtag: self.tag,
            errnum: self.errnum,
            noresponse: self.noresponse,
            streaming: self.streaming,
        }
    }

    fn payload(&self) -> &[u8] {
        self.payload.as_bytes()
    }

    fn size(&self) -> usize {
        self.payload.len() + self.topic.len() + 20
    }

    fn request(topic: &str, tag: u32, rank: u32, payload: &str) -> Self {
        let request = Self::ask(topic, tag, &Value::Null);
        Self { rank, payload: payload.to_string(), ..request }
    }

    fn with_payload(&self, payload: &str) -> Self {
        Self { payload: payload.to_string(), ..self.clone() }
    }

    fn answer(&self, payload: &str) -> Self {
        Self { kind: Kind::Response, payload: payload.to_string(), ..self.clone() }
    }

    fn refusal(&self, errnum: i32, text: &str) -> Self {
        Self { errnum, ..self.answer(text) }
    }

    fn push_hop(&mut self, hop: &str) {
        self.hops.push(hop.to_string());
    }

    fn pop_hop(&mut self, prefix: &str) -> Option<String> {
        let rest = self.hops.last()?.strip_prefix(prefix)?.to_string();
        self.hops.pop();
        Some(rest)
    }
}

/// A commit that appends one number to the log.
pub(crate) fn append(namespace: &str, number: u64) -> Value {
    let op = json!({ "key": "log", "flags": 32, "dirent": number });
    json!({ "namespace": namespace, "flags": 0, "ops": [op] })
}

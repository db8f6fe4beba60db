//! Messages for the tests.

use std::cell::RefCell;
use std::rc::Rc;

use resume_machine::{ANY_RANK, Header, Kind, Packet};
use serde_json::Value;

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
    /// As with libflux's messages, clones share it.
    pub(crate) hops: Rc<RefCell<Vec<String>>>,
    /// Another user has sent it.
    pub(crate) is_stranger: bool,
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
            hops: Rc::default(),
            is_stranger: false,
        }
    }

    pub(crate) fn ask(topic: &str, tag: u32, payload: &Value) -> Self {
        Self::new(Kind::Request, topic, tag, payload)
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
            rank: self.rank,
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
        Self { payload: payload.to_string(), ..self.with_hops(&self.hops()) }
    }

    fn to_rank(&self, rank: u32) -> Self {
        Self { rank, ..self.with_hops(&self.hops()) }
    }

    fn answer(&self, payload: &str) -> Self {
        Self { kind: Kind::Response, ..self.with_payload(payload) }
    }

    fn refusal(&self, errnum: i32, text: &str) -> Self {
        Self { errnum, ..self.answer(text) }
    }

    fn respond(&self, response: &Self) -> Self {
        Self { errnum: response.errnum, ..self.answer(&response.payload) }
    }

    fn hops(&self) -> Vec<String> {
        self.hops.borrow().clone()
    }

    fn first_hop(&self) -> Option<String> {
        self.hops.borrow().first().cloned()
    }

    fn with_hops(&self, hops: &[String]) -> Self {
        Self { hops: Rc::new(RefCell::new(hops.to_vec())), ..self.clone() }
    }

    fn is_trusted(&self) -> bool {
        !self.is_stranger
    }

    fn push_hop(&mut self, hop: &str) {
        self.hops.borrow_mut().push(hop.to_string());
    }

    fn pop_hop(&mut self, prefix: &str) -> Option<String> {
        let mut hops = self.hops();
        let rest = hops.pop()?.strip_prefix(prefix)?.to_string();
        *self = self.with_hops(&hops);
        Some(rest)
    }
}

//! Messages between shells and their brokers (RFC 3), in the form that the resume connector needs.

use resume_machine::{Header, Kind, Packet};
use serde_json::Value;

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SimPacket {
    kind: Kind,
    pub(super) topic: String,
    matchtag: u32,
    errnum: i32,
    noresponse: bool,
    payload: String,
}

impl SimPacket {
    /// A request of a shell.
    pub(super) fn ask(topic: &str, matchtag: u32, payload: &Value) -> Self {
        let noresponse = matchtag == resume_machine::NO_TAG;
        let kind = Kind::Request;
        let payload = payload.to_string();
        Self { kind, topic: topic.to_string(), matchtag, errnum: 0, noresponse, payload }
    }

    pub(super) fn matchtag(&self) -> u32 {
        self.matchtag
    }

    pub(super) fn errnum(&self) -> i32 {
        self.errnum
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.payload).unwrap_or_default()
    }
}

impl Packet for SimPacket {
    fn header(&self) -> Header<'_> {
        Header {
            kind: self.kind,
            topic: &self.topic,
            matchtag: self.matchtag,
            errnum: self.errnum,
            noresponse: self.noresponse,
            streaming: false,
        }
    }

    fn payload(&self) -> &[u8] {
        self.payload.as_bytes()
    }

    fn size(&self) -> usize {
        self.payload.len() + self.topic.len()
    }

    fn request(topic: &str, matchtag: u32, _rank: u32, payload: &str) -> Self {
        let request = Self::ask(topic, matchtag, &Value::Null);
        Self { payload: payload.to_string(), ..request }
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

    // Simulated shells get no requests, so the list of hops is never needed.
    fn push_hop(&mut self, _hop: &str) {}

    fn pop_hop(&mut self, _prefix: &str) -> Option<String> {
        None
    }
}

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
    rank: u32,
    payload: String,
    hops: Vec<String>,
}

impl SimPacket {
    /// A request of a shell.
    pub(super) fn ask(topic: &str, matchtag: u32, payload: &Value) -> Self {
        let noresponse = matchtag == resume_machine::NO_TAG;
        let kind = Kind::Request;
        let payload = payload.to_string();
        let (topic, hops) = (topic.to_string(), Vec::new());
        let (errnum, rank) = (0, resume_machine::ANY_RANK);
        Self { kind, topic, matchtag, errnum, noresponse, rank, payload, hops }
    }

    pub(super) fn is_request(&self) -> bool {
        self.kind == Kind::Request
    }

    /// Whether its sender waits for a response.
    pub(super) fn is_answered(&self) -> bool {
        self.is_request() && !self.noresponse && self.matchtag != resume_machine::NO_TAG
    }

    /// The rank that it is sent to. None: the nearest broker that has the service.
    pub(super) fn rank(&self) -> Option<u32> {
        (self.rank != resume_machine::ANY_RANK).then_some(self.rank)
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
            rank: self.rank,
        }
    }

    fn payload(&self) -> &[u8] {
        self.payload.as_bytes()
    }

    fn size(&self) -> usize {
        self.payload.len() + self.topic.len()
    }

    fn request(topic: &str, matchtag: u32, rank: u32, payload: &str) -> Self {
        let request = Self::ask(topic, matchtag, &Value::Null);
        Self { rank, payload: payload.to_string(), ..request }
    }

    fn with_payload(&self, payload: &str) -> Self {
        Self { payload: payload.to_string(), ..self.clone() }
    }

    fn to_rank(&self, rank: u32) -> Self {
        Self { rank, ..self.clone() }
    }

    fn answer(&self, payload: &str) -> Self {
        Self { kind: Kind::Response, payload: payload.to_string(), ..self.clone() }
    }

    fn refusal(&self, errnum: i32, text: &str) -> Self {
        Self { errnum, ..self.answer(text) }
    }

    fn respond(&self, response: &Self) -> Self {
        Self { errnum: response.errnum, ..self.answer(&response.payload) }
    }

    fn hops(&self) -> Vec<String> {
        self.hops.clone()
    }

    fn first_hop(&self) -> Option<String> {
        self.hops.first().cloned()
    }

    fn with_hops(&self, hops: &[String]) -> Self {
        Self { hops: hops.to_vec(), ..self.clone() }
    }

    // Simulated shells of one job are one user's.
    fn is_trusted(&self) -> bool {
        true
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

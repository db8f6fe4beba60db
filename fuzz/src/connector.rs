//! Targets for what the resume connector reads: frames and answers of a broker (or of somebody in
//! its place), commits of its client, and URIs.

use std::rc::Rc;

use resume_machine::{Connector, Frames, Header, Kind, Limits, Options, Packet, Phase, header};
use serde_json::{Value, json};

use super::{document, text};

/// How much room a header alone may get, in bytes.
const ROOM_MAX: usize = 128 << 10;
/// Input up to this size is also read in small steps, in bytes.
const SLOWLY_MAX: usize = 2048;
/// The matchtag of the client's request.
const TAG: u32 = 5;

/// A message in memory.
#[derive(Clone)]
struct Message {
    kind: Kind,
    topic: Rc<str>,
    matchtag: u32,
    errnum: i32,
    payload: Rc<[u8]>,
    hops: Vec<String>,
}

impl Message {
    fn new(kind: Kind, topic: &str, matchtag: u32, errnum: i32, payload: &[u8]) -> Self {
        let (topic, payload) = (topic.into(), payload.into());
        Self { kind, topic, matchtag, errnum, payload, hops: Vec::new() }
    }

    fn request_of_client(topic: &str, tag: u32, payload: &[u8]) -> Self {
        Self::new(Kind::Request, topic, tag, 0, payload)
    }

    fn response(&self, errnum: i32, payload: &[u8]) -> Self {
        Self::new(Kind::Response, &self.topic, self.matchtag, errnum, payload)
    }
}

impl Packet for Message {
    fn header(&self) -> Header<'_> {
        let (kind, topic, matchtag, errnum) = (self.kind, &*self.topic, self.matchtag, self.errnum);
        let streaming = topic == "kvs-watch.lookup";
        Header { kind, topic, matchtag, errnum, noresponse: false, streaming, rank: 0 }
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn size(&self) -> usize {
        self.topic.len() + self.payload.len() + 20
    }

    fn request(topic: &str, matchtag: u32, _rank: u32, payload: &str) -> Self {
        Self::request_of_client(topic, matchtag, payload.as_bytes())
    }

    fn with_payload(&self, payload: &str) -> Self {
        Self { payload: payload.as_bytes().into(), ..self.clone() }
    }

    fn to_rank(&self, _rank: u32) -> Self {
        self.clone()
    }

    fn answer(&self, payload: &str) -> Self {
        self.response(0, payload.as_bytes())
    }

    fn refusal(&self, errnum: i32, text: &str) -> Self {
        self.response(errnum, text.as_bytes())
    }

    fn respond(&self, response: &Self) -> Self {
        let answer = self.response(response.errnum, &response.payload);
        Self { hops: self.hops.clone(), ..answer }
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

    fn is_trusted(&self) -> bool {
        true
    }

    fn push_hop(&mut self, hop: &str) {
        self.hops.push(hop.to_string());
    }

    fn pop_hop(&mut self, prefix: &str) -> Option<String> {
        self.hops.pop_if(|hop| hop.starts_with(prefix)).map(|hop| hop[prefix.len()..].to_string())
    }
}

type Client = Connector<Message>;

fn client() -> Client {
    Connector::new(7, Limits::default(), true, 0.0)
}

fn send(client: &mut Client, topic: &str, tag: u32, payload: &[u8]) {
    let taken = client.send(0.0, Message::request_of_client(topic, tag, payload));
    assert_eq!(taken, Ok(()), "there is room for one request");
}

fn for_broker(client: &mut Client) -> Vec<Message> {
    std::iter::from_fn(|| client.for_broker()).collect()
}

fn for_client(client: &mut Client) -> Vec<Message> {
    std::iter::from_fn(|| client.for_client()).collect()
}

/// Takes the only message for the broker, which must have this topic.
fn asked(client: &mut Client, topic: &str) -> Message {
    let mut all = for_broker(client);
    assert!(all.len() == 1 && &*all[0].topic == topic, "no {topic} alone");
    all.remove(0)
}

/// The connection is lost, and the broker is back in state RUN.
fn come_back(client: &mut Client) {
    client.lost(1.0);
    client.connected();
    let greeting = asked(client, "state-machine.wait");
    client.receive(2.0, greeting.response(0, b"{}"));
}

/// Frames, as they come over the socket.
pub fn frames(data: &[u8]) -> bool {
    let (messages, read) = unframed(data, data.len().max(1));
    for step in [1, 7] {
        if data.len() <= SLOWLY_MAX {
            assert_eq!(unframed(data, step), (messages.clone(), read), "in steps of {step}");
        }
    }
    let mut again = Vec::new();
    for message in &messages {
        again.extend_from_slice(&header(message.len()));
        again.extend_from_slice(message);
    }
    assert_eq!(again, data[..again.len()]);
    read == Ok(()) && !messages.is_empty() && again.len() == data.len()
}

/// The messages in `data`, read in steps, and an error if something else comes after them.
fn unframed(data: &[u8], step: usize) -> (Vec<Vec<u8>>, Result<(), resume_machine::Malformed>) {
    let (mut frames, mut messages, mut rest) = (Frames::default(), Vec::new(), data);
    loop {
        match frames.next_message() {
            Ok(Some(message)) => {
                messages.push(message.to_vec());
                continue;
            }
            Ok(None) => (),
            Err(malformed) => return (messages, Err(malformed)),
        }
        let room = frames.room();
        assert!(!room.is_empty() && room.len() <= ROOM_MAX.max(2 * data.len()), "{}", room.len());
        if rest.is_empty() {
            return (messages, Ok(()));
        }
        let (now, later) = rest.split_at(room.len().min(step).min(rest.len()));
        room[..now.len()].copy_from_slice(now);
        frames.filled(now.len());
        rest = later;
    }
}

/// A watched log. The first line says after how many entries the connection is lost. Each other
/// line is an entry. An empty line is the end of the entries that exist at first.
pub fn watch(data: &[u8]) -> bool {
    let mut lines = data.split(|byte| *byte == b'\n');
    let Some(before) = lines.next().and_then(text).and_then(|n| n.parse::<usize>().ok()) else {
        return false;
    };
    let log: Vec<&[u8]> = lines.collect();
    let mut client = client();
    send(&mut client, "kvs-watch.lookup", TAG, br#"{"flags":260}"#);
    let request = asked(&mut client, "kvs-watch.lookup");
    for entry in log.iter().take(before) {
        client.receive(0.5, request.response(0, entry));
    }
    let mut given = for_client(&mut client);
    come_back(&mut client);
    let request = asked(&mut client, "kvs-watch.lookup");
    for entry in &log {
        client.receive(3.0, request.response(0, entry));
    }
    given.append(&mut for_client(&mut client));
    let mut is_first = true;
    let once = |entry: &&&[u8]| !entry.is_empty() || std::mem::take(&mut is_first);
    let expected: Vec<&[u8]> = log.iter().filter(once).copied().collect();
    let given: Vec<&[u8]> = given.iter().map(|message| &*message.payload).collect();
    assert_eq!(given, expected, "each entry once, in order");
    client.receive(4.0, request.response(61, b""));
    assert_eq!(for_client(&mut client).len(), 1, "the watch has ended");
    assert_eq!(client.retained(), 0);
    before <= log.len()
}

/// A commit of the client. It gets a number, and is the same when it is made again.
pub fn commit(data: &[u8]) -> bool {
    let mut client = client();
    send(&mut client, "kvs.commit", TAG, data);
    let sent = asked(&mut client, "kvs.commit");
    if *sent.payload == *data {
        // It got no number. When the connection is lost it is asked again or refused.
        come_back(&mut client);
        let answers = for_client(&mut client).len();
        assert_eq!(for_broker(&mut client).len() + answers, 1, "asked again, or refused");
        return false;
    }
    // The connector passes on some JSON that serde_json cannot read here, because it is deep or has
    // huge numbers.
    if let Some(original) = document(data) {
        let numbered = document(&sent.payload).expect("JSON that we wrote");
        let (own, theirs) = numbered["ops"].as_array().and_then(|ops| ops.split_last()).unwrap();
        assert!(own["key"].as_str().is_some_and(|key| !resume_machine::is_users(key)));
        assert_eq!(original["namespace"], numbered["namespace"]);
        assert_eq!(original["flags"], numbered["flags"]);
        assert_eq!(original["ops"].as_array().map(Vec::as_slice), Some(theirs));
    }
    come_back(&mut client);
    look(&mut client, br#"{"val":null,"rootref":"x","rootseq":1}"#);
    let again = asked(&mut client, "kvs.commit");
    assert_eq!(again.payload, sent.payload, "the very same");
    client.receive(5.0, again.response(0, b"{}"));
    assert_eq!(for_client(&mut client).len(), 1);
    true
}

/// Answers the questions about the client's commits that a broker gets when it is back.
fn look(client: &mut Client, found: &[u8]) {
    let fence = asked(client, "kvs.commit");
    client.receive(3.0, fence.response(0, b"{}"));
    let look = asked(client, "kvs.lookup-plus");
    client.receive(4.0, look.response(0, found));
}

/// The answer of a broker that is back about the last commit that it has. Each of the client's
/// commits is made again or answered.
pub fn found(data: &[u8]) -> bool {
    let mut client = client();
    let payload = json!({ "namespace": "job-1", "flags": 0, "ops": [] }).to_string();
    for tag in 1..=3 {
        send(&mut client, "kvs.commit", tag, payload.as_bytes());
    }
    for_broker(&mut client);
    come_back(&mut client);
    look(&mut client, data);
    let (answers, again) = (for_client(&mut client), for_broker(&mut client));
    let tags = answers.iter().chain(&again).map(|message| message.matchtag);
    let tags: Vec<u32> = tags.collect();
    assert_eq!(tags, [1, 2, 3], "each once, and in order");
    assert_eq!(*client.phase(), Phase::Live);
    for answer in answers.iter().filter(|answer| answer.errnum == 0) {
        let answer: Value = document(&answer.payload).expect("JSON that we wrote");
        assert!(answer["rootref"].is_string() && answer["rootseq"].is_i64(), "{answer}");
    }
    answers.iter().all(|answer| answer.errnum == 0)
}

/// The part of a URI after the scheme. The next two lines are environment variables.
pub fn options(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let mut lines = text.split('\n');
    let uri = lines.next().unwrap_or_default();
    match Options::read(uri, lines.next(), lines.next()) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
        Ok(options) => {
            assert!(options.limits.give_up_after >= 0.0);
            assert!(uri.starts_with(options.path) && !options.path.contains('?'));
            let seconds = options.limits.give_up_after;
            let again = format!("{}?timeout={seconds}", options.path);
            let again = Options::read(&again, None, None).map(|again| again.limits.give_up_after);
            assert!(again == Ok(seconds), "{seconds} is read as {again:?}");
            true
        }
    }
}

//! A target that sends any message to a whole service in the simulator.
//!
//! The input is a script: one byte for the faults (`c` calm, `d` all of them), two for the seed,
//! then messages. Each has a byte for its time, its rank, its topic, its sender and its form;
//! the form says what the payload is made of, and takes more bytes. Bytes that are missing are 0.

use job_exec_rs::machine::{Credential, Topic};
use job_exec_rs_simulator::{Heard, Outcome, Profile, Sent, run, run_with};
use serde_json::{Value, json};

const MESSAGES: &str = include_str!("../../rfc/0002-messages.md");

/// The size of the world.
const RANKS: u32 = 3;
const JOBS: u32 = 3;
const SECONDS: f64 = 20.0;
/// The instance's owner in the world.
const OWNER: u32 = 1;
/// How many messages are sent at most.
const MESSAGES_MAX: usize = 64;
/// Ids are this far apart (`FLUID`s, RFC 19).
const ID_SHIFT: u32 = 24;

/// Numbers at which code could overflow or reach a limit.
const EDGES: [u64; 12] = [
    63,
    64,
    65,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 53,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Runs the service with messages. Nothing may panic, and no invariant may break. If all messages
/// were refused at once, the run must be the same as without them.
pub fn service(data: &[u8]) -> bool {
    let Some((seed, profile, messages)) = script(data) else { return false };
    let outcome = run_with(seed, &profile, messages.clone(), false);
    if outcome.undisturbed {
        let alone = run(seed, &profile, &Default::default(), false);
        assert_eq!(outcome.told, alone.told, "what was refused has changed what jobs are told");
        assert_eq!(outcome.violations, alone.violations);
    } else if let Some(violation) = outcome.violations.first() {
        panic!("{violation}");
    }
    for (sent, heard) in messages.iter().zip(&outcome.heard) {
        check(sent, *heard, &outcome);
    }
    true
}

fn check(sent: &Sent, heard: Heard, outcome: &Outcome) {
    if !outcome.violations.is_empty() {
        // The seed breaks an invariant without these messages, too, so the world has stopped early.
        return;
    }
    if !sent.credential.owner && !sent.topic.is_for_users() {
        let away = matches!(heard, Heard::Silence | Heard::Refused(libc::ENOSYS));
        assert!(away || heard == Heard::Refused(libc::EPERM), "{sent:?}: {heard:?}");
    }
    if let Heard::Refused(errnum) = heard {
        assert!(errnum > 0, "{sent:?} is refused without a reason");
    }
}

fn script(data: &[u8]) -> Option<(u64, Profile, Vec<Sent>)> {
    let mut bytes = Bytes(data.get(3..)?);
    let name = match data[0] {
        b'c' => "calm",
        b'd' => "default",
        _ => return None,
    };
    let profile = Profile { ranks: RANKS, jobs: JOBS, seconds: SECONDS, ..Profile::named(name)? };
    let seed = u64::from(u16::from_le_bytes([data[1], data[2]]));
    let mut messages = Vec::new();
    while !bytes.0.is_empty() && messages.len() < MESSAGES_MAX {
        messages.push(message(&mut bytes));
    }
    (!messages.is_empty()).then_some((seed, profile, messages))
}

fn message(bytes: &mut Bytes) -> Sent {
    let at = f64::from(bytes.byte()) / 256.0 * SECONDS;
    let rank = u32::from(bytes.byte()) % RANKS;
    let topic = any_topic(bytes);
    let credential = match bytes.byte() {
        0 => Credential { userid: OWNER, owner: true, local: true },
        // FLUX_USERID_UNKNOWN.
        255 => Credential { userid: u32::MAX, owner: false, local: true },
        // The owner's user id without the owner's role, and guests with and without jobs.
        userid => Credential { userid: OWNER + u32::from(userid) % 4, owner: false, local: true },
    };
    let payload = payload(topic, bytes);
    Sent { at, rank, topic, credential, payload }
}

fn any_topic(bytes: &mut Bytes) -> Topic {
    Topic::of_byte(bytes.byte())
}

fn payload(topic: Topic, bytes: &mut Bytes) -> Vec<u8> {
    match bytes.byte() % 7 {
        0 => {
            let size = usize::from(u16::from_le_bytes([bytes.byte(), bytes.byte()]));
            bytes.take(size).to_vec()
        }
        1 => text(&template(topic, bytes)),
        2 => {
            let other = any_topic(bytes);
            text(&template(other, bytes))
        }
        3 => {
            let mut text = text(&template(topic, bytes));
            let (at, byte) = (bytes.byte(), bytes.byte());
            let size = text.len();
            text[usize::from(at) % size] = byte;
            text
        }
        4 => {
            let mut text = text(&template(topic, bytes));
            text.truncate(usize::from(bytes.byte()));
            text
        }
        5 => {
            let depth = usize::from(bytes.byte()) * 4;
            let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            with_member(topic, &deep, bytes)
        }
        _ => {
            let long = "y".repeat(usize::from(bytes.byte()) * 64);
            with_member(topic, &format!("\"{long}\""), bytes)
        }
    }
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// A template with an additional member, whose name may occur already.
fn with_member(topic: Topic, member: &str, bytes: &mut Bytes) -> Vec<u8> {
    let names = ["x", "id", "jobspec", "R", "order", "ranks", "command", "version"];
    let name = names[usize::from(bytes.byte()) % names.len()];
    let template = template(topic, bytes).to_string();
    let rest = template.trim_start_matches('{');
    // The member comes first or last, because of two with one name some readers take the first.
    match bytes.byte() % 2 {
        0 => format!("{{\"{name}\":{member},{rest}"),
        _ => format!("{},\"{name}\":{member}}}", template.trim_end_matches('}')),
    }
    .into_bytes()
}

/// A message as the real senders of a topic make it, with numbers from the input.
fn template(topic: Topic, bytes: &mut Bytes) -> Value {
    let id = bytes.id();
    match topic {
        Topic::Covered => {
            json!({ "version": bytes.version(), "id": id, "digest": "d", "mark": bytes.number(),
                    "ended": bytes.flag() })
        }
        Topic::CriticalRanks => json!({ "id": id, "ranks": bytes.ranks() }),
        Topic::Degraded => json!({ "id": id, "reason": bytes.ranks() }),
        Topic::Expiration => json!({ "id": id, "expiration": bytes.seconds() }),
        Topic::KeepCommits => {
            let commit = json!({ "flags": bytes.number(), "ops": [] });
            let commits = json!([{ "number": bytes.number(), "commit": commit }]);
            json!({ "id": id, "client": "0011223344556677", "commits": commits })
        }
        Topic::Known => {
            let question = match bytes.byte() % 4 {
                0 => json!("manager"),
                1 => json!("parent"),
                2 => json!({ "request": { "from": bytes.number(), "stream": bytes.number() } }),
                _ => json!({ "leader": { "generation": bytes.number() } }),
            };
            json!({ "version": bytes.version(), "id": id, "digest": "d", "question": question })
        }
        Topic::Lead => {
            json!({ "version": bytes.version(), "stream": 7, "start": start(id, bytes) })
        }
        Topic::Order => {
            let order = match bytes.byte() % 4 {
                0 => json!("forget"),
                1 => json!({ "signal": { "signal": bytes.number(), "all": bytes.flag() } }),
                2 => json!({ "barrier": { "count": bytes.number(), "failed": bytes.flag() } }),
                _ => json!({ "acknowledge": { "stream": "stdout", "offset": bytes.number() } }),
            };
            json!({ "version": bytes.version(), "id": id, "digest": "d", "generation": bytes.number(),
                    "ranks": bytes.ranks(), "order": order })
        }
        Topic::Override => {
            let event = if bytes.flag() { "start" } else { "finish" };
            json!({ "jobid": id, "event": event, "status": bytes.number() })
        }
        Topic::PerilogRelease => {
            json!({ "id": id, "ranks": bytes.ranks(), "drain": bytes.flag(), "kill": bytes.flag() })
        }
        Topic::ShellBarrier => match bytes.flag() {
            true => json!({ "id": id, "rank": bytes.number(), "entry": bytes.number() }),
            false => json!({ "id": id, "rank": bytes.number() }),
        },
        Topic::Shells => json!({
            "version": bytes.version(), "stream": 7, "id": id, "parent": bytes.number(), "leader": bytes.number(),
            "issued": bytes.seconds(), "generation": bytes.number(), "ranks": bytes.ranks(),
            "arity": bytes.number(), "mode": if bytes.flag() { "start" } else { "adopt" },
            "command": {"userid": bytes.number(), "size": bytes.number(), "multiuser": bytes.flag(),
                        "digest": "d", "argv": [], "environment": {}},
        }),
        Topic::Start => start(id, bytes),
        // What has no template of its own.
        _ => example(topic, id),
    }
}

/// The request as the specification shows it.
fn example(topic: Topic, id: u64) -> Value {
    let begin = format!("```json {}\n", topic.name());
    let (_, example) = MESSAGES.split_once(&begin).expect("an example of each topic");
    let (example, _) = example.split_once("```").expect("its end");
    let mut example: Value = serde_json::from_str(example).expect("JSON");
    example["id"] = json!(id);
    example
}

fn start(id: u64, bytes: &mut Bytes) -> Value {
    let jobspec = match bytes.byte() % 4 {
        0 => json!({}),
        1 => json!({"attributes": {"system": {"duration": bytes.seconds()}}}),
        2 => json!({"attributes": {"system": {"exec": {"job_shell": bytes.ranks()}}}}),
        _ => json!(bytes.number()),
    };
    let ranks = bytes.ranks();
    let hosts: Vec<String> = (0..bytes.byte() % 4).map(|n| format!("n{n}")).collect();
    json!({
        "id": id, "userid": bytes.number(), "jobspec": jobspec, "reattach": bytes.flag(),
        "R": {"version": 1, "execution": {
            "R_lite": [{"rank": ranks, "children": {"core": "0"}}],
            "nodelist": hosts, "starttime": bytes.seconds(), "expiration": bytes.seconds()}},
    })
}

/// The rest of the input.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    fn take(&mut self, size: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(size.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// A small number, one of [`EDGES`], or any number.
    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            byte @ 200.. => EDGES[usize::from(byte - 200) % EDGES.len()],
            byte => u64::from(byte),
        }
    }

    /// The id of one of the world's jobs, an id that a job could have, or any number.
    fn id(&mut self) -> u64 {
        match self.byte() {
            byte @ ..100 => u64::from(byte) << ID_SHIFT,
            _ => self.number(),
        }
    }

    /// Mostly the version of the messages between modules.
    fn version(&mut self) -> u64 {
        match self.byte() {
            ..200 => u64::from(job_exec_rs::proto::peer::VERSION),
            _ => self.number(),
        }
    }

    /// A time near the world's, or far from it, in seconds.
    fn seconds(&mut self) -> f64 {
        match self.byte() {
            0 => 0.0,
            byte @ ..100 => 1e9 + f64::from(byte),
            100 => -1.0,
            101 => f64::MAX,
            102 => f64::MIN_POSITIVE,
            _ => self.number() as f64,
        }
    }

    /// An idset, or a text that could be taken for one.
    fn ranks(&mut self) -> String {
        match self.byte() % 6 {
            0 => self.byte().to_string(),
            1 => format!("{}-{}", self.byte() % 4, self.byte() % 4),
            2 => format!("[{}-{}]", self.byte(), self.number()),
            3 => vec![self.byte().to_string(); usize::from(self.byte()) * 64].join(","),
            4 => {
                let size = usize::from(self.byte());
                String::from_utf8_lossy(self.take(size)).into_owned()
            }
            _ => "0,".repeat(usize::from(self.byte()) << 14),
        }
    }
}

//! The messages of `rfc/0002-messages.md`: what reads their examples, and what its tables say.

use std::collections::BTreeSet;

use job_exec_rs::config::Config;
use job_exec_rs::machine::{Credential, Event, RequestId, Topic};
use job_exec_rs::proto::peer::{
    CoveredRequest, KnownAnswer, KnownRequest, LeadNote, LeadReply, LeadRequest, Mode, Order,
    OrderRequest, Question, Report, Reports, ShellsRequest, StreamEnd, VERSION, decode,
};
use job_exec_rs::proto::{
    BarrierEntry, DegradedNodes, JobDigest, JobException, JobId, ResourceSet, Response,
    StartRequest, format_fsd,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Reader, documents, examples, read, report};

/// The reader of each example, by the name of its block.
pub(super) const READERS: &[(&str, Reader)] = &[
    ("checkpoint", |example| from_user(Topic::Checkpoint, example)),
    ("config-reload", config_reload),
    ("covered", request::<CoveredRequest>),
    ("critical-ranks", |example| from_user(Topic::CriticalRanks, example)),
    ("degraded", |example| from_user(Topic::Degraded, example)),
    ("digest", digest),
    ("expiration", |example| from_user(Topic::Expiration, example)),
    ("job-exception", typed::<JobException>),
    ("keep-commits", |example| from_user(Topic::KeepCommits, example)),
    ("known-answer", typed::<KnownAnswer>),
    ("known-manager", request::<KnownRequest>),
    ("known-questions", typed::<Vec<Question>>),
    ("lead", request::<LeadRequest>),
    ("lead-later", request::<LeadRequest>),
    ("lead-replies", typed::<Vec<LeadReply>>),
    ("order", request::<OrderRequest>),
    ("orders", typed::<Vec<Order>>),
    ("node-degraded", typed::<DegradedNodes>),
    ("override", |example| from_user(Topic::Override, example)),
    ("perilog-release", |example| from_user(Topic::PerilogRelease, example)),
    ("reports", typed::<Reports>),
    ("responses", responses),
    ("shell-barrier", |example| from_user(Topic::ShellBarrier, example)),
    ("shell-runs", |example| from_user(Topic::ShellRuns, example)),
    ("shells", request::<ShellsRequest>),
    ("start", start),
    ("stats-get", super::node::stats),
    ("stream-ends", stream_ends),
];

fn typed<T: DeserializeOwned + Serialize>(example: &Value) -> Result<Value, String> {
    Ok(json!(read::<T>(example)?))
}

/// A request between the modules, which begins with its version.
fn request<T: DeserializeOwned + Serialize>(example: &Value) -> Result<Value, String> {
    let request: T = decode(example.to_string().as_bytes()).map_err(|e| e.to_string())?;
    let text = serde_json::to_string(&request).map_err(|e| e.to_string())?;
    if text.starts_with(&format!("{{\"version\":{VERSION},")) {
        Ok(json!(request))
    } else {
        Err("its first member is not the version".to_string())
    }
}

/// With the id, as `Response::encode` writes it for the job manager.
fn responses(example: &Value) -> Result<Value, String> {
    let encode = |response: &Value| {
        let id: JobId = read(&response["id"])?;
        Ok(read::<Response>(response)?.encode(id))
    };
    example.as_array().ok_or("not an array")?.iter().map(encode).collect()
}

fn start(example: &Value) -> Result<Value, String> {
    let start = StartRequest::read(example.to_string().as_bytes()).map_err(|e| e.to_string())?;
    let jobspec = start.jobspec.map_err(|e| e.to_string())?;
    let bulkexec = json!({ "barrier-timeout": jobspec.barrier_timeout.map(|s| s as u64) });
    Ok(json!({
        "id": start.id,
        "userid": start.userid,
        "jobspec": { "attributes": { "system": { "exec": { "bulkexec": bulkexec } } } },
        "R": start.r,
        "reattach": start.reattach,
    }))
}

/// A request that only the service reads.
fn from_user(topic: Topic, example: &Value) -> Result<Value, String> {
    let credential = Credential { userid: 1000, owner: false, local: true };
    let payload = example.to_string();
    let event = topic.read(RequestId::Remote(1), credential, payload.as_bytes());
    Ok(match event.map_err(|e| e.to_string())? {
        Event::CheckpointAsked { id, .. } => json!({ "id": id }),
        Event::ShellRuns { id, rank, .. } => json!({ "id": id, "rank": rank }),
        Event::CriticalRanks { id, ranks, .. } => json!({ "id": id, "ranks": ranks }),
        Event::Degraded { degraded, .. } => json!(degraded),
        Event::Expiration { id, expiration, .. } => json!({ "id": id, "expiration": expiration }),
        Event::KeepCommits { id, bequest, .. } => {
            let mut read = json!(&*bequest);
            read["id"] = json!(id);
            read
        }
        Event::Override { id, event, status, .. } => {
            json!({ "jobid": id, "event": event, "status": status })
        }
        Event::PerilogRelease { release, .. } => json!(release),
        Event::ShellBarrier { id, rank, entry, .. } => {
            let BarrierEntry { number, client } = entry.ok_or("without an entry")?;
            json!({ "id": id, "rank": rank, "entry": number, "client": client })
        }
        other => return Err(format!("read as {other:?}")),
    })
}

fn config_reload(example: &Value) -> Result<Value, String> {
    let config = Config::new(example, &[]).map_err(|e| e.to_string())?;
    let timeout = format_fsd(config.kill_timeout);
    Ok(json!({ "exec": { "kill-timeout": timeout, "fanout": config.fanout } }))
}

/// The error response and the name of each end.
fn stream_ends(example: &Value) -> Result<Value, String> {
    let again = |line: &Value| {
        let named: StreamEnd = read(&line["end"])?;
        let heard = StreamEnd::from_error(read(&line["errnum"])?, read(&line["text"])?);
        if heard != named {
            return Err(format!("{line} is heard as {heard:?}"));
        }
        Ok(json!({ "errnum": heard.errnum(), "text": heard.to_string(), "end": heard }))
    };
    example.as_array().ok_or("not an array")?.iter().map(again).collect()
}

/// The texts, the bytes that are hashed, and the hash, without the code that makes digests.
fn digest(example: &Value) -> Result<Value, String> {
    let (id, userid): (JobId, u32) = (read(&example["id"])?, read(&example["userid"])?);
    let r: ResourceSet = read(&example["R"])?;
    let mut sorted = example["R"].clone();
    sorted["execution"].as_object_mut().ok_or("no execution")?.remove("expiration");
    sorted.sort_all_objects();
    let texts = [id.0.to_string(), userid.to_string(), sorted.to_string()];
    let with_length = |text: &String| {
        let length = (text.len() as u64).to_be_bytes();
        length.into_iter().chain(text.bytes()).collect::<Vec<u8>>()
    };
    let hashed: Vec<u8> = texts.iter().flat_map(with_length).collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let digest = JobDigest::new(id, userid, &r);
    if digest.as_str() != hex(&Sha256::digest(&hashed)) {
        return Err(format!("the digest is {digest}"));
    }
    Ok(json!({
        "id": id, "userid": userid, "R": r, "texts": texts, "hashed": hex(&hashed),
        "digest": digest,
    }))
}

/// The text of the document.
fn document() -> String {
    documents().remove("0002-messages.md").expect("a document")
}

/// Rows of the table with this beginning of its header, as cells.
fn rows(header: &str) -> Vec<Vec<String>> {
    let text = document();
    let (_, table) = text.split_once(&format!("\n| {header} |")).expect(header);
    let cells = |line: &str| {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_string()).collect()
    };
    table.lines().skip(2).take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn name(cell: &str) -> String {
    cell.trim_matches('`').to_string()
}

/// The values that a type knows, by the error for one that it does not know.
fn values<T: DeserializeOwned>(unknown: &Value) -> BTreeSet<String> {
    let error = read::<T>(unknown).err().expect("there is no such value");
    error.split('`').skip(3).step_by(2).map(str::to_string).collect()
}

/// The names of values that are strings, or objects with one member.
fn names(values: &Value) -> BTreeSet<String> {
    let name = |value: &Value| match value {
        Value::Object(object) => object.keys().next().cloned(),
        value => value.as_str().map(str::to_string),
    };
    values.as_array().into_iter().flatten().filter_map(name).collect()
}

/// What each element of an example has as this member.
fn column(example: &Value, member: &str) -> Value {
    example.as_array().into_iter().flatten().map(|line| line[member].clone()).collect()
}

/// [malformed-refused]
#[test]
fn every_value_is_in_its_table_and_has_an_example() {
    let (unknown, examples) = (json!("?"), examples());
    let reply = json!({ "type": "?", "data": {} });
    let replies = names(&column(&examples["lead-replies"], "type"));
    let (responses, notes) = (values::<Response>(&reply), values::<LeadNote>(&reply));
    assert_eq!(responses.union(&notes).cloned().collect::<BTreeSet<_>>(), replies);
    let reports = column(&examples["reports"]["reports"], "report");
    let ends = column(&examples["stream-ends"], "end");
    for (header, known, shown) in [
        ("Response", responses.clone(), responses),
        ("Note", notes.clone(), notes),
        ("Mode", values::<Mode>(&unknown), values::<Mode>(&unknown)),
        ("Report", values::<Report>(&unknown), names(&reports)),
        ("Order", values::<Order>(&unknown), names(&examples["orders"])),
        ("Question", values::<Question>(&unknown), names(&examples["known-questions"])),
        ("End | errno", values::<StreamEnd>(&unknown), names(&ends)),
    ] {
        let listed: BTreeSet<String> = rows(header).iter().map(|row| name(&row[0])).collect();
        assert_eq!(listed, known, "the table of {header}, and what the code knows");
        assert_eq!(shown, known, "{header}: the example, and what the code knows");
    }
}

/// Tables of members: the heading above, what stands before the types, the example with all of
/// them, and where in it they are.
const MEMBERS: &[(&str, &str, &str, &str)] = &[
    ("## 2.2 lead", "Member", "lead-later", ""),
    ("## 2.2 lead", "Member of `start`", "lead-later", "/start"),
    ("## 2.3 shells", "Member", "shells", ""),
    ("## 2.3 shells", "Member of `command`", "shells", "/command"),
    ("## 2.4 order", "Member", "order", ""),
    ("## 2.5 known", "Member", "known-manager", ""),
    ("## 2.6 covered", "Member", "covered", ""),
    ("### start", "Member", "start", ""),
    ("### expiration", "Member", "expiration", ""),
    ("### job-exception", "Member", "job-exception", ""),
];

/// [malformed-refused]
#[test]
fn only_members_with_a_default_can_be_left_out() {
    let (text, examples) = (document(), examples());
    let mut found = Vec::new();
    for (heading, header, example, pointer) in MEMBERS {
        let (_, section) = text.split_once(&format!("\n{heading}\n")).expect(heading);
        let header = format!("| {header} | Type | Default | Meaning |");
        let (_, table) = section.split_once(&header).expect(heading);
        let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let table: Vec<Vec<&str>> = lines
            .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
            .collect();
        let whole = &examples[*example];
        let members = whole.pointer(pointer).and_then(Value::as_object).expect(example);
        let listed: BTreeSet<String> = table.iter().map(|row| name(row[0])).collect();
        assert_eq!(listed, members.keys().cloned().collect(), "{heading}: table and example");
        let (_, reader) = READERS.iter().find(|(name, _)| name == example).expect(example);
        for row in table {
            let mut without = whole.clone();
            let object = without.pointer_mut(pointer).and_then(Value::as_object_mut);
            object.expect(example).remove(&name(row[0]));
            if reader(&without).is_err() != (row[2] == "required") {
                found.push(format!("{heading}: {} is {}", row[0], row[2]));
            }
        }
    }
    report(&found);
}

/// [members-ignored]
#[test]
fn a_member_that_is_not_known_is_ignored() {
    let objects = [
        ("checkpoint", ""),
        ("covered", ""),
        ("critical-ranks", ""),
        ("expiration", ""),
        ("job-exception", ""),
        ("known-answer", ""),
        ("known-manager", ""),
        ("lead-later", ""),
        ("lead-later", "/exception"),
        ("lead-later", "/start"),
        ("lead-later", "/start/jobspec/refused"),
        ("lead-replies", "/0"),
        ("lead-replies", "/0/data"),
        ("order", ""),
        ("order", "/order/signal"),
        ("reports", ""),
        ("reports", "/reports/0"),
        ("reports", "/reports/4/report/barrier"),
        ("responses", "/1/data"),
        ("shell-barrier", ""),
        ("shells", ""),
        ("shells", "/command"),
        ("shells", "/output/0"),
        ("start", ""),
    ];
    let examples = examples();
    for (example, pointer) in objects {
        let mut later = examples[example].clone();
        let object = later.pointer_mut(pointer).and_then(Value::as_object_mut);
        object.expect(example).insert("of-a-later-release".to_string(), json!({ "x": [1] }));
        let (_, reader) = READERS.iter().find(|(name, _)| *name == example).expect(example);
        assert_eq!(reader(&later), Ok(examples[example].clone()), "{example}{pointer}");
    }
    let mut two = examples["order"].clone();
    two["order"]["forget"] = json!(null);
    assert!(request::<OrderRequest>(&two).is_err(), "two orders in one");
}

/// [digest-bytes]
#[test]
fn numbers_and_strings_of_a_digest_are_written_as_the_document_says() {
    let written = |text: &str| serde_json::from_str::<Value>(text).expect("JSON").to_string();
    for (text, expected) in [
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "1.8446744073709552e+19"),
        ("1.0", "1.0"),
        ("1e0", "1.0"),
        ("1731331100.250", "1731331100.25"),
        ("1e15", "1000000000000000.0"),
        ("1e16", "1e+16"),
        ("1e-5", "0.00001"),
        ("1.5e-7", "1.5e-7"),
        (
            r#""\u001f\u0008\f\n\r\t\"\\\/\u00e9\u007f""#,
            "\"\\u001f\\b\\f\\n\\r\\t\\\"\\\\/é\u{7f}\"",
        ),
    ] {
        assert_eq!(written(text), expected, "{text}");
    }
}

/// Who may send it is said where administrators look for it, and what it is like.
#[test]
fn each_request_has_its_rows() {
    let text = |name: &str| documents().remove(name).expect("a chapter");
    let (security, messages) = (text("0011-security.md"), text("0002-messages.md"));
    let row = |name: &str| {
        let mut rows = security.lines().filter(|line| line.starts_with("| `"));
        rows.find(|line| line.split(" | ").next().is_some_and(|cell| cell.contains(name)))
    };
    let own =
        messages.lines().find(|line| line.starts_with("**[guest-own-job]**")).expect("a rule");
    let owners = messages.lines().find(|line| line.starts_with("**[owner-only]**"));
    let owners = owners.expect("a rule");
    let listed: BTreeSet<String> = rows("Topic | Sender").iter().map(|row| name(&row[0])).collect();
    for topic in Topic::ALL {
        assert!(listed.contains(topic.name()), "{} is not in the table of 2.1", topic.name());
        let name = format!("`{}`", topic.name());
        let row = row(&name).unwrap_or_else(|| panic!("{name} has no row in rfc/0011"));
        assert_eq!(row.contains(" | owner | "), !topic.is_for_users(), "{row}");
        assert_eq!(owners.contains(&name), !topic.is_for_users(), "{name}: {owners}");
        // Of `degraded` rfc/0012 says who may send it.
        let is_named = own.contains(&name) || name == "`degraded`";
        assert_eq!(is_named, topic.is_for_users(), "{name}: {own}");
        let block = format!("```json {}", topic.name());
        assert!(messages.lines().any(|line| line.starts_with(&block)), "{name} has no example");
    }
}

//! One target for each parser of external input. None may panic, need much memory for little text,
//! or print a value that it reads back differently. A target returns whether its input could be
//! read.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::str::FromStr;

use job_exec_rs::adapter::systemd::decode_properties;
use job_exec_rs::config::Config;
use job_exec_rs::port::supervisor::{Limits, UnitSpec};
use job_exec_rs::proto::{
    ExecEvent, Hostlist, Idset, JobException, JobId, Jobspec, ResourceSet, Response, Signal,
    StartError, StartRequest, UnitName, WallTime, decode_eventlog, format_fsd, parse_fsd, peer,
};
use job_exec_rs::supervisor::tracker::{CallAnswer, News, Tracker};
use job_exec_rs::supervisor::{Backend, parse_record};
use serde::Deserialize;
use serde_json::{Value, json};

#[path = "connector.rs"]
pub mod connector;
/// A private module of the systemd adapter.
#[path = "../../src/adapter/systemd/properties.rs"]
mod properties_of_systemd;
#[path = "service.rs"]
pub mod service;
#[path = "../../src/adapter/systemd/values.rs"]
mod values;

/// A target's function.
pub type Target = fn(&[u8]) -> bool;

/// All targets, by the names of their programs and of their directories in `corpus/`.
pub const ALL: &[(&str, Target)] = &[
    ("arguments", arguments),
    ("changed", changed),
    ("config", config),
    ("connector_commit", connector::commit),
    ("connector_found", connector::found),
    ("connector_frames", connector::frames),
    ("connector_options", connector::options),
    ("connector_watch", connector::watch),
    ("duration", duration),
    ("eventlog", eventlog),
    ("hostlist", hostlist),
    ("idset", idset),
    ("jobspec", jobspec),
    ("peer", peer_message),
    ("properties", properties),
    ("record", record),
    ("rset", rset),
    ("service", service::service),
    ("signal", signal),
    ("start", start),
    ("unit_name", unit_name),
];

/// How many members of a set, or hosts of a list, are looked at one by one.
const LOOKED_AT_MAX: usize = 1000;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

fn document(data: &[u8]) -> Option<Value> {
    serde_json::from_slice(data).ok()
}

/// Writes a value as text and reads it again.
fn sent(value: &Value) -> Value {
    let text = value.to_string();
    let received = serde_json::from_str(&text).expect("JSON that we wrote");
    assert_eq!(&received, value, "{text}");
    received
}

/// Reads a value, prints it, and checks that the text is read as the same value.
fn round_trip<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Option<T>
where
    T::Err: Debug + Display,
{
    match text.parse::<T>() {
        Ok(read) => {
            let printed = read.to_string();
            assert_eq!(printed.parse::<T>().expect("what we printed"), read, "{printed}");
            Some(read)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// Module arguments, one per line.
pub fn arguments(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let arguments: Vec<String> = text.lines().map(str::to_string).collect();
    configuration(&json!({}), &arguments)
}

/// An `[exec]` table.
pub fn config(data: &[u8]) -> bool {
    let Some(exec) = document(data) else { return false };
    configuration(&exec, &[]);
    configuration(&json!({ "exec": exec }), &[])
}

fn configuration(conf: &Value, arguments: &[String]) -> bool {
    match Config::new(conf, arguments) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
        Ok(config) => {
            assert!(config.kill_timeout > 0.0 && config.peer_timeout > 0.0);
            assert!(config.checkpoint_interval > 0.0);
            assert!(config.fanout > 0 && config.starts_in_flight > 0);
            let pauses = [config.barrier_timeout, config.shell_exit_timeout];
            for seconds in pauses.into_iter().chain([config.max_kill_timeout]).flatten() {
                assert!(seconds > 0.0);
            }
            assert!(config.max_start_delay_percent.is_finite());
            let longest = config.effective_max_kill_timeout();
            assert!(longest > 0.0 && longest.is_finite(), "{longest}");
            sent(&config.stats("/shell"));
            true
        }
    }
}

/// A Flux Standard Duration.
pub fn duration(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let Ok(seconds) = parse_fsd(text) else { return false };
    assert!(seconds >= 0.0, "{seconds}");
    let printed = format_fsd(seconds);
    let again = parse_fsd(&printed).unwrap_or_else(|e| panic!("{text:?} as {printed:?}: {e}"));
    // Only six digits are printed.
    let near = (seconds - again).abs() <= seconds * 1e-5 || (seconds - again).abs() < 1e-300;
    assert!(seconds == again || near, "{text:?} as {printed:?}");
    true
}

/// An exec eventlog.
pub fn eventlog(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let Ok(events) = decode_eventlog(text) else { return false };
    let again: String = events.iter().map(ExecEvent::encode).collect();
    assert_eq!(again.lines().count(), events.len());
    assert_eq!(decode_eventlog(&again).expect("what we wrote"), events);
    let logged = events.iter().filter_map(ExecEvent::logged).count();
    assert!(logged <= events.len());
    true
}

/// A hostlist.
pub fn hostlist(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let Some(hosts) = round_trip::<Hostlist>(text) else { return false };
    assert_eq!(hosts.get(0), hosts.iter().next());
    assert_eq!(hosts.get(hosts.len()), None);
    true
}

/// An idset, or two that are separated by a bar.
pub fn idset(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let (first, second) = text.split_once('|').unwrap_or((text, "0-2,7"));
    let Some(a) = round_trip::<Idset>(first) else { return false };
    let Some(b) = round_trip::<Idset>(second) else { return false };
    assert_eq!(a.is_empty(), a.first().is_none());
    for (index, id) in a.iter().take(LOOKED_AT_MAX).enumerate() {
        assert!(a.contains(id));
        assert_eq!((a.nth(index), a.index_of(id)), (Some(id), Some(index)));
    }
    assert_eq!((a.nth(0), a.first()), (a.first(), a.iter().next()));
    assert_eq!((a.nth(a.len()), a.last()), (None, a.iter().next_back()));
    let (both, either) = (a.intersection(&b), a.union(&b));
    assert_eq!(both.len() + either.len(), a.len() + b.len());
    assert_eq!(a.difference(&b).len() + both.len(), a.len());
    if a.len() + b.len() <= LOOKED_AT_MAX {
        against_a_tree(a, b);
    }
    true
}

/// Checks the operations against the standard library's sets.
fn against_a_tree(mut a: Idset, b: Idset) {
    let tree = |set: &Idset| set.iter().collect::<BTreeSet<u32>>();
    let (mut x, y) = (tree(&a), tree(&b));
    assert_eq!(tree(&a.union(&b)), &x | &y);
    assert_eq!(tree(&a.difference(&b)), &x - &y);
    assert_eq!(tree(&a.intersection(&b)), &x & &y);
    assert!(a.iter().rev().eq(x.iter().rev().copied()));
    for (index, id) in b.iter().enumerate() {
        if index % 2 == 0 {
            assert_eq!(a.insert(id), x.insert(id));
        } else {
            assert_eq!(a.remove(id), x.remove(&id));
        }
        assert_eq!((a.len(), a.last()), (x.len(), x.last().copied()));
    }
    a.extend(b.iter());
    x.extend(&y);
    assert_eq!(tree(&a), x);
    assert_eq!(a.to_string(), x.into_iter().collect::<Idset>().to_string());
}

/// A jobspec.
pub fn jobspec(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    match Jobspec::read(text) {
        Ok(jobspec) => {
            assert!(jobspec.barrier_timeout.is_none_or(|seconds| seconds >= 0.0));
            assert!(jobspec.job_shell.as_ref().is_none_or(|path| path.len() < 4096));
            serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("system.exec") && error.len() < 1000, "{error}");
            false
        }
    }
}

/// A message of another module.
pub fn peer_message(data: &[u8]) -> bool {
    let Some(payload) = document(data) else { return false };
    let lead = request::<peer::LeadRequest>(data);
    let shells = request::<peer::ShellsRequest>(data);
    if let Some(shells) = &shells {
        // The agent does the same.
        let _ = shells.command.stop_timeout.map(std::time::Duration::from_secs_f64);
    }
    let others = [
        request::<peer::CoveredRequest>(data).is_some(),
        request::<peer::KnownRequest>(data).is_some(),
        request::<peer::OrderRequest>(data).is_some(),
        response::<peer::LeadReply>(&payload),
        response::<peer::Reports>(&payload),
        response::<JobException>(&payload),
        response::<Response>(&payload),
    ];
    lead.is_some() || shells.is_some() || others.contains(&true)
}

fn request<T>(payload: &[u8]) -> Option<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    match peer::decode::<T>(payload) {
        Ok(message) => {
            let again = json!(message).to_string();
            assert_eq!(peer::decode::<T>(again.as_bytes()).as_ref(), Ok(&message));
            Some(message)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn response<T>(payload: &Value) -> bool
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let Ok(message) = T::deserialize(payload) else { return false };
    let again = T::deserialize(&sent(&json!(message))).expect("what we wrote");
    assert_eq!(again, message);
    true
}

/// Unit properties, one `NAME=VALUE` per line.
pub fn properties(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let table = lines.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    match properties_of_systemd::parse(&table) {
        Ok(properties) => {
            assert!(properties.len() >= table.len());
            assert!(properties.iter().all(|property| !property.name.is_empty()));
            true
        }
        Err(error) => {
            let error = error.to_string();
            assert!(table.keys().any(|name| error.contains(name.as_str())), "{error}");
            false
        }
    }
}

/// The properties of a unit in a D-Bus signal. The tracker gets them while it looks for the unit,
/// and again while it collects the unit.
pub fn changed(data: &[u8]) -> bool {
    let Some(changes) = decode_properties(data) else { return false };
    let unit: UnitName = "shell-0-f2-68714211.service".parse().expect("a unit's name");
    let exec_failure = |_: &UnitSpec, _: Option<i32>, _: &str| (1, String::new());
    let limits = Limits { starts_in_flight: 1, ..Limits::default() };
    let mut tracker = Tracker::new(limits, exec_failure);
    tracker.handle_connected();
    let list = tracker.take_asks().last().map_or(0, |ask| ask.number);
    tracker.handle_news(News::Answer { number: list, answer: Ok(CallAnswer::Listed(Vec::new())) });
    tracker.find(&unit, "digest", None);
    for whole in [false, true] {
        for ask in tracker.take_asks() {
            let answer = Ok(CallAnswer::Properties(changes.clone()));
            tracker.handle_news(News::Answer { number: ask.number, answer });
        }
        tracker.handle_news(News::Changed { unit: unit.clone(), changes: changes.clone(), whole });
        tracker.collect(&unit);
    }
    // There is a start, an exit and an end at most once each. Fewer than eight events show that the
    // tracker does not repeat itself without end.
    let mut events = 0;
    while tracker.next_event().is_some() {
        events += 1;
        assert!(events < 8, "it repeats itself");
    }
    true
}

/// The record of a unit.
pub fn record(data: &[u8]) -> bool {
    let intent = data.split(|b| *b == b'\n').next().and_then(document);
    let unit = intent.as_ref().and_then(|intent| intent.pointer("/intent/unit"));
    let unit = unit.and_then(Value::as_str).unwrap_or("shell-0-f2-68714211.service");
    let Ok(unit) = unit.parse::<UnitName>() else { return false };
    // A crash of the node can leave zeros in place of data: nothing behind them is read.
    let written = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let whole = data[..written].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let Ok(read) = parse_record(data, &unit) else { return false };
    let Some(record) = read else {
        assert_eq!(whole, 0, "a whole line is an intent, or unreadable");
        return false;
    };
    assert_eq!(record.spec.unit, unit);
    // A last line that a crash has cut is dropped, and hides no later fact.
    let mut more = data[..whole].to_vec();
    assert_eq!(parse_record(&more, &unit).ok().flatten().as_ref(), Some(&record));
    more.extend(b"{\"exited\":9}\n{\"gone\":true}\n{\"gon");
    let later = parse_record(&more, &unit).ok().flatten().expect("facts that we wrote");
    assert!(later.gone && later.exited.is_some_and(|status| status.0 == 9));
    assert_eq!((later.spec, later.notes), (record.spec, record.notes));
    true
}

/// R.
pub fn rset(data: &[u8]) -> bool {
    let Some(document) = document(data) else { return false };
    match ResourceSet::from_json(&document) {
        Ok(r) => {
            resource_set(r);
            true
        }
        Err(error) => {
            assert!(error.to_string().len() < 2000, "{error}");
            false
        }
    }
}

fn resource_set(mut r: ResourceSet) {
    assert_eq!(ResourceSet::from_json(&sent(r.raw())).as_ref(), Ok(&r));
    assert_eq!(r.len(), r.ranks().len());
    assert!(!r.ranks().is_empty());
    for rank in r.ranks().ranks().take(4) {
        assert!(r.shell_rank(rank).is_some());
        let local = ResourceSet::from_json(&sent(&r.local(rank))).expect("R of one rank");
        assert_eq!((local.first_rank(), local.len()), (rank, 1));
        assert_eq!(local.hostname(rank), r.hostname(rank));
        assert_eq!(local.local(rank), r.local(rank));
    }
    if r.hostname(r.first_rank()) != "(unknown)" {
        let hosts: Hostlist = r.hosts(r.ranks()).parse().expect("hosts that we printed");
        assert_eq!(hosts.len(), r.len());
        assert_eq!(hosts.get(0), Some(r.hostname(r.first_rank())));
    }
    r.set_expiration(WallTime(1234.5));
    assert_eq!(ResourceSet::from_json(r.raw()).as_ref(), Ok(&r));
}

/// A signal.
pub fn signal(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let Some(signal) = round_trip::<Signal>(text) else { return false };
    assert!((1..=64).contains(&signal.number()));
    assert!(!Signal::describe(signal.number()).is_empty());
    true
}

/// A start request. If it is wrong, the answer is for its own job, even if serde_json refuses to
/// read the whole request.
pub fn start(data: &[u8]) -> bool {
    let read = StartRequest::read(data);
    if let Some(id) = document(data).and_then(|payload| payload.get("id")?.as_u64()) {
        let own = match &read {
            Ok(StartRequest { id, .. }) => Some(*id),
            Err(StartError::Field { id, .. } | StartError::R { id, .. }) => Some(*id),
            Err(StartError::Id(_)) => None,
        };
        assert_eq!(own, Some(JobId(id)), "an answer that fails another job, or all");
    }
    match read {
        Ok(request) => {
            let again = StartRequest::deserialize(&sent(&json!(request))).expect("what we wrote");
            assert_eq!(again, request);
            // The request to the leader does not have the user's own text.
            let size = json!(request).to_string().len();
            assert!(size <= json!(request.r).to_string().len() + 8192, "{size}");
            resource_set(request.r);
            true
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("start request") && error.len() < 3000, "{error}");
            false
        }
    }
}

/// The name of a unit, or a job id.
pub fn unit_name(data: &[u8]) -> bool {
    let Some(text) = text(data) else { return false };
    let (unit, id) = (round_trip::<UnitName>(text), round_trip::<JobId>(text));
    if let Some(unit) = &unit {
        assert_eq!(unit.to_string(), text, "a unit has one name");
        assert_eq!(format!("{}.service", unit.stem()), text);
        let multiuser = text.starts_with("imp-");
        let again = UnitName::new(multiuser, unit.rank(), unit.job(), unit.instance().clone());
        assert_eq!(again, *unit);
    }
    if let Some(id) = id {
        assert_eq!(id.f58plain().parse(), Ok(id));
        assert!(id.kvs_key("x").is_ascii() && id.namespace().is_ascii());
    }
    unit.is_some() || id.is_some()
}

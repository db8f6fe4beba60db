//! The documents in `rfc/` agree with each other, with the tests that they name, and with the
//! code that reads what they show.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use job_exec_rs::port::Note;
use job_exec_rs::port::supervisor::{UnitRecord, UnitSpec};
use job_exec_rs::proto::{
    BarrierClients, Bequest, EndReason, ExecEvent, Idset, JobUsage, UnitName,
};
use job_exec_rs::supervisor::parse_record;
use serde_json::{Value, json};

#[path = "rfc/keys.rs"]
mod keys;
#[path = "rfc/messages.rs"]
mod messages;
#[path = "rfc/node.rs"]
mod node;

/// What reads an example, and writes it again.
type Reader = fn(&Value) -> Result<Value, String>;

/// The reader of each example, by the name of its block.
const READERS: &[(&str, Reader)] = &[
    ("event-debug-exception", event),
    ("event-debug-lead", event),
    ("event-debug-oom", event),
    ("event-debug-status", event),
    ("event-debug-timeline", event),
    ("event-log-barrier", event),
    ("event-log-bytes", event),
    ("event-log-missing", event),
    ("event-log-silent", event),
    ("event-log-truncated", event),
    ("guest-checkpoint", guest_checkpoint),
    ("guest-leaders", guest_leaders),
    ("record-exited", fact),
    ("record-gone", fact),
    ("record-intent", intent),
    ("record-left", fact),
    ("record-note-barrier-entered", fact),
    ("record-note-barrier-passed", fact),
    ("record-note-barrier-clients", barrier_clients),
    ("record-note-commits", commits),
    ("record-note-critical-ranks", critical_ranks),
    ("record-note-degraded", note),
    ("record-note-given-back", note),
    ("record-note-end-reason", end_reason),
    ("record-note-made-again", note),
    ("record-note-output-base", note),
    ("record-note-usage", note),
    ("record-started", fact),
    ("usage", usage),
];

fn event(example: &Value) -> Result<Value, String> {
    let event: ExecEvent = read(example)?;
    let has = |key: &str| event.context.contains_key(key);
    let holds = match event.name.as_str() {
        "debug.lead" => event.context.is_empty(),
        "debug.oom" => event.logged_oom().is_some(),
        "debug.timeline" => {
            event.context.values().all(|stage| stage[0].is_f64() && stage[1].is_string())
        }
        "debug.status" => event.raw_status("wait_status").is_some(),
        "debug.exception" => event.logged_exception().is_some_and(|e| e.severity == 0),
        "log" if has("truncated") => {
            event.logged_truncation().is_some() && event.logged().is_none()
        }
        "log" if has("silent") => event.logged_silence().is_some() && event.logged().is_none(),
        "log" if has("missing") => event.logged_missing().is_some() && event.logged().is_none(),
        "log" if has("barrier") => event.logged().is_none(),
        "log" => event.logged().map(|logged| logged.2) == event.context["bytes"].as_u64(),
        _ => false,
    };
    if !holds {
        return Err("the leader reads something else in it".to_string());
    }
    Ok(json!(event))
}

fn intent(example: &Value) -> Result<Value, String> {
    let spec: UnitSpec = read(&example["intent"])?;
    let record = record(std::slice::from_ref(example))?;
    if record.spec != spec {
        return Err("the record has another intent".to_string());
    }
    let mut again = json!({ "version": 1, "intent": spec, "boot_id": record.boot_id });
    if let Some(manager) = record.manager {
        again["manager"] = json!(manager);
    }
    Ok(again)
}

/// A fact, as the line after the intent.
fn fact(example: &Value) -> Result<Value, String> {
    let intent = examples().remove("record-intent").ok_or("there is no example of an intent")?;
    let record = record(&[intent, example.clone()])?;
    let started = record.started.map(|started| json!({ "started": started }));
    let exited = record.exited.map(|status| json!({ "exited": status }));
    let left = record.left.then(|| json!({ "left": true }));
    let gone = record.gone.then(|| json!({ "gone": true }));
    let notes = record.notes.into_iter();
    let notes = notes.map(|(key, value)| json!({ "note": { "key": key, "value": value } }));
    let facts = [started, exited, left, gone].into_iter().flatten().chain(notes);
    let facts: Vec<Value> = facts.collect();
    match facts.as_slice() {
        [fact] => Ok(fact.clone()),
        facts => Err(format!("{} facts", facts.len())),
    }
}

fn barrier_clients(example: &Value) -> Result<Value, String> {
    let mut fact = fact(example)?;
    let clients: BarrierClients = read(&fact["note"]["value"])?;
    fact["note"]["value"] = json!(clients);
    Ok(fact)
}

fn commits(example: &Value) -> Result<Value, String> {
    let mut fact = fact(example)?;
    let bequest: Bequest = read(&fact["note"]["value"])?;
    if fact["note"]["key"] != format!("commits-{}", bequest.client) || !bequest.is_valid() {
        return Err(format!("not what client {} left", bequest.client));
    }
    fact["note"]["value"] = json!(bequest);
    Ok(fact)
}

fn critical_ranks(example: &Value) -> Result<Value, String> {
    let mut fact = fact(example)?;
    let text = fact["note"]["value"].as_str().ok_or("not a string")?;
    let ranks: Idset = text.parse().map_err(|e| format!("{e}"))?;
    fact["note"]["value"] = json!(ranks.to_string());
    Ok(fact)
}

fn end_reason(example: &Value) -> Result<Value, String> {
    let mut fact = fact(example)?;
    fact["note"]["value"] = json!(read::<EndReason>(&fact["note"]["value"])?);
    Ok(fact)
}

/// A note that [`Note`] reads by itself.
fn note(example: &Value) -> Result<Value, String> {
    let mut fact = fact(example)?;
    let key = fact["note"]["key"].as_str().ok_or("no key")?.to_string();
    let notes = BTreeMap::from([(key, fact["note"]["value"].clone().into())]);
    let note = Note::all(&notes).next().ok_or("no note of this release")?;
    fact["note"] = json!({ "key": note.key(), "value": note.value() });
    Ok(fact)
}

/// `Root::of` in `adapter/libflux/kvs.rs`.
fn guest_checkpoint(example: &Value) -> Result<Value, String> {
    let blob = example["data"][0].as_str().ok_or("no blob reference")?;
    Ok(json!({ "ver": 1, "type": "dirref", "data": [blob] }))
}

/// `Kvs::count_leader` in `adapter/libflux/kvs.rs`.
fn guest_leaders(example: &Value) -> Result<Value, String> {
    let leaders: u64 = example.to_string().parse().map_err(|e| format!("{e}"))?;
    Ok(json!(leaders))
}

fn usage(example: &Value) -> Result<Value, String> {
    Ok(json!(read::<JobUsage>(example)?))
}

fn read<T: serde::de::DeserializeOwned>(example: &Value) -> Result<T, String> {
    serde_json::from_value(example.clone()).map_err(|e| e.to_string())
}

/// A record with these lines.
fn record(lines: &[Value]) -> Result<UnitRecord, String> {
    let unit = lines[0]["intent"]["unit"].as_str().ok_or("no unit")?;
    let unit: UnitName = unit.parse().map_err(|e| format!("{e}"))?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    parse_record(text.as_bytes(), &unit)
        .map_err(|e| e.to_string())?
        .ok_or_else(|| "no whole intent".to_string())
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What is not a specification: guides, and what stands at the top.
fn guides() -> BTreeMap<PathBuf, String> {
    let mut found = files("doc", "md");
    for name in ["CONTRIBUTING.md", "NEWS.md", "README.md", "SECURITY.md"] {
        let path = root().join(name);
        let text = fs::read_to_string(&path).expect("a text");
        found.insert(path, text);
    }
    found
}

/// Files below a directory whose names end so, with their text.
fn files(below: &str, extension: &str) -> BTreeMap<PathBuf, String> {
    fn walk(directory: &Path, extension: &str, found: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|e| e == extension) {
                let text = fs::read_to_string(&path).expect("a text");
                found.insert(path, text);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root().join(below), extension, &mut found);
    assert!(!found.is_empty(), "no files below {below}");
    found
}

/// The documents with requirements, by file name.
fn documents() -> BTreeMap<String, String> {
    let name = |path: PathBuf| path.file_name().expect("a file").to_string_lossy().into_owned();
    let mut documents: BTreeMap<String, String> =
        files("rfc", "md").into_iter().map(|(path, text)| (name(path), text)).collect();
    documents.remove("README.md").expect("an index");
    documents
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Lines that are not in a fenced block.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// A line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// What is in brackets in a line of prose: the text, and the target if it is a link.
fn brackets(line: &str) -> Vec<(String, Option<String>)> {
    let line = without_code(line);
    let mut found = Vec::new();
    for (at, _) in line.match_indices('[') {
        let Some((text, rest)) = line[at + 1..].split_once(']') else { continue };
        let target = rest.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.0));
        found.push((text.to_string(), target.map(str::to_string)));
    }
    found
}

/// A requirement: the document that defines it, and whether it says MUST.
type Clauses = BTreeMap<String, (String, bool)>;

fn clauses() -> Clauses {
    let mut found = Clauses::new();
    for (document, text) in documents() {
        let mut current = None;
        for (number, line) in prose(&text) {
            let definition = line.find("**[").and_then(|at| line[at + 3..].split_once("]**"));
            if let Some((name, _)) = definition {
                assert!(is_name(name), "{document}:{number}: {name} is not a name");
                let before = found.insert(name.to_string(), (document.clone(), false));
                assert_eq!(before, None, "{document}:{number}: {name} is defined twice");
                current = Some(name.to_string());
            } else if line.starts_with('#') {
                current = None;
            }
            // What the word means, and what these documents are.
            let is_about_it = line.contains("words MUST") || line.contains("what MUST hold");
            let has_name = current.is_some() || is_about_it || !line.contains("MUST");
            assert!(has_name, "{document}:{number}: a MUST without a name");
            if line.contains("MUST")
                && let Some(clause) = current.as_ref().and_then(|name| found.get_mut(name))
            {
                clause.1 = true;
            }
        }
    }
    assert!(found.len() > 100, "{} requirements", found.len());
    found
}

/// The table of `tests/rfc/requirements.md`: where each requirement is checked.
fn table() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("tests/rfc/requirements.md")).expect("a table");
    let (_, table) = text.split_once("| Name | Where it is checked |").expect("the table");
    let mut found = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, tests] = cells[..] else { panic!("not two cells: {line}") };
        assert_eq!(found.insert(name.to_string(), tests.to_string()), None, "{name}: two rows");
    }
    found
}

/// All that an entry of the table can name.
struct Tests {
    functions: BTreeSet<String>,
    bugs: BTreeSet<String>,
    scripts: BTreeMap<String, String>,
}

impl Tests {
    fn load() -> Self {
        let sources = ["src", "connector", "simulator", "command", "tests"];
        let sources = sources.into_iter().flat_map(|below| files(below, "rs"));
        let mut functions = BTreeSet::new();
        for (_, text) in sources {
            for (at, _) in text.match_indices("fn ") {
                let name = text[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
                functions.extend(name.map(str::to_string));
            }
        }
        let table = root().join("simulator/tests/planted/table.rs");
        let table = fs::read_to_string(table).expect("a table of bugs");
        let named = |line: &str| {
            line.trim().strip_prefix("name: \"")?.strip_suffix("\",").map(str::to_string)
        };
        let bugs = table.lines().filter_map(named).collect();
        let scripts = files("tests/t", "t").into_iter().map(|(path, text)| {
            let stem = path.file_stem().expect("a file").to_string_lossy().into_owned();
            (stem.split('-').next().unwrap_or_default().to_string(), text)
        });
        Self { functions, bugs, scripts: scripts.collect() }
    }

    /// Checks one entry. True if it names a test.
    fn check(&self, entry: &str) -> Result<bool, String> {
        let entry = entry.split(" (").next().unwrap_or_default();
        let mut parts = entry.split('`');
        let group = parts.next().unwrap_or_default().trim();
        let names: Vec<&str> = parts.step_by(2).collect();
        if entry == "not tested yet" {
            return Ok(false);
        }
        let missing = if let Some(oracles) = group.strip_prefix("sim, by ") {
            let file = |name: &str| format!("simulator/src/oracle/{}.rs", name.replace('-', "_"));
            oracles.split(" and ").find(|name| !root().join(file(name)).is_file())
        } else if group.starts_with("t1") {
            return self.check_scripts(group, &names);
        } else if group == "planted" && names.iter().any(|name| self.bugs.contains(*name)) {
            names.into_iter().find(|name| !self.bugs.contains(*name))
        } else if group == "fuzz target" {
            let file = |name: &&str| root().join(format!("fuzz/fuzz_targets/{name}.rs"));
            names.into_iter().find(|name| !file(name).is_file())
        } else if names.is_empty() {
            Some(entry)
        } else {
            names.into_iter().find(|name| !self.functions.contains(*name))
        };
        missing.map_or(Ok(true), |name| Err(format!("there is no {name}")))
    }

    fn check_scripts(&self, group: &str, names: &[&str]) -> Result<bool, String> {
        for script in group.split(", ") {
            let text = self.scripts.get(script).ok_or(format!("there is no {script}"))?;
            for name in names {
                let ride = root().join(format!("tests/t/ride-{name}.py"));
                let rough = fs::read_to_string(root().join("tests/t/ride-rough.py"));
                let check = format!("def {}(", name.replace(' ', "_"));
                let rough = rough.is_ok_and(|text| text.contains(&check));
                if !text.contains(&format!("'{name}'")) && !ride.is_file() && !rough {
                    return Err(format!("{script} has no {name}"));
                }
            }
        }
        Ok(true)
    }
}

fn report(found: &[String]) {
    assert!(found.is_empty(), "{} found:\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_requirement_has_a_row_and_every_row_a_requirement() {
    let (clauses, table) = (clauses(), table());
    let without = clauses.keys().filter(|name| !table.contains_key(*name));
    let mut found: Vec<String> = without.map(|name| format!("{name} has no row")).collect();
    let rows = table.keys().filter(|name| !clauses.contains_key(*name));
    found.extend(rows.map(|name| format!("{name} is in no document")));
    report(&found);
}

#[test]
fn every_must_has_a_test_that_exists_or_is_said_to_have_none() {
    let (clauses, tests) = (clauses(), Tests::load());
    let differences = &documents()["0006-differences.md"];
    let (_, untested) = differences.split_once("### Not tested yet").expect("a section");
    let (untested, _) = untested.split_once("\n### ").unwrap_or((untested, ""));
    let mut found = Vec::new();
    for (name, cell) in table() {
        let entries = cell.strip_prefix("part: ").unwrap_or(&cell).split("; ");
        let mut is_tested = false;
        for entry in entries {
            match tests.check(entry) {
                Ok(test) => is_tested |= test,
                Err(error) => found.push(format!("{name}: {error}")),
            }
        }
        let said = cell.contains("not tested yet");
        let must = clauses.get(&name).is_some_and(|(_, must)| *must);
        if must && !is_tested && !said {
            found.push(format!("{name} says MUST, and has no test"));
        }
        if said != untested.contains(&format!("| [{name}](")) {
            found.push(format!("{name}: the table and 0006 differ on whether it is tested"));
        }
    }
    report(&found);
}

#[test]
fn every_reference_and_link_leads_somewhere() {
    let clauses = clauses();
    let mut found = Vec::new();
    let mut all = files("rfc", "md");
    all.append(&mut guides());
    for (path, text) in all {
        for (number, line) in prose(&text) {
            for (text, target) in brackets(line) {
                let clause = clauses.get(&text).filter(|_| is_name(&text));
                let is_url = target.as_ref().is_some_and(|target| target.contains("://"));
                let file = target.as_ref().filter(|_| !is_url);
                let file = file.map(|target| target.split('#').next().unwrap_or_default());
                let wrong = match (clause, file) {
                    (_, Some(file)) if !path.with_file_name(file).exists() => true,
                    // A link by a requirement's name leads to its document.
                    (Some((document, _)), Some(file)) => !file.ends_with(document),
                    (None, None) => is_name(&text) && !is_url,
                    (Some(_), None) | (None, Some(_)) => false,
                };
                if wrong {
                    found.push(format!("{}:{number}: [{text}]", path.display()));
                }
            }
        }
    }
    report(&found);
}

/// Sections that a line refers to, as in `[0003](0003-machines.md), 3.9`: document and number.
fn sections(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let Some((target, rest)) = line[at + 2..].split_once("), ") else { continue };
        let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let number = number.trim_end_matches('.').to_string();
        if target.ends_with(".md") && !target.contains(')') && number.contains('.') {
            let document = target.rsplit('/').next().unwrap_or_default();
            found.push((document.to_string(), number));
        }
    }
    found
}

#[test]
fn every_section_that_is_referred_to_exists() {
    let documents = documents();
    let mut all = files("rfc", "md");
    all.append(&mut guides());
    let (mut found, mut count) = (Vec::new(), 0);
    for (path, text) in all {
        for (line, (document, section)) in prose(&text)
            .flat_map(|(number, line)| sections(line).into_iter().map(move |s| (number, s)))
        {
            count += 1;
            let heading = format!("\n## {section} ");
            if !documents.get(&document).is_some_and(|text| text.contains(&heading)) {
                found.push(format!("{}:{line}: {document}, {section}", path.display()));
            }
        }
    }
    assert!(count > 10, "{count} references");
    report(&found);
}

/// The first text of each warning and error that the module logs, and of each reason to drain a node.
fn logged() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, text) in files("src", "rs") {
        let path = path.to_string_lossy().into_owned();
        if ["/tests", "_tests"].iter().any(|part| path.contains(part)) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = code.replace("\\\n", "");
        for macro_name in ["tracing::warn!(", "tracing::error!("] {
            for call in code.split(macro_name).skip(1) {
                let call = call.split(");").next().unwrap_or_default();
                let message = call.split('"').nth(1).unwrap_or_default();
                let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
                found.insert(words);
            }
        }
        let may_log =
            ["src/machine/", "src/proto/scripts", "src/proto/peer/", "src/adapter/libflux/"];
        if may_log.iter().any(|part| path.contains(part)) {
            let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
            found.extend(said_by_machines(&code).into_iter().map(words));
        }
    }
    // What is passed on, or is an error's own text.
    let has_words =
        |message: &String| message.split(' ').any(|word| !word.is_empty() && !word.contains('{'));
    found.retain(|message| message != "stderr" && has_words(message));
    found
}

/// The text of each `Level::Warning` and `Level::Error`, and of each reason, which stands in the call,
/// or in the last `let` before it.
fn said_by_machines(code: &str) -> Vec<String> {
    let first = |code: &str| code.split('"').nth(1).map(str::to_string);
    let mut found = Vec::new();
    for level in ["Level::Warning", "Level::Error"] {
        for (at, _) in code.match_indices(level) {
            let call = code[at..].split(");").next().unwrap_or_default();
            let before = code[..at].rfind("let text").map(|from| &code[from..at]);
            let inner = before.and_then(first);
            // A call can say more about a text that stands before it.
            let own = first(call).map(|own| match (&inner, own.strip_prefix("{text}: ")) {
                (Some(text), Some(more)) => format!("{text}: {more}"),
                _ => own,
            });
            found.extend(own.or(inner));
        }
    }
    for begin in ["let reason = format!(", "_reason(id: JobId", "is_drained.then(|| format!("] {
        let drains = |rest: &&str| rest.chars().take(200).collect::<String>().contains("rain");
        let reasons = code.split(begin).skip(1);
        found.extend(
            reasons.filter(|rest| !begin.contains("let") || drains(rest)).filter_map(first),
        );
    }
    found
}

/// Whether a line of the list is this message: a word in capitals stands for what is filled in.
fn is_line_of(line: &str, message: &str) -> bool {
    let (line, message): (Vec<&str>, Vec<&str>) =
        (line.split(' ').collect(), message.split(' ').collect());
    let fits = |(shown, said): (&&str, &&str)| {
        let (Some((before, _)), Some((_, after))) = (said.split_once('{'), said.rsplit_once('}'))
        else {
            return shown == said;
        };
        let filled = shown.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        filled.is_some_and(|word| word.chars().all(|c| c.is_ascii_uppercase()))
    };
    line.len() == message.len() && line.iter().zip(&message).all(fits)
}

#[test]
fn every_warning_of_the_module_is_explained_and_nothing_else() {
    let text = fs::read_to_string(root().join("doc/messages.md")).expect("doc/messages.md");
    let lines: Vec<String> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once("` |")?.0.to_string()))
        .collect();
    let logged = logged();
    let mut found = Vec::new();
    for message in &logged {
        if !lines.iter().any(|line| is_line_of(line, message)) {
            found.push(format!("doc/messages.md does not have: {message}"));
        }
    }
    for line in &lines {
        if !logged.iter().any(|message| is_line_of(line, message)) {
            found.push(format!("the module does not say: {line}"));
        }
    }
    report(&found);
}

#[test]
fn what_falls_short_is_said_in_one_place() {
    let words = ["Today:", "not built yet", "not tested yet", "not tried", "ot mended"];
    let mut found = Vec::new();
    for (document, text) in documents() {
        if document.starts_with("0006") {
            continue;
        }
        for (number, line) in prose(&text) {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{document}:{number}: {word}"));
            }
        }
    }
    report(&found);
}

/// JSON examples of all documents, by name.
fn examples() -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (document, text) in documents() {
        for block in text.split("\n```json").skip(1) {
            let (name, rest) = block.split_once('\n').expect("a block has lines");
            let (example, _) = rest.split_once("\n```").expect("a block has an end");
            let example = serde_json::from_str(example)
                .unwrap_or_else(|e| panic!("{document}: example{name}: {e}"));
            let before = found.insert(name.trim().to_string(), example);
            assert_eq!(before, None, "{document}: two examples{name}");
        }
    }
    found
}

#[test]
fn every_example_is_read_and_written_as_it_is() {
    let examples = examples();
    let readers = READERS.iter().chain(messages::READERS).copied();
    let readers: BTreeMap<&str, Reader> = readers.collect();
    let mut found = Vec::new();
    for (name, example) in &examples {
        match readers.get(name.as_str()).map(|reader| reader(example)) {
            None => found.push(format!("'{name}' has no reader")),
            Some(Err(error)) => found.push(format!("{name}: {error}")),
            Some(Ok(again)) if again != *example => {
                found.push(format!("{name} is written as {again}"));
            }
            Some(Ok(_)) => {}
        }
    }
    let unused = readers.keys().filter(|name| !examples.contains_key(**name));
    found.extend(unused.map(|name| format!("{name} is in no document")));
    report(&found);
}

//! The project's style, as far as a program can check it. Who may name whom is in `floors.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file longer than this has a seam in it.
const FILE_LINES_MAX: usize = 700;
/// From here on it is told, so that the seam is looked for before the next addition.
const FILE_LINES_NOTED: usize = 650;
/// A function longer than this does two things.
const FUNCTION_LINES_MAX: usize = 70;
/// The fuzz crate, without what it builds and finds.
const FUZZ: &[&str] = &["fuzz/src", "fuzz/fuzz_targets"];
/// The crates beside the root's own.
const CRATES: &[&str] = &["command", "connector", "simulator"];
/// What stands at the top, and what git and cargo put there.
const TOP: &[&str] = &[
    ".ci",
    ".git",
    ".gitignore",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "NEWS.md",
    "build.rs",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "command",
    "connector",
    "doc",
    "flux-sys",
    "fuzz",
    "packaging",
    "rfc",
    "rustfmt.toml",
    "simulator",
    "src",
    "target",
    "tests",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(below: &str) -> Vec<(String, String)> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(below), &mut found);
    found.sort();
    assert!(!found.is_empty(), "no sources below {below}");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is UTF-8");
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        (name, text)
    };
    found.into_iter().map(read).collect()
}

/// Lines of code: without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn assert_absent(below: &str, banned: &[&str], allowed: &[&str], why: &str) {
    let mut found = Vec::new();
    for (name, text) in sources(below) {
        if allowed.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        for (number, line) in code(&text) {
            for word in banned {
                if line.contains(word) {
                    found.push(format!("{name}:{number}: {word}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

/// A type that this line declares, and whether other files can see it.
fn declared(line: &str) -> Option<(&str, bool)> {
    let words = line.trim_start();
    let is_visible = words.starts_with("pub");
    let words = if is_visible { words.split_once(' ')?.1 } else { words };
    // `pub(in crate::machine)`
    let words = words.strip_prefix("crate::machine) ").unwrap_or(words);
    let (kind, rest) = words.split_once(' ')?;
    let is_type = matches!(kind, "enum" | "struct" | "trait") || kind == "type" && words == line;
    let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    is_type.then_some((&rest[..end], is_visible))
}

#[test]
fn a_noun_that_files_share_is_one_thing() {
    let mut all: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    for (name, text) in sources("src").into_iter().filter(|(name, _)| !name.contains("/tests")) {
        let production = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code(production) {
            if let Some((noun, is_visible)) = declared(line) {
                let known = all.entry(noun.to_string()).or_default();
                known.push((format!("{name}:{number}"), is_visible));
            }
        }
    }
    all.retain(|_, places| places.len() > 1 && places.iter().any(|(_, is_visible)| *is_visible));
    assert!(all.is_empty(), "two types of one name: {all:#?}");
}

#[test]
fn unsafe_is_where_it_may_be_and_says_why() {
    let allowed = ["src/adapter/libflux", "src/module"];
    let words = ["unsafe {", "unsafe fn", "unsafe extern", "unsafe impl"];
    assert_absent("src", &words, &allowed, "unsafe");
    // What libflux calls, and its messages.
    let allowed = [
        "connector/src/left_open.rs",
        "connector/src/message.rs",
        "connector/src/operations.rs",
        "connector/src/random.rs",
        "connector/src/signals.rs",
    ];
    for below in CRATES {
        assert_absent(below, &words, &allowed, "unsafe");
    }
    let mut found = Vec::new();
    for (name, text) in ["src"].iter().chain(CRATES).flat_map(|below| sources(below)) {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let reason = lines[index.saturating_sub(6)..=index]
                .iter()
                .any(|line| line.contains("// SAFETY:") || line.contains("# Safety"));
            if line.contains("unsafe {") && !line.trim_start().starts_with("//") && !reason {
                found.push(format!("{name}:{}", index + 1));
            }
        }
    }
    assert!(found.is_empty(), "unsafe without a reason:\n{}", found.join("\n"));
}

/// [overflow-checked]
#[test]
fn release_builds_check_for_overflow() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let release = manifest.split("[profile.release]").nth(1).expect("a release profile");
    let release = release.split("\n[").next().unwrap_or_default();
    assert!(release.lines().any(|line| line.trim() == "overflow-checks = true"), "{release}");
}

#[test]
fn nothing_is_left_over() {
    let banned = ["dbg!(", "todo!(", "unimplemented!(", "FIXME", "TODO", "#[ignore"];
    assert_absent("src", &banned, &[], "left over");
    assert_absent("tests", &banned, &["tests/tidy.rs"], "left over");
    for below in CRATES.iter().chain(FUZZ) {
        assert_absent(below, &banned, &[], "left over");
    }
}

/// Nouns that were given up for plainer ones.
#[test]
fn one_thing_has_one_noun() {
    let banned = ["Voice", "self.voice", "Occupant", "occupant", "Gate {", "self.gate"];
    assert_absent("src/machine", &banned, &[], "doc/code.md has the nouns");
}

#[test]
fn the_nouns_of_the_code_are_where_it_says() {
    let text = fs::read_to_string(root().join("doc/code.md")).expect("doc/code.md");
    let table = text.split("| Type | In | Is |").nth(1).expect("the table of nouns");
    let quoted = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(ToString::to_string).collect()
    };
    let mut found = 0;
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').collect();
        let (types, files) = (quoted(cells[1]), quoted(cells[2]));
        for (index, name) in types.iter().enumerate() {
            let file = &files[index.min(files.len() - 1)];
            let source = fs::read_to_string(root().join(file)).expect(file);
            let defines = ["struct", "enum"].map(|kind| format!("{kind} {name}"));
            assert!(defines.iter().any(|text| source.contains(text)), "{name} is not in {file}");
            found += 1;
        }
    }
    assert!(found > 30, "{found} nouns");
}

#[test]
fn nothing_else_stands_at_the_top() {
    let entries = fs::read_dir(root()).expect("the project").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let strays: Vec<String> = names.filter(|name| !TOP.contains(&name.as_str())).collect();
    assert_eq!(strays, [""; 0]);
}

#[test]
fn nothing_sleeps() {
    let banned = ["thread::sleep", "sleep("];
    assert_absent(
        "src",
        &banned,
        &["src/adapter/systemd", "src/adapter/fork", "src/adapter/worker.rs", "src/supervisor"],
        "a sleep",
    );
    assert_absent("simulator/src", &banned, &[], "a sleep");
    // A prolog waits for a broker that is away. Nothing says when it is back, when another rank logs
    // something, or when a unit that ends is gone.
    let waits = ["command/src/degraded.rs", "command/src/logs.rs", "command/src/doctor/site.rs"];
    assert_absent("command/src", &banned, &waits, "a sleep");
    // Tasks of the backends wait; threads do not. In the connector only flux_open() may wait, as it does
    // over local://: `pause_for` in connection.rs.
    for below in ["src", "connector", "command/tests", "simulator/tests"] {
        assert_absent(below, &banned[..1], &[], "a thread that sleeps: await the event instead");
    }
    assert_absent("tests", &banned[..1], &["tests/tidy.rs"], "await the event instead");
}

#[test]
fn files_and_functions_are_short() {
    let mut found = Vec::new();
    for (name, text) in
        ["src", "tests"].iter().chain(CRATES).chain(FUZZ).flat_map(|below| sources(below))
    {
        let count = text.lines().count();
        if count > FILE_LINES_MAX {
            found.push(format!("{name}: {count} lines"));
        } else if count > FILE_LINES_NOTED {
            // What a test prints is shown only if it fails.
            let _ = writeln!(std::io::stderr(), "note: {name}: {count} of {FILE_LINES_MAX} lines");
        }
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let starts = line.trim_start();
            let is_function = [
                "fn ",
                "pub fn ",
                "pub(super) fn ",
                "async fn ",
                "pub(crate) fn ",
                "pub async fn ",
                "pub(super) async fn ",
                "unsafe extern \"C\" fn ",
            ]
            .iter()
            .any(|prefix| starts.starts_with(prefix));
            if !is_function || line.trim_end().ends_with(';') || line.contains("fn(") {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            let length = lines[index..].iter().position(|l| l.trim_end() == close).unwrap_or(0);
            if length > FUNCTION_LINES_MAX {
                found.push(format!("{name}:{}: a function of {length} lines", index + 1));
            }
        }
    }
    assert!(found.is_empty(), "too long:\n{}", found.join("\n"));
}

/// What is read before one decides to read on.
#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    let words = text.split_whitespace().count();
    assert!(words <= 900, "{words} words");
}

/// Turns of phrase that readers had to read twice.
#[test]
fn sentences_are_read_once() {
    let banned = [
        "somebody has said",
        "somebody has set",
        "Who comes from",
        "Who has sent",
        "bears that",
        "forgotten to",
        "to be had",
    ];
    let mut found = Vec::new();
    for below in ["", "doc", "rfc", "packaging"] {
        for entry in fs::read_dir(root().join(below)).expect(below).flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a document is UTF-8");
            for (number, line) in text.lines().enumerate() {
                let odd = banned.iter().filter(|words| line.contains(**words));
                found
                    .extend(odd.map(|words| format!("{}:{}: {words}", path.display(), number + 1)));
            }
        }
    }
    assert!(found.is_empty(), "say it plainly:\n{}", found.join("\n"));
}

#[test]
fn nothing_speaks_of_the_place_where_it_was_written() {
    let mut found = Vec::new();
    let output = std::process::Command::new("git")
        .args(["grep", "-nIE", "(/home/[a-z]|[^a-z]/root/)", "--", ".", ":!tests/tidy.rs"])
        .current_dir(root())
        .output();
    // Outside a checkout there is nothing to look at.
    if let Ok(output) = output {
        found.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string));
    }
    assert!(found.is_empty(), "machine paths:\n{}", found.join("\n"));
}

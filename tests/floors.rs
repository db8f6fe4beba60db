//! Who may name whom. The layout of `src`, and of the crates around it, is the architecture:
//!
//! ```text
//!  proto ◀── port ◀── machine    ◀── adapter ◀── module
//!              ▲      supervisor        ▲
//!            config       ▲             └─────── command
//!                         └── simulator ◀──────────┘
//! ```
//!
//! A file may name what its arrows lead to, and what stands in its own floor. `machine` and
//! `supervisor` do not name each other. The command's embedded instance names of the adapters
//! only the worker, and not the rest of the command. An adapter names no other adapter, with the
//! exceptions in `rules.rs`. The connector and its machine are apart: `resume_machine` names none
//! of these, and what the two have in common is for `proto`, adapters and the simulator to name.
//!
//! **No circles.** A file *names* another if a path in it, in a `use` or in the code, leads to
//! an item that the other defines; re-exports are followed to the definition. Neither `mod x;` nor
//! `pub use x::Y;` names anything: they are a table of contents. Calls of methods are not seen.
//! Files must not name each other, not by way of others either.
//!
//! **One type, one node.** The `impl` of a large type may be spread over files below the file
//! that defines the type. Such a file (it has an `impl` block, not of a trait, for a type of a
//! module above it) is part of the same type, so it counts as one node with the file of the
//! definition. Other files below a module are nodes of their own, and must not name it if it
//! names them.
//!
//! Code for tests (`#[cfg(test)]`) may name any floor, because nothing that is installed
//! depends on it. What it may use of the world is the same.

#![allow(unreachable_pub, reason = "the files below are this test's own")]

#[path = "floors/graph.rs"]
mod graph;
#[path = "floors/planted.rs"]
mod planted;
#[path = "floors/rules.rs"]
mod rules;
#[path = "floors/source.rs"]
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use graph::circles;
use rules::{floors_broken, foreign_crates_misplaced, world_named};
use source::{CRATES, Tree};

/// Circles that are known, each by its files, and not mended yet.
const ALLOWED_CIRCLES: &[&[&str]] = &[];

fn sources(below: &str) -> Vec<(String, String)> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join(below), &mut found);
    found.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is UTF-8");
        let name = path.strip_prefix(root).expect("it is below").display().to_string();
        (name, text)
    };
    found.into_iter().map(read).collect()
}

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let all: Vec<_> = CRATES.iter().flat_map(|(root, ..)| sources(root)).collect();
    Tree::parse(&all)
});

#[test]
fn no_name_leads_up() {
    let broken = floors_broken(&TREE);
    assert!(broken.is_empty(), "names that lead up:\n{}", broken.join("\n"));
}

#[test]
fn foreign_crates_stay_in_their_place() {
    let misplaced = foreign_crates_misplaced(&TREE);
    assert!(misplaced.is_empty(), "foreign crates:\n{}", misplaced.join("\n"));
}

#[test]
fn machines_know_no_world() {
    let named = world_named(&TREE);
    assert!(named.is_empty(), "names of the world in pure code:\n{}", named.join("\n"));
}

#[test]
fn files_name_each_other_in_no_circle() {
    let circles = circles(&TREE);
    let is_within = |files: &[String], allowed: &[&str]| {
        files.iter().all(|file| allowed.contains(&file.as_str()))
    };
    let unknown: Vec<String> = circles
        .iter()
        .filter(|circle| !ALLOWED_CIRCLES.iter().any(|allowed| is_within(&circle.files, allowed)))
        .map(ToString::to_string)
        .collect();
    assert!(unknown.is_empty(), "{} circles:\n{}", unknown.len(), unknown.join("\n"));
    for allowed in ALLOWED_CIRCLES {
        let is_there = circles.iter().any(|circle| is_within(&circle.files, allowed));
        assert!(is_there, "no circle any more, strike it from the list: {allowed:?}");
    }
}

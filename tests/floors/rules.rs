//! Which names are allowed where.

use super::source::{Naming, Tree};

/// Each floor, and what it may name besides itself. A module is on the first that it is in.
const FLOORS: &[(&str, &[&str])] = &[
    ("resume_machine", &[]),
    ("connector", &["resume_machine"]),
    ("proto", &["resume_machine"]),
    ("port", &["proto"]),
    ("config", &["proto", "port"]),
    ("machine", &["proto", "port", "config"]),
    ("supervisor", &["proto", "port", "config"]),
    ("adapter", &["proto", "port", "config", "machine", "supervisor", "resume_machine"]),
    ("module", &["proto", "port", "config", "machine", "supervisor", "adapter"]),
    ("simulator", &["proto", "port", "config", "machine", "supervisor", "resume_machine"]),
    // Each rank of an embedded instance has the supervisor that a real broker has.
    ("command::embedded", &["proto", "port", "config", "machine", "supervisor", "adapter::worker"]),
    (
        "command",
        &["proto", "port", "config", "machine", "adapter", "simulator", "command::embedded"],
    ),
];

/// Each adapter, and the adapters that it may name.
const ADAPTERS: &[(&str, &[&str])] = &[
    ("fork", &[]),
    ("host", &[]),
    ("libflux", &[]),
    ("systemd", &[]),
    // The supervisor's thread: it chooses the backend, and opens the state directory.
    ("worker", &["fork", "host", "systemd"]),
];

/// Foreign crates, and the files that may use them.
const FOREIGN: &[(&str, &[&str])] = &[
    // The host's disk needs one system call that has no safe wrapper elsewhere.
    (
        "flux_sys",
        &[
            "src/adapter/libflux/",
            "src/module.rs",
            "src/module/",
            "src/adapter/host/",
            "connector/src/",
            // A program has to find the library.
            "command/src/flux_paths.rs",
        ],
    ),
    (
        "tokio",
        &[
            "src/adapter/fork/",
            "src/adapter/systemd/",
            "src/adapter/worker.rs",
            // What both backends and the worker wait with. The core itself has no tokio.
            "src/supervisor/inotify.rs",
            "src/supervisor/output_watch.rs",
            "src/supervisor/readable.rs",
        ],
    ),
    ("zbus", &["src/adapter/systemd/"]),
];

/// Code that gets time, randomness and the world from outside.
const PURE: &[&str] = &[
    "connector/machine/src/",
    "src/machine/",
    "src/port/",
    "src/proto/",
    "src/supervisor/tracker/",
];

/// What pure code does not name: crates, and parts of the standard library.
const WORLD: &[&[&str]] = &[
    &["flux_sys"],
    &["nix"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "process"],
    &["std", "thread"],
    &["tokio"],
    &["zbus"],
];

/// What pure code does not name, wherever it comes from: clocks, and maps whose order differs
/// between two runs.
const WORLD_ITEMS: &[&str] = &["HashMap", "HashSet", "Instant", "SystemTime"];

/// Names that lead to a floor, or an adapter, that is not allowed.
pub fn floors_broken(tree: &Tree) -> Vec<String> {
    let namings = tree.namings.iter().filter(|naming| !naming.test);
    namings.filter_map(|naming| broken(tree, naming)).collect()
}

fn broken(tree: &Tree, naming: &Naming) -> Option<String> {
    let target = tree.resolve(&naming.module, &naming.path)?;
    let (from, to) = (floor(&naming.module)?, floor(&target.module)?);
    if from != to {
        let Some((_, below)) = FLOORS.iter().find(|(floor, _)| *floor == from) else {
            return Some(told(tree, naming, &format!("{from} is no floor that is known")));
        };
        let is_allowed = below.iter().any(|place| is_within(&target.module, place));
        return (!is_allowed).then(|| told(tree, naming, &format!("{from} must not name {to}")));
    }
    let (from, to) = (naming.module.get(1)?, target.module.get(1)?);
    if naming.module[0] != "adapter" || from == to {
        return None;
    }
    let Some((_, others)) = ADAPTERS.iter().find(|(adapter, _)| adapter == from) else {
        return Some(told(tree, naming, &format!("{from} is no adapter that is known")));
    };
    let is_allowed = others.contains(&to.as_str());
    let why = format!("adapter {from} must not name adapter {to}");
    (!is_allowed).then(|| told(tree, naming, &why))
}

/// The floor of a module, or what would be its name. The top of the service is on none.
fn floor(module: &[String]) -> Option<&str> {
    let known = FLOORS.iter().map(|(floor, _)| *floor).find(|floor| is_within(module, floor));
    known.or(module.first().map(String::as_str))
}

fn is_within(module: &[String], place: &str) -> bool {
    place.split("::").enumerate().all(|(at, part)| module.get(at).is_some_and(|name| name == part))
}

/// Foreign crates that are named outside of their place, by tests too.
pub fn foreign_crates_misplaced(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for naming in &tree.namings {
        for (name, places) in FOREIGN {
            let file = &tree.files[naming.file];
            let in_place = places.iter().any(|place| file.starts_with(place));
            let is_it = naming.path.first().is_some_and(|first| first == name);
            if is_it && !in_place && naming.path.len() > 1 {
                found.push(told(tree, naming, &format!("{name} has no place here")));
            }
        }
    }
    found
}

/// Names of the world in pure code, in its tests too.
pub fn world_named(tree: &Tree) -> Vec<String> {
    let is_pure = |naming: &&Naming| {
        let file = &tree.files[naming.file];
        PURE.iter().any(|pure| file.starts_with(pure))
    };
    let is_world = |naming: &&Naming| {
        let starts = |prefix: &[&str]| {
            naming.path.len() >= prefix.len() && naming.path.iter().zip(prefix).all(|(a, b)| a == b)
        };
        let is_local = || tree.resolve(&naming.module, &naming.path).is_some();
        let has_item = naming.path.iter().any(|part| WORLD_ITEMS.contains(&part.as_str()));
        (has_item || WORLD.iter().any(|prefix| starts(prefix))) && !is_local()
    };
    let named = tree.namings.iter().filter(is_pure).filter(is_world);
    named.map(|naming| told(tree, naming, "pure code must not name it")).collect()
}

fn told(tree: &Tree, naming: &Naming, why: &str) -> String {
    let (file, path) = (&tree.files[naming.file], naming.path.join("::"));
    format!("{file}:{}: {path}: {why}", naming.line)
}

//! The checks must be able to fail: each is given small sources that break its rule.

use super::graph::circles;
use super::rules::{floors_broken, foreign_crates_misplaced, world_named};
use super::source::Tree;

fn tree(sources: &[(&str, &str)]) -> Tree {
    let sources: Vec<(String, String)> =
        sources.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    Tree::parse(&sources)
}

fn circle_files(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
    circles(&tree(sources)).into_iter().map(|circle| circle.files).collect()
}

const LIB: (&str, &str) = ("src/lib.rs", "mod adapter; mod machine; mod proto; mod supervisor;");
const ADAPTERS: (&str, &str) = ("src/adapter/mod.rs", "pub mod fork; pub mod host;");
const FORK: (&str, &str) = ("src/adapter/fork/mod.rs", "pub struct Fork;");

#[test]
fn a_name_that_leads_up_is_found() {
    for text in [
        "use crate::adapter::fork::Fork;",
        "use crate::{adapter::{fork::Fork as Child}};",
        "use crate::adapter::*;",
        "use super::adapter;",
        "fn f() -> crate::adapter::fork::Fork { loop {} }",
        "fn f() { use crate::adapter::fork; }",
        "mod inner { use super::super::adapter::fork::Fork; }",
        "fn f() { println!(\"{:?}\", crate::adapter::fork::Fork); }",
        "pub use crate::adapter::fork::Fork;",
        "use crate::machine::X;",
    ] {
        let machine = ("src/machine/mod.rs", "pub struct X;");
        let supervisor = ("src/supervisor.rs", text);
        let broken = floors_broken(&tree(&[LIB, ADAPTERS, FORK, machine, supervisor]));
        assert_eq!(broken.len(), 1, "{text}: {broken:?}");
        assert!(broken[0].starts_with("src/supervisor.rs:1: "), "{broken:?}");
    }
}

#[test]
fn a_name_that_leads_down_is_none() {
    for text in [
        "// crate::adapter::fork",
        "const NAME: &str = \"crate::adapter::fork\";",
        "pub(in crate::supervisor) fn f() {}",
        "use crate::proto::Id;",
        "#[cfg(test)] mod tests { use crate::adapter::fork::Fork; }",
    ] {
        let proto = ("src/proto/mod.rs", "pub struct Id;");
        let broken =
            floors_broken(&tree(&[LIB, ADAPTERS, FORK, proto, ("src/supervisor.rs", text)]));
        assert_eq!(broken, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_crate_that_names_another_is_found() {
    let run = ("simulator/src/lib.rs", "pub fn run() {}");
    let instance = ("command/src/embedded/mod.rs", "pub struct Instance;");
    let demo = ("command/src/demo.rs", "pub fn demo() {}");
    let names = |file: &str, text: &str| {
        floors_broken(&tree(&[LIB, ADAPTERS, FORK, run, instance, demo, (file, text)]))
    };
    for (file, text) in [
        ("simulator/src/world.rs", "use job_exec_rs_command::embedded::Instance;"),
        ("simulator/src/world.rs", "use job_exec_rs::adapter::fork::Fork;"),
        ("src/module.rs", "use job_exec_rs_simulator::run;"),
        ("src/module.rs", "use job_exec_rs_command::embedded::Instance;"),
        ("command/src/embedded/kvs.rs", "use crate::demo::demo;"),
        ("command/src/embedded/kvs.rs", "use job_exec_rs_simulator::run;"),
    ] {
        let broken = names(file, text);
        assert_eq!(broken.len(), 1, "{file} {text}: {broken:?}");
    }
    for text in ["use job_exec_rs_simulator::run;", "use job_exec_rs_command::embedded::Instance;"]
    {
        assert_eq!(names("command/src/run.rs", text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn an_adapter_that_names_another_is_found() {
    let host = ("src/adapter/host/mod.rs", "use super::fork::Fork;");
    let broken = floors_broken(&tree(&[LIB, ADAPTERS, FORK, host]));
    assert_eq!(
        broken,
        ["src/adapter/host/mod.rs:1: super::fork::Fork: adapter host must not name adapter fork"]
    );
    let worker = ("src/adapter/worker.rs", "use super::fork::Fork;");
    assert!(floors_broken(&tree(&[LIB, ADAPTERS, FORK, worker])).is_empty());
    let new = ("src/adapter/new.rs", "use super::fork::Fork;");
    assert_eq!(floors_broken(&tree(&[LIB, ADAPTERS, FORK, new])).len(), 1, "not in the list");
}

#[test]
fn a_foreign_crate_outside_its_place_is_found() {
    for text in ["use tokio::sync::mpsc;", "fn f() { tokio::spawn(g()); }", "use {tokio::time};"] {
        let in_host = foreign_crates_misplaced(&tree(&[("src/adapter/host/mod.rs", text)]));
        assert_eq!(in_host.len(), 1, "{text}: {in_host:?}");
        let in_fork = foreign_crates_misplaced(&tree(&[("src/adapter/fork/mod.rs", text)]));
        assert_eq!(in_fork, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_machine_that_knows_the_world_is_found() {
    for text in [
        "use std::{collections::HashMap};",
        "use std::collections as maps; type T = maps::HashMap<u8, u8>;",
        "use std::time::{Duration, Instant};",
        "fn f() { std::fs::read(p); }",
        "fn f() { trace!(now = SystemTime::now()); }",
        "use std::{env as e};",
        "#[cfg(test)] mod tests { use std::thread; }",
        "use ::nix::errno::Errno;",
    ] {
        let named = world_named(&tree(&[("src/machine/node.rs", text)]));
        assert_eq!(named.len(), 1, "{text}: {named:?}");
        let elsewhere = world_named(&tree(&[("src/adapter/fork/mod.rs", text)]));
        assert_eq!(elsewhere, Vec::<String>::new());
    }
    let own = "pub struct Instant; fn f(_: Instant) {} // std::fs";
    assert_eq!(world_named(&tree(&[("src/machine/node.rs", own)])), Vec::<String>::new());
}

#[test]
fn files_that_name_each_other_are_found() {
    let of = |a: &str, b: &str| {
        let parent = ("src/m/mod.rs", "mod a; mod b; pub use a::A; pub use b::{B, g};");
        circle_files(&[parent, ("src/m/a.rs", a), ("src/m/b.rs", b)])
    };
    let found = vec![vec!["src/m/a.rs".to_string(), "src/m/b.rs".to_string()]];
    assert_eq!(of("use super::b::B; pub struct A(B);", "use super::a::A; pub struct B(A);"), found);
    // By way of the parent's re-exports.
    assert_eq!(of("use super::B; pub struct A(B);", "pub struct B(super::A);"), found);
    // A module is named, and its function called.
    assert_eq!(
        of(
            "use super::b; pub struct A; fn f() { b::g(); }",
            "use super::*; pub fn g() { let _: A; }"
        ),
        found
    );
    // One way only; and tests do not count.
    assert!(of("use super::B; pub struct A(B);", "pub struct B;").is_empty());
    let tested = "pub struct B; #[cfg(test)] mod tests { use super::super::a::A; }";
    assert!(of("use super::B; pub struct A(B);", tested).is_empty());
}

#[test]
fn a_child_that_names_its_parent_is_found() {
    let child = ("src/m/a.rs", "pub struct A(super::Parent);");
    let parent = "mod a; pub struct Parent(Option<Box<a::A>>);";
    for file in ["src/m/mod.rs", "src/m.rs"] {
        let found = circle_files(&[(file, parent), child]);
        assert_eq!(found.len(), 1, "{file}");
        assert_eq!(found[0].len(), 2, "{found:?}");
        // Only declared, or passed on.
        assert!(
            circle_files(&[(file, "mod a; pub use a::A; pub struct Parent;"), child]).is_empty()
        );
    }
}

#[test]
fn one_type_in_several_files_is_one_node() {
    let leader = (
        "src/leader.rs",
        "mod ending; mod timer; use timer::Timer; use ending::f; pub struct Leader(Timer);",
    );
    let ending = (
        "src/leader/ending.rs",
        "use super::Leader; impl Leader { fn end(&self) {} } pub fn f() {}",
    );
    let timer = ("src/leader/timer.rs", "pub struct Timer;");
    assert!(circle_files(&[leader, ending, timer]).is_empty());
    // A file that only uses the type is no part of it.
    let timer = ("src/leader/timer.rs", "pub struct Timer; fn f(_: super::Leader) {}");
    let found = circle_files(&[leader, ending, timer]);
    assert_eq!(
        found,
        [["src/leader.rs", "src/leader/ending.rs", "src/leader/timer.rs"].map(str::to_string)]
    );
    // Nor is one with another trait for it.
    let show = ("src/leader/timer.rs", "pub struct Timer; impl Clone for super::Leader {}");
    assert_eq!(circle_files(&[leader, ending, show]).len(), 1);
}

//! The keys of `[exec]` are those of the code, in rfc/0005 (of which the manual page is made) and where
//! administrators look.

use std::fs;

use job_exec_rs::config::{KEYS, Key, Trait};

use super::root;

/// What says in the table that a change of a key waits for the next load.
const AT_LOAD: &str = "Read at load only";

#[test]
fn each_key_has_its_row() {
    let text = configuration();
    let table = text.split("## 5.2").next().expect("a part before it");
    let rows: Vec<(&str, &str)> = table.lines().filter_map(key_of_row).collect();
    for (name, row) in &rows {
        let key = Key::find(name).unwrap_or_else(|| panic!("{name} is not read"));
        let says = |what: &str| row.contains(what);
        assert_eq!(says("| yes |"), key.is(Trait::Argument), "an argument: {row}");
        assert_eq!(says(AT_LOAD), key.is(Trait::AtLoad), "{AT_LOAD}: {row}");
    }
    let ours = table.lines().find(|line| line.ends_with("are not flux-core's.")).expect("the list");
    for key in KEYS {
        assert!(rows.iter().any(|(name, _)| *name == key.name), "{} has no row", key.name);
        assert_eq!(ours.contains(&format!("`{}`", key.name)), key.is(Trait::Ours), "{ours}");
    }
}

/// A key of a table is named with its member.
fn key_of_row(row: &str) -> Option<(&str, &str)> {
    let (key, _) = row.strip_prefix("| `")?.split_once('`')?;
    Some((key.split('.').next()?, row))
}

#[test]
fn each_setting_that_is_shown_is_named() {
    let text = configuration();
    let settings = text.lines().find(|line| line.starts_with("`config`: ")).expect("the paragraph");
    for (name, _) in KEYS.iter().filter_map(|key| key.shown) {
        assert!(settings.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn each_statistic_has_its_row() {
    let text = configuration();
    let (_, table) = text.split_once("## 5.5 stats-get").expect("a part");
    let (table, _) = table.split_once("## 5.6").expect("a part after it");
    let named: String = table.lines().filter_map(|line| line.split(" | ").next()).collect();
    let example = super::examples().remove("stats-get").expect("an example");
    for name in example.as_object().expect("an object").keys() {
        assert!(named.contains(&format!("`{name}`")), "{name} has no row in 5.5");
    }
}

/// The most used ones.
#[test]
fn what_the_guide_says_of_a_key_is_right() {
    let guide = fs::read_to_string(root().join("doc/admin.md")).expect("a guide");
    let (_, table) = guide.split_once("| Key | Default | Meaning |").expect("its table");
    let rows: Vec<(&str, &str)> = table.lines().map_while(key_of_row_or_rule).flatten().collect();
    assert!(rows.len() > 10, "{rows:?}");
    let text = configuration();
    for (name, row) in rows {
        let default = row.split('|').nth(2).expect("a column").trim();
        let specified = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let specified = specified.unwrap_or_else(|| panic!("{name}")).split('|').nth(2);
        let default = default.split(';').next().unwrap_or_default();
        assert!(specified.is_some_and(|cell| cell.contains(default)), "{row}");
    }
}

fn key_of_row_or_rule(line: &str) -> Option<Option<(&str, &str)>> {
    (line.is_empty() || line.starts_with('|')).then(|| key_of_row(line))
}

fn configuration() -> String {
    fs::read_to_string(root().join("rfc/0005-configuration.md")).expect("a chapter")
}

//! The table of rfc/0010-connector.md matches the code.

use resume_machine::{Policy, TABLE};

fn kind(policy: Policy) -> &'static str {
    match policy {
        Policy::Barrier => "barrier",
        Policy::Cancel => "cancel",
        Policy::Commit => "commit",
        Policy::Refuse => "refuse",
        Policy::Repeat => "repeat",
        Policy::Standing => "standing",
        Policy::Watch(_) => "watch",
    }
}

#[test]
fn every_row_is_in_the_document_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rfc/0010-connector.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let topic = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((topic, cells.next()?))
    });
    let rows: Vec<(&str, &str)> = rows.collect();
    let table: Vec<(&str, &str)> = TABLE.iter().map(|(t, policy)| (*t, kind(*policy))).collect();
    assert_eq!(rows, table);
}

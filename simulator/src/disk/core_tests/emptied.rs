//! A shell empties its output file.

use super::*;

/// [output-emptied]
#[test]
fn what_is_written_while_the_file_is_looked_at_is_told_once() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    let name = record(1).replace("record", "err");
    disk.write_output(&disk.path(&name), b"one\n");
    let mut told = Vec::new();
    let mut read = |life: &mut Life| {
        life.core.handle_growth(&Grown::Any, &mut life.asked);
        told.extend(life.take().into_iter().filter_map(|event| match event {
            SupervisorEvent::Unit(_, UnitEvent::Output { offset, data, .. }) => {
                Some((offset, String::from_utf8(data).expect("text")))
            }
            _ => None,
        }));
    };
    read(&mut life);
    // Its size is told as it was before.
    disk.empty_behind_look(&name, b"x\n");
    read(&mut life);
    read(&mut life);
    disk.write_output(&disk.path(&name), b"two\n");
    read(&mut life);
    let told: Vec<(u64, &str)> = told.iter().map(|(at, text)| (*at, text.as_str())).collect();
    assert_eq!(told, [(0, "one\n"), (4, "x\n"), (6, "two\n")]);
}

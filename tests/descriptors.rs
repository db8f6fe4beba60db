//! A process that has no descriptor left can still end its jobs. In a program of its own, because the
//! limit is the whole process's.

use std::fs::File;

use job_exec_rs::adapter::host::HostDisk;
use job_exec_rs::port::disk::{Disk, IfExists};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Enough for the test, and few to use up.
const LIMIT: u64 = 64;

/// [descriptors-kept]
#[test]
fn records_and_output_are_kept_without_a_descriptor() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = HostDisk::open(directory.path()).expect("a disk");
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, LIMIT, hard).expect("a lower limit");
    let mut held = Vec::new();
    let full = loop {
        match File::open("/dev/null") {
            Ok(file) => held.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(full.raw_os_error(), Some(libc::EMFILE));
    disk.create("x.record", IfExists::Fail, 4096).expect("a record");
    disk.append("x.record", b"intent\n").expect("a fact");
    assert_eq!(disk.read("x.record").expect("the record"), b"intent\n");
    let mut buffer = [0; 4];
    assert_eq!(disk.read_at("x.record", 2, &mut buffer).expect("output"), Some((2, 4)));
    assert_eq!(&buffer, b"tent");
    disk.set_length("x.record", 3).expect("a length");
    disk.punch("x.record", 0, 1).expect("a hole");
    assert_eq!(disk.names().expect("names"), ["x.record"]);
    assert!(!disk.has_writer("x.record").expect("no writer"));
    assert!(held.iter().all(|file| file.metadata().is_ok()), "the others are still open");
    disk.remove("x.record").expect("it is removed");
}

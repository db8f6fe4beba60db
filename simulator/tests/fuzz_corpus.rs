//! The fuzz targets' own functions over the corpus, without a fuzzer: what was found once is not
//! found again.

#[allow(unreachable_pub, reason = "the fuzz crate exports it")]
#[path = "../../fuzz/src/targets.rs"]
mod targets;

// Where `targets` looks for it, here as in the fuzz crate.
use job_exec_rs::proto;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("{directory:?}: {e}"));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Memory that a small file must not need: the limit is far above what all of them need
/// together, and far below what the worst of them once needed.
fn bound_memory() {
    let limit = 4 << 30;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_AS, limit, limit).unwrap();
}

#[test]
fn every_file_of_the_corpus_is_read() {
    bound_memory();
    for (name, target) in targets::ALL {
        let files = names(&corpus().join(name));
        assert!(files.len() > 2, "{name} has no corpus");
        for file in files {
            let data = fs::read(corpus().join(name).join(&file)).unwrap();
            // Said if it fails.
            println!("{name}/{file}");
            // Or a message's new version would leave nothing to read.
            assert_eq!(
                target(&data),
                !file.starts_with("bad-"),
                "{name}/{file}: only bad ones are refused"
            );
            // What a crash, or a reader in a hurry, makes of it.
            target(&data[..data.len() / 2]);
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_a_program() {
    let known: BTreeSet<String> = targets::ALL.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names(&corpus()), known);
    let programs = names(&corpus().with_file_name("fuzz_targets"));
    assert_eq!(programs, known.iter().map(|name| format!("{name}.rs")).collect());
}

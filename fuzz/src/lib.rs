//! What the fuzz targets do with their input. `tests/fuzz_corpus.rs` does the same with the
//! files of `corpus/`.

pub mod targets;

// Where `targets` looks for it, here as there.
use job_exec_rs::proto;

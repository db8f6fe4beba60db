//! The functions of the fuzz targets. `simulator/tests/fuzz_corpus.rs` runs them on the files of `corpus/`.

pub mod targets;

// `targets` has modules of the systemd adapter, which name this `crate::proto`.
use job_exec_rs::proto;

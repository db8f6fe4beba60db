//! Unit properties, one `NAME=VALUE` per line.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::properties(data);
});

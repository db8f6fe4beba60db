//! What a broker that is back has of a client's commits.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::connector::found(data);
});

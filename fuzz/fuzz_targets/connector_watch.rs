//! A log that is watched while the connection is lost.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::connector::watch(data);
});

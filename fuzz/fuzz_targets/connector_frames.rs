//! What comes over a client's socket.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::connector::frames(data);
});

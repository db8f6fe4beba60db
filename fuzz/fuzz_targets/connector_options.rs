//! What a resume URI and the environment say.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::connector::options(data);
});

//! An idset, or two that are separated by a bar.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::idset(data);
});

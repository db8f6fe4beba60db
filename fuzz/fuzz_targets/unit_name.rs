//! The name of a unit, or a job id.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::unit_name(data);
});

//! Messages of anybody to a whole service.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::service::service(data);
});

//! A client's commit to the KVS.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::connector::commit(data);
});

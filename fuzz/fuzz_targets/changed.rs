//! A unit's properties in D-Bus's encoding, as systemd signals them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    job_exec_rs_fuzz::targets::changed(data);
});

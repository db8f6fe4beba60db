//! Strings between Rust and C.

use std::ffi::{CStr, CString, c_char};

/// Text for C. A NUL byte can't be said in C: what follows it is dropped.
pub(super) fn cstring(text: &str) -> CString {
    let clean = text.split('\0').next().unwrap_or_default();
    CString::new(clean).unwrap_or_default()
}

/// Text from C, copied.
///
/// # Safety
/// `text` is null or a NUL-terminated string that lives for the call.
pub(super) unsafe fn string(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller vouches for the terminator and the lifetime.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

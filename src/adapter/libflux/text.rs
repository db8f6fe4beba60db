//! Strings between Rust and C.

use std::ffi::{CStr, CString, c_char};

/// A string for C. C strings end at a NUL, so the rest after one is dropped.
pub(super) fn cstring(text: &str) -> CString {
    let clean = text.split('\0').next().unwrap_or_default();
    CString::new(clean).unwrap_or_default()
}

/// A copy of a string from C; `None` for null.
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

//! Whether shells can have a connection that outlives their broker.

use std::ffi::c_char;

use super::text::{cstring, string};

/// The scheme of the resume connector, by which libflux finds it.
const SCHEME: &str = "resume";

/// Connects through the resume connector to the broker with this `local-uri`, asks it for its
/// rank, and returns the URI for shells.
///
/// # Errors
/// Why not: it is not installed, or it does not get on with this flux-core.
pub fn resume_uri(local_uri: &str, rank: u32) -> Result<String, String> {
    let path = local_uri.strip_prefix("local://");
    let path = path.ok_or_else(|| format!("{local_uri} is no local URI"))?;
    let uri = format!("{SCHEME}://{path}");
    match rank_behind(&uri)? {
        there if there == rank => Ok(uri),
        there => Err(format!("{uri} leads to rank {there}, not to {rank}")),
    }
}

fn rank_behind(uri: &str) -> Result<u32, String> {
    let text = cstring(uri);
    let mut error = flux_sys::flux_error_t { text: [0; 160] };
    // SAFETY: text and error outlive the call.
    let handle = unsafe { flux_sys::flux_open_ex(text.as_ptr(), 0, &mut error) };
    if handle.is_null() {
        let why: *const c_char = error.text.as_ptr();
        // SAFETY: libflux leaves a text in it.
        return Err(unsafe { string(why) }.unwrap_or_default());
    }
    let mut rank = 0;
    // SAFETY: the handle is ours; `rank` outlives the call.
    let result = if unsafe { flux_sys::flux_get_rank(handle, &mut rank) } < 0 {
        Err(format!("{uri}: {}", std::io::Error::last_os_error()))
    } else {
        Ok(rank)
    };
    // SAFETY: ours, and not used again.
    unsafe { flux_sys::flux_close(handle) };
    result
}

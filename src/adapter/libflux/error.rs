//! Errors of libflux.

use std::io;

use flux_sys::libflux;

use super::text::string;
use crate::machine::Fault;

/// A call on the handle that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {error}")]
pub struct HandleError {
    operation: String,
    error: io::Error,
}

impl HandleError {
    pub(super) fn last(operation: impl Into<String>) -> Self {
        Self { operation: operation.into(), error: io::Error::last_os_error() }
    }

    pub(super) fn library(error: impl std::fmt::Display) -> Self {
        let error = io::Error::new(io::ErrorKind::NotFound, error.to_string());
        Self { operation: "cannot use Flux".to_string(), error }
    }

    /// The POSIX errno.
    pub fn errnum(&self) -> i32 {
        self.error.raw_os_error().unwrap_or(libc::EINVAL)
    }
}

/// An error response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// POSIX errno.
    pub errnum: i32,
    /// The text of the response, or else that of the errno.
    pub message: String,
}

impl RpcError {
    /// Why the last get on `future` failed.
    pub(super) fn of(future: *mut flux_sys::flux_future_t) -> Self {
        let errnum = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        // SAFETY: a null future is answered with a static text; the text is copied.
        let text = unsafe { string(libflux().flux_future_error_string(future)) };
        let message = text.unwrap_or_else(|| std::io::Error::from_raw_os_error(errnum).to_string());
        Self { errnum, message }
    }
}

impl From<RpcError> for Fault {
    fn from(error: RpcError) -> Self {
        Fault::new(error.errnum, error.message)
    }
}

impl From<HandleError> for RpcError {
    fn from(error: HandleError) -> Self {
        Self { errnum: error.errnum(), message: error.to_string() }
    }
}

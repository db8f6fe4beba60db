//! Linux errno values, as on the wire, and what errors say.

use crate::packet::Packet;

pub(crate) const NO_ENTRY: i32 = 2;
pub(crate) const NO_PROCESS: i32 = 3;
pub(crate) const TRY_AGAIN: i32 = 11;
pub(crate) const BUSY: i32 = 16;
pub(crate) const NO_SPACE: i32 = 28;
pub(crate) const NO_SERVICE: i32 = 38;
pub(crate) const NO_DATA: i32 = 61;
pub(crate) const BAD_ANSWER: i32 = 71;
pub(crate) const TOO_LARGE: i32 = 90;
pub(crate) const NO_NAMESPACE: i32 = 95;
pub(crate) const RESET: i32 = 104;
pub(crate) const NO_HOST: i32 = 113;
pub(crate) const TIMED_OUT: i32 = 110;
pub(crate) const NOT_PERMITTED: i32 = 1;

/// How a broker begins its refusal that is not in INIT yet (flux-core `broker/modhash.c`,
/// `module_cb()`).
const OFFLINE: &[u8] = b"Upstream Flux broker is offline";

/// Whether the broker is only just starting, and has not done the request.
pub(crate) fn is_offline<P: Packet>(answer: &P) -> bool {
    answer.header().errnum == TRY_AGAIN && answer.payload().starts_with(OFFLINE)
}

/// Whether no broker could pass the request on to its service, or will later.
pub(crate) fn is_unreachable<P: Packet>(answer: &P) -> bool {
    answer.header().errnum == NO_HOST || is_offline(answer)
}

/// How libflux answers for a client that does not know the method (flux-core
/// `libflux/msg_handler.c`). A broker without the service has another text.
const UNKNOWN_METHOD: &[u8] = b"Unknown service method";

/// Whether a client, and not a broker, has answered `ENOSYS`.
pub(crate) fn is_unknown_method<P: Packet>(answer: &P) -> bool {
    answer.payload().starts_with(UNKNOWN_METHOD)
}

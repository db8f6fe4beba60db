//! libflux's messages, as the machine's packets.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use flux_sys::{self as sys, libflux};
use resume_machine::{ANY_RANK, Header, Kind, Packet};

/// A message. libflux counts the references.
pub(crate) struct Message(NonNull<sys::flux_msg_t>);

fn cstring(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// A C string, if it is UTF-8; else empty.
///
/// # Safety
/// `text` is null, or NUL-terminated for as long as `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: not null; the caller guarantees the rest.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

impl Message {
    /// A new reference to a message of the client.
    ///
    /// # Safety
    /// `message` is a valid message.
    pub(crate) unsafe fn shared(message: *const sys::flux_msg_t) -> Option<Self> {
        // SAFETY: valid, says the caller.
        NonNull::new(unsafe { libflux().flux_msg_incref(message) }.cast_mut()).map(Self)
    }

    /// Decodes a message from the wire.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        // SAFETY: libflux reads `len` bytes, and copies them.
        NonNull::new(unsafe { libflux().flux_msg_decode(bytes.as_ptr().cast(), bytes.len()) })
            .map(Self)
    }

    /// Encodes the message into a buffer of [`Packet::size`] bytes.
    pub(crate) fn encode(&self, buffer: &mut [u8]) {
        // SAFETY: the message is ours, and the buffer has the length that is passed.
        let rc = unsafe {
            libflux().flux_msg_encode(self.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
        };
        assert_eq!(rc, 0, "a message has the size that libflux said");
    }

    /// Passes the reference to the caller.
    pub(crate) fn into_raw(self) -> *mut sys::flux_msg_t {
        let raw = self.as_ptr();
        std::mem::forget(self);
        raw
    }

    fn as_ptr(&self) -> *mut sys::flux_msg_t {
        self.0.as_ptr()
    }

    fn own(raw: *mut sys::flux_msg_t) -> Self {
        // Without memory no message can be sent, not even an error.
        Self(NonNull::new(raw).expect("libflux makes a message"))
    }

    fn copy(&self, with_payload: bool) -> Self {
        // SAFETY: the message is ours; the copy is, too.
        Self::own(unsafe { libflux().flux_msg_copy(self.as_ptr(), with_payload) })
    }

    /// The same message with another user's credential. For tests: the broker accepts this from
    /// the instance owner only (flux-core `FLUX_OPT_TESTING_USERID`).
    pub(crate) fn with_credential(&self, userid: u32, rolemask: u32) -> Self {
        let copy = self.copy(true);
        // SAFETY: the copy is ours alone.
        unsafe {
            libflux().flux_msg_set_cred(copy.as_ptr(), sys::flux_msg_cred { userid, rolemask })
        };
        copy
    }

    fn derived(&self, errnum: i32, payload: &str) -> Self {
        // A shell in the barrier waits for a response although its request says "no response".
        let request = self.copy(false);
        let noresponse = sys::FLUX_MSGFLAG_NORESPONSE as c_int;
        // SAFETY: the copy is ours alone; the response is, too.
        let response = Self::own(unsafe {
            libflux().flux_msg_clear_flag(request.as_ptr(), noresponse);
            libflux().flux_response_derive(request.as_ptr(), errnum)
        });
        let owner = sys::flux_msg_cred { userid: 0, rolemask: sys::FLUX_ROLE_OWNER };
        // SAFETY: the response is ours alone.
        unsafe { libflux().flux_msg_set_cred(response.as_ptr(), owner) };
        response.set_payload(payload);
        response
    }

    fn set_payload(&self, payload: &str) {
        let payload = (!payload.is_empty()).then(|| cstring(payload));
        let payload = payload.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: only called for messages that are ours alone; the text is copied.
        let rc = unsafe { libflux().flux_msg_set_string(self.as_ptr(), payload) };
        assert_eq!(rc, 0, "libflux takes a payload");
    }
}

impl Clone for Message {
    fn clone(&self) -> Self {
        // SAFETY: the message is ours, hence valid; one more reference is, too.
        unsafe { libflux().flux_msg_incref(self.as_ptr()) };
        Self(self.0)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the reference is ours.
        unsafe { libflux().flux_msg_decref(self.as_ptr()) };
    }
}

impl Packet for Message {
    fn header(&self) -> Header<'_> {
        let message = self.as_ptr();
        let (mut kind, mut errnum, mut matchtag): (c_int, c_int, u32) = (0, 0, 0);
        let mut rank = ANY_RANK;
        let mut topic = ptr::null();
        // SAFETY: the message is ours, and all results outlive the calls. libflux does not write
        // to the result of a field that the message does not have.
        unsafe {
            libflux().flux_msg_get_type(message, &mut kind);
            libflux().flux_msg_get_topic(message, &mut topic);
            libflux().flux_msg_get_matchtag(message, &mut matchtag);
            if kind as u32 == sys::FLUX_MSGTYPE_RESPONSE {
                libflux().flux_msg_get_errnum(message, &mut errnum);
            }
            if kind as u32 == sys::FLUX_MSGTYPE_REQUEST {
                libflux().flux_msg_get_nodeid(message, &mut rank);
            }
        }
        let kind = match kind as u32 {
            sys::FLUX_MSGTYPE_REQUEST => Kind::Request,
            sys::FLUX_MSGTYPE_RESPONSE => Kind::Response,
            sys::FLUX_MSGTYPE_EVENT => Kind::Event,
            _ => Kind::Other,
        };
        Header {
            kind,
            // SAFETY: the topic is the message's, and lives as long as it does.
            topic: unsafe { text(topic) },
            matchtag,
            errnum,
            // SAFETY: the message is ours.
            noresponse: unsafe { libflux().flux_msg_is_noresponse(message) },
            // SAFETY: the message is ours.
            streaming: unsafe { libflux().flux_msg_is_streaming(message) },
            rank,
        }
    }

    fn payload(&self) -> &[u8] {
        let (mut bytes, mut size): (*const c_void, usize) = (ptr::null(), 0);
        // SAFETY: the message is ours; the payload lives as long as it does.
        let rc = unsafe { libflux().flux_msg_get_payload(self.as_ptr(), &mut bytes, &mut size) };
        if rc < 0 || bytes.is_null() {
            return &[];
        }
        // SAFETY: libflux says that the payload has this size.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), size) };
        bytes.strip_suffix(&[0]).unwrap_or(bytes)
    }

    fn size(&self) -> usize {
        // SAFETY: the message is ours.
        let size = unsafe { libflux().flux_msg_encode_size(self.as_ptr()) };
        usize::try_from(size).expect("a message has a size")
    }

    fn request(topic: &str, matchtag: u32, rank: u32, payload: &str) -> Self {
        // SAFETY: a new message is ours alone; the topic is copied.
        let request = unsafe {
            let request = Self::own(libflux().flux_msg_create(sys::FLUX_MSGTYPE_REQUEST as c_int));
            libflux().flux_msg_set_topic(request.as_ptr(), cstring(topic).as_ptr());
            libflux().flux_msg_set_matchtag(request.as_ptr(), matchtag);
            libflux().flux_msg_set_nodeid(request.as_ptr(), rank);
            request
        };
        request.set_payload(payload);
        request
    }

    fn with_payload(&self, payload: &str) -> Self {
        let copy = self.copy(false);
        copy.set_payload(payload);
        copy
    }

    fn to_rank(&self, rank: u32) -> Self {
        let copy = self.copy(true);
        // SAFETY: the copy is ours alone.
        unsafe { libflux().flux_msg_set_nodeid(copy.as_ptr(), rank) };
        copy
    }

    fn answer(&self, payload: &str) -> Self {
        self.derived(0, payload)
    }

    fn refusal(&self, errnum: i32, text: &str) -> Self {
        self.derived(errnum, text)
    }

    fn respond(&self, response: &Self) -> Self {
        let errnum = response.header().errnum;
        // SAFETY: both messages are ours, and the new one is, too; libflux copies the payload.
        unsafe {
            let own = Self::own(libflux().flux_response_derive(self.as_ptr(), errnum));
            let (mut bytes, mut size): (*const c_void, usize) = (ptr::null(), 0);
            libflux().flux_msg_get_payload(response.as_ptr(), &mut bytes, &mut size);
            libflux().flux_msg_set_payload(own.as_ptr(), bytes, size);
            own
        }
    }

    fn hops(&self) -> Vec<String> {
        let rest = self.copy(false);
        let mut hops = Vec::new();
        // SAFETY: the copy is ours alone; its text is copied before it changes.
        unsafe {
            while libflux().flux_msg_route_count(rest.as_ptr()) > 0 {
                hops.push(text(libflux().flux_msg_route_last(rest.as_ptr())).to_string());
                libflux().flux_msg_route_delete_last(rest.as_ptr());
            }
        }
        hops.reverse();
        hops
    }

    fn first_hop(&self) -> Option<String> {
        // SAFETY: the message is ours, and so is the text until it changes.
        let first = unsafe { text(libflux().flux_msg_route_first(self.as_ptr())) };
        (!first.is_empty()).then(|| first.to_string())
    }

    fn with_hops(&self, hops: &[String]) -> Self {
        let copy = self.copy(true);
        // SAFETY: the copy is ours alone; libflux copies the hops.
        unsafe {
            libflux().flux_msg_route_enable(copy.as_ptr());
            libflux().flux_msg_route_clear(copy.as_ptr());
            for hop in hops {
                libflux().flux_msg_route_push(copy.as_ptr(), cstring(hop).as_ptr());
            }
        }
        copy
    }

    fn is_trusted(&self) -> bool {
        let user = nix::unistd::getuid().as_raw();
        // SAFETY: the message is ours.
        unsafe { libflux().flux_msg_authorize(self.as_ptr(), user) == 0 }
    }

    fn push_hop(&mut self, hop: &str) {
        // SAFETY: the message has just been decoded, and is ours alone.
        unsafe {
            libflux().flux_msg_route_enable(self.as_ptr());
            libflux().flux_msg_route_push(self.as_ptr(), cstring(hop).as_ptr());
        }
    }

    fn pop_hop(&mut self, prefix: &str) -> Option<String> {
        // SAFETY: the message is ours, and so is the text until it changes.
        let last = unsafe { text(libflux().flux_msg_route_last(self.as_ptr())) };
        let rest = last.strip_prefix(prefix)?.to_string();
        *self = self.copy(true);
        // SAFETY: the copy is ours alone.
        unsafe { libflux().flux_msg_route_delete_last(self.as_ptr()) };
        Some(rest)
    }
}

//! Request and event messages, and their handlers.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use flux_sys::libflux;

use super::error::HandleError;
use super::handle::Handle;
use super::text::cstring;
use crate::machine::Credential;

/// A message, with a reference of its own.
pub struct Message(NonNull<flux_sys::flux_msg_t>);

impl Message {
    /// Takes a reference to a message that libflux lends.
    fn borrowed(message: *const flux_sys::flux_msg_t) -> Option<Self> {
        // SAFETY: libflux passes a valid message to handlers; null stays null.
        let message = unsafe { libflux().flux_msg_incref(message) };
        NonNull::new(message.cast_mut()).map(Self)
    }

    fn as_ptr(&self) -> *const flux_sys::flux_msg_t {
        self.0.as_ptr()
    }

    /// The payload, which need not be JSON or UTF-8; `null` if there is none.
    pub fn payload(&self) -> &[u8] {
        let mut text = ptr::null();
        // SAFETY: the message is ours; `text` points into it.
        let rc = unsafe { libflux().flux_msg_get_string(self.as_ptr(), &mut text) };
        if rc < 0 || text.is_null() {
            return b"null";
        }
        // SAFETY: a string payload is NUL-terminated and lives as long as the message.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes()
    }

    /// Who sent it (RFC 12).
    pub fn credential(&self) -> Credential {
        let mut cred = flux_sys::flux_msg_cred { userid: u32::MAX, rolemask: 0 };
        // SAFETY: `cred` outlives the call; on failure it stays without any role.
        unsafe { libflux().flux_msg_get_cred(self.as_ptr(), &mut cred) };
        let has = |role| cred.rolemask & role != 0;
        Credential {
            userid: cred.userid,
            owner: has(flux_sys::FLUX_ROLE_OWNER),
            local: has(flux_sys::FLUX_ROLE_LOCAL),
        }
    }

    /// Answers with a JSON payload, or with none.
    ///
    /// # Errors
    /// When the message can't be sent.
    pub fn respond(&self, handle: Handle, payload: Option<&str>) -> Result<(), HandleError> {
        let text = payload.map(cstring);
        let text = text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: the message is ours and the text lives through the call, which copies it.
        let rc = unsafe { libflux().flux_respond(handle.as_ptr(), self.as_ptr(), text) };
        if rc < 0 { Err(HandleError::last("respond")) } else { Ok(()) }
    }

    /// Answers with an error.
    ///
    /// # Errors
    /// When the message can't be sent.
    pub fn respond_error(
        &self,
        handle: Handle,
        errnum: i32,
        message: &str,
    ) -> Result<(), HandleError> {
        let text = cstring(message);
        let request = self.as_ptr();
        // SAFETY: the message is ours and the text lives through the call, which copies it.
        let rc = unsafe {
            libflux().flux_respond_error(handle.as_ptr(), request, errnum, text.as_ptr())
        };
        if rc < 0 { Err(HandleError::last("respond")) } else { Ok(()) }
    }

    /// Answers a shell in the barrier. Its request has the flag for no response, so libflux would
    /// suppress an ordinary one (flux-core `shell.c`, `shell_barrier`).
    ///
    /// # Errors
    /// When the message can't be sent.
    pub fn respond_to_barrier(
        &self,
        handle: Handle,
        error: Option<(i32, &str)>,
    ) -> Result<(), HandleError> {
        let failed = || HandleError::last("respond to shell barrier");
        let mut matchtag = 0;
        // SAFETY: the message is ours; `matchtag` outlives the call.
        if unsafe { libflux().flux_msg_get_matchtag(self.as_ptr(), &mut matchtag) } < 0 {
            return Err(failed());
        }
        // SAFETY: the message is ours; the copy is owned below.
        let mut copy = unsafe { libflux().flux_msg_copy(self.as_ptr(), false) };
        if copy.is_null() {
            return Err(failed());
        }
        let response = flux_sys::FLUX_MSGTYPE_RESPONSE as c_int;
        let noresponse = flux_sys::FLUX_MSGFLAG_NORESPONSE as c_int;
        // SAFETY: `copy` is a message of our own until flux_send_new takes it.
        let rc = unsafe {
            libflux().flux_msg_set_type(copy, response)
                | libflux().flux_msg_clear_flag(copy, noresponse)
                | libflux().flux_msg_set_matchtag(copy, matchtag)
        };
        let rc = rc
            | error.map_or(0, |(errnum, message)| {
                let text = cstring(message);
                // Without a text the shell uses that of the errno.
                let text = if message.is_empty() { ptr::null() } else { text.as_ptr() };
                // SAFETY: as above; the text is copied.
                unsafe {
                    libflux().flux_msg_set_errnum(copy, errnum)
                        | libflux().flux_msg_set_string(copy, text)
                }
            });
        // SAFETY: on success the message is consumed and `copy` nulled.
        let sent =
            rc == 0 && unsafe { libflux().flux_send_new(handle.as_ptr(), &mut copy, 0) } == 0;
        let result = if sent { Ok(()) } else { Err(failed()) };
        // SAFETY: null, or still ours.
        unsafe { libflux().flux_msg_decref(copy) };
        result
    }

    /// Whether this disconnect request is from the sender of `request`.
    pub fn is_disconnect_of(&self, request: &Message) -> bool {
        // SAFETY: both messages are ours.
        unsafe { libflux().flux_disconnect_match(self.as_ptr(), request.as_ptr()) }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the reference is ours.
        unsafe { libflux().flux_msg_decref(self.as_ptr()) };
    }
}

type Body = Box<dyn Fn(Message)>;

struct Target {
    handle: Handle,
    topic: String,
    body: Body,
}

/// Calls a closure for each message of one topic, until it is dropped.
pub struct MessageHandler {
    raw: *mut flux_sys::flux_msg_handler_t,
    _target: Box<Target>,
}

impl MessageHandler {
    /// Requests (`is_event` false) or events of `topic`. `for_users` lets guests call it.
    ///
    /// # Errors
    /// When libflux refuses.
    pub fn new(
        handle: Handle,
        topic: &str,
        is_event: bool,
        for_users: bool,
        body: impl Fn(Message) + 'static,
    ) -> Result<Self, HandleError> {
        let glob = cstring(topic);
        let kind =
            if is_event { flux_sys::FLUX_MSGTYPE_EVENT } else { flux_sys::FLUX_MSGTYPE_REQUEST };
        let matching = flux_sys::flux_match {
            typemask: kind as c_int,
            matchtag: flux_sys::FLUX_MATCHTAG_NONE,
            topic_glob: glob.as_ptr(),
        };
        let target = Box::new(Target { handle, topic: topic.to_string(), body: Box::new(body) });
        let arg = ptr::from_ref(&*target).cast_mut().cast::<c_void>();
        // SAFETY: `arg` lives as long as the handler (see Drop); the glob is copied.
        let raw = unsafe {
            libflux().flux_msg_handler_create(handle.as_ptr(), matching, Some(received), arg)
        };
        if raw.is_null() {
            return Err(HandleError::last(format!("handle {topic}")));
        }
        // SAFETY: the handler is ours.
        unsafe {
            if for_users {
                libflux().flux_msg_handler_allow_rolemask(raw, flux_sys::FLUX_ROLE_USER);
            }
            libflux().flux_msg_handler_start(raw);
        }
        Ok(Self { raw, _target: target })
    }
}

impl Drop for MessageHandler {
    fn drop(&mut self) {
        // SAFETY: the handler is ours; after this no callback sees the target.
        unsafe { libflux().flux_msg_handler_destroy(self.raw) };
    }
}

unsafe extern "C" fn received(
    _: *mut flux_sys::flux_t,
    _: *mut flux_sys::flux_msg_handler_t,
    message: *const flux_sys::flux_msg_t,
    arg: *mut c_void,
) {
    let _whole = super::Uncancelable::new();
    // SAFETY: `arg` is the handler's target, which outlives the handler.
    let target = unsafe { &*arg.cast::<Target>() };
    super::fence::call(target.handle, &target.topic, || {
        if let Some(message) = Message::borrowed(message) {
            (target.body)(message);
        }
    });
}

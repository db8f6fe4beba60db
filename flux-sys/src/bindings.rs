// Made by tests/bindings.rs from flux/core.h, and longer than a file that is to be read: bindgen writes each function four times. Do not edit.

pub const FLUX_OPT_TESTING_USERID: &[u8; 21] = b"flux::testing_userid\0";
pub const FLUX_OPT_TESTING_ROLEMASK: &[u8; 23] = b"flux::testing_rolemask\0";
pub type flux_free_f =
    ::std::option::Option<unsafe extern "C" fn(arg: *mut ::std::os::raw::c_void)>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_error_t {
    pub text: [::std::os::raw::c_char; 160usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_msg {
    _unused: [u8; 0],
}
pub type flux_msg_t = flux_msg;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_handle {
    _unused: [u8; 0],
}
pub type flux_t = flux_handle;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_watcher {
    _unused: [u8; 0],
}
pub type flux_watcher_t = flux_watcher;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_reactor {
    _unused: [u8; 0],
}
pub type flux_reactor_t = flux_reactor;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_future {
    _unused: [u8; 0],
}
pub type flux_future_t = flux_future;
pub const FLUX_MSGTYPE_REQUEST: _bindgen_ty_1 = 1;
pub const FLUX_MSGTYPE_RESPONSE: _bindgen_ty_1 = 2;
pub const FLUX_MSGTYPE_EVENT: _bindgen_ty_1 = 4;
pub const FLUX_MSGTYPE_CONTROL: _bindgen_ty_1 = 8;
pub const FLUX_MSGTYPE_ANY: _bindgen_ty_1 = 15;
pub const FLUX_MSGTYPE_MASK: _bindgen_ty_1 = 15;
pub type _bindgen_ty_1 = ::std::os::raw::c_uint;
pub const FLUX_MSGFLAG_TOPIC: _bindgen_ty_2 = 1;
pub const FLUX_MSGFLAG_PAYLOAD: _bindgen_ty_2 = 2;
pub const FLUX_MSGFLAG_NORESPONSE: _bindgen_ty_2 = 4;
pub const FLUX_MSGFLAG_ROUTE: _bindgen_ty_2 = 8;
pub const FLUX_MSGFLAG_UPSTREAM: _bindgen_ty_2 = 16;
pub const FLUX_MSGFLAG_PRIVATE: _bindgen_ty_2 = 32;
pub const FLUX_MSGFLAG_STREAMING: _bindgen_ty_2 = 64;
pub const FLUX_MSGFLAG_USER1: _bindgen_ty_2 = 128;
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
pub const FLUX_NODEID_ANY: _bindgen_ty_3 = 4294967295;
pub const FLUX_NODEID_UPSTREAM: _bindgen_ty_3 = 4294967294;
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_match {
    pub typemask: ::std::os::raw::c_int,
    pub matchtag: u32,
    pub topic_glob: *const ::std::os::raw::c_char,
}
pub const FLUX_ROLE_NONE: _bindgen_ty_5 = 0;
pub const FLUX_ROLE_OWNER: _bindgen_ty_5 = 1;
pub const FLUX_ROLE_USER: _bindgen_ty_5 = 2;
pub const FLUX_ROLE_LOCAL: _bindgen_ty_5 = 4;
pub const FLUX_ROLE_ADMIN: _bindgen_ty_5 = 8;
pub const FLUX_ROLE_ALL: _bindgen_ty_5 = 4294967295;
pub type _bindgen_ty_5 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_msg_cred {
    pub userid: u32,
    pub rolemask: u32,
}
pub const FLUX_MATCHTAG_NONE: _bindgen_ty_6 = 0;
pub type _bindgen_ty_6 = ::std::os::raw::c_uint;
pub const flux_conf_builtin_hint_FLUX_CONF_INSTALLED: flux_conf_builtin_hint = 0;
pub const flux_conf_builtin_hint_FLUX_CONF_INTREE: flux_conf_builtin_hint = 1;
pub const flux_conf_builtin_hint_FLUX_CONF_AUTO: flux_conf_builtin_hint = 2;
pub type flux_conf_builtin_hint = ::std::os::raw::c_uint;
pub const FLUX_O_TRACE: _bindgen_ty_7 = 1;
pub const FLUX_O_CLONE: _bindgen_ty_7 = 2;
pub const FLUX_O_NONBLOCK: _bindgen_ty_7 = 4;
pub const FLUX_O_MATCHDEBUG: _bindgen_ty_7 = 8;
pub const FLUX_O_TEST_NOSUB: _bindgen_ty_7 = 16;
pub const FLUX_O_RPCTRACK: _bindgen_ty_7 = 32;
pub const FLUX_O_NOREQUEUE: _bindgen_ty_7 = 64;
pub type _bindgen_ty_7 = ::std::os::raw::c_uint;
pub const FLUX_POLLIN: _bindgen_ty_9 = 1;
pub const FLUX_POLLOUT: _bindgen_ty_9 = 2;
pub const FLUX_POLLERR: _bindgen_ty_9 = 4;
pub type _bindgen_ty_9 = ::std::os::raw::c_uint;
pub type flux_watcher_f = ::std::option::Option<
    unsafe extern "C" fn(
        r: *mut flux_reactor_t,
        w: *mut flux_watcher_t,
        revents: ::std::os::raw::c_int,
        arg: *mut ::std::os::raw::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_msg_handler {
    _unused: [u8; 0],
}
pub type flux_msg_handler_t = flux_msg_handler;
pub type flux_msg_handler_f = ::std::option::Option<
    unsafe extern "C" fn(
        h: *mut flux_t,
        mh: *mut flux_msg_handler_t,
        msg: *const flux_msg_t,
        arg: *mut ::std::os::raw::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_handle_ops {
    pub setopt: ::std::option::Option<
        unsafe extern "C" fn(
            impl_: *mut ::std::os::raw::c_void,
            option: *const ::std::os::raw::c_char,
            val: *const ::std::os::raw::c_void,
            len: usize,
        ) -> ::std::os::raw::c_int,
    >,
    pub getopt: ::std::option::Option<
        unsafe extern "C" fn(
            impl_: *mut ::std::os::raw::c_void,
            option: *const ::std::os::raw::c_char,
            val: *mut ::std::os::raw::c_void,
            len: usize,
        ) -> ::std::os::raw::c_int,
    >,
    pub pollfd: ::std::option::Option<
        unsafe extern "C" fn(impl_: *mut ::std::os::raw::c_void) -> ::std::os::raw::c_int,
    >,
    pub pollevents: ::std::option::Option<
        unsafe extern "C" fn(impl_: *mut ::std::os::raw::c_void) -> ::std::os::raw::c_int,
    >,
    pub send: ::std::option::Option<
        unsafe extern "C" fn(
            impl_: *mut ::std::os::raw::c_void,
            msg: *const flux_msg_t,
            flags: ::std::os::raw::c_int,
        ) -> ::std::os::raw::c_int,
    >,
    pub recv: ::std::option::Option<
        unsafe extern "C" fn(
            impl_: *mut ::std::os::raw::c_void,
            flags: ::std::os::raw::c_int,
        ) -> *mut flux_msg_t,
    >,
    pub reconnect: ::std::option::Option<
        unsafe extern "C" fn(impl_: *mut ::std::os::raw::c_void) -> ::std::os::raw::c_int,
    >,
    pub impl_destroy:
        ::std::option::Option<unsafe extern "C" fn(impl_: *mut ::std::os::raw::c_void)>,
    pub send_new: ::std::option::Option<
        unsafe extern "C" fn(
            impl_: *mut ::std::os::raw::c_void,
            msg: *mut *mut flux_msg_t,
            flags: ::std::os::raw::c_int,
        ) -> ::std::os::raw::c_int,
    >,
    pub _pad: [*mut ::std::os::raw::c_void; 4usize],
}
pub const FLUX_RPC_NORESPONSE: _bindgen_ty_11 = 1;
pub const FLUX_RPC_STREAMING: _bindgen_ty_11 = 2;
pub type _bindgen_ty_11 = ::std::os::raw::c_uint;
pub type flux_continuation_f = ::std::option::Option<
    unsafe extern "C" fn(f: *mut flux_future_t, arg: *mut ::std::os::raw::c_void),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_kvs_txn {
    _unused: [u8; 0],
}
pub type flux_kvs_txn_t = flux_kvs_txn;
pub const kvs_commit_flags_FLUX_KVS_NO_MERGE: kvs_commit_flags = 1;
pub const kvs_commit_flags_FLUX_KVS_TXN_COMPACT: kvs_commit_flags = 2;
pub const kvs_commit_flags_FLUX_KVS_SYNC: kvs_commit_flags = 4;
pub type kvs_commit_flags = ::std::os::raw::c_uint;
pub const kvs_op_FLUX_KVS_READDIR: kvs_op = 1;
pub const kvs_op_FLUX_KVS_READLINK: kvs_op = 2;
pub const kvs_op_FLUX_KVS_WATCH: kvs_op = 4;
pub const kvs_op_FLUX_KVS_WAITCREATE: kvs_op = 8;
pub const kvs_op_FLUX_KVS_TREEOBJ: kvs_op = 16;
pub const kvs_op_FLUX_KVS_APPEND: kvs_op = 32;
pub const kvs_op_FLUX_KVS_WATCH_FULL: kvs_op = 64;
pub const kvs_op_FLUX_KVS_WATCH_UNIQ: kvs_op = 128;
pub const kvs_op_FLUX_KVS_WATCH_APPEND: kvs_op = 256;
pub const kvs_op_FLUX_KVS_STREAM: kvs_op = 512;
pub const kvs_op_FLUX_KVS_WATCH_INITIAL_SENTINEL: kvs_op = 1024;
pub type kvs_op = ::std::os::raw::c_uint;
pub type flux_jobid_t = u64;
pub struct Libflux {
    __library: ::libloading::Library,
    pub flux_msg_create: unsafe extern "C" fn(type_: ::std::os::raw::c_int) -> *mut flux_msg_t,
    pub flux_msg_copy:
        unsafe extern "C" fn(msg: *const flux_msg_t, payload: bool) -> *mut flux_msg_t,
    pub flux_msg_incref: unsafe extern "C" fn(msg: *const flux_msg_t) -> *const flux_msg_t,
    pub flux_msg_decref: unsafe extern "C" fn(msg: *const flux_msg_t),
    pub flux_msg_encode_size: unsafe extern "C" fn(msg: *const flux_msg_t) -> isize,
    pub flux_msg_encode: unsafe extern "C" fn(
        msg: *const flux_msg_t,
        buf: *mut ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_decode:
        unsafe extern "C" fn(buf: *const ::std::os::raw::c_void, size: usize) -> *mut flux_msg_t,
    pub flux_msg_set_type: unsafe extern "C" fn(
        msg: *mut flux_msg_t,
        type_: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_get_type: unsafe extern "C" fn(
        msg: *const flux_msg_t,
        type_: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_is_streaming: unsafe extern "C" fn(msg: *const flux_msg_t) -> bool,
    pub flux_msg_is_noresponse: unsafe extern "C" fn(msg: *const flux_msg_t) -> bool,
    pub flux_msg_set_topic: unsafe extern "C" fn(
        msg: *mut flux_msg_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_get_topic: unsafe extern "C" fn(
        msg: *const flux_msg_t,
        topic: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_get_payload: unsafe extern "C" fn(
        msg: *const flux_msg_t,
        buf: *mut *const ::std::os::raw::c_void,
        size: *mut usize,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_set_payload: unsafe extern "C" fn(
        msg: *mut flux_msg_t,
        buf: *const ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_clear_flag: unsafe extern "C" fn(
        msg: *mut flux_msg_t,
        flag: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_set_string: unsafe extern "C" fn(
        msg: *mut flux_msg_t,
        arg1: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_get_string: unsafe extern "C" fn(
        msg: *const flux_msg_t,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_set_nodeid:
        unsafe extern "C" fn(msg: *mut flux_msg_t, nodeid: u32) -> ::std::os::raw::c_int,
    pub flux_msg_get_nodeid:
        unsafe extern "C" fn(msg: *const flux_msg_t, nodeid: *mut u32) -> ::std::os::raw::c_int,
    pub flux_msg_get_cred: unsafe extern "C" fn(
        msg: *const flux_msg_t,
        cred: *mut flux_msg_cred,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_set_cred:
        unsafe extern "C" fn(msg: *mut flux_msg_t, cred: flux_msg_cred) -> ::std::os::raw::c_int,
    pub flux_msg_authorize:
        unsafe extern "C" fn(msg: *const flux_msg_t, userid: u32) -> ::std::os::raw::c_int,
    pub flux_msg_set_errnum: unsafe extern "C" fn(
        msg: *mut flux_msg_t,
        errnum: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_get_errnum: unsafe extern "C" fn(
        msg: *const flux_msg_t,
        errnum: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_set_matchtag:
        unsafe extern "C" fn(msg: *mut flux_msg_t, matchtag: u32) -> ::std::os::raw::c_int,
    pub flux_msg_get_matchtag:
        unsafe extern "C" fn(msg: *const flux_msg_t, matchtag: *mut u32) -> ::std::os::raw::c_int,
    pub flux_msg_route_enable: unsafe extern "C" fn(msg: *mut flux_msg_t),
    pub flux_msg_route_clear: unsafe extern "C" fn(msg: *mut flux_msg_t),
    pub flux_msg_route_push: unsafe extern "C" fn(
        msg: *mut flux_msg_t,
        id: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_msg_route_delete_last:
        unsafe extern "C" fn(msg: *mut flux_msg_t) -> ::std::os::raw::c_int,
    pub flux_msg_route_first:
        unsafe extern "C" fn(msg: *const flux_msg_t) -> *const ::std::os::raw::c_char,
    pub flux_msg_route_last:
        unsafe extern "C" fn(msg: *const flux_msg_t) -> *const ::std::os::raw::c_char,
    pub flux_msg_route_count: unsafe extern "C" fn(msg: *const flux_msg_t) -> ::std::os::raw::c_int,
    pub flux_conf_builtin_get: unsafe extern "C" fn(
        key: *const ::std::os::raw::c_char,
        hint: flux_conf_builtin_hint,
    ) -> *const ::std::os::raw::c_char,
    pub flux_open: unsafe extern "C" fn(
        uri: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_t,
    pub flux_open_ex: unsafe extern "C" fn(
        uri: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        error: *mut flux_error_t,
    ) -> *mut flux_t,
    pub flux_close: unsafe extern "C" fn(h: *mut flux_t),
    pub flux_get_reactor: unsafe extern "C" fn(h: *mut flux_t) -> *mut flux_reactor_t,
    pub flux_set_reactor:
        unsafe extern "C" fn(h: *mut flux_t, r: *mut flux_reactor_t) -> ::std::os::raw::c_int,
    pub flux_aux_get: unsafe extern "C" fn(
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut ::std::os::raw::c_void,
    pub flux_send_new: unsafe extern "C" fn(
        h: *mut flux_t,
        msg: *mut *mut flux_msg_t,
        flags: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub flux_reactor_run: unsafe extern "C" fn(
        r: *mut flux_reactor_t,
        flags: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
    pub flux_reactor_stop: unsafe extern "C" fn(r: *mut flux_reactor_t),
    pub flux_reactor_stop_error: unsafe extern "C" fn(r: *mut flux_reactor_t),
    pub flux_watcher_start: unsafe extern "C" fn(w: *mut flux_watcher_t),
    pub flux_watcher_stop: unsafe extern "C" fn(w: *mut flux_watcher_t),
    pub flux_watcher_destroy: unsafe extern "C" fn(w: *mut flux_watcher_t),
    pub flux_fd_watcher_create: unsafe extern "C" fn(
        r: *mut flux_reactor_t,
        fd: ::std::os::raw::c_int,
        events: ::std::os::raw::c_int,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t,
    pub flux_timer_watcher_create: unsafe extern "C" fn(
        r: *mut flux_reactor_t,
        after: f64,
        repeat: f64,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t,
    pub flux_timer_watcher_reset:
        unsafe extern "C" fn(w: *mut flux_watcher_t, after: f64, repeat: f64),
    pub flux_msg_handler_create: unsafe extern "C" fn(
        h: *mut flux_t,
        match_: flux_match,
        cb: flux_msg_handler_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_msg_handler_t,
    pub flux_msg_handler_destroy: unsafe extern "C" fn(mh: *mut flux_msg_handler_t),
    pub flux_msg_handler_start: unsafe extern "C" fn(mh: *mut flux_msg_handler_t),
    pub flux_msg_handler_allow_rolemask:
        unsafe extern "C" fn(mh: *mut flux_msg_handler_t, rolemask: u32),
    pub flux_handle_create: unsafe extern "C" fn(
        impl_: *mut ::std::os::raw::c_void,
        ops: *const flux_handle_ops,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_t,
    pub flux_response_derive: unsafe extern "C" fn(
        request: *const flux_msg_t,
        errnum: ::std::os::raw::c_int,
    ) -> *mut flux_msg_t,
    pub flux_respond: unsafe extern "C" fn(
        h: *mut flux_t,
        request: *const flux_msg_t,
        s: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_respond_error: unsafe extern "C" fn(
        h: *mut flux_t,
        request: *const flux_msg_t,
        errnum: ::std::os::raw::c_int,
        errstr: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_rpc: unsafe extern "C" fn(
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
        s: *const ::std::os::raw::c_char,
        nodeid: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t,
    pub flux_rpc_get: unsafe extern "C" fn(
        f: *mut flux_future_t,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_event_subscribe: unsafe extern "C" fn(
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_module_debug_test:
        unsafe extern "C" fn(h: *mut flux_t, flag: ::std::os::raw::c_int, clear: bool) -> bool,
    pub flux_attr_get: unsafe extern "C" fn(
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char,
    pub flux_get_rank:
        unsafe extern "C" fn(h: *mut flux_t, rank: *mut u32) -> ::std::os::raw::c_int,
    pub flux_log: unsafe extern "C" fn(
        h: *mut flux_t,
        level: ::std::os::raw::c_int,
        fmt: *const ::std::os::raw::c_char,
        ...
    ) -> ::std::os::raw::c_int,
    pub flux_future_then: unsafe extern "C" fn(
        f: *mut flux_future_t,
        timeout: f64,
        cb: flux_continuation_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int,
    pub flux_future_reset: unsafe extern "C" fn(f: *mut flux_future_t),
    pub flux_future_destroy: unsafe extern "C" fn(f: *mut flux_future_t),
    pub flux_future_aux_set: unsafe extern "C" fn(
        f: *mut flux_future_t,
        name: *const ::std::os::raw::c_char,
        aux: *mut ::std::os::raw::c_void,
        destroy: flux_free_f,
    ) -> ::std::os::raw::c_int,
    pub flux_future_get: unsafe extern "C" fn(
        f: *mut flux_future_t,
        result: *mut *const ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int,
    pub flux_future_error_string:
        unsafe extern "C" fn(f: *mut flux_future_t) -> *const ::std::os::raw::c_char,
    pub flux_service_register: unsafe extern "C" fn(
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t,
    pub flux_disconnect_match:
        unsafe extern "C" fn(msg1: *const flux_msg_t, msg2: *const flux_msg_t) -> bool,
    pub flux_kvs_lookup: unsafe extern "C" fn(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t,
    pub flux_kvs_lookupat: unsafe extern "C" fn(
        h: *mut flux_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        treeobj: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t,
    pub flux_kvs_lookup_get: unsafe extern "C" fn(
        f: *mut flux_future_t,
        value: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_kvs_lookup_get_treeobj: unsafe extern "C" fn(
        f: *mut flux_future_t,
        treeobj: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_kvs_lookup_cancel:
        unsafe extern "C" fn(f: *mut flux_future_t) -> ::std::os::raw::c_int,
    pub flux_kvs_txn_create: unsafe extern "C" fn() -> *mut flux_kvs_txn_t,
    pub flux_kvs_txn_destroy: unsafe extern "C" fn(txn: *mut flux_kvs_txn_t),
    pub flux_kvs_txn_put: unsafe extern "C" fn(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        value: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_kvs_txn_put_treeobj: unsafe extern "C" fn(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        treeobj: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_kvs_txn_unlink: unsafe extern "C" fn(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_kvs_txn_symlink: unsafe extern "C" fn(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        ns: *const ::std::os::raw::c_char,
        target: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
    pub flux_kvs_commit: unsafe extern "C" fn(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        txn: *mut flux_kvs_txn_t,
    ) -> *mut flux_future_t,
    pub flux_kvs_namespace_create: unsafe extern "C" fn(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        owner: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t,
    pub flux_kvs_namespace_create_with: unsafe extern "C" fn(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        rootref: *const ::std::os::raw::c_char,
        owner: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t,
    pub flux_kvs_namespace_remove: unsafe extern "C" fn(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t,
    pub flux_job_id_encode: unsafe extern "C" fn(
        id: flux_jobid_t,
        type_: *const ::std::os::raw::c_char,
        buf: *mut ::std::os::raw::c_char,
        bufsz: usize,
    ) -> ::std::os::raw::c_int,
}
impl Libflux {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let library = unsafe { ::libloading::Library::new(path) }?;
        unsafe { Self::from_library(library) }
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let flux_msg_create = unsafe { __library.get(b"flux_msg_create\0") }.map(|sym| *sym)?;
        let flux_msg_copy = unsafe { __library.get(b"flux_msg_copy\0") }.map(|sym| *sym)?;
        let flux_msg_incref = unsafe { __library.get(b"flux_msg_incref\0") }.map(|sym| *sym)?;
        let flux_msg_decref = unsafe { __library.get(b"flux_msg_decref\0") }.map(|sym| *sym)?;
        let flux_msg_encode_size =
            unsafe { __library.get(b"flux_msg_encode_size\0") }.map(|sym| *sym)?;
        let flux_msg_encode = unsafe { __library.get(b"flux_msg_encode\0") }.map(|sym| *sym)?;
        let flux_msg_decode = unsafe { __library.get(b"flux_msg_decode\0") }.map(|sym| *sym)?;
        let flux_msg_set_type = unsafe { __library.get(b"flux_msg_set_type\0") }.map(|sym| *sym)?;
        let flux_msg_get_type = unsafe { __library.get(b"flux_msg_get_type\0") }.map(|sym| *sym)?;
        let flux_msg_is_streaming =
            unsafe { __library.get(b"flux_msg_is_streaming\0") }.map(|sym| *sym)?;
        let flux_msg_is_noresponse =
            unsafe { __library.get(b"flux_msg_is_noresponse\0") }.map(|sym| *sym)?;
        let flux_msg_set_topic =
            unsafe { __library.get(b"flux_msg_set_topic\0") }.map(|sym| *sym)?;
        let flux_msg_get_topic =
            unsafe { __library.get(b"flux_msg_get_topic\0") }.map(|sym| *sym)?;
        let flux_msg_get_payload =
            unsafe { __library.get(b"flux_msg_get_payload\0") }.map(|sym| *sym)?;
        let flux_msg_set_payload =
            unsafe { __library.get(b"flux_msg_set_payload\0") }.map(|sym| *sym)?;
        let flux_msg_clear_flag =
            unsafe { __library.get(b"flux_msg_clear_flag\0") }.map(|sym| *sym)?;
        let flux_msg_set_string =
            unsafe { __library.get(b"flux_msg_set_string\0") }.map(|sym| *sym)?;
        let flux_msg_get_string =
            unsafe { __library.get(b"flux_msg_get_string\0") }.map(|sym| *sym)?;
        let flux_msg_set_nodeid =
            unsafe { __library.get(b"flux_msg_set_nodeid\0") }.map(|sym| *sym)?;
        let flux_msg_get_nodeid =
            unsafe { __library.get(b"flux_msg_get_nodeid\0") }.map(|sym| *sym)?;
        let flux_msg_get_cred = unsafe { __library.get(b"flux_msg_get_cred\0") }.map(|sym| *sym)?;
        let flux_msg_set_cred = unsafe { __library.get(b"flux_msg_set_cred\0") }.map(|sym| *sym)?;
        let flux_msg_authorize =
            unsafe { __library.get(b"flux_msg_authorize\0") }.map(|sym| *sym)?;
        let flux_msg_set_errnum =
            unsafe { __library.get(b"flux_msg_set_errnum\0") }.map(|sym| *sym)?;
        let flux_msg_get_errnum =
            unsafe { __library.get(b"flux_msg_get_errnum\0") }.map(|sym| *sym)?;
        let flux_msg_set_matchtag =
            unsafe { __library.get(b"flux_msg_set_matchtag\0") }.map(|sym| *sym)?;
        let flux_msg_get_matchtag =
            unsafe { __library.get(b"flux_msg_get_matchtag\0") }.map(|sym| *sym)?;
        let flux_msg_route_enable =
            unsafe { __library.get(b"flux_msg_route_enable\0") }.map(|sym| *sym)?;
        let flux_msg_route_clear =
            unsafe { __library.get(b"flux_msg_route_clear\0") }.map(|sym| *sym)?;
        let flux_msg_route_push =
            unsafe { __library.get(b"flux_msg_route_push\0") }.map(|sym| *sym)?;
        let flux_msg_route_delete_last =
            unsafe { __library.get(b"flux_msg_route_delete_last\0") }.map(|sym| *sym)?;
        let flux_msg_route_first =
            unsafe { __library.get(b"flux_msg_route_first\0") }.map(|sym| *sym)?;
        let flux_msg_route_last =
            unsafe { __library.get(b"flux_msg_route_last\0") }.map(|sym| *sym)?;
        let flux_msg_route_count =
            unsafe { __library.get(b"flux_msg_route_count\0") }.map(|sym| *sym)?;
        let flux_conf_builtin_get =
            unsafe { __library.get(b"flux_conf_builtin_get\0") }.map(|sym| *sym)?;
        let flux_open = unsafe { __library.get(b"flux_open\0") }.map(|sym| *sym)?;
        let flux_open_ex = unsafe { __library.get(b"flux_open_ex\0") }.map(|sym| *sym)?;
        let flux_close = unsafe { __library.get(b"flux_close\0") }.map(|sym| *sym)?;
        let flux_get_reactor = unsafe { __library.get(b"flux_get_reactor\0") }.map(|sym| *sym)?;
        let flux_set_reactor = unsafe { __library.get(b"flux_set_reactor\0") }.map(|sym| *sym)?;
        let flux_aux_get = unsafe { __library.get(b"flux_aux_get\0") }.map(|sym| *sym)?;
        let flux_send_new = unsafe { __library.get(b"flux_send_new\0") }.map(|sym| *sym)?;
        let flux_reactor_run = unsafe { __library.get(b"flux_reactor_run\0") }.map(|sym| *sym)?;
        let flux_reactor_stop = unsafe { __library.get(b"flux_reactor_stop\0") }.map(|sym| *sym)?;
        let flux_reactor_stop_error =
            unsafe { __library.get(b"flux_reactor_stop_error\0") }.map(|sym| *sym)?;
        let flux_watcher_start =
            unsafe { __library.get(b"flux_watcher_start\0") }.map(|sym| *sym)?;
        let flux_watcher_stop = unsafe { __library.get(b"flux_watcher_stop\0") }.map(|sym| *sym)?;
        let flux_watcher_destroy =
            unsafe { __library.get(b"flux_watcher_destroy\0") }.map(|sym| *sym)?;
        let flux_fd_watcher_create =
            unsafe { __library.get(b"flux_fd_watcher_create\0") }.map(|sym| *sym)?;
        let flux_timer_watcher_create =
            unsafe { __library.get(b"flux_timer_watcher_create\0") }.map(|sym| *sym)?;
        let flux_timer_watcher_reset =
            unsafe { __library.get(b"flux_timer_watcher_reset\0") }.map(|sym| *sym)?;
        let flux_msg_handler_create =
            unsafe { __library.get(b"flux_msg_handler_create\0") }.map(|sym| *sym)?;
        let flux_msg_handler_destroy =
            unsafe { __library.get(b"flux_msg_handler_destroy\0") }.map(|sym| *sym)?;
        let flux_msg_handler_start =
            unsafe { __library.get(b"flux_msg_handler_start\0") }.map(|sym| *sym)?;
        let flux_msg_handler_allow_rolemask =
            unsafe { __library.get(b"flux_msg_handler_allow_rolemask\0") }.map(|sym| *sym)?;
        let flux_handle_create =
            unsafe { __library.get(b"flux_handle_create\0") }.map(|sym| *sym)?;
        let flux_response_derive =
            unsafe { __library.get(b"flux_response_derive\0") }.map(|sym| *sym)?;
        let flux_respond = unsafe { __library.get(b"flux_respond\0") }.map(|sym| *sym)?;
        let flux_respond_error =
            unsafe { __library.get(b"flux_respond_error\0") }.map(|sym| *sym)?;
        let flux_rpc = unsafe { __library.get(b"flux_rpc\0") }.map(|sym| *sym)?;
        let flux_rpc_get = unsafe { __library.get(b"flux_rpc_get\0") }.map(|sym| *sym)?;
        let flux_event_subscribe =
            unsafe { __library.get(b"flux_event_subscribe\0") }.map(|sym| *sym)?;
        let flux_module_debug_test =
            unsafe { __library.get(b"flux_module_debug_test\0") }.map(|sym| *sym)?;
        let flux_attr_get = unsafe { __library.get(b"flux_attr_get\0") }.map(|sym| *sym)?;
        let flux_get_rank = unsafe { __library.get(b"flux_get_rank\0") }.map(|sym| *sym)?;
        let flux_log = unsafe { __library.get(b"flux_log\0") }.map(|sym| *sym)?;
        let flux_future_then = unsafe { __library.get(b"flux_future_then\0") }.map(|sym| *sym)?;
        let flux_future_reset = unsafe { __library.get(b"flux_future_reset\0") }.map(|sym| *sym)?;
        let flux_future_destroy =
            unsafe { __library.get(b"flux_future_destroy\0") }.map(|sym| *sym)?;
        let flux_future_aux_set =
            unsafe { __library.get(b"flux_future_aux_set\0") }.map(|sym| *sym)?;
        let flux_future_get = unsafe { __library.get(b"flux_future_get\0") }.map(|sym| *sym)?;
        let flux_future_error_string =
            unsafe { __library.get(b"flux_future_error_string\0") }.map(|sym| *sym)?;
        let flux_service_register =
            unsafe { __library.get(b"flux_service_register\0") }.map(|sym| *sym)?;
        let flux_disconnect_match =
            unsafe { __library.get(b"flux_disconnect_match\0") }.map(|sym| *sym)?;
        let flux_kvs_lookup = unsafe { __library.get(b"flux_kvs_lookup\0") }.map(|sym| *sym)?;
        let flux_kvs_lookupat = unsafe { __library.get(b"flux_kvs_lookupat\0") }.map(|sym| *sym)?;
        let flux_kvs_lookup_get =
            unsafe { __library.get(b"flux_kvs_lookup_get\0") }.map(|sym| *sym)?;
        let flux_kvs_lookup_get_treeobj =
            unsafe { __library.get(b"flux_kvs_lookup_get_treeobj\0") }.map(|sym| *sym)?;
        let flux_kvs_lookup_cancel =
            unsafe { __library.get(b"flux_kvs_lookup_cancel\0") }.map(|sym| *sym)?;
        let flux_kvs_txn_create =
            unsafe { __library.get(b"flux_kvs_txn_create\0") }.map(|sym| *sym)?;
        let flux_kvs_txn_destroy =
            unsafe { __library.get(b"flux_kvs_txn_destroy\0") }.map(|sym| *sym)?;
        let flux_kvs_txn_put = unsafe { __library.get(b"flux_kvs_txn_put\0") }.map(|sym| *sym)?;
        let flux_kvs_txn_put_treeobj =
            unsafe { __library.get(b"flux_kvs_txn_put_treeobj\0") }.map(|sym| *sym)?;
        let flux_kvs_txn_unlink =
            unsafe { __library.get(b"flux_kvs_txn_unlink\0") }.map(|sym| *sym)?;
        let flux_kvs_txn_symlink =
            unsafe { __library.get(b"flux_kvs_txn_symlink\0") }.map(|sym| *sym)?;
        let flux_kvs_commit = unsafe { __library.get(b"flux_kvs_commit\0") }.map(|sym| *sym)?;
        let flux_kvs_namespace_create =
            unsafe { __library.get(b"flux_kvs_namespace_create\0") }.map(|sym| *sym)?;
        let flux_kvs_namespace_create_with =
            unsafe { __library.get(b"flux_kvs_namespace_create_with\0") }.map(|sym| *sym)?;
        let flux_kvs_namespace_remove =
            unsafe { __library.get(b"flux_kvs_namespace_remove\0") }.map(|sym| *sym)?;
        let flux_job_id_encode =
            unsafe { __library.get(b"flux_job_id_encode\0") }.map(|sym| *sym)?;
        Ok(Libflux {
            __library,
            flux_msg_create,
            flux_msg_copy,
            flux_msg_incref,
            flux_msg_decref,
            flux_msg_encode_size,
            flux_msg_encode,
            flux_msg_decode,
            flux_msg_set_type,
            flux_msg_get_type,
            flux_msg_is_streaming,
            flux_msg_is_noresponse,
            flux_msg_set_topic,
            flux_msg_get_topic,
            flux_msg_get_payload,
            flux_msg_set_payload,
            flux_msg_clear_flag,
            flux_msg_set_string,
            flux_msg_get_string,
            flux_msg_set_nodeid,
            flux_msg_get_nodeid,
            flux_msg_get_cred,
            flux_msg_set_cred,
            flux_msg_authorize,
            flux_msg_set_errnum,
            flux_msg_get_errnum,
            flux_msg_set_matchtag,
            flux_msg_get_matchtag,
            flux_msg_route_enable,
            flux_msg_route_clear,
            flux_msg_route_push,
            flux_msg_route_delete_last,
            flux_msg_route_first,
            flux_msg_route_last,
            flux_msg_route_count,
            flux_conf_builtin_get,
            flux_open,
            flux_open_ex,
            flux_close,
            flux_get_reactor,
            flux_set_reactor,
            flux_aux_get,
            flux_send_new,
            flux_reactor_run,
            flux_reactor_stop,
            flux_reactor_stop_error,
            flux_watcher_start,
            flux_watcher_stop,
            flux_watcher_destroy,
            flux_fd_watcher_create,
            flux_timer_watcher_create,
            flux_timer_watcher_reset,
            flux_msg_handler_create,
            flux_msg_handler_destroy,
            flux_msg_handler_start,
            flux_msg_handler_allow_rolemask,
            flux_handle_create,
            flux_response_derive,
            flux_respond,
            flux_respond_error,
            flux_rpc,
            flux_rpc_get,
            flux_event_subscribe,
            flux_module_debug_test,
            flux_attr_get,
            flux_get_rank,
            flux_log,
            flux_future_then,
            flux_future_reset,
            flux_future_destroy,
            flux_future_aux_set,
            flux_future_get,
            flux_future_error_string,
            flux_service_register,
            flux_disconnect_match,
            flux_kvs_lookup,
            flux_kvs_lookupat,
            flux_kvs_lookup_get,
            flux_kvs_lookup_get_treeobj,
            flux_kvs_lookup_cancel,
            flux_kvs_txn_create,
            flux_kvs_txn_destroy,
            flux_kvs_txn_put,
            flux_kvs_txn_put_treeobj,
            flux_kvs_txn_unlink,
            flux_kvs_txn_symlink,
            flux_kvs_commit,
            flux_kvs_namespace_create,
            flux_kvs_namespace_create_with,
            flux_kvs_namespace_remove,
            flux_job_id_encode,
        })
    }
    pub unsafe fn flux_msg_create(&self, type_: ::std::os::raw::c_int) -> *mut flux_msg_t {
        unsafe { (self.flux_msg_create)(type_) }
    }
    pub unsafe fn flux_msg_copy(&self, msg: *const flux_msg_t, payload: bool) -> *mut flux_msg_t {
        unsafe { (self.flux_msg_copy)(msg, payload) }
    }
    pub unsafe fn flux_msg_incref(&self, msg: *const flux_msg_t) -> *const flux_msg_t {
        unsafe { (self.flux_msg_incref)(msg) }
    }
    pub unsafe fn flux_msg_decref(&self, msg: *const flux_msg_t) {
        unsafe { (self.flux_msg_decref)(msg) }
    }
    pub unsafe fn flux_msg_encode_size(&self, msg: *const flux_msg_t) -> isize {
        unsafe { (self.flux_msg_encode_size)(msg) }
    }
    pub unsafe fn flux_msg_encode(
        &self,
        msg: *const flux_msg_t,
        buf: *mut ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_encode)(msg, buf, size) }
    }
    pub unsafe fn flux_msg_decode(
        &self,
        buf: *const ::std::os::raw::c_void,
        size: usize,
    ) -> *mut flux_msg_t {
        unsafe { (self.flux_msg_decode)(buf, size) }
    }
    pub unsafe fn flux_msg_set_type(
        &self,
        msg: *mut flux_msg_t,
        type_: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_type)(msg, type_) }
    }
    pub unsafe fn flux_msg_get_type(
        &self,
        msg: *const flux_msg_t,
        type_: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_type)(msg, type_) }
    }
    pub unsafe fn flux_msg_is_streaming(&self, msg: *const flux_msg_t) -> bool {
        unsafe { (self.flux_msg_is_streaming)(msg) }
    }
    pub unsafe fn flux_msg_is_noresponse(&self, msg: *const flux_msg_t) -> bool {
        unsafe { (self.flux_msg_is_noresponse)(msg) }
    }
    pub unsafe fn flux_msg_set_topic(
        &self,
        msg: *mut flux_msg_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_topic)(msg, topic) }
    }
    pub unsafe fn flux_msg_get_topic(
        &self,
        msg: *const flux_msg_t,
        topic: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_topic)(msg, topic) }
    }
    pub unsafe fn flux_msg_get_payload(
        &self,
        msg: *const flux_msg_t,
        buf: *mut *const ::std::os::raw::c_void,
        size: *mut usize,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_payload)(msg, buf, size) }
    }
    pub unsafe fn flux_msg_set_payload(
        &self,
        msg: *mut flux_msg_t,
        buf: *const ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_payload)(msg, buf, size) }
    }
    pub unsafe fn flux_msg_clear_flag(
        &self,
        msg: *mut flux_msg_t,
        flag: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_clear_flag)(msg, flag) }
    }
    pub unsafe fn flux_msg_set_string(
        &self,
        msg: *mut flux_msg_t,
        arg1: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_string)(msg, arg1) }
    }
    pub unsafe fn flux_msg_get_string(
        &self,
        msg: *const flux_msg_t,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_string)(msg, s) }
    }
    pub unsafe fn flux_msg_set_nodeid(
        &self,
        msg: *mut flux_msg_t,
        nodeid: u32,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_nodeid)(msg, nodeid) }
    }
    pub unsafe fn flux_msg_get_nodeid(
        &self,
        msg: *const flux_msg_t,
        nodeid: *mut u32,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_nodeid)(msg, nodeid) }
    }
    pub unsafe fn flux_msg_get_cred(
        &self,
        msg: *const flux_msg_t,
        cred: *mut flux_msg_cred,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_cred)(msg, cred) }
    }
    pub unsafe fn flux_msg_set_cred(
        &self,
        msg: *mut flux_msg_t,
        cred: flux_msg_cred,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_cred)(msg, cred) }
    }
    pub unsafe fn flux_msg_authorize(
        &self,
        msg: *const flux_msg_t,
        userid: u32,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_authorize)(msg, userid) }
    }
    pub unsafe fn flux_msg_set_errnum(
        &self,
        msg: *mut flux_msg_t,
        errnum: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_errnum)(msg, errnum) }
    }
    pub unsafe fn flux_msg_get_errnum(
        &self,
        msg: *const flux_msg_t,
        errnum: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_errnum)(msg, errnum) }
    }
    pub unsafe fn flux_msg_set_matchtag(
        &self,
        msg: *mut flux_msg_t,
        matchtag: u32,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_set_matchtag)(msg, matchtag) }
    }
    pub unsafe fn flux_msg_get_matchtag(
        &self,
        msg: *const flux_msg_t,
        matchtag: *mut u32,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_get_matchtag)(msg, matchtag) }
    }
    pub unsafe fn flux_msg_route_enable(&self, msg: *mut flux_msg_t) {
        unsafe { (self.flux_msg_route_enable)(msg) }
    }
    pub unsafe fn flux_msg_route_clear(&self, msg: *mut flux_msg_t) {
        unsafe { (self.flux_msg_route_clear)(msg) }
    }
    pub unsafe fn flux_msg_route_push(
        &self,
        msg: *mut flux_msg_t,
        id: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_route_push)(msg, id) }
    }
    pub unsafe fn flux_msg_route_delete_last(&self, msg: *mut flux_msg_t) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_route_delete_last)(msg) }
    }
    pub unsafe fn flux_msg_route_first(
        &self,
        msg: *const flux_msg_t,
    ) -> *const ::std::os::raw::c_char {
        unsafe { (self.flux_msg_route_first)(msg) }
    }
    pub unsafe fn flux_msg_route_last(
        &self,
        msg: *const flux_msg_t,
    ) -> *const ::std::os::raw::c_char {
        unsafe { (self.flux_msg_route_last)(msg) }
    }
    pub unsafe fn flux_msg_route_count(&self, msg: *const flux_msg_t) -> ::std::os::raw::c_int {
        unsafe { (self.flux_msg_route_count)(msg) }
    }
    pub unsafe fn flux_conf_builtin_get(
        &self,
        key: *const ::std::os::raw::c_char,
        hint: flux_conf_builtin_hint,
    ) -> *const ::std::os::raw::c_char {
        unsafe { (self.flux_conf_builtin_get)(key, hint) }
    }
    pub unsafe fn flux_open(
        &self,
        uri: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_t {
        unsafe { (self.flux_open)(uri, flags) }
    }
    pub unsafe fn flux_open_ex(
        &self,
        uri: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        error: *mut flux_error_t,
    ) -> *mut flux_t {
        unsafe { (self.flux_open_ex)(uri, flags, error) }
    }
    pub unsafe fn flux_close(&self, h: *mut flux_t) {
        unsafe { (self.flux_close)(h) }
    }
    pub unsafe fn flux_get_reactor(&self, h: *mut flux_t) -> *mut flux_reactor_t {
        unsafe { (self.flux_get_reactor)(h) }
    }
    pub unsafe fn flux_set_reactor(
        &self,
        h: *mut flux_t,
        r: *mut flux_reactor_t,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_set_reactor)(h, r) }
    }
    pub unsafe fn flux_aux_get(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut ::std::os::raw::c_void {
        unsafe { (self.flux_aux_get)(h, name) }
    }
    pub unsafe fn flux_send_new(
        &self,
        h: *mut flux_t,
        msg: *mut *mut flux_msg_t,
        flags: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_send_new)(h, msg, flags) }
    }
    pub unsafe fn flux_reactor_run(
        &self,
        r: *mut flux_reactor_t,
        flags: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_reactor_run)(r, flags) }
    }
    pub unsafe fn flux_reactor_stop(&self, r: *mut flux_reactor_t) {
        unsafe { (self.flux_reactor_stop)(r) }
    }
    pub unsafe fn flux_reactor_stop_error(&self, r: *mut flux_reactor_t) {
        unsafe { (self.flux_reactor_stop_error)(r) }
    }
    pub unsafe fn flux_watcher_start(&self, w: *mut flux_watcher_t) {
        unsafe { (self.flux_watcher_start)(w) }
    }
    pub unsafe fn flux_watcher_stop(&self, w: *mut flux_watcher_t) {
        unsafe { (self.flux_watcher_stop)(w) }
    }
    pub unsafe fn flux_watcher_destroy(&self, w: *mut flux_watcher_t) {
        unsafe { (self.flux_watcher_destroy)(w) }
    }
    pub unsafe fn flux_fd_watcher_create(
        &self,
        r: *mut flux_reactor_t,
        fd: ::std::os::raw::c_int,
        events: ::std::os::raw::c_int,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t {
        unsafe { (self.flux_fd_watcher_create)(r, fd, events, cb, arg) }
    }
    pub unsafe fn flux_timer_watcher_create(
        &self,
        r: *mut flux_reactor_t,
        after: f64,
        repeat: f64,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t {
        unsafe { (self.flux_timer_watcher_create)(r, after, repeat, cb, arg) }
    }
    pub unsafe fn flux_timer_watcher_reset(&self, w: *mut flux_watcher_t, after: f64, repeat: f64) {
        unsafe { (self.flux_timer_watcher_reset)(w, after, repeat) }
    }
    pub unsafe fn flux_msg_handler_create(
        &self,
        h: *mut flux_t,
        match_: flux_match,
        cb: flux_msg_handler_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_msg_handler_t {
        unsafe { (self.flux_msg_handler_create)(h, match_, cb, arg) }
    }
    pub unsafe fn flux_msg_handler_destroy(&self, mh: *mut flux_msg_handler_t) {
        unsafe { (self.flux_msg_handler_destroy)(mh) }
    }
    pub unsafe fn flux_msg_handler_start(&self, mh: *mut flux_msg_handler_t) {
        unsafe { (self.flux_msg_handler_start)(mh) }
    }
    pub unsafe fn flux_msg_handler_allow_rolemask(
        &self,
        mh: *mut flux_msg_handler_t,
        rolemask: u32,
    ) {
        unsafe { (self.flux_msg_handler_allow_rolemask)(mh, rolemask) }
    }
    pub unsafe fn flux_handle_create(
        &self,
        impl_: *mut ::std::os::raw::c_void,
        ops: *const flux_handle_ops,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_t {
        unsafe { (self.flux_handle_create)(impl_, ops, flags) }
    }
    pub unsafe fn flux_response_derive(
        &self,
        request: *const flux_msg_t,
        errnum: ::std::os::raw::c_int,
    ) -> *mut flux_msg_t {
        unsafe { (self.flux_response_derive)(request, errnum) }
    }
    pub unsafe fn flux_respond(
        &self,
        h: *mut flux_t,
        request: *const flux_msg_t,
        s: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_respond)(h, request, s) }
    }
    pub unsafe fn flux_respond_error(
        &self,
        h: *mut flux_t,
        request: *const flux_msg_t,
        errnum: ::std::os::raw::c_int,
        errstr: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_respond_error)(h, request, errnum, errstr) }
    }
    pub unsafe fn flux_rpc(
        &self,
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
        s: *const ::std::os::raw::c_char,
        nodeid: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_rpc)(h, topic, s, nodeid, flags) }
    }
    pub unsafe fn flux_rpc_get(
        &self,
        f: *mut flux_future_t,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_rpc_get)(f, s) }
    }
    pub unsafe fn flux_event_subscribe(
        &self,
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_event_subscribe)(h, topic) }
    }
    pub unsafe fn flux_module_debug_test(
        &self,
        h: *mut flux_t,
        flag: ::std::os::raw::c_int,
        clear: bool,
    ) -> bool {
        unsafe { (self.flux_module_debug_test)(h, flag, clear) }
    }
    pub unsafe fn flux_attr_get(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char {
        unsafe { (self.flux_attr_get)(h, name) }
    }
    pub unsafe fn flux_get_rank(&self, h: *mut flux_t, rank: *mut u32) -> ::std::os::raw::c_int {
        unsafe { (self.flux_get_rank)(h, rank) }
    }
    pub unsafe fn flux_future_then(
        &self,
        f: *mut flux_future_t,
        timeout: f64,
        cb: flux_continuation_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_future_then)(f, timeout, cb, arg) }
    }
    pub unsafe fn flux_future_reset(&self, f: *mut flux_future_t) {
        unsafe { (self.flux_future_reset)(f) }
    }
    pub unsafe fn flux_future_destroy(&self, f: *mut flux_future_t) {
        unsafe { (self.flux_future_destroy)(f) }
    }
    pub unsafe fn flux_future_aux_set(
        &self,
        f: *mut flux_future_t,
        name: *const ::std::os::raw::c_char,
        aux: *mut ::std::os::raw::c_void,
        destroy: flux_free_f,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_future_aux_set)(f, name, aux, destroy) }
    }
    pub unsafe fn flux_future_get(
        &self,
        f: *mut flux_future_t,
        result: *mut *const ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_future_get)(f, result) }
    }
    pub unsafe fn flux_future_error_string(
        &self,
        f: *mut flux_future_t,
    ) -> *const ::std::os::raw::c_char {
        unsafe { (self.flux_future_error_string)(f) }
    }
    pub unsafe fn flux_service_register(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_service_register)(h, name) }
    }
    pub unsafe fn flux_disconnect_match(
        &self,
        msg1: *const flux_msg_t,
        msg2: *const flux_msg_t,
    ) -> bool {
        unsafe { (self.flux_disconnect_match)(msg1, msg2) }
    }
    pub unsafe fn flux_kvs_lookup(
        &self,
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_kvs_lookup)(h, ns, flags, key) }
    }
    pub unsafe fn flux_kvs_lookupat(
        &self,
        h: *mut flux_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        treeobj: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_kvs_lookupat)(h, flags, key, treeobj) }
    }
    pub unsafe fn flux_kvs_lookup_get(
        &self,
        f: *mut flux_future_t,
        value: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_kvs_lookup_get)(f, value) }
    }
    pub unsafe fn flux_kvs_lookup_get_treeobj(
        &self,
        f: *mut flux_future_t,
        treeobj: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_kvs_lookup_get_treeobj)(f, treeobj) }
    }
    pub unsafe fn flux_kvs_lookup_cancel(&self, f: *mut flux_future_t) -> ::std::os::raw::c_int {
        unsafe { (self.flux_kvs_lookup_cancel)(f) }
    }
    pub unsafe fn flux_kvs_txn_create(&self) -> *mut flux_kvs_txn_t {
        unsafe { (self.flux_kvs_txn_create)() }
    }
    pub unsafe fn flux_kvs_txn_destroy(&self, txn: *mut flux_kvs_txn_t) {
        unsafe { (self.flux_kvs_txn_destroy)(txn) }
    }
    pub unsafe fn flux_kvs_txn_put(
        &self,
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        value: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_kvs_txn_put)(txn, flags, key, value) }
    }
    pub unsafe fn flux_kvs_txn_put_treeobj(
        &self,
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        treeobj: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_kvs_txn_put_treeobj)(txn, flags, key, treeobj) }
    }
    pub unsafe fn flux_kvs_txn_unlink(
        &self,
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_kvs_txn_unlink)(txn, flags, key) }
    }
    pub unsafe fn flux_kvs_txn_symlink(
        &self,
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        ns: *const ::std::os::raw::c_char,
        target: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_kvs_txn_symlink)(txn, flags, key, ns, target) }
    }
    pub unsafe fn flux_kvs_commit(
        &self,
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        txn: *mut flux_kvs_txn_t,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_kvs_commit)(h, ns, flags, txn) }
    }
    pub unsafe fn flux_kvs_namespace_create(
        &self,
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        owner: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_kvs_namespace_create)(h, ns, owner, flags) }
    }
    pub unsafe fn flux_kvs_namespace_create_with(
        &self,
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        rootref: *const ::std::os::raw::c_char,
        owner: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_kvs_namespace_create_with)(h, ns, rootref, owner, flags) }
    }
    pub unsafe fn flux_kvs_namespace_remove(
        &self,
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t {
        unsafe { (self.flux_kvs_namespace_remove)(h, ns) }
    }
    pub unsafe fn flux_job_id_encode(
        &self,
        id: flux_jobid_t,
        type_: *const ::std::os::raw::c_char,
        buf: *mut ::std::os::raw::c_char,
        bufsz: usize,
    ) -> ::std::os::raw::c_int {
        unsafe { (self.flux_job_id_encode)(id, type_, buf, bufsz) }
    }
}

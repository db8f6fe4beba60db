// Made by tests/bindings.rs from flux/core.h. Do not edit.

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
pub type flux_future_init_f = ::std::option::Option<
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
functions! {
    pub fn flux_msg_create(type_: ::std::os::raw::c_int) -> *mut flux_msg_t;
    pub fn flux_msg_copy(msg: *const flux_msg_t, payload: bool) -> *mut flux_msg_t;
    pub fn flux_msg_incref(msg: *const flux_msg_t) -> *const flux_msg_t;
    pub fn flux_msg_decref(msg: *const flux_msg_t);
    pub fn flux_msg_encode_size(msg: *const flux_msg_t) -> isize;
    pub fn flux_msg_encode(
        msg: *const flux_msg_t,
        buf: *mut ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_decode(buf: *const ::std::os::raw::c_void, size: usize) -> *mut flux_msg_t;
    pub fn flux_msg_set_type(
        msg: *mut flux_msg_t,
        type_: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_type(
        msg: *const flux_msg_t,
        type_: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_is_streaming(msg: *const flux_msg_t) -> bool;
    pub fn flux_msg_is_noresponse(msg: *const flux_msg_t) -> bool;
    pub fn flux_msg_set_topic(
        msg: *mut flux_msg_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_topic(
        msg: *const flux_msg_t,
        topic: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_payload(
        msg: *const flux_msg_t,
        buf: *mut *const ::std::os::raw::c_void,
        size: *mut usize,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_set_payload(
        msg: *mut flux_msg_t,
        buf: *const ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_clear_flag(
        msg: *mut flux_msg_t,
        flag: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_set_string(
        msg: *mut flux_msg_t,
        arg1: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_string(
        msg: *const flux_msg_t,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_set_nodeid(msg: *mut flux_msg_t, nodeid: u32) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_nodeid(msg: *const flux_msg_t, nodeid: *mut u32) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_cred(
        msg: *const flux_msg_t,
        cred: *mut flux_msg_cred,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_set_cred(msg: *mut flux_msg_t, cred: flux_msg_cred) -> ::std::os::raw::c_int;
    pub fn flux_msg_authorize(msg: *const flux_msg_t, userid: u32) -> ::std::os::raw::c_int;
    pub fn flux_msg_set_errnum(
        msg: *mut flux_msg_t,
        errnum: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_errnum(
        msg: *const flux_msg_t,
        errnum: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_set_matchtag(msg: *mut flux_msg_t, matchtag: u32) -> ::std::os::raw::c_int;
    pub fn flux_msg_get_matchtag(
        msg: *const flux_msg_t,
        matchtag: *mut u32,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_route_enable(msg: *mut flux_msg_t);
    pub fn flux_msg_route_clear(msg: *mut flux_msg_t);
    pub fn flux_msg_route_push(
        msg: *mut flux_msg_t,
        id: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_msg_route_delete_last(msg: *mut flux_msg_t) -> ::std::os::raw::c_int;
    pub fn flux_msg_route_first(msg: *const flux_msg_t) -> *const ::std::os::raw::c_char;
    pub fn flux_msg_route_last(msg: *const flux_msg_t) -> *const ::std::os::raw::c_char;
    pub fn flux_msg_route_count(msg: *const flux_msg_t) -> ::std::os::raw::c_int;
    pub fn flux_conf_builtin_get(
        key: *const ::std::os::raw::c_char,
        hint: flux_conf_builtin_hint,
    ) -> *const ::std::os::raw::c_char;
    pub fn flux_open(
        uri: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_t;
    pub fn flux_open_ex(
        uri: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        error: *mut flux_error_t,
    ) -> *mut flux_t;
    pub fn flux_close(h: *mut flux_t);
    pub fn flux_get_reactor(h: *mut flux_t) -> *mut flux_reactor_t;
    pub fn flux_set_reactor(h: *mut flux_t, r: *mut flux_reactor_t) -> ::std::os::raw::c_int;
    pub fn flux_aux_get(
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut ::std::os::raw::c_void;
    pub fn flux_send_new(
        h: *mut flux_t,
        msg: *mut *mut flux_msg_t,
        flags: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn flux_reactor_run(
        r: *mut flux_reactor_t,
        flags: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn flux_reactor_stop(r: *mut flux_reactor_t);
    pub fn flux_reactor_stop_error(r: *mut flux_reactor_t);
    pub fn flux_watcher_start(w: *mut flux_watcher_t);
    pub fn flux_watcher_stop(w: *mut flux_watcher_t);
    pub fn flux_watcher_destroy(w: *mut flux_watcher_t);
    pub fn flux_fd_watcher_create(
        r: *mut flux_reactor_t,
        fd: ::std::os::raw::c_int,
        events: ::std::os::raw::c_int,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t;
    pub fn flux_timer_watcher_create(
        r: *mut flux_reactor_t,
        after: f64,
        repeat: f64,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t;
    pub fn flux_timer_watcher_reset(w: *mut flux_watcher_t, after: f64, repeat: f64);
    pub fn flux_msg_handler_create(
        h: *mut flux_t,
        match_: flux_match,
        cb: flux_msg_handler_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_msg_handler_t;
    pub fn flux_msg_handler_destroy(mh: *mut flux_msg_handler_t);
    pub fn flux_msg_handler_start(mh: *mut flux_msg_handler_t);
    pub fn flux_msg_handler_allow_rolemask(mh: *mut flux_msg_handler_t, rolemask: u32);
    pub fn flux_handle_create(
        impl_: *mut ::std::os::raw::c_void,
        ops: *const flux_handle_ops,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_t;
    pub fn flux_response_derive(
        request: *const flux_msg_t,
        errnum: ::std::os::raw::c_int,
    ) -> *mut flux_msg_t;
    pub fn flux_respond(
        h: *mut flux_t,
        request: *const flux_msg_t,
        s: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_respond_error(
        h: *mut flux_t,
        request: *const flux_msg_t,
        errnum: ::std::os::raw::c_int,
        errstr: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_rpc(
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
        s: *const ::std::os::raw::c_char,
        nodeid: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t;
    pub fn flux_rpc_get(
        f: *mut flux_future_t,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_event_subscribe(
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_module_debug_test(h: *mut flux_t, flag: ::std::os::raw::c_int, clear: bool)
    -> bool;
    pub fn flux_attr_get(
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char;
    pub fn flux_get_rank(h: *mut flux_t, rank: *mut u32) -> ::std::os::raw::c_int;
    pub fn flux_future_then(
        f: *mut flux_future_t,
        timeout: f64,
        cb: flux_continuation_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn flux_future_reset(f: *mut flux_future_t);
    pub fn flux_future_destroy(f: *mut flux_future_t);
    pub fn flux_future_aux_set(
        f: *mut flux_future_t,
        name: *const ::std::os::raw::c_char,
        aux: *mut ::std::os::raw::c_void,
        destroy: flux_free_f,
    ) -> ::std::os::raw::c_int;
    pub fn flux_future_create(
        cb: flux_future_init_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_future_t;
    pub fn flux_future_get(
        f: *mut flux_future_t,
        result: *mut *const ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn flux_future_error_string(f: *mut flux_future_t) -> *const ::std::os::raw::c_char;
    pub fn flux_future_set_reactor(f: *mut flux_future_t, r: *mut flux_reactor_t);
    pub fn flux_service_register(
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t;
    pub fn flux_disconnect_match(msg1: *const flux_msg_t, msg2: *const flux_msg_t) -> bool;
    pub fn flux_kvs_lookup(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t;
    pub fn flux_kvs_lookupat(
        h: *mut flux_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        treeobj: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t;
    pub fn flux_kvs_lookup_get(
        f: *mut flux_future_t,
        value: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_kvs_lookup_get_treeobj(
        f: *mut flux_future_t,
        treeobj: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_kvs_lookup_cancel(f: *mut flux_future_t) -> ::std::os::raw::c_int;
    pub fn flux_kvs_txn_create() -> *mut flux_kvs_txn_t;
    pub fn flux_kvs_txn_destroy(txn: *mut flux_kvs_txn_t);
    pub fn flux_kvs_txn_put(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        value: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_kvs_txn_put_treeobj(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        treeobj: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_kvs_txn_unlink(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_kvs_txn_symlink(
        txn: *mut flux_kvs_txn_t,
        flags: ::std::os::raw::c_int,
        key: *const ::std::os::raw::c_char,
        ns: *const ::std::os::raw::c_char,
        target: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn flux_kvs_commit(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        txn: *mut flux_kvs_txn_t,
    ) -> *mut flux_future_t;
    pub fn flux_kvs_namespace_create(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        owner: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t;
    pub fn flux_kvs_namespace_create_with(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
        rootref: *const ::std::os::raw::c_char,
        owner: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t;
    pub fn flux_kvs_namespace_remove(
        h: *mut flux_t,
        ns: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t;
    pub fn flux_job_id_encode(
        id: flux_jobid_t,
        type_: *const ::std::os::raw::c_char,
        buf: *mut ::std::os::raw::c_char,
        bufsz: usize,
    ) -> ::std::os::raw::c_int;
    variadic flux_log: unsafe extern "C" fn(
        h: *mut flux_t,
        level: ::std::os::raw::c_int,
        fmt: *const ::std::os::raw::c_char,
        ...
    ) -> ::std::os::raw::c_int;
}

//! Raw bindings to libflux-core, generated from `flux/core.h`. No logic lives here.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, clippy::all, rustdoc::all)]

#[cfg(flux)]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

//! Turns what flux-sys found into the `flux` configuration of this crate.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(flux)");
    if std::env::var_os("DEP_FLUX_CORE_FOUND").is_some() {
        println!("cargo:rustc-cfg=flux");
    }
}

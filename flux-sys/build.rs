//! Finds libflux-core through pkg-config and binds what the libflux adapter uses.
//!
//! Without an installed Flux this crate is empty and says so in one line, so that
//! everything but the broker module still builds. Dependents read `DEP_FLUX_CORE_FOUND`.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=wrapper.h");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rustc-check-cfg=cfg(flux)");
    let library = match pkg_config::Config::new().atleast_version("0.80").probe("flux-core") {
        Ok(library) => library,
        Err(_) => {
            // Cargo would not look again when it is installed later: this file never is.
            println!("cargo:rerun-if-changed=no-flux-core-yet");
            println!(
                "cargo:warning=flux-core not found by pkg-config: building without the broker module"
            );
            return;
        }
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(library.include_paths.iter().map(|p| format!("-I{}", p.display())))
        .allowlist_function("flux_.*")
        .allowlist_type("flux_.*|kvs_op|kvs_commit_flags")
        .allowlist_var("FLUX_.*")
        .blocklist_function("flux_.*_va|flux_.*_vpack|flux_vlog|flux_.*vunpack.*|flux_.*_vpack.*")
        .layout_tests(false)
        .generate()
        .expect("bindgen reads flux/core.h")
        .write_to_file(out.join("bindings.rs"))
        .expect("cargo's OUT_DIR is writable");
    println!("cargo:rustc-cfg=flux");
    println!("cargo:found=1");
}

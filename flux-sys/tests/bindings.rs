//! `src/bindings.rs` is what bindgen makes of the headers of the Flux that is installed, and has
//! what is used, no more. With `UPDATE_BINDINGS=1` it is written anew.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The release that this project targets (README.md).
const TARGET: &str = "0.88.";

/// Types, and constants, beside those that the functions bring.
const TYPES: [&str; 4] =
    ["flux_conf_builtin_hint", "flux_handle_ops", "kvs_commit_flags", "kvs_op"];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(directory: &Path, found: &mut String) {
    for entry in fs::read_dir(directory).expect("a directory of this project") {
        let path = entry.expect("its entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&fs::read_to_string(&path).expect("a source file"));
        }
    }
}

/// What follows `prefix` in the sources, up to the end of the name.
fn names_after(prefix: &str) -> BTreeSet<String> {
    let mut text = String::new();
    for directory in ["src", "connector/src"] {
        sources(&project().join(directory), &mut text);
    }
    let name = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest[..end.unwrap_or(rest.len())].to_string()
    };
    // A call may begin on the line before.
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").replace("libflux() .", "libflux().");
    text.split(prefix).skip(1).map(name).collect()
}

fn generate(include_paths: &[PathBuf]) -> String {
    let functions = names_after("libflux().");
    let constants = names_after("sys::").into_iter().filter(|name| name.starts_with("FLUX_"));
    let mut builder = bindgen::Builder::default()
        .header_contents("flux.h", "#include <flux/core.h>\n")
        .clang_args(include_paths.iter().map(|path| format!("-I{}", path.display())))
        .raw_line("// Made by tests/bindings.rs from flux/core.h. Do not edit.")
        .rust_target(bindgen::RustTarget::stable(85, 0).expect("a release that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .wrap_unsafe_ops(true)
        .generate_comments(false)
        .disable_header_comment()
        .layout_tests(false);
    for function in functions {
        builder = builder.allowlist_function(function);
    }
    for constant in constants {
        builder = builder.allowlist_var(constant);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    with_table(&builder.generate().expect("bindgen reads flux/core.h").to_string())
}

/// Nothing is linked: the functions that bindgen declares go into the table of `src/table.rs`.
fn with_table(bindings: &str) -> String {
    let mut parts = bindings.split("unsafe extern \"C\" {\n");
    let mut others = parts.next().expect("what is before the first").to_string();
    let (mut functions, mut variadic) = (String::new(), String::new());
    for part in parts {
        let (function, rest) = part.split_once("\n}\n").expect("an end of the block");
        others.push_str(rest);
        if !function.contains("...") {
            functions.push_str(&format!("{function}\n"));
            continue;
        }
        let (name, arguments) = function.split_once('(').expect("arguments");
        let name = name.trim().trim_start_matches("pub fn ");
        variadic.push_str(&format!("    variadic {name}: unsafe extern \"C\" fn({arguments}\n"));
    }
    format!("{others}functions! {{\n{functions}{variadic}}}\n")
}

fn skip(why: &str) {
    // What a test prints is shown only if it fails.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

#[test]
fn the_bindings_are_those_of_the_headers() {
    let library = match pkg_config::Config::new().cargo_metadata(false).probe("flux-core") {
        Ok(library) => library,
        Err(_) => return skip("pkg-config finds no flux-core"),
    };
    if !library.version.starts_with(TARGET) {
        return skip(&format!("made for flux-core {TARGET}, found {}", library.version));
    }
    let made = generate(&library.include_paths);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings.rs");
    if std::env::var_os("UPDATE_BINDINGS").is_some() {
        fs::write(&path, &made).expect("the file can be written");
    }
    let kept = fs::read_to_string(&path).expect("src/bindings.rs");
    let differs = made.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert_eq!(differs, None, "of flux-core {}", library.version);
    assert_eq!(made.lines().count(), kept.lines().count(), "of flux-core {}", library.version);
}

//! Names the build, for the module (with its command) and the connector: the release, and the commit where
//! that is known. A debug build has none, so that a commit is no reason to compile everything again.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=Cargo.toml");
    let release = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let build = match commit() {
        Some(commit) => format!("{release} ({commit})"),
        None => release,
    };
    println!("cargo::rustc-env=JOB_EXEC_RS_BUILD={build}");
}

/// `None` without git, and in a tree that is part of no repository, or of another one.
fn commit() -> Option<String> {
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return Some("debug".to_string());
    }
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    // Both change when another commit is checked out, and the first also when one is made.
    for name in ["logs/HEAD", "HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        // A file that is not there would be a reason to build each time.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

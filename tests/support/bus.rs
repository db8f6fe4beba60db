//! A user bus for the test binary.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Set for the test binary that runs under `tests/user-systemd`.
const INSIDE: &str = "JOB_EXEC_RS_USER_SYSTEMD";

/// True if there is a user bus with systemd on it.
///
/// Without one, the first caller runs the whole test binary again under `tests/user-systemd`
/// and ends this process with that one's status. Where that is not possible (status 77), it
/// says why, once, and false is returned.
pub fn bus() -> bool {
    static BUS: OnceLock<bool> = OnceLock::new();
    *BUS.get_or_init(|| std::env::var_os(INSIDE).is_some() || run_inside())
}

fn run_inside() -> bool {
    // The tests of the command are in a directory below this one's.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let script = above.map(|place| place.join("tests/user-systemd")).find(|path| path.is_file());
    let output = Command::new(script.expect("tests/user-systemd"))
        .arg(std::env::current_exe().expect("the test binary has a path"))
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .stdout(Stdio::inherit())
        .stderr(Stdio::piped())
        .output()
        .expect("tests/user-systemd can be run");
    // Not print!: what tests print is only shown when they fail.
    let mut stderr = std::io::stderr();
    if output.status.code() == Some(77) {
        let why = String::from_utf8_lossy(&output.stderr);
        let _ = writeln!(stderr, "skipped: {}", why.trim());
        return false;
    }
    let _ = stderr.write_all(&output.stderr);
    std::process::exit(output.status.code().unwrap_or(1));
}

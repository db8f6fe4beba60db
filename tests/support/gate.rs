//! What shells do while a test decides how they go on.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use nix::sys::stat::Mode;

/// The script of a shell that runs until the test ends it. What a failed test leaves behind ends by
/// itself, later than any test.
pub const RUNS_ON: &str = "sleep 1000";

/// How many shells an open gate lets through.
const SHELLS_MAX: usize = 64;

/// A named pipe that shells wait at.
pub struct Gate {
    path: PathBuf,
    pipe: File,
}

impl Gate {
    pub fn new(path: PathBuf) -> Self {
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("a named pipe");
        // To open it only for writing would wait for a reader.
        let pipe = OpenOptions::new().read(true).write(true).open(&path).expect("the pipe");
        Self { path, pipe }
    }

    /// The command that waits in a shell's script. A shell reads up to the end of a line and no
    /// further, so that a line is left for each shell.
    pub fn wait(&self) -> String {
        format!("read _ <{}", self.path.display())
    }

    /// The command that lets one shell go on.
    pub fn pass(&self) -> String {
        format!("echo >{}", self.path.display())
    }

    /// Lets the shells go on that wait, and those that come later.
    pub fn open(&self) {
        (&self.pipe).write_all(&[b'\n'; SHELLS_MAX]).expect("room in the pipe");
    }
}

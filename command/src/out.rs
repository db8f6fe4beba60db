//! Standard output of commands that show something.

use std::io::{self, ErrorKind, StdoutLock, Write};
use std::process;

use job_exec_rs_command::failure::READER_GONE;

/// Standard output. If nobody reads it any more, as after `| head`, this process ends without a word.
pub(super) struct Out(StdoutLock<'static>);

impl Out {
    pub(super) fn lock() -> Self {
        Self(io::stdout().lock())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_end(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_end(self.0.flush())
    }
}

fn or_end<T>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(READER_GONE.into()),
        result => result,
    }
}

/// Users choose names of processes and types of exceptions: what a terminal would obey is escaped.
pub(super) fn plain(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escaped).collect()
}

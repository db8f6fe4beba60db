//! Signals, by name and by number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The highest signal number of Linux.
const MAX: i32 = 64;

/// Number, name and description of each signal that is not a real-time signal. The
/// descriptions are those of glibc strsignal(3) in the C locale.
const TABLE: [(i32, &str, &str); 31] = [
    (libc::SIGHUP, "SIGHUP", "Hangup"),
    (libc::SIGINT, "SIGINT", "Interrupt"),
    (libc::SIGQUIT, "SIGQUIT", "Quit"),
    (libc::SIGILL, "SIGILL", "Illegal instruction"),
    (libc::SIGTRAP, "SIGTRAP", "Trace/breakpoint trap"),
    (libc::SIGABRT, "SIGABRT", "Aborted"),
    (libc::SIGBUS, "SIGBUS", "Bus error"),
    (libc::SIGFPE, "SIGFPE", "Floating point exception"),
    (libc::SIGKILL, "SIGKILL", "Killed"),
    (libc::SIGUSR1, "SIGUSR1", "User defined signal 1"),
    (libc::SIGSEGV, "SIGSEGV", "Segmentation fault"),
    (libc::SIGUSR2, "SIGUSR2", "User defined signal 2"),
    (libc::SIGPIPE, "SIGPIPE", "Broken pipe"),
    (libc::SIGALRM, "SIGALRM", "Alarm clock"),
    (libc::SIGTERM, "SIGTERM", "Terminated"),
    (libc::SIGSTKFLT, "SIGSTKFLT", "Stack fault"),
    (libc::SIGCHLD, "SIGCHLD", "Child exited"),
    (libc::SIGCONT, "SIGCONT", "Continued"),
    (libc::SIGSTOP, "SIGSTOP", "Stopped (signal)"),
    (libc::SIGTSTP, "SIGTSTP", "Stopped"),
    (libc::SIGTTIN, "SIGTTIN", "Stopped (tty input)"),
    (libc::SIGTTOU, "SIGTTOU", "Stopped (tty output)"),
    (libc::SIGURG, "SIGURG", "Urgent I/O condition"),
    (libc::SIGXCPU, "SIGXCPU", "CPU time limit exceeded"),
    (libc::SIGXFSZ, "SIGXFSZ", "File size limit exceeded"),
    (libc::SIGVTALRM, "SIGVTALRM", "Virtual timer expired"),
    (libc::SIGPROF, "SIGPROF", "Profiling timer expired"),
    (libc::SIGWINCH, "SIGWINCH", "Window changed"),
    (libc::SIGIO, "SIGIO", "I/O possible"),
    (libc::SIGPWR, "SIGPWR", "Power failure"),
    (libc::SIGSYS, "SIGSYS", "Bad system call"),
];

/// A signal. It is shown as `SIGTERM`, or as its number if it has no name of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Signal(i32);

/// The text is not a signal.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is not a signal (expected a name such as SIGTERM or TERM, or a number from 1 to {MAX})"
)]
pub struct SignalError(String);

impl Signal {
    /// `SIGTERM`
    pub const TERM: Signal = Signal(libc::SIGTERM);
    /// `SIGKILL`
    pub const KILL: Signal = Signal(libc::SIGKILL);
    /// `SIGALRM`
    pub const ALRM: Signal = Signal(libc::SIGALRM);
    /// `SIGUSR1`
    pub const USR1: Signal = Signal(libc::SIGUSR1);
    /// `SIGINT`
    pub const INT: Signal = Signal(libc::SIGINT);

    /// The number, as kill(2) wants it.
    pub fn number(self) -> i32 {
        self.0
    }

    /// What strsignal(3) says about `signal`: `Killed`, `Terminated`, `Segmentation fault`.
    pub fn describe(signal: i32) -> String {
        match TABLE.iter().find(|(number, ..)| *number == signal) {
            Some((_, _, description)) => (*description).to_string(),
            None => format!("Unknown signal {signal}"),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TABLE.iter().find(|(number, ..)| *number == self.0) {
            Some((_, name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for Signal {
    type Err = SignalError;

    /// Accepts `SIGTERM`, `TERM` and `15` (flux-core `sigutil_signum`).
    fn from_str(s: &str) -> Result<Self, SignalError> {
        let bad = || SignalError(s.to_string());
        if !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) {
            let number = s.parse().ok().filter(|number| (1..=MAX).contains(number));
            return number.map(Signal).ok_or_else(bad);
        }
        let named = |name: &str| name == s || name.strip_prefix("SIG") == Some(s);
        let found = TABLE.iter().find(|(_, name, _)| named(name));
        found.map(|(number, ..)| Signal(*number)).ok_or_else(bad)
    }
}

impl TryFrom<String> for Signal {
    type Error = SignalError;

    fn try_from(s: String) -> Result<Self, SignalError> {
        s.parse()
    }
}

impl From<Signal> for String {
    fn from(signal: Signal) -> Self {
        signal.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, signal, name) in [
            ("SIGTERM", Signal::TERM, "SIGTERM"),
            ("TERM", Signal::TERM, "SIGTERM"),
            ("15", Signal::TERM, "SIGTERM"),
            ("9", Signal::KILL, "SIGKILL"),
            ("ALRM", Signal::ALRM, "SIGALRM"),
            ("USR1", Signal::USR1, "SIGUSR1"),
            ("INT", Signal::INT, "SIGINT"),
            ("40", Signal(40), "40"),
            ("64", Signal(64), "64"),
        ] {
            assert_eq!(text.parse(), Ok(signal));
            assert_eq!(signal.to_string(), name);
        }
        for number in 1..=MAX {
            let signal = Signal(number);
            assert_eq!(signal.to_string().parse(), Ok(signal));
            assert_eq!(signal.number(), number);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for bad in [
            "",
            "0",
            "-1",
            "+9",
            " 9",
            "65",
            "99999999999",
            "SIG",
            "term",
            "SIGSIGTERM",
            "FOO",
            "9x",
            "SIGTERM ",
        ] {
            assert_eq!(bad.parse::<Signal>(), Err(SignalError(bad.to_string())));
        }
        assert!("FOO".parse::<Signal>().unwrap_err().to_string().contains("\"FOO\""));
    }

    #[test]
    fn descriptions() {
        for (signal, description) in [
            (6, "Aborted"),
            (9, "Killed"),
            (11, "Segmentation fault"),
            (15, "Terminated"),
            (31, "Bad system call"),
            (0, "Unknown signal 0"),
            (-1, "Unknown signal -1"),
            (32, "Unknown signal 32"),
        ] {
            assert_eq!(Signal::describe(signal), description);
        }
        let mut numbers: Vec<i32> = TABLE.iter().map(|(number, ..)| *number).collect();
        numbers.sort();
        assert_eq!(numbers, (1..=31).collect::<Vec<_>>());
    }

    #[test]
    fn json_form_is_the_name() {
        assert_eq!(serde_json::to_string(&Signal::TERM).unwrap(), r#""SIGTERM""#);
        assert_eq!(serde_json::from_str::<Signal>(r#""KILL""#).unwrap(), Signal::KILL);
        assert!(serde_json::from_str::<Signal>(r#""NOPE""#).is_err());
    }
}

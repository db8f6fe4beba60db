//! Other programs: those of Flux and systemd, here and on other ranks. Each has a time limit.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use job_exec_rs::proto::Idset;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use serde_json::Value;

use super::failure::Failure;
use super::out::Out;

/// How long a program, or a broker, has to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The last line of what a rank prints for another one.
const END: &str = "\"end\"";

/// A program with pipes. It finds the user manager also where it was started without a login, as by
/// flux-exec(1).
fn spawn(program: &str, arguments: &[&str]) -> Result<Child, Failure> {
    let mut command = Command::new(program);
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", getuid()));
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| Failure(format!("{program}: {error}")))
}

/// What a program prints.
///
/// # Errors
/// What it says is wrong, or that it takes longer than [`PATIENCE`].
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    run_within(PATIENCE, program, arguments)
}

fn run_within(patience: Duration, program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let mut child = spawn(program, arguments)?;
    let (stdout, stderr) = (all_of(child.stdout.take()), all_of(child.stderr.take()));
    let line = || format!("{program} {}", arguments.join(" "));
    let until = Instant::now() + patience;
    let left = || until.saturating_duration_since(Instant::now());
    let said = stdout.recv_timeout(left()).and_then(|out| Ok((out, stderr.recv_timeout(left())?)));
    let Ok((stdout, stderr)) = said else {
        end(&mut child);
        return Err(Failure(format!("{}: no answer within {} s", line(), patience.as_secs())));
    };
    let status = child.wait().map_err(Failure::new)?;
    if status.success() {
        return Ok(stdout.trim().to_string());
    }
    match stderr.trim() {
        "" => Err(Failure(format!("{}: {status}", line()))),
        said => Err(Failure(said.to_string())),
    }
}

/// It may have ended. What it has started itself may hold its pipes open, so their readers are not
/// waited for.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// All that comes out of a pipe.
fn all_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        // Nobody waits any more after the time limit.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// What ranks have answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The lines of JSON of ranks that have told all.
    pub(super) told: BTreeMap<u32, Vec<Value>>,
    /// In their own words, why the others have not.
    pub(super) silent: BTreeMap<u32, String>,
}

impl Answers {
    /// Says on stderr which ranks are missing. Whether none is.
    pub(super) fn complain(&self) -> bool {
        for (rank, why) in &self.silent {
            // Without stderr only the exit status can tell.
            let _ = writeln!(std::io::stderr(), "job-exec-rs: rank {rank}: {why}");
        }
        self.silent.is_empty()
    }
}

/// Prints what this rank has, for the one that asks with [`on_ranks`].
pub(super) fn tell(lines: impl IntoIterator<Item = Value>) -> Result<ExitCode, Failure> {
    let mut out = Out::lock();
    for line in lines {
        writeln!(out, "{line}").map_err(Failure::new)?;
    }
    writeln!(out, "{END}").map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// The ranks of a job's allocation. None: it has no resources yet, or is another user's.
pub(super) fn ranks_of_job(id: &str) -> Result<Idset, Failure> {
    let text = run("flux", &["job", "info", id, "R"]).unwrap_or_default();
    let resources: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut ranks = Idset::new();
    for part in resources["execution"]["R_lite"].as_array().into_iter().flatten() {
        let more: Idset =
            part["rank"].as_str().unwrap_or_default().parse().map_err(Failure::new)?;
        ranks = ranks.union(&more);
    }
    Ok(ranks)
}

/// Runs `flux job-exec-rs ARGUMENTS --here` on these ranks: each prints lines of JSON, and [`END`].
///
/// # Errors
/// flux-exec(1) cannot be run.
pub(super) fn on_ranks(
    ranks: &Idset,
    arguments: &[&str],
    patience: Duration,
) -> Result<Answers, Failure> {
    let set = ranks.to_string();
    // Ranks that are slow end by themselves, and the others are still heard.
    let seconds = patience.as_secs().max(1).to_string();
    let exec = ["exec", "--label-io", "-r", &set, "timeout", &seconds, "flux", "job-exec-rs"];
    let mut child = spawn("flux", &[&exec, arguments, &["--here"]].concat())?;
    let (sender, lines) = channel();
    lines_of(child.stdout.take(), false, sender.clone());
    lines_of(child.stderr.take(), true, sender);
    let mut heard = Heard::default();
    if !heard.listen(&lines, ranks, patience + GRACE) {
        // flux-exec(1) waits for all ranks, and has not yet written what some have said. The third
        // interrupt within a second ends it as it should be.
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(Failure::new)?);
        for _ in 0..INTERRUPTS_MAX {
            // It may have ended by now.
            let _ = kill(pid, Signal::SIGINT);
            if heard.listen(&lines, ranks, INTERRUPT_PAUSE) {
                break;
            }
        }
    }
    end(&mut child);
    Ok(heard.answers(ranks, patience))
}

const INTERRUPTS_MAX: u32 = 20;
const INTERRUPT_PAUSE: Duration = Duration::from_millis(100);
/// For the way there and back.
const GRACE: Duration = Duration::from_secs(5);

fn lines_of(pipe: Option<impl Read + Send + 'static>, is_stderr: bool, to: Sender<(bool, String)>) {
    thread::spawn(move || {
        for line in pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n')) {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            if to.send((is_stderr, line)).is_err() {
                break;
            }
        }
    });
}

/// flux-exec(1), of a rank that has not answered when it was interrupted.
const RUNS: &str = "command still running at exit";

/// What flux-exec(1) has printed so far.
#[derive(Default)]
struct Heard {
    lines: BTreeMap<u32, Vec<Value>>,
    ended: Idset,
    words: BTreeMap<u32, Vec<String>>,
    /// Of flux-exec(1) itself.
    own: Vec<String>,
}

impl Heard {
    /// Whether all has been heard within this time.
    fn listen(&mut self, lines: &Receiver<(bool, String)>, of: &Idset, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.ended.len() < of.len() {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((false, line)) => self.stdout(&line),
                Ok((true, line)) => self.stderr(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
        true
    }

    fn stdout(&mut self, line: &str) {
        let Some((rank, text)) = labelled(line).and_then(|(of, text)| Some((of.first()?, text)))
        else {
            return;
        };
        let lines = self.lines.entry(rank).or_default();
        if text == END {
            self.ended.insert(rank);
        } else if let Ok(value) = serde_json::from_str(text) {
            lines.push(value);
        }
    }

    fn stderr(&mut self, line: &str) {
        // What it could not start, of which it names the program.
        let failed = line.strip_prefix("flux-exec: Error: rank ").and_then(labelled);
        let failed = failed.map(|(of, text)| (of, text.strip_prefix("timeout: ").unwrap_or(text)));
        match failed.or_else(|| labelled(line)) {
            Some((ranks, text)) => {
                for rank in ranks.iter() {
                    self.words.entry(rank).or_default().push(text.to_string());
                }
            }
            None if line.starts_with("interrupt (Ctrl+C)") => (),
            None => self.own.push(line.to_string()),
        }
    }

    fn answers(mut self, ranks: &Idset, patience: Duration) -> Answers {
        let mut answers = Answers::default();
        for rank in ranks.iter() {
            if self.ended.contains(rank) {
                answers.told.insert(rank, self.lines.remove(&rank).unwrap_or_default());
                continue;
            }
            let words = self.words.remove(&rank).unwrap_or_default();
            let said = words.iter().find(|word| !word.starts_with("Exit ") && *word != RUNS);
            let why = match (said.or(self.own.first()), words.as_slice()) {
                (Some(said), _) => said.trim_start_matches("job-exec-rs: ").to_string(),
                // timeout(1)
                (None, [word, ..]) if word != "Exit 124" && word != RUNS => word.clone(),
                _ => format!("no answer within {} s", patience.as_secs()),
            };
            answers.silent.insert(rank, why);
        }
        answers
    }
}

/// A line that flux-exec(1) has labelled: `3: TEXT`, or at last `[1,3]: Exit 1`.
fn labelled(line: &str) -> Option<(Idset, &str)> {
    let (ranks, text) = line.split_once(": ")?;
    let ranks = ranks.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    Some((ranks, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_that_hangs_is_given_up() {
        let error = run_within(Duration::from_millis(100), "sleep", &["inf"]).expect_err("hangs");
        assert_eq!(error.to_string(), "sleep inf: no answer within 0 s");
        assert_eq!(run("echo", &["said"]).expect("it ends"), "said");
    }

    #[test]
    fn ranks_that_do_not_tell_all_are_silent_for_their_own_reasons() {
        let mut heard = Heard::default();
        heard.stdout("0: {\"a\":1}");
        heard.stdout("0: \"end\"");
        heard.stdout("1: {\"a\":2}");
        heard.stderr("1: job-exec-rs: rank 1: Function not implemented");
        heard.stderr("flux-exec: Error: rank 2: timeout: No route to host");
        heard.stderr("interrupt (Ctrl+C) one more time within 1.00 sec to exit");
        heard.stderr("3: command still running at exit");
        heard.stderr("[1,5]: Exit 124");
        heard.stderr("6: Exit 127");
        let Answers { told, silent } =
            heard.answers(&"0-6".parse().expect("ranks"), Duration::from_secs(9));
        assert_eq!(told, [(0, vec![json!({ "a": 1 })])].into());
        let silent: Vec<_> = silent.iter().map(|(rank, why)| (*rank, why.as_str())).collect();
        let late = "no answer within 9 s";
        let own = [(1, "rank 1: Function not implemented"), (2, "No route to host")];
        let late = [(3, late), (4, late), (5, late), (6, "Exit 127")];
        assert_eq!(silent, [&own[..], &late].concat());
    }
}

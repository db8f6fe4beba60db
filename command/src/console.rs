//! Shows events of a running instance, to a person or as JSON.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;

use crate::embedded::{Control, Happening, InstanceEvent};
use job_exec_rs::machine::Level;
use job_exec_rs::port::supervisor::Method;
use job_exec_rs::proto::{BrokerRank, JobId, Stream, WallTime};

/// With up to this many ranks, the end of each rank has a line of its own.
const RANKS_SHOWN: u32 = 16;

/// How events are shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Every event as a JSON object on stdout, and nothing else.
    pub json: bool,
    /// The rank before each line of output.
    pub label: bool,
    /// What happens to the job, on stderr.
    pub progress: bool,
    /// Ranks of the job.
    pub ranks: u32,
}

/// Shows events.
pub struct Console<O, E> {
    style: Style,
    stdout: O,
    stderr: E,
    began: Option<WallTime>,
    /// The job that is being shown, and how many of its ranks have ended.
    job: Option<JobId>,
    ended: u32,
    /// Lines that have no end yet.
    unfinished: BTreeMap<(BrokerRank, Stream), Vec<u8>>,
    notice: Option<String>,
    /// Set when there is an instance, to end it when nobody reads its output any more.
    control: Rc<OnceCell<Control>>,
    closed: bool,
}

impl<O: Write, E: Write> Console<O, E> {
    /// `control` is there once the instance is: the job is canceled when nobody reads its output any more.
    pub fn new(style: Style, stdout: O, stderr: E, control: Rc<OnceCell<Control>>) -> Self {
        Self {
            style,
            stdout,
            stderr,
            began: None,
            job: None,
            ended: 0,
            unfinished: BTreeMap::new(),
            notice: None,
            control,
            closed: false,
        }
    }

    /// Shows one event.
    pub fn show(&mut self, event: &InstanceEvent) {
        if let Err(error) = self.try_show(event) {
            self.reader_gone(&error);
        }
    }

    /// Ends the job when nobody reads its output any more, as with a pipe to `head`.
    fn reader_gone(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.closed, true)
            && let Some(control) = self.control.get()
        {
            control.cancel(None, &format!("cannot write output: {error}"));
        }
    }

    fn try_show(&mut self, event: &InstanceEvent) -> io::Result<()> {
        match &event.what {
            Happening::Log { rank, level, text } => self.log(*rank, *level, text),
            Happening::Ready { notice, .. } => self.notice.clone_from(notice),
            _ => (), // nothing that the log has to know
        }
        if self.style.json {
            let Some(json) = event.to_json() else { return Ok(()) };
            writeln!(self.stdout, "{json}")?;
            return self.stdout.flush();
        }
        match &event.what {
            Happening::Output { rank, stream, data } => self.output(*rank, *stream, data)?,
            Happening::UnitGone { unit } => self.finish_lines(unit.rank())?,
            _ => (), // all else is progress
        }
        if self.style.progress {
            self.progress(event);
        }
        Ok(())
    }

    fn log(&mut self, rank: BrokerRank, level: Level, text: &str) {
        // All ranks report it. It was shown once, with the method.
        if self.notice.as_deref() == Some(text) {
            return;
        }
        match level {
            Level::Debug => tracing::debug!(%rank, "{text}"),
            Level::Error => tracing::error!(%rank, "{text}"),
            Level::Info => tracing::info!(%rank, "{text}"),
            Level::Warning => tracing::warn!(%rank, "{text}"),
        }
    }

    /// With one rank, output is passed on as it comes; with several, in whole lines.
    fn output(&mut self, rank: BrokerRank, stream: Stream, data: &[u8]) -> io::Result<()> {
        if self.style.ranks <= 1 {
            return self.write(stream, data);
        }
        let buffer = self.unfinished.entry((rank, stream)).or_default();
        buffer.extend_from_slice(data);
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = buffer.split_off(end + 1);
        let lines = std::mem::replace(buffer, rest);
        let lines = self.labelled(rank, &lines);
        self.write(stream, &lines)
    }

    /// Handles the end of a rank's output. Its last line may be incomplete.
    fn finish_lines(&mut self, rank: BrokerRank) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = self.unfinished.remove(&(rank, stream)).unwrap_or_default();
            if !rest.is_empty() {
                let mut line = self.labelled(rank, &rest);
                line.push(b'\n');
                self.write(stream, &line)?;
            }
        }
        Ok(())
    }

    fn labelled(&self, rank: BrokerRank, lines: &[u8]) -> Vec<u8> {
        if !self.style.label {
            return lines.to_vec();
        }
        let label = format!("{rank}: ");
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        lines.flat_map(|line| [label.as_bytes(), line].concat()).collect()
    }

    fn write(&mut self, stream: Stream, data: &[u8]) -> io::Result<()> {
        match stream {
            Stream::Stdout => {
                self.stdout.write_all(data)?;
                self.stdout.flush()
            }
            Stream::Stderr => {
                self.stderr.write_all(data)?;
                self.stderr.flush()
            }
        }
    }

    fn progress(&mut self, event: &InstanceEvent) {
        if let Happening::Adopted { .. } | Happening::Submit { .. } = event.what {
            self.job = event.id;
            self.ended = 0;
        } else if event.id.is_some() && event.id != self.job {
            return; // the end of what an earlier run left: it was said that it is stopped
        }
        let began = *self.began.get_or_insert(event.timestamp);
        let Some(text) = self.describe(&event.what) else { return };
        let seconds = event.timestamp - began;
        let id = event.id.map(|id: JobId| format!("{id}: ")).unwrap_or_default();
        // The job does not depend on whether its progress can be shown.
        let _ = writeln!(self.stderr, "[{seconds:7.3}s] {id}{text}");
    }

    fn describe(&mut self, what: &Happening) -> Option<String> {
        Some(match what {
            Happening::Alloc { .. }
            | Happening::Clean
            | Happening::Exec(_)
            | Happening::Log { .. }
            // The end of the rank is shown.
            | Happening::LostShell { .. }
            | Happening::Output { .. }
            | Happening::UnitGone { .. } => return None,
            Happening::Adopted { command } => format!("goes on: {}", command.join(" ")),
            Happening::Drain { ranks, reason } => format!("ranks {ranks} would be drained: {reason}"),
            Happening::Exception(e) => {
                format!("exception: type={} severity={} {}", e.kind, e.severity, e.note)
            }
            Happening::Finish { status } => format!("finished: {status}"),
            Happening::Leftover { unit } => format!("stopping {unit}, left by an earlier run"),

            Happening::Ready { method, notice } => {
                if let Some(notice) = notice {
                    tracing::info!("{notice}");
                }
                describe_method(*method).to_string()
            }
            Happening::Reattached => format!("found again on {}", ranks(self.style.ranks)),
            Happening::Release { ranks, is_final } => {
                format!("released {ranks}{}", if *is_final { ", the last" } else { "" })
            }
            Happening::Start => format!("started on {}", ranks(self.style.ranks)),
            Happening::Submit { command } => format!("submitted: {}", command.join(" ")),
            Happening::UnitExited { unit, status } => {
                return self.end(&format!("rank {} ended: {status}", unit.rank()));
            }
            Happening::UnitFailed { unit, message } => {
                return self.end(&format!("rank {} failed: {message}", unit.rank()));
            }
            Happening::UnitLeft { unit } => {
                return self.end(&format!("rank {}: the shell has left its unit", unit.rank()));
            }
            Happening::UnitLost { unit, message } => {
                return self.end(&format!("rank {} is lost: {message}", unit.rank()));
            }
            Happening::UnitStarted { unit, pid } => {
                tracing::info!(%unit, pid, "started");
                return None;
            }
        })
    }

    fn end(&mut self, text: &str) -> Option<String> {
        self.ended += 1;
        let total = self.style.ranks;
        let shown =
            total <= RANKS_SHOWN || self.ended == total || self.ended.is_multiple_of(RANKS_SHOWN);
        shown.then(|| format!("{text} ({}/{total})", self.ended))
    }
}

fn ranks(count: u32) -> String {
    if count == 1 { "1 rank".to_string() } else { format!("{count} ranks") }
}

fn describe_method(method: Method) -> &'static str {
    match method {
        Method::Fork => "method fork: commands are child processes",
        Method::Systemd => "method systemd: commands are transient units of systemd --user",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(style: Style, happenings: Vec<Happening>) -> (String, String) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut console = Console::new(style, &mut stdout, &mut stderr, Rc::default());
        for what in happenings {
            console.show(&InstanceEvent { timestamp: WallTime(1.0), id: Some(JobId(7)), what });
        }
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (text(stdout), text(stderr))
    }

    fn output(rank: u32, data: &str) -> Happening {
        let data = data.as_bytes().to_vec();
        Happening::Output { rank: BrokerRank(rank), stream: Stream::Stdout, data }
    }

    #[test]
    fn lines_of_several_ranks_do_not_mix() {
        let style = Style { label: true, ranks: 2, ..Style::default() };
        let unit = "shell-1-f8-01234567.service".parse().expect("a name");
        let happenings = vec![
            output(0, "he"),
            output(1, "one\ntw"),
            output(0, "llo\n"),
            Happening::UnitGone { unit },
        ];
        assert_eq!(shown(style, happenings).0, "1: one\n0: hello\n1: tw\n");
    }

    #[test]
    fn one_rank_is_passed_on_as_it_is() {
        let style = Style { ranks: 1, ..Style::default() };
        assert_eq!(shown(style, vec![output(0, "no newline")]).0, "no newline");
    }

    #[test]
    fn json_has_no_output_of_its_own() {
        let style = Style { json: true, ranks: 1, progress: true, ..Style::default() };
        let (stdout, stderr) = shown(style, vec![output(0, "x"), Happening::Start]);
        let event: serde_json::Value = serde_json::from_str(&stdout).expect("one object");
        assert_eq!((event["name"].as_str(), stderr.as_str()), (Some("start"), ""));
    }
}

//! Events of the exec eventlog: RFC 50 names and contexts in RFC 18 form.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{BrokerRank, Exception, Idset, Mute, Stream, WaitStatus, WallTime};

/// One entry of `guest.exec.eventlog`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ExecEvent {
    /// Seconds since the epoch.
    pub timestamp: WallTime,
    /// RFC 50 event name.
    pub name: String,
    /// Event dependent data; absent when empty.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
}

/// An eventlog that does not follow RFC 18. The error says in which line and part, but not what is
/// there, because its reader may not be allowed to read the eventlog.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("exec.eventlog line {line}: {reason}")]
pub struct EventlogError {
    line: usize,
    reason: &'static str,
}

impl EventlogError {
    /// Finds what is wrong with a line that is not an event.
    fn of(line: usize, text: &str) -> Self {
        let reason = match serde_json::from_str(text) {
            Err(_) => "not JSON",
            Ok(Value::Object(event)) => {
                let is = |key: &str, kind: fn(&Value) -> bool| event.get(key).is_some_and(kind);
                if !is("timestamp", Value::is_number) {
                    "timestamp is missing or not a number"
                } else if !is("name", Value::is_string) {
                    "name is missing or not a string"
                } else if event.get("context").is_some_and(|context| !context.is_object()) {
                    "context is not an object"
                } else {
                    "not an event"
                }
            }
            Ok(_) => "not an object",
        };
        Self { line, reason }
    }
}

impl ExecEvent {
    fn new(timestamp: WallTime, name: &str, context: Value) -> Self {
        let context = match context {
            Value::Object(map) => map,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Map::new(),
        };
        Self { timestamp, name: name.to_string(), context }
    }

    /// An event without context: `init`, `reattach`, `starting` or `done`.
    pub fn bare(timestamp: WallTime, name: &str) -> Self {
        Self::new(timestamp, name, Value::Null)
    }

    /// `complete`: every shell has ended, with this status.
    pub fn complete(timestamp: WallTime, status: WaitStatus) -> Self {
        Self::new(timestamp, "complete", json!({ "status": status }))
    }

    /// `debug.exception`: a fatal exception that the leader has found. If nobody has heard of it, a
    /// later leader raises it again.
    pub fn exception(timestamp: WallTime, exception: &Exception) -> Self {
        Self::new(timestamp, "debug.exception", json!(exception))
    }

    /// The exception in such an event.
    pub fn logged_exception(&self) -> Option<Exception> {
        let context = (self.name == "debug.exception").then_some(&self.context)?;
        Exception::deserialize(context).ok()
    }

    /// `debug.oom`: an exception has said that memory was short on these ranks. A later leader does not
    /// say it again.
    pub fn oom(timestamp: WallTime, ranks: &Idset) -> Self {
        Self::new(timestamp, "debug.oom", json!({ "ranks": ranks.to_string() }))
    }

    /// The ranks of such an event.
    pub fn logged_oom(&self) -> Option<Idset> {
        let ranks = (self.name == "debug.oom").then_some(self.context.get("ranks")?)?;
        ranks.as_str()?.parse().ok()
    }

    /// `debug.timeline`: for each stage of the launch the seconds from its begin until the last rank had
    /// reached it, and that rank's host.
    pub fn timeline(timestamp: WallTime, stages: Value) -> Self {
        Self::new(timestamp, "debug.timeline", stages)
    }

    /// `debug.status`: the largest status of the shells that have ended, when ranks are released. A
    /// later leader may not be able to ask those ranks.
    pub fn status(timestamp: WallTime, status: WaitStatus) -> Self {
        Self::new(timestamp, "debug.status", json!({ "wait_status": status }))
    }

    /// `shell-exit`: the leader shell has ended.
    pub fn shell_exit(
        timestamp: WallTime,
        rank: BrokerRank,
        status: WaitStatus,
        active: &Idset,
    ) -> Self {
        let mut context = json!({ "rank": rank, "wait_status": status });
        if !active.is_empty() {
            context["active_ranks"] = json!(active.to_string());
        }
        Self::new(timestamp, "shell-exit", context)
    }

    /// `log`: output of a shell itself. Bytes that are not UTF-8 are replaced. Then `bytes` says
    /// how many bytes there were, so that a later leader knows how much output it has.
    pub fn log(
        timestamp: WallTime,
        component: &str,
        stream: Stream,
        rank: BrokerRank,
        data: &[u8],
    ) -> Self {
        let text = String::from_utf8_lossy(data);
        let mut context = json!({
            "component": component,
            "stream": stream,
            "rank": rank.to_string(),
            "data": text,
        });
        if text.len() != data.len() || text.as_bytes() != data {
            context["bytes"] = json!(data.len());
        }
        Self::new(timestamp, "log", context)
    }

    /// `log`: a stream was longer than its limit. The key `truncated` has the number of bytes that
    /// were dropped. Output of a shell does not have this key.
    pub fn truncated(
        timestamp: WallTime,
        component: &str,
        (stream, rank): (Stream, BrokerRank),
        kept: u64,
        dropped: u64,
    ) -> Self {
        let text = format!(
            "output truncated: {dropped} bytes after the first {kept} were dropped \
             (exec.output-limit)\n"
        );
        let mut event = Self::log(timestamp, component, stream, rank, text.as_bytes());
        event.context.insert("truncated".to_string(), json!(dropped));
        event
    }

    /// `log`: a rank was given up before all that its shell wrote was there. The key `missing`,
    /// which is true here, tells the event from what the shell wrote.
    pub fn output_missing(
        timestamp: WallTime,
        component: &str,
        rank: BrokerRank,
        why: &str,
    ) -> Self {
        let text = format!("output after this may be missing: {why}\n");
        let mut event = Self::log(timestamp, component, Stream::Stderr, rank, text.as_bytes());
        event.context.insert("missing".to_string(), json!(true));
        event
    }

    /// The rank of an event of [`Self::output_missing`].
    pub fn logged_missing(&self) -> Option<BrokerRank> {
        let is_one = self.context.get("missing")? == &json!(true);
        self.origin().filter(|_| is_one).map(|(rank, _)| rank)
    }

    /// `log`: in place of output that was sent to the log and could not be committed. The key `missing`
    /// has the number of its bytes here, so that the offsets of later output are right.
    pub fn output_given_up(
        timestamp: WallTime,
        component: &str,
        (stream, rank): (Stream, BrokerRank),
        bytes: u64,
    ) -> Self {
        let text = format!("output is missing here: {bytes} bytes could not be committed\n");
        let mut event = Self::log(timestamp, component, stream, rank, text.as_bytes());
        event.context.insert("missing".to_string(), json!(bytes));
        event
    }

    /// `log`: systemd or the disk does not answer on a rank's node, so nothing happens to its shell. The key
    /// `silent` has the time when the rank has learned it, in seconds since the epoch.
    pub fn silent(
        timestamp: WallTime,
        component: &str,
        (host, rank): (impl std::fmt::Display, BrokerRank),
        since: u64,
        (who, what): (Mute, &str),
    ) -> Self {
        let text = format!("{who} on {host} (rank {rank}) does not answer: waiting for {what}\n");
        let mut event = Self::log(timestamp, component, Stream::Stderr, rank, text.as_bytes());
        event.context.insert("silent".to_string(), json!(since));
        event
    }

    /// Rank and time of an event of [`Self::silent`].
    pub fn logged_silence(&self) -> Option<(BrokerRank, u64)> {
        let since = self.context.get("silent")?.as_u64()?;
        self.origin().map(|(rank, _)| (rank, since))
    }

    /// `log`: shells have waited in the first barrier for a good part of the time that there is. The key
    /// `barrier` has the number of those that are out.
    pub fn barrier_waits(
        timestamp: WallTime,
        component: &str,
        rank: BrokerRank,
        out: usize,
        text: &str,
    ) -> Self {
        let mut event = Self::log(timestamp, component, Stream::Stderr, rank, text.as_bytes());
        event.context.insert("barrier".to_string(), json!(out));
        event
    }

    /// Rank and stream of an event of [`Self::truncated`].
    pub fn logged_truncation(&self) -> Option<(BrokerRank, Stream)> {
        self.context.get("truncated").and(self.origin())
    }

    /// Rank, stream and number of bytes of a `log` event that has output of a shell, or stands for output
    /// that is missing.
    pub fn logged(&self) -> Option<(BrokerRank, Stream, u64)> {
        if let Some(bytes) = self.context.get("missing").and_then(Value::as_u64) {
            return self.origin().map(|(rank, stream)| (rank, stream, bytes));
        }
        let others = ["truncated", "missing", "silent", "barrier"];
        if others.iter().any(|key| self.context.contains_key(*key)) {
            return None;
        }
        let (rank, stream) = self.origin()?;
        let bytes = match self.context.get("bytes") {
            Some(bytes) => bytes.as_u64()?,
            None => self.context.get("data")?.as_str()?.len() as u64,
        };
        Some((rank, stream, bytes))
    }

    /// The rank and the stream that a `log` event names.
    fn origin(&self) -> Option<(BrokerRank, Stream)> {
        if self.name != "log" {
            return None;
        }
        let rank = self.context.get("rank")?.as_str()?.parse().ok()?;
        let stream = Stream::deserialize(self.context.get("stream")?).ok()?;
        Some((BrokerRank(rank), stream))
    }

    /// The raw wait status under a key of the context: `status` of `complete`, `wait_status` of
    /// `shell-exit` (RFC 50). `None` if there is no number that can be one: the job's user can have
    /// written anything.
    pub fn raw_status(&self, key: &str) -> Option<WaitStatus> {
        let raw = self.context.get(key).and_then(Value::as_i64)?;
        i32::try_from(raw).ok().map(WaitStatus)
    }

    /// The entry as one eventlog line, newline included.
    pub fn encode(&self) -> String {
        // A struct of numbers, strings and JSON values has no failing serialisation.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// Reads an RFC 18 eventlog.
///
/// # Errors
/// If a line is not an event. The error has the number of the first such line, and says in general
/// words what is wrong with it.
pub fn decode_eventlog(text: &str) -> Result<Vec<ExecEvent>, EventlogError> {
    text.lines()
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|_| EventlogError::of(index + 1, line))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        let events = vec![
            ExecEvent::bare(WallTime(1.5), "init"),
            ExecEvent::shell_exit(
                WallTime(2.0),
                BrokerRank(3),
                WaitStatus(9),
                &Idset::from_range(4..6),
            ),
            ExecEvent::log(WallTime(3.0), "flux-shell", Stream::Stderr, BrokerRank(3), b"oops\n"),
            ExecEvent::complete(WallTime(4.0), WaitStatus(256)),
        ];
        let text: String = events.iter().map(ExecEvent::encode).collect();
        assert_eq!(decode_eventlog(&text), Ok(events));
        assert!(text.starts_with("{\"timestamp\":1.5,\"name\":\"init\"}\n"), "{text}");
        assert!(text.contains("\"active_ranks\":\"4-5\""));
    }

    #[test]
    fn times_stay_as_they_are() {
        for text in ["31.241215170943946", "1731331200.1234567", "0.1"] {
            let line = format!("{{\"timestamp\":{text},\"name\":\"init\"}}\n");
            let events = decode_eventlog(&line);
            assert_eq!(events.map(|events| events[0].encode()), Ok(line));
        }
    }

    #[test]
    fn logged_bytes_survive_replacement() {
        let log = |data: &[u8]| {
            ExecEvent::log(WallTime(0.0), "x", Stream::Stdout, BrokerRank(1), data)
                .logged()
                .map(|l| l.2)
        };
        assert_eq!(log(b"plain\n"), Some(6));
        assert_eq!(log("ƒ\n".as_bytes()), Some(3));
        assert_eq!(log(b"\xff\xfe\n"), Some(3));
        assert_eq!(ExecEvent::bare(WallTime(0.0), "done").logged(), None);
    }

    #[test]
    fn bad_lines_are_named() {
        let error = decode_eventlog("{\"timestamp\":1.0,\"name\":\"init\"}\nnonsense\n");
        assert!(error.is_err_and(|e| e.to_string().contains("line 2")));
    }

    #[test]
    fn errors_quote_nothing() {
        for (line, wrong) in [
            ("hunter2", "not JSON"),
            (r#"["hunter2"]"#, "not an object"),
            (r#"{"name":"hunter2"}"#, "timestamp"),
            (r#"{"timestamp":"hunter2","name":"x"}"#, "timestamp"),
            (r#"{"timestamp":1.0,"name":["hunter2"]}"#, "name"),
            (r#"{"timestamp":1.0,"name":{"hunter2":1}}"#, "name"),
            (r#"{"timestamp":1.0,"name":"x","context":"hunter2"}"#, "context"),
            (r#"{"timestamp":1.0,"name":"hunter2","name":"hunter2"}"#, "not an event"),
            (r#"{"timestamp":1.0,"name":"x","context":{"hunter2":"\ud800"}}"#, "not JSON"),
        ] {
            let said = decode_eventlog(line).unwrap_err().to_string();
            assert!(said.contains("line 1") && said.contains(wrong), "{line}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}

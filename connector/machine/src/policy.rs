//! What happens to a request that was not answered when the connection was lost.
//!
//! The table is also in `rfc/0010-connector.md`, with the reason for each row; a test compares
//! the two.

use serde::Deserialize;

use crate::watch::{Entries, Seen, Value};

/// What to do with an unanswered request once the broker is back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Policy {
    /// `job-exec.shell-barrier`: sent again, with the number of the entry.
    Barrier,
    /// Ends a watch.
    Cancel,
    /// A commit to the KVS: the ledger has it done exactly once.
    Commit,
    /// Gets an error: it is unknown whether the request was done, and it must not be done twice.
    Refuse,
    /// Sent again: doing it twice is the same as doing it once.
    Repeat,
    /// Something that the broker keeps for the connection: made again before all other requests.
    Standing,
    /// A watch: continues after the answers that the client has had.
    Watch(WatchKind),
}

/// How the answers of a watch relate to each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchKind {
    /// Each answer is one more entry.
    Entries,
    /// The request's `FLUX_KVS_*` flags decide.
    Kvs,
    /// Each answer replaces the one before.
    Value,
}

use Policy::{Barrier, Cancel, Commit, Refuse, Repeat, Standing, Watch};

/// The policy of each topic, sorted. `*` at the beginning stands for any service. A topic that is
/// not here is refused.
pub const TABLE: &[(&str, Policy)] = &[
    ("*.ping", Repeat),
    ("*.stats-get", Repeat),
    ("attr.get", Repeat),
    ("attr.list", Repeat),
    ("config.get", Repeat),
    ("content.load", Repeat),
    ("event.publish", Refuse),
    ("event.subscribe", Standing),
    ("event.unsubscribe", Standing),
    ("feasibility.check", Repeat),
    ("groups.get", Watch(WatchKind::Value)),
    ("groups.join", Standing),
    ("groups.leave", Standing),
    ("job-exec.checkpoint", Repeat),
    ("job-exec.critical-ranks", Repeat),
    ("job-exec.shell-barrier", Barrier),
    ("job-info.eventlog-watch", Watch(WatchKind::Entries)),
    ("job-info.eventlog-watch-cancel", Cancel),
    ("job-info.lookup", Repeat),
    ("job-info.update-watch", Watch(WatchKind::Value)),
    ("job-info.update-watch-cancel", Cancel),
    ("job-ingest.submit", Refuse),
    ("job-list.job-stats", Repeat),
    ("job-list.list", Repeat),
    ("job-list.list-id", Repeat),
    ("job-manager.alloc-query", Repeat),
    ("job-manager.events-journal", Refuse),
    ("job-manager.kill", Refuse),
    ("job-manager.memo", Repeat),
    ("job-manager.queue-list", Repeat),
    ("job-manager.queue-status", Repeat),
    ("job-manager.raise", Repeat),
    ("job-manager.resource-status", Repeat),
    ("job-manager.urgency", Repeat),
    ("job-manager.wait", Repeat),
    ("kvs-watch.cancel", Cancel),
    ("kvs-watch.lookup", Watch(WatchKind::Kvs)),
    ("kvs.commit", Commit),
    ("kvs.getroot", Repeat),
    ("kvs.lookup", Repeat),
    ("kvs.lookup-plus", Repeat),
    ("kvs.namespace-list", Repeat),
    ("kvs.wait-version", Repeat),
    ("log.append", Repeat),
    ("module.list", Repeat),
    ("module.status", Repeat),
    ("overlay.health", Repeat),
    ("overlay.topology", Repeat),
    ("resource.get", Repeat),
    ("resource.sched-status", Repeat),
    ("resource.status", Repeat),
    ("resource.topo-get", Repeat),
    ("runat.push", Refuse),
    ("sched.resource-status", Repeat),
    ("service.add", Standing),
    ("service.remove", Standing),
    ("state-machine.get", Repeat),
    ("state-machine.wait", Repeat),
];

impl Policy {
    /// The policy of a topic.
    pub fn of(topic: &str) -> Self {
        let any = |(pattern, _): &&(&str, Policy)| pattern.starts_with('*');
        let of_any =
            TABLE.iter().take_while(any).find(|(pattern, _)| topic.ends_with(&pattern[1..]));
        let row = of_any.or_else(|| {
            let at = TABLE.binary_search_by_key(&topic, |(pattern, _)| pattern).ok()?;
            TABLE.get(at)
        });
        row.map_or(Refuse, |(_, policy)| *policy)
    }
}

#[derive(Deserialize)]
struct Flags {
    flags: u32,
}

/// flux-core `libkvs/kvs.h`.
const FLUX_KVS_WATCH: u32 = 4;
const FLUX_KVS_WATCH_APPEND: u32 = 256;
const FLUX_KVS_STREAM: u32 = 512;

impl WatchKind {
    /// What to remember of a watch with this request payload; none if it is answered once.
    pub(crate) fn seen(self, payload: &[u8], streaming: bool) -> Option<Seen> {
        let entries = Seen::Entries(Entries::default());
        let value = Seen::Value(Value::default());
        match self {
            _ if !streaming => None,
            WatchKind::Entries => Some(entries),
            WatchKind::Value => Some(value),
            WatchKind::Kvs => {
                let flags = serde_json::from_slice(payload).map_or(0, |Flags { flags }| flags);
                if flags & (FLUX_KVS_WATCH_APPEND | FLUX_KVS_STREAM) != 0 {
                    Some(entries)
                } else {
                    (flags & FLUX_KVS_WATCH != 0).then_some(value)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.is_sorted_by_key(|(pattern, _)| pattern), "binary search needs it");
    }

    #[test]
    fn what_is_not_in_the_table_is_refused() {
        assert_eq!(Policy::of("job-list.stats-get"), Repeat);
        assert_eq!(Policy::of("kvs.commit"), Commit);
        assert_eq!(Policy::of("kvs.fence"), Refuse);
        assert_eq!(Policy::of("rexec.exec"), Refuse);
        assert_eq!(Policy::of(""), Refuse);
    }

    #[test]
    fn a_kvs_watch_is_resumed_as_its_flags_say() {
        let seen = |payload: &str, streaming| WatchKind::Kvs.seen(payload.as_bytes(), streaming);
        assert!(matches!(seen(r#"{"flags":260}"#, true), Some(Seen::Entries(_))));
        assert!(matches!(seen(r#"{"flags":512}"#, true), Some(Seen::Entries(_))));
        assert!(matches!(seen(r#"{"flags":4}"#, true), Some(Seen::Value(_))));
        assert_eq!(seen(r#"{"flags":8}"#, true), None, "WAITCREATE is answered once");
        assert_eq!(seen("{", false), None);
    }
}

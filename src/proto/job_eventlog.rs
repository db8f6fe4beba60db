//! The job's own eventlog (RFC 21), which the job manager writes: `eventlog` in the job's directory
//! of the primary namespace.

use serde::Deserialize;

use super::{ExecEvent, Idset, ReleasedRanks};

/// The ranks that the job manager has received in partial releases, according to this eventlog. A
/// line that cannot be read says nothing.
pub fn released_in(eventlog: &str) -> Idset {
    let partial = |line: &str| {
        let event: ExecEvent = serde_json::from_str(line).ok()?;
        let is_partial = event.name == "release" && event.context.get("final")? == false;
        match ReleasedRanks::deserialize(event.context.get("ranks")?).ok()? {
            ReleasedRanks::These(ranks) if is_partial => Some(ranks),
            ReleasedRanks::These(_) | ReleasedRanks::All => None,
        }
    };
    let all: Vec<Idset> = eventlog.lines().filter_map(partial).collect();
    Idset::union_of(all.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_releases_are_found_among_other_events() {
        let eventlog = concat!(
            "{\"timestamp\":1.0,\"name\":\"submit\",\"context\":{\"userid\":1,\"flags\":0}}\n",
            "{\"timestamp\":2.0,\"name\":\"start\"}\n",
            "{\"timestamp\":3.0,\"name\":\"release\",\"context\":{\"ranks\":\"5-6\",\"final\":false}}\n",
            "{\"timestamp\":4.0,\"name\":\"release\",\"context\":{\"ranks\":\"x\",\"final\":false}}\n",
            "nonsense\n",
            "{\"timestamp\":5.0,\"name\":\"release\",\"context\":{\"ranks\":\"9\",\"final\":false}}\n",
            "{\"timestamp\":6.0,\"name\":\"release\",\"context\":{\"ranks\":\"7\",\"final\":true}}\n",
            "{\"timestamp\":6.0,\"name\":\"release\",\"context\":{\"ranks\":\"all\",\"final\":true}}\n",
        );
        assert_eq!(released_in(eventlog).to_string(), "5-6,9");
        assert!(released_in("").is_empty());
    }
}

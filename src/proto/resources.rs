//! What an instance says of its nodes: events of flux-core's resource module, and which broker runs
//! on which node.

use serde::{Deserialize, Deserializer};

use super::{BrokerRank, Idset, ShellRank, WallTime};

/// One answer of `resource.journal` (flux-core `resource/reslog.c`). The answers before the first
/// empty one tell what happened before the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceNews {
    /// In the order in which they happened. Events that say nothing of drained nodes are left out.
    pub changes: Vec<NodeChange>,
    /// All that happened before was told.
    pub is_up_to_date: bool,
}

/// Nodes are drained, or in use again (flux-core `resource/drain.c`).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeChange {
    /// When, in seconds since the epoch by the clock of rank 0.
    pub at: WallTime,
    /// Broker ranks.
    pub ranks: Idset,
    /// Why they are drained. None: they are not any more.
    pub drained: Option<String>,
}

impl ResourceNews {
    /// Reads an answer's payload.
    ///
    /// # Errors
    /// If it has no list of events. An event that cannot be read says nothing.
    pub fn read(payload: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct ResourceAnswer {
            #[serde(deserialize_with = "counted")]
            events: (usize, Vec<NodeChange>),
        }
        let ResourceAnswer { events: (count, changes) } = serde_json::from_str(payload)?;
        Ok(Self { changes, is_up_to_date: count == 0 })
    }
}

/// How many events there are, and those that count.
fn counted<'de, D: Deserializer<'de>>(input: D) -> Result<(usize, Vec<NodeChange>), D::Error> {
    let events = Vec::<serde_json::Value>::deserialize(input)?;
    let count = events.len();
    Ok((count, events.into_iter().filter_map(change).collect()))
}

fn change(event: serde_json::Value) -> Option<NodeChange> {
    #[derive(Deserialize)]
    struct DrainEvent {
        timestamp: WallTime,
        name: String,
        context: DrainContext,
    }
    #[derive(Deserialize)]
    struct DrainContext {
        idset: Idset,
        reason: Option<String>,
    }
    if !matches!(event["name"].as_str(), Some("drain" | "undrain")) {
        return None;
    }
    let DrainEvent { timestamp, name, context } = serde_json::from_value(event).ok()?;
    let reason = context.reason.unwrap_or_default();
    Some(NodeChange {
        at: timestamp,
        ranks: context.idset,
        drained: (name == "drain").then_some(reason),
    })
}

/// The brokers that shells of a job have started (RFC 34): `[[first shell, shells, brokers of each,
/// times], ...]`, as the attribute `broker.mapping` has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrokerMapping(Vec<(u32, u32, u32, u32)>);

impl BrokerMapping {
    /// Reads the attribute.
    ///
    /// # Errors
    /// If it is not of this form.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// The brokers of these shells that are below `size`, the number of brokers of the instance.
    pub fn brokers_of(&self, shells: &Idset, size: u32) -> Idset {
        let blocks = self.0.iter();
        let each = blocks.flat_map(|&(first, count, each, times)| {
            let of_shell = move |shell| std::iter::repeat_n(ShellRank(shell), each as usize);
            (0..times).flat_map(move |_| (first..first.saturating_add(count)).flat_map(of_shell))
        });
        let brokers = (0..size).map(BrokerRank).zip(each);
        brokers.filter(|(_, shell)| shells.contains(shell.0)).map(|(broker, _)| broker).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_drains_nodes_is_read() {
        let event =
            |name: &str, context| json!({"timestamp": 5.5, "name": name, "context": context});
        let events = json!({"R": {"version": 1}, "events": [
            event("online", json!({"idset": "0-3"})),
            event("drain", json!({"idset": "1,3", "nodelist": "n[1,3]", "reason": "hot", "overwrite": 0})),
            event("drain", json!({"idset": "2", "nodelist": "n2", "overwrite": 0})),
            event("drain", json!({"idset": "x", "nodelist": "n2"})),
            event("undrain", json!({"idset": "1", "nodelist": "n1", "reason": "mended"})),
            "nonsense",
        ]});
        let change = |ranks: &str, drained: Option<&str>| NodeChange {
            at: WallTime(5.5),
            ranks: ranks.parse().expect("ranks"),
            drained: drained.map(str::to_string),
        };
        let changes = vec![change("1,3", Some("hot")), change("2", Some("")), change("1", None)];
        let news = ResourceNews::read(&events.to_string()).expect("news");
        assert_eq!(news, ResourceNews { changes, is_up_to_date: false });
        let empty = ResourceNews::read(r#"{"events": []}"#).expect("news");
        assert_eq!(empty, ResourceNews { changes: Vec::new(), is_up_to_date: true });
        assert!(ResourceNews::read(r#"{"events": 7}"#).is_err());
    }

    #[test]
    fn brokers_are_counted_as_their_mapping_says() {
        let brokers = |mapping: &str, shells: &str, size| {
            let mapping = BrokerMapping::read(mapping).expect("a mapping");
            mapping.brokers_of(&shells.parse().expect("shells"), size).to_string()
        };
        assert_eq!(brokers("[[0,4,1,1]]", "1,3", 4), "1,3");
        assert_eq!(brokers("[[0,2,2,2]]", "1", 8), "2-3,6-7");
        assert_eq!(brokers("[[0,2,1,1],[5,1,3,1]]", "0,5", 5), "0,2-4");
        assert_eq!(brokers("[[0,4294967295,4294967295,4294967295]]", "1", 3), "");
        assert!(BrokerMapping::read("[[0,4,1]]").is_err());
    }
}

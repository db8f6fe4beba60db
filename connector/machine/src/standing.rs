//! What a broker keeps for a connection, and forgets with it: event subscriptions, service
//! names, memberships in groups (flux-core `librouter/router.c`, `modules/groups`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::packet::Packet;

/// Topics that add, with those that take away.
const PAIRS: &[(&str, &str)] = &[
    ("event.subscribe", "event.unsubscribe"),
    ("groups.join", "groups.leave"),
    ("service.add", "service.remove"),
];

/// The name is in one of these, by topic.
#[derive(Deserialize)]
struct Named {
    #[serde(alias = "topic", alias = "service")]
    name: String,
}

/// What is to be made again: a topic, and the payload to ask with.
pub(crate) type Item = (&'static str, String);

/// What the broker has granted this connection, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Standing {
    /// How often, with the payload that asked for it.
    items: BTreeMap<(&'static str, String), (u32, String)>,
}

impl Standing {
    /// The broker has said yes to this request.
    pub(crate) fn granted<P: Packet>(&mut self, request: &P) {
        let topic = request.header().topic;
        let Ok(Named { name }) = serde_json::from_slice(request.payload()) else { return };
        for (add, remove) in PAIRS {
            if topic == *add {
                let payload = String::from_utf8_lossy(request.payload()).into_owned();
                self.items.entry((*add, name.clone())).or_insert((0, payload)).0 += 1;
            } else if topic == *remove {
                let key = (*add, name.clone());
                let left = self.items.get_mut(&key).map(|(count, _)| {
                    *count -= 1;
                    *count
                });
                if left == Some(0) {
                    self.items.remove(&key);
                }
            }
        }
    }

    /// All of it, each as often as it was granted: the broker counts subscriptions.
    pub(crate) fn all(&self) -> Vec<Item> {
        let each = self.items.iter().flat_map(|((topic, _), (count, payload))| {
            std::iter::repeat_n((*topic, payload.clone()), *count as usize)
        });
        each.collect()
    }
}

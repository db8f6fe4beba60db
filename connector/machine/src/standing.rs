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
    /// What the broker would not grant again, with the errno.
    refused: Vec<(Item, i32)>,
    /// When to ask for that once more, and how often it was.
    pub(crate) retry_at: Option<f64>,
    tries: u32,
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

    /// The broker has said no, to what it had granted before.
    pub(crate) fn refused(&mut self, item: Item, errnum: i32) {
        self.refused.push((item, errnum));
    }

    /// What to ask for once more; the first of it if that was tried often enough.
    pub(crate) fn retry(&mut self, tries_max: u32) -> Result<Vec<Item>, (Item, i32)> {
        self.retry_at = None;
        self.tries += 1;
        let mut refused = std::mem::take(&mut self.refused).into_iter();
        if self.tries > tries_max
            && let Some(first) = refused.next()
        {
            return Err(first);
        }
        Ok(refused.map(|(item, _)| item).collect())
    }

    /// Whether anything was refused.
    pub(crate) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// A new connection: nothing was asked over it yet.
    pub(crate) fn begin(&mut self) {
        (self.retry_at, self.tries) = (None, 0);
        self.refused.clear();
    }

    /// All of it, each as often as it was granted: the broker counts subscriptions.
    pub(crate) fn all(&self) -> Vec<Item> {
        let each = self.items.iter().flat_map(|((topic, _), (count, payload))| {
            std::iter::repeat_n((*topic, payload.clone()), *count as usize)
        });
        each.collect()
    }
}

//! What a broker keeps for a connection, and drops when it ends: event subscriptions, service
//! names, memberships in groups (flux-core `librouter/router.c`, `modules/groups`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::packet::Packet;

/// Topics that add something, each with the topic that removes it.
const PAIRS: &[(&str, &str)] = &[
    ("event.subscribe", "event.unsubscribe"),
    ("groups.join", "groups.leave"),
    ("service.add", "service.remove"),
];

/// The payload: the key of the name depends on the topic.
#[derive(Deserialize)]
struct Named {
    #[serde(alias = "topic", alias = "service")]
    name: String,
}

/// Whether a job shell offers a service of this name (flux-core `shell/svc.c`).
fn is_of_shell(name: &str) -> bool {
    name.contains("-shell-")
}

/// Whether a job shell gives its service up with this request: its tasks have ended, and it has left
/// its reactor (flux-core `shell/svc.c`, `shell_svc_destroy()`).
pub fn ends_shell<P: Packet>(request: &P) -> bool {
    request.header().topic == "service.remove"
        && serde_json::from_slice(request.payload())
            .is_ok_and(|named: Named| is_of_shell(&named.name))
}

/// A request to make again: topic and payload.
pub(crate) type Item = (&'static str, String);

/// What the broker has granted this connection, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Standing {
    /// How often it was granted, and the payload of the request.
    items: BTreeMap<(&'static str, String), (u32, String)>,
    /// Items that the broker refused to grant again, with the errno.
    refused: Vec<(Item, i32)>,
    /// When to ask for these again.
    pub(crate) retry_at: Option<f64>,
    /// How often they were asked for again.
    tries: u32,
}

impl Standing {
    /// The broker has granted this request.
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

    /// Whether the client is a job shell: it has registered a shell's service (flux-core
    /// `shell/svc.c`).
    pub(crate) fn is_shell(&self) -> bool {
        self.items.keys().any(|(add, name)| *add == "service.add" && is_of_shell(name))
    }

    /// The broker has refused an item that it had granted before.
    pub(crate) fn refused(&mut self, item: Item, errnum: i32) {
        self.refused.push((item, errnum));
    }

    /// The items to ask for again.
    ///
    /// # Errors
    /// The first refused item, after `tries_max` attempts.
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

    /// Whether an item was refused.
    pub(crate) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Begins with a new connection.
    pub(crate) fn begin(&mut self) {
        (self.retry_at, self.tries) = (None, 0);
        self.refused.clear();
    }

    /// All items, each as often as it was granted: the broker counts subscriptions.
    pub(crate) fn all(&self) -> Vec<Item> {
        let each = self.items.iter().flat_map(|((topic, _), (count, payload))| {
            std::iter::repeat_n((*topic, payload.clone()), *count as usize)
        });
        each.collect()
    }
}

//! What a broker keeps for a connection, and drops when it ends: event subscriptions, service
//! names, memberships in groups (flux-core `librouter/router.c`, `modules/groups`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::context::Context;
use crate::packet::{ANY_RANK, Packet};
use crate::question::{PAUSE_MAX, Question};
use crate::wire::{Item, Own};

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

/// What the broker has granted this connection, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Standing {
    /// How often it was granted, and the payload of the request.
    items: BTreeMap<(&'static str, String), (u32, String)>,
    /// How many were asked for again and have no answer yet.
    open: usize,
    /// Items that the broker refused to grant again, with the errno.
    refused: Vec<(Item, i32)>,
    /// When to ask for these again.
    question: Question,
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

    /// There is a new connection: makes all items again, each as often as it was granted, because the
    /// broker counts subscriptions.
    pub(crate) fn restore<P: Packet>(&mut self, cx: &mut Context<P>) {
        (self.open, self.question) = (0, Question::default());
        self.refused.clear();
        let each = self.items.iter().flat_map(|((topic, _), (count, payload))| {
            std::iter::repeat_n((*topic, payload.clone()), *count as usize)
        });
        self.ask(cx, each.collect());
    }

    fn ask<P: Packet>(&mut self, cx: &mut Context<P>, items: Vec<Item>) {
        self.open += items.len();
        for item in items {
            let (topic, payload) = item.clone();
            cx.wire.ask(Own::Standing(item), topic, &payload, ANY_RANK);
        }
    }

    /// The broker has granted an item again, or refused it: a connection that is just ending may still
    /// hold it.
    pub(crate) fn answered<P: Packet>(&mut self, cx: &Context<P>, item: Item, errnum: i32) {
        self.open -= 1;
        if errnum != 0 {
            self.refused.push((item, errnum));
        }
        if self.open == 0 && !self.refused.is_empty() {
            self.question.fail_for(cx.now, PAUSE_MAX);
        }
    }

    /// Whether all is as it was before the connection was lost.
    pub(crate) fn is_restored(&self) -> bool {
        self.open == 0 && self.refused.is_empty()
    }

    /// When to call [`Standing::timeout`].
    pub(crate) fn next(&self) -> Option<f64> {
        self.question.next()
    }

    /// Asks again for items that were refused.
    ///
    /// # Errors
    /// The first of them, after the last attempt: the client would otherwise rely on a service that it
    /// does not have.
    pub(crate) fn timeout<P: Packet>(&mut self, cx: &mut Context<P>) -> Result<(), (Item, i32)> {
        if !self.question.is_due(cx.now) {
            return Ok(());
        }
        self.question.cancel();
        let tries_max = (cx.client.limits.patience / PAUSE_MAX) as u32;
        let mut refused = std::mem::take(&mut self.refused).into_iter();
        if self.question.tries() > tries_max
            && let Some(first) = refused.next()
        {
            return Err(first);
        }
        self.ask(cx, refused.map(|(item, _)| item).collect());
        Ok(())
    }
}

//! Requests that are not answered yet.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::Message;
use crate::machine::RequestId;

/// Keeps the messages of requests under the numbers that the machines use.
#[derive(Default)]
pub struct Requests {
    messages: RefCell<BTreeMap<u64, Message>>,
    last: Cell<u64>,
}

impl Requests {
    /// The number that the next message gets.
    pub fn next_id(&self) -> RequestId {
        RequestId::Remote(self.last.get() + 1)
    }

    /// Keeps a message. Returns its number.
    pub fn hold(&self, message: Message) -> RequestId {
        let id = self.last.get() + 1;
        self.last.set(id);
        self.messages.borrow_mut().insert(id, message);
        RequestId::Remote(id)
    }

    /// Calls `body` with a message, which is kept.
    pub fn with(&self, id: RequestId, body: impl FnOnce(&Message)) {
        if let RequestId::Remote(id) = id
            && let Some(message) = self.messages.borrow().get(&id)
        {
            body(message);
        }
    }

    /// Finds all requests of the sender of a disconnect request.
    pub fn find_of_sender(&self, disconnect: &Message) -> Vec<RequestId> {
        let messages = self.messages.borrow();
        let same = messages.iter().filter(|(_, message)| disconnect.is_disconnect_of(message));
        same.map(|(id, _)| RequestId::Remote(*id)).collect()
    }

    /// Takes a message out, for its last answer.
    pub fn take(&self, id: RequestId) -> Option<Message> {
        match id {
            RequestId::Remote(id) => self.messages.borrow_mut().remove(&id),
            RequestId::Local(_) => None,
        }
    }
}

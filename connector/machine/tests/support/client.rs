//! A client's connector, and a clock.

use resume_machine::{Connector, Limits};

use super::support::Message;

pub(crate) struct Client {
    pub(crate) connector: Connector<Message>,
    /// In seconds.
    pub(crate) now: f64,
}

impl Client {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { connector: Connector::new(7, limits, true, 0.0), now: 0.0 }
    }

    /// The client sends.
    pub(crate) fn send(&mut self, message: Message) {
        self.connector.send(self.now, message).expect("there is room");
    }

    /// Messages to the broker.
    pub(crate) fn sent(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.connector.for_broker()).collect()
    }

    pub(crate) fn topics(&mut self) -> Vec<String> {
        self.sent().into_iter().map(|message| message.topic).collect()
    }

    /// The broker sends.
    pub(crate) fn receive(&mut self, message: Message) {
        self.connector.receive(self.now, message);
    }

    /// Matchtag and error number of what the client gets.
    pub(crate) fn heard(&mut self) -> Vec<(u32, i32)> {
        let heard = std::iter::from_fn(|| self.connector.for_client());
        heard.map(|message| (message.tag, message.errnum)).collect()
    }

    pub(crate) fn pass(&mut self, seconds: f64) {
        self.now += seconds;
        self.connector.timeout(self.now);
    }
}

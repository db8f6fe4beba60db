//! One D-Bus connection. Calls go out in batches; replies and signals come in as one ordered
//! stream.
//!
//! Replies are read from the stream and not awaited one by one. This keeps the order in which
//! systemd sends signals and replies. No task is spawned for a call.
//!
//! Every call is answered. If no message can be made of a call, it is answered here with a refusal,
//! before anything that the bus sends.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;
use zbus::message::{Flags, Message, Type};
use zbus::{Address, Connection, DynamicType, MessageStream, Variant};

use crate::proto::UnitName;
use crate::supervisor::tracker::{Ask, Refusal};

use super::address;
use super::error::{self, SystemdError};
use super::properties::Property;
use super::readback::ReadBack;

/// systemd's well-known name.
pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";
/// The manager's object.
pub(super) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
/// The manager's interface.
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// The interface that every unit has.
pub(super) const UNIT: &str = "org.freedesktop.systemd1.Unit";
/// The interface that services have.
pub(super) const SERVICE: &str = "org.freedesktop.systemd1.Service";
/// The interface for properties of any object.
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The bus itself.
const BUS: &str = "org.freedesktop.DBus";

/// The bus, and systemd on it, must answer within this time. Otherwise they count as absent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The bus must take messages within this time. Otherwise it counts as lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest message that is sent, in bytes. D-Bus allows arrays of up to 64 MiB and messages of up
/// to 128 MiB, and a bus closes a connection that sends more. With this limit no array can be too
/// long.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many calls may be without an answer at a time. The others wait, because a bus can have a quota
/// of them (`max_replies_per_connection`). systemd handles one after the other, so more would make
/// nothing faster.
const CALLS_IN_FLIGHT_MAX: usize = 8;

/// How many messages are queued before the reader waits.
const STREAM_QUEUE_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A connection to a bus that systemd answers on.
#[derive(Debug)]
pub(super) struct Bus {
    connection: Connection,
    stream: MessageStream,
    /// Messages that are still to be sent, calls with whom the answer is for.
    outbox: VecDeque<(Message, Option<Pending>)>,
    /// Calls that were sent.
    calls: HashMap<NonZeroU32, Pending>,
    /// Calls that could not be sent, and why, in order.
    unsent: VecDeque<(Pending, Refusal)>,
    /// The bus has not taken a message in time.
    is_stuck: bool,
    /// systemd's own cgroup.
    control_group: String,
}

/// A call that is not answered yet, and whom the answer is for.
#[derive(Debug)]
pub(super) enum Pending {
    /// The tracker.
    Ask(Ask),
    /// The comparison of a configured property.
    ReadBack(ReadBack),
    /// The look for drop-ins of a unit, and the properties to compare if it has some.
    DropIns(UnitName, Vec<Property>),
    /// The check whether systemd is on the bus. It asks for this property of the manager.
    Check(&'static str),
    /// Starts that wait for it. It asks for the variables that systemd has for all units.
    Environment,
}

/// What a connection receives.
#[derive(Debug)]
pub(super) enum Incoming {
    /// The connection is lost, and with it all answers that are still to come.
    Closed(String),
    /// An answer to a call.
    Reply(Pending, Result<Message, Refusal>),
    /// A signal.
    Signal(Message),
}

impl Bus {
    /// Connect to the first address of a list on which systemd answers.
    ///
    /// # Errors
    ///
    /// What is wrong with the first address, if it answers on none.
    pub(super) async fn connect(addresses: &str) -> Result<Self, SystemdError> {
        let mut failed = None;
        for (text, address) in address::each(addresses) {
            match Self::connect_to(text, address).await {
                Ok(bus) => return Ok(bus),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.expect("a list has an address, be it a bad one"))
    }

    async fn connect_to(
        text: &str,
        address: Result<Address, zbus::Error>,
    ) -> Result<Self, SystemdError> {
        let timeout = || SystemdError::Timeout {
            address: text.to_string(),
            seconds: ANSWER_TIMEOUT.as_secs(),
        };
        let open = Self::open(text, address);
        tokio::time::timeout(ANSWER_TIMEOUT, open).await.map_err(|_| timeout())?
    }

    async fn open(text: &str, address: Result<Address, zbus::Error>) -> Result<Self, SystemdError> {
        let failed = |source| SystemdError::Connect { address: text.to_string(), source };
        let connection = zbus::connection::Builder::address(address.map_err(failed)?)
            .max_queued(STREAM_QUEUE_MAX)
            .build()
            .await
            .map_err(failed)?;
        let stream = MessageStream::from(&connection);
        let mut bus = Self {
            connection,
            stream,
            outbox: VecDeque::new(),
            calls: HashMap::new(),
            unsent: VecDeque::new(),
            is_stuck: false,
            control_group: String::new(),
        };
        for property in ["Version", "ControlGroup"] {
            bus.call_properties(
                Pending::Check(property),
                MANAGER_PATH,
                "Get",
                &(MANAGER, property),
            );
        }
        bus.flush().await;
        let absent = |why| SystemdError::Absent { address: text.to_string(), why };
        loop {
            let told = match bus.receive().await {
                Incoming::Closed(why) => return Err(absent(why)),
                Incoming::Reply(Pending::Check(property), Ok(answer)) => {
                    let told = answer.body().deserialize::<Variant<'_>>().map(String::try_from);
                    (property, told.ok().and_then(Result::ok).unwrap_or_default())
                }
                Incoming::Reply(_, Err(e)) => return Err(absent(e.to_string())),
                Incoming::Reply(_, Ok(_)) | Incoming::Signal(_) => continue,
            };
            match told {
                ("ControlGroup", group) => {
                    bus.control_group = group;
                    return Ok(bus);
                }
                (_, version) => error::check_version(version)?,
            }
        }
    }

    /// systemd's own cgroup. Empty if it has told none.
    pub(super) fn control_group(&self) -> &str {
        &self.control_group
    }

    /// Call a method of the manager.
    pub(super) fn call_manager<B>(&mut self, pending: Pending, method: &'static str, body: &B)
    where
        B: Serialize + DynamicType,
    {
        self.call(pending, (SYSTEMD, MANAGER_PATH, MANAGER), method, body);
    }

    /// Call a method of a unit's properties.
    pub(super) fn call_properties<B>(
        &mut self,
        pending: Pending,
        path: &str,
        method: &'static str,
        body: &B,
    ) where
        B: Serialize + DynamicType,
    {
        self.call(pending, (SYSTEMD, path, PROPERTIES), method, body);
    }

    /// Have the bus deliver signals that match `rule`, from the next call on.
    pub(super) fn add_match(&mut self, pending: Pending, rule: &str) {
        self.call(pending, (BUS, "/org/freedesktop/DBus", BUS), "AddMatch", &(rule,));
    }

    /// Ask systemd for a sign of life.
    pub(super) fn ping(&mut self, pending: Pending) {
        let object = (SYSTEMD, MANAGER_PATH, "org.freedesktop.DBus.Peer");
        self.call(pending, object, "Ping", &());
    }

    /// The opposite of [`add_match`](Self::add_match).
    pub(super) fn remove_match(&mut self, rule: &str) {
        let object = (BUS, "/org/freedesktop/DBus", BUS);
        match build(object, "RemoveMatch", &(rule,), Flags::NO_REPLY_EXPECTED) {
            Ok(message) => self.outbox.push_back((message, None)),
            Err(refusal) => tracing::error!(rule, %refusal, "match rule not removed"),
        }
    }

    fn call<B>(
        &mut self,
        pending: Pending,
        object: (&str, &str, &str),
        method: &'static str,
        body: &B,
    ) where
        B: Serialize + DynamicType,
    {
        // Starting systemd by D-Bus activation would be a different systemd.
        match build(object, method, body, Flags::NO_AUTO_START) {
            Ok(message) => self.outbox.push_back((message, Some(pending))),
            Err(refusal) => self.unsent.push_back((pending, refusal)),
        }
    }

    /// Send the calls, as many as may be in flight. Must not be cancelled, because that could cut off
    /// a message.
    pub(super) async fn flush(&mut self) {
        let mut messages = Vec::new();
        while self.calls.len() < CALLS_IN_FLIGHT_MAX
            && let Some((message, pending)) = self.outbox.pop_front()
        {
            let number = message.primary_header().serial_num();
            self.calls.extend(pending.map(|pending| (number, pending)));
            messages.push(message);
        }
        if messages.is_empty() {
            return;
        }
        let sent = self.connection.send_all(&messages);
        match tokio::time::timeout(SEND_TIMEOUT, sent).await {
            Ok(Ok(())) => {}
            // After an error the stream ends as well, and that is handled.
            Ok(Err(e)) => tracing::warn!(error = %e, "cannot send to the user bus"),
            // A message may be cut off.
            Err(_) => self.is_stuck = true,
        }
    }

    /// The next reply or signal. May be dropped and called again.
    pub(super) async fn receive(&mut self) -> Incoming {
        if self.is_stuck {
            return Incoming::Closed("the bus takes no messages".to_string());
        }
        if let Some((pending, refusal)) = self.unsent.pop_front() {
            return Incoming::Reply(pending, Err(refusal));
        }
        loop {
            let message = match poll_fn(|cx| Pin::new(&mut self.stream).poll_next(cx)).await {
                Some(Ok(message)) => message,
                Some(Err(e)) => return Incoming::Closed(e.to_string()),
                None => return Incoming::Closed("connection closed".to_string()),
            };
            match message.message_type() {
                Type::Signal => return Incoming::Signal(message),
                Type::MethodReturn => {
                    if let Some(pending) = self.take_pending(&message) {
                        return Incoming::Reply(pending, Ok(message));
                    }
                }
                Type::Error => {
                    if let Some(pending) = self.take_pending(&message) {
                        return Incoming::Reply(pending, Err(refusal(&message)));
                    }
                }
                Type::MethodCall => {}
            }
        }
    }

    fn take_pending(&mut self, message: &Message) -> Option<Pending> {
        self.calls.remove(&message.header().reply_serial()?)
    }

    /// Send the rest and close the connection. The bus drops our match rules with it.
    pub(super) async fn close(mut self) {
        self.flush().await;
        if self.is_stuck {
            return;
        }
        match tokio::time::timeout(ANSWER_TIMEOUT, self.connection.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::debug!(error = %e, "closing the user bus"),
            Err(_) => tracing::debug!("the user bus does not close its connection"),
        }
    }
}

fn refusal(message: &Message) -> Refusal {
    let name = message.header().error_name().map_or(String::new(), |name| name.to_string());
    let text = message.body().deserialize::<String>().unwrap_or_default();
    Refusal { name, text }
}

/// Build a message. Fails if its path or method is not valid, or if it is longer than
/// [`MESSAGE_BYTES_MAX`]. It does not check strings for a NUL, for which the bus would close the
/// connection: callers must check strings that they did not make.
fn build<B>(
    (destination, path, interface): (&str, &str, &str),
    method: &'static str,
    body: &B,
    flags: Flags,
) -> Result<Message, Refusal>
where
    B: Serialize + DynamicType,
{
    let refuse = |why: &dyn std::fmt::Display| Refusal {
        name: Refusal::INVALID_ARGS.to_string(),
        text: format!("cannot make a D-Bus message: {why}"),
    };
    let message = Message::method_call(path, method)
        .destination(destination)
        .interface(interface)
        .with_flags(flags)
        .build(body)
        .map_err(|e| refuse(&e))?;
    match message.data().len() {
        ..=MESSAGE_BYTES_MAX => Ok(message),
        bytes => {
            Err(refuse(&format!("it has {bytes} bytes, and {MESSAGE_BYTES_MAX} are the most")))
        }
    }
}

/// Escape a unit name as a D-Bus object path: all but letters and digits as `_xx`.
pub(super) fn unit_path(name: &str) -> String {
    let mut path = format!("{MANAGER_PATH}/unit/");
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

/// The unit of ours with this object path.
pub(super) fn unit_of_path(path: &str) -> Option<UnitName> {
    let mut parts = path.strip_prefix(MANAGER_PATH)?.strip_prefix("/unit/")?.split('_');
    let mut name = parts.next()?.to_string();
    for part in parts {
        let (byte, rest) = part.split_at_checked(2)?;
        name.push(char::from(u8::from_str_radix(byte, 16).ok()?));
        name.push_str(rest);
    }
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{BrokerRank, InstanceId, JobId};

    #[test]
    fn unit_paths() {
        let unit = UnitName::new(true, BrokerRank(3), JobId(7), InstanceId::new("/test", 1));
        assert_eq!(unit_of_path(&unit_path(&unit.to_string())), Some(unit));
        for other in ["a.service", "shell-0.service", ""] {
            assert_eq!(unit_of_path(&unit_path(other)), None, "{other}");
        }
        for path in
            ["/a", "/org/freedesktop/systemd1/unit/shell_2", "/org/freedesktop/systemd1/unit/_ƒ"]
        {
            assert_eq!(unit_of_path(path), None, "{path}");
        }
        assert_eq!(
            unit_path("shell-0-f1-0a.service"),
            "/org/freedesktop/systemd1/unit/shell_2d0_2df1_2d0a_2eservice"
        );
        assert_eq!(unit_path("1a"), "/org/freedesktop/systemd1/unit/_31a");
    }
}

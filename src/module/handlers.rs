//! What the module answers: one handler a topic.

use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value;

use super::SERVICE;
use crate::adapter::libflux::{Broker, Handle, HandleError, Message, MessageHandler};
use crate::config::Config;
use crate::machine::{Event, Level, RequestId};
use crate::proto::peer::{COVERED, KNOWN, LEAD, ORDER, SHELLS};
use crate::proto::{BrokerRank, Idset, JobException, JobId};

/// Module debug flag that makes time limit updates fail (upstream's test aid).
const DEBUG_FAIL_EXPIRATION: i32 = 1;

/// Handlers for everything, as long as the result lives.
///
/// # Errors
/// When libflux refuses one.
pub(super) fn all(
    handle: Handle,
    name: &str,
    arguments: &[String],
    broker: &Rc<Broker>,
) -> Result<Vec<MessageHandler>, HandleError> {
    let request = |method: &str, read: fn(Handle, &Broker, Message)| {
        handler(handle, &format!("{SERVICE}.{method}"), Kind::OwnersRequest, broker, read)
    };
    let users = |method: &str, read: fn(Handle, &Broker, Message)| {
        handler(handle, &format!("{SERVICE}.{method}"), Kind::UsersRequest, broker, read)
    };
    let mut all = vec![
        handler(handle, "job-exception", Kind::Event, broker, exception)?,
        request("start", |h, b, m| {
            streaming(h, b, m, |request, payload| Event::Start { request, payload });
        })?,
        request(LEAD, |h, b, m| {
            streaming(h, b, m, |request, payload| Event::Lead { request, payload });
        })?,
        request(SHELLS, |h, b, m| {
            streaming(h, b, m, |request, payload| Event::Shells { request, payload });
        })?,
        request(ORDER, |_, b, m| one_way(ORDER, b, &m, |payload| Event::Order { payload }))?,
        request(COVERED, |_, b, m| one_way(COVERED, b, &m, |payload| Event::Covered { payload }))?,
        request(KNOWN, |h, b, m| {
            streaming(h, b, m, |request, payload| Event::Known { request, payload });
        })?,
        request("expiration", expiration)?,
        users("checkpoint", checkpoint)?,
        users("critical-ranks", critical_ranks)?,
        users("disconnect", |_, broker, message| broker.disconnected(&message))?,
        users("shell-barrier", shell_barrier)?,
    ];
    // The broker and `flux module` address the module by the name that it was loaded under.
    let mut names = vec![SERVICE];
    if name != SERVICE {
        names.push(name);
    }
    for name in names {
        let kind = Kind::OwnersRequest;
        all.push(handler(handle, &format!("{name}.stats-get"), kind, broker, stats_get)?);
        let arguments = arguments.to_vec();
        let topic = format!("{name}.config-reload");
        all.push(handler(handle, &topic, kind, broker, move |handle, broker, message| {
            config_reload(handle, broker, &message, &arguments);
        })?);
    }
    Ok(all)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Event,
    OwnersRequest,
    UsersRequest,
}

fn handler(
    handle: Handle,
    topic: &str,
    kind: Kind,
    broker: &Rc<Broker>,
    read: impl Fn(Handle, &Broker, Message) + 'static,
) -> Result<MessageHandler, HandleError> {
    let broker = Rc::downgrade(broker);
    let (is_event, for_users) = (kind == Kind::Event, kind == Kind::UsersRequest);
    MessageHandler::new(handle, topic, is_event, for_users, move |message| {
        if let Some(broker) = broker.upgrade() {
            read(handle, &broker, message);
        }
    })
}

fn streaming(
    handle: Handle,
    broker: &Broker,
    message: Message,
    event: impl FnOnce(RequestId, Value) -> Event,
) {
    match message.payload() {
        Ok(payload) => {
            let request = broker.hold(message);
            broker.handle(event(request, payload));
        }
        Err(error) => refuse(handle, broker, &message, &format!("malformed payload: {error}")),
    }
}

/// Reads a payload, or answers the request with `EPROTO` and what is wrong.
fn read<T: for<'de> Deserialize<'de>>(
    handle: Handle,
    broker: &Broker,
    message: &Message,
) -> Option<T> {
    match message.payload().and_then(T::deserialize) {
        Ok(value) => Some(value),
        Err(error) => {
            refuse(handle, broker, message, &format!("malformed payload: {error}"));
            None
        }
    }
}

fn refuse(handle: Handle, broker: &Broker, message: &Message, reason: &str) {
    if let Err(error) = message.respond_error(handle, libc::EPROTO, reason) {
        broker.log(Level::Error, &error.to_string());
    }
}

fn exception(_: Handle, broker: &Broker, message: Message) {
    match message.payload().and_then(JobException::deserialize) {
        Ok(exception) => broker.handle(Event::Exception(exception)),
        Err(error) => broker.log(Level::Error, &format!("job-exception event: {error}")),
    }
}

/// A request that nobody waits for an answer to.
fn one_way(topic: &str, broker: &Broker, message: &Message, event: fn(Value) -> Event) {
    match message.payload() {
        Ok(payload) => broker.handle(event(payload)),
        Err(error) => broker.log(Level::Error, &format!("{topic}: {error}")),
    }
}

#[derive(Deserialize)]
struct Expiration {
    id: JobId,
    expiration: f64,
}

fn expiration(handle: Handle, broker: &Broker, message: Message) {
    if handle.debug_flag(DEBUG_FAIL_EXPIRATION) {
        let reason = "failed on purpose: debug flag 1 is set";
        if let Err(error) = message.respond_error(handle, libc::EINVAL, reason) {
            broker.log(Level::Error, &error.to_string());
        }
        return;
    }
    if let Some(Expiration { id, expiration }) = read(handle, broker, &message) {
        let request = broker.hold(message);
        broker.handle(Event::Expiration { request, id, expiration });
    }
}

#[derive(Deserialize)]
struct Checkpoint {
    id: JobId,
}

fn checkpoint(handle: Handle, broker: &Broker, message: Message) {
    if let Some(Checkpoint { id }) = read(handle, broker, &message) {
        let credential = message.credential();
        let request = broker.hold(message);
        broker.handle(Event::CheckpointAsked { request, credential, id });
    }
}

#[derive(Deserialize)]
struct CriticalRanks {
    id: JobId,
    ranks: Idset,
}

fn critical_ranks(handle: Handle, broker: &Broker, message: Message) {
    if let Some(CriticalRanks { id, ranks }) = read(handle, broker, &message) {
        let credential = message.credential();
        let request = broker.hold(message);
        broker.handle(Event::CriticalRanks { request, credential, id, ranks });
    }
}

#[derive(Deserialize)]
struct ShellBarrier {
    id: JobId,
    rank: BrokerRank,
    /// The resume connector says which entry it is.
    entry: Option<u32>,
}

fn shell_barrier(handle: Handle, broker: &Broker, message: Message) {
    match message.payload().and_then(ShellBarrier::deserialize) {
        Ok(ShellBarrier { id, rank, entry }) => {
            let credential = message.credential();
            let request = broker.hold(message);
            broker.handle(Event::ShellBarrier { request, credential, id, rank, entry });
        }
        Err(error) => {
            let reason = format!("malformed payload: {error}");
            let answer = message.respond_to_barrier(handle, Some((libc::EPROTO, &reason)));
            if let Err(error) = answer {
                broker.log(Level::Error, &error.to_string());
            }
        }
    }
}

fn stats_get(handle: Handle, broker: &Broker, message: Message) {
    if let Err(error) = message.respond(handle, Some(&broker.stats())) {
        broker.log(Level::Error, &error.to_string());
    }
}

/// A configuration that can't be used changes nothing, and the answer says why.
fn config_reload(handle: Handle, broker: &Broker, message: &Message, arguments: &[String]) {
    let config = message
        .payload()
        .map_err(|error| format!("Error parsing new config: {error}"))
        .and_then(|conf| Config::new(&conf, arguments).map_err(|error| error.to_string()));
    let answer = match config {
        Ok(config) => {
            broker.handle(Event::Config(Box::new(config)));
            message.respond(handle, None)
        }
        Err(reason) => message.respond_error(handle, libc::EINVAL, &reason),
    };
    if let Err(error) = answer {
        broker.log(Level::Error, &error.to_string());
    }
}

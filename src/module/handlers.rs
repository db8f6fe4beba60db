//! The message handlers of the module, one for each topic.

use std::rc::Rc;

use serde_json::Value;

use crate::adapter::libflux::{Driver, Handle, HandleError, Message, MessageHandler};
use crate::adapter::systemd::check_properties;
use crate::config::Config;
use crate::machine::{Event, Fault, Level, Topic};
use crate::proto::JobException;

/// The service that the job manager, shells and brokers talk to.
pub(super) const SERVICE: &str = "job-exec";

/// Module debug flag that makes updates of time limits fail. flux-core's tests use it.
const DEBUG_FAIL_EXPIRATION: i32 = 1;

/// Makes all handlers. They are active as long as the result lives.
///
/// # Errors
/// If libflux refuses a handler.
pub(super) fn all(
    handle: Handle,
    name: &str,
    arguments: &[String],
    driver: &Rc<Driver>,
) -> Result<Vec<MessageHandler>, HandleError> {
    let mut all = vec![
        handler(handle, "job-exception", Kind::Event, driver, exception)?,
        handler(
            handle,
            &format!("{SERVICE}.disconnect"),
            Kind::UsersRequest,
            driver,
            |_, driver, message| {
                driver.handle_disconnect(&message);
            },
        )?,
    ];
    for &topic in Topic::ALL {
        let kind = if topic.is_for_users() { Kind::UsersRequest } else { Kind::OwnersRequest };
        let read = move |handle: Handle, driver: &Driver, message| {
            request(handle, driver, topic, message);
        };
        all.push(handler(handle, &format!("{SERVICE}.{}", topic.name()), kind, driver, read)?);
    }
    // The broker and `flux module` address the module by the name that it was loaded under.
    let mut names = vec![SERVICE];
    if name != SERVICE {
        names.push(name);
    }
    for name in names {
        let kind = Kind::UsersRequest;
        all.push(handler(handle, &format!("{name}.stats-get"), kind, driver, stats_get)?);
        let kind = Kind::OwnersRequest;
        let arguments = arguments.to_vec();
        let reload = format!("{name}.config-reload");
        all.push(handler(handle, &reload, kind, driver, move |handle, driver, message| {
            config_reload(handle, driver, &message, &arguments);
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
    driver: &Rc<Driver>,
    read: impl Fn(Handle, &Driver, Message) + 'static,
) -> Result<MessageHandler, HandleError> {
    let driver = Rc::downgrade(driver);
    let (is_event, for_users) = (kind == Kind::Event, kind == Kind::UsersRequest);
    MessageHandler::new(handle, topic, is_event, for_users, move |message| {
        if let Some(driver) = driver.upgrade() {
            read(handle, &driver, message);
        }
    })
}

/// Gives a request to the node, or answers with an error if it cannot be read.
fn request(handle: Handle, driver: &Driver, topic: Topic, message: Message) {
    if topic == Topic::Expiration && handle.debug_flag(DEBUG_FAIL_EXPIRATION) {
        let fault = Fault::new(libc::EINVAL, "failed on purpose: debug flag 1 is set");
        return refuse(handle, driver, topic, &message, &fault);
    }
    match driver.read(topic, message) {
        Ok(event) => driver.handle(event),
        Err((message, fault)) => refuse(handle, driver, topic, &message, &fault),
    }
}

fn refuse(handle: Handle, driver: &Driver, topic: Topic, message: &Message, fault: &Fault) {
    let Fault { errnum, message: reason } = fault;
    let answer = match topic {
        Topic::ShellBarrier => message.respond_to_barrier(handle, Some((*errnum, reason))),
        _ if topic.is_answered() => message.respond_error(handle, *errnum, reason),
        _ => return driver.log(Level::Error, &format!("{}: {reason}", topic.name())),
    };
    if let Err(error) = answer {
        driver.log(Level::Error, &error.to_string());
    }
}

fn exception(_: Handle, driver: &Driver, message: Message) {
    match serde_json::from_slice::<JobException>(message.payload()) {
        Ok(exception) => driver.handle(Event::Exception(exception)),
        Err(error) => driver.log(Level::Error, &format!("job-exception event: {error}")),
    }
}

/// A rank answers at once for itself. What other ranks lead can take a while. Of other users no more is
/// read than who they are, and nobody else is asked for them.
fn stats_get(handle: Handle, driver: &Driver, message: Message) {
    let user = message.credential();
    let payload = if user.owner { message.payload() } else { b"{}" };
    let request: Value = serde_json::from_slice(payload).unwrap_or_default();
    let answer = move |stats: Value| {
        if let Err(error) = message.respond(handle, Some(&stats.to_string())) {
            handle.log(libc::LOG_ERR, &error.to_string());
        }
    };
    if !user.owner {
        return answer(driver.stats_for(user));
    }
    if request["own"] == true {
        return answer(driver.own_stats());
    }
    driver.stats(answer);
}

/// Handles a new configuration. One that cannot be used changes nothing, and the answer says why.
fn config_reload(handle: Handle, driver: &Driver, message: &Message, arguments: &[String]) {
    let config = serde_json::from_slice::<Value>(message.payload())
        .map_err(|error| format!("Error parsing new config: {error}"))
        .and_then(|conf| Config::new(&conf, arguments).map_err(|error| error.to_string()))
        .and_then(|config| match check_properties(&config.properties) {
            Ok(()) => Ok(config),
            Err(error) => Err(format!("exec.sdexec-properties: {error}")),
        });
    let answer = match config {
        Ok(config) => {
            driver.handle(Event::Config(Box::new(config)));
            message.respond(handle, None)
        }
        Err(reason) => message.respond_error(handle, libc::EINVAL, &reason),
    };
    if let Err(error) = answer {
        driver.log(Level::Error, &error.to_string());
    }
}

//! Questions to the broker. Each has a time limit, because a broker can hang, and one that is away
//! makes the connector wait.

use std::sync::Once;
use std::sync::mpsc::channel;
use std::thread;

use job_exec_rs::adapter::libflux::{Handle, HandleError};
use job_exec_rs::proto::{Hostlist, Idset, JobId};

use super::failure::Failure;
use super::flux_paths;
use super::programs::PATIENCE;

/// This node's broker.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    pub(super) rank: u32,
    /// Of the instance.
    pub(super) size: u32,
    pub(super) host: String,
    /// Of all ranks.
    pub(super) hosts: Option<Hostlist>,
    /// The user id that the instance belongs to.
    pub(super) owner: Option<u32>,
    /// The instance is a job.
    pub(super) is_job: bool,
    /// The instance was booted by configuration, as a site's.
    pub(super) is_configured: bool,
}

impl Broker {
    /// Connects, and from now on shows job ids as flux-core does here.
    ///
    /// # Errors
    /// There is no broker, it does not let this user in, or it hangs.
    pub(super) fn ask() -> Result<Self, Failure> {
        within(|flux| {
            JobId::show_ascii(flux.shows_ascii_f58());
            let attribute = |name| flux.attribute(name).filter(|value: &String| !value.is_empty());
            let number = |name| attribute(name)?.parse().ok();
            Ok(Self {
                rank: flux.rank().map_err(Failure::new)?,
                size: number("size").unwrap_or(1),
                host: attribute("hostname").unwrap_or_default(),
                hosts: attribute("hostlist").and_then(|hosts| hosts.parse().ok()),
                owner: number("security.owner"),
                is_job: attribute("jobid").is_some(),
                is_configured: attribute("broker.boot-method").is_some_and(|how| how == "config"),
            })
        })
    }

    /// All ranks of the instance.
    pub(super) fn ranks(&self) -> Idset {
        Idset::from_range(0..self.size)
    }
}

/// Connects to this node's broker.
///
/// # Errors
/// There is none, or no libflux-core.
pub(super) fn connect() -> Result<Handle, HandleError> {
    static ONCE: Once = Once::new();
    ONCE.call_once(flux_paths::load_libflux);
    Handle::connect()
}

/// Asks a service on a rank.
///
/// # Errors
/// What it answers, or that it does not.
pub(super) fn ask(rank: u32, topic: &str, payload: &str) -> Result<String, Failure> {
    let (topic, payload) = (topic.to_string(), payload.to_string());
    within(move |flux| flux.ask_rank(rank, &topic, &payload).map_err(Failure::new))
}

/// Each question has a thread, which is left alone if the broker does not answer, and a connection.
fn within<T: Send + 'static>(
    question: impl FnOnce(Handle) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let answer = connect().map_err(Failure::new).and_then(question);
        // Nobody waits any more after the time limit.
        let _ = sender.send(answer);
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        Err(Failure(format!("the broker has not answered within {} s", PATIENCE.as_secs())))
    })
}

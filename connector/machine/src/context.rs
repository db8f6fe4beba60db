//! What every part of the connector is given: the time, the client, and the way out.

use crate::options::Limits;
use crate::packet::{ANY_RANK, Packet};
use crate::run::Run;
use crate::wire::Wire;

/// The time, the client, and the way out.
#[derive(Clone, Debug)]
pub(crate) struct Context<P> {
    /// When that happens which is being handled, in seconds.
    pub(crate) now: f64,
    /// After a restart of the broker, services and namespaces may be missing until then.
    pub(crate) patient_until: f64,
    pub(crate) client: Client,
    pub(crate) wire: Wire<P>,
}

impl<P: Packet> Context<P> {
    pub(crate) fn new(client: Client, now: f64) -> Self {
        Self { now, patient_until: 0.0, client, wire: Wire::default() }
    }

    /// Whether what is missing may only just be coming back.
    pub(crate) fn is_patient(&self) -> bool {
        self.now < self.patient_until
    }
}

/// The process that has opened the connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) limits: Limits,
    /// A random number that identifies it.
    pub(crate) id: u64,
    /// Rank of its broker, if it is known.
    pub(crate) rank: Option<u32>,
    /// The run of a job that it belongs to, if any.
    pub(crate) run: Option<Run>,
    /// The rank whose job-info service it asks about its job, if that is not its own.
    pub(crate) info: Option<u32>,
    /// The broker that it is connected to has started its run, as far as is known.
    pub(crate) met_its_broker: bool,
    /// It is a job shell: it has registered a shell's service.
    pub(crate) is_shell: bool,
    /// It is a job shell, or was one until it gave its service up.
    pub(crate) was_shell: bool,
    /// It is about to close the connection.
    pub(crate) is_closing: bool,
}

impl Client {
    pub(crate) fn new(id: u64, limits: Limits) -> Self {
        Self {
            limits,
            id,
            rank: None,
            run: None,
            info: None,
            met_its_broker: true,
            is_shell: false,
            was_shell: false,
            is_closing: false,
        }
    }

    /// Its number as others are told it.
    pub(crate) fn name(&self) -> String {
        format!("{:016x}", self.id)
    }

    /// Its own rank, if that is known.
    pub(crate) fn home(&self) -> u32 {
        self.rank.unwrap_or(ANY_RANK)
    }

    /// Whether it is of a run of this job.
    pub(crate) fn is_of(&self, job: Option<u64>) -> bool {
        self.run.as_ref().is_some_and(|run| Some(run.job) == job)
    }

    /// Whether a sender has the mark of another run of the client's job. One of the two is about to be
    /// ended, and what the other hears must not come from it. A client that belongs to no run, like
    /// `flux job attach`, has no mark.
    pub(crate) fn is_of_other_run(&self, mark: Option<&str>) -> bool {
        let own = self.run.as_ref().map(Run::mark);
        own.zip(mark).is_some_and(|(own, mark)| own != mark)
    }
}

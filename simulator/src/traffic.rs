//! The messages that a job takes: what modules send each other for it, and its start request with the
//! responses. Each counts where it is sent and where it arrives, with the bytes of its payload as it
//! goes over the wire. What a module exchanges with the KVS, with its own systemd, and with its own
//! shells does not count, nor does the hold of a job that a checkpoint finds in CLEANUP.

use std::collections::{BTreeMap, BTreeSet};

use job_exec_rs::machine::Topic;
use job_exec_rs::proto::JobId;
use serde_json::Value;

/// The fan-out of Flux's overlay network, which is another tree than that of a job. This is the default
/// of `tbon.topo`, without a `[bootstrap]` table.
const OVERLAY_FANOUT: u32 = 32;

/// Messages, sent and received, and the bytes of their payloads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// How many.
    pub messages: u64,
    /// Of all of them. An error, or the end of a stream, has none here.
    pub bytes: u64,
}

/// What one job takes.
#[derive(Clone, Debug, Default)]
pub struct JobTraffic {
    /// How many ranks the job has.
    pub ranks: usize,
    /// The rank that leads it.
    pub leader: u32,
    /// What each module of its ranks, and rank 0's, sends and receives.
    loads: BTreeMap<u32, Load>,
    /// What rank 0's broker passes on, or has for or from its module, if the overlay network is a tree
    /// with [`OVERLAY_FANOUT`].
    pub at_broker_0: Load,
    /// How many steps each rank is below the leader in the tree of the job.
    depths: BTreeMap<u32, u32>,
    /// Ranks that have others below them.
    inner: BTreeSet<u32>,
}

/// Who sends a message to whom. `None` is the job manager.
type Way = (Option<u32>, u32);

/// What all jobs take.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) jobs: BTreeMap<JobId, JobTraffic>,
    /// Requests whose answers count, by number.
    open: BTreeMap<u64, (JobId, Way)>,
}

impl JobTraffic {
    /// What the module of a rank sends and receives.
    pub fn of(&self, rank: u32) -> Load {
        self.loads.get(&rank).copied().unwrap_or_default()
    }

    /// The most that a rank sends and receives that has others below it in the tree, and is neither
    /// the leader nor rank 0. The bytes are this rank's. Nothing if there is no such rank.
    pub fn busiest_inner(&self) -> Load {
        let inner = self.inner.iter().filter(|rank| ![0, self.leader].contains(rank));
        let loads = inner.map(|rank| self.of(*rank));
        loads.max_by_key(|load| (load.messages, load.bytes)).unwrap_or_default()
    }

    /// How many steps the lowest rank of the tree is below the leader.
    pub fn depth(&self) -> u32 {
        self.depths.values().max().copied().unwrap_or_default()
    }

    fn count(&mut self, (from, to): Way, bytes: usize) {
        for rank in from.into_iter().chain([to]) {
            self.loads.entry(rank).or_default().add(bytes);
        }
        if from.is_none_or(|from| branch(from) != branch(to)) {
            self.at_broker_0.add(bytes);
        }
    }
}

impl Load {
    fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// The child of rank 0 that a rank is below, or is. What goes from one branch to another passes rank 0.
fn branch(mut rank: u32) -> u32 {
    while rank > OVERLAY_FANOUT {
        rank = (rank - 1) / OVERLAY_FANOUT;
    }
    rank
}

impl Traffic {
    /// The job manager sends a start request.
    pub(super) fn start(&mut self, number: u64, id: JobId, ranks: usize, payload: &str) {
        let job = self.jobs.entry(id).or_default();
        job.ranks = ranks;
        job.count((None, 0), payload.len());
        self.open.insert(number, (id, (None, 0)));
    }

    /// A module sends a request to another one.
    pub(super) fn request(
        &mut self,
        number: Option<u64>,
        (from, to): (u32, u32),
        topic: Topic,
        payload: &str,
    ) {
        let value: Value = serde_json::from_str(payload).unwrap_or_default();
        let id = if topic == Topic::Lead { &value["start"]["id"] } else { &value["id"] };
        let Some(id) = id.as_u64().map(JobId) else { return };
        let job = self.jobs.entry(id).or_default();
        match topic {
            Topic::Lead => job.leader = to,
            Topic::Shells => {
                let above = job.depths.get(&from).copied().unwrap_or_default();
                job.depths.insert(to, above + 1);
                job.inner.insert(from);
            }
            _ => (),
        }
        job.count((Some(from), to), payload.len());
        if let Some(number) = number {
            self.open.insert(number, (id, (Some(from), to)));
        }
    }

    /// A request is answered, with this payload.
    pub(super) fn answer(&mut self, number: u64, payload: &str) {
        let Some((id, (asker, holder))) = self.open.get(&number) else { return };
        if let Some(job) = self.jobs.get_mut(id) {
            job.count((*asker, *holder), payload.len());
        }
    }
}

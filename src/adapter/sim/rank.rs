//! One rank: its node, while its module is loaded, and what outlives it: records and units.

use std::collections::BTreeMap;

use crate::machine::{Effects, Node};
use crate::port::supervisor::{Stream, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::{JobId, UnitName, WaitStatus};

/// A shell, as its node's kernel and systemd see it.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    /// The job that it was started for.
    pub(super) digest: String,
    /// It was executed.
    pub(super) runs: bool,
    pub(super) exited: Option<WaitStatus>,
    /// What it left behind is still there.
    pub(super) leftover: bool,
    pub(super) output: Vec<u8>,
    pub(super) deaf: bool,
    /// A stop was asked for.
    pub(super) collected: bool,
    pub(super) gone: bool,
    /// Times it entered the barrier, and was let go.
    pub(super) entered: u32,
    pub(super) released: u32,
    /// Its request that waits in the barrier.
    pub(super) waits: Option<u64>,
    /// Signals that came before it ran.
    pub(super) signals: Vec<i32>,
}

impl Unit {
    /// A process of it is left on the node.
    pub(super) fn lives(&self) -> bool {
        (self.runs && self.exited.is_none()) || self.leftover
    }
}

/// Output of one unit on its way to the leader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    pub(super) output: usize,
    /// Where to begin was said (a unit found after a restart waits for that).
    pub(super) may_send: bool,
    pub(super) exit: bool,
    pub(super) gone: bool,
}

/// One rank.
pub(super) struct Rank {
    pub(super) node: Option<Node>,
    pub(super) effects: Effects,
    /// Number of the module's life.
    pub(super) life: u32,
    pub(super) broker_up: bool,
    /// How many brokers have run here before this one.
    pub(super) brokers: u32,
    pub(super) records: BTreeMap<UnitName, UnitRecord>,
    pub(super) units: BTreeMap<UnitName, Unit>,
    /// What this life of the supervisor has reported.
    pub(super) reported: BTreeMap<UnitName, Reported>,
    /// Executions of each job's shell, by the job's digest, over all lives.
    pub(super) executions: BTreeMap<String, u32>,
    /// Units that were forgotten.
    pub(super) finished: Vec<(UnitName, Unit)>,
}

impl Rank {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node: Some(node),
            effects: Effects::default(),
            life: 1,
            broker_up: true,
            brokers: 0,
            records: BTreeMap::new(),
            units: BTreeMap::new(),
            reported: BTreeMap::new(),
            executions: BTreeMap::new(),
            finished: Vec::new(),
        }
    }

    /// Every unit that was ever started for this job.
    pub(super) fn units_of(&self, id: JobId, digest: &str) -> impl Iterator<Item = &Unit> {
        let forgotten = self.finished.iter().map(|(unit, state)| (unit, state));
        let all = self.units.iter().chain(forgotten);
        all.filter(move |(unit, state)| unit.job() == id && state.digest == digest)
            .map(|(_, state)| state)
    }

    pub(super) fn record(&mut self, spec: &UnitSpec) {
        let record = UnitRecord {
            spec: spec.clone(),
            boot_id: "1".to_string(),
            started: None,
            exited: None,
            gone: false,
            notes: BTreeMap::new(),
        };
        self.records.insert(spec.unit.clone(), record);
    }

    /// News of a unit that this life of the supervisor has not told yet, in the port's order.
    pub(super) fn news(&mut self, unit: &UnitName) -> Vec<UnitEvent> {
        let mut news = Vec::new();
        let (Some(state), Some(reported)) = (self.units.get(unit), self.reported.get_mut(unit))
        else {
            return news;
        };
        if !state.runs {
            return news;
        }
        if reported.may_send && reported.output < state.output.len() {
            news.push(UnitEvent::Output {
                unit: unit.clone(),
                stream: Stream::Stdout,
                offset: reported.output as u64,
                data: state.output[reported.output..].to_vec(),
            });
            reported.output = state.output.len();
        }
        if let (Some(status), false) = (state.exited, reported.exit) {
            reported.exit = true;
            if let Some(record) = self.records.get_mut(unit) {
                record.exited = Some(status);
            }
            news.push(UnitEvent::Exited { unit: unit.clone(), status });
        }
        let all_sent = reported.output == state.output.len();
        if state.gone && reported.exit && !reported.gone && all_sent {
            reported.gone = true;
            if let Some(record) = self.records.get_mut(unit) {
                record.gone = true;
            }
            news.push(UnitEvent::Gone { unit: unit.clone() });
        }
        news
    }
}

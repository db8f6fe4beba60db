//! What is believed of systemd's units, and what is to be asked of systemd next.
//!
//! No bus, no time, no files: what is to be called goes out as [`Ask`]s, what comes in is
//! [`News`]. An adapter makes real calls of them; the simulator has a systemd of its own.
//!
//! The life of a unit on the bus:
//!
//! ```text
//!  AddMatch(path) ─▶ StartTransientUnit ─▶ PropertiesChanged: the program was executed
//!                                          PropertiesChanged: it has exited  (unit remains)
//!  Get(ControlGroup), StopUnit ──────────▶ PropertiesChanged: inactive
//!                    ResetFailedUnit       if it is `failed`
//!  RemoveMatch ◀── cgroup.events: populated 0
//! ```
//!
//! A login can move the main process of a multiuser unit out of it. Such units are guarded: the
//! kernel tells when their cgroup is empty while the main process lives.
//!
//! What is believed of a unit is merged from its `PropertiesChanged` signals. Whenever signals
//! may have been missed (at the start, on a new connection, after systemd was re-executed or
//! reloaded) it is asked for again: subscribe, then list, then apply. Until the answer nothing
//! is concluded, and no unit is started or stopped. Answers can overtake signals: that a unit is
//! down without a word of how its program ended is believed when it was answered twice. An unreachable systemd means that nothing
//! is known, never that something has ended.

mod leave;
mod link;
mod messages;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod units;

use std::collections::{BTreeMap, VecDeque};

use crate::port::supervisor::{Method, Started, UnitSpec};
use crate::proto::UnitName;

use super::backend::{Backend, BackendEvent, OutputPaths};
use link::Link;
use units::Watched;

pub use messages::{Active, Answer, Ask, Call, Changes, News, Refusal};

/// Starts and signals that wait for an unreachable systemd; more are refused.
const WAITING_MAX: usize = 4096;

/// Why a program could not be executed, as an errno and a message for the job's owner: given its
/// specification, the exit code by which systemd says which step failed (`None`: it did not even
/// fork), and systemd's `Result`.
pub type ExecFailure = fn(&UnitSpec, Option<i32>, &str) -> (i32, String);

/// What a [`Tracker`] needs to know.
#[derive(Clone, Copy, Debug)]
pub struct TrackerConfig {
    /// `StartTransientUnit` calls that may be unanswered by a running unit at a time.
    pub starts_in_flight_max: usize,
    /// systemd does not keep the errno: it is found by looking at the program.
    pub exec_failure: ExecFailure,
}

/// The units of one rank, as far as systemd has told.
#[derive(Debug)]
pub struct Tracker {
    config: TrackerConfig,
    link: Link,
    /// The bus has refused a rule for one unit, so there is one for all.
    watching_all: bool,
    units: BTreeMap<UnitName, Watched>,
    /// Units that wait for their turn to be started.
    queue: VecDeque<UnitName>,
    /// Units that systemd was told to start, and that it has not started yet.
    in_flight: usize,
    /// Failed units that systemd is to forget, with how often it was told.
    swept: BTreeMap<UnitName, u32>,
    /// Signals that wait for systemd to be reachable.
    held_signals: Vec<(UnitName, i32, bool)>,
    outgoing: Vec<Ask>,
    /// The number of the last [`Ask`].
    number: u64,
    /// Calls whose answers are of interest.
    unanswered: BTreeMap<u64, Call>,
    events: VecDeque<BackendEvent>,
}

impl Tracker {
    /// Knows nothing, and has no connection.
    pub fn new(config: TrackerConfig) -> Self {
        Self {
            config,
            link: Link::Down,
            watching_all: false,
            units: BTreeMap::new(),
            queue: VecDeque::new(),
            in_flight: 0,
            swept: BTreeMap::new(),
            held_signals: Vec::new(),
            outgoing: Vec::new(),
            number: 0,
            unanswered: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// What is to be asked, in this order.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.outgoing)
    }

    /// The oldest event that was not taken yet.
    pub fn next_event(&mut self) -> Option<BackendEvent> {
        self.events.pop_front()
    }

    /// Something came in. Without a connection only the kernel is heard: [`News::Emptied`] and
    /// [`News::Left`].
    pub fn hear(&mut self, news: News) {
        match news {
            News::Emptied { unit } => self.handle_emptied(&unit),
            News::Left { unit } => self.handle_left(&unit),
            _ if self.link == Link::Down => {}
            News::Answer { number, answer } => {
                // Otherwise it is about an earlier unit of that name, or was asked again.
                if let Some(call) = self.unanswered.remove(&number) {
                    self.handle_answer(call, answer);
                }
            }
            // Units that are taken apart have not ended; all is asked for again.
            News::Changed { .. } if self.link == Link::Reloading => {}
            News::Changed { unit, changes, whole } => self.handle_changed(&unit, changes, whole),
            News::ManagerAway => self.handle_manager_away(),
            News::ManagerBack => self.handle_manager_back(),
            News::Reloading(begins) => self.handle_reloading(begins),
        }
    }

    /// systemd is there, and all is known that it knew when it was asked.
    pub fn is_ready(&self) -> bool {
        self.link == Link::Ready
    }

    /// The unit is to be started, or is being started.
    pub fn is_starting(&self, unit: &UnitName) -> bool {
        self.units.get(unit).is_some_and(|watched| watched.start.is_some())
    }

    /// Nothing was started, and nothing will be.
    pub fn fail(&mut self, unit: &UnitName, errnum: i32, message: String) {
        self.release(unit);
        self.events.push_back(BackendEvent::Failed { unit: unit.clone(), errnum, message });
    }

    fn ask(&mut self, call: Call) {
        self.number += 1;
        if call.is_answered() {
            self.unanswered.insert(self.number, call.clone());
        }
        self.outgoing.push(Ask { number: self.number, call });
    }

    /// Answers about this unit that are still to come mean nothing any more.
    fn drop_answers(&mut self, unit: &UnitName) {
        self.unanswered.retain(|_, call| call.unit() != Some(unit));
        self.swept.remove(unit);
    }
}

impl Backend for Tracker {
    fn method(&self) -> Method {
        Method::Systemd
    }

    fn start(&mut self, spec: &UnitSpec, _output: &OutputPaths) {
        let unit = &spec.unit;
        if !self.is_ready() && self.queue.len() >= WAITING_MAX {
            let message = format!("systemd is unreachable and {WAITING_MAX} units wait for it");
            return self.fail(unit, libc::EAGAIN, message);
        }
        let watched = Watched::to_start(spec);
        self.watch(unit, watched);
        self.queue.push_back(unit.clone());
        self.start_next();
    }

    fn find(&mut self, unit: &UnitName, digest: &str, known: Option<&Started>) {
        self.watch(unit, Watched::to_find(digest, known));
        // Otherwise the list that is on its way will tell.
        self.ask_properties(unit);
    }

    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool) {
        if self.is_ready() {
            self.ask(Call::Kill { unit: unit.clone(), signal, all });
        } else if self.held_signals.len() < WAITING_MAX {
            self.held_signals.push((unit.clone(), signal, all));
        } else {
            tracing::warn!(%unit, signal, "signal dropped: systemd is unreachable");
        }
    }

    fn collect(&mut self, unit: &UnitName) {
        match self.units.get_mut(unit) {
            Some(watched) => {
                watched.want_collect();
                self.step(unit);
            }
            // Looked for and not found, or not ours: nothing of it is left.
            None => self.events.push_back(BackendEvent::Empty { unit: unit.clone() }),
        }
    }

    fn forget(&mut self, unit: &UnitName) {
        self.release(unit);
    }
}

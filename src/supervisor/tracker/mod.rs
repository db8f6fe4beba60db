//! What systemd has told of its units, and what to ask it next.
//!
//! The tracker has no bus, no clock and no files. Calls that are to be made go out as [`Ask`]s;
//! answers and signals come in as [`News`]. An adapter makes the real calls; the simulator has a
//! systemd of its own.
//!
//! The life of a unit on the bus:
//!
//! ```text
//!  AddMatch(path) ─▶ StartTransientUnit ─▶ PropertiesChanged: the program was executed
//!                    /proc/PID/cgroup      the unit's cgroup
//!                                          PropertiesChanged: it has exited  (unit remains)
//!  cgroup.events: populated 0              no process is left
//!  StopUnit ─────────────────────────────▶ PropertiesChanged: inactive
//!  ResetFailedUnit                         instead, if it is `failed`
//!  RemoveMatch
//!  StopUnit (slice)                       when its counters were read
//! ```
//!
//! If the cgroup was not seen, or has a process when the program exits, the tracker looks at it when
//! the unit is inactive. It asks systemd for the path (`Get(ControlGroup)`).
//!
//! A login can move the main process of a multiuser unit out of it. The tracker guards such units:
//! the kernel tells when their cgroup is empty while the main process lives.
//!
//! The tracker merges a unit's `PropertiesChanged` signals into its state. Signals may be missed at
//! the start, before a new connection, and while systemd is re-executed or reloads. After that the
//! tracker subscribes, lists all units, and asks for their properties. Until it has the list it
//! concludes nothing, and starts and stops no unit. Answers can overtake signals. So if a unit is
//! down and nothing says how its program ended, the tracker believes that only after a second
//! answer. If systemd is unreachable, or does not answer, nothing is known; it never means
//! that something has ended.
//!
//! A unit in the list that nobody has asked about is looked at once, and reported with what systemd
//! knows of it. Its record was lost.

mod collect;
mod leave;
mod link;
mod messages;
mod patience;
mod slices;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod units;
mod unrecorded;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::port::supervisor::{Limits, ManagerId, Method, Started, UnitSpec};
use crate::proto::{UnitName, Usage};

use super::backend::{Backend, BackendEvent, OutputPaths};
use collect::CollectState;
use link::{Hearing, Link};
use patience::Patience;
use slices::Slices;
use sweep::Swept;
use units::{Phase, Watched};

pub use messages::{Active, Ask, Call, CallAnswer, Changes, News, Refusal};

/// How many starts wait while systemd is unreachable. More are refused.
const WAITING_MAX: usize = 4096;

/// Explains why a program could not be executed, with an errno and a message for the job's owner.
/// Its arguments are the specification, the exit code by which systemd says which step failed
/// (`None`: systemd did not fork), and systemd's `Result`.
pub type ExecFailure = fn(&UnitSpec, Option<i32>, &str) -> (i32, String);

/// The units of one rank, as systemd has described them.
#[derive(Debug)]
pub struct Tracker {
    limits: Limits,
    /// systemd does not keep the errno, so this finds it by looking at the program.
    exec_failure: ExecFailure,
    link: Link,
    /// Which systemd has listed its units last.
    manager: Option<ManagerId>,
    hearing: Hearing,
    units: BTreeMap<UnitName, Watched>,
    /// Units that wait to be started.
    queue: VecDeque<UnitName>,
    /// How many units systemd was told to start and has not started yet.
    in_flight: usize,
    /// Starts make a pause, because of a quota of the bus. This many are back in the queue for it.
    delayed: Option<usize>,
    /// It was not reported yet that all units in the list were looked at.
    awaits_probes: bool,
    /// Units that nobody needs, and that systemd was told to forget.
    swept: BTreeMap<UnitName, Swept>,
    /// Units whose records only a later release can read.
    spared: BTreeSet<UnitName>,
    slices: Slices,
    outgoing: Vec<Ask>,
    /// The number of the last [`Ask`].
    number: u64,
    /// Calls that wait for their answers.
    unanswered: BTreeMap<u64, Call>,
    patience: Patience,
    events: VecDeque<BackendEvent>,
}

impl Tracker {
    /// A tracker without units and without a connection.
    pub fn new(limits: Limits, exec_failure: ExecFailure) -> Self {
        Self {
            limits,
            exec_failure,
            link: Link::Down,
            manager: None,
            hearing: Hearing::Each,
            units: BTreeMap::new(),
            queue: VecDeque::new(),
            in_flight: 0,
            delayed: None,
            awaits_probes: false,
            swept: BTreeMap::new(),
            spared: BTreeSet::new(),
            slices: Slices::default(),
            outgoing: Vec::new(),
            number: 0,
            unanswered: BTreeMap::new(),
            patience: Patience::default(),
            events: VecDeque::new(),
        }
    }

    /// Take the calls that are to be made, in this order.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        self.be_patient();
        std::mem::take(&mut self.outgoing)
    }

    /// Take the oldest event.
    pub fn next_event(&mut self) -> Option<BackendEvent> {
        self.events.pop_front()
    }

    /// Handle what came in. Without a connection only the kernel's news and the clock's count:
    /// [`News::Emptied`], [`News::Left`] and [`News::PatienceOver`].
    pub fn handle_news(&mut self, news: News) {
        match news {
            News::Emptied { unit } => self.handle_emptied(&unit),
            News::Left { unit } => self.handle_left(&unit),
            News::PatienceOver => self.handle_patience_over(),
            _ if self.link == Link::Down => {}
            News::Answer { number, answer } => {
                // Other answers are about an earlier unit of that name, or to a call that was
                // repeated.
                if let Some(call) = self.unanswered.remove(&number) {
                    self.handle_answer(call, answer);
                }
            }
            // While it reloads, systemd drops its units; they have not ended. All is asked for
            // again.
            News::Changed { .. } if self.link == Link::Reloading => {}
            News::Changed { unit, changes, whole } => self.handle_changed(&unit, changes, whole),
            News::ManagerAway => self.handle_manager_away(),
            News::ManagerBack => self.handle_manager_back(),
            News::Reloading(begins) => self.handle_reloading(begins),
        }
    }

    /// Whether systemd is reachable and has listed its units.
    pub fn is_ready(&self) -> bool {
        self.link == Link::Ready
    }

    /// Whether the unit waits to be started, or is being started.
    pub fn is_starting(&self, unit: &UnitName) -> bool {
        let watched = self.units.get(unit);
        watched.is_some_and(|watched| watched.start.is_some() || watched.collection.next.is_some())
    }

    /// Whether systemd is there, and has units left to remove of which no process is left, or slices.
    pub fn is_removing(&self) -> bool {
        let is_removed = |unit: &Watched| {
            unit.collection.is_told_empty && unit.collection.stage != CollectState::Held
        };
        self.is_ready() && (self.units.values().any(is_removed) || self.slices.is_stopping())
    }

    /// Whether this call is still to be answered.
    pub fn awaits(&self, number: u64) -> bool {
        self.unanswered.contains_key(&number)
    }

    /// The main process of a unit, as systemd has told it last. It may have ended.
    pub fn main_pid(&self, unit: &UnitName) -> Option<u32> {
        Some(self.units.get(unit)?.state.started()?.pid)
    }

    /// Report the processes that are still in a unit which was signalled.
    pub fn tell_left_over(&mut self, unit: &UnitName, processes: String) {
        self.events.push_back(BackendEvent::LeftOver { unit: unit.clone(), processes });
    }

    /// Give up a start: report that nothing was started.
    pub fn fail(&mut self, unit: &UnitName, errnum: i32, message: String) {
        self.forget(unit);
        self.events.push_back(BackendEvent::Failed { unit: unit.clone(), errnum, message });
    }

    fn ask(&mut self, call: Call) {
        self.number += 1;
        if call.is_answered() {
            self.unanswered.insert(self.number, call.clone());
        }
        self.outgoing.push(Ask { number: self.number, call });
    }

    /// Ignore answers about this unit that are still to come.
    fn drop_answers(&mut self, unit: &UnitName) {
        self.unanswered.retain(|_, call| call.unit() != Some(unit));
        self.swept.remove(unit);
    }
}

impl Backend for Tracker {
    fn method(&self) -> Method {
        Method::Systemd
    }

    fn manager(&self) -> Option<ManagerId> {
        self.manager
    }

    fn start(&mut self, spec: &UnitSpec, _output: &OutputPaths) {
        let unit = &spec.unit;
        if !self.is_ready() && self.queue.len() >= WAITING_MAX {
            let message = format!("systemd is unreachable and {WAITING_MAX} units wait for it");
            return self.fail(unit, libc::EAGAIN, message);
        }
        self.slices.start(spec);
        match self.units.get_mut(unit).filter(|old| old.collection.is_told_empty) {
            Some(old) => {
                old.collection.next = Some(Box::new(spec.clone()));
                old.collection.want();
                self.step(unit);
            }
            None => self.start_unit(spec),
        }
    }

    fn find(&mut self, unit: &UnitName, digest: &str, known: Option<&Started>) {
        self.slices.find(unit, digest);
        self.watch(unit, Watched::to_find(digest, known));
        // Before the list has arrived this does nothing; the list decides then.
        self.ask_properties(unit);
    }

    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool) {
        self.hold_signal(unit, signal, all);
        self.send_signals(unit);
    }

    fn collect(&mut self, unit: &UnitName) {
        match self.units.get_mut(unit) {
            Some(watched) => {
                watched.collection.want();
                self.step(unit);
            }
            // It was not found, or is not ours, so no process is left.
            None => self.events.push_back(BackendEvent::Empty(unit.clone())),
        }
    }

    fn hold(&mut self, unit: &UnitName) {
        match self.units.get_mut(unit) {
            Some(watched) => {
                watched.collection.stage = CollectState::Held;
                self.step(unit);
            }
            None => self.events.push_back(BackendEvent::Empty(unit.clone())),
        }
    }

    fn forget(&mut self, unit: &UnitName) {
        self.slices.leave(unit);
        match self.units.get_mut(unit) {
            Some(watched) if watched.is_being_removed() => {
                (watched.collection.is_told_empty, watched.collection.next) = (true, None);
            }
            Some(watched) if watched.phase == Phase::Finding => {
                self.release(unit);
                // It may have failed. Then systemd keeps it until it is told to forget it.
                self.sweep(unit.clone());
            }
            Some(watched) if watched.phase != Phase::Probing => self.release(unit),
            Some(_) | None => {}
        }
    }

    fn usage(&mut self, _spec: &UnitSpec) -> Option<Usage> {
        // The adapter reads it.
        None
    }

    fn drop_usage(&mut self, unit: &UnitName) {
        self.stop_slice(unit);
    }

    fn spare(&mut self, unit: &UnitName) {
        self.spared.insert(unit.clone());
    }
}

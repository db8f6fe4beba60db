//! One unit: what follows from its properties and from the answers to calls.

use crate::port::supervisor::{ManagerId, Started, UnitSpec};
use crate::proto::UnitName;

use super::super::backend::BackendEvent;
use super::Tracker;
use super::collect::{CollectState, Collection, EmptyCheck, Reply};
use super::leave::Guard;
use super::link::Hearing;
use super::messages::{Call, CallAnswer, Changes, Refusal};
use super::state::{Outcome, UnitState};

/// How often the start of a unit is repeated before it is given up.
pub(super) const START_RETRIES_MAX: u32 = 8;

/// How many refused calls about a unit are tried again before the next list.
const REFUSALS_MAX: u32 = 8;

/// How many signals wait for a unit.
const SIGNALS_MAX: usize = 16;

/// Where a unit is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Its exit was reported.
    Exited,
    /// systemd has listed it, and nobody has asked about it.
    Probing,
    /// systemd was asked, or will be, whether the unit exists.
    Finding,
    /// It waits to be started.
    Queued,
    /// It runs.
    Running,
    /// systemd was told to start it.
    Starting,
}

/// Where the unit's properties come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PropertySource {
    /// All were asked for; the answer has not come yet.
    Asked {
        /// They were asked for a second time, to confirm the first answer.
        again: bool,
    },
    /// From an answer, and from signals since.
    Answered {
        /// It was the second answer.
        again: bool,
    },
    /// From signals alone.
    Signals,
}

/// The start of a unit, until it is decided.
#[derive(Debug)]
pub(super) struct Start {
    spec: Box<UnitSpec>,
    /// systemd has accepted the call.
    is_accepted: bool,
    /// How often the call was repeated.
    retries: u32,
    /// Which systemd was told to start it.
    manager: Option<ManagerId>,
}

/// A unit that is watched, or looked at once.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) phase: Phase,
    /// Digest of the job whose unit it should be.
    digest: String,
    /// What an earlier life has recorded of its start.
    known: Option<Started>,
    pub(super) start: Option<Start>,
    pub(super) collection: Collection,
    /// How many calls systemd has refused since the last list.
    refusals: u32,
    source: PropertySource,
    pub(super) guard: Guard,
    /// `Stopping` was reported.
    is_stopping: bool,
    /// Signals that wait until its program runs and systemd is reachable, and whether all processes
    /// get them.
    pub(super) signals: Vec<(i32, bool)>,
    pub(super) state: UnitState,
}

impl Watched {
    /// A unit that waits to be started.
    pub(super) fn to_start(spec: &UnitSpec) -> Self {
        let start =
            Start { spec: Box::new(spec.clone()), is_accepted: false, retries: 0, manager: None };
        Self { start: Some(start), ..Self::new(Phase::Queued, spec.digest.as_str()) }
    }

    /// A unit that may exist.
    pub(super) fn to_find(digest: &str, known: Option<&Started>) -> Self {
        Self { known: known.cloned(), ..Self::new(Phase::Finding, digest) }
    }

    /// A unit that nobody has asked about.
    pub(super) fn to_probe() -> Self {
        Self::new(Phase::Probing, "")
    }

    fn new(phase: Phase, digest: &str) -> Self {
        Self {
            phase,
            digest: digest.to_string(),
            known: None,
            start: None,
            collection: Collection::default(),
            refusals: 0,
            source: PropertySource::Signals,
            guard: Guard::No,
            is_stopping: false,
            signals: Vec::new(),
            state: UnitState::default(),
        }
    }

    /// What became of its start. If an earlier life has recorded the start, that counts: with
    /// `Type=notify` the end of a unit can look as if the program was never executed.
    fn start_outcome(&self) -> Outcome {
        match self.state.started() {
            Some(started) if self.known.as_ref() == Some(&started) => Outcome::Started(started),
            _ => self.state.start_outcome(self.start.as_ref().is_some_and(|s| s.spec.multiuser)),
        }
    }

    /// Whether the unit is ours. A stranger can have started one of this name, unless our own call
    /// has started it.
    fn is_ours(&self, started: &Started) -> bool {
        match &self.known {
            Some(known) => known.invocation_id == started.invocation_id,
            None => self.is_accepted() || self.state.digest == self.digest,
        }
    }

    /// systemd has accepted the call to start it.
    fn is_accepted(&self) -> bool {
        self.start.as_ref().is_some_and(|start| start.is_accepted)
    }

    /// After a list, systemd may accept what it has refused before.
    pub(super) fn reset_refusals(&mut self) {
        self.refusals = 0;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.refusals > REFUSALS_MAX
    }

    /// All properties are asked for again. Earlier calls may have been lost.
    pub(super) fn expect_properties(&mut self) {
        self.collection.begin_again();
        if self.guard == Guard::Asked {
            self.guard = Guard::No;
        }
        self.source = PropertySource::Asked { again: false };
    }

    fn set_answered(&mut self) {
        if let PropertySource::Asked { again } = self.source {
            self.source = PropertySource::Answered { again };
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self.source, PropertySource::Answered { .. })
    }
}

impl Tracker {
    /// Watch a unit from now on.
    pub(super) fn watch(&mut self, unit: &UnitName, watched: Watched) {
        let signals = self.units.get_mut(unit).map(|old| std::mem::take(&mut old.signals));
        self.release(unit);
        // What was asked about one of an earlier run says nothing of this one.
        self.drop_answers(unit);
        if self.is_up() && self.hearing == Hearing::Each {
            self.ask(Call::Watch(unit.clone()));
        }
        let signals = signals.unwrap_or_default();
        self.units.insert(unit.clone(), Watched { signals, ..watched });
        self.list_at_intervals();
    }

    /// Start a unit when its turn comes.
    pub(super) fn start_unit(&mut self, spec: &UnitSpec) {
        self.watch(&spec.unit, Watched::to_start(spec));
        self.queue.push_back(spec.unit.clone());
        self.start_next();
    }

    /// Keep a signal until [`Self::send_signals`]. One that waits already is not sent twice, as the
    /// kernel does not.
    pub(super) fn hold_signal(&mut self, unit: &UnitName, signal: i32, all: bool) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        if watched.signals.len() >= SIGNALS_MAX {
            tracing::warn!(%unit, signal, "signal dropped: {SIGNALS_MAX} others wait for the unit");
        } else if !watched.signals.contains(&(signal, all)) {
            watched.signals.push((signal, all));
        }
    }

    /// Send the signals that wait for a unit, if its program runs and systemd has listed its units.
    pub(super) fn send_signals(&mut self, unit: &UnitName) {
        let ready = self.is_ready();
        let Some(watched) = self.units.get_mut(unit) else { return };
        let runs = matches!(watched.phase, Phase::Exited | Phase::Running);
        if ready && runs && watched.collection.next.is_none() {
            for (signal, all) in std::mem::take(&mut watched.signals) {
                self.ask(Call::Kill { unit: unit.clone(), signal, all });
            }
        }
    }

    /// Stop watching a unit.
    pub(super) fn release(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.remove(unit) else { return };
        self.queue.retain(|queued| queued != unit || watched.phase != Phase::Queued);
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        self.drop_answers(unit);
        if watched.phase == Phase::Probing {
            return self.report_listed();
        }
        self.ask(Call::Unwatch(unit.clone()));
        self.start_next();
    }

    /// Start waiting units, as many as may be in flight.
    pub(super) fn start_next(&mut self) {
        while self.in_flight < self.limits.starts_in_flight
            && self.is_ready()
            && self.delayed.is_none()
            && let Some(unit) = self.queue.pop_front()
        {
            let Some(watched) = self.units.get_mut(&unit) else { continue };
            watched.phase = Phase::Starting;
            if let Some(start) = &mut watched.start {
                start.manager = self.manager;
            }
            self.in_flight += 1;
            self.ask(Call::Start(unit));
        }
    }

    /// Merge properties that have changed.
    pub(super) fn handle_changed(&mut self, unit: &UnitName, changes: Changes, whole: bool) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        watched.state.apply(changes);
        tracing::trace!(%unit, whole, state = ?watched.state, "changed");
        // systemd sends a change as two signals. Only the last one completes it.
        if whole {
            self.step(unit);
        }
    }

    /// Act on the unit's state.
    pub(super) fn step(&mut self, unit: &UnitName) {
        if self.step_start(unit) && self.step_exit(unit) {
            self.step_collect(unit);
        }
    }

    /// Returns true if the program was executed.
    fn step_start(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        match watched.phase {
            Phase::Exited | Phase::Running => return true,
            // Signals do not have the digest, so they do not say whose unit it is.
            Phase::Finding | Phase::Starting
                if !watched.is_accepted() && !watched.is_answered() =>
            {
                return false;
            }
            Phase::Finding | Phase::Starting => {}
            Phase::Probing => {
                self.step_probe(unit);
                return false;
            }
            Phase::Queued => return false,
        }
        if !watched.state.is_whole() {
            // Only half of a change has arrived, because signals were missed.
            if !matches!(watched.source, PropertySource::Asked { .. }) {
                self.ask_properties(unit);
            }
            return false;
        }
        let by_answer = watched.source != PropertySource::Signals;
        match watched.start_outcome() {
            Outcome::Pending => {
                self.handle_pending_start(unit);
                false
            }
            Outcome::Failed(code) => {
                // In signals the process comes before its failure. Answers may miss the process.
                if code.is_some() || !by_answer || self.is_certain(unit) {
                    self.handle_exec_failure(unit, code);
                }
                false
            }
            Outcome::Started(started) => {
                // Every started unit has an invocation id. Without one, the unit has vanished between the
                // two answers. If it is down, and its main process runs, it has failed between them.
                let is_torn = started.invocation_id.is_empty()
                    || (watched.state.is_down() && watched.state.exit_status().is_none());
                let mixed = by_answer && is_torn;
                (!mixed || self.is_certain(unit)) && self.handle_executed(unit, started)
            }
        }
    }

    fn handle_pending_start(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get(unit) else { return };
        if !watched.state.is_down() {
            return;
        }
        if watched.start.is_none() {
            self.handle_absent(unit);
        } else {
            // systemd has accepted the start, or listed the unit, but never executed the program.
            // This was seen when systemd reloads at that moment.
            self.start_again(unit);
        }
    }

    fn handle_exec_failure(&mut self, unit: &UnitName, code: Option<i32>) {
        let Some(watched) = self.units.get(unit) else { return };
        let explain = self.exec_failure;
        let failure =
            watched.start.as_ref().map(|start| explain(&start.spec, code, &watched.state.result));
        match failure {
            Some((errnum, message)) => self.fail(unit, errnum, message),
            // It is the rest of a start in an earlier life.
            None => self.handle_absent(unit),
        }
        self.sweep(unit.clone());
    }

    /// Returns true if the unit is ours.
    fn handle_executed(&mut self, unit: &UnitName, started: Started) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        if !watched.is_ours(&started) && watched.collection.is_told_empty {
            self.report_empty(unit);
            return false;
        }
        if !watched.is_ours(&started) {
            let has_failed = watched.state.is_failed();
            let has_ended = watched.state.exit_status().is_some();
            let is_services = !watched.state.digest.is_empty();
            self.release(unit);
            self.events.push_back(BackendEvent::Replaced(unit.clone()));
            // Of an earlier run of the job. Nobody needs it.
            if has_failed {
                self.sweep(unit.clone());
            } else if has_ended && is_services {
                self.sweep_ended(unit.clone());
            }
            return false;
        }
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        watched.phase = Phase::Running;
        let was_start = watched.start.take().is_some();
        if !watched.collection.is_told_empty {
            self.events.push_back(BackendEvent::Started { unit: unit.clone(), started });
        }
        if was_start {
            // systemd ignores some properties without a word.
            self.ask(Call::ReadBack(unit.clone()));
        }
        if !unit.is_script() {
            self.ask(Call::SeenGroup(unit.clone()));
        }
        self.send_signals(unit);
        self.start_next();
        true
    }

    /// Returns true if there may be something to collect.
    fn step_exit(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        if watched.phase != Phase::Running {
            return true;
        }
        if let Some(status) = watched.state.exit_status() {
            watched.phase = Phase::Exited;
            if watched.collection.check == EmptyCheck::ReportAbsent {
                watched.collection.check = EmptyCheck::No;
            }
            if !watched.collection.is_told_empty {
                self.events.push_back(BackendEvent::Exited { unit: unit.clone(), status });
            }
        } else if watched.state.is_down() {
            // systemd may have finished with the unit and left processes behind, even the main
            // process.
            if watched.collection.check == EmptyCheck::No && self.is_certain(unit) {
                self.ask_kernel(unit, EmptyCheck::ReportAbsent);
            }
            return false;
        } else {
            if unit.is_multiuser() && watched.state.is_stopping() && !watched.is_stopping {
                watched.is_stopping = true;
                self.events.push_back(BackendEvent::Stopping(unit.clone()));
            }
            self.guard(unit);
        }
        true
    }

    /// Whether a second answer confirms that the unit is down although there is no sign of a main
    /// process, or of its end. The first answer is not believed, because an answer about the unit
    /// can overtake signals about the service. Asks for the second one.
    fn is_certain(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get(unit) else { return false };
        match watched.source {
            PropertySource::Asked { .. } => return false,
            PropertySource::Answered { again: true } => return true,
            PropertySource::Answered { again: false } | PropertySource::Signals => {}
        }
        // Otherwise the properties are asked for when the list has arrived.
        if self.is_ready() {
            self.ask_properties(unit);
            if let Some(watched) = self.units.get_mut(unit) {
                watched.source = PropertySource::Asked { again: true };
            }
        }
        false
    }

    /// Handle that systemd does not have the unit. systemd keeps units with processes, so none is
    /// left.
    pub(super) fn handle_absent(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        match (watched.phase, watched.collection.stage) {
            (Phase::Queued, _) => {}
            (Phase::Probing, _) => {
                self.stop_slice(unit);
                self.release(unit);
            }
            // The call to start it was lost.
            (Phase::Starting, _) => self.start_again(unit),
            (Phase::Finding, _) if watched.start.is_some() => self.start_again(unit),
            // A new systemd does not know the processes of an old one.
            (Phase::Running, _) if watched.guard.is_set() => {
                if watched.collection.check == EmptyCheck::No {
                    self.ask_kernel(unit, EmptyCheck::ReportAbsent);
                }
            }
            (Phase::Finding | Phase::Running, _) => self.report_absent(unit),
            (Phase::Exited, CollectState::No) => self.release(unit),
            (Phase::Exited, _) => self.report_empty(unit),
        }
    }

    /// Report that the unit cannot be found.
    pub(super) fn report_absent(&mut self, unit: &UnitName) {
        if self.units.get(unit).is_some_and(|watched| watched.collection.is_told_empty) {
            return self.report_empty(unit);
        }
        self.release(unit);
        self.events.push_back(BackendEvent::Absent(unit.clone()));
    }

    /// Start a unit again because there is no trace of its first start. systemd keeps every unit
    /// whose program was executed, whether it failed or not, so this one's was not. A second start
    /// is safe: if the first call arrives after all, the name is taken. Under the IMP a unit that has
    /// ended well is not kept: the core finds out whether it has. Another systemd says nothing of what
    /// this one has executed ([manager-ended]).
    fn start_again(&mut self, unit: &UnitName) {
        let told = self.units.get(unit).and_then(|watched| watched.start.as_ref()?.manager);
        if ManagerId::differ(told, self.manager) {
            self.release(unit);
            return self.events.push_back(BackendEvent::ManagerEnded(unit.clone()));
        }
        if unit.is_multiuser() {
            return self.report_absent(unit);
        }
        let Some(watched) = self.units.get_mut(unit) else { return };
        let Some(start) = &mut watched.start else { return };
        if start.retries >= START_RETRIES_MAX {
            let message = "systemd accepts the unit, but does not start it".to_string();
            return self.fail(unit, libc::EIO, message);
        }
        tracing::info!(%unit, "systemd lost the start of the unit, starting it again");
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        watched.phase = Phase::Queued;
        start.retries += 1;
        start.is_accepted = false;
        watched.source = PropertySource::Signals;
        watched.state = UnitState::default();
        // The rule counts for this start, too, and without the bus's answer nothing would be heard of it.
        self.unanswered
            .retain(|_, call| call.unit() != Some(unit) || matches!(call, Call::Watch(_)));
        self.swept.remove(unit);
        self.queue.push_front(unit.clone());
        self.start_next();
    }

    /// Handle the answer to a call.
    pub(super) fn handle_answer(&mut self, call: Call, answer: Result<CallAnswer, Refusal>) {
        tracing::trace!(?call, ok = answer.is_ok(), "answer");
        match (call, answer) {
            (Call::ControlGroup(unit), Ok(CallAnswer::ControlGroup(group))) => {
                if let Some(watched) = self.units.get_mut(&unit) {
                    watched.state.control_group = Some(group);
                }
            }
            (Call::List, answer) => self.handle_list(answer),
            (Call::Manager, Ok(CallAnswer::Manager(began))) => self.manager = Some(began),
            (Call::Main { unit, pid }, answer) => self.handle_main_answer(&unit, pid, answer),
            (Call::Start(unit), Ok(_)) => {
                if let Some(watched) = self.units.get_mut(&unit)
                    && let Some(start) = &mut watched.start
                {
                    start.is_accepted = true;
                    // The state so far is that of an earlier unit of this name.
                    watched.state = UnitState::default();
                }
            }
            (Call::Start(unit), Err(refusal)) => self.handle_start_refusal(&unit, &refusal),
            (Call::Reset(unit) | Call::Stop(unit), answer) if self.swept.contains_key(&unit) => {
                self.handle_sweep_answer(unit, answer);
            }
            (Call::Stop(unit) | Call::Reset(unit), answer) => {
                self.handle_stop_answer(&unit, answer)
            }
            (Call::Service(unit), Ok(CallAnswer::Properties(changes))) => {
                self.handle_changed(&unit, changes, false);
            }
            (Call::Unit(unit), Ok(CallAnswer::Properties(changes))) => {
                if let Some(watched) = self.units.get_mut(&unit) {
                    watched.set_answered();
                }
                self.handle_changed(&unit, changes, true);
            }
            (Call::Service(unit) | Call::Unit(unit), Err(e)) if e.is_no_unit() => {
                self.handle_absent(&unit);
            }
            (Call::Service(unit) | Call::Unit(unit), Err(error)) => {
                tracing::warn!(%unit, %error, "systemd does not tell the unit's properties");
                // The properties of one interface mean nothing without the other's.
                self.drop_property_answers(&unit);
                if !error.is_absence() {
                    self.handle_refusal(&unit, error.is_quota());
                }
            }
            (Call::SeenGroup(unit), Ok(CallAnswer::ControlGroup(at))) => self.see_group(&unit, at),
            (Call::Later(unit), _) => self.handle_pause_over(unit),
            (Call::StopSlice(slice), answer) => self.handle_slice_answer(&slice, answer),
            (Call::LaterSlice(slice), _) => self.stop_slice_again(slice),
            (Call::LaterList, _) => self.handle_list_due(),
            (Call::LaterStarts, _) => self.end_delay(),
            (Call::Kill { unit, signal, all }, Err(error)) => {
                self.handle_kill_refusal(&unit, signal, all, &error);
            }
            (Call::Manager, Err(error)) => self.drop_list(error),
            (Call::Subscribe, Err(error)) if error.is_quota() => self.drop_list(error),
            // systemd knows this connection already. A sign of life has come, or the link is lost.
            (Call::Ping | Call::Subscribe, _) => {}
            (Call::Watch(unit), Err(error)) => self.handle_watch_refusal(&unit, &error),
            (Call::WatchAll | Call::WatchPresence | Call::WatchReloading, Err(error)) => {
                self.handle_deafness(&error);
            }
            (call, Err(error)) => tracing::warn!(?call, %error, "call failed"),
            (_, Ok(_)) => {}
        }
    }

    /// The pause before something is asked again about a unit is over.
    fn handle_pause_over(&mut self, unit: UnitName) {
        if self.swept.contains_key(&unit) {
            return self.sweep_again(unit);
        }
        self.ask_properties(&unit);
        self.send_signals(&unit);
    }

    fn handle_kill_refusal(&mut self, unit: &UnitName, signal: i32, all: bool, error: &Refusal) {
        if error.is_absence() {
            // systemd has gone, and its next list comes.
            self.hold_signal(unit, signal, all);
        } else if error.is_quota() {
            self.hold_signal(unit, signal, all);
            self.handle_refusal(unit, true);
        } else {
            // The process, or the whole unit, has ended already, which the signal was for.
            tracing::debug!(%unit, %error, "signal not sent");
        }
    }

    fn see_group(&mut self, unit: &UnitName, at: String) {
        if let Some(watched) = self.units.get_mut(unit) {
            watched.collection.group = Some(at).filter(|group| !group.is_empty());
        }
    }

    fn handle_start_refusal(&mut self, unit: &UnitName, refusal: &Refusal) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        // After an absence it shows when systemd is back whether the unit was started.
        if refusal.is_absence() || watched.phase != Phase::Starting {
            return;
        }
        if refusal.is_quota() || refusal.is_ending() {
            return self.delay_start(unit, refusal);
        }
        if !refusal.is_exists() {
            return self.fail(unit, refusal.errnum(), refusal.text.clone());
        }
        watched.phase = Phase::Finding;
        self.in_flight -= 1;
        if watched.start.as_ref().is_some_and(|start| start.retries > 0) {
            self.ask_properties(unit);
        } else {
            // The core has it looked for.
            watched.start = None;
            self.events.push_back(BackendEvent::Exists(unit.clone()));
        }
        self.start_next();
    }

    /// Handle that the bus has not passed a start on, or that systemd is ending. Starts go on after a
    /// pause, in the same order.
    fn delay_start(&mut self, unit: &UnitName, refusal: &Refusal) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        watched.phase = Phase::Queued;
        self.in_flight -= 1;
        if self.delayed.is_none() {
            tracing::warn!(%unit, %refusal, "start refused, trying again");
            self.ask(Call::LaterStarts);
        }
        let delayed = self.delayed.get_or_insert(0);
        self.queue.insert(self.queue.len().min(*delayed), unit.clone());
        *delayed += 1;
    }

    /// The pause after a refused start is over.
    fn end_delay(&mut self) {
        self.delayed = None;
        self.start_next();
    }

    /// Handle a call that was refused: by systemd for an unknown reason, such as lack of memory, or
    /// by the bus because of a quota. Ask for the unit's properties again after a pause, unless
    /// systemd has refused too many calls.
    pub(super) fn handle_refusal(&mut self, unit: &UnitName, is_quota: bool) {
        let later = Call::Later(unit.clone());
        let waits = self.unanswered.values().any(|call| *call == later);
        let Some(watched) = self.units.get_mut(unit) else { return };
        watched.refusals += u32::from(!is_quota);
        let is_refused =
            matches!(watched.collection.stage, CollectState::Told { reply: Reply::Refused, .. });
        if is_quota && waits {
            // It is the same quota.
        } else if is_quota || !watched.is_given_up() {
            self.ask(later);
        } else if is_refused && watched.state.control_group.is_some() {
            tracing::error!(%unit, "systemd does not stop the unit: waiting until its processes end by themselves");
            self.step_collect(unit);
        } else {
            tracing::error!(%unit, "systemd refuses too many calls about the unit: nothing is known of it until the next list");
            if watched.phase == Phase::Probing {
                self.release(unit);
            }
        }
    }
}

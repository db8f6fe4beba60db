//! One unit at a time: what its properties and our calls' answers lead to.

use crate::port::supervisor::{Started, UnitSpec};
use crate::proto::UnitName;

use super::super::backend::BackendEvent;
use super::Tracker;
use super::leave::Guard;
use super::messages::{Answer, Call, Changes, Refusal};
use super::state::{Outcome, State};

/// Starts of one unit that may come to nothing before it is given up.
const START_RETRIES_MAX: u32 = 8;

/// Calls about one unit that may be refused before no more are made until the next list.
const REFUSALS_MAX: u32 = 8;

/// Where a unit is in its life, as far as it was reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Its exit was reported.
    Exited,
    /// systemd was, or will be, asked whether it is there.
    Finding,
    /// Waits for its turn to be started.
    Queued,
    /// It runs.
    Running,
    /// systemd was told to start it.
    Starting,
}

/// How far its removal is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Collect {
    /// systemd has accepted to stop it (or to forget its failure).
    Accepted,
    /// systemd was told to.
    Asked,
    /// Not wanted.
    No,
    /// systemd has refused to. It is told again after a pause, or with the next list.
    Refused,
    /// Wanted, but systemd was not told yet.
    Wanted,
}

/// Why the kernel was asked whether its cgroup is empty.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum EmptyCheck {
    /// It was removed.
    Collect,
    /// It is down, and how its main process ended is not known.
    Lose,
    /// It was not.
    No,
}

/// What its properties are known from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Look {
    /// All of them were asked for, and are not told yet.
    Asked {
        /// For the second time, because of what the first answer says.
        again: bool,
    },
    /// From an answer, and what was signalled since.
    Seen {
        /// It was the second answer.
        again: bool,
    },
    /// From signals alone.
    Signals,
}

/// A unit that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) phase: Phase,
    /// `Type=notify`.
    notify: bool,
    /// Digest of the job whose unit it should be.
    digest: String,
    /// What was recorded of it in an earlier life.
    known: Option<Started>,
    /// Kept until the start is decided.
    pub(super) start: Option<Box<UnitSpec>>,
    /// systemd forgets it as soon as it has failed: that it is absent does not say that it never
    /// ran.
    forget_failed: bool,
    /// A call to start it may have reached systemd.
    sent: bool,
    /// The call was answered, so there is a job in systemd.
    accepted: bool,
    /// Earlier calls that came to nothing, or may have got through.
    retries: u32,
    collect: Collect,
    reset: bool,
    /// Calls that systemd has refused since the last list.
    refusals: u32,
    emptying: EmptyCheck,
    look: Look,
    pub(super) guard: Guard,
    /// It was told that it is being stopped.
    is_stopping: bool,
    pub(super) state: State,
}

impl Watched {
    /// A unit that waits for its turn.
    pub(super) fn to_start(spec: &UnitSpec) -> Self {
        let start = Some(Box::new(spec.clone()));
        let watched = Self::new(Phase::Queued, &spec.digest);
        Self { notify: spec.multiuser, forget_failed: spec.forget_failed, start, ..watched }
    }

    /// A unit that may be there.
    pub(super) fn to_find(digest: &str, known: Option<&Started>) -> Self {
        Self { known: known.cloned(), ..Self::new(Phase::Finding, digest) }
    }

    fn new(phase: Phase, digest: &str) -> Self {
        Self {
            phase,
            notify: false,
            digest: digest.to_string(),
            known: None,
            start: None,
            forget_failed: false,
            sent: false,
            accepted: false,
            retries: 0,
            collect: Collect::No,
            reset: false,
            refusals: 0,
            emptying: EmptyCheck::No,
            look: Look::Signals,
            guard: Guard::No,
            is_stopping: false,
            state: State::default(),
        }
    }

    /// What became of its start. A start that was recorded is not judged again: with
    /// `Type=notify` its end can look like that of a program that was never executed.
    fn start_outcome(&self) -> Outcome {
        match self.state.started() {
            Some(started) if self.known.as_ref() == Some(&started) => Outcome::Started(started),
            _ => self.state.start(self.notify),
        }
    }

    /// The unit shall be removed.
    pub(super) fn want_collect(&mut self) {
        if self.collect == Collect::No {
            self.collect = Collect::Wanted;
        }
    }

    /// A unit of our name can be a stranger's, unless our own call has started it.
    fn is_ours(&self, started: &Started) -> bool {
        match &self.known {
            Some(known) => known.invocation_id == started.invocation_id,
            None => self.accepted || self.state.digest == self.digest,
        }
    }

    /// systemd is another one, or has another configuration, or no longer the troubles it had.
    pub(super) fn reset_refusals(&mut self) {
        self.refusals = 0;
    }

    fn is_given_up(&self) -> bool {
        self.refusals > REFUSALS_MAX
    }

    /// All is asked for again, because calls may have been lost.
    pub(super) fn expect_properties(&mut self) {
        match self.collect {
            Collect::Accepted | Collect::Asked | Collect::Refused => {
                self.collect = Collect::Wanted;
            }
            Collect::No | Collect::Wanted => {}
        }
        // Perhaps it does know the status.
        if self.emptying == EmptyCheck::Lose {
            self.emptying = EmptyCheck::No;
        }
        if self.guard == Guard::Asked {
            self.guard = Guard::No;
        }
        self.reset = false;
        self.look = Look::Asked { again: false };
    }

    fn set_seen(&mut self) {
        if let Look::Asked { again } = self.look {
            self.look = Look::Seen { again };
        }
    }

    fn was_seen(&self) -> bool {
        matches!(self.look, Look::Seen { .. })
    }
}

impl Tracker {
    /// Watch a unit from now on.
    pub(super) fn watch(&mut self, unit: &UnitName, watched: Watched) {
        self.release(unit);
        if self.is_up() {
            self.ask(Call::Watch(unit.clone()));
        }
        self.units.insert(unit.clone(), watched);
    }

    /// Watch it no longer.
    pub(super) fn release(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.remove(unit) else { return };
        self.queue.retain(|queued| queued != unit || watched.phase != Phase::Queued);
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        self.held_signals.retain(|(held, ..)| held != unit);
        self.drop_answers(unit);
        self.ask(Call::Unwatch(unit.clone()));
        self.start_next();
    }

    /// Start units that wait, as many as may be in flight.
    pub(super) fn start_next(&mut self) {
        while self.in_flight < self.config.starts_in_flight_max
            && self.is_ready()
            && let Some(unit) = self.queue.pop_front()
        {
            let Some(watched) = self.units.get_mut(&unit) else { continue };
            watched.phase = Phase::Starting;
            watched.sent = true;
            self.in_flight += 1;
            self.ask(Call::Start(unit));
        }
    }

    /// Properties of a unit have changed.
    pub(super) fn handle_changed(&mut self, unit: &UnitName, changes: Changes, whole: bool) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        watched.state.apply(changes);
        tracing::trace!(%unit, whole, state = ?watched.state, "changed");
        // systemd sends a change as two signals: only with the last is it whole.
        if whole {
            self.step(unit);
        }
    }

    /// Draw conclusions from what is known.
    pub(super) fn step(&mut self, unit: &UnitName) {
        if self.step_start(unit) && self.step_exit(unit) {
            self.step_collect(unit);
        }
    }

    /// True if the program was executed.
    fn step_start(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        match watched.phase {
            Phase::Exited | Phase::Running => return true,
            // Signals do not say whose it is.
            Phase::Finding | Phase::Starting if !watched.accepted && !watched.was_seen() => {
                return false;
            }
            Phase::Finding | Phase::Starting => {}
            Phase::Queued => return false,
        }
        if !watched.state.is_whole() {
            // Half a change, after signals were missed.
            if !matches!(watched.look, Look::Asked { .. }) {
                self.ask_properties(unit);
            }
            return false;
        }
        let by_answer = watched.look != Look::Signals;
        match watched.start_outcome() {
            Outcome::Pending => {
                self.handle_pending_start(unit);
                false
            }
            Outcome::Failed(code) => {
                // Signals tell of a process before they tell of a failure; answers may not.
                if code.is_some() || !by_answer || self.is_certain(unit) {
                    self.handle_exec_failure(unit, code);
                }
                false
            }
            Outcome::Started(started) => {
                // All that were started have one: it has vanished between the two answers.
                let mixed = by_answer && started.invocation_id.is_empty();
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
            // Accepted (or listed), and yet never executed: seen when systemd reloads right then.
            self.start_again(unit);
        }
    }

    fn handle_exec_failure(&mut self, unit: &UnitName, code: Option<i32>) {
        let Some(watched) = self.units.get(unit) else { return };
        let explain = self.config.exec_failure;
        let failure = watched.start.as_ref().map(|spec| explain(spec, code, &watched.state.result));
        match failure {
            Some((errnum, message)) => self.fail(unit, errnum, message),
            // What is left of an attempt in an earlier life.
            None => self.handle_absent(unit),
        }
        self.sweep(unit.clone());
    }

    /// True if it is ours.
    fn handle_executed(&mut self, unit: &UnitName, started: Started) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        if !watched.is_ours(&started) {
            self.release(unit);
            self.events.push_back(BackendEvent::Replaced { unit: unit.clone() });
            return false;
        }
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        watched.phase = Phase::Running;
        let was_start = watched.start.take().is_some();
        self.events.push_back(BackendEvent::Started { unit: unit.clone(), started });
        if was_start {
            // systemd ignores some properties without a word.
            self.ask(Call::ReadBack(unit.clone()));
        }
        self.start_next();
        true
    }

    /// True if there is something to collect.
    fn step_exit(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get_mut(unit) else { return false };
        if watched.phase != Phase::Running {
            return true;
        }
        if let Some(status) = watched.state.exit() {
            watched.phase = Phase::Exited;
            if watched.emptying == EmptyCheck::Lose {
                watched.emptying = EmptyCheck::No;
            }
            self.events.push_back(BackendEvent::Exited { unit: unit.clone(), status });
        } else if watched.state.is_down() {
            // systemd may be done with it and yet have left processes, or even the main process.
            if watched.emptying == EmptyCheck::No && self.is_certain(unit) {
                self.ask_kernel(unit, EmptyCheck::Lose);
            }
            return false;
        } else {
            if unit.is_multiuser() && watched.state.is_stopping() && !watched.is_stopping {
                watched.is_stopping = true;
                self.events.push_back(BackendEvent::Stopping { unit: unit.clone() });
            }
            self.guard(unit);
        }
        true
    }

    /// It is down, and there is no sign of a main process, or none of its end. An answer about the
    /// unit can overtake signals about the service, so this is believed when it was said twice.
    fn is_certain(&mut self, unit: &UnitName) -> bool {
        let Some(watched) = self.units.get(unit) else { return false };
        match watched.look {
            Look::Asked { .. } => return false,
            Look::Seen { again: true } => return true,
            Look::Seen { again: false } | Look::Signals => {}
        }
        // Otherwise the list that is on its way will have it looked at.
        if self.is_ready() {
            self.ask_properties(unit);
            if let Some(watched) = self.units.get_mut(unit) {
                watched.look = Look::Asked { again: true };
            }
        }
        false
    }

    fn step_collect(&mut self, unit: &UnitName) {
        let ready = self.is_ready();
        let Some(watched) = self.units.get_mut(unit) else { return };
        let failed = watched.state.is_failed();
        match watched.collect {
            Collect::Accepted | Collect::Refused if failed && !watched.reset => {}
            // systemd is done with the unit; its cgroup has the last word.
            Collect::Accepted if watched.state.is_down() => {
                return self.ask_kernel(unit, EmptyCheck::Collect);
            }
            // Its processes may end without systemd.
            Collect::Refused if watched.is_given_up() && watched.phase == Phase::Exited => {
                return self.ask_kernel(unit, EmptyCheck::Collect);
            }
            Collect::Accepted | Collect::Asked | Collect::No | Collect::Refused => return,
            Collect::Wanted => {}
        }
        if !ready {
            return;
        }
        let first = watched.collect == Collect::Wanted;
        watched.collect = Collect::Asked;
        watched.reset |= failed;
        if first {
            self.ask(Call::ControlGroup(unit.clone()));
        }
        let unit = unit.clone();
        self.ask(if failed { Call::Reset(unit) } else { Call::Stop(unit) });
    }

    /// Is its cgroup empty?
    fn ask_kernel(&mut self, unit: &UnitName, why: EmptyCheck) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        let Some(group) = watched.state.control_group.clone() else {
            return self.handle_refusal(unit);
        };
        watched.emptying = why;
        self.ask(Call::IsEmpty { unit: unit.clone(), group });
    }

    /// The kernel says that no process is left.
    pub(super) fn handle_emptied(&mut self, unit: &UnitName) {
        match self.units.get(unit).map(|watched| watched.emptying) {
            Some(EmptyCheck::Collect) => self.report_empty(unit),
            Some(EmptyCheck::Lose) => {
                self.report_absent(unit);
                // Nobody will come back for it.
                self.sweep(unit.clone());
            }
            Some(EmptyCheck::No) | None => {}
        }
    }

    /// No process is left, and systemd does not need the unit.
    fn report_empty(&mut self, unit: &UnitName) {
        self.release(unit);
        self.events.push_back(BackendEvent::Empty { unit: unit.clone() });
    }

    /// systemd does not have the unit. It keeps units with processes, so none is left.
    pub(super) fn handle_absent(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        match (watched.phase, watched.collect) {
            (Phase::Queued, _) => {}
            // The call was lost on its way.
            (Phase::Starting, _) => self.start_again(unit),
            (Phase::Finding, _) if watched.start.is_some() => self.start_again(unit),
            // A new systemd does not know the processes of an old one.
            (Phase::Running, _) if watched.guard.is_set() => {
                if watched.emptying == EmptyCheck::No {
                    self.ask_kernel(unit, EmptyCheck::Lose);
                }
            }
            (Phase::Finding | Phase::Running, _) => self.report_absent(unit),
            (Phase::Exited, Collect::No) => self.release(unit),
            (Phase::Exited, _) => self.report_empty(unit),
        }
    }

    /// Nothing more can be learned of it.
    fn report_absent(&mut self, unit: &UnitName) {
        self.release(unit);
        self.events.push_back(BackendEvent::Absent { unit: unit.clone() });
    }

    /// There is no trace of its start. systemd keeps what was executed, with success or not, so
    /// it was not; a second start is safe: if the first gets through after all, the name is
    /// taken. Only of a unit that it may forget nobody knows.
    fn start_again(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        if watched.forget_failed && watched.sent {
            return self.report_absent(unit);
        }
        if watched.retries >= START_RETRIES_MAX {
            let message = "systemd accepts the unit, but does not start it".to_string();
            return self.fail(unit, libc::EIO, message);
        }
        tracing::info!(%unit, "systemd lost the start of the unit, starting it again");
        self.in_flight -= usize::from(watched.phase == Phase::Starting);
        watched.phase = Phase::Queued;
        watched.retries += 1;
        watched.accepted = false;
        watched.look = Look::Signals;
        watched.state = State::default();
        self.drop_answers(unit);
        self.queue.push_front(unit.clone());
        self.start_next();
    }

    /// A call was answered.
    pub(super) fn handle_answer(&mut self, call: Call, answer: Result<Answer, Refusal>) {
        tracing::trace!(?call, ok = answer.is_ok(), "answer");
        match (call, answer) {
            (Call::ControlGroup(unit), Ok(Answer::ControlGroup(group))) => {
                if let Some(watched) = self.units.get_mut(&unit) {
                    watched.state.control_group = Some(group);
                }
            }
            (Call::List, answer) => self.handle_list(answer),
            (Call::Main { unit, pid }, answer) => self.handle_main_answer(&unit, pid, answer),
            (Call::Start(unit), Ok(_)) => {
                if let Some(watched) = self.units.get_mut(&unit) {
                    watched.accepted = true;
                    // What came before was about an earlier unit of this name.
                    watched.state = State::default();
                }
            }
            (Call::Start(unit), Err(refusal)) => self.handle_start_refusal(&unit, &refusal),
            (Call::Reset(unit), answer) if self.swept.contains_key(&unit) => {
                self.handle_sweep_answer(unit, answer);
            }
            (Call::Stop(unit) | Call::Reset(unit), answer) => {
                self.handle_stop_answer(&unit, answer)
            }
            (Call::Service(unit), Ok(Answer::Properties(changes))) => {
                self.handle_changed(&unit, changes, false);
            }
            (Call::Unit(unit), Ok(Answer::Properties(changes))) => {
                if let Some(watched) = self.units.get_mut(&unit) {
                    watched.set_seen();
                }
                self.handle_changed(&unit, changes, true);
            }
            (Call::Service(unit) | Call::Unit(unit), Err(e)) if e.is_no_unit() => {
                self.handle_absent(&unit);
            }
            (Call::Service(unit) | Call::Unit(unit), Err(error)) => {
                tracing::warn!(%unit, %error, "systemd does not tell the unit's properties");
                // One half without the other says nothing.
                self.drop_property_answers(&unit);
                if !error.is_absence() {
                    self.handle_refusal(&unit);
                }
            }
            (Call::Later(unit), _) if self.swept.contains_key(&unit) => self.sweep(unit),
            (Call::Later(unit), _) => self.ask_properties(&unit),
            // The process, or the whole unit, is gone already: what the signal was for.
            (Call::Kill { unit, .. }, Err(error)) => {
                tracing::debug!(%unit, %error, "signal not sent");
            }
            // Asked again on a connection that systemd still knows.
            (Call::Subscribe, _) => {}
            (Call::Watch(unit), Err(error)) => self.handle_watch_refusal(&unit, &error),
            (Call::WatchAll, Err(error)) => tracing::error!(
                %error,
                "units cannot be watched: raise the bus's max_match_rules_per_connection"
            ),
            (call, Err(error)) => tracing::warn!(?call, %error, "call failed"),
            (_, Ok(_)) => {}
        }
    }

    fn handle_start_refusal(&mut self, unit: &UnitName, refusal: &Refusal) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        if refusal.is_absence() {
            // Whether it got through is found out when systemd is back, if the bus does not know.
            watched.sent &= !refusal.is_undelivered();
            return;
        }
        if watched.phase != Phase::Starting {
            return;
        }
        if !refusal.is_exists() {
            return self.fail(unit, refusal.errnum(), refusal.text.clone());
        }
        if watched.retries > 0 {
            watched.phase = Phase::Finding;
            self.in_flight -= 1;
            self.ask_properties(unit);
            self.start_next();
        } else {
            self.release(unit);
            self.events.push_back(BackendEvent::Exists { unit: unit.clone() });
        }
    }

    fn handle_stop_answer(&mut self, unit: &UnitName, answer: Result<Answer, Refusal>) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        match answer {
            Ok(_) => {
                watched.collect = Collect::Accepted;
                self.step(unit);
            }
            Err(e) if e.is_no_unit() => self.handle_absent(unit),
            Err(e) if e.is_absence() => {}
            Err(error) => {
                tracing::error!(%unit, %error, "systemd does not stop the unit");
                watched.collect = Collect::Refused;
                self.handle_refusal(unit);
            }
        }
    }

    /// systemd has refused something for no reason that is known here, such as want of memory.
    /// Look again, and go on from there, but not at once and not for ever.
    pub(super) fn handle_refusal(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        watched.refusals += 1;
        if !watched.is_given_up() {
            self.ask(Call::Later(unit.clone()));
        } else if watched.collect == Collect::Refused && watched.state.control_group.is_some() {
            tracing::error!(%unit, "not stopped: its processes are left to end on their own");
            self.step_collect(unit);
        } else {
            tracing::error!(%unit, "what becomes of the unit is not known");
        }
    }
}

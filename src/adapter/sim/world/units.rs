//! Units, as systemd and the kernel run them: whoever of us is there.

use rand::Rng;

use super::{Item, World};
use crate::adapter::sim::rank::{Reported, Unit};
use crate::adapter::sim::request::Life;
use crate::machine::{Credential, Event, RequestId};
use crate::port::supervisor::{UnitCommand, UnitEvent};
use crate::proto::{BrokerRank, JobId, UnitName, WaitStatus};

impl World {
    pub(super) fn command(&mut self, from: Life, command: UnitCommand) {
        let rank = from.rank;
        let state = &mut self.ranks[rank as usize];
        match command {
            UnitCommand::Collect { unit } => self.collect(rank, &unit),
            UnitCommand::Forget { unit } => {
                state.records.remove(&unit);
                state.reported.remove(&unit);
                if state.units.get(&unit).is_some_and(|known| !known.lives())
                    && let Some(known) = state.units.remove(&unit)
                {
                    state.finished.push((unit, known));
                }
            }
            UnitCommand::Launch(spec) => {
                let unit = spec.unit.clone();
                let fresh = Reported { may_send: true, ..Reported::default() };
                state.reported.insert(unit.clone(), fresh);
                if state.units.contains_key(&unit) {
                    return self.find(rank, &unit);
                }
                state.record(&spec);
                // The intent is on disk; the call to systemd is on its way.
                let digest = spec.digest.clone();
                self.after(0.000_1, 0.002, Item::StartCall { from, unit, digest });
            }
            UnitCommand::Note { unit, key, value } => {
                if let Some(record) = state.records.get_mut(&unit) {
                    record.notes.insert(key, value);
                }
            }
            UnitCommand::OutputAck { unit, offset, stream: _, checkpointed: _ } => {
                let written = state.units.get(&unit).map_or(0, |known| known.output.len());
                if let Some(reported) = state.reported.get_mut(&unit).filter(|r| !r.may_send) {
                    reported.may_send = true;
                    reported.output = written.min(usize::try_from(offset).unwrap_or(usize::MAX));
                }
                self.tell(rank, &unit);
            }
            UnitCommand::Signal { unit, signal, all: _ } => self.signal(rank, &unit, signal),
        }
    }

    /// systemd gets the call to start a unit, if its caller lived long enough to send it.
    pub(super) fn start_call(&mut self, from: Life, unit: UnitName, digest: String) {
        if !self.is_alive(from) {
            return;
        }
        let odds = if self.healed { 0.0 } else { self.profile.failing_starts };
        if self.rng.random_bool(odds) {
            let (errnum, message) = (libc::EIO, "start failed".to_string());
            let event = UnitEvent::Failed { unit, errnum, message };
            return self.handle(from.rank, Event::Unit(event));
        }
        let state = Unit {
            digest,
            runs: false,
            exited: None,
            leftover: false,
            output: Vec::new(),
            deaf: self.rng.random_bool(self.profile.deaf_shells),
            collected: false,
            gone: false,
            entered: 0,
            released: 0,
            waits: None,
            signals: Vec::new(),
        };
        self.ranks[from.rank as usize].units.insert(unit.clone(), state);
        self.after(0.005, 0.5, Item::StartUnit { rank: from.rank, unit });
    }

    pub(super) fn start_unit(&mut self, rank: u32, unit: &UnitName) {
        let job = unit.job();
        let state = &mut self.ranks[rank as usize];
        let Some(known) = state.units.get_mut(unit) else { return };
        known.runs = true;
        let signals = std::mem::take(&mut known.signals);
        let digest = known.digest.clone();
        *state.executions.entry(digest.clone()).or_default() += 1;
        self.note(&format!("{unit} runs"));
        self.check_once(rank, job, &digest);
        self.find(rank, unit);
        for signal in signals {
            self.signal(rank, unit, signal);
        }
        let job = self.manager.jobs.get(&job).and_then(|job| job.allocation.as_ref());
        if job.is_some_and(|allocation| allocation.ranks.len() > 1) {
            self.enter_barrier(rank, unit);
        } else {
            self.work(rank, unit);
        }
    }

    /// The shell is past its barriers: it writes now and then, and ends.
    fn work(&mut self, rank: u32, unit: &UnitName) {
        for _ in 0..self.rng.random_range(0..4) {
            self.after(0.01, 20.0, Item::Write { rank, unit: unit.clone() });
        }
        let status = match self.rng.random_range(0..10) {
            0 => WaitStatus::exited(self.rng.random_range(1..4)),
            _ => WaitStatus::exited(0),
        };
        let unit = unit.clone();
        self.after(0.5, 30.0, Item::ExitUnit { rank, unit, status });
    }

    pub(super) fn write(&mut self, rank: u32, unit: &UnitName) {
        let number = self.rng.random_range(0..1_000_000);
        if let Some(known) = self.ranks[rank as usize].units.get_mut(unit)
            && known.exited.is_none()
        {
            known.output.extend(format!("line {number}\n").bytes());
        }
        self.tell(rank, unit);
    }

    pub(super) fn exit_unit(&mut self, rank: u32, unit: &UnitName, status: WaitStatus) {
        let leftover = self.rng.random_bool(self.profile.leftovers);
        let Some(known) = self.ranks[rank as usize].units.get_mut(unit) else { return };
        if known.exited.is_some() || !known.runs {
            return;
        }
        known.exited = Some(status);
        known.leftover = leftover;
        let collected = known.collected;
        self.note(&format!("{unit} exits: {status}"));
        if leftover {
            self.after(0.1, 60.0, Item::LeftoverEnds { rank, unit: unit.clone() });
        }
        self.tell(rank, unit);
        if collected {
            self.collect(rank, unit);
        }
    }

    pub(super) fn leftover_ends(&mut self, rank: u32, unit: &UnitName) {
        if let Some(known) = self.ranks[rank as usize].units.get_mut(unit) {
            known.leftover = false;
            known.gone = known.collected;
        }
        self.tell(rank, unit);
    }

    /// What was looked for is told as far as it is known.
    pub(super) fn find(&mut self, rank: u32, unit: &UnitName) {
        let state = &self.ranks[rank as usize];
        if state.node.is_none() || !state.reported.contains_key(unit) {
            return;
        }
        let event = match state.units.get(unit) {
            Some(known) if known.runs => UnitEvent::Started { unit: unit.clone(), pid: 1 },
            // systemd is still starting it.
            Some(_) => return,
            None => UnitEvent::Failed {
                unit: unit.clone(),
                errnum: libc::ECANCELED,
                message: "was never started".to_string(),
            },
        };
        self.handle(rank, Event::Unit(event));
        self.tell(rank, unit);
    }

    /// Tells the module what it does not know of a unit.
    fn tell(&mut self, rank: u32, unit: &UnitName) {
        if self.ranks[rank as usize].node.is_none() {
            return;
        }
        for event in self.ranks[rank as usize].news(unit) {
            self.handle(rank, Event::Unit(event));
        }
    }

    fn collect(&mut self, rank: u32, unit: &UnitName) {
        let Some(known) = self.ranks[rank as usize].units.get_mut(unit) else {
            let event = UnitEvent::Gone { unit: unit.clone() };
            return self.handle(rank, Event::Unit(event));
        };
        known.collected = true;
        if known.runs && known.exited.is_none() {
            self.signal(rank, unit, libc::SIGTERM);
            // systemd sends SIGKILL after the unit's stop timeout.
            let (unit, status) = (unit.clone(), WaitStatus::signaled(libc::SIGKILL));
            self.at(self.now + 5.0, Item::ExitUnit { rank, unit, status });
        } else if known.leftover {
            self.after(0.1, 5.0, Item::LeftoverEnds { rank, unit: unit.clone() });
        } else if known.runs {
            known.gone = true;
            self.tell(rank, unit);
        }
    }

    fn signal(&mut self, rank: u32, unit: &UnitName, signal: i32) {
        let Some(known) = self.ranks[rank as usize].units.get_mut(unit) else { return };
        if !known.runs {
            known.signals.push(signal);
            return;
        }
        if signal == libc::SIGKILL || !known.deaf {
            let (unit, status) = (unit.clone(), WaitStatus::signaled(signal));
            self.after(0.001, 0.5, Item::ExitUnit { rank, unit, status });
        }
    }

    pub(super) fn kill_job(&mut self, id: JobId, signal: i32) {
        for rank in 0..self.profile.ranks {
            let units = self.ranks[rank as usize].units.keys();
            let units: Vec<UnitName> = units.filter(|unit| unit.job() == id).cloned().collect();
            for unit in units {
                self.signal(rank, &unit, signal);
            }
        }
    }

    /// A shell enters the barrier (again, if its request was lost with its broker: the entry is
    /// the same).
    fn enter_barrier(&mut self, rank: u32, unit: &UnitName) {
        let state = &mut self.ranks[rank as usize];
        let Some(known) = state.units.get_mut(unit) else { return };
        let again = known.entered > known.released;
        if !again {
            known.entered += 1;
        }
        let entry = known.entered;
        if state.node.is_none() {
            return;
        }
        let number = self.shells_request(rank);
        if let Some(known) = self.ranks[rank as usize].units.get_mut(unit) {
            known.waits = Some(number);
        }
        let (request, id) = (RequestId::Remote(number), unit.job());
        let event = if again {
            Event::Parked { request, id, entry }
        } else {
            let credential = Credential { userid: 1, owner: true };
            Event::ShellBarrier { request, credential, id, rank: BrokerRank(rank) }
        };
        self.handle(rank, event);
    }

    pub(super) fn leave_barrier(&mut self, number: u64, ok: bool) {
        self.requests.close(number);
        for rank in 0..self.profile.ranks {
            let units = self.ranks[rank as usize].units.iter_mut();
            let found = units.into_iter().find(|(_, known)| known.waits == Some(number));
            let Some((unit, known)) = found else { continue };
            let unit = unit.clone();
            known.waits = None;
            if !ok {
                let status = WaitStatus::exited(1);
                return self.after(0.001, 0.1, Item::ExitUnit { rank, unit, status });
            }
            known.released = known.entered;
            return if known.released < 2 {
                self.enter_barrier(rank, &unit);
            } else {
                self.work(rank, &unit);
            };
        }
    }

    /// The request is kept with the unit, and comes back with the module.
    pub(super) fn unpark(&mut self, number: u64) {
        self.requests.close(number);
        for rank in &mut self.ranks {
            for known in rank.units.values_mut().filter(|known| known.waits == Some(number)) {
                known.waits = None;
            }
        }
    }

    pub(super) fn lose_parked(&mut self, rank: u32) {
        for known in self.ranks[rank as usize].units.values_mut() {
            known.waits = None;
        }
    }

    /// Shells that wait in the barrier ask again when their module is back.
    pub(super) fn return_to_barrier(&mut self, rank: u32) {
        let units = self.ranks[rank as usize].units.iter();
        let waiting: Vec<UnitName> = units
            .filter(|(_, known)| known.runs && known.exited.is_none())
            .filter(|(_, known)| known.entered > known.released && known.waits.is_none())
            .map(|(unit, _)| unit.clone())
            .collect();
        for unit in waiting {
            self.enter_barrier(rank, &unit);
        }
    }
}

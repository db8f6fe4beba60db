//! What shells do: they run, write, wait in the barrier, leave processes behind, and end.

use rand::Rng;

use super::{Item, World};
use crate::adapter::sim::kind::FaultKind;
use crate::adapter::sim::shell::{Shell, ShellId};
use crate::machine::{Credential, Event, RequestId};
use crate::port::disk::Disk;
use crate::proto::{BrokerRank, JobId, UnitName, WaitStatus};
use crate::supervisor::Grown;

/// systemd's exit code when the program can't be executed (systemd.exec(5), `EXIT_EXEC`).
const EXIT_EXEC: i32 = 203;

impl World {
    /// The start job's turn has come.
    pub(super) fn fork(&mut self, rank: u32, boot: u32, unit: &UnitName) {
        let state = &mut self.ranks[rank as usize];
        if state.boot != boot {
            return;
        }
        state.systemd.forked(unit);
        self.stir(rank);
        self.after(0.000_1, 0.005, Item::Execute { rank, boot, unit: unit.clone() });
    }

    pub(super) fn execute(&mut self, rank: u32, boot: u32, unit: &UnitName) {
        let state = &mut self.ranks[rank as usize];
        if state.boot != boot {
            return;
        }
        if self.faults.strikes(FaultKind::StartFails).is_some() {
            state.systemd.exec_failed(unit, EXIT_EXEC);
            return self.stir(rank);
        }
        let before = state.systemd.executions(unit);
        state.systemd.executed(unit);
        if state.systemd.executions(unit) == before {
            return self.stir(rank);
        }
        let text = |text: Option<&str>| text.unwrap_or_default().to_string();
        let (invocation, digest) =
            (text(state.systemd.invocation_id(unit)), text(state.systemd.digest(unit)));
        let deaf = self.rng.random_bool(self.profile.deaf_shells);
        let index = state.shells.len();
        state.shells.push(Shell::new(unit.clone(), invocation, digest.clone(), deaf));
        self.note(&format!("{unit} runs"));
        self.stir(rank);
        self.check_once(rank, index);
        let id = ShellId { rank, index };
        if self.ranks_of(&digest).len() > 1 { self.enter_barrier(id) } else { self.work(id) }
    }

    /// The shell is past its barriers: it writes now and then, and ends, unless it runs until
    /// its time is up.
    fn work(&mut self, id: ShellId) {
        for _ in 0..self.rng.random_range(0..4) {
            self.after(0.01, 20.0, Item::Write(id));
        }
        let status = match self.rng.random_range(0..10) {
            0 => WaitStatus::exited(self.rng.random_range(1..4)),
            _ => WaitStatus::exited(0),
        };
        let endless = self.is_limited(&self.shell(id).digest) && self.rng.random_bool(0.5);
        if !endless {
            self.after(0.5, 30.0, Item::Exit { id, status });
        }
    }

    pub(in crate::adapter::sim) fn shell(&self, id: ShellId) -> &Shell {
        &self.ranks[id.rank as usize].shells[id.index]
    }

    fn shell_mut(&mut self, id: ShellId) -> &mut Shell {
        &mut self.ranks[id.rank as usize].shells[id.index]
    }

    pub(super) fn write(&mut self, id: ShellId) {
        if !self.shell(id).runs() {
            return;
        }
        let number = self.rng.random_range(0..1_000_000);
        let line = format!("line {number}\n");
        let state = &mut self.ranks[id.rank as usize];
        let shell = &mut state.shells[id.index];
        let path = state.disk.path(&format!("{}.out", shell.unit.stem()));
        let fits = state.disk.write_output(&path, line.as_bytes());
        shell.output.extend(line.bytes().take(fits));
        self.after(0.000_1, 0.005, Item::Grown { rank: id.rank });
    }

    /// inotify tells of it.
    pub(super) fn grown(&mut self, rank: u32) {
        if let Some(supervisor) = &mut self.ranks[rank as usize].supervisor {
            supervisor.core.grown(&Grown::Any, &mut supervisor.backend);
            self.pump(rank);
        }
    }

    pub(super) fn exit(&mut self, id: ShellId, status: WaitStatus) {
        if !self.shell(id).runs() {
            return;
        }
        let leftover = self.rng.random_bool(self.profile.leftovers);
        let shell = self.shell_mut(id);
        shell.exited = Some(status);
        shell.leftover = leftover;
        let unit = shell.unit.clone();
        self.note(&format!("{unit} exits: {status}"));
        if leftover {
            self.after(0.1, 60.0, Item::LeftoverEnds(id));
        }
        self.ranks[id.rank as usize].systemd.exited(&unit, status, leftover);
        self.stir(id.rank);
    }

    pub(super) fn leftover_ends(&mut self, id: ShellId) {
        let shell = self.shell_mut(id);
        if !shell.leftover || shell.lost {
            return;
        }
        shell.leftover = false;
        let unit = shell.unit.clone();
        self.ranks[id.rank as usize].systemd.emptied(&unit);
        self.stir(id.rank);
    }

    /// A signal reaches a unit's processes.
    pub(super) fn signal(&mut self, rank: u32, unit: &UnitName, signal: i32, all: bool) {
        let Some(index) = self.ranks[rank as usize].current(unit) else { return };
        let id = ShellId { rank, index };
        let shell = self.shell(id);
        if signal != libc::SIGKILL && shell.deaf {
            return;
        }
        if shell.runs() {
            let status = WaitStatus::signaled(signal);
            self.after(0.001, 0.5, Item::Exit { id, status });
        } else if shell.leftover && all {
            self.after(0.001, 0.5, Item::LeftoverEnds(id));
        }
    }

    /// `job-manager.kill`: the shells pass a signal to their tasks, and end with them.
    pub(super) fn kill_job(&mut self, job: JobId, signal: i32) {
        for rank in 0..self.profile.ranks {
            let units = self.ranks[rank as usize].systemd.units();
            let units: Vec<UnitName> = units.filter(|unit| unit.job() == job).cloned().collect();
            for unit in units {
                self.signal(rank, &unit, signal, true);
            }
        }
    }

    /// A shell enters the barrier (again, if its request was lost with its broker: the entry is
    /// the same, and it says which).
    fn enter_barrier(&mut self, id: ShellId) {
        let rank = id.rank;
        let shell = self.shell_mut(id);
        let again = shell.entered > shell.released;
        if !again {
            shell.entered += 1;
        }
        let (entry, job) = (shell.entered, shell.unit.job());
        if self.ranks[rank as usize].node.is_none() {
            return;
        }
        let number = self.shells_request(rank);
        self.shell_mut(id).waits = Some(number);
        self.barriers.insert(number, id);
        let request = RequestId::Remote(number);
        let credential = Credential { userid: 1, owner: true };
        let (rank, entry) = (BrokerRank(rank), Some(entry));
        let event = Event::ShellBarrier { request, credential, id: job, rank, entry };
        self.handle(rank.0, event);
    }

    pub(super) fn leave_barrier(&mut self, number: u64, ok: bool) {
        self.requests.close(number);
        self.check_intruder(number, ok);
        let Some(id) = self.barriers.remove(&number) else { return };
        let shell = self.shell_mut(id);
        if shell.waits != Some(number) || !shell.runs() {
            return;
        }
        shell.waits = None;
        if !ok {
            let status = WaitStatus::exited(1);
            return self.after(0.001, 0.1, Item::Exit { id, status });
        }
        shell.released = shell.entered;
        let released = shell.released;
        self.check_barrier(id, released);
        if released < 2 { self.enter_barrier(id) } else { self.work(id) }
    }

    /// The request is kept with the unit, or lost with its broker; the shell waits on.
    pub(super) fn unpark(&mut self, number: u64) {
        self.requests.close(number);
        if let Some(id) = self.barriers.remove(&number) {
            self.shell_mut(id).waits = None;
        }
    }

    pub(super) fn lose_parked(&mut self, rank: u32) {
        self.barriers.retain(|_, id| id.rank != rank);
        self.ranks[rank as usize].shells.iter_mut().for_each(|shell| shell.waits = None);
    }

    /// Shells that wait in the barrier ask again when their module is back.
    pub(super) fn return_to_barrier(&mut self, rank: u32) {
        let shells = self.ranks[rank as usize].shells.iter().enumerate();
        let waiting: Vec<usize> = shells
            .filter(|(_, shell)| shell.runs() && shell.waits.is_none())
            .filter(|(_, shell)| shell.entered > shell.released)
            .map(|(index, _)| index)
            .collect();
        for index in waiting {
            self.enter_barrier(ShellId { rank, index });
        }
    }
}

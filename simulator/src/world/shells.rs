//! What shells do: they start, write, wait in the barrier, leave processes behind, and end.

use job_exec_rs::machine::Event;
use job_exec_rs::port::disk::Disk;
use job_exec_rs::proto::{JobId, UnitName, WaitStatus};
use job_exec_rs::supervisor::Grown;
use rand::Rng;
use resume_machine::NO_TAG;
use serde_json::json;

use super::links::{SERVICE_ADD, SERVICE_REMOVE};
use super::{Item, World};
use crate::held_up::HeldUp;
use crate::kind::FaultKind;
use crate::packet::SimPacket;
use crate::profile::Profile;
use crate::request::Life;
use crate::script::Moment;
use crate::shell::{Shell, ShellId};

/// systemd's exit code when it cannot execute the program (systemd.exec(5), `EXIT_EXEC`).
const EXIT_EXEC: i32 = 203;
/// How long a shell runs that does nothing, in seconds.
const QUIET_SECONDS: f64 = 5.0;
const BARRIER: &str = "job-exec.shell-barrier";
/// flux-core `libkvs/kvs.h`.
const FLUX_KVS_APPEND: u32 = 32;

impl World {
    /// systemd runs the start job of a unit: the process exists, and is executed a moment later.
    pub(super) fn fork(&mut self, rank: u32, manager: u32, unit: &UnitName, asked: Moment) {
        let state = &mut self.ranks[rank as usize];
        if state.managers != manager {
            return;
        }
        state.systemd.handle_forked(unit);
        self.forward_from_systemd(rank);
        self.after(0.000_1, 0.005, Item::Execute { rank, manager, unit: unit.clone(), asked });
    }

    /// A unit's process executes its program.
    pub(super) fn execute(&mut self, rank: u32, manager: u32, unit: &UnitName, asked: Moment) {
        let state = &mut self.ranks[rank as usize];
        if state.managers != manager {
            return;
        }
        if state.systemd.is_starting(unit) {
            for extension in ["out", "err"] {
                state.disk.open_output(&format!("{}.{extension}", unit.stem()));
            }
        }
        // An IMP that cannot be executed is not modelled (doc/simulator.md).
        if !unit.is_multiuser() && self.faults.draw(FaultKind::StartFails).is_some() {
            let digest = state.systemd.digest(unit).map(str::to_string);
            if unit.is_script() {
                state.scripts_not_executed.extend(digest);
            } else {
                state.not_executed.extend(digest);
            }
            state.systemd.handle_exec_failed(unit, EXIT_EXEC);
            return self.forward_from_systemd(rank);
        }
        let before = state.systemd.executions(unit);
        state.systemd.handle_executed(unit);
        if state.systemd.executions(unit) == before {
            return self.forward_from_systemd(rank);
        }
        if unit.is_script() {
            self.begin_script(rank, unit, asked)
        } else {
            self.begin_shell(rank, manager, unit)
        }
    }

    fn begin_shell(&mut self, rank: u32, manager: u32, unit: &UnitName) {
        let state = &mut self.ranks[rank as usize];
        let text = |text: Option<&str>| text.unwrap_or_default().to_string();
        let (invocation, digest) =
            (text(state.systemd.invocation_id(unit)), text(state.systemd.digest(unit)));
        let uri = text(state.systemd.uri(unit));
        let Profile { deaf_guests, deaf_shells, .. } = self.profile;
        let deaf = if unit.is_multiuser() { deaf_guests } else { deaf_shells };
        let deaf = self.rng.random_bool(deaf);
        let index = state.shells.len();
        let mut shell = Shell::new(unit.clone(), invocation, digest.clone(), deaf);
        shell.uri = uri;
        shell.last_allocation = self.last_allocation;
        shell.rollbacks = self.kvs.rollbacks();
        // Its record can be lost before it is executed.
        let record = format!("{}.record", unit.stem());
        shell.record_lost = !state.disk.has(&record) && !state.swept.contains(&record);
        state.shells.push(shell);
        note!(self, "{unit} runs");
        self.forward_from_systemd(rank);
        self.check_once(rank, index);
        self.check_prologs(rank, index);
        let id = ShellId { rank, index };
        if unit.is_multiuser() {
            self.after(0.001, 0.1, Item::Ready { rank, manager, unit: unit.clone() });
        }
        self.open_link(id);
        if self.has_service(id) { self.register(id) } else { self.work(id) }
    }

    /// Whether the client is a job shell to its connector. One that is alone in its job has nobody to
    /// offer a service to. So it stands for a command of a task as well, which has none.
    fn has_service(&self, id: ShellId) -> bool {
        self.ranks_of(&self.shell(id).digest).len() > 1
    }

    /// The IMP says that it is ready.
    pub(super) fn report_ready(&mut self, rank: u32, manager: u32, unit: &UnitName) {
        let state = &mut self.ranks[rank as usize];
        if state.managers == manager {
            state.systemd.handle_ready(unit);
            self.forward_from_systemd(rank);
        }
    }

    /// The shell has left its barriers. It writes now and then, and ends, unless it runs until its
    /// time limit.
    fn work(&mut self, id: ShellId) {
        if self.profile.is_quiet() {
            return self.at(self.now + QUIET_SECONDS, Item::EndShell { id, status: WaitStatus(0) });
        }
        for _ in 0..self.rng.random_range(0..4) {
            self.after(0.01, 20.0, Item::WriteLine(id));
        }
        for _ in 0..self.rng.random_range(0..6) {
            self.after(0.01, 20.0, Item::CommitLine(id));
        }
        self.begin_to_speak(id);
        let status = match self.rng.random_range(0..10) {
            0 => WaitStatus::exited(self.rng.random_range(1..4)),
            _ => WaitStatus::exited(0),
        };
        let shell = self.shell(id);
        let (limited, hostile) = (self.is_limited(&shell.digest), shell.deaf && shell.is_guests());
        let endless = limited && (self.rng.random_bool(0.5) || hostile);
        if !endless {
            self.after(0.5, 30.0, Item::EndShell { id, status });
        }
    }

    pub(crate) fn shell(&self, id: ShellId) -> &Shell {
        &self.ranks[id.rank as usize].shells[id.index]
    }

    pub(super) fn shell_mut(&mut self, id: ShellId) -> &mut Shell {
        &mut self.ranks[id.rank as usize].shells[id.index]
    }

    pub(super) fn write_line(&mut self, id: ShellId) {
        if !self.shell(id).works() {
            return;
        }
        let number = self.rng.random_range(0..1_000_000);
        let line = format!("line {number}\n");
        let state = &mut self.ranks[id.rank as usize];
        let shell = &mut state.shells[id.index];
        let path = state.disk.path(&format!("{}.out", shell.unit.stem()));
        let is_removed = !state.disk.has(&format!("{}.out", shell.unit.stem()));
        let fits = state.disk.write_output(&path, line.as_bytes());
        // It cannot know that nobody reads the file any more.
        let fits = if is_removed { line.len() } else { fits };
        shell.output.extend(line.bytes().take(fits));
        self.after(0.000_1, 0.005, Item::OutputGrown(id.rank));
    }

    /// inotify reports that output files have grown.
    pub(super) fn handle_growth(&mut self, rank: u32) {
        if self.waits_for_disk(rank, || HeldUp::Growth) {
            return;
        }
        if let Some(supervisor) = &mut self.ranks[rank as usize].supervisor {
            supervisor.core.handle_growth(&Grown::Any, &mut supervisor.backend);
            self.forward_from_supervisor(rank);
        }
    }

    pub(super) fn end_shell(&mut self, id: ShellId, status: WaitStatus) {
        if !self.shell(id).runs() {
            return;
        }
        let is_killed = status == WaitStatus::signaled(libc::SIGKILL);
        if !is_killed && self.waits_for_others(id, status) {
            return;
        }
        let mut leftover = self.rng.random_bool(self.profile.leftovers);
        let shell = self.shell_mut(id);
        if shell.is_guests() {
            if leftover && shell.awaited.is_none() {
                shell.awaited = Some(status);
                return self.after(0.1, 60.0, Item::EndShell { id, status });
            }
            // The IMP ends after all other processes of the unit.
            leftover = false;
        }
        let status = self.shell(id).awaited.unwrap_or(status);
        if !is_killed && (!self.has_left(id, status) || !self.has_closed(id, status)) {
            return;
        }
        self.close_link(id);
        let now = self.now;
        let shell = self.shell_mut(id);
        shell.lingered = now - shell.closing_at;
        shell.exited = Some(status);
        shell.ended_at = now;
        shell.leftover = leftover;
        shell.has_closed = !is_killed;
        let unit = shell.unit.clone();
        note!(self, "{unit} exits: {status}");
        if leftover {
            self.after(0.1, 60.0, Item::LeftoverEnds(id));
        }
        let state = &mut self.ranks[id.rank as usize];
        if unit.is_multiuser() {
            state.disk.leave_end(&unit, status);
        }
        state.systemd.handle_exited(&unit, status, leftover);
        self.forward_from_systemd(id.rank);
        self.handle_shell_gone(id);
    }

    /// The shell gives its service up, and waits for the answer, which can take as long as its broker
    /// is away. Returns true when it has that. Before that, the shell is ended later.
    fn has_left(&mut self, id: ShellId, status: WaitStatus) -> bool {
        if !self.has_service(id) {
            return true;
        }
        let shell = self.shell_mut(id);
        if shell.leaving.is_none() {
            shell.leaving = Some(status);
            self.unregister(id);
        }
        self.shell(id).is_unregistered
    }

    /// The shell has given its service up, and has some more to do before it closes its connection.
    fn handle_unregistered(&mut self, id: ShellId, errnum: i32) {
        if errnum != 0 {
            let seen = format!("{} cannot give its service up: {errnum}", self.shell(id).unit);
            return self.violate("channel-once", seen);
        }
        let shell = self.shell_mut(id);
        shell.is_unregistered = true;
        if let Some(status) = shell.leaving {
            self.after(0.000_1, 0.02, Item::EndShell { id, status });
        }
    }

    /// The shell closes its connection, which can take as long as its broker is away. Returns true
    /// when it is closed. Before that, the shell is ended later.
    fn has_closed(&mut self, id: ShellId, status: WaitStatus) -> bool {
        let now = self.now;
        let shell = self.shell_mut(id);
        if shell.closing.is_none() {
            (shell.closing, shell.closing_at) = (Some(status), now);
            self.begin_closing(id);
        }
        !self.is_lingering(id)
    }

    pub(super) fn end_leftover(&mut self, id: ShellId) {
        let now = self.now;
        let shell = self.shell_mut(id);
        if !shell.leftover || shell.lost_with_manager {
            return;
        }
        shell.leftover = false;
        shell.ended_at = now;
        let unit = shell.unit.clone();
        self.ranks[id.rank as usize].systemd.handle_emptied(&unit);
        self.forward_from_systemd(id.rank);
    }

    /// A signal arrives at a unit's processes.
    pub(super) fn signal(&mut self, rank: u32, unit: &UnitName, signal: i32, all: bool) {
        if unit.is_script() {
            return self.signal_script(rank, unit, signal);
        }
        let Some(index) = self.ranks[rank as usize].current_shell(unit) else { return };
        let id = ShellId { rank, index };
        let shell = self.shell(id);
        // The kernel kills the IMP with all that it has started.
        let by_kernel = all && signal == libc::SIGKILL;
        if shell.is_guests() && !by_kernel {
            return self.signal_imp(id, signal);
        }
        if shell.is_guests() && shell.runs() {
            self.shell_mut(id).awaited.get_or_insert(WaitStatus::signaled(signal));
        }
        let shell = self.shell(id);
        if signal != libc::SIGKILL && shell.deaf {
            return;
        }
        if shell.runs() {
            let status = WaitStatus::signaled(signal);
            self.after(0.001, 0.5, Item::EndShell { id, status });
        } else if shell.leftover && all {
            self.after(0.001, 0.5, Item::LeftoverEnds(id));
        }
    }

    /// A signal arrives at an IMP, the only process of a guest that it can reach. The IMP forwards
    /// it to the shell. On SIGUSR1 it kills all that it has started instead (RFC 15).
    fn signal_imp(&mut self, id: ShellId, signal: i32) {
        let shell = self.shell(id);
        let kills = signal == libc::SIGUSR1;
        if signal == libc::SIGKILL {
            let seen = format!("the IMP of {} is killed: nobody can end its shell", shell.unit);
            return self.violate("no-orphan", seen);
        }
        if !kills && (shell.deaf || shell.awaited.is_some()) {
            return;
        }
        let status = WaitStatus::signaled(if kills { libc::SIGKILL } else { signal });
        let shell = self.shell_mut(id);
        if shell.runs() {
            // Either way the IMP need not wait for processes that the shell has left behind.
            shell.awaited.get_or_insert(status);
            self.after(0.001, 0.5, Item::EndShell { id, status });
        }
    }

    /// `job-manager.kill`: the shells of a job pass a signal on to their tasks, and end when their
    /// tasks end. While rank 0 stalls nobody tells them.
    pub(super) fn kill_job(&mut self, from: Life, job: JobId, signal: i32) {
        let rank_0 = &self.ranks[0];
        if !rank_0.broker_up {
            return;
        }
        if rank_0.stalled_until > self.now {
            return self.at(rank_0.stalled_until, Item::KillJob { from, id: job, signal });
        }
        self.send_event(0, from, Event::KillAnswered { id: job });
        for rank in 0..self.profile.ranks {
            let units = self.ranks[rank as usize].systemd.units();
            let units: Vec<UnitName> = units.filter(|unit| unit.job() == job).cloned().collect();
            for unit in units {
                self.signal_tasks(rank, &unit, signal);
            }
        }
    }

    fn signal_tasks(&mut self, rank: u32, unit: &UnitName, signal: i32) {
        let Some(index) = self.ranks[rank as usize].current_shell(unit) else { return };
        let id = ShellId { rank, index };
        let shell = self.shell(id);
        if !shell.is_guests() {
            return self.signal(rank, unit, signal, true);
        }
        if shell.runs() && !shell.deaf {
            let status = WaitStatus::signaled(signal);
            self.after(0.001, 0.5, Item::EndShell { id, status });
        }
    }

    /// The shell may write something that others read when they have left the barrier. Then it enters.
    pub(super) fn come_to_barrier(&mut self, id: ShellId) {
        let may_write = !self.profile.is_quiet();
        let writes = may_write && self.rng.random_bool(0.5) && self.commit_line(id);
        self.shell_mut(id).comes = writes;
        if !writes {
            self.enter_barrier(id);
        }
    }

    /// The shell enters the barrier, and waits for the answer.
    fn enter_barrier(&mut self, id: ShellId) {
        let shell = self.shell_mut(id);
        shell.entered += 1;
        shell.done_before.push(shell.lines_done);
        let payload = json!({ "id": shell.unit.job(), "rank": id.rank });
        self.send_from_shell(id, SimPacket::ask(BARRIER, NO_TAG, &payload));
    }

    /// The shell commits a line to its job's guest namespace. Returns whether an answer will come.
    pub(super) fn commit_line(&mut self, id: ShellId) -> bool {
        if !self.shell(id).works() {
            return false;
        }
        let shell = self.shell_mut(id);
        let text = format!("{} {}", shell.writer(), shell.lines_sent);
        let op = json!({ "key": "notes", "flags": FLUX_KVS_APPEND, "dirent": text });
        let namespace = shell.unit.job().namespace();
        let payload = json!({ "namespace": namespace, "flags": 0, "ops": [op] });
        let packet = SimPacket::ask("kvs.commit", shell.lines_sent + 1, &payload);
        shell.lines_sent += 1;
        let is_sent = self.send_from_shell(id, packet);
        if !is_sent {
            self.shell_mut(id).lines_sent -= 1;
        }
        is_sent
    }

    /// A request or an answer arrives at a shell.
    pub(super) fn handle_at_shell(&mut self, id: ShellId, packet: &SimPacket) {
        if !self.shell(id).runs() {
            return;
        }
        if packet.is_request() {
            return self.hear(id, packet);
        }
        match packet.topic.as_str() {
            BARRIER => self.leave_barrier(id, packet.errnum()),
            SERVICE_ADD => self.handle_registered(id, packet.errnum()),
            SERVICE_REMOVE => self.handle_unregistered(id, packet.errnum()),
            "kvs.commit" => self.handle_committed(id, packet),
            _ => self.hear_answer(id, packet),
        }
    }

    fn handle_committed(&mut self, id: ShellId, packet: &SimPacket) {
        let number = packet.matchtag() - 1;
        if packet.errnum() == 0 {
            self.shell_mut(id).lines_done += 1;
        } else {
            self.shell_mut(id).lines_refused.push(number);
            let seen = format!("{}: line {number} is refused: {packet:?}", self.shell(id).unit);
            self.note(&seen);
        }
        if std::mem::take(&mut self.shell_mut(id).comes) {
            self.enter_barrier(id);
        }
    }

    fn leave_barrier(&mut self, id: ShellId, errnum: i32) {
        if errnum != 0 {
            self.shell_mut(id).refused_after = self.left_before(id);
            let status = WaitStatus::exited(1);
            return self.after(0.001, 0.1, Item::EndShell { id, status });
        }
        let shell = self.shell_mut(id);
        shell.released += 1;
        let released = shell.released;
        self.check_barrier(id, released);
        if released < 2 { self.come_to_barrier(id) } else { self.work(id) }
    }
}

//! Faults, and how the world recovers from them.

use std::collections::BTreeSet;

use job_exec_rs::config::Config;
use job_exec_rs::machine::{Credential, Effects, Event, Fault, MonoTime, Now, RequestId};
use job_exec_rs::port::supervisor::{Method, SupervisorEvent};
use job_exec_rs::proto::{BrokerRank, JobId, UnitName, WaitStatus, WallTime};
use job_exec_rs::supervisor::PulseWatch;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{Item, World};
use crate::fault::FaultId;
use crate::held_up::DiskItem;
use crate::kind::FaultKind;
use crate::rank::{STRANGER, Supervisor, config, new_node};
use crate::request::{Asked, Life};
use crate::shell::ShellId;

/// How long a module waits for its last checkpoint, in seconds.
const FINISH_SECONDS: f64 = 5.0;
/// For how long after the last fault it is looked for what the instance has forgotten, in seconds.
const FORGOTTEN_SECONDS: u32 = 300;
/// How long some brokers take no requests of their clients when they have come up, in seconds;
/// others take twice as long, or no time.
const START_SECONDS: f64 = 0.4;

/// How a shell ends that is killed.
const KILLED: WaitStatus = WaitStatus(libc::SIGKILL);

impl World {
    pub(super) fn schedule_faults(&mut self) {
        for kind in FaultKind::ALL.into_iter().filter(|kind| kind.is_timed()) {
            self.schedule_fault(kind);
        }
    }

    fn schedule_fault(&mut self, kind: FaultKind) {
        if let Some((pause, id)) = self.faults.draw_next(kind) {
            self.at(self.now + pause, Item::Fault(id));
        }
    }

    /// A timed fault is due.
    pub(super) fn handle_fault(&mut self, id: FaultId) {
        if self.faults.strike(id) {
            let mut rng = self.faults.rng(id);
            self.apply_fault(id.kind, &mut rng);
        }
        self.schedule_fault(id.kind);
    }

    fn fill_bus(&mut self, rank: u32, rng: &mut ChaCha8Rng) {
        let (rules, calls) = (rng.random_range(0..8), rng.random_range(1..4));
        note!(self, "the bus on rank {rank} grants {rules} rules, and one call of {calls}");
        let (until, state) =
            (self.now + rng.random_range(1.0..60.0), &mut self.ranks[rank as usize]);
        state.systemd.set_quotas(Some(rules), Some(calls));
        state.bus_is_full_until = until;
        self.at(until, Item::BusHasRoom(rank));
    }

    fn apply_fault(&mut self, kind: FaultKind, rng: &mut ChaCha8Rng) {
        let rank = rng.random_range(0..self.profile.ranks);
        match kind {
            FaultKind::AllKilled => self.kill(0),
            FaultKind::BrokerKilled => self.kill(rank.max(1).min(self.profile.ranks - 1)),
            FaultKind::BusIsFull => self.fill_bus(rank, rng),
            FaultKind::BusLost => self.lose_bus(rank),
            FaultKind::Cancel => self.cancel(rng),
            FaultKind::ClockJumps => {
                let jump = rng.random_range(-300.0..300.0);
                note!(self, "the clock on rank {rank} jumps by {jump:.0} s");
                self.ranks[rank as usize].clock += jump;
            }
            FaultKind::ConfigReloaded => self.reconfigure(rng),
            FaultKind::DiskFails => self.fail_disk(rank, rng),
            FaultKind::DiskFull => {
                note!(self, "the disk of rank {rank} is full");
                self.ranks[rank as usize].disk_was_full = true;
                self.ranks[rank as usize].disk.set_room(Some(rng.random_range(0..400)));
                self.at(self.now + rng.random_range(0.1..30.0), Item::Disk(DiskItem::Freed(rank)));
            }
            FaultKind::DiskHangs => self.hang_disk(rank, rng),
            FaultKind::ExpirationMoved => self.move_expiration(rng),
            FaultKind::Intruder => self.intrude(rank, rng),
            FaultKind::MemoryShort => self.kill_for_memory(rank, rng),
            FaultKind::ModuleReloaded => self.unload(rank),
            FaultKind::NodeRebooted => self.reboot(rank, rng),
            FaultKind::RankStalls => {
                self.stall(rank, rng.random_range(0.1..60.0));
            }
            FaultKind::RankStops => {
                let seconds = Config::default().peer_timeout * rng.random_range(1.0..3.0);
                let until = &mut self.ranks[rank as usize].stopped_until;
                *until = until.max(self.now + seconds);
                self.stall(rank, seconds);
            }
            FaultKind::RecordsLost => self.lose_files(rank, &["record"]),
            FaultKind::Replaced => {
                self.set_release(rank, true);
                self.at(self.now + rng.random_range(1.0..20.0), Item::ReleaseReturns(rank));
            }
            FaultKind::ResourceAway => self.take_resource_away(rng),
            FaultKind::StateLost => self.lose_files(rank, &["record", "out", "err"]),
            FaultKind::StateSwept => self.sweep(rank),
            FaultKind::SystemdEnds => self.end_systemd(rank),
            FaultKind::SystemdHangs => self.hang_systemd(rank, rng),
            FaultKind::SystemdReexecuted => {
                note!(self, "systemd on rank {rank} is executed again");
                self.ranks[rank as usize].muted = true;
                self.at(self.now + rng.random_range(0.0..0.01), Item::SystemdLeaves(rank));
            }
            FaultKind::SystemdRefuses => self.ranks[rank as usize].systemd.refuse_one(),
            FaultKind::SystemdReloaded => {
                note!(self, "systemd on rank {rank} reloads");
                self.ranks[rank as usize].systemd.reload();
                self.forward_from_systemd(rank);
            }
            FaultKind::CheckpointFails
            | FaultKind::CommitFails
            | FaultKind::CrashBetweenEffects
            | FaultKind::CrashInWrite
            | FaultKind::KilledAtHandover
            | FaultKind::KvsUnloaded
            | FaultKind::PowerCutUnsynced
            | FaultKind::StartFails
            | FaultKind::StartIsSlow => (), // not timed: each strikes at its occasions
        }
    }

    fn take_resource_away(&mut self, rng: &mut ChaCha8Rng) {
        let until = self.now + rng.random_range(0.1..300.0);
        note!(self, "the resource module is away until {until:.1}");
        self.resource_away_until = self.resource_away_until.max(until);
    }

    fn stall(&mut self, rank: u32, seconds: f64) {
        note!(self, "rank {rank} stalls for {seconds:.1} s");
        let until = &mut self.ranks[rank as usize].stalled_until;
        *until = until.max(self.now + seconds);
        let until = *until;
        self.at(until, Item::Resume(rank));
    }

    fn lose_bus(&mut self, rank: u32) {
        note!(self, "the bus on rank {rank} ends all connections");
        let lost = self.ranks[rank as usize].systemd.restart_bus();
        let life = self.life(rank);
        if !lost.is_empty() {
            self.after(0.000_1, 0.1, Item::BusClosed(life));
        }
    }

    /// The kernel kills a process of each shell of a rank, or the shell itself.
    fn kill_for_memory(&mut self, rank: u32, rng: &mut ChaCha8Rng) {
        let at_own_limit = rng.random_bool(0.5);
        let mut hit = Vec::new();
        let state = &mut self.ranks[rank as usize];
        for (index, shell) in state.shells.iter_mut().enumerate().filter(|(_, s)| s.runs()) {
            if state.systemd.count_oom(&shell.unit, at_own_limit) {
                shell.oom_kills += 1;
                hit.push((ShellId { rank, index }, shell.unit.clone()));
            }
        }
        for (id, unit) in hit {
            note!(self, "memory is short for {unit}");
            if rng.random_bool(0.5) {
                self.after(0.001, 1.0, Item::EndShell { id, status: KILLED });
            }
        }
    }

    /// A random one of the jobs that the service was asked to start and that have not failed. None
    /// while rank 0's broker is down.
    fn some_job(&self, rng: &mut ChaCha8Rng) -> Option<JobId> {
        let jobs = self.manager.jobs.iter().filter(|(_, job)| job.pending && !job.failed);
        let jobs: Vec<JobId> = jobs.map(|(id, _)| *id).collect();
        (!jobs.is_empty() && self.ranks[0].broker_up).then(|| jobs[rng.random_range(0..jobs.len())])
    }

    fn cancel(&mut self, rng: &mut ChaCha8Rng) {
        if let Some(id) = self.some_job(rng) {
            self.cancel_job(id);
        }
    }

    pub(super) fn cancel_job(&mut self, id: JobId) {
        if let Some(job) = self.manager.jobs.get_mut(&id) {
            job.fail("cancel", self.now);
            self.schedule_commit();
        }
        note!(self, "cancel {id}");
        self.publish(id, "cancel");
    }

    fn move_expiration(&mut self, rng: &mut ChaCha8Rng) {
        let Some(id) = self.some_job(rng) else { return };
        if self.ranks[0].node.is_none() {
            return;
        }
        let expiration = self.wall(0) + rng.random_range(-1.0..60.0);
        note!(self, "{id} may run until {expiration}");
        self.manager.set_expiration(id, expiration);
        self.schedule_commit();
        let life = self.life(0);
        let number = self.requests.open(life, life, Asked::Manager);
        let request = RequestId::Remote(number);
        self.handle(0, Event::Expiration { request, id, expiration: WallTime(expiration) });
    }

    /// Each module gets a new configuration.
    fn reconfigure(&mut self, rng: &mut ChaCha8Rng) {
        let config = Config {
            kill_timeout: rng.random_range(0.5..10.0),
            max_kill_count: rng.random_range(1..10),
            shell_exit_timeout: rng.random_bool(0.5).then_some(20.0),
            barrier_timeout: rng.random_bool(0.5).then_some(60.0),
            checkpoint_interval: rng.random_range(0.1..5.0),
            ..config(self.profile.fanout, self.site.clone())
        };
        self.note("a new configuration");
        for rank in 0..self.profile.ranks {
            let to = self.life(rank);
            self.send_event(0, to, Event::Config(Box::new(config.clone())));
        }
    }

    /// A guest asks for the barrier or the critical ranks of somebody else's job.
    fn intrude(&mut self, rank: u32, rng: &mut ChaCha8Rng) {
        let Some(id) = self.some_job(rng) else { return };
        if self.ranks[rank as usize].node.is_none() {
            return;
        }
        let life = self.life(rank);
        let number = self.requests.open(life, life, Asked::Intruder);
        self.intruders.insert(number);
        let request = RequestId::Remote(number);
        let credential = Credential { userid: STRANGER, owner: false, local: true };
        let event = if rng.random_bool(0.5) {
            let rank = BrokerRank(rank);
            Event::ShellBarrier { request, credential, id, rank, entry: None }
        } else {
            Event::CriticalRanks { request, credential, id, ranks: String::new() }
        };
        self.handle(rank, event);
    }

    /// Asks a module to go, as `flux module remove` does. It waits for its last checkpoint
    /// (`libflux::Driver::finish`), and is loaded again later.
    fn unload(&mut self, rank: u32) {
        let (life, now) = (self.life(rank), self.time(rank));
        let state = &mut self.ranks[rank as usize];
        let Some(node) = state.node.as_mut().filter(|_| !state.is_leaving) else { return };
        node.finish(now);
        let (is_finished, next) = (node.is_finished(), node.next_timeout());
        state.is_leaving = true;
        note!(self, "unload on rank {rank}");
        if is_finished {
            return self.end_unload(life);
        }
        self.at(self.now + FINISH_SECONDS, Item::Unload(life));
        if let Some(at) = next {
            self.at(at.0, Item::Timer(life));
        }
    }

    /// The module goes.
    pub(super) fn end_unload(&mut self, life: Life) {
        let rank = life.rank;
        if !self.is_alive(life) {
            return;
        }
        let mut effects = Effects::default();
        if let Some(node) = &mut self.ranks[rank as usize].node {
            node.shut_down(&mut effects);
        }
        for effect in effects.list {
            match Self::answered_by(&effect) {
                Some(index) => self.answer_message(index, effect),
                None => self.perform(life, effect),
            }
        }
        if !self.is_alive(life) {
            return; // a fault has killed it meanwhile
        }
        self.end_life(life);
        // The broker refuses requests that the module has not read.
        self.refuse_unread(rank);
        for request in self.requests.take_held_by(life) {
            self.fail_request(request, Fault::new(libc::ENOSYS, "no such service"));
        }
        for (number, request) in self.requests.asked_by(life) {
            let event = Box::new(Event::Disconnected { request: RequestId::Remote(number) });
            self.send(rank, request.holder.rank, Item::Deliver { to: request.holder, event });
        }
        self.after(0.01, 5.0, Item::Load { rank });
    }

    /// Loads another release on a rank, or the same one as elsewhere.
    pub(super) fn set_release(&mut self, rank: u32, is_other: bool) {
        let state = &mut self.ranks[rank as usize];
        if std::mem::replace(&mut state.next_is_other_release, is_other) != is_other {
            if state.node.is_none() {
                state.is_other_release = is_other;
            }
            note!(self, "rank {rank} is another release: {is_other}");
            self.unload(rank);
        }
    }

    /// Kills a broker, and every broker below it in the overlay network.
    pub(super) fn kill(&mut self, rank: u32) {
        if !self.ranks[rank as usize].broker_up {
            return;
        }
        note!(self, "kill -9 of the broker on rank {rank}");
        if rank == 0 {
            self.check_waiting();
        }
        let below: Vec<u32> =
            (0..self.profile.ranks).filter(|other| is_below(*other, rank)).collect();
        for rank in below {
            let life = self.life(rank);
            let state = &mut self.ranks[rank as usize];
            let was_up = std::mem::replace(&mut state.broker_up, false);
            (state.stalled_until, state.stopped_until) = (0.0, 0.0);
            state.held.clear();
            self.end_life(life);
            self.lose_links(rank);
            self.fail_tracked(rank);
            for request in self.requests.take_held_by(life) {
                self.fail_request(request, Fault::new(libc::EHOSTUNREACH, "No route to host"));
            }
            if was_up {
                let state = &mut self.ranks[rank as usize];
                state.brokers += 1;
                state.unnoticed = (state.brokers + rank).is_multiple_of(2);
                self.after(0.1, 20.0, Item::Load { rank });
            }
        }
        if rank == 0 {
            self.awaits_change = None;
            self.manager = self.kvs.crash();
            self.manager.restart();
        }
    }

    /// Powers a node off, with all that runs on it. It boots again.
    pub(super) fn reboot(&mut self, rank: u32, rng: &mut ChaCha8Rng) {
        self.kill(rank);
        note!(self, "the node of rank {rank} is powered off");
        if rank == 0 {
            self.manager = self.kvs.lose_unsynced();
            self.manager.restart();
        }
        let state = &mut self.ranks[rank as usize];
        state.boot += 1;
        state.booted = self.now;
        state.systemd.reboot();
        let damaged = state.disk.lose_unsynced(rng);
        let gone = self.end_processes(rank);
        self.links.retain(|id, _| id.rank != rank);
        let state = &mut self.ranks[rank as usize];
        for shell in &mut state.shells {
            shell.before_reboot = true;
            shell.record_damaged |= damaged.contains(&format!("{}.record", shell.unit.stem()));
        }
        self.forget_records(rank, &damaged);
        for name in damaged {
            note!(self, "rank {rank} has lost something of {name}");
        }
        for id in gone {
            self.handle_shell_gone(id);
        }
    }

    /// Kills a user manager, and with it all that it has started. Another one is started.
    fn end_systemd(&mut self, rank: u32) {
        note!(self, "the user manager on rank {rank} is killed");
        let lost = self.ranks[rank as usize].systemd.end();
        for id in self.end_processes(rank) {
            self.close_link(id);
            self.handle_shell_gone(id);
        }
        self.forward_from_systemd(rank);
        if !lost.is_empty() {
            self.after(0.000_1, 0.1, Item::BusClosed(self.life(rank)));
        }
        self.after(0.05, 60.0, Item::SystemdReturns(rank));
    }

    /// All processes of units end, with the manager that they were started by. Returns the shells.
    fn end_processes(&mut self, rank: u32) -> Vec<ShellId> {
        let now = self.now;
        let state = &mut self.ranks[rank as usize];
        state.managers += 1;
        state.muted = false;
        state.hangs_until = f64::NEG_INFINITY;
        state.held_news.clear();
        let mut gone = Vec::new();
        state.shells.iter_mut().for_each(|shell| shell.unit_lost = true);
        for (index, shell) in state.shells.iter_mut().enumerate().filter(|(_, s)| s.lives()) {
            (shell.lost_with_manager, shell.ended_at) = (true, now);
            gone.push(ShellId { rank, index });
        }
        for script in state.scripts.iter_mut().filter(|script| script.exited.is_none()) {
            script.lost_with_manager = true;
        }
        gone
    }

    /// A broker is killed, and files of its rank are gone when it is back.
    fn lose_files(&mut self, rank: u32, extensions: &[&str]) {
        self.kill(rank);
        let lost = self.ranks[rank as usize].disk.lose_files(extensions);
        self.note_lost(rank, &lost);
    }

    /// Somebody removes what is in the state directory. The module notices, if there is one.
    fn sweep(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let removed = state.disk.lose_files(&["record", "out", "err"]);
        for name in &removed {
            note!(self, "somebody removes {name} of rank {rank}");
        }
        let state = &mut self.ranks[rank as usize];
        state.swept.extend(removed);
        if state.supervisor.is_some() {
            self.after(0.000_1, 0.005, Item::OutputGrown(rank));
        } else {
            self.lose_swept(rank);
        }
    }

    /// Nothing is there any more that could make these files again.
    fn lose_swept(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let swept = std::mem::take(&mut state.swept).into_iter();
        let lost: Vec<String> = swept.filter(|name| !state.disk.has(name)).collect();
        if !lost.is_empty() {
            self.note_lost(rank, &lost);
        }
    }

    fn note_lost(&mut self, rank: u32, lost: &[String]) {
        let state = &mut self.ranks[rank as usize];
        state.files_lost = true;
        for shell in &mut state.shells {
            if lost.contains(&format!("{}.record", shell.unit.stem())) {
                shell.record_lost = true;
                // The record has held it.
                shell.ended_for = None;
            }
        }
        let shells = state.shells.iter().filter(|shell| shell.record_lost);
        let jobs: BTreeSet<JobId> = shells.map(|shell| shell.unit.job()).collect();
        for shell in &mut state.shells {
            shell.commits_lost |= jobs.contains(&shell.unit.job());
        }
        self.forget_records(rank, lost);
        for name in lost {
            note!(self, "rank {rank} has lost {name}");
        }
    }

    /// Nothing on the node says any more what has run for the jobs of these records.
    fn forget_records<'a>(&mut self, rank: u32, files: impl IntoIterator<Item = &'a String>) {
        let units = files.into_iter().filter_map(|file| file.strip_suffix(".record"));
        let units = units.filter_map(|stem| format!("{stem}.service").parse::<UnitName>().ok());
        let jobs: BTreeSet<JobId> = units.map(|unit| unit.job()).collect();
        let lost = self.allocations.iter().filter(|(_, known)| jobs.contains(&known.id));
        self.unrecorded.extend(lost.map(|(digest, _)| (digest.clone(), rank)));
    }

    pub(super) fn take_systemd_away(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.systemd.leave();
        self.forward_from_systemd(rank);
        self.ranks[rank as usize].muted = false;
        self.after(0.01, 3.0, Item::SystemdReturns(rank));
    }

    /// The wall clock of a rank, in seconds since the epoch.
    /// The clocks of a rank.
    pub(crate) fn time(&self, rank: u32) -> Now {
        Now { mono: MonoTime(self.now), wall: WallTime(self.wall(rank)) }
    }

    pub(super) fn wall(&self, rank: u32) -> f64 {
        1e9 + self.now + self.ranks[rank as usize].clock
    }

    fn hang_systemd(&mut self, rank: u32, rng: &mut ChaCha8Rng) {
        let seconds = rng.random_range(0.1..300.0);
        note!(self, "systemd on rank {rank} answers nothing for {seconds:.1} s");
        let until = &mut self.ranks[rank as usize].hangs_until;
        *until = until.max(self.now + seconds);
        let until = *until;
        self.at(until, Item::SystemdAnswers(rank));
    }

    /// systemd answers again, unless it has begun to hang anew.
    pub(super) fn end_hang(&mut self, rank: u32) {
        if !self.hangs(rank) {
            let held = std::mem::take(&mut self.ranks[rank as usize].held_news);
            for (connection, news) in held {
                self.send_news(rank, connection, news);
            }
        }
    }

    pub(super) fn bring_systemd_back(&mut self, rank: u32) {
        self.ranks[rank as usize].systemd.come_back();
        self.forward_from_systemd(rank);
    }

    /// The disk has space again. The supervisor writes the facts that it could not write before.
    fn end_life(&mut self, life: Life) {
        let rank = &mut self.ranks[life.rank as usize];
        rank.node = None;
        rank.is_leaving = false;
        rank.life += 1;
        rank.effects = Effects::default();
        rank.held_up.clear();
        rank.pulse = PulseWatch::default();
        self.close_bus(life.rank);
        self.lose_swept(life.rank);
        if life.rank == 0 {
            self.manager.handle_disconnect();
        }
    }

    /// Loads a module, at the start of its broker or again.
    pub(super) fn load(&mut self, rank: u32) {
        let state = &self.ranks[rank as usize];
        if state.supervisor.is_some() {
            return;
        }
        // A broker can only come up if its parent is up. A module needs systemd.
        let orphan = rank > 0 && !self.ranks[(rank as usize - 1) / 2].broker_up;
        if orphan
            || !state.systemd.is_present()
            || state.muted
            || self.hangs(rank)
            || self.is_held_up(rank)
        {
            return self.after(0.1, 5.0, Item::Load { rank });
        }
        let state = &mut self.ranks[rank as usize];
        let Some(connection) = state.systemd.connect() else { return };
        state.disk.begin_life();
        state.is_other_release = state.next_is_other_release;
        let supervisor = Supervisor::new(
            &state.disk,
            state.boot,
            BrokerRank(rank),
            connection,
            state.systemd.slices(),
        );
        let supervisor = match supervisor {
            Ok(supervisor) => supervisor,
            Err(error) => {
                note!(self, "rank {rank} does not load: {error}");
                return self.after(0.1, 5.0, Item::Load { rank });
            }
        };
        if !std::mem::replace(&mut state.broker_up, true) {
            state.up_since = self.now;
            state.kvs_unloaded = false;
            state.online_at = self.now + START_SECONDS * f64::from((state.brokers + rank) % 3);
        }
        state.supervisor = Some(supervisor);
        note!(self, "load on rank {rank}");
        self.forward_from_supervisor(rank);
    }

    /// The supervisor has seen what is left on the node: the module begins to work.
    pub(super) fn finish_load(&mut self, rank: u32, found: Vec<SupervisorEvent>) {
        let state = &mut self.ranks[rank as usize];
        let uptime = self.now - state.booted;
        let config = config(self.profile.fanout, self.site.clone());
        state.node = Some(new_node(rank, state.brokers, uptime, config));
        state.ready_at = self.now;
        for shell in state.shells.iter_mut().filter(|shell| shell.record_lost) {
            let known = state.systemd.invocation_id(&shell.unit);
            let has_record = state.disk.has(&format!("{}.record", shell.unit.stem()));
            // A full disk does not take a new one.
            shell.record_lost = !has_record;
            shell.record_damaged |= !has_record && known != Some(shell.invocation.as_str());
        }
        note!(self, "ready on rank {rank}");
        for event in found {
            self.handle(rank, Event::Supervisor(event));
        }
        let ready = SupervisorEvent::Ready { method: Method::Systemd, notice: None };
        self.handle(rank, Event::Supervisor(ready));
        self.forward_from_supervisor(rank);
        if rank == 0 {
            self.awake_since = self.now;
            self.say_hello();
            let jobs: Vec<JobId> = self.manager.jobs.keys().copied().collect();
            for id in jobs {
                // The scheduler goes on with jobs that have no resources yet.
                self.after(0.001, 1.0, Item::Allocate(id));
            }
        }
    }

    /// Ends the faults. Everything that is down comes back.
    pub(super) fn heal(&mut self) {
        self.faults.end();
        self.note("no more faults");
        self.cancel_deceived_later();
        for second in 0..FORGOTTEN_SECONDS {
            self.at(self.now + f64::from(second), Item::CheckForgotten);
        }
        for rank in 0..self.profile.ranks {
            // One that fails does so for its time: a job's end does not wait for that.
            if !self.ranks[rank as usize].disk.fails() {
                self.free_disk(rank);
            }
        }
    }

    /// Opens a request of a shell to the module of `rank`. The world keeps the shell under its
    /// number.
    pub(super) fn open_shell_request(&mut self, rank: u32) -> u64 {
        let life = self.life(rank);
        self.requests.open(life, life, Asked::Nothing)
    }
}

fn is_below(rank: u32, root: u32) -> bool {
    let mut at = rank;
    loop {
        if at == root {
            return true;
        }
        if at == 0 {
            return false;
        }
        at = (at - 1) / 2;
    }
}

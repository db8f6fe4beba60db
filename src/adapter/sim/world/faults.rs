//! Faults, and the way back from them.

use rand::Rng;

use super::{FaultKind, Item, World, new_node};
use crate::adapter::sim::fault::Profile;
use crate::adapter::sim::rank::Reported;
use crate::adapter::sim::request::{Asked, Life};
use crate::machine::{Effects, Event, Fault, RequestId};
use crate::port::supervisor::{Method, UnitEvent};
use crate::proto::JobId;

impl World {
    pub(super) fn schedule_faults(&mut self) {
        for kind in [FaultKind::Cancel, FaultKind::Kill, FaultKind::KillAll, FaultKind::Reload] {
            self.next_fault(kind);
        }
    }

    fn next_fault(&mut self, kind: FaultKind) {
        let rate = match kind {
            FaultKind::Cancel => self.profile.cancels,
            FaultKind::Kill => self.profile.kills,
            FaultKind::KillAll => self.profile.kills_of_all,
            FaultKind::Reload => self.profile.reloads,
        };
        if let Some(pause) = Profile::pause(&mut self.rng, rate) {
            self.at(self.now + pause, Item::Fault(kind));
        }
    }

    pub(super) fn fault(&mut self, kind: FaultKind) {
        if self.healed {
            return;
        }
        self.faults += 1;
        match kind {
            FaultKind::Cancel => self.cancel(),
            FaultKind::Kill if self.profile.ranks > 1 => {
                let rank = self.rng.random_range(1..self.profile.ranks);
                self.kill(rank);
            }
            FaultKind::Kill | FaultKind::KillAll => self.kill(0),
            FaultKind::Reload => {
                let rank = self.rng.random_range(0..self.profile.ranks);
                self.unload(rank);
            }
        }
        self.next_fault(kind);
    }

    fn cancel(&mut self) {
        let running = self.manager.jobs.iter().filter(|(_, job)| job.pending && !job.failed);
        let running: Vec<JobId> = running.map(|(id, _)| *id).collect();
        if running.is_empty() || !self.ranks[0].broker_up {
            return;
        }
        let id = running[self.rng.random_range(0..running.len())];
        if let Some(job) = self.manager.jobs.get_mut(&id) {
            job.failed = true;
            self.manager_changed();
        }
        self.note(&format!("cancel {id}"));
        self.publish(id, "cancel");
    }

    /// A module is unloaded as an administrator does it, and loaded again later.
    fn unload(&mut self, rank: u32) {
        let life = self.life(rank);
        if !self.is_alive(life) {
            return;
        }
        self.note(&format!("unload on rank {rank}"));
        let mut effects = Effects::default();
        if let Some(node) = &mut self.ranks[rank as usize].node {
            node.shutdown(&mut effects);
        }
        for effect in effects.list {
            self.perform(life, effect);
        }
        self.end_life(life);
        // What it had not read yet is answered by the broker.
        for request in self.requests.held_by(life) {
            self.fail(request, Fault::new(libc::ENOSYS, "no such service"));
        }
        for (number, request) in self.requests.asked_by(life) {
            let event = Event::Disconnected { request: RequestId::Remote(number) };
            let event = Box::new(event);
            self.send(rank, request.holder.rank, Item::Deliver { to: request.holder, event });
        }
        self.after(0.01, 5.0, Item::Load { rank });
    }

    /// A broker dies, and with it every broker below it in the overlay.
    pub(super) fn kill(&mut self, rank: u32) {
        if !self.ranks[rank as usize].broker_up {
            return;
        }
        self.note(&format!("kill -9 of the broker on rank {rank}"));
        let below: Vec<u32> =
            (0..self.profile.ranks).filter(|other| is_below(*other, rank)).collect();
        for rank in below {
            let life = self.life(rank);
            let was_up = std::mem::replace(&mut self.ranks[rank as usize].broker_up, false);
            self.end_life(life);
            self.lose_parked(rank);
            for request in self.requests.held_by(life) {
                self.fail(request, Fault::new(libc::EHOSTUNREACH, "No route to host"));
            }
            if was_up {
                self.ranks[rank as usize].brokers += 1;
                self.after(0.1, 20.0, Item::Load { rank });
            }
        }
        if rank == 0 {
            self.manager = self.kvs.crash();
            self.manager.restarted();
        }
    }

    fn end_life(&mut self, life: Life) {
        let rank = &mut self.ranks[life.rank as usize];
        rank.node = None;
        rank.life += 1;
        rank.reported.clear();
        rank.effects = Effects::default();
        if life.rank == 0 {
            self.manager.disconnected();
        }
    }

    /// A module is loaded: by its broker's start, or again.
    pub(super) fn load(&mut self, rank: u32) {
        let state = &self.ranks[rank as usize];
        if state.node.is_some() {
            return;
        }
        // A broker comes up only below one that is up.
        if rank > 0 && !self.ranks[(rank as usize - 1) / 2].broker_up {
            return self.after(0.1, 5.0, Item::Load { rank });
        }
        self.note(&format!("load on rank {rank}"));
        let state = &mut self.ranks[rank as usize];
        state.broker_up = true;
        state.node = Some(new_node(rank));
        let records: Vec<_> = state.records.values().cloned().collect();
        for record in records {
            let unit = record.spec.unit.clone();
            self.ranks[rank as usize].reported.insert(unit.clone(), Reported::default());
            self.handle(rank, Event::Unit(UnitEvent::Found(Box::new(record))));
            self.find(rank, &unit);
        }
        self.ready(rank);
        self.return_to_barrier(rank);
        if rank == 0 {
            let jobs: Vec<JobId> = self.manager.jobs.keys().copied().collect();
            for id in jobs {
                self.ask_for(id);
                // The scheduler goes on with what has no resources.
                self.after(0.001, 1.0, Item::Allocate(id));
            }
        }
    }

    pub(super) fn ready(&mut self, rank: u32) {
        let ready = UnitEvent::Ready { method: Method::Systemd, notice: None };
        self.handle(rank, Event::Unit(ready));
    }

    /// No more faults: what is away comes back.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.note("no more faults");
    }

    /// A request of a shell in the barrier.
    pub(super) fn shells_request(&mut self, rank: u32) -> u64 {
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

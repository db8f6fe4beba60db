//! Disks that fail, and that do not answer.

use std::time::Duration;

use job_exec_rs::machine::Event;
use job_exec_rs::port::supervisor::SupervisorEvent;
use job_exec_rs::proto::Mute;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::supervise::ANSWER_SECONDS;
use super::{Item, World};
use crate::held_up::{DiskItem, HeldUp};
use crate::request::Life;

/// How often a supervisor tries to write what its disk has not taken, in seconds.
const RETRY_SECONDS: f64 = 1.0;
/// How often a module looks whether the disk holds its supervisor up, in seconds.
const LOOK_SECONDS: f64 = 10.0;

impl World {
    pub(super) fn handle_disk_item(&mut self, item: DiskItem) {
        match item {
            DiskItem::Answers(rank) => self.end_disk_hang(rank),
            DiskItem::Freed(rank) => self.free_disk(rank),
            DiskItem::Looked(life) => self.look_at_pulse(life),
            DiskItem::Tried(rank) => self.retry_disk(rank),
        }
    }

    pub(super) fn fail_disk(&mut self, rank: u32, rng: &mut ChaCha8Rng) {
        let errno = [libc::EDQUOT, libc::EIO, libc::EMFILE, libc::EROFS][rng.random_range(0..4)];
        note!(self, "each change on the disk of rank {rank} fails with {errno}");
        self.ranks[rank as usize].disk_was_full = true;
        self.ranks[rank as usize].disk.fail_changes(Some(errno));
        self.at(self.now + rng.random_range(0.1..1000.0), Item::Disk(DiskItem::Freed(rank)));
        self.at(self.now + RETRY_SECONDS, Item::Disk(DiskItem::Tried(rank)));
    }

    pub(super) fn free_disk(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.disk.set_full(false);
        state.disk.fail_changes(None);
        if self.is_held_up(rank) {
            return;
        }
        if let Some(supervisor) = &mut self.ranks[rank as usize].supervisor {
            supervisor.core.retry_late(&mut supervisor.backend);
            self.forward_from_supervisor(rank);
        }
    }

    /// The supervisor tries to write what it could not write before.
    pub(super) fn retry_disk(&mut self, rank: u32) {
        let is_held_up = self.is_held_up(rank);
        let state = &mut self.ranks[rank as usize];
        let late = state.supervisor.as_mut().filter(|it| it.core.is_late() && !is_held_up);
        if let Some(supervisor) = late {
            supervisor.core.retry_late(&mut supervisor.backend);
            self.forward_from_supervisor(rank);
        }
        let state = &self.ranks[rank as usize];
        let is_late = state.supervisor.as_ref().is_some_and(|it| it.core.is_late());
        if state.disk.is_short() || is_late {
            self.at(self.now + RETRY_SECONDS, Item::Disk(DiskItem::Tried(rank)));
        }
    }

    pub(super) fn hang_disk(&mut self, rank: u32, rng: &mut ChaCha8Rng) {
        if self.is_held_up(rank) {
            return;
        }
        let seconds = rng.random_range(0.1..300.0);
        note!(self, "the disk of rank {rank} answers nothing for {seconds:.1} s");
        let until = self.now + seconds;
        self.ranks[rank as usize].disk_hangs = (self.now, until);
        self.at(until, Item::Disk(DiskItem::Answers(rank)));
        let life = self.life(rank);
        // It looks at intervals, so it is a little late.
        for at in [self.now + ANSWER_SECONDS + LOOK_SECONDS, until + LOOK_SECONDS] {
            self.at(at, Item::Disk(DiskItem::Looked(life)));
        }
    }

    /// Whether the disk holds the supervisor up.
    pub(crate) fn is_held_up(&self, rank: u32) -> bool {
        self.now < self.ranks[rank as usize].disk_hangs.1
    }

    /// Whether `item` waits, because the disk holds its supervisor up.
    pub(super) fn waits_for_disk(&mut self, rank: u32, item: impl FnOnce() -> HeldUp) -> bool {
        let is_held_up = self.is_held_up(rank);
        if is_held_up {
            self.ranks[rank as usize].held_up.push(item());
        }
        is_held_up
    }

    /// The supervisor does what has waited for it.
    pub(super) fn end_disk_hang(&mut self, rank: u32) {
        let life = self.life(rank);
        for item in std::mem::take(&mut self.ranks[rank as usize].held_up) {
            if self.life(rank) != life {
                return; // a fault has ended it
            }
            match item {
                HeldUp::Command(unit, command) => self.forward_command(life, unit, command),
                HeldUp::Growth => self.handle_growth(rank),
                HeldUp::News(connection, news) => self.handle_news(rank, connection, news),
            }
        }
    }

    /// The module looks whether its supervisor is held up.
    pub(super) fn look_at_pulse(&mut self, life: Life) {
        if self.life(life.rank) != life || self.ranks[life.rank as usize].node.is_none() {
            return;
        }
        if self.now < self.ranks[life.rank as usize].stalled_until {
            return; // its clock stands still
        }
        let is_held_up = self.is_held_up(life.rank);
        let state = &mut self.ranks[life.rank as usize];
        let busy_for = if is_held_up { self.now - state.disk_hangs.0 } else { 0.0 };
        let (busy_for, patience) =
            (Duration::from_secs_f64(busy_for), Duration::from_secs_f64(ANSWER_SECONDS));
        let who = Mute::Disk;
        let event = state.pulse.look(busy_for, patience).map(|is_held_up| match is_held_up {
            true => SupervisorEvent::Silent { who, what: "/state".to_string() },
            false => SupervisorEvent::Answers { who },
        });
        if let Some(event) = event {
            self.handle(life.rank, Event::Supervisor(event));
        }
        self.check_silence_told(life, busy_for >= patience);
    }
}

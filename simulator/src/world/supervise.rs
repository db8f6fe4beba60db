//! Messages between a rank's node, its supervisor (core and tracker), the bus and systemd.

use job_exec_rs::machine::Event;
use job_exec_rs::port::supervisor::{UnitCommand, UnitSpec};
use job_exec_rs::proto::UnitName;
use job_exec_rs::supervisor::tracker::{Ask, Call, News};
use rand::Rng;

use super::{Item, World};
use crate::held_up::HeldUp;
use crate::kind::FaultKind;
use crate::rank::Rank;
use crate::request::Life;
use crate::script::Moment;
use crate::systemd::{Act, SimSystemd};

/// Ways of messages that are not between two brokers begin at these numbers.
const TO_SYSTEMD: u32 = 1 << 16;
const FROM_SYSTEMD: u32 = 1 << 17;
const FROM_SUPERVISOR: u32 = 1 << 18;

/// How long systemd may leave a call without an answer, in seconds.
pub(super) const ANSWER_SECONDS: f64 = 30.0;

impl World {
    /// What happens in systemd, between it and the supervisor of its rank, and to its units.
    pub(super) fn handle_systemd_item(&mut self, item: Item) {
        match item {
            Item::Alarm { rank, manager, unit, number } => {
                let state = &mut self.ranks[rank as usize];
                state
                    .systemd
                    .handle_alarm(&unit, if state.managers == manager { number } else { u64::MAX });
                self.forward_from_systemd(rank);
            }
            Item::Ask { rank, connection, ask, spec } => {
                self.handle_ask(rank, connection, &ask, spec.as_deref());
            }
            Item::Execute { rank, manager, unit, asked } => {
                self.execute(rank, manager, &unit, asked)
            }
            Item::Fork { rank, manager, unit, asked } => self.fork(rank, manager, &unit, asked),
            Item::Hangup { rank, connection } => {
                self.ranks[rank as usize].systemd.disconnect(connection);
            }
            Item::PauseOver { rank, connection, number } => {
                self.ranks[rank as usize].systemd.handle_pause_over(connection, number);
                self.forward_from_systemd(rank);
            }
            Item::News { rank, connection, news } => self.handle_news(rank, connection, *news),
            Item::Ready { rank, manager, unit } => self.report_ready(rank, manager, &unit),
            Item::Signals(rank) => {
                self.ranks[rank as usize].systemd.send_signals();
                self.forward_from_systemd(rank);
            }
            Item::Signal { rank, unit, signal, all } => {
                self.keep_reason(rank, &unit, signal);
                self.signal(rank, &unit, signal, all);
            }
            Item::PatienceOver(life) => self.end_patience(life),
            Item::SystemdLeaves(rank) => self.take_systemd_away(rank),
            Item::SystemdAnswers(rank) => self.end_hang(rank),
            Item::SystemdReturns(rank) => self.bring_systemd_back(rank),
            _ => (), // the callers have handled the others
        }
    }

    /// Until when a supervisor is stopped that would have to handle this.
    pub(super) fn stopped_for(&self, item: &Item) -> Option<f64> {
        let rank = match item {
            Item::BusClosed(life) | Item::Connect(life) | Item::PatienceOver(life) => life.rank,
            Item::News { rank, .. } | Item::OutputGrown(rank) => *rank,
            _ => return None,
        };
        let until = self.ranks[rank as usize].stopped_until;
        (until > self.now).then_some(until)
    }

    /// Passes a node's command to its supervisor.
    pub(super) fn forward_command(&mut self, from: Life, unit: UnitName, command: UnitCommand) {
        let rank = from.rank as usize;
        let held = || HeldUp::Command(unit.clone(), command.clone());
        if self.waits_for_disk(from.rank, held) {
            return;
        }
        if let Some(id) = self.faults.draw(FaultKind::CrashInWrite) {
            let mut rng = self.faults.rng(id);
            let (after, bytes) = (rng.random_range(0..2), rng.random_range(0..60));
            self.ranks[rank].disk.crash_in_write(after, bytes);
        }
        let Some(supervisor) = &mut self.ranks[rank].supervisor else { return };
        supervisor.core.handle_command(&unit, command, &mut supervisor.backend);
        self.forward_from_supervisor(from.rank);
    }

    /// Sends the supervisor's calls to systemd, and its events to the node.
    pub(super) fn forward_from_supervisor(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let Some(supervisor) = &mut state.supervisor else { return };
        supervisor.pass_events();
        if state.disk.is_dead() {
            // The module has died in the middle of a write, so none of this is sent.
            return self.kill(rank);
        }
        // The module waits until its supervisor has seen what is left on the node.
        let is_ready = supervisor.core.is_settled();
        let events = if is_ready { supervisor.take_events() } else { Vec::new() };
        let connection = supervisor.connection;
        let asks: Vec<(Ask, Option<Box<UnitSpec>>)> = supervisor
            .backend
            .tracker
            .take_asks()
            .into_iter()
            .map(|ask| {
                let unit = if let Call::Start(unit) = &ask.call { Some(unit) } else { None };
                let spec = unit.and_then(|unit| supervisor.backend.specs.get(unit)).cloned();
                (ask, spec.map(Box::new))
            })
            .collect();
        for (ask, spec) in asks {
            note!(self, "rank {rank} -> {ask:?}");
            self.check_ask(rank, &ask);
            if ask.call == Call::Patience {
                self.at(self.now + ANSWER_SECONDS, Item::PatienceOver(self.life(rank)));
            } else if let (Some(connection), true) = (connection, ask.call == Call::Reconnect) {
                self.send_on(rank, TO_SYSTEMD, Item::Hangup { rank, connection });
                self.handle_bus_closed(self.life(rank));
            } else if let Some(connection) = connection {
                let ask = Box::new(ask);
                self.send_on(rank, TO_SYSTEMD, Item::Ask { rank, connection, ask, spec });
            }
        }
        if is_ready && self.ranks[rank as usize].node.is_none() {
            return self.finish_load(rank, events);
        }
        let to = self.life(rank);
        for event in events {
            let event = Box::new(Event::Supervisor(event));
            self.send_on(rank, FROM_SUPERVISOR, Item::Deliver { to, event });
        }
    }

    /// Closes the bus connection of a module that is gone. The bus notices after it has read what
    /// the module sent before.
    pub(super) fn close_bus(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let supervisor = state.supervisor.take();
        if supervisor.as_ref().is_some_and(|it| it.core.is_late()) {
            state.facts_lost = true;
            // What is lost can be that a shell has left a barrier, in which another waits for it.
            let left = state.shells.iter().filter(|shell| shell.released > 0);
            let left: Vec<_> = left
                .map(|it| (it.unit.job(), it.digest.clone(), it.released, it.works()))
                .collect();
            let waits = |digest: &str, released| {
                let mut shells = self.ranks.iter().flat_map(|rank| rank.shells_of(digest));
                shells.any(|shell| shell.works() && shell.released < released)
            };
            let is_hurt = |(_, digest, released, works): &(_, String, _, _)| {
                *works || waits(digest, *released)
            };
            let jobs: Vec<_> = left.into_iter().filter(is_hurt).map(|(id, ..)| id).collect();
            self.messages.deceived.extend(jobs);
        }
        if let Some(connection) = supervisor.and_then(|supervisor| supervisor.connection) {
            self.send_on(rank, TO_SYSTEMD, Item::Hangup { rank, connection });
        }
    }

    pub(super) fn handle_ask(
        &mut self,
        rank: u32,
        connection: u64,
        ask: &Ask,
        spec: Option<&UnitSpec>,
    ) {
        // Half of the calls that are not answered are not carried out either.
        if self.hangs(rank) && ask.number.is_multiple_of(2) && is_of_systemd(&ask.call) {
            return;
        }
        self.ranks[rank as usize].systemd.handle_ask(connection, ask, spec);
        self.forward_from_systemd(rank);
    }

    /// Sends systemd's news to the supervisor, and schedules what systemd does to processes.
    pub(super) fn forward_from_systemd(&mut self, rank: u32) {
        if self.ranks[rank as usize].systemd.has_signals() {
            self.after(0.000_1, 0.1, Item::Signals(rank));
        }
        let muted = self.ranks[rank as usize].muted;
        for (connection, news) in self.ranks[rank as usize].systemd.take_news() {
            let news = match news {
                News::Answer { number, .. } if muted => SimSystemd::no_reply(number),
                News::Changed { .. } | News::Reloading(_) if muted => continue,
                news => news,
            };
            match news {
                News::Answer { .. } if self.hangs(rank) => {}
                News::Changed { .. } | News::Reloading(_) if self.hangs(rank) => {
                    self.ranks[rank as usize].held_news.push((connection, news));
                }
                news => self.send_news(rank, connection, news),
            }
        }
        for act in self.ranks[rank as usize].systemd.take_acts() {
            match act {
                Act::Alarm { unit, number, after } => {
                    let manager = self.ranks[rank as usize].managers;
                    let at = self.now + after.as_secs_f64();
                    self.at(at, Item::Alarm { rank, manager, unit, number });
                }
                Act::Later { connection, number } => {
                    self.after(0.5, 2.0, Item::PauseOver { rank, connection, number });
                }
                Act::Run(unit) => {
                    let slow = self.faults.draw(FaultKind::StartIsSlow).is_some();
                    let most = if slow { 60.0 } else { self.profile.start_seconds };
                    let Rank { managers: manager, clock, .. } = self.ranks[rank as usize];
                    let asked = Moment { at: self.now, clock };
                    self.after(0.005, most, Item::Fork { rank, manager, unit, asked });
                }
                Act::Signal { unit, signal, all } => {
                    self.after(0.000_1, 0.01, Item::Signal { rank, unit, signal, all });
                }
            }
        }
    }

    pub(super) fn send_news(&mut self, rank: u32, connection: u64, news: News) {
        let news = Box::new(news);
        self.send_on(rank, FROM_SYSTEMD, Item::News { rank, connection, news });
    }

    /// Whether systemd takes calls and answers none.
    pub(super) fn hangs(&self, rank: u32) -> bool {
        self.now < self.ranks[rank as usize].hangs_until
    }

    /// systemd hangs, or has a moment ago: what it was asked then is asked again after that time.
    pub(crate) fn was_silent(&self, rank: u32) -> bool {
        let state = &self.ranks[rank as usize];
        self.now < state.hangs_until.max(state.disk_hangs.1) + 2.0 * ANSWER_SECONDS
    }

    /// A rank's supervisor has a connection to systemd, which passes on all calls, and knows its units.
    pub(crate) fn reaches_systemd(&self, rank: u32) -> bool {
        let state = &self.ranks[rank as usize];
        let supervisor = state.supervisor.as_ref();
        !self.is_held_up(rank)
            && state.systemd.passes_all()
            && supervisor.is_some_and(|supervisor| supervisor.backend.tracker.is_ready())
    }

    /// The tracker has been patient for long enough.
    pub(super) fn end_patience(&mut self, life: Life) {
        if self.life(life.rank) != life {
            return;
        }
        if self.is_held_up(life.rank) {
            let until = self.ranks[life.rank as usize].disk_hangs.1;
            return self.at(until, Item::PatienceOver(life));
        }
        if let Some(supervisor) = &mut self.ranks[life.rank as usize].supervisor {
            supervisor.backend.tracker.handle_news(News::PatienceOver);
            self.forward_from_supervisor(life.rank);
        }
    }

    pub(super) fn handle_news(&mut self, rank: u32, connection: u64, news: News) {
        if self.waits_for_disk(rank, || HeldUp::News(connection, news.clone())) {
            return;
        }
        let Some(supervisor) = &mut self.ranks[rank as usize].supervisor else { return };
        let of_the_kernel = matches!(news, News::Emptied { .. });
        if supervisor.connection == Some(connection) || of_the_kernel {
            if self.transcript.is_some() {
                note!(self, "rank {rank} <- {news:?}");
            }
            if let Some(supervisor) = &mut self.ranks[rank as usize].supervisor {
                supervisor.backend.tracker.handle_news(news);
            }
            self.forward_from_supervisor(rank);
        }
    }

    /// The connection to the bus is lost. The supervisor tries to connect again.
    pub(super) fn handle_bus_closed(&mut self, life: Life) {
        if self.life(life.rank) != life {
            return;
        }
        let Some(supervisor) = &mut self.ranks[life.rank as usize].supervisor else { return };
        if supervisor.connection.take().is_some() {
            supervisor.backend.tracker.handle_lost();
            self.forward_from_supervisor(life.rank);
            self.after(0.01, 1.0, Item::Connect(life));
        }
    }

    pub(super) fn connect_bus(&mut self, life: Life) {
        if self.life(life.rank) != life {
            return;
        }
        let state = &mut self.ranks[life.rank as usize];
        let Some(supervisor) = &mut state.supervisor else { return };
        let hangs = self.now < state.hangs_until;
        match state.systemd.connect().filter(|_| !hangs) {
            Some(connection) => {
                supervisor.connection = Some(connection);
                supervisor.backend.tracker.handle_connected();
                self.forward_from_supervisor(life.rank);
            }
            None => self.after(0.05, 5.0, Item::Connect(life)),
        }
    }
}

/// Whether systemd carries the call out, and neither the bus nor the kernel.
fn is_of_systemd(call: &Call) -> bool {
    matches!(call, Call::Kill { .. } | Call::List | Call::Reset(_) | Call::Start(_) | Call::Stop(_))
}

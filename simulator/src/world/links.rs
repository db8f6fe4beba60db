//! The connections of shells to their brokers, with the real resume connector. A socket ends with
//! its broker. The broker passes requests on to its module, to rank 0's coordinator or to the KVS.

use std::iter;

use job_exec_rs::machine::{Credential, Event, Fault, RequestId, Topic};
use job_exec_rs::proto::{BarrierEntry, BrokerRank, JobId};
use rand::Rng;
use resume_machine::{Connector, Limits, Options, Packet, SendError};
use serde_json::{Value, json};

use super::talks::is_between_shells;
use super::{Item, World};
use crate::kind::FaultKind;
use crate::packet::SimPacket;
use crate::rank::OWNER;
use crate::shell::ShellId;

pub(super) const SERVICE_ADD: &str = "service.add";
pub(super) const SERVICE_REMOVE: &str = "service.remove";
const RUN_AWAITED: &str = "state-machine.wait";
const OFFLINE: &str = "Upstream Flux broker is offline. Try again later.";
/// Ways of sockets begin at this number, above those of ranks. No message overtakes another on a
/// socket.
const SOCKETS: u32 = 1 << 16;
/// How many commits a connector keeps. A shell makes few commits. With this limit the connector
/// still asks for checkpoints, and keeps all commits of its shell, so it drops none while nobody
/// answers.
const COMMITS_MAX: usize = 2400;

/// The connection of one shell.
pub(super) struct Link {
    connector: Connector<SimPacket>,
    is_connected: bool,
    /// Counts the connections of this shell. Messages on an earlier connection reach nobody.
    number: u64,
    armed: Option<f64>,
    /// The service that its broker has registered for this connection.
    service: Option<String>,
}

/// A shell that waits for an answer, and its request.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(super) shell: ShellId,
    pub(super) number: u64,
    pub(super) packet: SimPacket,
}

impl World {
    /// Connects a shell, or lets it wait for its broker.
    pub(super) fn open_link(&mut self, id: ShellId) {
        let state = &self.ranks[id.rank as usize];
        let (is_connected, listener) = (state.broker_up, state.brokers);
        let uri = self.shell(id).uri.clone();
        let uri = uri.strip_prefix("resume://").unwrap_or(&uri);
        let options = match Options::read(uri, None, None) {
            Ok(options) => options,
            Err(error) => return self.violate("bounded", format!("a shell's URI: {error}")),
        };
        let limits = Limits { commits_max: COMMITS_MAX, ..options.limits };
        let connector = Connector::new(self.rng.random(), limits, is_connected, self.now)
            .on_rank(options.rank)
            .of_run(options.run)
            .met_its_broker(options.broker == Some(listener));
        let link = Link { connector, is_connected, number: 0, armed: None, service: None };
        self.links.insert(id, link);
        self.forward_from_link(id);
    }

    /// Sends a request of a shell. Returns false if the connector has no room.
    pub(super) fn send_from_shell(&mut self, id: ShellId, packet: SimPacket) -> bool {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return false };
        match link.connector.send(now, packet) {
            Ok(()) => {
                self.forward_from_link(id);
                true
            }
            Err(SendError::Full) => false,
            Err(error) => {
                self.violate("bounded", format!("a shell's connection has ended: {error:?}"));
                false
            }
        }
    }

    /// Carries out what the connector wants: messages to the broker and to the shell, a new
    /// connection, a timer.
    fn forward_from_link(&mut self, id: ShellId) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        let (number, is_connected) = (link.number, link.is_connected);
        let out: Vec<SimPacket> = std::iter::from_fn(|| link.connector.for_broker()).collect();
        let heard: Vec<SimPacket> = std::iter::from_fn(|| link.connector.for_client()).collect();
        let wants_link = link.connector.wants_link(now);
        if wants_link {
            link.connector.connecting();
        }
        let next = link.connector.next_timeout().filter(|at| link.armed != Some(*at));
        if next.is_some() {
            link.armed = next;
        }
        for packet in out.into_iter().filter(|_| is_connected) {
            let way = (SOCKETS + id.rank, id.index as u32);
            self.send_on(way.0, way.1, Item::ToBroker { id, number, packet });
        }
        if wants_link {
            self.after(0.000_1, 0.01, Item::LinkTried(id));
        }
        if let Some(at) = next {
            self.at(at, Item::LinkTimer(id));
        }
        for packet in heard {
            self.handle_at_shell(id, &packet);
        }
        if let Some(status) = self.shell(id).closing
            && !self.is_lingering(id)
        {
            self.after(0.000_1, 0.001, Item::EndShell { id, status });
        }
    }

    pub(super) fn handle_link_timer(&mut self, id: ShellId) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        link.armed = None;
        link.connector.timeout(now);
        self.forward_from_link(id);
    }

    /// A try to connect has succeeded or failed.
    pub(super) fn end_connecting(&mut self, id: ShellId) {
        let now = self.now;
        let is_up = self.ranks[id.rank as usize].broker_up;
        let Some(link) = self.links.get_mut(&id) else { return };
        if is_up {
            link.number += 1;
            link.is_connected = true;
            link.connector.connected();
        } else {
            link.connector.refused(now, libc::ECONNREFUSED);
        }
        self.forward_from_link(id);
    }

    /// A shell is about to close its connection.
    pub(super) fn begin_closing(&mut self, id: ShellId) {
        let now = self.now;
        if let Some(link) = self.links.get_mut(&id) {
            link.connector.closing(now);
            self.forward_from_link(id);
        }
    }

    /// Whether a shell that closes its connection still waits for others.
    pub(super) fn is_lingering(&self, id: ShellId) -> bool {
        self.links.get(&id).is_some_and(|link| link.connector.is_lingering())
    }

    /// Ends the connection of a shell that is gone.
    pub(super) fn close_link(&mut self, id: ShellId) {
        self.links.remove(&id);
    }

    /// Ends all connections to a broker that is gone.
    pub(super) fn lose_links(&mut self, rank: u32) {
        let now = self.now;
        self.barriers.retain(|_, waiter| waiter.shell.rank != rank);
        self.bequests.retain(|_, waiter| waiter.shell.rank != rank);
        self.checkpoints.retain(|_, waiter| waiter.shell.rank != rank && rank != 0);
        let shells: Vec<ShellId> =
            self.links.keys().filter(|id| id.rank == rank).copied().collect();
        for id in shells {
            if let Some(link) = self.links.get_mut(&id)
                && std::mem::take(&mut link.is_connected)
            {
                link.service = None;
                link.connector.lost(now);
            }
            self.forward_from_link(id);
        }
    }

    /// A shell's message arrives at its broker.
    pub(super) fn handle_at_broker(&mut self, id: ShellId, number: u64, packet: SimPacket) {
        let current = |link: &&Link| link.is_connected && link.number == number;
        if self.links.get(&id).filter(current).is_none() {
            return;
        }
        if !packet.is_request() {
            return self.pass_back(id.rank, packet);
        }
        let online_at = self.ranks[id.rank as usize].online_at;
        if self.now < online_at {
            return self.put_off(id, number, &packet, online_at);
        }
        let waiter = Waiter { shell: id, number, packet };
        if is_between_shells(&waiter.packet) {
            return self.pass_on(waiter);
        }
        match waiter.packet.topic.as_str() {
            RUN_AWAITED if self.ranks[id.rank as usize].kvs_unloaded => {
                self.answer_shell(&waiter, Err(libc::ENOENT));
            }
            // A simulated broker is in state RUN as soon as it takes requests.
            RUN_AWAITED => self.answer_shell(&waiter, Ok(json!({}))),
            SERVICE_ADD => self.add_service(&waiter),
            // It goes on hearing others until it closes its connection: its tasks may not have ended.
            SERVICE_REMOVE => self.answer_shell(&waiter, Ok(json!({}))),
            "job-exec.shell-barrier" => self.handle_barrier_request(waiter),
            "job-exec.keep-commits" => self.handle_bequest(&waiter),
            _ if self.lacks_kvs(&waiter) => self.answer_shell(&waiter, Err(libc::ENOSYS)),
            _ => self.send(id.rank, 0, Item::ToRank0(Box::new(waiter))),
        }
    }

    /// Whether the broker refuses a request to the KVS because it has unloaded that. It passes on what
    /// is not for its own rank (flux-core `broker.c`, `broker_request_sendmsg_new_internal`), but not
    /// what the KVS has not read when it is unloaded (`libflux/module.c`, `respond_to_unhandled`).
    fn lacks_kvs(&mut self, waiter: &Waiter) -> bool {
        let rank = waiter.shell.rank;
        let is_commit = waiter.packet.topic == "kvs.commit";
        if rank == 0 || !waiter.packet.topic.starts_with("kvs.") {
            return false;
        }
        if self.ranks[rank as usize].kvs_unloaded {
            return waiter.packet.rank() == Some(rank);
        }
        let is_unloaded = is_commit && self.faults.draw(FaultKind::KvsUnloaded).is_some();
        if is_unloaded {
            let state = &mut self.ranks[rank as usize];
            state.kvs_unloaded = true;
            let brokers = state.brokers;
            self.after(0.01, 5.0, Item::ShutDown(rank, brokers));
        }
        is_unloaded
    }

    /// A broker has shut down, if it is still the same.
    pub(super) fn end_shutdown(&mut self, rank: u32, brokers: u32) {
        if self.ranks[rank as usize].brokers == brokers {
            self.kill(rank);
        }
    }

    /// A broker that is only just starting takes no requests (flux-core `broker/modhash.c`).
    fn put_off(&mut self, id: ShellId, number: u64, packet: &SimPacket, online_at: f64) {
        if packet.topic == RUN_AWAITED {
            let packet = packet.answer("{}");
            return self.at(online_at, Item::FromBroker { id, number, packet });
        }
        if !packet.header().noresponse {
            self.send_to_link(id, number, packet.refusal(libc::EAGAIN, OFFLINE));
        }
    }

    /// Registers a service for the connection. A name belongs to one connection at a time.
    fn add_service(&mut self, waiter: &Waiter) {
        let name = waiter.packet.json()["service"].as_str().map(str::to_string);
        let owner = name.as_ref().and_then(|name| self.connection_of(waiter.shell.rank, name));
        if owner.is_some() {
            return self.answer_shell(waiter, Err(libc::EEXIST));
        }
        if let Some(link) = self.links.get_mut(&waiter.shell) {
            link.service = name;
        }
        self.answer_shell(waiter, Ok(json!({})));
    }

    /// The connection on this rank that has the service, and its number.
    pub(super) fn connection_of(&self, rank: u32, service: &str) -> Option<(ShellId, u64)> {
        let first = ShellId { rank, index: 0 };
        let last = ShellId { rank, index: usize::MAX };
        let mut links = self.links.range(first..=last);
        let (id, link) = links.find(|(_, link)| link.service.as_deref() == Some(service))?;
        Some((*id, link.number))
    }

    /// Where a request for the module is handled: a broker without it passes the request on to its
    /// parent.
    fn nearest_module(&self, rank: u32) -> Option<u32> {
        let mut way = iter::successors(Some(rank), |at| at.checked_sub(1).map(|at| at / 2));
        way.find(|at| self.ranks[*at as usize].node.is_some())
    }

    fn handle_barrier_request(&mut self, waiter: Waiter) {
        let rank = waiter.shell.rank;
        let Some(at) = self.nearest_module(rank) else {
            return self.answer_shell(&waiter, Err(libc::ENOSYS));
        };
        let entry = serde_json::from_slice::<BarrierEntry>(waiter.packet.payload()).ok();
        let id = self.shell(waiter.shell).unit.job();
        let credential = self.credential(waiter.shell);
        let number = self.open_shell_request(at);
        self.barriers.insert(number, waiter);
        let (request, rank) = (RequestId::Remote(number), BrokerRank(rank));
        self.handle(at, Event::ShellBarrier { request, credential, id, rank, entry });
    }

    /// The module answers at once. Other modules do not hear of it, because it names its rank.
    fn handle_bequest(&mut self, waiter: &Waiter) {
        let rank = waiter.shell.rank;
        if waiter.packet.rank() != Some(rank) || self.ranks[rank as usize].node.is_none() {
            return self.answer_shell(waiter, Err(libc::ENOSYS));
        }
        let credential = self.credential(waiter.shell);
        let number = self.open_shell_request(rank);
        self.bequests.insert(number, waiter.clone());
        let payload = waiter.packet.payload();
        match Topic::KeepCommits.read(RequestId::Remote(number), credential, payload) {
            Ok(event) => self.handle(rank, event),
            Err(fault) => self.violate("bounded", format!("a bequest cannot be read: {fault}")),
        }
    }

    /// Passes the agent's answer to a shell that leaves commits. Returns false if no shell waits
    /// with this number.
    pub(super) fn answer_bequest(&mut self, number: u64, result: &Result<(), Fault>) -> bool {
        let Some(waiter) = self.bequests.remove(&number) else { return false };
        self.requests.close(number);
        if result.is_ok() && self.faults.draw(FaultKind::KilledAtHandover).is_some() {
            self.kill(0);
            return true;
        }
        let answer = result.as_ref().map(|()| json!({})).map_err(|fault| fault.errnum);
        self.answer_shell(&waiter, answer);
        true
    }

    /// Whom a shell runs as: the user of its job.
    fn credential(&self, id: ShellId) -> Credential {
        let userid = self.user_of(&self.shell(id).digest);
        Credential { userid, owner: userid == OWNER, local: true }
    }

    /// Refuses barrier requests and bequests (on rank 0 also requests for a checkpoint) that an
    /// unloaded module has not answered.
    pub(super) fn refuse_unread(&mut self, rank: u32) {
        let requests = &self.requests;
        let mut unread: Vec<Waiter> = Vec::new();
        for waiting in [&mut self.barriers, &mut self.bequests] {
            waiting.retain(|number, waiter| {
                let stays = requests.holder(*number).is_none_or(|holder| holder.rank != rank);
                unread.extend((!stays).then(|| waiter.clone()));
                stays
            });
        }
        if rank == 0 {
            unread.extend(std::mem::take(&mut self.checkpoints).into_values());
        }
        for waiter in unread {
            self.answer_shell(&waiter, Err(libc::ENOSYS));
        }
    }

    pub(super) fn answer_barrier(&mut self, number: u64, result: &Result<(), Fault>) {
        self.requests.close(number);
        self.check_intruder(number, result.is_ok());
        if let Some(waiter) = self.barriers.remove(&number) {
            let answer = result.as_ref().map(|()| json!({})).map_err(|fault| fault.errnum);
            self.answer_shell(&waiter, answer);
        }
    }

    /// A shell's message arrives at rank 0, for the KVS or the coordinator.
    pub(super) fn handle_at_rank_0(&mut self, waiter: Waiter) {
        if !self.ranks[0].broker_up {
            return;
        }
        if waiter.packet.topic == "job-exec.checkpoint" {
            return self.handle_checkpoint_request(waiter);
        }
        let payload = waiter.packet.json();
        let name = payload["namespace"].as_str().unwrap_or_default().to_string();
        let id = name.strip_prefix("job-").and_then(|id| id.parse().ok()).map(JobId);
        let answer = id.ok_or(libc::EINVAL).and_then(|id| match waiter.packet.topic.as_str() {
            "kvs.commit" => self.kvs.handle_client_commit(id, &payload),
            "kvs.lookup-plus" => self.kvs.handle_client_lookup(id, &payload),
            _ => Err(libc::ENOSYS),
        });
        let Waiter { shell, packet, .. } = &waiter;
        note!(self, "shell {} of rank {} asks {packet:?}: {answer:?}", shell.index, shell.rank);
        self.send(0, waiter.shell.rank, Item::ToShell(Box::new(waiter), answer));
    }

    fn handle_checkpoint_request(&mut self, waiter: Waiter) {
        if self.ranks[0].node.is_none() {
            let rank = waiter.shell.rank;
            return self.send(0, rank, Item::ToShell(Box::new(waiter), Err(libc::ENOSYS)));
        }
        let id = self.shell(waiter.shell).unit.job();
        let credential = self.credential(waiter.shell);
        let number = self.open_shell_request(0);
        self.checkpoints.insert(number, waiter);
        let request = RequestId::Remote(number);
        self.handle(0, Event::CheckpointAsked { request, credential, id });
    }

    /// Passes the coordinator's answer to a shell. Returns false if no shell waits with this
    /// number.
    pub(super) fn answer_checkpoint(&mut self, number: u64, result: &Result<(), Fault>) -> bool {
        let Some(waiter) = self.checkpoints.remove(&number) else { return false };
        let answer = result.as_ref().map(|()| json!({})).map_err(|fault| fault.errnum);
        self.send(0, waiter.shell.rank, Item::ToShell(Box::new(waiter), answer));
        true
    }

    /// Sends an answer to a shell over its socket. If the shell has connected again since it asked,
    /// the answer is dropped on arrival.
    pub(super) fn answer_shell(&mut self, waiter: &Waiter, answer: Result<Value, i32>) {
        let packet = match answer {
            Ok(payload) => waiter.packet.answer(&payload.to_string()),
            Err(errnum) => waiter.packet.refusal(errnum, "no"),
        };
        self.send_to_link(waiter.shell, waiter.number, packet);
    }

    /// A broker sends a message over a connection of its client.
    pub(super) fn send_to_link(&mut self, id: ShellId, number: u64, packet: SimPacket) {
        let way = (SOCKETS + SOCKETS + id.rank, id.index as u32);
        self.send_on(way.0, way.1, Item::FromBroker { id, number, packet });
    }

    pub(super) fn handle_at_link(&mut self, id: ShellId, number: u64, packet: SimPacket) {
        let now = self.now;
        let twice = self.rng.random_ratio(1, 20);
        let Some(link) = self.links.get_mut(&id) else { return };
        if !link.is_connected || link.number != number {
            return;
        }
        if twice {
            link.connector.receive(now, packet.clone());
        }
        link.connector.receive(now, packet);
        self.forward_from_link(id);
    }
}

//! All roles of one rank.

use std::collections::{BTreeMap, VecDeque};

use crate::config::Config;
use crate::machine::agent::Agent;
use crate::machine::context::{Context, Facts, Now, Silent, SupervisorState};
use crate::machine::coordinator::Coordinator;
use crate::machine::effect::{Effect, Effects};
use crate::machine::event::{Event, RequestId, Role, StreamId};
use crate::machine::leader::Leader;
use crate::machine::mono_time::MonoTime;
use crate::machine::recently_ended::RecentlyEnded;
use crate::machine::schedule::{Schedule, Waiter};
use crate::port::supervisor::{Method, SupervisorEvent};
use crate::proto::peer::{LeadRequest, StreamEnd, StreamName};
use crate::proto::{BrokerRank, JobId, Mute};
use counts::Counts;
use ledger::Ledger;
use unreadable::Unreadable;

mod counts;
mod inputs;
mod ledger;
mod routes;
mod scripts;
mod silence;
mod stats;
mod systemd;
mod unreadable;

/// Makes a [`Context`](crate::machine::context::Context) without borrowing the whole node.
macro_rules! context {
    ($node:ident, $now:ident) => {
        Context {
            now: $now,
            born: $node.born.unwrap_or($now),
            config: &$node.config,
            facts: &$node.facts,
            shells_survive: $node.supervisor == SupervisorState::Ready(Method::Systemd),
            silent: $node.silent.iter().next(),
        }
    };
}
use context;

/// Where the answers of a stream go.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Route {
    role: Role,
    id: JobId,
    /// The rank that was asked, if it is another one and has said nothing yet.
    silent: Option<BrokerRank>,
}

/// The roles of one rank.
pub struct Node {
    config: Config,
    facts: Facts,
    pub(super) coordinator: Coordinator,
    pub(super) leaders: BTreeMap<JobId, Leader>,
    pub(super) agents: BTreeMap<JobId, Agent>,
    routes: BTreeMap<StreamId, Route>,
    /// Streaming requests of other ranks that are open here.
    held: BTreeMap<RequestId, (BrokerRank, StreamName)>,
    /// Jobs that are over: requests for their shells are late ones.
    recently_ended: RecentlyEnded,
    /// Jobs whose record on this rank only a later release can read.
    unreadable: Unreadable,
    pub(super) schedule: Schedule,
    /// When the first event came. A coordinator knows its jobs only after a while.
    born: Option<Now>,
    /// Requests to lead that came before the supervisor had looked at what is on the node.
    pub(super) early: Vec<(RequestId, Box<LeadRequest>)>,
    counts: Counts,
    ledger: Ledger,
    supervisor: SupervisorState,
    notice: Option<String>,
    /// systemd does not answer.
    silent: BTreeMap<Mute, Silent>,
}

impl Node {
    /// A node without jobs.
    pub fn new(config: Config, facts: Facts) -> Self {
        Self {
            config,
            facts,
            coordinator: Coordinator::default(),
            leaders: BTreeMap::new(),
            agents: BTreeMap::new(),
            routes: BTreeMap::new(),
            held: BTreeMap::new(),
            recently_ended: RecentlyEnded::default(),
            unreadable: Unreadable::default(),
            schedule: Schedule::default(),
            born: None,
            early: Vec::new(),
            counts: Counts::default(),
            ledger: Ledger::default(),
            supervisor: SupervisorState::Starting,
            notice: None,
            silent: BTreeMap::new(),
        }
    }

    /// The facts it was made with.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When [`Event::Timeout`] is due, in monotonic seconds.
    pub fn next_timeout(&self) -> Option<MonoTime> {
        self.schedule.next()
    }

    /// Handles one event, and all events that its effects cause on this rank.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Effects) {
        self.handle_watched(now, event, out, |_, _| ());
    }

    /// The same, and `watch` sees each event before it is handled: also those that one role of
    /// this rank sends to another.
    pub fn handle_watched(
        &mut self,
        now: Now,
        event: Event,
        out: &mut Effects,
        mut watch: impl FnMut(&Self, &Event),
    ) {
        let mut queue = VecDeque::from([event]);
        while let Some(event) = queue.pop_front() {
            watch(self, &event);
            let done = out.list.len();
            let jobs = self.jobs_of(now, &event);
            self.dispatch(now, event, out);
            self.ledger.unwanted += std::mem::take(&mut out.unwanted);
            for id in jobs {
                self.settle(now, id);
            }
            self.schedule.set(Waiter::Checkpoint, self.coordinator.next_checkpoint());
            if self.supervisor != SupervisorState::Starting {
                let early = self.early.drain(..);
                queue.extend(early.map(|(request, lead)| Event::Lead { request, lead }));
            }
            let fresh = out.list.split_off(done);
            for effect in fresh {
                self.route(now, effect, &mut queue, out);
            }
        }
    }

    /// The supervisor has not told yet what it has found.
    pub(super) fn is_starting(&self) -> bool {
        self.supervisor == SupervisorState::Starting
    }

    /// The role whose stream of reports, or whose question, the event is about.
    #[cfg(any(test, feature = "coverage"))]
    pub(super) fn role_of(&self, event: &Event) -> Option<Role> {
        use crate::proto::peer::Question;
        match event {
            // A child asks its parent, not the coordinator.
            Event::Known { asked, .. } if asked.question != Question::Manager => Some(Role::Agent),
            Event::Known { .. } => Some(Role::Coordinator),
            Event::KnownAnswered { asker, .. } | Event::Told { asker, .. } => Some(*asker),
            Event::Reported { stream, .. } => self.routes.get(stream).map(|route| route.role),
            _ => None,
        }
    }

    /// The jobs that an event can touch.
    pub(super) fn jobs_of(&self, now: Now, event: &Event) -> Vec<JobId> {
        match event {
            // The checkpoint may begin, or not be due any more.
            Event::Held { .. }
            | Event::ReleaseKept { .. }
            | Event::CheckpointBegun
            | Event::Checkpointed(_) => {
                self.coordinator.gated().into_iter().chain(event.job()).collect()
            }
            Event::Replied { stream, .. } | Event::Reported { stream, .. } => {
                self.routes.get(stream).map(|route| route.id).into_iter().collect()
            }
            // A user can have many of these, so no job is looked at for them.
            Event::Disconnected { request } if self.coordinator.has_asked(*request) => Vec::new(),
            Event::Disconnected { .. } | Event::Supervisor(SupervisorEvent::Silent { .. }) => {
                self.agents.keys().copied().collect()
            }
            Event::Timeout => {
                let due = self.schedule.due(now.mono).into_iter();
                let jobs = due.filter_map(|waiter| match waiter {
                    Waiter::Agent(id) | Waiter::Coordinator(id) | Waiter::Leader(id) => Some(id),
                    Waiter::Checkpoint | Waiter::Ledger | Waiter::Stream(_) | Waiter::Systemd => {
                        None
                    }
                });
                jobs.chain(self.coordinator.gated()).collect()
            }
            event => event.job().into_iter().collect(),
        }
    }

    /// Drops the roles that have ended, and schedules the others.
    fn settle(&mut self, now: Now, id: JobId) {
        if self.leaders.get(&id).is_some_and(Leader::is_over) {
            self.leaders.remove(&id);
        }
        let cx = context!(self, now);
        if self.agents.get(&id).is_some_and(|agent| agent.is_done(cx))
            && let Some(agent) = self.agents.remove(&id)
            && let Some(digest) = agent.over_digest()
        {
            self.recently_ended.insert(now.mono, id, digest);
        }
        let leader = self.leaders.get(&id).and_then(Leader::next_timeout);
        let agent = self.agents.get(&id).and_then(Agent::next_timeout);
        self.schedule.set(Waiter::Leader(id), leader);
        self.schedule.set(Waiter::Agent(id), agent);
        self.schedule.set(Waiter::Coordinator(id), self.coordinator.next_timeout(id));
    }

    /// The module is about to be unloaded. On rank 0 one more checkpoint is made; until then
    /// [`Self::is_finished`] is false.
    pub fn finish(&mut self, now: Now) {
        let cx = context!(self, now);
        if cx.facts.rank != BrokerRank(0) {
            return;
        }
        self.coordinator.make_last_checkpoint(cx);
        self.schedule.set(Waiter::Checkpoint, self.coordinator.next_checkpoint());
    }

    /// Nothing is to be waited for before [`Self::shut_down`].
    pub fn is_finished(&self) -> bool {
        self.coordinator.is_last_checkpoint_made()
    }

    /// The module is being unloaded: tells the peers, and answers all requests.
    pub fn shut_down(&mut self, out: &mut Effects) {
        for leader in self.leaders.values_mut() {
            leader.shut_down(out);
        }
        for agent in self.agents.values_mut() {
            agent.shut_down(out);
        }
        let shells_survive = self.supervisor == SupervisorState::Ready(Method::Systemd);
        self.coordinator.shut_down(shells_survive, out);
        self.unreadable.shut_down(out);
        for (to, _) in self.early.drain(..) {
            out.end(to, StreamEnd::Unloaded);
        }
        out.list.retain(|effect| match effect {
            Effect::Answer { to, .. } => matches!(to, RequestId::Remote(_)),
            _ => true,
        });
    }
}

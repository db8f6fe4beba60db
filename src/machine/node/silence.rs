//! Requests to other ranks that may be lost.
//!
//! flux-core 0.88.0 does not answer the request with which a broker finds out that a child is dead
//! (`rfc/0008-recovery.md`, 8.5). So a rank that says nothing is asked whether it has the request.
//! Messages between two ranks arrive in order: if the rank has not got the request before the
//! question, it never will.

use super::{Node, Route};
use crate::machine::context::Now;
use crate::machine::effect::Effects;
use crate::machine::event::{Fault, RequestId, Role, StreamId};
use crate::machine::schedule::Waiter;
use crate::proto::peer::{Question, StreamEnd, StreamName};
use crate::proto::{BrokerRank, JobDigest, JobId};

/// How long a rank may say nothing before it is asked, and asked again, in seconds.
const SILENCE_SECONDS: f64 = 10.0;

impl Node {
    /// The name of the stream that would be number 0. A module makes fewer streams than
    /// microseconds go by, so those of a later load have other names.
    fn first_name(&self) -> u64 {
        self.born.map_or(0, |born| (born.wall.0 * 1e6) as u64)
    }

    fn name(&self, stream: StreamId) -> StreamName {
        StreamName(self.first_name().wrapping_add(stream.0))
    }

    fn named(&self, name: StreamName) -> StreamId {
        StreamId(name.0.wrapping_sub(self.first_name()))
    }

    /// A streaming request of another rank has come.
    pub(super) fn hold(&mut self, request: RequestId, from: BrokerRank, stream: StreamName) {
        if matches!(request, RequestId::Remote(_)) {
            self.held.insert(request, (from, stream));
        }
    }

    /// Whether a request of another rank has come, and its stream has not ended.
    pub(super) fn holds(&self, from: BrokerRank, stream: StreamName) -> bool {
        self.held.values().any(|held| *held == (from, stream))
    }

    /// A request leaves this rank. Returns what its stream is called there.
    pub(super) fn expect_answer(
        &mut self,
        now: Now,
        stream: StreamId,
        to: BrokerRank,
    ) -> StreamName {
        if let Some(route) = self.routes.get_mut(&stream) {
            route.silent = Some(to);
        }
        self.schedule.set(Waiter::Stream(stream), Some(now.mono + SILENCE_SECONDS));
        self.name(stream)
    }

    /// Something has come on a stream, or nothing more will. Returns where it goes.
    pub(super) fn take_answer(&mut self, stream: StreamId, is_end: bool) -> Option<Route> {
        let route = self.routes.get_mut(&stream)?;
        if route.silent.take().is_some() {
            self.schedule.set(Waiter::Stream(stream), None);
        }
        if is_end { self.routes.remove(&stream) } else { Some(*route) }
    }

    /// Asks a rank whether it has the request of this stream.
    pub(super) fn ask_silent(&mut self, now: Now, stream: StreamId, out: &mut Effects) {
        self.schedule.set(Waiter::Stream(stream), Some(now.mono + SILENCE_SECONDS));
        let Some(Route { role: asker, id, silent: Some(to) }) = self.routes.get(&stream).copied()
        else {
            return;
        };
        let question = Question::Request { from: self.facts.rank, stream: self.name(stream) };
        out.ask_known(to, asker, question, (id, JobDigest::default()));
    }

    /// The rank has answered whether it has the request. If not, a broker on the way has died.
    pub(super) fn end_lost(
        &mut self,
        name: StreamName,
        result: Result<bool, Fault>,
        out: &mut Effects,
    ) {
        let stream = self.named(name);
        let Some(Route { role, id, silent: Some(_) }) = self.routes.get(&stream).copied() else {
            return;
        };
        let end = match result {
            Ok(true) => return self.note_present(role, id, stream),
            Ok(false) => StreamEnd::BrokerGone,
            Err(Fault { errnum, message }) => StreamEnd::from_error(errnum, message),
        };
        out.end(RequestId::Local(stream), end);
    }

    /// A rank has the request of this stream, and nothing to say yet.
    fn note_present(&mut self, role: Role, id: JobId, stream: StreamId) {
        match (role, self.leaders.get_mut(&id)) {
            (Role::Coordinator, _) => self.coordinator.handle_present(id, stream),
            (Role::Leader, Some(leader)) => leader.handle_present(stream),
            (Role::Agent | Role::Leader, _) => (),
        }
    }
}

//! A request to start shells that was long on its way waits until its leader says that it still
//! leads.

use super::Agent;
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::machine::event::{RequestId, Role};
use crate::proto::peer::{Mode, Question, ShellsRequest, StreamEnd};

/// How far the clocks of two nodes may differ before a request looks older, or younger, than this
/// module's life, in seconds.
const CLOCKS_DIFFER_SECONDS: f64 = 1.0;

/// A request that came late, until its leader has confirmed it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Late {
    pub(super) to: RequestId,
    pub(super) request: Box<ShellsRequest>,
}

/// Whether the leader has to confirm the request. It may start something, and an agent that does not
/// know better may have met a later leader since it was sent: it was longer on its way than a rank may
/// be away, or this agent's memory is younger than the request.
pub(super) fn is_late(cx: Context, request: &ShellsRequest) -> bool {
    let age = (cx.now.wall - request.issued).abs();
    let memory = cx.now.mono - cx.born.mono;
    matches!(request.mode, Mode::Prepare | Mode::Start)
        && request.generation != 0
        && age > (memory - CLOCKS_DIFFER_SECONDS).min(cx.config.peer_timeout / 2.0)
}

impl Agent {
    /// Asks whether the request's leader still leads. Also asked where clocks differ, at the cost of a
    /// round trip.
    pub(super) fn confirm(&mut self, to: RequestId, request: ShellsRequest, out: &mut Effects) {
        let question = Question::Leader { generation: request.generation };
        let job = (self.id, request.command.digest.clone());
        out.ask_known(request.leader, Role::Agent, question, job);
        if let Some(old) = self.late.replace(Late { to, request: Box::new(request) }) {
            out.end(old.to, StreamEnd::AskedAgain);
        }
    }

    pub(super) fn handle_confirmation(
        &mut self,
        cx: Context,
        generation: u64,
        leads: bool,
        out: &mut Effects,
    ) {
        let asked = |late: &mut Late| late.request.generation == generation;
        let Some(Late { to, request }) = self.late.take_if(asked) else { return };
        if leads && !self.is_stale(generation) {
            self.obey(cx, to, *request, out);
        } else {
            out.end(to, StreamEnd::superseded("its leader does not lead the job any more"));
        }
    }
}

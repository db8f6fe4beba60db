//! What scripts, and administrators, want of the jobs' scripts.

use serde_json::json;

use super::inputs::not_found;
use super::{Node, context};
use crate::machine::context::{Context, Now, SupervisorState};
use crate::machine::effect::{Effect, Effects};
use crate::machine::event::{Credential, Fault, RequestId};
use crate::machine::request::Topic;
use crate::port::supervisor::Method;
use crate::proto::{DegradedNode, PerilogRelease};

/// The user as whom the IMP runs scripts.
const ROOT: u32 = 0;

impl Node {
    /// An administrator does not want a job to wait for scripts any more. The leader decides. Rank 0
    /// knows which rank that is.
    pub(super) fn release(
        &mut self,
        now: Now,
        request: RequestId,
        release: &PerilogRelease,
        out: &mut Effects,
    ) {
        let (cx, id) = (context!(self, now), release.id);
        let elsewhere = self.coordinator.leader_of(id).filter(|rank| *rank != self.facts.rank);
        if let Some(leader) = self.leaders.get_mut(&id) {
            let result = leader.release_scripts(cx, release, out);
            out.done(request, result);
        } else if let Some(to) = elsewhere {
            let topic = Topic::PerilogRelease;
            out.push(Effect::Pass { to, request, topic, payload: json!(release) });
        } else {
            out.done(request, Err(not_found(id)));
        }
    }

    /// A prolog marks this rank's node as degraded. It runs as the instance owner, or as root. It is
    /// answered when the mark is kept.
    pub(super) fn mark(
        &mut self,
        request: RequestId,
        credential: Credential,
        degraded: &DegradedNode,
        out: &mut Effects,
    ) {
        let DegradedNode { id, reason } = degraded;
        let may_mark = credential.owner || credential.userid == ROOT;
        let marked = match self.agents.get_mut(id) {
            _ if !may_mark => {
                let message = format!("{id}: only its prolog may say what is wrong with its nodes");
                Err(Fault::new(libc::EPERM, message))
            }
            _ if self.supervisor == SupervisorState::Starting => {
                let message = format!("{id}: this rank does not know its scripts yet");
                Err(Fault::new(libc::EAGAIN, message))
            }
            None => Err(not_found(*id)),
            Some(agent) => agent.mark(request, reason, out),
        };
        if let Err(fault) = marked {
            out.done(request, Err(fault));
        }
    }
}

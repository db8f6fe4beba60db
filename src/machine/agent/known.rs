//! What other ranks answer: whether they know the job.

use super::upstream::{Over, Upstream};
use super::{Agent, Late, PROBE_SECONDS, ask_soon};
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::machine::event::Fault;
use crate::proto::BrokerRank;
use crate::proto::peer::{KnownRequest, Question, StreamEnd};

/// How long an agent that nobody leads waits before it asks again about a job that the job manager has,
/// in seconds.
const KNOWN_SECONDS: f64 = 7.0;

impl Agent {
    /// Another rank has answered a question about the job.
    pub(in crate::machine) fn handle_known(
        &mut self,
        cx: Context,
        (to, asked): (BrokerRank, &KnownRequest),
        result: Result<bool, Fault>,
        out: &mut Effects,
    ) {
        let soon = cx.now.mono + cx.config.peer_timeout;
        let KnownRequest { digest, question, .. } = asked;
        let question = *question;
        if let Question::Leader { generation } = question
            && let Some(Late { request: late, .. }) = &self.late
            && (late.generation, late.leader, &late.command.digest) == (generation, to, digest)
        {
            self.upstream.ask_at_mut().get_or_insert(soon);
            return self.handle_confirmation(cx, generation, result == Ok(true), out);
        }
        // Another job with this id was asked about.
        if *digest != self.digest {
            self.upstream.ask_at_mut().get_or_insert(soon);
            return;
        }
        match (question, &mut self.upstream) {
            (asked, Upstream::Led(led)) if led.has_asked(to, asked) && result == Ok(true) => {
                led.ask_at = Some(cx.now.mono + PROBE_SECONDS);
            }
            (asked, Upstream::Led(led)) if led.has_asked(to, asked) => {
                // Its broker has died, or it has stepped down, and nobody told us. Rank 0 is asked
                // next.
                out.end(led.to, StreamEnd::ParentGone);
                self.lose_leader(cx);
            }
            (Question::Manager, Upstream::Unled(unled)) if result == Ok(false) => {
                if unled.over == Over::No {
                    unled.over = Over::Unwanted;
                }
                // Nobody will ever end the shell but this agent.
                self.evict(cx, "the job manager does not have this job running", out);
                self.start_nothing();
            }
            // The job manager has it: a leader comes, or has given up on this rank, and does not tell it
            // when the job is over.
            (Question::Manager, Upstream::Unled(unled)) if result.is_ok() => {
                unled.ask_at = Some(cx.now.mono + KNOWN_SECONDS);
            }
            // Rank 0 could not say.
            (Question::Manager, Upstream::Unled(unled)) => unled.ask_at = Some(ask_soon(cx)),
            // Asked before it was led, or before it was not, or of another parent: the answer says
            // nothing now.
            (_, Upstream::Led(led)) => {
                led.ask_at.get_or_insert(soon);
            }
            (Question::Leader { .. } | Question::Parent, Upstream::Unled(unled)) => {
                unled.ask_at.get_or_insert(soon);
            }
            // The node's own.
            (Question::Request { .. }, Upstream::Unled(_)) => (),
        }
    }
}

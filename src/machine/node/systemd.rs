//! A systemd that does not answer. What happens to this rank's units is unknown then, and unknown is
//! not dead: their jobs wait. But no more jobs are to come here.

use super::{Node, context};
use crate::machine::away::Away;
use crate::machine::context::{Context, Now, Silent, SupervisorState};
use crate::machine::effect::{Effects, Level};
use crate::machine::schedule::Waiter;
use crate::port::supervisor::Method;

impl Node {
    /// systemd does not answer. The jobs here are told why nothing happens to them.
    pub(super) fn begin_silence(&mut self, now: Now, what: &str, out: &mut Effects) {
        let text =
            format!("systemd on {} does not answer: waiting for {what}", self.facts.hostname);
        out.log(Level::Warning, text);
        let away = Away::new(now.mono);
        let pause = away.pause(now.mono);
        self.silent = Some(Silent { since: now, what: what.to_string(), away });
        self.schedule.set(Waiter::Systemd, Some(now.mono + pause));
        let cx = context!(self, now);
        for agent in self.agents.values_mut() {
            agent.handle_silence(cx, out);
        }
    }

    /// systemd answers again. If the rank was drained, an administrator looks at it first.
    pub(super) fn end_silence(&mut self, out: &mut Effects) {
        self.silent = None;
        self.schedule.set(Waiter::Systemd, None);
        out.log(Level::Info, format!("systemd on {} answers again", self.facts.hostname));
    }

    /// systemd still does not answer. After `peer-timeout` the rank is drained. The supervisor tries on.
    pub(super) fn drain_silent(&mut self, now: Now, out: &mut Effects) {
        self.schedule.set(Waiter::Systemd, None);
        let Some(Silent { since, what, away }) = &mut self.silent else { return };
        if !away.is_over(now.mono, self.config.peer_timeout) {
            let next = now.mono + away.pause(now.mono);
            return self.schedule.set(Waiter::Systemd, Some(next));
        }
        let seconds = now.mono - since.mono;
        let reason = format!("systemd has not answered for {seconds:.0} s: waiting for {what}");
        out.drain(self.facts.rank, reason);
    }
}

//! A systemd or a disk that does not answer. What happens to this rank's units is unknown then, and
//! unknown is not dead: their jobs wait. But no more jobs are to come here.

use super::{Node, context};
use crate::machine::away::Away;
use crate::machine::context::{Context, Now, Silent, SupervisorState};
use crate::machine::effect::{Effects, Level};
use crate::machine::schedule::Waiter;
use crate::port::supervisor::Method;
use crate::proto::Mute;

impl Node {
    /// systemd or the disk does not answer. The jobs here are told why nothing happens to them.
    pub(super) fn begin_silence(&mut self, now: Now, who: Mute, what: String, out: &mut Effects) {
        let text = format!("{who} on {} does not answer: waiting for {what}", self.facts.hostname);
        out.log(Level::Warning, text);
        let away = Away::new(now.mono);
        if self.silent.is_empty() {
            self.schedule.set(Waiter::Systemd, Some(now.mono + away.pause(now.mono)));
        }
        self.silent.insert(who, Silent { since: now, what, away });
        self.tell_silence(now, out);
    }

    fn tell_silence(&mut self, now: Now, out: &mut Effects) {
        let cx = context!(self, now);
        for agent in self.agents.values_mut() {
            agent.handle_silence(cx, out);
        }
    }

    /// It answers again. If the rank was drained, an administrator looks at it first.
    pub(super) fn end_silence(&mut self, now: Now, who: Mute, out: &mut Effects) {
        self.silent.remove(&who);
        if self.silent.is_empty() {
            self.schedule.set(Waiter::Systemd, None);
        }
        self.tell_silence(now, out);
        out.log(Level::Info, format!("{who} on {} answers again", self.facts.hostname));
    }

    /// This rank's disk takes no records: each job that comes here would fail.
    pub(super) fn drain_without_records(&self, why: &str, out: &mut Effects) {
        let reason = format!("job-exec cannot keep records of jobs: {why}");
        out.log(Level::Error, reason.clone());
        out.drain(self.facts.rank, reason);
    }

    /// It still does not answer. After `peer-timeout` the rank is drained. The supervisor tries on.
    pub(super) fn drain_silent(&mut self, now: Now, out: &mut Effects) {
        self.schedule.set(Waiter::Systemd, None);
        let Some((who, silent)) = self.silent.iter_mut().next() else { return };
        let Silent { since, what, away } = silent;
        if !away.is_over(now.mono, self.config.peer_timeout) {
            let next = now.mono + away.pause(now.mono);
            return self.schedule.set(Waiter::Systemd, Some(next));
        }
        let seconds = now.mono - since.mono;
        let reason = format!("{who} has not answered for {seconds:.0} s: waiting for {what}");
        out.drain(self.facts.rank, reason);
    }
}

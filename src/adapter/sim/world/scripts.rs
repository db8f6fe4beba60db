//! What prologs and epilogs do: most end well, and soon. Some fail, and some go on for minutes.

use rand::Rng;

use super::{Item, World};
use crate::adapter::sim::script::Script;
use crate::proto::{UnitName, WaitStatus};

/// Of so many scripts one fails, one goes on until it is told to end, and one does not listen.
const TROUBLE: u32 = 60;

impl World {
    /// systemd has executed a script.
    pub(super) fn begin_script(&mut self, rank: u32, unit: &UnitName) {
        let what = self.rng.random_range(0..TROUBLE);
        let state = &mut self.ranks[rank as usize];
        let text = |text: Option<&str>| text.unwrap_or_default().to_string();
        let script = Script {
            unit: unit.clone(),
            invocation: text(state.systemd.invocation_id(unit)),
            digest: text(state.systemd.digest(unit)),
            exited: None,
            deaf: what == 2,
            lost_with_node: false,
        };
        let index = state.scripts.len();
        state.scripts.push(script);
        note!(self, "{unit} runs");
        self.forward_from_systemd(rank);
        self.check_script(rank, index);
        let seconds = match what {
            1 | 2 => self.rng.random_range(60.0..400.0),
            _ => self.rng.random_range(0.005..3.0),
        };
        let status = WaitStatus::exited(i32::from(what == 0));
        self.at(self.now + seconds, Item::EndScript { rank, index, status });
    }

    pub(super) fn end_script(&mut self, rank: u32, index: usize, status: WaitStatus) {
        let state = &mut self.ranks[rank as usize];
        let script = &mut state.scripts[index];
        if !script.runs() {
            return;
        }
        script.exited = Some(status);
        let unit = script.unit.clone();
        note!(self, "{unit} exits: {status}");
        self.ranks[rank as usize].systemd.handle_exited(&unit, status, false);
        self.forward_from_systemd(rank);
    }

    /// A signal arrives at a script.
    pub(super) fn signal_script(&mut self, rank: u32, unit: &UnitName, signal: i32) {
        if signal == libc::SIGKILL {
            return self.violate("script-not-killed", format!("{unit} gets SIGKILL"));
        }
        let state = &self.ranks[rank as usize];
        let Some(invocation) = state.systemd.invocation_id(unit) else { return };
        let is_it = |script: &Script| script.unit == *unit && script.invocation == invocation;
        let Some(index) = state.scripts.iter().rposition(is_it) else { return };
        if !state.scripts[index].deaf {
            let status = WaitStatus::signaled(signal);
            self.after(0.001, 0.5, Item::EndScript { rank, index, status });
        }
    }
}

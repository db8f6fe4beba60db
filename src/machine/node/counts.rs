//! What this rank has counted since it was loaded, for the statistics.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::machine::context::Now;
use crate::machine::effect::Effect;
use crate::machine::mono_time::MonoTime;
use crate::port::supervisor::{UnitCommand, UnitEvent};
use crate::proto::UnitName;

#[derive(Debug, Default)]
pub(super) struct Counts {
    units_started: u64,
    /// Units that were asked for and do not run yet.
    starting: BTreeMap<UnitName, MonoTime>,
    /// How long those that run have taken to, in all.
    start_seconds: f64,
    /// Nodes that this rank has asked the resource module to drain.
    drains: u64,
    /// Signals to units: others than SIGKILL, SIGKILL, and SIGKILL to all processes that are left.
    signals: [u64; 3],
    oom_kills: u64,
}

impl Counts {
    /// An effect leaves this rank.
    pub(super) fn leave(&mut self, now: Now, effect: &Effect) {
        match effect {
            Effect::Unit(unit, UnitCommand::Launch(_)) => {
                self.units_started += 1;
                self.starting.insert(unit.clone(), now.mono);
            }
            Effect::Unit(_, UnitCommand::Signal { signal, all }) => {
                let stage = match (*signal, all) {
                    (libc::SIGKILL, true) => 2,
                    (libc::SIGKILL, false) => 1,
                    _ => 0,
                };
                self.signals[stage] += 1;
            }
            Effect::Drain { ranks, .. } => self.drains += ranks.len() as u64,
            _ => (),
        }
    }

    /// The supervisor tells of a unit.
    pub(super) fn hear(&mut self, now: Now, unit: &UnitName, event: &UnitEvent) {
        if let UnitEvent::Usage(usage) = event {
            self.oom_kills = self.oom_kills.saturating_add(usage.oom_kills.unwrap_or(0));
        }
        let asked =
            self.starting.remove(unit).filter(|_| matches!(event, UnitEvent::Started { .. }));
        self.start_seconds += asked.map_or(0.0, |asked| now.mono - asked);
    }

    pub(super) fn add_to(&self, stats: &mut Value) {
        let [signals, kills, last_kills] = self.signals;
        let all = [
            ("units-started", json!(self.units_started)),
            ("start-seconds", json!(self.start_seconds)),
            ("drains", json!(self.drains)),
            ("signals", json!({ "signal": signals, "kill": kills, "kernel": last_kills })),
            ("oom-kills", json!(self.oom_kills)),
        ];
        for (key, value) in all {
            stats[key] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Usage, WallTime};

    #[test]
    fn signals_are_told_apart_and_only_starts_that_came_about_have_a_time() {
        let units = ["shell-1-f2-0123abcd.service", "shell-1-f3-0123abcd.service"];
        let [one, other] = units.map(|name| name.parse::<UnitName>().expect("a name"));
        let at = |seconds| Now { mono: MonoTime(seconds), wall: WallTime(0.0) };
        let mut counts = Counts::default();
        for unit in [&one, &other] {
            counts.starting.insert(unit.clone(), MonoTime(1.0));
        }
        counts.hear(at(1.5), &one, &UnitEvent::Started { pid: 7 });
        counts.hear(at(9.0), &one, &UnitEvent::Started { pid: 7 });
        counts.hear(at(9.0), &other, &UnitEvent::NeverStarted);
        counts.hear(at(9.0), &other, &UnitEvent::Started { pid: 8 });
        let usage = Usage { oom_kills: Some(2), ..Usage::default() };
        counts.hear(at(9.0), &one, &UnitEvent::Usage(Box::new(usage)));
        for (signal, all) in [(15, false), (9, false), (9, false), (9, true), (10, true)] {
            let signal = UnitCommand::Signal { signal, all };
            counts.leave(at(9.0), &Effect::Unit(one.clone(), signal));
        }
        let mut stats = json!({});
        counts.add_to(&mut stats);
        let signals = json!({ "signal": 2, "kill": 2, "kernel": 1 });
        assert_eq!(
            stats,
            json!({ "units-started": 0, "start-seconds": 0.5, "drains": 0, "signals": signals,
                "oom-kills": 2 })
        );
    }
}

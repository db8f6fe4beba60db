//! What has become of the shells that an earlier life of this module had started on this node: one line
//! in the log after each load, and `restart` in the statistics.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Node;
use crate::machine::context::Now;
use crate::machine::effect::{Effects, Level};
use crate::machine::schedule::Waiter;
use crate::port::supervisor::{UnitEvent, UnitRecord};
use crate::proto::{UnitName, WaitStatus};

/// The supervisor tells of one unit after the other, and of its end after its start. So the line waits
/// until nothing has come for so many seconds.
const QUIET_SECONDS: f64 = 1.0;

/// How many jobs of one fate are named.
const NAMED_MAX: usize = 8;

/// What has become of a shell.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Runs,
    Ended(WaitStatus),
    /// It was not started after all.
    NeverStarted,
    Lost(String),
}

/// The account of one life of the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Shells that were found and not told of; none: nothing is known of it yet.
    open: BTreeMap<UnitName, Option<Fate>>,
    /// Those that were told of.
    told: Vec<(UnitName, Fate)>,
    /// Shells that this rank has ended because no job counts on them.
    pub(super) unwanted: u64,
}

impl Ledger {
    fn find(&mut self, record: &UnitRecord) {
        if !record.spec.unit.is_script() {
            self.open.insert(record.spec.unit.clone(), None);
        }
    }

    /// Returns whether something is known now that was not.
    fn hear(&mut self, unit: &UnitName, event: &UnitEvent) -> bool {
        let Some(fate) = self.open.get_mut(unit) else { return false };
        *fate = Some(match event {
            UnitEvent::Started { .. } => Fate::Runs,
            UnitEvent::Exited { status } => Fate::Ended(*status),
            UnitEvent::Failed(_) | UnitEvent::NeverStarted => Fate::NeverStarted,
            UnitEvent::Lost { message } => Fate::Lost(message.clone()),
            _ => return false,
        });
        true
    }

    /// What has become of all, if that is known.
    fn close(&mut self) -> Option<String> {
        if self.open.values().any(Option::is_none) {
            return None;
        }
        let known = std::mem::take(&mut self.open).into_iter();
        self.told.extend(known.filter_map(|(unit, fate)| Some((unit, fate?))));
        Some(self.to_string())
    }

    fn count(&self, is: impl Fn(&Fate) -> bool) -> usize {
        self.told.iter().filter(|(_, fate)| is(fate)).count()
    }

    pub(super) fn stats(&self) -> Value {
        json!({
            "found": self.told.len() + self.open.len(),
            "running": self.count(|fate| *fate == Fate::Runs),
            "ended": self.count(|fate| matches!(fate, Fate::Ended(_))),
            "lost": self.count(|fate| matches!(fate, Fate::Lost(_))),
            "never-started": self.count(|fate| *fate == Fate::NeverStarted),
            "unwanted": self.unwanted,
        })
    }

    /// The jobs of one fate, each with more about it.
    fn names(&self, about: impl Fn(&Fate) -> Option<String>) -> String {
        let all = self.told.iter().filter_map(|(unit, fate)| Some((unit.job(), about(fate)?)));
        let mut names: Vec<String> = all.map(|(job, what)| format!("{job}: {what}")).collect();
        if names.len() > NAMED_MAX {
            let more = names.split_off(NAMED_MAX).len();
            names.push(format!("and {more} more"));
        }
        if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
    }
}

/// For people.
impl std::fmt::Display for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ended = |fate: &Fate| match fate {
            Fate::Ended(status) => Some(status.to_string()),
            _ => None,
        };
        let lost = |fate: &Fate| match fate {
            Fate::Lost(why) => Some(why.clone()),
            _ => None,
        };
        let stats = self.stats();
        write!(
            f,
            "{} shell{} of earlier jobs found: {} run on, {} had ended{}, {} lost{}",
            stats["found"],
            if stats["found"] == 1 { "" } else { "s" },
            stats["running"],
            stats["ended"],
            self.names(ended),
            stats["lost"],
            self.names(lost),
        )?;
        match &stats["never-started"] {
            never if *never == 0 => Ok(()),
            never => write!(f, ", {never} were never started"),
        }
    }
}

impl Node {
    pub(super) fn find_shell(&mut self, record: &UnitRecord) {
        self.ledger.find(record);
    }

    pub(super) fn hear_of_shell(&mut self, now: Now, unit: &UnitName, event: &UnitEvent) {
        if self.ledger.hear(unit, event) {
            self.schedule.set(Waiter::Ledger, Some(now.mono + QUIET_SECONDS));
        }
    }

    pub(super) fn tell_ledger(&mut self, out: &mut Effects) {
        self.schedule.set(Waiter::Ledger, None);
        if let Some(text) = self.ledger.close() {
            out.log(Level::Info, text);
        }
    }
}

//! Giving ranks back as they end.
//!
//! A rank that is gone waits [`FIRST_PAUSE`] for others, and they are released together. After
//! [`PROMPT_RELEASES`] the pause doubles each time. So the number of messages to rank 0 does not
//! grow with the job's ranks.

use super::timer::{LeaderTimer, TimerTable};
use crate::machine::mono_time::MonoTime;
use crate::proto::{Idset, ReleasedRanks};

/// How long ranks that are gone wait for others, in seconds.
const FIRST_PAUSE: f64 = 0.1;
/// How many partial releases wait for [`FIRST_PAUSE`] only.
const PROMPT_RELEASES: u32 = 8;
/// Longest pause, in seconds.
const PAUSE_MAX: f64 = 10.0;

/// Which ranks of a job were released.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Release {
    held: Idset,
    released: Idset,
    /// They are to be drained, and the resource module has not answered yet.
    undrained: Idset,
    count: u32,
}

impl Release {
    /// For a job on `ranks`. Earlier leaders have released some of them.
    pub(super) fn new(ranks: &Idset, released: &Idset) -> Self {
        let held = ranks.difference(released);
        let (released, undrained) = (ranks.intersection(released), Idset::new());
        Self { held, released, undrained, count: 0 }
    }

    /// A rank is gone: it is released soon.
    pub(super) fn arm(&mut self, now: MonoTime, timers: &mut TimerTable) {
        if !timers.is_armed(LeaderTimer::Release) {
            let doublings = (self.count + 1).saturating_sub(PROMPT_RELEASES).min(16);
            let pause = FIRST_PAUSE * f64::from(1u32 << doublings);
            timers.arm(LeaderTimer::Release, now + pause.min(PAUSE_MAX));
        }
    }

    /// The ranks of `gone` that can be released now. The last ranks are never among them: they go
    /// with the final release, when the job's data is in place.
    pub(super) fn ready(&self, gone: &Idset) -> Option<Idset> {
        let ready = self.held.intersection(gone).difference(&self.undrained);
        (!ready.is_empty() && ready != self.held).then_some(ready)
    }

    /// These ranks are released.
    pub(super) fn take(&mut self, ready: &Idset) {
        self.count += 1;
        self.held = self.held.difference(ready);
        self.released = self.released.union(ready);
    }

    /// These ranks are being drained. None of them is released before that is answered.
    pub(super) fn await_drain(&mut self, ranks: &Idset) {
        self.undrained = self.undrained.union(&ranks.intersection(&self.held));
    }

    /// The resource module has answered.
    pub(super) fn handle_drained(&mut self, ranks: &Idset) {
        self.undrained = self.undrained.difference(ranks);
    }

    /// Ranks for whose drain the release waits.
    pub(super) fn undrained(&self) -> &Idset {
        &self.undrained
    }

    /// What was released before the end.
    pub(super) fn released(&self) -> &Idset {
        &self.released
    }

    /// The ranks of the final release, in RFC 32's form.
    pub(super) fn last(&self) -> ReleasedRanks {
        if self.released.is_empty() {
            ReleasedRanks::All
        } else {
            ReleasedRanks::These(self.held.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_goes_once_and_the_last_ones_wait_for_the_end() {
        let mut release = Release::new(&Idset::from_range(0..4), &Idset::new());
        assert_eq!(release.last(), ReleasedRanks::All);
        let partial = |release: &mut Release, list: &[u32]| {
            let ready = release.ready(&list.iter().copied().collect())?;
            release.take(&ready);
            Some(ready.to_string())
        };
        assert_eq!(partial(&mut release, &[1, 2]), Some("1-2".into()));
        assert_eq!(partial(&mut release, &[1, 2]), None);
        assert_eq!(partial(&mut release, &[0, 1, 2, 3]), None);
        assert_eq!(release.last().to_string(), "0,3");
    }

    #[test]
    fn a_rank_that_is_being_drained_is_not_released() {
        let ranks = |list: &[u32]| list.iter().copied().collect::<Idset>();
        let mut release = Release::new(&Idset::from_range(0..4), &ranks(&[0]));
        release.await_drain(&ranks(&[0, 1, 2]));
        assert_eq!(release.undrained(), &ranks(&[1, 2]), "that was released before");
        assert_eq!(release.ready(&ranks(&[1, 2])), None);
        release.handle_drained(&ranks(&[2]));
        assert_eq!(release.ready(&ranks(&[1, 2])), Some(ranks(&[2])));
    }

    #[test]
    fn the_number_of_releases_does_not_grow_with_the_ranks() {
        let mut release = Release::new(&Idset::from_range(0..10_000), &Idset::new());
        let mut timers = TimerTable::default();
        let mut count = 0;
        // One rank ends every 10 ms.
        for tick in 0..10_000u32 {
            let now = f64::from(tick) / 100.0;
            release.arm(MonoTime(now), &mut timers);
            if timers.pop_due(MonoTime(now)).is_some()
                && let Some(ready) = release.ready(&Idset::from_range(0..tick))
            {
                release.take(&ready);
                count += 1;
            }
        }
        assert!((10..40).contains(&count), "{count} releases in 100 s");
    }
}

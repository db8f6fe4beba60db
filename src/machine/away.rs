//! A rank that does not answer, and is asked again.

use crate::machine::effect::Level;
use crate::machine::mono_time::MonoTime;
use crate::proto::peer::StreamEnd;

/// First pause before it is asked again, in seconds. Pauses double.
pub(super) const PAUSE_FIRST: f64 = 0.1;
/// Longest such pause, in seconds.
pub(super) const PAUSE_MAX: f64 = 5.0;
/// How many tries it takes at least until the time to wait is over.
const TRIES: f64 = 3.0;

/// Since when a rank has not answered, over several tries.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Away {
    /// In monotonic seconds.
    since: MonoTime,
    /// When it was tried last.
    tried: MonoTime,
    /// How long it was away at that try, in seconds that count.
    counted: f64,
    /// Why its module, which is another release, has refused the last request.
    refusal: Option<String>,
}

impl Away {
    /// From now on.
    pub(super) fn new(now: MonoTime) -> Self {
        Self { since: now, tried: now, counted: 0.0, refusal: None }
    }

    /// The stream to the rank has ended, perhaps not for the first time. Returns how important the log
    /// line is that says so.
    pub(super) fn note(away: &mut Option<Self>, now: MonoTime, end: &StreamEnd) -> Level {
        let away = away.get_or_insert(Self::new(now));
        let before = std::mem::replace(&mut away.refusal, end.refusal());
        match end {
            _ if away.since != now && before == away.refusal => Level::Debug,
            // An administrator can do something about another release.
            StreamEnd::Incompatible { .. } => Level::Warning,
            _ => Level::Info,
        }
    }

    /// It is time for the next try. Returns true instead if the last one was made when these seconds
    /// were over. Who was stopped sees the time jump when it wakes, and has not heard what was said
    /// meanwhile. So the time between two tries counts for a part of the seconds only.
    pub(super) fn is_over(&mut self, now: MonoTime, seconds: f64) -> bool {
        let is_over = self.counted >= seconds;
        self.counted += (now - self.tried).min(seconds / TRIES);
        self.tried = now;
        is_over
    }

    /// The pause before it is asked again, in seconds. It is as long as all tries together have taken.
    pub(super) fn pause(&self, now: MonoTime) -> f64 {
        (now - self.since).clamp(PAUSE_FIRST, PAUSE_MAX)
    }

    /// In the words of a module that is another release.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_is_important() {
        let refused = |reason: &str| StreamEnd::Incompatible { reason: reason.to_string() };
        let mut away = None;
        for (now, end, level) in [
            (1.0, StreamEnd::Unloaded, Level::Info),
            (2.0, StreamEnd::BrokerGone, Level::Debug),
            (3.0, refused("version 7"), Level::Warning),
            (4.0, refused("version 7"), Level::Debug),
            (5.0, refused("version 8"), Level::Warning),
            (6.0, StreamEnd::Unloaded, Level::Info),
        ] {
            assert_eq!(Away::note(&mut away, MonoTime(now), &end), level, "at {now}");
            assert_eq!(away.as_ref().and_then(Away::refusal).map(String::from), end.refusal());
        }
    }

    /// When a rank is given up that was first seen to be away at 0, if it is tried at these times.
    fn given_up(tries: impl IntoIterator<Item = f64>) -> Option<f64> {
        let mut away = Away::new(MonoTime(0.0));
        tries.into_iter().find(|now| away.is_over(MonoTime(*now), 120.0))
    }

    #[test]
    fn a_rank_is_tried_once_more_when_the_time_is_over() {
        assert_eq!(given_up((1..).map(|number| f64::from(number) * 5.0)), Some(125.0));
    }

    #[test]
    fn the_time_of_a_stop_counts_as_one_try() {
        let stop = |from: f64, after: &[f64]| {
            let before = (1..).map(|number| f64::from(number) * 5.0).take_while(|at| *at <= from);
            given_up(before.chain(after.iter().copied()))
        };
        assert_eq!(stop(5.0, &[3600.0, 3605.0, 3610.0]), None);
        assert_eq!(stop(115.0, &[3600.0, 3605.0]), Some(3605.0), "it was asked after the stop");
    }

    #[test]
    fn pauses_double() {
        let (away, mut now) = (Away::new(MonoTime(0.0)), 0.0);
        let pauses = [(); 8].map(|()| {
            let pause = away.pause(MonoTime(now));
            now += pause;
            (pause * 10.0).round()
        });
        assert_eq!(pauses, [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0]);
    }
}

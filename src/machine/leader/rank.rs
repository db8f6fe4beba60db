//! The ranks of a job, as their agents report them.

use std::collections::BTreeMap;

use crate::proto::{BrokerRank, Idset, ScriptFailure, Stream, WaitStatus};

/// How far one rank's shell is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    Pending,
    Running,
    /// With its status, if its agent saw one.
    Exited(Option<WaitStatus>),
    /// Nothing is left of it, or it never was, and the rank's epilog runs.
    Epilog(Option<WaitStatus>),
    /// Nothing is left of it, or nothing more can be learned. With its status, if there was one.
    Gone(Option<WaitStatus>),
}

/// How much of one stream is in the exec eventlog.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LoggedStream {
    /// Bytes that were sent to it.
    pub(super) sent: u64,
    /// Bytes that are in it.
    pub(super) durable: u64,
    /// It says that the stream was cut off.
    pub(super) truncated: bool,
}

/// One rank of the job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rank {
    pub(super) phase: Phase,
    /// Its shell was seen running, once.
    pub(super) seen_running: bool,
    /// Its agent has told this leader what it knows, or nothing more can be learned.
    pub(super) heard: bool,
    /// Its shell was started before, and its agent has not learned yet what has become of it.
    pub(super) unsure: bool,
    /// Its record says why its shell was ended: that has had its first signal.
    pub(super) ended_before: bool,
    /// The shell has left its unit, and that was told.
    pub(super) left: bool,
    /// The log says that output of its shell may be missing, because it was lost on its node.
    pub(super) output_lost: bool,
    /// The log says that systemd has not answered on its node since then.
    pub(super) silent_since: Option<u64>,
    /// Since when its module has been away, in monotonic seconds.
    pub(super) away_since: Option<f64>,
    /// Its prolog has ended well, or it has none.
    pub(super) prepared: bool,
    /// What its prolog has said is wrong with its node.
    pub(super) degraded: Option<String>,
    /// What is wrong with its prolog, and with its epilog.
    pub(super) prolog_failure: Option<ScriptFailure>,
    pub(super) epilog_failure: Option<ScriptFailure>,
    /// Why its module, which is another release, has refused the last request.
    pub(super) refusal: Option<String>,
    streams: [LoggedStream; 2],
}

impl Rank {
    pub(super) fn stream(&self, stream: Stream) -> &LoggedStream {
        &self.streams[stream as usize]
    }

    pub(super) fn stream_mut(&mut self, stream: Stream) -> &mut LoggedStream {
        &mut self.streams[stream as usize]
    }

    /// The shell runs, as far as is known.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Running)
    }

    /// Its agent, which has the request, has not told that its shell runs.
    pub(super) fn has_never_run(&self) -> bool {
        let may_run = self.seen_running || self.unsure || self.away_since.is_some();
        self.phase == Phase::Pending && !may_run
    }

    /// Something of its shell may be left.
    pub(super) fn is_unsettled(&self) -> bool {
        !matches!(self.phase, Phase::Epilog(_) | Phase::Gone(_))
    }

    /// Its prolog has not ended, as far as the job waits for it.
    pub(super) fn is_in_prolog(&self) -> bool {
        let is_over = self.prepared || self.prolog_failure.is_some();
        !is_over && !self.seen_running && self.phase == Phase::Pending
    }

    /// Whether its shell is active can be said.
    pub(super) fn is_known(&self) -> bool {
        self.heard && !self.unsure && self.away_since.is_none()
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone(_))
    }

    /// Nobody looks after it from now on. Returns since when that is so.
    pub(super) fn set_away(&mut self, now: f64) -> f64 {
        *self.away_since.get_or_insert(now)
    }

    pub(super) fn set_gone(&mut self) {
        self.phase = Phase::Gone(self.status());
        self.heard = true;
        self.away_since = None;
    }

    /// How its shell has ended, if its agent saw that.
    pub(super) fn status(&self) -> Option<WaitStatus> {
        match self.phase {
            Phase::Pending | Phase::Running => None,
            Phase::Exited(status) | Phase::Epilog(status) | Phase::Gone(status) => status,
        }
    }
}

/// All ranks of the job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ranks(BTreeMap<BrokerRank, Rank>);

impl Ranks {
    pub(super) fn new(ranks: &Idset) -> Self {
        let rank = Rank {
            phase: Phase::Pending,
            seen_running: false,
            heard: false,
            unsure: false,
            ended_before: false,
            left: false,
            output_lost: false,
            silent_since: None,
            away_since: None,
            prepared: false,
            degraded: None,
            prolog_failure: None,
            epilog_failure: None,
            refusal: None,
            streams: <[LoggedStream; 2]>::default(),
        };
        Self(ranks.ranks().map(|r| (r, rank.clone())).collect())
    }

    pub(super) fn get(&self, rank: BrokerRank) -> Option<&Rank> {
        self.0.get(&rank)
    }

    pub(super) fn get_mut(&mut self, rank: BrokerRank) -> Option<&mut Rank> {
        self.0.get_mut(&rank)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BrokerRank, &Rank)> {
        self.0.iter().map(|(rank, known)| (*rank, known))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Ranks for which `is` holds.
    pub(super) fn select(&self, is: impl Fn(&Rank) -> bool) -> Idset {
        self.iter().filter(|(_, known)| is(known)).map(|(rank, _)| rank).collect()
    }

    /// Ranks whose shells run, as far as is known.
    pub(super) fn active(&self) -> Idset {
        self.select(Rank::is_active)
    }

    /// Ranks on which something of a shell may be left.
    pub(super) fn unsettled(&self) -> Idset {
        self.select(Rank::is_unsettled)
    }

    /// No prolog runs any more, as far as the job waits for it.
    pub(super) fn all_prologs_over(&self) -> bool {
        !self.0.values().any(Rank::is_in_prolog)
    }

    /// A shell was seen running.
    pub(super) fn any_seen_running(&self) -> bool {
        self.0.values().any(|known| known.seen_running)
    }

    /// Whether nobody looks after some rank at the moment on which something may be left.
    pub(super) fn any_away(&self) -> bool {
        self.0.values().any(|known| known.away_since.is_some() && !known.is_gone())
    }

    /// Every shell has been seen running. A job that has not failed can begin without a rank that
    /// it can do without.
    pub(super) fn all_started(&self, has_failed: bool) -> bool {
        let counts = |known: &Rank| known.seen_running || (!has_failed && known.is_gone());
        self.0.values().any(|known| known.seen_running) && self.0.values().all(counts)
    }

    pub(super) fn all_heard(&self) -> bool {
        self.0.values().all(|known| known.heard)
    }

    pub(super) fn all_ended(&self) -> bool {
        !self.0.values().any(Rank::is_active)
    }

    pub(super) fn all_gone(&self) -> bool {
        self.0.values().all(Rank::is_gone)
    }

    /// The largest status, if that of every rank was seen.
    pub(super) fn largest_status(&self) -> Option<WaitStatus> {
        let seen = self.0.values().map(Rank::status).collect::<Option<Vec<_>>>();
        seen.and_then(|statuses| statuses.into_iter().max())
    }
}

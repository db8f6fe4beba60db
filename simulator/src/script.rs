//! A prolog or an epilog as the node's kernel sees it. Oracles compare what the service does with this.

use job_exec_rs::config;
use job_exec_rs::proto::{Place, Stage, UnitName, WaitStatus};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// One execution of a script.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) unit: UnitName,
    /// systemd's invocation id of this start of the unit.
    pub(super) invocation: String,
    /// The digest of the job that it runs for.
    pub(super) digest: String,
    pub(super) exited: Option<WaitStatus>,
    /// Whether it finds its node degraded.
    pub(super) mark: Mark,
    /// Whether it ignores SIGTERM.
    pub(super) deaf: bool,
    /// When systemd was asked to start it.
    pub(super) asked: Moment,
    /// When it was executed.
    pub(super) began: f64,
    /// Whether it got SIGTERM.
    pub(super) is_told: bool,
    /// Whether it ended because its node was powered off, or its user manager was killed.
    pub(super) lost_with_manager: bool,
}

/// A moment on one node, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The simulated time.
    pub(super) at: f64,
    /// The error of the node's wall clock.
    pub(super) clock: f64,
}

/// How far a script is with the mark of its node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mark {
    /// The node is well.
    None,
    /// It has yet to be kept.
    Wanted,
    /// It was kept.
    Kept,
    /// It cannot be kept.
    Refused,
}

impl Script {
    pub(super) fn is(&self, stage: Stage, digest: &str) -> bool {
        self.unit.stage() == stage && self.digest == digest
    }

    pub(super) fn runs(&self) -> bool {
        self.exited.is_none() && !self.lost_with_manager
    }
}

/// What a site has configured. Each world has its own.
pub(super) fn site(rng: &mut ChaCha8Rng) -> config::PerilogConfig {
    let which = rng.random_range(0..6);
    let mut script = |name: &str| {
        let under_imp = rng.random_bool(0.3);
        config::ScriptConfig {
            command: vec![format!("/bin/{name}")],
            under_imp,
            timeout: Some(20.0),
            kill_timeout: 5.0,
            per_rank: rng.random_bool(0.7),
            cancel_on_exception: rng.random_bool(0.5),
        }
    };
    let (prolog, epilog) = (script("prolog"), script("epilog"));
    config::PerilogConfig {
        prolog: (which > 0).then_some(prolog),
        epilog: (which < 5).then_some(epilog),
        epilogs_together: rng.random_bool(0.3),
        epilog_limit: rng.random_bool(0.5).then_some(40.0),
        max_tolerance: rng.random_range(0..3),
        log_ignore: config::LogIgnore::default(),
    }
}

/// Where the site has this script run.
pub(super) fn place(site: &config::PerilogConfig, stage: Stage) -> Option<Place> {
    let script = match stage {
        Stage::Prolog => site.prolog.as_ref(),
        Stage::Epilog => site.epilog.as_ref(),
        Stage::Shell => None,
    };
    script.map(|script| if script.per_rank { Place::EachRank } else { Place::FirstRank })
}

//! What an administrator has to set so that jobs outlive their brokers. `job-exec-rs install` says
//! it too, but it may have been long ago, or on another node.

use std::path::Path;

/// What of it is set here.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The broker is rank 0's.
    pub(super) is_rank_0: bool,
    /// `FLUX_DISABLE_JOB_CLEANUP` is in the broker's environment. flux-core's rc1 reads it on rank
    /// 0 (`etc/modprobe/rc1.py`).
    pub(super) keeps_jobs: bool,
    /// `kvs.checkpoint-period` is configured (flux-core `kvs/kvs_checkpoint.c`).
    pub(super) makes_checkpoints: bool,
    /// The instance owner's user manager runs without a login; none if nobody can say.
    pub(super) lingers: Option<bool>,
    /// The instance owner.
    pub(super) user: String,
}

/// Whether a user manager runs without a login (loginctl(1), `enable-linger`): systemd-logind keeps
/// a file for each such user.
pub(super) fn lingers(user: &str) -> Option<bool> {
    let directory = Path::new("/var/lib/systemd/linger");
    directory.is_dir().then(|| directory.join(user).exists())
}

impl Site {
    /// What is not set, each with what becomes of it and what to do.
    pub(super) fn missing(&self) -> Vec<String> {
        let cleans_up = self.is_rank_0 && !self.keeps_jobs;
        let cleans_up = cleans_up.then(|| {
            "a stop of Flux cancels all jobs: set FLUX_DISABLE_JOB_CLEANUP=1 in the environment of \
             rank 0's broker"
                .to_string()
        });
        let forgets = self.is_rank_0 && !self.makes_checkpoints;
        let forgets = forgets.then(|| {
            "a kill of rank 0's broker can forget jobs that wait for resources: set \
             kvs.checkpoint-period"
                .to_string()
        });
        let user = &self.user;
        let ends = (self.lingers == Some(false)).then(|| {
            format!("jobs end when {user} has no login any more: run loginctl enable-linger {user}")
        });
        [cleans_up, forgets, ends].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        let user = "flux".to_string();
        Site {
            is_rank_0: true,
            keeps_jobs: true,
            makes_checkpoints: true,
            lingers: Some(true),
            user,
        }
    }

    #[test]
    fn nothing_is_said_where_all_is_set_or_nobody_can_say() {
        assert_eq!(site().missing(), [""; 0]);
        assert_eq!(Site { lingers: None, ..site() }.missing(), [""; 0]);
        let is_rank_0 = false;
        let follower = Site { is_rank_0, keeps_jobs: false, makes_checkpoints: false, ..site() };
        assert_eq!(follower.missing(), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let nothing_set =
            Site { keeps_jobs: false, makes_checkpoints: false, lingers: Some(false), ..site() };
        let missing = nothing_set.missing();
        assert!(missing[0].contains("FLUX_DISABLE_JOB_CLEANUP=1"), "{missing:?}");
        assert!(missing[1].contains("kvs.checkpoint-period"), "{missing:?}");
        assert!(missing[2].contains("loginctl enable-linger flux"), "{missing:?}");
    }
}

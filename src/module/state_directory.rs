//! Where a rank keeps the records and the output of its shells.
//!
//! The place must outlive the broker. Brokers delete the attribute `statedir` on all ranks but 0,
//! and systemd removes the run directory of a stopped service (`RuntimeDirectory=`), so neither
//! serves on a follower. What does is `StateDirectory=` of the service's unit, or a directory that
//! the administrator names.

use std::path::{Path, PathBuf};

/// Below the place, so that it can be shared with others.
const NAME: &str = "job-exec";

/// What can be the place, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// `exec.state-directory`.
    pub(super) configured: Option<String>,
    /// `$STATE_DIRECTORY` (systemd.exec(5)); several are separated by colons. It is the service's,
    /// so an instance that is itself a job passes it over.
    pub(super) of_service: Option<String>,
    /// The broker attribute `statedir`.
    pub(super) statedir: Option<String>,
    /// The broker has made `statedir` itself, and removes it when it ends (flux-core
    /// `broker/rundir.c`).
    pub(super) removes_statedir: bool,
    /// The broker attribute `rundir`.
    pub(super) rundir: Option<String>,
    /// Of this broker. A configured directory can be shared by brokers of one node.
    pub(super) rank: u32,
}

/// The place, and what to say about it.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct StatePlace {
    pub(super) directory: PathBuf,
    /// It outlives the broker's process, and the service's stop.
    pub(super) lasts: bool,
    /// For the log.
    pub(super) notice: Option<String>,
}

impl Candidates {
    /// The first place that there is. But running shells have their records where an earlier
    /// release, or another configuration, has put them; as long as some are there, and none are in
    /// the first place, that place is used.
    pub(super) fn choose(&self, has_records: impl Fn(&Path) -> bool) -> Option<StatePlace> {
        let places = self.places();
        let (first, lasts) = places.first()?;
        let old = places.iter().find(|(directory, _)| has_records(directory));
        if let Some((directory, lasts)) = old
            && directory != first
        {
            let notice = format!(
                "{} has records of shells: it is used instead of {} until the module is loaded \
                 without any there",
                directory.display(),
                first.display()
            );
            return Some(StatePlace {
                directory: directory.clone(),
                lasts: *lasts,
                notice: Some(notice),
            });
        }
        let notice = (!lasts).then(|| {
            format!(
                "records of shells are in {}, which may not outlive the broker: set \
                 exec.state-directory, or StateDirectory= in the broker's unit",
                first.display()
            )
        });
        Some(StatePlace { directory: first.clone(), lasts: *lasts, notice })
    }

    fn places(&self) -> Vec<(PathBuf, bool)> {
        let path = |text: &Option<String>| text.as_ref().filter(|text| !text.is_empty()).cloned();
        let of_service = path(&self.of_service)
            .and_then(|paths| paths.split(':').next().map(str::to_string))
            .filter(|path| path.starts_with('/'));
        let configured = path(&self.configured)
            .map(|path| PathBuf::from(path).join(NAME).join(format!("rank-{}", self.rank)));
        let statedir = path(&self.statedir);
        let (kept, removed) =
            if self.removes_statedir { (None, statedir) } else { (statedir, None) };
        let below = |path: String| PathBuf::from(path).join(NAME);
        let lasting = [of_service, kept].into_iter().flatten().map(below);
        let brief = [path(&self.rundir), removed].into_iter().flatten().map(below);
        let mut places = Vec::new();
        for (directory, lasts) in configured
            .into_iter()
            .chain(lasting)
            .map(|d| (d, true))
            .chain(brief.map(|d| (d, false)))
        {
            if !places.iter().any(|(known, _)| *known == directory) {
                places.push((directory, lasts));
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Candidates {
        let text = |text: &str| Some(text.to_string());
        Candidates {
            configured: text("/var/lib/exec"),
            of_service: text("/var/lib/flux:/var/lib/other"),
            statedir: text("/var/lib/flux"),
            removes_statedir: false,
            rundir: text("/run/flux"),
            rank: 3,
        }
    }

    fn directory(candidates: &Candidates) -> (String, bool, bool) {
        let place = candidates.choose(|_| false).expect("a place");
        (place.directory.display().to_string(), place.lasts, place.notice.is_some())
    }

    #[test]
    fn what_outlives_the_broker_comes_first() {
        let mut candidates = all();
        let expect = |path: &str, lasts: bool| (path.to_string(), lasts, !lasts);
        assert_eq!(directory(&candidates), expect("/var/lib/exec/job-exec/rank-3", true));
        candidates.configured = None;
        assert_eq!(directory(&candidates), expect("/var/lib/flux/job-exec", true));
        // A follower of a site that sets no StateDirectory=.
        candidates.of_service = Some(String::new());
        candidates.statedir = None;
        assert_eq!(directory(&candidates), expect("/run/flux/job-exec", false));
        candidates.rundir = None;
        assert_eq!(candidates.choose(|_| true), None);
    }

    /// The configuration was another when they were started.
    #[test]
    fn records_of_running_shells_are_not_left_behind() {
        let rundir = Path::new("/run/flux/job-exec");
        let place = all().choose(|directory| directory == rundir).expect("a place");
        assert_eq!((place.directory.as_path(), place.lasts), (rundir, false));
        assert!(place.notice.is_some_and(|text| text.contains("has records")));
        // Records in the first place count more.
        let place = all().choose(|_| true).expect("a place");
        assert_eq!(place.directory, Path::new("/var/lib/exec/job-exec/rank-3"));
    }

    #[test]
    fn a_statedir_that_the_broker_removes_serves_only_shells_that_have_their_records_there() {
        let candidates = Candidates {
            removes_statedir: true,
            configured: None,
            of_service: None,
            statedir: Some("/var/tmp/flux-x".to_string()),
            ..all()
        };
        assert_eq!(directory(&candidates), ("/run/flux/job-exec".to_string(), false, true));
        let statedir = Path::new("/var/tmp/flux-x/job-exec");
        let place = candidates.choose(|directory| directory == statedir).expect("a place");
        assert_eq!((place.directory.as_path(), place.lasts), (statedir, false));
    }
}

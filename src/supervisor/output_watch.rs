//! Notices which output files grew, and which files are gone, with inotify.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InotifyEvent, WatchDescriptor};
use tokio::time::Instant;

use crate::proto::{Stream, UnitName};

use super::inotify::Watcher;
use super::output::Grown;
use super::records::{RECORD, STRAY};

/// How often the worker looks at all output files if it has no inotify instance, or if the directory
/// is gone. Hundreds of brokers on one host (tests of large instances) use up the kernel's default of
/// 128 instances for each user.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// One inotify instance, with one watch on the directory.
#[derive(Debug)]
pub(crate) struct OutputWatch {
    directory: PathBuf,
    /// `None`: the host has no inotify instance left.
    watcher: Option<Watcher>,
    /// `None`: the directory that was watched is gone.
    watch: Cell<Option<WatchDescriptor>>,
    /// When all files are looked at, if nothing is watched.
    next_look: Cell<Instant>,
}

impl OutputWatch {
    /// Watch all output files of a directory. Needs a tokio runtime around it.
    pub(crate) fn new(directory: &Path) -> Self {
        let watched = Watcher::new()
            .and_then(|watcher| add(&watcher, directory).map(|watch| (watcher, watch)))
            .inspect_err(|e| {
                tracing::warn!(directory = %directory.display(), error = %e,
                    "no inotify (see fs.inotify.max_user_instances and max_user_watches): checking output \
                     files every {POLL_INTERVAL:?}");
            });
        let (watcher, watch) = watched.ok().unzip();
        let (watch, next_look) = (Cell::new(watch), Cell::new(Instant::now()));
        Self { directory: directory.to_path_buf(), watcher, watch, next_look }
    }

    /// Wait until files grew, or are gone. May be dropped and called again.
    pub(crate) async fn grown(&self) -> Grown {
        loop {
            let Some(watcher) = self.watcher.as_ref().filter(|_| self.watch.get().is_some()) else {
                tokio::time::sleep_until(self.next_look.get()).await;
                self.look_later();
                self.watch_again();
                return Grown::Any;
            };
            if let Some(grown) = self.read(watcher.events().await) {
                return grown;
            }
        }
    }

    /// Which files grew or went until now, if any did. The directory holds the records, too: whoever
    /// has written to one calls this first, so that its event wakes nobody.
    pub(crate) fn grown_already(&self) -> Option<Grown> {
        if let (Some(watcher), Some(_)) = (&self.watcher, self.watch.get()) {
            return self.read(watcher.events_already());
        }
        // A worker that always has something else to do gets no answer of `grown`.
        let is_time = Instant::now() >= self.next_look.get();
        if is_time {
            self.look_later();
        }
        (self.watch_again() || is_time).then_some(Grown::Any)
    }

    fn look_later(&self) {
        self.next_look.set(Instant::now() + POLL_INTERVAL);
    }

    /// Watch the directory that has taken the place of the one that is gone. Returns whether there is
    /// one.
    fn watch_again(&self) -> bool {
        let Some(watcher) = &self.watcher else { return false };
        self.watch.set(add(watcher, &self.directory).ok());
        self.watch.get().is_some()
    }

    /// What the events say. `None`: no output file grew, and none is gone.
    fn read(&self, events: io::Result<Vec<InotifyEvent>>) -> Option<Grown> {
        let events = match events {
            Ok(events) => events,
            Err(e) => {
                tracing::error!(error = %e, "cannot read inotify events of output files");
                return Some(Grown::Any);
            }
        };
        let has = |flag| events.iter().any(|event| event.mask.contains(flag));
        let is_current = |event: &&InotifyEvent| Some(event.wd) == self.watch.get();
        let ends = AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF;
        if events.iter().filter(is_current).any(|event| event.mask.intersects(ends)) {
            if let (Some(watcher), Some(watch)) = (&self.watcher, self.watch.take()) {
                watcher.remove(watch);
            }
            return Some(Grown::Any);
        }
        if has(AddWatchFlags::IN_Q_OVERFLOW) {
            return Some(Grown::Any);
        }
        let name = |event: &InotifyEvent| event.name.as_deref()?.to_str().map(str::to_string);
        let names = || events.iter().filter_map(name);
        let files: BTreeSet<_> = names().filter_map(|name| output_file(&name)).collect();
        let strays = names().any(|name| name.ends_with(&format!(".{STRAY}")));
        let removed = events.iter().filter(|event| event.mask.intersects(removed()));
        let records: BTreeSet<_> = removed
            .filter_map(name)
            .filter_map(|name| unit_of(name.strip_suffix(RECORD)?))
            .collect();
        let is_news = strays || !files.is_empty() || !records.is_empty();
        is_news.then_some(Grown::These { files, records, strays })
    }
}

fn add(watcher: &Watcher, directory: &Path) -> io::Result<WatchDescriptor> {
    let flags = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVE_SELF | removed();
    watcher.add(directory, flags)
}

fn removed() -> AddWatchFlags {
    AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM
}

fn output_file(name: &str) -> Option<(UnitName, Stream)> {
    let stdout = name.strip_suffix("out").map(|stem| (stem, Stream::Stdout));
    let (stem, stream) = stdout.or_else(|| Some((name.strip_suffix("err")?, Stream::Stderr)))?;
    Some((unit_of(stem)?, stream))
}

/// The unit of a file, whose name is given with a dot at its end.
fn unit_of(name: &str) -> Option<UnitName> {
    format!("{}.service", name.strip_suffix('.')?).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{BrokerRank, InstanceId, JobId};

    #[tokio::test]
    async fn what_was_read_already_is_not_reported_again() {
        let dir = tempfile::tempdir().unwrap();
        let watch = OutputWatch::new(dir.path());
        let unit = UnitName::new(false, BrokerRank(0), JobId(1), InstanceId::new("/test", 1));
        let write = |extension: &str| {
            std::fs::write(dir.path().join(format!("{}.{extension}", unit.stem())), "x").unwrap();
        };
        let is = |grown: Grown, stream| match grown {
            Grown::These { files, records, strays: false } => {
                records.is_empty() && files.into_iter().eq([(unit.clone(), stream)])
            }
            _ => false,
        };
        write("record");
        assert!(watch.grown_already().is_none());
        write("out");
        assert!(is(watch.grown_already().unwrap(), Stream::Stdout));
        write("err");
        assert!(is(watch.grown().await, Stream::Stderr));
    }

    /// A worker that always has something else to do drops [`OutputWatch::grown`] each time.
    #[tokio::test]
    async fn without_inotify_a_busy_worker_looks_when_it_is_time() {
        let dir = tempfile::tempdir().unwrap();
        let watch = OutputWatch { watcher: None, ..OutputWatch::new(dir.path()) };
        let (long_ago, later) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        for is_told in [false, true] {
            watch.next_look.set(if is_told { long_ago } else { later });
            assert_eq!(watch.grown_already().is_some(), is_told);
        }
        assert!(watch.next_look.get() > long_ago, "and not again at once");
        watch.next_look.set(long_ago);
        assert!(matches!(watch.grown().await, Grown::Any));
        assert!(watch.next_look.get() > long_ago);
    }

    /// [swept-made-again]
    #[tokio::test]
    async fn what_is_removed_is_noticed_and_so_is_a_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("state");
        std::fs::create_dir(&directory).unwrap();
        let watch = OutputWatch::new(&directory);
        let unit = UnitName::new(false, BrokerRank(0), JobId(1), InstanceId::new("/test", 1));
        let path = |extension: &str| directory.join(format!("{}.{extension}", unit.stem()));
        for extension in ["record", "new", "out"] {
            std::fs::write(path(extension), "").unwrap();
        }
        std::fs::rename(path("new"), path("record")).unwrap();
        assert!(watch.grown_already().is_none(), "nothing is gone");
        std::fs::remove_file(path("record")).unwrap();
        std::fs::rename(path("out"), path("other")).unwrap();
        let Some(Grown::These { files, records, .. }) = watch.grown_already() else {
            panic!("two files are gone");
        };
        assert!(files.into_iter().eq([(unit.clone(), Stream::Stdout)]));
        assert!(records.into_iter().eq([unit.clone()]));
        for is_moved in [false, true] {
            if is_moved {
                std::fs::rename(&directory, dir.path().join("away")).unwrap();
            } else {
                std::fs::remove_dir_all(&directory).unwrap();
            }
            assert!(matches!(watch.grown().await, Grown::Any));
            watch.next_look.set(Instant::now() + Duration::from_secs(3600));
            assert!(watch.grown_already().is_none(), "there is nothing to watch");
            std::fs::create_dir(&directory).unwrap();
            assert!(matches!(watch.grown_already(), Some(Grown::Any)));
            std::fs::write(path("out"), "x").unwrap();
            assert!(matches!(watch.grown().await, Grown::These { .. }));
        }
    }
}

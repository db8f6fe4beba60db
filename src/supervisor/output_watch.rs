//! Notices which output files grew, with inotify.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InotifyEvent};

use crate::proto::{Stream, UnitName};

use super::inotify::Watcher;
use super::output::Grown;
use super::records::STRAY;

/// How often the worker looks at all output files if it has no inotify instance. Hundreds of
/// brokers on one host (tests of large instances) use up the kernel's default of 128 instances
/// for each user.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Notices which output files grew, with one inotify instance and one watch on the directory.
#[derive(Debug)]
pub(crate) struct OutputWatch {
    /// `None`: the host has no inotify instance left.
    watcher: Option<Watcher>,
}

impl OutputWatch {
    /// Watch all output files of a directory. Needs a tokio runtime around it.
    pub(crate) fn new(directory: &Path) -> Self {
        let watcher = Watcher::new()
            .and_then(|watcher| watcher.add(directory, AddWatchFlags::IN_MODIFY).map(|_| watcher))
            .inspect_err(|e| {
                tracing::warn!(directory = %directory.display(), error = %e,
                    "no inotify (see fs.inotify.max_user_instances): checking output files every {POLL_INTERVAL:?}");
            });
        Self { watcher: watcher.ok() }
    }

    /// Wait until files grew. May be dropped and called again.
    pub(crate) async fn grown(&self) -> Grown {
        let Some(watcher) = &self.watcher else {
            tokio::time::sleep(POLL_INTERVAL).await;
            return Grown::Any;
        };
        loop {
            if let Some(grown) = read(watcher.events().await) {
                return grown;
            }
        }
    }

    /// Which files grew until now, if any did. The directory holds the records, too: who has written
    /// to one calls this, and is not woken by it.
    pub(crate) fn grown_already(&self) -> Option<Grown> {
        read(self.watcher.as_ref()?.events_already())
    }
}

/// `None`: no output file grew.
fn read(events: io::Result<Vec<InotifyEvent>>) -> Option<Grown> {
    let events = match events {
        Ok(events) => events,
        Err(e) => {
            tracing::error!(error = %e, "cannot read inotify events of output files");
            return Some(Grown::Any);
        }
    };
    if events.iter().any(|e| e.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)) {
        return Some(Grown::Any);
    }
    let names = || events.iter().filter_map(|e| e.name.as_deref()?.to_str());
    let files: BTreeSet<_> = names().filter_map(output_file).collect();
    let strays = names().any(|name| name.ends_with(&format!(".{STRAY}")));
    (strays || !files.is_empty()).then_some(Grown::These { files, strays })
}

fn output_file(name: &str) -> Option<(UnitName, Stream)> {
    let (stem, stream) = match name.rsplit_once('.')? {
        (stem, "out") => (stem, Stream::Stdout),
        (stem, "err") => (stem, Stream::Stderr),
        (_, _) => return None,
    };
    Some((format!("{stem}.service").parse().ok()?, stream))
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
            Grown::These { files, strays: false } => files.into_iter().eq([(unit.clone(), stream)]),
            _ => false,
        };
        write("record");
        assert!(watch.grown_already().is_none());
        write("out");
        assert!(is(watch.grown_already().unwrap(), Stream::Stdout));
        write("err");
        assert!(is(watch.grown().await, Stream::Stderr));
    }
}

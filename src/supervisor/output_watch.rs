//! Notices which output files grew, with inotify.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use nix::sys::inotify::AddWatchFlags;

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
            let events = match watcher.events().await {
                Ok(events) => events,
                Err(e) => {
                    tracing::error!(error = %e, "cannot read inotify events of output files");
                    return Grown::Any;
                }
            };
            if events.iter().any(|e| e.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)) {
                return Grown::Any;
            }
            let names = || events.iter().filter_map(|e| e.name.as_deref()?.to_str());
            let files: BTreeSet<_> = names().filter_map(output_file).collect();
            let strays = names().any(|name| name.ends_with(&format!(".{STRAY}")));
            if strays || !files.is_empty() {
                return Grown::These { files, strays };
            }
        }
    }
}

fn output_file(name: &str) -> Option<(UnitName, Stream)> {
    let (stem, stream) = match name.rsplit_once('.')? {
        (stem, "out") => (stem, Stream::Stdout),
        (stem, "err") => (stem, Stream::Stderr),
        (_, _) => return None,
    };
    Some((format!("{stem}.service").parse().ok()?, stream))
}

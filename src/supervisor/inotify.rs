//! inotify for tokio.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::unix::AsyncFd;

use super::readable::readable;

/// One inotify instance.
#[derive(Debug)]
pub(crate) struct Watcher(AsyncFd<Instance>);

/// What [`AsyncFd`] asks for.
#[derive(Debug)]
struct Instance(Inotify);

impl AsRawFd for Instance {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Watcher {
    /// A new instance. Needs a tokio runtime around it.
    pub(crate) fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self(readable(Instance(inotify))?))
    }

    /// Watch a path.
    pub(crate) fn add(&self, path: &Path, flags: AddWatchFlags) -> io::Result<WatchDescriptor> {
        Ok(self.0.get_ref().0.add_watch(path, flags)?)
    }

    /// Watch it no longer. The kernel may have removed the watch with the file already.
    pub(crate) fn remove(&self, watch: WatchDescriptor) {
        let _ = self.0.get_ref().0.rm_watch(watch);
    }

    /// The events until now.
    pub(crate) fn events_already(&self) -> io::Result<Vec<InotifyEvent>> {
        match self.0.get_ref().0.read_events() {
            Err(Errno::EAGAIN) => Ok(Vec::new()),
            result => Ok(result?),
        }
    }

    /// Wait for events. May be dropped and called again without losing one.
    pub(crate) async fn events(&self) -> io::Result<Vec<InotifyEvent>> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.get_inner().0.read_events() {
                Ok(events) => return Ok(events),
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(e) => {
                    ready.clear_ready();
                    return Err(e.into());
                }
            }
        }
    }
}

//! The KVS as files.
//!
//! `namespaces/job-<id>` is a guest namespace, with the file `exec.eventlog`. While the job runs,
//! `primary/<job's directory>/guest` is a symlink to it. Afterwards it is the directory itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use job_exec_rs::machine::{Creation, Fault, KvsOp, KvsResult, Opened};
use job_exec_rs::proto::{ExecEvent, Idset, JobId, decode_eventlog};

const EVENTLOG: &str = "exec.eventlog";

/// A KVS below one directory.
#[derive(Debug)]
pub(super) struct Kvs {
    directory: PathBuf,
}

impl Kvs {
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        for name in ["namespaces", "primary"] {
            make_directory(&directory.join(name))?;
        }
        Ok(Self { directory: directory.to_path_buf() })
    }

    /// Carries out `op`. The user id of a namespace is ignored: all files belong to the instance
    /// owner. `released` tells which ranks the job manager has back.
    pub(super) fn run(&self, id: JobId, op: &KvsOp, released: impl Fn() -> Idset) -> KvsResult {
        match op {
            // No client here looks whose namespace it is.
            KvsOp::Append { events, .. } => KvsResult::Appended(fault(self.append(id, events))),
            KvsOp::Create { .. } => KvsResult::Created(self.create(id)),
            KvsOp::Link => KvsResult::Linked(fault(self.link(id))),
            KvsOp::Move { .. } => KvsResult::Moved(fault(self.graft(id))),
            KvsOp::Open { .. } => KvsResult::Opened(self.open(id)),
            // Nobody has commits to leave: no shell here has a connector.
            KvsOp::Recommit(bequest) => {
                KvsResult::Recommitted { client: bequest.client.clone(), result: Ok(()) }
            }
            KvsOp::Released => KvsResult::Released(Ok(released())),
        }
    }

    fn create(&self, id: JobId) -> Result<Creation, Fault> {
        match fs::create_dir(self.namespace(id)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Creation::Existed),
            made => fault(made).map(|()| Creation::Made),
        }
    }

    fn namespace(&self, id: JobId) -> PathBuf {
        self.directory.join("namespaces").join(id.namespace())
    }

    /// The job's `guest` entry in the primary namespace.
    fn guest(&self, id: JobId) -> PathBuf {
        let key = id.kvs_key("guest");
        self.directory.join("primary").join(key.replace('.', "/"))
    }

    /// Appends all events of a commit in one write, so that a reader never sees half of a commit.
    fn append(&self, id: JobId, events: &[ExecEvent]) -> io::Result<()> {
        let text: String = events.iter().map(ExecEvent::encode).collect();
        let path = self.namespace(id).join(EVENTLOG);
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(text.as_bytes())
    }

    fn link(&self, id: JobId) -> io::Result<()> {
        let guest = self.guest(id);
        if let Some(parent) = guest.parent() {
            make_directory(parent)?;
        }
        match symlink(self.namespace(id), &guest) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn graft(&self, id: JobId) -> io::Result<()> {
        let (namespace, guest) = (self.namespace(id), self.guest(id));
        File::open(namespace.join(EVENTLOG))?.sync_all()?;
        match fs::remove_file(&guest) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => (),
        }
        if let Some(parent) = guest.parent() {
            make_directory(parent)?;
        }
        fs::rename(namespace, guest)
    }

    fn open(&self, id: JobId) -> Result<Opened, Fault> {
        let guest = self.guest(id);
        // If this is a directory, the namespace has replaced the symlink.
        let grafted = fs::symlink_metadata(&guest).is_ok_and(|metadata| metadata.is_dir());
        let directory = if grafted { guest } else { self.namespace(id) };
        let text = fs::read_to_string(directory.join(EVENTLOG)).map_err(|e| io_fault(&e))?;
        let events = decode_eventlog(&text).map_err(|e| Fault::new(libc::EPROTO, e.to_string()))?;
        if !grafted {
            self.link(id).map_err(|e| io_fault(&e))?;
        }
        Ok(Opened { events, moved: grafted, ..Opened::default() })
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn fault(result: io::Result<()>) -> Result<(), Fault> {
    result.map_err(|error| io_fault(&error))
}

fn io_fault(error: &io::Error) -> Fault {
    Fault::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
}

#[cfg(test)]
mod tests {
    use job_exec_rs::proto::WallTime;

    use super::*;

    const ID: JobId = JobId(77);

    fn names(result: KvsResult) -> (Vec<String>, bool) {
        match result {
            KvsResult::Opened(Ok(opened)) => {
                (opened.events.into_iter().map(|event| event.name).collect(), opened.moved)
            }
            other => panic!("expected an opened namespace, got {other:?}"),
        }
    }

    #[test]
    fn a_namespace_is_made_once_found_again_and_moved() {
        let dir = tempfile::tempdir().expect("a directory");
        let kvs = Kvs::new(dir.path()).expect("a KVS");
        let (create, open) = (KvsOp::Create { userid: 0 }, KvsOp::Open { userid: 0 });
        assert_eq!(kvs.run(ID, &create, Idset::new), KvsResult::Created(Ok(Creation::Made)));
        assert_eq!(kvs.run(ID, &create, Idset::new), KvsResult::Created(Ok(Creation::Existed)));
        let events =
            |names: &[&str]| names.iter().map(|n| ExecEvent::bare(WallTime(1.0), n)).collect();
        let append = KvsOp::Append { events: events(&["init", "starting"]), run: None };
        kvs.run(ID, &append, Idset::new);
        assert_eq!(kvs.run(ID, &KvsOp::Link, Idset::new), KvsResult::Linked(Ok(())));
        let found = kvs.run(ID, &open, Idset::new);
        assert_eq!(names(found), (vec!["init".into(), "starting".into()], false));
        let done = KvsOp::Append { events: events(&["done"]), run: None };
        kvs.run(ID, &done, Idset::new);
        assert_eq!(kvs.run(ID, &KvsOp::Move { usage: None }, Idset::new), KvsResult::Moved(Ok(())));
        let (events, moved) = names(kvs.run(ID, &open, Idset::new));
        assert_eq!((events.last().map(String::as_str), moved), (Some("done"), true));
        assert!(!kvs.namespace(ID).exists());
    }

    #[test]
    fn a_namespace_that_never_was_is_named_by_errno() {
        let dir = tempfile::tempdir().expect("a directory");
        let kvs = Kvs::new(dir.path()).expect("a KVS");
        let KvsResult::Opened(Err(fault)) = kvs.run(ID, &KvsOp::Open { userid: 0 }, Idset::new)
        else {
            panic!("nothing was there")
        };
        assert_eq!(fault.errnum, libc::ENOENT);
    }
}

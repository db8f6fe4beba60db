//! What the job manager keeps of its jobs: a file for each job that is not over.
//!
//! A real job manager has this in the KVS, so they are in `kvs/manager`. The files outlive the
//! process, but not the host: nothing here is synced to the disk.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use job_exec_rs::proto::JobId;

use super::manager::KeptJob;

/// How the name of a file ends while it is written.
const UNFINISHED: &str = ".new";

/// The files of all jobs, in one directory.
#[derive(Debug)]
pub(super) struct JobFiles {
    directory: PathBuf,
}

impl JobFiles {
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_path_buf() })
    }

    /// Jobs that an earlier instance has left.
    ///
    /// # Errors
    /// If a file cannot be read. Its job must not be taken for one that is over.
    pub(super) fn load(&self) -> io::Result<Vec<(JobId, KeptJob)>> {
        let mut jobs = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // Half of a file is no news: the whole one that it was to replace is still there.
            if name.ends_with(UNFINISHED) {
                continue;
            }
            let bad = |error: &dyn std::fmt::Display| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {error}"))
            };
            let id = name.parse().map_err(|error| bad(&error))?;
            let kept = serde_json::from_slice(&fs::read(&path)?).map_err(|error| bad(&error))?;
            jobs.push((id, kept));
        }
        Ok(jobs)
    }

    /// Removes the files of all jobs, and no other.
    pub(super) fn forget_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.trim_end_matches(UNFINISHED).parse::<JobId>().is_ok() {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Writes the file of a job. A reader finds the old file or the new one.
    pub(super) fn keep(&self, id: JobId, job: &KeptJob) -> io::Result<()> {
        let path = self.path(id);
        let unfinished = self.directory.join(format!("{}{UNFINISHED}", id.f58plain()));
        fs::write(&unfinished, serde_json::to_vec(job)?)?;
        fs::rename(unfinished, path)
    }

    /// Removes the file of a job that is over.
    pub(super) fn forget(&self, id: JobId) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn path(&self, id: JobId) -> PathBuf {
        self.directory.join(id.f58plain())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::manager::JobRequest;
    use super::*;
    use job_exec_rs::proto::Idset;

    const ID: JobId = JobId(77 << 24);

    fn kept(released: &str) -> KeptJob {
        let ranks = Idset::from_range(0..4);
        let command = vec!["true".to_string()];
        KeptJob {
            submitted: JobRequest { command, ranks, duration: 1.5 },
            start: json!({ "id": ID, "reattach": true }),
            released: released.parse().expect("an idset"),
        }
    }

    #[test]
    fn a_job_is_there_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = JobFiles::new(dir.path()).expect("files");
        files.keep(ID, &kept("")).expect("a file");
        files.keep(ID, &kept("2-3")).expect("the newer one");
        // The process was killed while it wrote.
        fs::write(files.directory.join(format!("{}{UNFINISHED}", ID.f58plain())), "{").unwrap();
        assert_eq!(files.load().expect("jobs"), [(ID, kept("2-3"))]);
        files.forget(ID).expect("it is there");
        files.forget(ID).expect("it need not be there");
        assert!(files.load().expect("no jobs").is_empty());
        files.keep(ID, &kept("")).expect("a file");
        fs::write(dir.path().join("notes"), "of somebody else").expect("a file");
        files.forget_all().expect("files");
        let left: Vec<_> = fs::read_dir(dir.path()).expect("entries").flatten().collect();
        assert_eq!(left.iter().map(|file| file.file_name()).collect::<Vec<_>>(), ["notes"]);
    }

    #[test]
    fn a_file_that_is_no_job_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = JobFiles::new(dir.path()).expect("files");
        fs::write(files.path(ID), "{}").expect("a file");
        let error = files.load().expect_err("no job").to_string();
        assert!(error.contains(&ID.f58plain()), "{error}");
    }
}

//! Reads the exec eventlog of an earlier leader from a guest namespace.
//!
//! The namespace belongs to the job's user, who can put symbolic links into it. The KVS follows
//! links with the rights of the one who asks, which is the instance owner here. So no link may be
//! followed: each step of the path is checked before the eventlog is read. All steps are below one
//! root, which is immutable, so what was checked is what is read.

use std::ffi::c_int;

use flux_sys::libflux;
use serde_json::Value;

use super::error::RpcError;
use super::future::Answered;
use super::kvs::Kvs;
use super::text::cstring;
use crate::machine::Fault;
use crate::proto::JobId;

pub(super) const EVENTLOG_KEY: &str = "exec.eventlog";

/// The steps of the path to the eventlog: key, allowed types of tree object, and a word for them.
const STEPS: [(&str, &[&str], &str); 2] =
    [("exec", &["dirref"], "directory"), (EVENTLOG_KEY, &["val", "valref"], "value")];

type Found = Result<String, RpcError>;

impl Kvs {
    /// Reads the exec eventlog below `root`, the `dirref` of a guest namespace's root. Empty if there
    /// is none: who made the namespace may have ended before its first commit.
    pub(super) async fn read_eventlog(&self, id: JobId, root: &str) -> Result<String, Fault> {
        let mut steps = Vec::new();
        for asked in STEPS.map(|(key, ..)| self.lookup_at(root, key, true)) {
            steps.push(asked.await);
        }
        match judge(id, &steps)? {
            Log::Missing => Ok(String::new()),
            Log::There => Ok(self.lookup_at(root, EVENTLOG_KEY, false).await?),
        }
    }

    /// Looks up `key` below `root`, a `dirref`.
    fn lookup_at(&self, root: &str, key: &str, treeobj: bool) -> Answered {
        let flags = if treeobj { flux_sys::kvs_op_FLUX_KVS_TREEOBJ as c_int } else { 0 };
        let (root, key) = (cstring(root), cstring(key));
        let handle = self.handle();
        // SAFETY: the strings live through the call, which copies them.
        let future = unsafe {
            libflux().flux_kvs_lookupat(handle.as_ptr(), flags, key.as_ptr(), root.as_ptr())
        };
        self.take_lookup(future, treeobj)
    }
}

/// What the steps lead to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Log {
    There,
    Missing,
}

/// Whether all steps are safe, up to the first that leads to nothing.
fn judge(id: JobId, steps: &[Found]) -> Result<Log, Fault> {
    for (found, step) in steps.iter().zip(STEPS) {
        match found {
            Err(error) if error.errnum == libc::ENOENT => return Ok(Log::Missing),
            found => check(id, step, found)?,
        }
    }
    Ok(Log::There)
}

/// Whether this step is safe. The error does not name the target of a link, because its reader may
/// not be allowed to know it.
fn check(
    id: JobId,
    (key, wanted, noun): (&str, &[&str], &str),
    found: &Found,
) -> Result<(), Fault> {
    let treeobj = found.as_ref().map_err(|error| Fault::from(error.clone()))?;
    let treeobj: Value = serde_json::from_str(treeobj).unwrap_or_default();
    let what = match treeobj["type"].as_str() {
        Some(kind) if wanted.contains(&kind) => return Ok(()),
        Some("symlink") => "a symbolic link, which is not followed".to_string(),
        _ => format!("no {noun}"),
    };
    Err(Fault::new(libc::EPERM, format!("{id}: {key} is {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(step: usize, treeobj: &str) -> Option<String> {
        let found = Ok(treeobj.to_string());
        check(JobId(1), STEPS[step], &found).err().map(|fault| fault.to_string())
    }

    #[test]
    fn links_are_refused_without_their_target() {
        let link = r#"{"ver":1,"type":"symlink","data":{"namespace":"job-2","target":"secret"}}"#;
        for (step, (key, ..)) in STEPS.iter().enumerate() {
            let said = said(step, link).unwrap();
            assert!(said.contains(&format!("{key} is a symbolic link")), "{said}");
            assert!(!said.contains("secret") && !said.contains("job-2"), "{said}");
        }
    }

    #[test]
    fn a_step_is_taken_only_to_what_belongs_there() {
        let [dirref, val, valref] = ["dirref", "val", "valref"]
            .map(|kind| format!(r#"{{"ver":1,"type":"{kind}","data":["sha1-0"]}}"#));
        assert_eq!((said(0, &dirref), said(1, &val), said(1, &valref)), (None, None, None));
        assert!(said(0, &val).unwrap().contains("exec is no directory"));
        assert!(said(1, &dirref).unwrap().contains("exec.eventlog is no value"));
        assert!(said(1, "nonsense").is_some());
    }

    #[test]
    fn what_cannot_be_looked_up_is_told_as_it_is() {
        let error = RpcError { errnum: libc::EIO, message: "lost".into() };
        let fault = check(JobId(1), STEPS[0], &Err(error)).unwrap_err();
        assert_eq!((fault.errnum, fault.to_string().as_str()), (libc::EIO, "lost"));
    }

    #[test]
    fn a_namespace_that_nobody_has_written_to_has_an_empty_log() {
        let missing = || Err(RpcError { errnum: libc::ENOENT, message: String::new() });
        let treeobj = |kind| Ok(format!(r#"{{"ver":1,"type":"{kind}","data":["sha1-0"]}}"#));
        assert_eq!(judge(JobId(1), &[missing(), missing()]), Ok(Log::Missing));
        assert_eq!(judge(JobId(1), &[treeobj("dirref"), missing()]), Ok(Log::Missing));
        assert_eq!(judge(JobId(1), &[treeobj("dirref"), treeobj("val")]), Ok(Log::There));
        assert!(judge(JobId(1), &[treeobj("symlink"), missing()]).is_err());
    }
}

//! PAM stacks of sessions (pam.conf(5)).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where they are. The first one that has a file counts.
pub(super) const DIRECTORIES: [&str; 4] =
    ["/etc/pam.d", "/usr/lib/pam.d", "/usr/share/pam.d", "/usr/etc/pam.d"];

/// What brings `pam_systemd` into the sessions of a service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PamSystemd {
    /// Of the service.
    pub(super) file: PathBuf,
    /// The line there that has it, or includes it; the first is 1.
    pub(super) line: usize,
    /// The file that has it.
    pub(super) from: PathBuf,
}

/// Looks for it in the stack of a service, and in what that includes.
pub(super) fn find(directories: &[&Path], service: &str) -> Option<PamSystemd> {
    let file = path(directories, service)?;
    let mut seen = BTreeSet::from([file.clone()]);
    for (line, entry) in entries(&file) {
        let from = match entry {
            Entry::Module(module) if is_pam_systemd(&module) => Some(file.clone()),
            Entry::Module(_) => None,
            Entry::Include(name) => find_below(directories, &name, &mut seen),
        };
        if let Some(from) = from {
            return Some(PamSystemd { file, line, from });
        }
    }
    None
}

/// The file that has it, of one that is included and those that it includes.
fn find_below(directories: &[&Path], name: &str, seen: &mut BTreeSet<PathBuf>) -> Option<PathBuf> {
    let file = path(directories, name)?;
    if !seen.insert(file.clone()) {
        return None;
    }
    entries(&file).into_iter().find_map(|(_, entry)| match entry {
        Entry::Module(module) => is_pam_systemd(&module).then(|| file.clone()),
        Entry::Include(name) => find_below(directories, &name, seen),
    })
}

fn is_pam_systemd(module: &str) -> bool {
    Path::new(module).file_name().is_some_and(|name| name == "pam_systemd.so")
}

/// An absolute name is that file.
fn path(directories: &[&Path], name: &str) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(name)).find(|path| path.exists())
}

enum Entry {
    Module(String),
    Include(String),
}

/// What a file has for sessions, with the numbers of the lines.
fn entries(file: &Path) -> Vec<(usize, Entry)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let (mut entries, mut begun) = (Vec::new(), String::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        begun += line.strip_suffix('\\').unwrap_or(line);
        if line.ends_with('\\') {
            begun.push(' ');
            continue;
        }
        entries.extend(entry(&std::mem::take(&mut begun)).map(|entry| (index + 1, entry)));
    }
    entries
}

/// `@include FILE`, or `session CONTROL MODULE ARGUMENTS`, where the control can be a list in brackets.
fn entry(line: &str) -> Option<Entry> {
    let (kind, rest) = line.trim().split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    if kind == "@include" {
        return Some(Entry::Include(rest.trim_end().to_string()));
    }
    // With `-` it may be missing.
    if !kind.trim_start_matches('-').eq_ignore_ascii_case("session") {
        return None;
    }
    let (control, rest) = match rest.strip_prefix('[') {
        Some(list) => list.split_once(']')?,
        None => rest.split_once(char::is_whitespace)?,
    };
    let name = rest.split_whitespace().next()?.to_string();
    let includes = ["include", "substack"].iter().any(|word| control.eq_ignore_ascii_case(word));
    Some(if includes { Entry::Include(name) } else { Entry::Module(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of `flux` that brings it in, and the name of the file that has it.
    fn found(files: &[(&str, &str)]) -> Option<(usize, String)> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("a file");
        }
        let found = find(&[Path::new("/nonexistent"), directory.path()], "flux")?;
        let from = found.from.file_name().expect("a name").to_string_lossy().into_owned();
        Some((found.line, from))
    }

    #[test]
    fn it_is_found_in_the_stack_itself() {
        for line in [
            "session required pam_systemd.so",
            "-session optional pam_systemd.so kill-session-processes=1",
            "session [success=1 default=ignore] /lib/security/pam_systemd.so",
            "Session \\\n optional \\\n pam_systemd.so",
        ] {
            let lines = line.lines().count();
            let text = format!("auth required pam_localuser.so\n{line}\n");
            assert_eq!(found(&[("flux", &text)]), Some((1 + lines, "flux".into())), "{line}");
        }
    }

    #[test]
    fn it_is_found_in_what_the_stack_includes() {
        let has_it = ("common-session", "session optional pam_systemd.so\n");
        for line in [
            "@include common-session",
            "session include common-session",
            "session substack common-session",
        ] {
            let text = format!("session required pam_limits.so\n{line}\n");
            let found = found(&[("flux", &text), has_it]);
            assert_eq!(found, Some((2, "common-session".into())), "{line}");
        }
        // By way of another file, and in a circle.
        let between = ("between", "@include flux\n@include common-session\n");
        let text = "session include between\n";
        assert_eq!(found(&[("flux", text), between, has_it]), Some((1, "common-session".into())));
    }

    #[test]
    fn what_is_no_session_with_pam_systemd_is_not_taken_for_one() {
        let has_it = ("common-session", "session optional pam_systemd.so\n");
        for line in [
            "# session optional pam_systemd.so",
            "session optional pam_systemd_home.so",
            "session optional pam_systemd_loadkey.so",
            "account include common-session",
            "@include missing",
            "@include flux",
        ] {
            assert_eq!(found(&[("flux", line), has_it]), None, "{line}");
        }
        assert_eq!(found(&[has_it]), None);
    }
}

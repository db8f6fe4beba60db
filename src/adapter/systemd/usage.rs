//! What the kernel has counted for a slice (Linux `Documentation/admin-guide/cgroup-v2.rst`). Files of
//! controllers that are not delegated are not there.

use std::io;
use std::path::{Path, PathBuf};

use zbus::Variant;

use crate::port::supervisor::UnitSpec;
use crate::proto::{SliceName, Usage};
use crate::supervisor::with_descriptors;

use super::properties::parse;

/// Where the cgroup of a unit's slice is, below that of systemd.
pub(super) fn directory(manager: &Path, spec: &UnitSpec) -> PathBuf {
    let slice = SliceName::new(&spec.unit, spec.digest.as_str());
    let name = slice.under(spec.parent_slice());
    let levels = name.match_indices('-').map(|(dash, _)| format!("{}.slice", &name[..dash]));
    levels.chain([name.clone()]).fold(manager.to_path_buf(), |path, level| path.join(level))
}

/// What a unit has used. `None` if it has no such slice, or a process is left in it.
pub(super) fn read(directory: &Path, spec: &UnitSpec) -> Option<Usage> {
    // The unit's own cgroup can be there for a moment when its last process has ended.
    let events = with_descriptors(|| std::fs::read_to_string(directory.join("cgroup.events")));
    if events.is_ok_and(|events| value(&events, "populated") == Some(1)) {
        return None;
    }
    Some(Usage { limit: limit(spec), ..counted(directory)? })
}

/// What was counted for a cgroup so far. `None` if there is no such cgroup.
pub fn counted(directory: impl AsRef<Path>) -> Option<Usage> {
    let directory = directory.as_ref();
    let text = |name: &str| with_descriptors(|| std::fs::read_to_string(directory.join(name)));
    let cpu = match text("cpu.stat") {
        Ok(cpu) => cpu,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(cgroup = %directory.display(), %error, "cannot read what was used");
            }
            return None;
        }
    };
    let text = |name| text(name).unwrap_or_default();
    let number = |name| text(name).trim().parse().ok();
    let (events, io) = (text("memory.events"), text("io.stat"));
    Some(Usage {
        memory: number("memory.peak"),
        limit: None,
        user: value(&cpu, "user_usec"),
        system: value(&cpu, "system_usec"),
        processes: number("pids.peak"),
        read: sum(&io, "rbytes"),
        written: sum(&io, "wbytes"),
        oom_kills: value(&events, "oom_kill"),
        at_own_limit: value(&events, "oom").is_some_and(|ooms| ooms > 0),
    })
}

/// The limit of memory that was set for the unit.
fn limit(spec: &UnitSpec) -> Option<u64> {
    let properties = parse(&spec.properties).ok()?;
    let max = properties.into_iter().find(|property| property.name == "MemoryMax")?;
    match max.value {
        Variant::U64(bytes) if bytes != u64::MAX => Some(bytes),
        _ => None,
    }
}

/// The value of a key in a flat keyed file.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The sum of a key over the devices of a nested keyed file.
fn sum(text: &str, key: &str) -> Option<u64> {
    let values =
        text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let values = values.filter_map(|value| value.parse().ok());
    values.fold(None, |sum: Option<u64>, value: u64| Some(sum.unwrap_or(0).saturating_add(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{BrokerRank, InstanceId, JobId, UnitName};

    fn spec() -> UnitSpec {
        let unit = UnitName::new(false, BrokerRank(3), JobId(7), InstanceId::new("/a", 1));
        UnitSpec::bare(unit, "0123456789abcdef".into())
    }

    #[test]
    fn what_was_counted_is_read_once_the_unit_has_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, spec) = (directory.path(), spec());
        assert_eq!(read(path, &spec), None);
        let files = [
            ("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\nuser_usec_more 9\n"),
            ("io.stat", "8:0 rbytes=1 wbytes=20 rios=3\n8:16 rbytes=4 wbytes=50\n254:0\n"),
            ("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 0\n"),
            ("memory.peak", "18446744073709551615\n"),
            ("pids.peak", "max\n"),
        ];
        for (name, text) in files {
            std::fs::write(path.join(name), text).unwrap();
        }
        let all = Usage {
            memory: Some(u64::MAX),
            user: Some(20),
            system: Some(10),
            read: Some(5),
            written: Some(70),
            oom_kills: Some(2),
            at_own_limit: true,
            ..Usage::default()
        };
        assert_eq!(read(path, &spec), Some(all));
        let mut limited = spec.clone();
        limited.properties.insert("MemoryMax".to_string(), "20G".to_string());
        assert_eq!(read(path, &limited).unwrap().limit, Some(20 << 30));
        std::fs::write(path.join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert!(read(path, &spec).is_some());
        std::fs::write(path.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert_eq!(read(path, &spec), None);
    }

    #[test]
    fn files_that_are_empty_or_not_there_say_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("cpu.stat"), "").unwrap();
        std::fs::write(directory.path().join("io.stat"), "").unwrap();
        assert_eq!(read(directory.path(), &spec()), Some(Usage::default()));
    }

    #[test]
    fn a_slice_is_below_those_whose_names_it_begins_with() {
        let at = |parent: &str| {
            let mut spec = spec();
            spec.properties.insert("Slice".to_string(), parent.to_string());
            directory(Path::new("/m"), &spec).display().to_string()
        };
        let name = "shell_3_f8_";
        assert!(at("app.slice").starts_with(&format!("/m/app.slice/app-{name}")));
        assert!(at("a-b.slice").starts_with(&format!("/m/a.slice/a-b.slice/a-b-{name}")));
        assert!(at("-.slice").starts_with(&format!("/m/{name}")));
    }
}

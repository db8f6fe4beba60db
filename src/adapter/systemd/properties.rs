//! Converts configured unit properties to D-Bus properties.
//!
//! systemd has no call that says which properties can be set and of which type they are. So this
//! file has a table of them, as `systemctl set-property` has. A property that is not in the table
//! is refused, because a job must not silently run without its limit.

use std::collections::BTreeMap;

use zbus::Variant;

use crate::proto::Signal;

use super::values::{
    ValueError, bitmap, boolean, limit, microseconds, number, pairs, percent, size,
};

/// Linux's largest pid, where it does not tell how many tasks there may be.
const TASKS_MAX: u64 = 1 << 22;

/// A property as `StartTransientUnit` takes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    /// Its name on D-Bus, which can differ from that in unit files.
    pub(super) name: String,
    /// Its value, with the right type.
    pub(super) value: Variant<'static>,
}

/// A property that cannot be set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unit property {name}={value:?}: {reason}")]
pub struct PropertyError {
    name: String,
    value: String,
    reason: PropertyErrorReason,
}

/// Why it cannot.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
enum PropertyErrorReason {
    #[error("is set by the job execution service")]
    Ours,
    #[error("not a property that can be set")]
    Unknown,
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// How a property's text becomes a value.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bitmap,
    Boolean,
    Bytes,
    /// `Limit…`, in bytes.
    ByteLimit,
    /// `Limit…`, in another unit.
    CountLimit,
    CpuQuota,
    /// A time span. The unit of a plain number is this many microseconds.
    Duration(u64),
    Integer(i32, i32),
    Number,
    Octal,
    Pairs,
    Signal,
    Tasks,
    Text,
    Weight,
}

/// Name in unit files, name on D-Bus if it is another one, and type.
type Row = (&'static str, Option<&'static str>, Kind);

const SETTABLE: &[Row] = &[
    ("AllowedCPUs", None, Kind::Bitmap),
    ("AllowedMemoryNodes", None, Kind::Bitmap),
    ("CoredumpFilter", None, Kind::Number),
    ("CPUAccounting", None, Kind::Boolean),
    ("CPUAffinity", None, Kind::Bitmap),
    ("CPUQuota", Some("CPUQuotaPerSecUSec"), Kind::CpuQuota),
    ("CPUQuotaPeriodSec", Some("CPUQuotaPeriodUSec"), Kind::Duration(1_000_000)),
    ("CPUQuotaPerSecUSec", None, Kind::Duration(1)),
    ("CPUSchedulingPriority", None, Kind::Integer(1, 99)),
    ("CPUWeight", None, Kind::Weight),
    ("Delegate", None, Kind::Boolean),
    ("DeviceAllow", None, Kind::Pairs),
    ("DevicePolicy", None, Kind::Text),
    ("Documentation", None, Kind::Text),
    ("FinalKillSignal", None, Kind::Signal),
    ("IgnoreSIGPIPE", None, Kind::Boolean),
    ("IOAccounting", None, Kind::Boolean),
    ("IOWeight", None, Kind::Weight),
    ("KillMode", None, Kind::Text),
    ("KillSignal", None, Kind::Signal),
    ("LimitAS", None, Kind::ByteLimit),
    ("LimitCORE", None, Kind::ByteLimit),
    ("LimitCPU", None, Kind::CountLimit),
    ("LimitDATA", None, Kind::ByteLimit),
    ("LimitFSIZE", None, Kind::ByteLimit),
    ("LimitLOCKS", None, Kind::CountLimit),
    ("LimitMEMLOCK", None, Kind::ByteLimit),
    ("LimitMSGQUEUE", None, Kind::ByteLimit),
    ("LimitNICE", None, Kind::CountLimit),
    ("LimitNOFILE", None, Kind::CountLimit),
    ("LimitNPROC", None, Kind::CountLimit),
    ("LimitRSS", None, Kind::ByteLimit),
    ("LimitRTPRIO", None, Kind::CountLimit),
    ("LimitRTTIME", None, Kind::CountLimit),
    ("LimitSIGPENDING", None, Kind::CountLimit),
    ("LimitSTACK", None, Kind::ByteLimit),
    ("ManagedOOMMemoryPressure", None, Kind::Text),
    ("ManagedOOMSwap", None, Kind::Text),
    ("MemoryAccounting", None, Kind::Boolean),
    ("MemoryHigh", None, Kind::Bytes),
    ("MemoryLow", None, Kind::Bytes),
    ("MemoryMax", None, Kind::Bytes),
    ("MemoryMin", None, Kind::Bytes),
    ("MemorySwapMax", None, Kind::Bytes),
    ("MemoryZSwapMax", None, Kind::Bytes),
    ("Nice", None, Kind::Integer(-20, 19)),
    ("NoNewPrivileges", None, Kind::Boolean),
    ("OOMPolicy", None, Kind::Text),
    ("OOMScoreAdjust", None, Kind::Integer(-1000, 1000)),
    ("RuntimeMaxSec", Some("RuntimeMaxUSec"), Kind::Duration(1_000_000)),
    ("RuntimeMaxUSec", None, Kind::Duration(1)),
    ("SendSIGHUP", None, Kind::Boolean),
    ("SendSIGKILL", None, Kind::Boolean),
    ("Slice", None, Kind::Text),
    ("TasksAccounting", None, Kind::Boolean),
    ("TasksMax", None, Kind::Tasks),
    ("TimeoutStartSec", Some("TimeoutStartUSec"), Kind::Duration(1_000_000)),
    ("TimeoutStartUSec", None, Kind::Duration(1)),
    ("TimeoutStopSec", Some("TimeoutStopUSec"), Kind::Duration(1_000_000)),
    ("TimeoutStopUSec", None, Kind::Duration(1)),
    ("TimerSlackNSec", None, Kind::Number),
    ("UMask", None, Kind::Octal),
];

/// Properties that the supervisor sets itself, and that therefore cannot be configured.
const SET_BY_SUPERVISOR: &[&str] = &[
    "CollectMode",
    "Description",
    "Environment",
    "ExecStart",
    "LogExtraFields",
    "RemainAfterExit",
    "Restart",
    "RestartPreventExitStatus",
    "StandardError",
    "StandardInput",
    "StandardOutput",
    "Type",
    "UnsetEnvironment",
    "WorkingDirectory",
];

/// Convert properties, or say which one is wrong and why.
pub(super) fn parse(properties: &BTreeMap<String, String>) -> Result<Vec<Property>, PropertyError> {
    let mut parsed = Vec::with_capacity(properties.len());
    for (name, value) in properties {
        let error = |reason| PropertyError { name: name.clone(), value: value.clone(), reason };
        if SET_BY_SUPERVISOR.contains(&name.as_str()) {
            return Err(error(PropertyErrorReason::Ours));
        }
        let (_, dbus, kind) = SETTABLE
            .iter()
            .find(|(known, _, _)| known == name)
            .ok_or_else(|| error(PropertyErrorReason::Unknown))?;
        let converted = convert(dbus.unwrap_or(name), *kind, value.trim());
        parsed.extend(converted.map_err(|why| error(why.into()))?);
    }
    Ok(parsed)
}

fn convert(name: &str, kind: Kind, text: &str) -> Result<Vec<Property>, ValueError> {
    let one = |value: Variant<'static>| vec![Property { name: name.to_string(), value }];
    Ok(match kind {
        Kind::Bitmap => one(bitmap(text)?.into()),
        Kind::Boolean => one(boolean(text)?.into()),
        Kind::Bytes => match percent(text, 100) {
            Some(hundredths) => scale(name, hundredths?),
            None => one(size(text)?.into()),
        },
        Kind::ByteLimit => limits(name, limit(text, size)?),
        Kind::CountLimit => limits(name, limit(text, number)?),
        Kind::CpuQuota => {
            // A percentage of one CPU, so it can be above 100 %.
            let hundredths = percent(text, 10_000_000)
                .ok_or(ValueError::Form("a percentage of one CPU, such as 150%"))??;
            one((hundredths * 100).into())
        }
        Kind::Duration(unit_us) => one(microseconds(text, unit_us)?.into()),
        Kind::Integer(min, max) => {
            let n = text.parse().ok().filter(|n| (min..=max).contains(n));
            one(n.ok_or(ValueError::Range { min, max })?.into())
        }
        Kind::Number => one(number(text)?.into()),
        Kind::Octal => {
            let mask = u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777);
            one(mask.ok_or(ValueError::Form("an octal file mode mask"))?.into())
        }
        Kind::Pairs => one(pairs(text)?.into()),
        Kind::Signal => one(text.parse::<Signal>()?.number().into()),
        Kind::Tasks => match percent(text, 100) {
            // systemd 252 writes a tenth of a percentage to the unit's file, and reads that again
            // when it reloads.
            Some(hundredths) => one((tasks_max() * hundredths? / 10_000).into()),
            None => one(number(text)?.into()),
        },
        Kind::Text => one(text.to_string().into()),
        Kind::Weight => {
            let weight = match text {
                "idle" => 0,
                _ => number(text)?,
            };
            if weight > 10_000 || (weight == 0 && text != "idle") {
                return Err(ValueError::Form("a weight from 1 to 10000, or idle"));
            }
            one(weight.into())
        }
    })
}

/// A percentage of what the machine has, as property `…Scale`. There the largest number stands for
/// 100 %. It is rounded as `systemctl` does: less would be a page less than systemd reads from the
/// unit's file.
fn scale(name: &str, hundredths: u64) -> Vec<Property> {
    let scaled = (u64::from(u32::MAX) * hundredths + 5_000) / 10_000;
    let scaled = u32::try_from(scaled).unwrap_or(u32::MAX);
    vec![Property { name: format!("{name}Scale"), value: scaled.into() }]
}

/// How many tasks the kernel allows, of which systemd takes a percentage.
fn tasks_max() -> u64 {
    let limits = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let limits = limits.map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.into_iter().flatten().min().unwrap_or(TASKS_MAX)
}

/// Both limits of a resource.
pub(super) fn limits(name: &str, (soft, hard): (u64, u64)) -> Vec<Property> {
    vec![
        Property { name: name.to_string(), value: hard.into() },
        Property { name: format!("{name}Soft"), value: soft.into() },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(name: &str, value: &str) -> Result<Vec<Property>, PropertyError> {
        parse(&BTreeMap::from([(name.to_string(), value.to_string())]))
    }

    fn property(name: &str, value: impl Into<Variant<'static>>) -> Property {
        Property { name: name.to_string(), value: value.into() }
    }

    #[test]
    fn values_get_their_types() {
        for (name, value, expected) in [
            ("MemoryMax", "1G", property("MemoryMax", 1u64 << 30)),
            ("MemoryHigh", "50%", property("MemoryHighScale", 1u32 << 31)),
            ("MemoryMax", "infinity", property("MemoryMax", u64::MAX)),
            ("AllowedCPUs", "0-3,8", property("AllowedCPUs", vec![0x0fu8, 1])),
            ("CPUQuota", "150%", property("CPUQuotaPerSecUSec", 1_500_000u64)),
            ("CPUWeight", "100", property("CPUWeight", 100u64)),
            ("TasksMax", "50", property("TasksMax", 50u64)),
            ("SendSIGKILL", "no", property("SendSIGKILL", false)),
            ("TimeoutStopUSec", "5000000", property("TimeoutStopUSec", 5_000_000u64)),
            ("TimeoutStopSec", "5", property("TimeoutStopUSec", 5_000_000u64)),
            ("OOMScoreAdjust", "-100", property("OOMScoreAdjust", -100)),
            ("Slice", "batch.slice", property("Slice", "batch.slice".to_string())),
            ("KillSignal", "SIGUSR1", property("KillSignal", 10)),
            ("UMask", "0027", property("UMask", 0o27u32)),
        ] {
            assert_eq!(parse_one(name, value), Ok(vec![expected]), "{name}={value}");
        }
        assert_eq!(
            parse_one("LimitNOFILE", "1024:4096"),
            Ok(vec![property("LimitNOFILE", 4096u64), property("LimitNOFILESoft", 1024u64)])
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, value) in [
            ("MemoryMax", "lots"),
            ("MemoryMax", "101%"),
            ("CPUQuota", "2"),
            ("CPUWeight", "0"),
            ("Nice", "20"),
            ("NoSuchProperty", "1"),
            ("ExecStart", "/bin/sh"),
            ("Type", "simple"),
            ("UMask", "9"),
        ] {
            let error = parse_one(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn the_table_can_be_searched_by_eye() {
        assert!(SETTABLE.is_sorted_by_key(|row| row.0.to_ascii_lowercase()));
    }
}

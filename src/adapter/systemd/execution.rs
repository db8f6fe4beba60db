//! What a unit has of the broker besides its environment: what a child of the broker would inherit,
//! and a unit would have of the user manager. rfc/0004, 4.5, has the whole table.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use rustix::process::getpriority_process;

use super::properties::{Property, limits};
use super::values::bitmap;

/// Resource limits, and what systemd calls them.
const LIMITS: [(&str, Resource); 16] = [
    ("LimitAS", Resource::RLIMIT_AS),
    ("LimitCORE", Resource::RLIMIT_CORE),
    ("LimitCPU", Resource::RLIMIT_CPU),
    ("LimitDATA", Resource::RLIMIT_DATA),
    ("LimitFSIZE", Resource::RLIMIT_FSIZE),
    ("LimitLOCKS", Resource::RLIMIT_LOCKS),
    ("LimitMEMLOCK", Resource::RLIMIT_MEMLOCK),
    ("LimitMSGQUEUE", Resource::RLIMIT_MSGQUEUE),
    ("LimitNICE", Resource::RLIMIT_NICE),
    ("LimitNOFILE", Resource::RLIMIT_NOFILE),
    ("LimitNPROC", Resource::RLIMIT_NPROC),
    ("LimitRSS", Resource::RLIMIT_RSS),
    ("LimitRTPRIO", Resource::RLIMIT_RTPRIO),
    ("LimitRTTIME", Resource::RLIMIT_RTTIME),
    ("LimitSIGPENDING", Resource::RLIMIT_SIGPENDING),
    ("LimitSTACK", Resource::RLIMIT_STACK),
];

/// The properties that this process, the broker, has. What cannot be read is left to the user manager.
pub(super) fn of_broker() -> Vec<Property> {
    let mut properties = Vec::new();
    for (name, resource) in LIMITS {
        properties.extend(getrlimit(resource).into_iter().flat_map(|both| limits(name, both)));
    }
    let mut set = |name: &str, value| properties.push(Property { name: name.to_string(), value });
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(mask) = field(&status, "Umask").and_then(|mask| u32::from_str_radix(mask, 8).ok()) {
        set("UMask", mask.into());
    }
    let adjust = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    if let Ok(adjust) = adjust.trim().parse::<i32>() {
        // systemd passes over a value that it may not set.
        set("OOMScoreAdjust", adjust.into());
    }
    // systemd before 247 does not execute the program if it may not set the value: only what is above
    // 0 can always be set.
    if let Some(nice) = getpriority_process(None).ok().filter(|nice| *nice > 0) {
        set("Nice", nice.into());
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = field(&status, "Cpus_allowed_list").and_then(|cpus| some_of(cpus, online.trim()));
    if let Some(cpus) = cpus {
        set("CPUAffinity", cpus.into());
    }
    properties
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim)
}

/// These CPUs, unless they are all.
fn some_of(cpus: &str, online: &str) -> Option<Vec<u8>> {
    let (cpus, online) = (bitmap(cpus).ok()?, bitmap(online).ok()?);
    let lacks = |(at, all): (usize, &u8)| all & !cpus.get(at).copied().unwrap_or(0) != 0;
    online.iter().enumerate().any(lacks).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_part_of_the_cpus_is_set() {
        assert_eq!(some_of("0-3", "0-3"), None);
        assert_eq!(some_of("0-63", "0-3"), None, "some can come later");
        assert_eq!(some_of("1,3", "0-3"), Some(vec![0b1010]));
        assert_eq!(some_of("0-7", "0-8"), Some(vec![0xff]));
        assert_eq!(some_of("", "0"), Some(vec![]));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        assert_eq!(field("Umasked:\t1\nUmask:\t0022\nX:", "Umask"), Some("0022"));
        assert_eq!(field("", "Umask"), None);
    }
}

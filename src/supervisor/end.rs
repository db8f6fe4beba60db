//! How a unit under the IMP ended, where systemd does not keep it.
//!
//! The IMP says that it is stopping (`STOPPING=1`). A unit that then ends with success is removed by
//! systemd at once, in spite of `RemainAfterExit`. So systemd has it leave its environment, in which
//! systemd.exec(5) says how the main process ended, in a file.

use crate::port::disk::Disk;
use crate::proto::{Signal, UnitName, WaitStatus};

use super::records::{END, file_name};

/// How it ended; `None` if that is not there, or not whole.
pub(super) fn read(disk: &dyn Disk, unit: &UnitName) -> Option<WaitStatus> {
    if !unit.is_multiuser() {
        return None;
    }
    parse(&disk.read(&file_name(unit, END)).ok()?)
}

fn parse(environment: &[u8]) -> Option<WaitStatus> {
    let (whole, _) = environment.split_at(environment.iter().rposition(|byte| *byte == 0)?);
    let value = |name: &str| {
        let mut variables = whole.split(|byte| *byte == 0);
        let value = variables.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        std::str::from_utf8(value?).ok()
    };
    let status = value("EXIT_STATUS")?;
    match value("EXIT_CODE")? {
        "exited" => status.parse().ok().map(WaitStatus::exited),
        _ => status.parse().ok().map(|signal: Signal| WaitStatus::signaled(signal.number())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_stopped_service_says_how_it_ended() {
        let of = |text: &str| parse(text.as_bytes());
        assert_eq!(of("A=1\0EXIT_CODE=exited\0EXIT_STATUS=7\0"), Some(WaitStatus::exited(7)));
        assert_eq!(of("EXIT_STATUS=TERM\0EXIT_CODE=killed\0B\0"), Some(WaitStatus::signaled(15)));
        assert_eq!(of("EXIT_STATUS=SEGV\0EXIT_CODE=dumped\0"), Some(WaitStatus::signaled(11)));
        for bad in ["", "EXIT_CODE=exited\0", "EXIT_CODE=exited\0EXIT_STATUS=1", "EXIT_STATUS=x\0"]
        {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}

//! Which releases of systemd this one works with.

/// The oldest systemd whose user manager starts a shell's unit: the first that has `OOMPolicy=`
/// (systemd.service(5)).
pub const OLDEST_SYSTEMD: u32 = 243;

/// The number of a release, as the manager's property `Version` has it.
pub fn systemd_number(version: &str) -> Option<u32> {
    let (digits, _) =
        version.split_at(version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len()));
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_its_number() {
        for (version, number) in [
            ("252.39-1~deb12u1", Some(252)),
            ("239 (239-82.el8)", Some(239)),
            ("v257", None),
            ("", None),
        ] {
            assert_eq!(systemd_number(version), number, "{version}");
        }
    }
}

//! Which releases of flux-core this one works with.

/// Major and minor. From this one on flux-shell enters its barrier with a request to job-exec (flux-core
/// `shell/shell.c`). Before, it wrote to a pipe that only flux-core's job-exec reads.
const FIRST: (u32, u32) = (0, 88);
/// The last that was tried (`tests/matrix`).
const LAST: (u32, u32) = (0, 88);

/// What there is to say of a release of flux-core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fit {
    /// It was tried, or cannot be read.
    Tried,
    /// No job of more than one rank would come through its start.
    TooOld(String),
    /// It is newer than what was tried.
    Untried(String),
}

/// `release` is the broker's attribute `version`, or what flux-version(1) shows.
pub fn fits(release: &str) -> Fit {
    let number = |text: Option<&str>| text?.parse::<u32>().ok();
    let mut parts = release.split(['.', '-']);
    let (Some(major), Some(minor)) = (number(parts.next()), number(parts.next())) else {
        return Fit::Tried;
    };
    let show = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    if (major, minor) < FIRST {
        Fit::TooOld(format!("this is flux-core {release}: job-exec-rs needs {}", show(FIRST)))
    } else if (major, minor) > LAST {
        let last = show(LAST);
        Fit::Untried(format!("this is flux-core {release}: job-exec-rs was tried with {last}"))
    } else {
        Fit::Tried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_is_too_old_or_was_not_tried_is_named() {
        for release in ["0.88.0", "0.88.0-59-g4a5e79f56", "0.88.1", "what", "1", ""] {
            assert_eq!(fits(release), Fit::Tried, "{release}");
        }
        for release in ["0.87.1", "0.9.0"] {
            let said = format!("this is flux-core {release}: job-exec-rs needs 0.88");
            assert_eq!(fits(release), Fit::TooOld(said));
        }
        for release in ["0.89.0", "1.0.0", "0.100.0-rc1"] {
            let said = format!("this is flux-core {release}: job-exec-rs was tried with 0.88");
            assert_eq!(fits(release), Fit::Untried(said));
        }
    }
}

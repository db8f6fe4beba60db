//! Which releases of flux-core this one was tried with.

use std::ops::RangeInclusive;

/// Major and minor (`tests/matrix`).
const TRIED: RangeInclusive<(u32, u32)> = (0, 80)..=(0, 88);

/// What to say of a release that was not tried. `release` is the broker's attribute `version`, or what
/// flux-version(1) shows; of what cannot be read nothing is said.
pub fn untried(release: &str) -> Option<String> {
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(['.', '-']).next()?;
    let known = TRIED.contains(&(major.parse().ok()?, minor.parse().ok()?));
    let ((_, first), (_, last)) = (TRIED.start(), TRIED.end());
    let tried = format!("job-exec-rs was tried with 0.{first} to 0.{last}");
    (!known).then(|| format!("this is flux-core {release}: {tried}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_was_not_tried_is_named() {
        for release in ["0.80.0", "0.88.0", "0.88.0-59-g4a5e79f56", "0.88.1", "what"] {
            assert_eq!(untried(release), None, "{release}");
        }
        for release in ["0.79.0", "0.89.0", "1.0.0", "0.100.0-rc1"] {
            let said =
                format!("this is flux-core {release}: job-exec-rs was tried with 0.80 to 0.88");
            assert_eq!(untried(release), Some(said));
        }
    }
}

//! Unit names. A shell can be found by the name of its unit, even if everything else was lost.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BrokerRank, JobId};

/// Which instance a unit belongs to: eight hex digits.
///
/// Two instances of one user can share a bus (a batch job inside another). They can have the same
/// ranks and job ids, so the name of a unit has to contain the instance.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct InstanceId(String);

impl InstanceId {
    /// Makes the id from the directory of the records and the owner, because both stay the same
    /// when the instance is started again.
    pub fn new(directory: &str, owner: u32) -> Self {
        let hash = Sha256::digest(format!("{owner}\0{directory}"));
        Self(hash[..4].iter().map(|b| format!("{b:02x}")).collect())
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a unit of a job runs on a rank. They come in this order.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The administrator's script before the shell.
    Prolog,
    /// The job shell.
    Shell,
    /// The administrator's script behind the shell.
    Epilog,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Prolog, Self::Shell, Self::Epilog];

    /// The word in unit names, logs and exceptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Shell => "shell",
            Self::Epilog => "epilog",
        }
    }

    /// The same at the beginning of a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Prolog => "Prolog",
            Self::Shell => "Shell",
            Self::Epilog => "Epilog",
        }
    }
}

/// `[imp-]<stage>-<rank>-<job id, f58plain>-<instance>.service`
///
/// The beginning of a shell's is flux-core's name for the unit (`bulk-exec.c`). `sdmon` and the
/// administrator's guide expect it.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct UnitName {
    under_imp: bool,
    rank: BrokerRank,
    job: JobId,
    instance: InstanceId,
    stage: Stage,
}

/// The text is not the name of one of our units.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a unit of ours (expected [imp-]STAGE-RANK-JOBID-INSTANCE.service)")]
pub struct UnitNameError(String);

impl UnitName {
    /// The unit of the job's shell on `rank`.
    pub fn new(multiuser: bool, rank: BrokerRank, job: JobId, instance: InstanceId) -> Self {
        Self { under_imp: multiuser, rank, job, instance, stage: Stage::Shell }
    }

    /// The unit of another stage of the same job on the same rank.
    #[must_use]
    pub fn of_stage(&self, stage: Stage, under_imp: bool) -> Self {
        Self { stage, under_imp, ..self.clone() }
    }

    /// What it runs.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// It runs an administrator's script, and no shell.
    pub fn is_script(&self) -> bool {
        self.stage != Stage::Shell
    }

    /// Whether its main process is the IMP, which runs the shell of a guest.
    pub fn is_multiuser(&self) -> bool {
        self.under_imp && !self.is_script()
    }

    /// The job that it belongs to.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The rank that it runs on.
    pub fn rank(&self) -> BrokerRank {
        self.rank
    }

    /// The instance that started it.
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// The name without `.service`: the stem of record and output files.
    pub fn stem(&self) -> String {
        let name = self.to_string();
        name.strip_suffix(".service").unwrap_or(&name).to_string()
    }

    /// A glob for `ListUnitsByPatterns` that matches this rank's units of this instance, and may
    /// match others.
    pub fn pattern(rank: BrokerRank, instance: &InstanceId) -> String {
        format!("*-{rank}-f*-{instance}.service")
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let imp = if self.under_imp { "imp-" } else { "" };
        let (stage, job) = (self.stage.name(), self.job.f58plain());
        write!(f, "{imp}{stage}-{}-{job}-{}.service", self.rank, self.instance)
    }
}

impl FromStr for UnitName {
    type Err = UnitNameError;

    fn from_str(s: &str) -> Result<Self, UnitNameError> {
        let bad = || UnitNameError(s.to_string());
        let stem = s.strip_suffix(".service").ok_or_else(bad)?;
        let (under_imp, stem) = match stem.strip_prefix("imp-") {
            Some(rest) => (true, rest),
            None => (false, stem),
        };
        let fields: Vec<&str> = stem.split('-').collect();
        let [stage, rank, job, instance] = fields[..] else { return Err(bad()) };
        let stage = Stage::ALL.into_iter().find(|known| known.name() == stage);
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if instance.len() != 8 || !instance.bytes().all(hex) || !job.starts_with('f') {
            return Err(bad());
        }
        let name = Self {
            under_imp,
            stage: stage.ok_or_else(bad)?,
            rank: BrokerRank(rank.parse().map_err(|_| bad())?),
            job: job.parse().map_err(|_| bad())?,
            instance: InstanceId(instance.to_string()),
        };
        // A number can be written in several ways, but a unit has only one name.
        if name.to_string() == s { Ok(name) } else { Err(bad()) }
    }
}

/// The slice that a shell's unit has for itself: `PARENT-[imp_]shell_RANK_JOBID_INSTANCE_DIGEST.slice`.
/// A dash in the name of a slice is a level, so there is one only behind the parent. The digest is the
/// beginning of the job's: a unit's name can be used again, and the counters are not the next job's.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SliceName {
    unit: UnitName,
    digest: String,
}

impl SliceName {
    /// Digits of the digest.
    const DIGITS: usize = 8;

    /// The slice of this unit of the job with this digest.
    pub fn new(unit: &UnitName, digest: &str) -> Self {
        let digest = digest.chars().filter(char::is_ascii_hexdigit).take(Self::DIGITS);
        Self { unit: unit.clone(), digest: digest.collect() }
    }

    /// Whose it is.
    pub fn unit(&self) -> &UnitName {
        &self.unit
    }

    /// Its name below the slice `parent`; `-.slice` is the root.
    pub fn under(&self, parent: &str) -> String {
        let parent = parent.strip_suffix(".slice").unwrap_or(parent).trim_matches('-');
        let dash = if parent.is_empty() { "" } else { "-" };
        format!("{parent}{dash}{}_{}.slice", self.unit.stem().replace('-', "_"), self.digest)
    }

    /// The slice with this name, below any parent.
    pub fn parse(name: &str) -> Option<Self> {
        let last = name.strip_suffix(".slice")?.rsplit('-').next()?;
        let (stem, digest) = last.rsplit_once('_')?;
        let unit = format!("{}.service", stem.replace('_', "-")).parse().ok()?;
        Some(Self { unit, digest: digest.to_string() })
    }

    /// A glob for `ListUnitsByPatterns` that matches the slices of this rank's units of this
    /// instance, and may match others.
    pub fn pattern(rank: BrokerRank, instance: &InstanceId) -> String {
        format!("*_{rank}_f*_{instance}_*.slice")
    }
}

/// The job whose shell runs in a unit of this name, or whose prolog or epilog. flux-core's names have
/// no instance.
pub fn job_of_unit(name: &str) -> Option<JobId> {
    let stem = name.strip_suffix(".service")?;
    let with_instance = || format!("{stem}-00000000.service").parse::<UnitName>();
    name.parse().or_else(|_| with_instance()).ok().map(|unit| unit.job())
}

impl TryFrom<String> for UnitName {
    type Error = UnitNameError;

    fn try_from(s: String) -> Result<Self, UnitNameError> {
        s.parse()
    }
}

impl From<UnitName> for String {
    fn from(name: UnitName) -> Self {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let instance = InstanceId::new("/var/lib/flux", 500);
        for multiuser in [false, true] {
            let name =
                UnitName::new(multiuser, BrokerRank(3), JobId(123_456_789), instance.clone());
            assert_eq!(name.to_string().parse(), Ok(name.clone()));
            assert!(name.to_string().is_ascii());
        }
    }

    #[test]
    fn the_units_of_a_job_on_a_rank_differ_in_their_stage_only() {
        let shell = UnitName::new(true, BrokerRank(3), JobId(7), InstanceId::new("/a", 1));
        for (stage, expected) in
            Stage::ALL.into_iter().zip(["prolog-3-f8", "shell-3-f8", "epilog-3-f8"])
        {
            let unit = shell.of_stage(stage, false);
            assert!(unit.to_string().starts_with(expected), "{unit}");
            assert_eq!(unit.to_string().parse(), Ok(unit.clone()));
            assert_eq!((unit.stage(), unit.is_script()), (stage, stage != Stage::Shell));
        }
        let script = shell.of_stage(Stage::Prolog, true);
        assert!(script.to_string().starts_with("imp-prolog-3-"));
        assert!(!script.is_multiuser(), "the IMP runs it as root, and for nobody");
    }

    #[test]
    fn instances_differ() {
        assert_ne!(InstanceId::new("/a", 1), InstanceId::new("/b", 1));
        assert_ne!(InstanceId::new("/a", 1), InstanceId::new("/a", 2));
    }

    #[test]
    fn other_units_are_not_ours() {
        for other in [
            "shell-0-fABC.service",
            "user-0-fABC-01234567.service",
            "shell-0-fABC-0123456.service",
            "shell-x-fABC-01234567.service",
            "dbus.service",
            "shell-0-12-01234567.service",
            "shell-0-fABC-01234567.scope",
            "shell-007-fABC-01234567.service",
            "shell-+7-fABC-01234567.service",
            "shell-0-f11ABC-01234567.service",
        ] {
            assert!(other.parse::<UnitName>().is_err(), "{other}");
        }
    }

    #[test]
    fn a_slice_has_the_name_of_its_unit_below_its_parent() {
        let unit = UnitName::new(true, BrokerRank(3), JobId(7), InstanceId::new("/a", 1));
        let slice = SliceName::new(&unit, "0123456789abcdef");
        let name = slice.under("app.slice");
        assert!(name.starts_with("app-imp_shell_3_f8_"), "{name}");
        assert!(name.ends_with("_01234567.slice"), "{name}");
        for parent in ["app.slice", "a-b.slice", "-.slice"] {
            assert_eq!(SliceName::parse(&slice.under(parent)), Some(slice.clone()), "{parent}");
        }
        assert!(!slice.under("-.slice").starts_with('-'));
        for other in
            ["app.slice", "app-shell_0_f1.slice", "app-imp_shell_3_f8_x_0.slice", "a.service"]
        {
            assert_eq!(SliceName::parse(other), None, "{other}");
        }
        assert_ne!(slice, SliceName::new(&unit, "89abcdef"));
    }
}

//! The values of `exec.method` and `exec.service`.

use crate::proto::ExecMethod;

/// flux-core's default of `exec.method`.
const BULK_EXEC: &str = "bulk-exec";
/// Its other one, of later releases.
const BGEXEC: &str = "bgexec";

/// A value of `exec.method`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConfiguredMethod {
    /// As it was given. Empty: it was not.
    name: String,
    chosen: ExecMethod,
}

impl ConfiguredMethod {
    /// None: there is no such method.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(Self { name: name.to_string(), chosen: name.parse().ok()? })
    }

    pub(super) fn chosen(&self) -> ExecMethod {
        self.chosen
    }

    /// As `exec.KEY=VALUE`. Empty: it was not given.
    pub(super) fn setting(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!("exec.method={}", self.name) }
    }

    /// flux-core's own method, of the two that it has.
    pub(super) fn of_flux_core(&self) -> &'static str {
        if self.name == BGEXEC { BGEXEC } else { BULK_EXEC }
    }
}

impl From<ExecMethod> for ConfiguredMethod {
    fn from(chosen: ExecMethod) -> Self {
        Self { name: chosen.to_string(), chosen }
    }
}

/// What flux-core's launcher of this name does (`exec.service`).
pub(super) fn launcher(name: &str) -> Option<ExecMethod> {
    match name {
        "sdexec" => Some(ExecMethod::Systemd),
        "rexec" => Some(ExecMethod::Fork),
        _ => None,
    }
}

//! The supervisors of one rank, and which of them has which shell.
//!
//! Most jobs are started as `exec.method` says. The instance owner can choose another method for a
//! job ([`UnitSpec::method`](crate::port::supervisor::UnitSpec)).

use std::collections::BTreeSet;

use crate::port::supervisor::{StartFailure, Supervisor, SupervisorEvent, UnitCommand, UnitEvent};
use crate::proto::{ExecMethod, UnitName};

/// Passes each command on to the supervisor that has the shell.
pub struct Launchers<U, C> {
    /// Starts transient units, or says why nobody here does.
    units: Result<U, String>,
    /// Starts children of the broker.
    children: C,
    /// What `children` has, although it is not the rank's own method.
    chosen: BTreeSet<UnitName>,
    sink: Box<dyn Fn(SupervisorEvent)>,
}

impl<U: Supervisor, C: Supervisor> Launchers<U, C> {
    /// `sink` is called with what neither of them can tell.
    pub fn new(
        units: Result<U, String>,
        children: C,
        sink: impl Fn(SupervisorEvent) + 'static,
    ) -> Self {
        Self { units, children, chosen: BTreeSet::new(), sink: Box::new(sink) }
    }

    fn refuse(&self, unit: &UnitName, message: String) {
        let failure = StartFailure { errnum: libc::ENOTSUP, message };
        (self.sink)(UnitEvent::Failed(failure).of(unit));
    }
}

impl<U: Supervisor, C: Supervisor> Supervisor for Launchers<U, C> {
    fn submit(&mut self, unit: UnitName, command: UnitCommand) {
        if let UnitCommand::Launch(spec) = &command {
            match (spec.method, &self.units) {
                (ExecMethod::Systemd, Err(why)) => {
                    let message = format!("exec method systemd is not available: {why}");
                    return self.refuse(&unit, message);
                }
                (ExecMethod::Fork, _) if spec.resources.is_some() => {
                    let message = "exec method fork cannot confine a shell to its resources \
                                   (exec.sdexec-constrain-resources)";
                    return self.refuse(&unit, message.to_string());
                }
                (ExecMethod::Fork, Ok(_)) => drop(self.chosen.insert(unit.clone())),
                _ => (),
            }
        }
        let is_chosen = self.chosen.contains(&unit);
        if command == UnitCommand::Forget {
            self.chosen.remove(&unit);
        }
        match &mut self.units {
            Ok(units) if !is_chosen => units.submit(unit, command),
            _ => self.children.submit(unit, command),
        }
    }
}

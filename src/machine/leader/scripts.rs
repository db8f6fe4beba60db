//! What the scripts of one rank have come to.

use std::collections::BTreeMap;

use crate::proto::{ScriptFailure, Stage};

/// What a rank's scripts have come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RankScripts {
    /// Its prolog has ended well, or it has none.
    pub(super) prepared: bool,
    /// What its prolog has said is wrong with its node.
    pub(super) degraded: Option<String>,
    /// What is wrong with its prolog, which may have run again, and with its epilog.
    pub(super) failures: BTreeMap<Stage, ScriptFailure>,
}

impl RankScripts {
    /// The prolog has neither ended well nor failed.
    pub(super) fn is_prolog_awaited(&self) -> bool {
        !self.prepared && !self.failures.contains_key(&Stage::Prolog)
    }
}

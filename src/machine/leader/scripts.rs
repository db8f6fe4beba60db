//! What the scripts of one rank have come to.

use crate::proto::{ScriptFailure, Stage};

/// What a rank's scripts have come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RankScripts {
    prolog: Prolog,
    /// What its prolog has said is wrong with its node.
    pub(super) degraded: Option<String>,
    /// What is wrong with its epilog.
    epilog_failure: Option<ScriptFailure>,
}

/// How far a rank's prolog is.
#[derive(Clone, Debug, Default, PartialEq)]
enum Prolog {
    /// It has not ended, and there may be none.
    #[default]
    Awaited,
    /// It has ended well.
    Ended,
    /// It has failed, once.
    Failed(ScriptFailure),
}

impl RankScripts {
    pub(super) fn is_prolog_awaited(&self) -> bool {
        self.prolog == Prolog::Awaited
    }

    pub(super) fn end_prolog(&mut self) {
        if self.prolog == Prolog::Awaited {
            self.prolog = Prolog::Ended;
        }
    }

    /// Returns whether this is the first failure of the stage.
    pub(super) fn fail(&mut self, stage: Stage, failure: ScriptFailure) -> bool {
        let is_first = self.failure(stage).is_none();
        match stage {
            Stage::Prolog => self.prolog = Prolog::Failed(failure),
            Stage::Epilog => self.epilog_failure = Some(failure),
            Stage::Shell => return false,
        }
        is_first
    }

    pub(super) fn failure(&self, stage: Stage) -> Option<&ScriptFailure> {
        match (stage, &self.prolog) {
            (Stage::Prolog, Prolog::Failed(failure)) => Some(failure),
            (Stage::Epilog, _) => self.epilog_failure.as_ref(),
            _ => None,
        }
    }
}

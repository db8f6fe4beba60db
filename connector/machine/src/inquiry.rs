//! Whether the other end of a channel, a shell that cannot be asked, has ended.
//!
//! If its service is missing, its broker is asked for how long it is in RUN, and then the module of
//! its rank whether it runs: on a busy node it can take long to be back.

use serde::Deserialize;

use crate::channel::Peer;
use crate::context::Context;
use crate::errnum::{
    NO_HOST, NO_PROCESS, NO_SERVICE, TRY_AGAIN, is_unknown_method, is_unreachable,
};
use crate::packet::Packet;
use crate::question::Question;
use crate::wire::{Own, Step};

/// Asks the module of a rank whether the job's shell runs there.
pub(crate) const SHELL_RUNS: &str = "job-exec.shell-runs";
/// Seconds for which the broker may be in RUN before the shell has its service again, if its module
/// cannot say whether it runs. Its connector tries to connect every 2 s.
const BACK_AFTER: f64 = 10.0;
/// When it counts as ended even if the module of its rank says that it runs: it has given its service
/// up, and hears nothing any more.
const SURELY_BACK_AFTER: f64 = 60.0;
/// The state in which a broker serves its clients.
const RUN: &str = "run";

/// The answer to `state-machine.get` (flux-core `broker/state_machine.c`).
#[derive(Deserialize)]
struct BrokerState {
    state: String,
    /// Seconds in this state.
    duration: f64,
}

/// What is known after an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Heard {
    /// The shell has answered, or another client that has its service.
    Answer,
    /// No broker could pass the question on.
    Unreachable,
    /// Its broker is not in RUN.
    NotInRun,
    /// It is asked again later, or somebody else is asked already.
    Later,
    /// It has ended.
    Gone,
}

/// Takes an answer about the shell `peer`. `own` is the purpose of the question with each step.
pub(crate) fn heard<P: Packet>(
    (question, cx): (&mut Question, &mut Context<P>),
    peer: &Peer,
    own: impl Fn(Step) -> Own,
    step: Step,
    answer: &P,
) -> Heard {
    question.answered();
    match step {
        Step::Shell if is_unreachable(answer) => Heard::Unreachable,
        Step::Shell if is_missing(answer) => {
            ask_broker((question, cx), peer, own);
            Heard::Later
        }
        Step::Shell => Heard::Answer,
        Step::Broker => {
            let Some(duration) = runs_for(answer) else { return Heard::NotInRun };
            let is_back = duration >= BACK_AFTER;
            match peer.job().filter(|_| duration < SURELY_BACK_AFTER) {
                Some(id) => {
                    let request = (SHELL_RUNS, job_payload(id), peer.rank);
                    question.ask_patiently(cx, own(Step::Module { is_back }), request);
                    Heard::Later
                }
                None if is_back => Heard::Gone,
                None => {
                    question.fail(cx.now);
                    Heard::Later
                }
            }
        }
        Step::Module { is_back } if has_ended(answer, is_back) => Heard::Gone,
        Step::Module { .. } => {
            // Most often it has given its service up, and is about to end.
            question.fail_shortly(cx.now);
            Heard::Later
        }
    }
}

/// Asks the broker of a shell whose service is missing. It may be shutting down, or just be back, even
/// if this client has not noticed.
pub(crate) fn ask_broker<P: Packet>(
    (question, cx): (&mut Question, &mut Context<P>),
    peer: &Peer,
    own: impl Fn(Step) -> Own,
) {
    // The answer to the question that is under way comes first.
    if !question.is_open() {
        let request = ("state-machine.get", "{}".to_string(), peer.rank);
        question.ask_patiently(cx, own(Step::Broker), request);
    }
}

/// Whether a broker says that it does not have the service.
pub(crate) fn is_missing<P: Packet>(answer: &P) -> bool {
    answer.header().errnum == NO_SERVICE && !is_unknown_method(answer)
}

/// The payload of [`SHELL_RUNS`].
pub(crate) fn job_payload(id: u64) -> String {
    format!("{{\"id\":{id}}}")
}

/// For how many seconds the broker that has answered is in RUN; none if it is not.
fn runs_for<P: Packet>(answer: &P) -> Option<f64> {
    let answer = Some(answer).filter(|answer| answer.header().errnum == 0)?;
    let BrokerState { state, duration } = serde_json::from_slice(answer.payload()).ok()?;
    (state == RUN).then_some(duration)
}

/// Whether a shell has ended, by what a module has answered to [`SHELL_RUNS`]. If the module does not
/// know, a shell whose broker is back counts as ended.
fn has_ended<P: Packet>(answer: &P, is_back: bool) -> bool {
    match answer.header().errnum {
        // The module may just have been loaded.
        0 | NO_HOST | TRY_AGAIN => false,
        NO_PROCESS => true,
        _ => is_back,
    }
}

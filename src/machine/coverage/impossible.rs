//! Which pairs of a machine's state and an input cannot occur, and why.
//!
//! What is said here follows from the code of the machines, of the supervisor and of the
//! adapters, as long as nobody else sends their messages. The machines answer these inputs all
//! the same.

use super::Pair;
use crate::machine::input::{Input, Machine};

/// Pairs that cannot occur for one reason.
struct Rule {
    machine: Machine,
    states: States,
    inputs: &'static [Input],
    why: &'static str,
}

/// Some states of a machine.
enum States {
    /// All others.
    Not(&'static [&'static str]),
    /// These.
    These(&'static [&'static str]),
}

use Input::*;
use Machine::{Agent, Coordinator, Leader, Script};
use States::{Not, These};

/// What the supervisor tells of a unit that was asked for.
const NEWS: &[Input] = &[
    Started,
    Output,
    OutputLost,
    OutputOverflow,
    OutputTruncated,
    Exited,
    Lost,
    NeverStarted,
    Stopping,
];

const RULES: &[Rule] = &[
    Rule {
        machine: Coordinator,
        states: Not(&["unasked", "away"]),
        inputs: &[Timeout],
        why: "only a leader that is away is asked again, and the KVS that has not told what was released",
    },
    Rule {
        machine: Coordinator,
        states: These(&["unasked", "away"]),
        inputs: &[Replied],
        why: "a stream is closed when another leader is asked, and ends before its rank is away",
    },
    Rule {
        machine: Leader,
        states: These(&["none"]),
        inputs: &[Disconnected, Timeout],
        why: "only a leader that exists has a request and timers",
    },
    Rule {
        machine: Leader,
        states: Not(&["opening"]),
        inputs: &[Created, Opened],
        why: "a leader asks for the guest namespace in Opening, and waits there for the answer",
    },
    Rule {
        machine: Leader,
        states: These(&["opening"]),
        inputs: &[Linked, Appended],
        why: "a leader in Opening has committed nothing",
    },
    Rule {
        machine: Leader,
        states: These(&["running", "exited"]),
        inputs: &[Linked],
        why: "a job waits for its link before Running and Exited, and the link is made once",
    },
    Rule {
        machine: Leader,
        states: Not(&["moving", "none"]),
        inputs: &[Moved],
        why: "the job's data is moved once, and the leader waits for that in Moving, unless it steps \
              down",
    },
    Rule {
        machine: Leader,
        states: These(&["ended"]),
        inputs: &[Appended],
        why: "a job's data is moved when no commit is under way, and nothing is committed later",
    },
    Rule {
        machine: Leader,
        states: Not(&["none", "ended"]),
        inputs: &[KnownAnswered],
        why: "only a leader in Ended asks whether its job is known",
    },
    Rule {
        machine: Agent,
        states: These(&["none"]),
        inputs: &[Disconnected, Timeout],
        why: "only an agent that exists has a request and timers",
    },
    Rule {
        machine: Agent,
        states: These(&["none", "no-shell", "waiting"]),
        inputs: NEWS,
        why: "an agent keeps its shell as long as any of these can come",
    },
    Rule {
        machine: Agent,
        states: These(&["pending"]),
        // What is lost of a shell that was found shows at the first acknowledgement, which may come before
        // systemd has said that it runs (seed 906051171).
        inputs: &[Output, OutputOverflow, Stopping],
        why: "the supervisor reports first that the shell has started, or how it has ended",
    },
    Rule {
        machine: Agent,
        states: Not(&["none", "no-shell", "waiting", "pending"]),
        inputs: &[Started],
        why: "the supervisor reports it once, before anything else of the unit",
    },
    Rule {
        machine: Agent,
        states: Not(&["none", "no-shell", "waiting", "pending", "failed"]),
        inputs: &[NeverStarted],
        why: "the same; but the record of the epilog may have said before why",
    },
    Rule {
        machine: Agent,
        states: These(&["running", "exited", "lost", "never-started", "gone"]),
        inputs: &[Failed],
        why: "it is reported only of a unit that was not started",
    },
    Rule {
        machine: Agent,
        states: These(&["exited", "lost", "failed", "never-started", "gone"]),
        inputs: &[Exited, Stopping],
        why: "the shell has ended already, or was never started",
    },
    Rule {
        machine: Agent,
        states: These(&["exited", "lost", "never-started", "gone"]),
        inputs: &[Lost],
        why: "the same; but of a shell that has failed only the record of the epilog may know",
    },
    Rule {
        machine: Agent,
        states: These(&["failed", "never-started"]),
        inputs: &[Left, Output, OutputLost, OutputOverflow, OutputTruncated],
        why: "what was never started has no process and no output",
    },
    Rule {
        machine: Agent,
        states: These(&["gone"]),
        inputs: &[Output, OutputLost, OutputOverflow, OutputTruncated],
        why: "the supervisor reports the end when all output was reported",
    },
    Rule {
        machine: Agent,
        states: These(&["never-started", "gone"]),
        inputs: &[Gone],
        why: "a unit is collected once, and not if it was never started",
    },
    Rule {
        machine: Agent,
        states: These(&["waiting"]),
        inputs: &[Failed, Gone, Left],
        why: "nobody has asked for the shell",
    },
    Rule {
        machine: Agent,
        states: Not(&["running", "exited"]),
        inputs: &[LeftOver],
        why: "the supervisor reports it only of a shell that has started, and before it is gone",
    },
    Rule {
        machine: Agent,
        states: Not(&["running", "exited", "lost"]),
        inputs: &[Usage],
        why: "the supervisor reports it once, when the shell has ended, and before it is gone",
    },
    Rule { machine: Script, states: Not(&[]), inputs: &[Usage], why: "nobody measures a script" },
    Rule {
        machine: Script,
        states: Not(&["none"]),
        inputs: &[Found],
        why: "the supervisor has the unit of each script, and finds only others",
    },
    Rule {
        machine: Script,
        states: These(&["none"]),
        inputs: NEWS,
        why: "an agent keeps its script as long as any of these can come",
    },
    Rule {
        machine: Script,
        states: These(&["pending"]),
        inputs: &[Output, OutputLost, OutputOverflow, Stopping],
        why: "the supervisor reports first that the script has started, or how it has ended",
    },
    Rule {
        machine: Script,
        states: These(&["pending", "running", "stuck"]),
        inputs: &[OutputTruncated, Gone],
        why: "the supervisor reports first how the script has ended",
    },
    Rule {
        machine: Script,
        states: These(&["running", "ended", "gone"]),
        inputs: &[Started, NeverStarted],
        why: "the supervisor reports it once, before anything else of the unit",
    },
    Rule {
        machine: Script,
        states: These(&["running", "ended", "gone"]),
        inputs: &[Failed],
        why: "it is reported only of a unit that was not started",
    },
    Rule {
        machine: Script,
        states: These(&["ended", "gone"]),
        inputs: &[Exited, Lost, Stopping],
        why: "the script has ended already",
    },
    Rule {
        machine: Script,
        states: These(&["gone"]),
        inputs: &[Output, OutputLost, OutputOverflow, OutputTruncated, Gone],
        why: "nothing of the unit is left, and all that it wrote was reported",
    },
];

impl Pair {
    /// Why the pair cannot occur; none if it can.
    pub fn impossible(&self) -> Option<&'static str> {
        RULES.iter().find(|rule| rule.covers(self)).map(|rule| rule.why)
    }
}

impl Rule {
    fn covers(&self, pair: &Pair) -> bool {
        let position = pair.position;
        let is_state = match self.states {
            Not(states) => !states.contains(&position.state),
            These(states) => states.contains(&position.state),
        };
        self.machine == position.machine && is_state && self.inputs.contains(&pair.input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::coverage::{STATES, all_pairs};

    #[test]
    fn rules_name_states_that_there_are_and_no_pair_twice() {
        for rule in RULES {
            let (_, states) = STATES.iter().find(|(of, _)| *of == rule.machine).expect("a machine");
            let (Not(named) | These(named)) = rule.states;
            assert!(named.iter().all(|state| states.contains(state)), "{}", rule.why);
            for input in rule.inputs {
                assert!(input.machines().contains(&rule.machine), "{}: {}", rule.why, input.name());
            }
        }
        for pair in all_pairs() {
            let why: Vec<&str> = RULES.iter().filter(|r| r.covers(&pair)).map(|r| r.why).collect();
            assert!(why.len() <= 1, "{pair}: {why:?}");
        }
    }
}

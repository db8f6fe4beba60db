//! The states of this rank's broker, from RUN on (flux-core `broker/state_machine.c`).

use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;

use super::{Futures, RpcError};

/// Answered in RUN.
const WAIT: &str = "state-machine.wait";
/// Tells each state: a number that grows by one from state to state.
const MONITOR: &str = "state-machine.monitor";
/// How many states FINALIZE comes behind RUN.
const FINALIZE: i64 = 3;

/// A state of a broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BrokerState {
    /// RUN.
    Running,
    /// CLEANUP or SHUTDOWN: jobs are canceled, and the brokers below leave.
    Leaving,
    /// FINALIZE, in which rc3 runs, or a later one.
    Finalize,
}

/// Passes each state of this rank's broker to `each`, or why states are not told.
pub fn follow_broker(
    rank: u32,
    futures: &Rc<Futures>,
    each: impl Fn(Result<BrokerState, String>) + 'static,
) {
    let sender = Rc::downgrade(futures);
    futures.rpc(WAIT, Some(rank), "{}", move |result| {
        // Without an answer the broker is shutting down already.
        let (Ok(_), Some(futures)) = (result, sender.upgrade()) else { return };
        let running = Cell::new(None);
        futures.stream(MONITOR, rank, "{}", move |result| match result {
            Ok(answer) => each(read(&answer, &running)),
            Err(RpcError { errnum: libc::ENODATA, .. }) => (),
            Err(error) => each(Err(format!("{MONITOR}: {error}"))),
        });
    });
}

/// Reads an answer. The first one tells the number of RUN.
fn read(answer: &str, running: &Cell<Option<i64>>) -> Result<BrokerState, String> {
    let told: Value = serde_json::from_str(answer).unwrap_or_default();
    let state = told["state"].as_i64().ok_or(format!("{MONITOR}: not a state: {answer}"))?;
    let first = running.get().unwrap_or(state);
    running.set(Some(first));
    Ok(match state - first {
        ..=0 => BrokerState::Running,
        1..FINALIZE => BrokerState::Leaving,
        FINALIZE.. => BrokerState::Finalize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_by_their_distance_from_run() {
        let running = Cell::default();
        let state = |number: i64| read(&format!(r#"{{"state":{number}}}"#), &running);
        let told: Vec<_> = [7, 8, 9, 10, 12].into_iter().map(state).collect();
        use BrokerState::{Finalize, Leaving, Running};
        assert_eq!(told, [Running, Leaving, Leaving, Finalize, Finalize].map(Ok));
        assert_eq!(read("x", &running), Err(format!("{MONITOR}: not a state: x")));
    }
}

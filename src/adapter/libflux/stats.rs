//! The answer to `stats-get` on rank 0: it shows all jobs, as tools expect, whoever leads them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::Value;

use super::error::RpcError;
use super::future::Futures;

/// How long a leader's rank has to answer, in seconds. A broker can hang.
const PATIENCE: f64 = 2.0;

type Done = Box<dyn FnOnce(Value)>;

/// The statistics of rank 0, and how many ranks have not told theirs.
struct GatheredStats {
    stats: RefCell<Value>,
    left: Cell<usize>,
    done: RefCell<Option<Done>>,
}

/// Adds the jobs that other ranks lead to the statistics of `own` rank, and passes them to `done`.
/// Only rank 0 knows of any. Jobs of ranks that do not answer in time are left out.
pub(super) fn gather(
    futures: &Futures,
    topic: &str,
    own: u32,
    stats: Value,
    done: impl FnOnce(Value) + 'static,
) {
    let coordinated = stats["coordinated"].as_object().into_iter().flatten();
    let leaders = coordinated.filter_map(|(_, job)| u32::try_from(job["leader"].as_u64()?).ok());
    let leaders: BTreeSet<u32> = leaders.filter(|rank| *rank != own).collect();
    if leaders.is_empty() {
        return done(stats);
    }
    let gathering = Rc::new(GatheredStats {
        stats: RefCell::new(stats),
        left: Cell::new(leaders.len()),
        done: RefCell::new(Some(Box::new(done))),
    });
    for rank in leaders {
        let gathering = Rc::clone(&gathering);
        futures.rpc_within(PATIENCE, topic, rank, "{}", move |result| {
            gathering.take(rank, result);
        });
    }
}

impl GatheredStats {
    fn take(&self, rank: u32, result: Result<String, RpcError>) {
        let text = result.unwrap_or_default();
        let mut theirs: Value = serde_json::from_str(&text).unwrap_or_default();
        add_jobs(&mut self.stats.borrow_mut(), rank, theirs["jobs"].take());
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.end();
        }
    }

    fn end(&self) {
        if let Some(done) = self.done.take() {
            done(self.stats.take());
        }
    }
}

/// The module is being unloaded, and with it the requests to the other ranks are given up.
impl Drop for GatheredStats {
    fn drop(&mut self) {
        self.end();
    }
}

/// A rank may still show a job that another leads by now.
fn add_jobs(stats: &mut Value, rank: u32, jobs: Value) {
    let Value::Object(jobs) = jobs else { return };
    for (id, job) in jobs {
        if stats["coordinated"][&id]["leader"] == rank {
            stats["jobs"][&id] = job;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_job_is_shown_as_its_leader_shows_it() {
        let coordinated =
            json!({ "a": { "leader": 0 }, "b": { "leader": 1 }, "c": { "leader": 2 } });
        let mut stats = json!({ "coordinated": coordinated, "jobs": { "a": 1 } });
        add_jobs(&mut stats, 1, json!({ "b": 2, "c": 3 }));
        add_jobs(&mut stats, 2, Value::Null);
        assert_eq!(stats["jobs"], json!({ "a": 1, "b": 2 }));
    }

    #[test]
    fn the_answer_comes_once_also_if_no_rank_answers() {
        for answers in 0..3 {
            let said = Rc::new(RefCell::new(Vec::new()));
            let heard = Rc::clone(&said);
            let done: Done = Box::new(move |stats| heard.borrow_mut().push(stats));
            let gathering = GatheredStats {
                stats: RefCell::new(json!({ "jobs": {} })),
                left: Cell::new(2),
                done: RefCell::new(Some(done)),
            };
            (0..answers).for_each(|rank| gathering.take(rank, Ok("{}".to_string())));
            drop(gathering);
            assert_eq!(*said.borrow(), [json!({ "jobs": {} })], "{answers} answers");
        }
    }
}

//! How many messages a job takes, by its ranks: `sim --profile huge`, in a small world.

use std::collections::BTreeSet;

use job_exec_rs_simulator::{JobTraffic, Profile, run};

const FANOUT: u32 = 4;
/// What a leader exchanges with each rank below it: a request and its end, up to four orders, and five
/// stages of its subtree, each in up to three messages if the subtree needs longer than agents wait.
const PER_CHILD: u64 = 2 + 4 + 5 * 3;
/// What rank 0 exchanges with a leader: a request, up to eight answers, their end, and one order.
const WITH_RANK_0: u64 = 11;

/// Five jobs of ten ranks and five of a hundred, none of which rank 0 leads.
fn jobs(fanout: u32) -> Vec<JobTraffic> {
    let plan = (0..5).flat_map(|number| {
        let first = 1 + number * 20;
        [first..first + 10, first..first + 100]
    });
    let outcome = run(1, &Profile::quiet(200, fanout, plan.collect()), &BTreeSet::new(), false);
    assert_eq!(outcome.violations, []);
    outcome.traffic.into_values().collect()
}

fn most(jobs: &[JobTraffic], ranks: usize, of: impl Fn(&JobTraffic) -> u64) -> u64 {
    let counts: Vec<u64> = jobs.iter().filter(|job| job.ranks == ranks).map(of).collect();
    assert_eq!(counts.len(), 5, "jobs of {ranks} ranks");
    counts.into_iter().max().unwrap_or_default()
}

fn at_leader(job: &JobTraffic) -> u64 {
    assert_ne!(job.leader, 0);
    job.of(job.leader).messages
}

#[test]
fn rank_0_takes_as_many_messages_for_a_hundred_ranks_as_for_ten() {
    let jobs = jobs(FANOUT);
    let at_rank_0 = |ranks| most(&jobs, ranks, |job| job.of(0).messages);
    assert!(at_rank_0(10) > 0);
    assert_eq!(at_rank_0(10), at_rank_0(100));
}

#[test]
fn a_leader_takes_messages_by_its_fan_out_and_not_by_its_ranks() {
    let tree = jobs(FANOUT);
    let bound = WITH_RANK_0 + u64::from(FANOUT) * PER_CHILD;
    let measured = most(&tree, 100, at_leader);
    assert!(measured <= bound, "{measured} messages, more than {bound}");
    assert!(tree.iter().all(|job| job.ranks < 100 || job.depth() > 2), "no tree");
    // So the bound says something: without a tree it does not hold.
    let flat = jobs(100);
    assert!(flat.iter().all(|job| job.depth() == 1));
    assert!(most(&flat, 100, at_leader) > 2 * bound);
}

//! Whole instances inside this process, with child processes and, if there is a user bus, with
//! systemd units.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use job_exec_rs::config::Config;
use job_exec_rs::port::supervisor::Method;
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::{BrokerRank, Idset, JobId, Stream, UnitName, WaitStatus, decode_eventlog};
use job_exec_rs_command::embedded::{
    Control, Happening, Instance, InstanceConfig, InstanceEvent, JobOutcome, JobRequest,
};
use support::Gate;

/// Every way to start commands that this host has.
fn methods() -> Vec<ExecMethod> {
    let mut methods = vec![ExecMethod::Fork];
    if support::bus() {
        methods.push(ExecMethod::Systemd);
    }
    methods
}

fn config(method: ExecMethod, ranks: u32) -> InstanceConfig {
    InstanceConfig {
        ranks,
        config: Config { method: method.into(), ..Config::default() },
        statedir: None,
        adopt: false,
        bus_address: None,
        dispatch: tracing::Dispatch::none(),
    }
}

fn request(ranks: impl IntoIterator<Item = u32>, command: &[&str]) -> JobRequest {
    JobRequest {
        command: command.iter().map(ToString::to_string).collect(),
        ranks: ranks.into_iter().collect(),
        duration: 0.0,
    }
}

/// A gate for each rank, named as the rank.
fn rank_gates(dir: &Path, ranks: u32) -> Vec<Gate> {
    (0..ranks).map(|rank| Gate::new(dir.join(rank.to_string()))).collect()
}

fn script(ranks: u32, script: &str) -> JobRequest {
    request(0..ranks, &["/bin/sh", "-c", script])
}

/// A job that was run, from start to end.
struct Ran {
    id: JobId,
    outcome: JobOutcome,
    events: Vec<InstanceEvent>,
}

/// Runs one job in an instance of its own, which must leave nothing behind. `watch` gets every
/// event, and can control the instance.
fn run_watched(
    config: &InstanceConfig,
    request: JobRequest,
    mut watch: impl FnMut(&InstanceEvent, &Control),
) -> Ran {
    let events = RefCell::new(Vec::new());
    let control = Rc::new(std::cell::OnceCell::new());
    let mut instance = Instance::start(config, |event| {
        events.borrow_mut().push(event.clone());
        if let Some(control) = control.get() {
            watch(event, control);
        }
    })
    .expect("an instance");
    control.get_or_init(|| instance.control());
    let statedir = instance.statedir().to_path_buf();
    let id = instance.submit(request).expect("a good request");
    let outcome = instance.wait(id);
    assert_eq!(instance.stop(), [], "units left behind");
    assert_eq!(statedir.exists(), config.statedir.is_some(), "{}", statedir.display());
    Ran { id, outcome, events: events.into_inner() }
}

fn run(method: ExecMethod, request: JobRequest) -> Ran {
    let ranks = request.ranks.last().expect("a rank") + 1;
    run_watched(&config(method, ranks), request, |_, _| ())
}

impl Ran {
    /// The output of a rank on a stream, from `Output` events.
    fn output(&self, rank: u32, stream: Stream) -> String {
        let mut bytes = Vec::new();
        for event in &self.events {
            match &event.what {
                Happening::Output { rank: r, stream: s, data }
                    if *r == BrokerRank(rank) && *s == stream =>
                {
                    bytes.extend_from_slice(data);
                }
                _ => (),
            }
        }
        String::from_utf8(bytes).expect("UTF-8")
    }

    /// The stdout of a rank, from the exec eventlog.
    fn logged(&self, rank: u32) -> String {
        let of_rank = |event: &InstanceEvent| match &event.what {
            Happening::Exec(event) => {
                let (from, stream, _) = event.logged()?;
                let mine = from == BrokerRank(rank) && stream == Stream::Stdout;
                mine.then(|| event.context["data"].as_str().expect("text").to_string())
            }
            _ => None,
        };
        self.events.iter().filter_map(of_rank).collect()
    }

    /// Names of the events in the exec eventlog, without `log`.
    fn exec_names(&self) -> Vec<&str> {
        let name = |event: &'_ InstanceEvent| match &event.what {
            Happening::Exec(event) if event.name != "log" => Some(event.name.clone()),
            _ => None,
        };
        let names: Vec<String> = self.events.iter().filter_map(name).collect();
        names.into_iter().map(|name| &*name.leak()).collect()
    }

    /// The ranks of each release, in order. Checks that no rank comes twice and none is missing.
    fn released(&self, all: &Idset) -> Vec<Idset> {
        let mut seen = Idset::new();
        let mut releases = Vec::new();
        for ranks in &self.outcome.releases {
            let ranks = match ranks.as_str() {
                "all" => all.clone(),
                ranks => ranks.parse().expect("an idset"),
            };
            assert!(seen.intersection(&ranks).is_empty(), "{ranks} again");
            seen = seen.union(&ranks);
            releases.push(ranks);
        }
        assert_eq!(seen, *all, "released");
        releases
    }

    fn exception(&self) -> (&str, &str) {
        let first = self.outcome.exceptions.first().expect("an exception");
        (&first.kind, &first.note)
    }
}

#[test]
fn exit_statuses_are_those_of_the_command() {
    for method in methods() {
        let code = |command: &[&str]| run(method, request([0], command)).outcome.exit_code();
        assert_eq!(code(&["true"]), 0);
        assert_eq!(code(&["sh", "-c", "exit 3"]), 3);
        assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), 137);
        assert_eq!(code(&["no-such-program"]), 127);
        assert_eq!(code(&["/no/such/program"]), 127);
        assert_eq!(code(&["/etc/passwd"]), 126);
        assert_eq!(code(&["/tmp"]), 126);
    }
}

#[test]
fn the_largest_status_of_all_ranks_counts() {
    for method in methods() {
        let ran = run(method, script(4, "exit $FLUX_TASK_RANK"));
        assert_eq!(ran.outcome.status, Some(WaitStatus::exited(3)));
        assert!(ran.outcome.exceptions.is_empty(), "{:?}", ran.outcome.exceptions);
    }
}

#[test]
fn a_program_that_is_missing_fails_the_job_on_every_rank() {
    for method in methods() {
        let ran = run(method, request(0..4, &["/no/such/program"]));
        assert_eq!(ran.outcome.exit_code(), 127);
        let (kind, note) = ran.exception();
        assert_eq!(kind, "exec");
        assert!(note.contains("/no/such/program"), "{note}");
        ran.released(&Idset::from_range(0..4));
    }
}

#[test]
fn commands_know_their_place() {
    for method in methods() {
        let text = "echo $FLUX_JOB_ID $FLUX_JOB_SIZE $FLUX_JOB_NNODES $FLUX_TASK_RANK \
                    $FLUX_BROKER_RANK";
        let ran = run(method, request([1, 2], &["sh", "-c", text]));
        for (task, rank) in [(0, 1), (1, 2)] {
            let expected = format!("{} 2 2 {task} {rank}\n", ran.id);
            assert_eq!(ran.output(rank, Stream::Stdout), expected);
        }
    }
}

#[test]
fn output_of_every_rank_comes_once_and_in_order() {
    for method in methods() {
        let text = "for i in $(seq 500); do echo $FLUX_TASK_RANK:$i; done; echo bad >&2";
        let ran = run(method, script(4, text));
        for rank in 0..4 {
            let expected: String = (1..=500).map(|i| format!("{rank}:{i}\n")).collect();
            assert_eq!(ran.output(rank, Stream::Stdout), expected);
            assert_eq!(ran.logged(rank), expected, "in the exec eventlog");
            assert_eq!(ran.output(rank, Stream::Stderr), "bad\n");
        }
    }
}

#[test]
fn ranks_are_released_as_they_end_and_the_last_at_the_end() {
    for method in methods() {
        let dir = tempfile::tempdir().expect("a directory");
        let gates = rank_gates(dir.path(), 4);
        // Each rank ends when its gate is open. The first gate is opened when the job starts, each
        // other gate when the rank before it in this order is released.
        let order = [2, 0, 3, 1];
        let open = |rank: u32| gates[rank as usize].open();
        let text = format!("read _ <{}/$FLUX_TASK_RANK", dir.path().display());
        let mut next = order.into_iter();
        let ran = run_watched(&config(method, 4), script(4, &text), |event, _| {
            if let Happening::Start | Happening::Release { .. } = event.what {
                next.next().into_iter().for_each(open);
            }
        });
        let releases = ran.released(&Idset::from_range(0..4));
        assert_eq!(releases, order.map(|rank| Idset::from_iter([rank])));
        let finals = ran.events.iter().filter_map(|event| match event.what {
            Happening::Release { is_final, .. } => Some(is_final),
            _ => None,
        });
        assert_eq!(finals.collect::<Vec<_>>(), [false, false, false, true]);
    }
}

#[test]
fn the_time_limit_ends_a_job() {
    for method in methods() {
        let limited = JobRequest { duration: 0.3, ..request(0..2, &["sleep", "100"]) };
        let ran = run(method, limited);
        assert_eq!(ran.outcome.status, Some(WaitStatus::signaled(libc::SIGALRM)));
        assert_eq!(ran.exception(), ("timeout", "resource allocation expired"));
    }
}

#[test]
fn a_time_limit_can_be_moved_where_the_leader_is_another_rank() {
    for method in methods() {
        let mut instance = Instance::start(&config(method, 4), |_| ()).expect("an instance");

        let long = JobRequest { duration: 1000.0, ..request([2, 3], &["sleep", "100"]) };
        let long = instance.submit(long).expect("a job");
        // The long job starts while this one runs.
        let short = instance.submit(request([2], &["true"])).expect("a job");
        instance.wait(short);
        instance.set_expiration(long, 1.0);
        let outcome = instance.wait(long);
        assert_eq!(outcome.exceptions.first().map(|e| e.kind.as_str()), Some("timeout"));
        assert_eq!(instance.stop(), []);
    }
}

#[test]
fn a_cancelled_job_is_terminated() {
    for method in methods() {
        let sleep = request(0..4, &["sleep", "100"]);
        let ran = run_watched(&config(method, 4), sleep, |event, control| {
            if event.what == Happening::Start {
                control.cancel(event.id, "no longer wanted");
            }
        });
        assert_eq!(ran.outcome.exit_code(), 143);
        assert_eq!(ran.exception(), ("cancel", "no longer wanted"));
        ran.released(&Idset::from_range(0..4));
    }
}

#[test]
fn a_cancelled_job_that_ignores_it_is_killed() {
    for method in methods() {
        let mut config = config(method, 2);
        config.config.kill_timeout = 0.2;
        // A rank is ready when its trap is set. It then writes its first line.
        let stubborn = script(2, "trap '' TERM; echo ready; while :; do sleep 1; done");
        let mut ready = 0;
        let ran = run_watched(&config, stubborn, |event, control| {
            ready += u32::from(matches!(event.what, Happening::Output { .. }));
            if ready == 2 && matches!(event.what, Happening::Output { .. }) {
                control.cancel(None, "no longer wanted");
            }
        });
        assert_eq!(ran.outcome.exit_code(), 137);
    }
}

#[test]
fn a_tree_of_ranks_is_one_job() {
    for method in methods() {
        let mut config = config(method, 9);
        config.config.fanout = 2;
        let text = "echo rank $FLUX_TASK_RANK; exit $((FLUX_TASK_RANK == 8 ? 5 : 0))";
        let ran = run_watched(&config, script(9, text), |_, _| ());
        assert_eq!(ran.outcome.exit_code(), 5);
        assert!(ran.outcome.exceptions.is_empty(), "{:?}", ran.outcome.exceptions);
        for rank in 0..9 {
            assert_eq!(ran.output(rank, Stream::Stdout), format!("rank {rank}\n"));
            assert_eq!(ran.logged(rank), format!("rank {rank}\n"));
        }
        ran.released(&Idset::from_range(0..9));
    }
}

#[test]
fn a_tree_is_cancelled_to_its_leaves() {
    for method in methods() {
        let mut config = config(method, 9);
        config.config.fanout = 2;
        let sleep = request(0..9, &["sleep", "100"]);
        let ran = run_watched(&config, sleep, |event, control| {
            if event.what == Happening::Start {
                control.cancel(None, "all of it");
            }
        });
        let ended: BTreeMap<u32, WaitStatus> = ran
            .events
            .iter()
            .filter_map(|event| match &event.what {
                Happening::UnitExited { unit, status } => Some((unit.rank().0, *status)),
                _ => None,
            })
            .collect();
        let expected = (0..9).map(|rank| (rank, WaitStatus::signaled(libc::SIGTERM)));
        assert_eq!(ended, expected.collect());
    }
}

#[test]
fn exec_events_follow_rfc_50_and_stay_in_the_kvs() {
    for method in methods() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = config(method, 2);
        config.statedir = Some(dir.path().join("state"));
        let ran = run_watched(&config, script(2, "echo x"), |_, _| ());
        let recoverable: &[_] = if method == ExecMethod::Systemd { &["recoverable"] } else { &[] };
        let names = [
            &["init", "starting"],
            recoverable,
            &["shell-exit", "debug.timeline", "complete", "done"],
        ];
        assert_eq!(ran.exec_names(), names.concat());
        let guest = ran.id.kvs_key("guest").replace('.', "/");
        let path = dir.path().join("state/kvs/primary").join(guest).join("exec.eventlog");
        let text = std::fs::read_to_string(path).expect("the eventlog");
        let events = decode_eventlog(&text).expect("an eventlog");
        assert_eq!(events.last().map(|event| event.name.as_str()), Some("done"));
        assert_eq!(files(&dir.path().join("state/rank-0")), 0, "records and output");
    }
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("a directory").count()
}

#[test]
fn jobs_run_side_by_side() {
    for method in methods() {
        let mut instance = Instance::start(&config(method, 3), |_| ()).expect("an instance");
        let jobs: Vec<JobId> = (0..6)
            .map(|code| {
                let text = format!("exit {code}");
                let ranks = code % 3..3;
                instance.submit(request(ranks, &["sh", "-c", &text])).expect("a job")
            })
            .collect();
        for (code, id) in jobs.into_iter().enumerate().rev() {
            assert_eq!(usize::from(instance.wait(id).exit_code()), code);
        }
        assert_eq!(instance.stop(), []);
    }
}

#[test]
fn ranks_that_are_not_there_are_refused() {
    let mut instance = Instance::start(&config(ExecMethod::Fork, 2), |_| ()).expect("one");
    for ranks in [0..0, 1..3] {
        assert!(instance.submit(request(ranks, &["true"])).is_err());
    }
    instance.stop();
}

#[test]
fn what_a_lost_instance_left_running_is_stopped_by_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    for method in methods() {
        let mut config = config(method, 2);
        config.statedir = Some(dir.path().join(format!("{method:?}")));
        let control = std::cell::OnceCell::<Control>::new();
        let mut instance = Instance::start(&config, |event| {
            if let Some(control) = control.get().filter(|_| event.what == Happening::Start) {
                control.leave();
            }
        })
        .expect("an instance");
        control.get_or_init(|| instance.control());
        let id = instance.submit(request(0..2, &["sleep", "100"])).expect("a job");
        assert_eq!(instance.wait(id).status, None);
        assert_eq!(instance.stop().len(), 2, "left behind on purpose");

        let mut leftovers = 0;
        config.ranks = 1;
        let next = Instance::start(&config, |event| {
            leftovers += usize::from(matches!(event.what, Happening::Leftover { .. }));
        })
        .expect("the next instance, which has one rank less");
        // Child processes end with their supervisor, but their records are found all the same.
        assert_eq!(next.method() == Method::Systemd, method == ExecMethod::Systemd);
        assert_eq!(next.stop(), []);
        assert_eq!(leftovers, 2);
    }
}

/// Starts an instance that goes on with what another has left, and collects what happens.
fn adopting<'a>(
    statedir: &Path,
    events: &'a RefCell<Vec<InstanceEvent>>,
    mut watch: impl FnMut(&InstanceEvent) + 'a,
) -> Instance<'a> {
    let mut config = config(ExecMethod::Systemd, 3);
    (config.statedir, config.adopt) = (Some(statedir.to_path_buf()), true);
    Instance::start(&config, move |event| {
        events.borrow_mut().push(event.clone());
        watch(event);
    })
    .expect("an instance")
}

#[test]
fn an_instance_goes_on_with_the_jobs_of_a_lost_one() {
    if !support::bus() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let statedir = dir.path().join("state");
    let events = RefCell::new(Vec::new());
    let control = std::cell::OnceCell::<Control>::new();
    let gates = rank_gates(dir.path(), 3);
    // Rank 0 ends in the first life, rank 1 and 2 in the third.
    let mut first = adopting(&statedir, &events, |event| match &event.what {
        Happening::Start => gates[0].open(),
        Happening::Release { .. } => control.get().expect("a control").leave(),
        _ => (),
    });
    control.get_or_init(|| first.control());
    let text = format!(
        "echo rank $FLUX_TASK_RANK; read _ <{}/$FLUX_TASK_RANK; echo ended; exit $FLUX_TASK_RANK",
        dir.path().display()
    );
    let id = first.submit(script(3, &text)).expect("a job");
    assert_eq!(first.wait(id).releases, ["0"]);
    // Left behind on purpose. The record of rank 0 is kept until the job has ended.
    let runs_on =
        |left: Vec<UnitName>| [1, 2].iter().all(|r| left.iter().any(|u| u.rank().0 == *r));
    assert!(runs_on(first.stop()));

    let control = std::cell::OnceCell::<Control>::new();
    let mut second = adopting(&statedir, &events, |event| {
        if event.what == Happening::Reattached {
            control.get().expect("a control").leave();
        }
    });
    control.get_or_init(|| second.control());
    assert_eq!(second.jobs(), [id]);
    assert_eq!(second.wait(id).status, None);
    assert!(runs_on(second.stop()));

    let mut third = adopting(&statedir, &events, |event| {
        if event.what == Happening::Reattached {
            gates[1].open();
            gates[2].open();
        }
    });
    let outcome = third.wait(id);
    assert_eq!(third.jobs(), []);
    assert_eq!(third.stop(), []);
    let events = events.into_inner();
    let ran = Ran { id, outcome, events };
    assert_eq!(ran.outcome.status, Some(WaitStatus::exited(2)));
    assert!(ran.outcome.exceptions.is_empty(), "{:?}", ran.outcome.exceptions);
    for rank in 0..3 {
        assert_eq!(ran.logged(rank), format!("rank {rank}\nended\n"));
    }
    let is = |what: &Happening| ran.events.iter().filter(|event| event.what == *what).count();
    assert_eq!((is(&Happening::Start), is(&Happening::Reattached)), (1, 2));
    assert!(!ran.outcome.releases.iter().any(|ranks| ranks.contains('0')), "released once");
    let started: BTreeMap<_, BTreeSet<u32>> =
        ran.events.iter().fold(BTreeMap::new(), |mut started, event| {
            if let Happening::UnitStarted { unit, pid } = &event.what {
                started.entry(unit.clone()).or_insert_with(Default::default).insert(*pid);
            }
            started
        });
    assert!(started.len() == 3 && started.values().all(|pids| pids.len() == 1), "{started:?}");
    assert_eq!(files(&statedir.join("kvs/manager")), 0);
}

#[test]
fn jobs_of_a_lost_instance_are_forgotten_by_one_that_does_not_go_on() {
    if !support::bus() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let events = RefCell::new(Vec::new());
    let control = std::cell::OnceCell::<Control>::new();
    let mut first = adopting(dir.path(), &events, |event| {
        if event.what == Happening::Start {
            control.get().expect("a control").leave();
        }
    });
    control.get_or_init(|| first.control());
    let id = first.submit(request(0..3, &["sleep", "100"])).expect("a job");
    first.wait(id);
    assert_eq!((first.stop().len(), files(&dir.path().join("kvs/manager"))), (3, 1));
    let mut config = config(ExecMethod::Systemd, 3);
    config.statedir = Some(dir.path().to_path_buf());
    let next = Instance::start(&config, |_| ()).expect("an instance");
    assert_eq!((next.jobs(), next.stop()), (vec![], vec![]));
    assert_eq!(adopting(dir.path(), &events, |_| ()).jobs(), []);
}

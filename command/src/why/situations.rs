//! What is said of jobs in twenty situations and more.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::words::{Learned, Service, ranks_to_ask, words};

const NOW: f64 = 1000.0;

/// A job on four ranks that has been in its state for a minute, as rank 0 alone knows it.
fn job(state: &str, service: Service) -> Learned {
    let mut listed = json!({ "state": state, "username": "alice", "dependencies": [] });
    listed[format!("t_{}", state.to_lowercase())] = json!(NOW - 60.0);
    let hosts = Some("n[0-9]".parse().expect("hosts"));
    let (events, exec, ranks) = (Vec::new(), Vec::new(), BTreeMap::new());
    Learned {
        job: "f2X".into(),
        now: NOW,
        listed,
        events,
        exec,
        service,
        hosts,
        ranks,
        sees_all: true,
    }
}

/// The same with what its leader, rank 3, says.
fn led(state: &str, more: &Value) -> Learned {
    let mut of_job = json!({ "state": state, "total_shells": 4, "active_shells": 4, "timers": {},
        "active_ranks": "3-6", "kill_timeout": 5.0, "kill_count": 0, "kill_shell_count": 0,
        "multiuser": 0 });
    for (key, value) in more.as_object().into_iter().flatten() {
        of_job[key] = value.clone();
    }
    let settings = json!({ "term-signal": "SIGTERM", "kill-signal": "SIGKILL", "kill-timeout": 5.0,
        "max-kill-count": 8, "config": { "cgroup_kill": true, "peer_timeout": 120.0 } });
    let state =
        if ["opening", "launching", "running"].contains(&state) { "RUN" } else { "CLEANUP" };
    job(state, Service::Led { leader: 3, job: of_job, settings })
}

fn told(mut job: Learned, rank: u32, told: Value) -> Learned {
    job.ranks.insert(rank, Ok(told));
    job
}

fn unit(stage: &str, script: Value, processes: Value) -> Value {
    let count = processes.as_array().map_or(0, Vec::len);
    json!({ "waits-for": null, "units": [{ "stage": stage, "unit": "u.service", "script": script,
        "count": count, "processes": processes }] })
}

fn assert_says(job: &Learned, lines: &[&str]) {
    assert_eq!(words(job), lines);
}

#[test]
fn before_the_service_has_it() {
    let mut waits = job("DEPEND", Service::Unknown);
    waits.listed["dependencies"] = json!(["after-success=f2W", "x\u{1b}[2J"]);
    let text = "waits for its dependencies: after-success=f2W, x\\u{1b}[2J";
    assert_says(&waits, &[&format!("f2X of alice: {text}, for 1m")]);
    let mut held = job("SCHED", Service::Unknown);
    assert_says(&held, &["f2X of alice: waits for resources: the scheduler decides, for 1m"]);
    held.listed["priority"] = json!(0);
    assert_says(&held, &["f2X of alice: is held (see flux-job-urgency), for 1m"]);
    let mut prolog = job("RUN", Service::Unknown);
    let text = "has resources, and the service does not have it";
    assert_says(&prolog, &[&format!("f2X of alice: {text}, for 1m")]);
    let event =
        |name: &str, what: &str| json!({ "name": name, "context": { "description": what } });
    prolog.events = vec![
        event("prolog-start", "a"),
        event("prolog-start", "job-manager.prolog"),
        event("prolog-finish", "a"),
    ];
    let text = "waits for the job manager's prolog: job-manager.prolog";
    assert_says(&prolog, &[&format!("f2X of alice: {text}, for 1m")]);
    let unled = job("RUN", Service::Unled);
    assert_says(&unled, &["f2X of alice: nobody leads it yet, for 1m"]);
}

#[test]
fn after_the_service_had_it() {
    let mut over = job("INACTIVE", Service::Unknown);
    over.listed["result"] = json!("FAILED");
    over.listed["returncode"] = json!(3);
    assert_says(&over, &["f2X of alice: is over: FAILED, return code 3, for 1m"]);
    over.listed["exception"] = json!({ "occurred": true, "type": "exec" });
    let text = "is over: FAILED, return code 3 (exception exec)";
    assert_says(&over, &[&format!("f2X of alice: {text}, for 1m")]);
    let mut freed = job("CLEANUP", Service::Unknown);
    assert_says(&freed, &["f2X of alice: has ended, and its resources are being freed, for 1m"]);
    let start = |what: &str| json!({ "name": "epilog-start", "context": { "description": what } });
    freed.events = vec![start("job-exec-rs")];
    let text = "has ended, and waits for a checkpoint that holds its end";
    assert_says(&freed, &[&format!("f2X of alice: {text}, for 1m")]);
    freed.events = vec![start("job-manager.epilog")];
    let text = "has ended, and waits for the job manager's epilog: job-manager.epilog";
    assert_says(&freed, &[&format!("f2X of alice: {text}, for 1m")]);
}

#[test]
fn nobody_can_say() {
    let mut silent = job("RUN", Service::Silent("rank 0: Function not implemented".into()));
    silent.sees_all = false;
    assert_says(
        &silent,
        &[
            "f2X of alice: has resources, for 1m",
            "  unknown: the service does not answer: rank 0: Function not implemented",
        ],
    );
    let mut strangers = job("RUN", Service::Unknown);
    strangers.sees_all = false;
    assert_says(
        &strangers,
        &[
            "f2X of alice: has resources, for 1m",
            "  unknown: more: the service tells users of their own jobs that it has",
        ],
    );
    let away = job("RUN", Service::Away { leader: 3, why: "rank 3: No route to host".into() });
    assert_says(
        &away,
        &[
            "f2X of alice, led by n3 (rank 3): its leader does not answer, for 1m",
            "  unknown: what it does: rank 3: No route to host",
            "  next: its shells run on, and rank 0 asks for its leader again",
        ],
    );
}

const LED: &str = "f2X of alice, led by n3 (rank 3):";

#[test]
fn while_it_starts() {
    let opening = led("opening", &json!({ "timers": { "open": 1.2 } }));
    assert_says(
        &opening,
        &[
            &format!("{LED} waits for the KVS to open its namespace, for 1m"),
            "  next: in 1s its namespace is asked for again",
        ],
    );
    let prolog = led(
        "launching",
        &json!({ "prolog_ranks": "4-5", "starting": { "count": 4, "ranks": "3-6" } }),
    );
    let hangs = json!({ "state": "stuck", "runs_for": 90.0, "time_left": null });
    let runs = json!({ "state": "running", "runs_for": 90.0, "time_left": 30.0 });
    let prolog = told(prolog, 4, unit("prolog", runs, json!([[47, "S", 90.0, "sh"]])));
    let prolog = told(prolog, 5, unit("prolog", hangs, json!([[48, "D", 89.9, "umount"]])));
    assert_says(
        &prolog,
        &[
            &format!("{LED} waits for prologs, for 1m"),
            "  awaited: prologs, on n[4-5] (ranks 4-5)",
            "  n4 (rank 4): prolog, running, time left 30s: 1 process in u.service",
            "    47 S 1m 30s sh",
            "  n5 (rank 5): prolog, stuck: 1 process in u.service",
            "    48 D 1m 30s umount",
        ],
    );
    let starts = led("launching", &json!({ "starting": { "count": 1, "ranks": "5" } }));
    let starts = told(starts, 5, json!({ "waits-for": "StartTransientUnit", "units": [] }));
    assert_says(
        &starts,
        &[
            &format!("{LED} starts: all but 1 of 4 shells run, for 1m"),
            "  awaited: shells to begin, on n5 (rank 5)",
            "  n5 (rank 5): systemd does not answer: StartTransientUnit",
            "  n5 (rank 5): nothing runs there for it",
        ],
    );
}

#[test]
fn in_the_start_barrier() {
    for (number, timers) in
        [(1, json!({ "barrier": 1620.0, "barrier-notice": 3.0 })), (2, json!({}))]
    {
        let pending = json!({ "count": 1, "ranks": "5" });
        let barrier = json!({ "number": number, "entered": 3, "pending": pending });
        let mut waits = led("running", &json!({ "barrier": barrier, "timers": timers }));
        let data = "start barrier: 3 of 4 shells; waiting for n5\n";
        waits.exec =
            vec![json!({ "timestamp": NOW - 9.0, "context": { "data": data, "barrier": 1 } })];
        waits = told(waits, 5, unit("shell", json!(null), json!([[47, "S", 90.0, "flux-shell"]])));
        let mut says = words(&waits);
        assert_eq!(
            says.remove(0),
            format!("{LED} waits in start barrier {number}: 3 of 4 shells, for 1m")
        );
        assert_eq!(
            says[..3],
            [
                "  awaited: shells to enter the start barrier, on n5 (rank 5)",
                "  n5 (rank 5): shell: 1 process in u.service",
                "    47 S 1m 30s flux-shell",
            ]
        );
        let next = "  next: in 27m who has not entered the barrier is drained, and the job fails";
        assert_eq!(says.iter().any(|line| line == next), number == 1, "{says:?}");
        assert_eq!(says.pop().expect("a line"), format!("  noted: 9s ago: {}", data.trim_end()));
    }
}

#[test]
fn while_it_runs() {
    let runs = led("running", &json!({ "timers": { "expiration": 3600.0 } }));
    let says =
        [&format!("{LED} runs, 4 of 4 shells, for 1m"), "  next: in 1h its time limit is over"];
    assert_says(&runs, &says);
    assert_eq!(ranks_to_ask(&runs.service).to_string(), "3-6", "a shell can be frozen");
    let large = led("running", &json!({ "active_ranks": "3-9999" }));
    assert_eq!(ranks_to_ask(&large.service).to_string(), "3-10");
    let launch = json!({ "prepared": [0.21, "n4"], "running": [0.352, "n\u{1b}5"], "barrier-1": [1.0, "n3"] });
    let mut slow = led("running", &json!({ "launch": launch }));
    let line = "  launch: prologs 0.21s (last: n4), shells 0.35s (last: n\\u{1b}5), start barrier 1 1.00s (last: n3)";
    let says = [&format!("{LED} runs, 4 of 4 shells, for 1m"), line];
    assert_says(&slow, &says);
    slow.service = Service::Unknown;
    slow.exec = vec![json!({ "name": "debug.timeline", "context": launch })];
    assert_eq!(words(&slow)[1], line, "its exec eventlog says the same");
    let exit = led(
        "running",
        &json!({ "active_ranks": "5", "active_shells": 1, "timers": { "shell-exit": 12.0 } }),
    );
    assert_says(
        &exit,
        &[
            &format!("{LED} runs, 1 of 4 shells, for 1m"),
            "  awaited: shells to end, on n5 (rank 5)",
            "  next: in 12s the job fails if a shell still runs",
        ],
    );
    let mut away = led("running", &json!({ "away_ranks": "5", "timers": { "retry": 4.0 } }));
    away.ranks.insert(5, Err("No route to host".to_string()));
    assert_says(
        &away,
        &[
            &format!("{LED} runs, 4 of 4 shells, for 1m"),
            "  awaited: modules that do not answer, on n5 (rank 5)",
            "  n5 (rank 5) does not answer: No route to host",
            "  next: in 4s who is away is asked again",
            "  next: who is away for 2m is given up, and the job fails",
        ],
    );
}

#[test]
fn while_it_is_frozen() {
    let frozen = json!({ "waits-for": null, "units": [{ "stage": "shell", "frozen": true }] });
    let mut runs = led("running", &json!({}));
    for rank in [3, 4, 6] {
        runs = told(runs, rank, frozen.clone());
    }
    let thawed = told(runs.clone(), 4, unit("shell", json!(null), json!([])));
    runs.ranks.insert(5, Err("No route to host".to_string()));
    let until = "until job-exec-rs thaw f2X its processes there handle no signals";
    assert_says(
        &runs,
        &[
            &format!("{LED} runs, 4 of 4 shells, for 1m"),
            &format!("  frozen: on n[3-4,6] (ranks 3-4,6): {until}"),
            "  n5 (rank 5) does not answer: No route to host",
        ],
    );
    let says = words(&thawed);
    assert_eq!(says[1..], [format!("  frozen: on n[3,6] (ranks 3,6): {until}")]);
    let frozen = json!({ "units": [{ "stage": "shell", "unit": "u.service", "frozen": true, "count": 1,
        "processes": [[47, "S", 9.0, "cat"]] }] });
    let killed = told(killed(&json!({ "timers": { "kill-tasks": 3.0 } })), 5, frozen);
    assert_says(
        &killed,
        &[
            &format!("{LED} is being ended (cancel), for 2m 10s"),
            &format!("  frozen: on n5 (rank 5): {until}"),
            "  awaited: shells to end, on n5 (rank 5)",
            "  n5 (rank 5): shell: 1 process in u.service",
            "    47 S 9s cat",
            "  done: SIGTERM to shells",
            "  next: in 3s SIGKILL to tasks",
        ],
    );
}

/// A job whose end is forced, 130 s after an exception of this type.
fn killed(more: &Value) -> Learned {
    let mut all =
        json!({ "failure": { "type": "cancel", "since": NOW - 130.0 }, "active_ranks": "5" });
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    led("running", &all)
}

#[test]
fn while_it_is_killed() {
    let tasks =
        killed(&json!({ "kill_count": 2, "timers": { "kill-tasks": 3.0, "kill-shells": 13.0 } }));
    let tasks =
        told(tasks, 5, unit("shell", json!(null), json!([[4711, "D", 47.0, "a\u{1b}[2Jb"]])));
    assert_says(
        &tasks,
        &[
            &format!("{LED} is being ended (cancel), for 2m 10s"),
            "  awaited: shells to end, on n5 (rank 5)",
            "  n5 (rank 5): shell: 1 process in u.service",
            "    4711 D 47s a\\u{1b}[2Jb",
            "  done: SIGTERM to shells, 2 times SIGKILL to tasks",
            // 13 + 10 + 20 + 40 + 80 + 160 + 300 + 300
            "  next: in 3s SIGKILL to tasks; in 13s SIGKILL to shells; in 15m 23s the kernel kills what \
             is left; in 15m 28s nodes with what is left are drained, and the job ends",
        ],
    );
    let imp = json!({ "multiuser": 1, "kill_count": 5, "kill_shell_count": 7, "kill_timeout": 300.0,
        "timers": { "kill-shells": 22.0 } });
    let says = words(&killed(&imp));
    assert_eq!(
        says[2..],
        [
            "  done: SIGTERM to shells, 5 times SIGKILL to tasks, 7 times SIGUSR1, for which the IMP kills, \
         to shells",
            "  next: in 22s SIGUSR1, for which the IMP kills, to shells; in 22s the kernel kills what is \
         left; in 27s nodes with what is left are drained, and the job ends",
        ]
    );
    let last =
        json!({ "kill_shell_count": 8, "timers": { "kill-shells": 290.0, "last-kill": 4.0 } });
    let says = words(&killed(&last));
    assert_eq!(
        says[2..],
        [
            "  done: SIGTERM to shells, 8 times SIGKILL to shells, what is left was killed by the kernel",
            "  next: in 4s what is left is given up: its nodes are drained, and the job ends",
        ]
    );
    let away = json!({ "away_ranks": "6", "timers": { "kill-shells": 4.0, "max-kill": 60.0 } });
    let says = words(&killed(&away));
    assert!(
        says.iter().any(|line| line.contains("SIGKILL to shells, unless a rank is away")),
        "{says:?}"
    );
    assert!(says.iter().any(|line| line.contains("in 1m what is left is killed")), "{says:?}");
    let told = json!({ "left_over": { "5": "pid 47 (user 0, \"a\u{1b}b\")" } });
    let says = words(&killed(&told));
    assert_eq!(says[2], "  n5 (rank 5): signals have not ended pid 47 (user 0, \"a\\u{1b}b\")");
    let leftover = json!({ "active_ranks": "", "leftover": { "count": 90, "ranks": "0-7" } });
    let says = words(&killed(&leftover));
    assert_eq!(
        says[1],
        "  awaited: what shells have left behind, on n[0-7] (ranks 0-7) and 82 more"
    );
}

#[test]
fn at_its_end() {
    let left = led(
        "exited",
        &json!({ "leftover": { "count": 1, "ranks": "5" }, "timers": { "leftover": 600.0 } }),
    );
    assert_says(
        &left,
        &[
            &format!("{LED} has ended, but for what is left of shells, for 1m"),
            "  awaited: what shells have left behind, on n5 (rank 5)",
            "  next: in 10m what is left is killed by the kernel",
        ],
    );
    let mut epilog = led("exited", &json!({ "epilog_ranks": "3-4" }));
    epilog.sees_all = false;
    assert_says(
        &epilog,
        &[
            &format!("{LED} has ended, and waits for epilogs, for 1m"),
            "  awaited: epilogs, on n[3-4] (ranks 3-4)",
            "  unknown: its processes there: the instance owner can see them",
        ],
    );
    let drain = led("exited", &json!({ "undrained_ranks": "3" }));
    let says = words(&drain);
    assert_eq!(says[1], "  awaited: the resource module to drain, on n3 (rank 3)");
    let moving = led(
        "moving",
        &json!({ "active_ranks": "", "active_ranks": "", "failure": { "type": "cancel", "since": 1.0 }, "timers": { "commit": 1.0 } }),
    );
    assert_says(
        &moving,
        &[
            &format!("{LED} has ended, and its output is being kept, for 1m"),
            "  next: in 1s a commit to its exec eventlog that has failed is tried again",
        ],
    );
    let ended = led("ended", &json!({}));
    let text = "has ended, and waits for a checkpoint that holds its end";
    assert_says(&ended, &[&format!("{LED} {text}, for 1m")]);
}

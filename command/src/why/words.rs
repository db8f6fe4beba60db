//! What a job waits for, in words. Nothing is asked here.

use std::collections::BTreeMap;
use std::time::Duration;

use humantime::format_duration;
use job_exec_rs::proto::{BrokerRank, Hostlist, Idset};
use serde_json::Value;

use crate::out::plain;

/// What was found out about a job.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    pub(super) job: String,
    /// In seconds since the epoch.
    pub(super) now: f64,
    /// What flux-jobs(1) shows of it.
    pub(super) listed: Value,
    /// Its eventlog, and its exec eventlog.
    pub(super) events: Vec<Value>,
    pub(super) exec: Vec<Value>,
    pub(super) service: Service,
    pub(super) hosts: Option<Hostlist>,
    /// What ranks have told, or why they have not.
    pub(super) ranks: BTreeMap<u32, Result<Value, String>>,
    /// Who asks is the instance owner.
    pub(super) sees_all: bool,
}

/// What the service says.
#[derive(Clone, Debug)]
pub(super) enum Service {
    /// Nothing, and why.
    Silent(String),
    /// It has no such job.
    Unknown,
    /// No rank leads the job yet.
    Unled,
    /// Its leader says nothing, and why.
    Away { leader: u32, why: String },
    /// What its leader has on it, and how rank 0 is configured, which the owner sees.
    Led { leader: u32, job: Value, settings: Value },
}

/// How many ranks are named, and asked, of those that a job waits for, and of those with a shell.
const NAMED_MAX: usize = 8;
/// How much of a process's name is shown, in characters.
const NAME_MAX: usize = 40;
/// Longest pause between two signals to shells, in seconds.
const PAUSE_MAX: f64 = 300.0;

/// Ranks of a job that it waits for.
struct Awaited {
    what: &'static str,
    /// The first of them.
    ranks: Idset,
    count: usize,
}

/// What the leader says that its job waits for.
fn awaited(job: &Value) -> Vec<Awaited> {
    let has_failed = !job["failure"].is_null();
    let (is_starting, has_ended) = (job["state"] == "launching", job["state"] == "exited");
    let waits_for_exit = !job["timers"]["shell-exit"].is_null();
    let all = [
        ("modules that do not answer", &job["away_ranks"], true),
        ("prologs", &job["prolog_ranks"], true),
        ("shells to begin", &job["starting"], is_starting && job["prolog_ranks"].is_null()),
        ("shells to enter the start barrier", &job["barrier"]["pending"], !has_failed),
        ("shells to end", &job["active_ranks"], has_failed || waits_for_exit),
        ("what shells have left behind", &job["leftover"], has_failed || has_ended),
        ("epilogs", &job["epilog_ranks"], true),
        ("the resource module to drain", &job["undrained_ranks"], true),
    ];
    let set = |value: &Value| value.as_str()?.parse::<Idset>().ok();
    let of = |(what, value, _): (&'static str, &Value, bool)| {
        let all = set(value).or_else(|| set(&value["ranks"]))?;
        let count = value["count"].as_u64().map_or(all.len(), |count| count as usize);
        let ranks = all.iter().take(NAMED_MAX).collect();
        (count > 0).then_some(Awaited { what, ranks, count })
    };
    all.into_iter().filter(|(.., counts)| *counts).filter_map(of).collect()
}

/// Those whose processes can say more, and some that have a shell: it can be frozen. Who freezes a job freezes
/// all of it, and the job can have thousands.
pub(super) fn ranks_to_ask(service: &Service) -> Idset {
    let Service::Led { job, .. } = service else { return Idset::new() };
    let active: Option<Idset> = job["active_ranks"].as_str().and_then(|ranks| ranks.parse().ok());
    let some = active.unwrap_or_default().iter().take(NAMED_MAX).collect();
    named(&awaited(job)).union(&some)
}

/// The ranks that are named of those that the job waits for.
fn named(awaited: &[Awaited]) -> Idset {
    Idset::union_of(awaited.iter().map(|awaited| &awaited.ranks))
}

/// All that there is to say, in lines.
pub(super) fn words(learned: &Learned) -> Vec<String> {
    let state = learned.listed["state"].as_str().unwrap_or_default();
    let is_over = state == "INACTIVE";
    let mut since = learned.listed[format!("t_{}", state.to_lowercase())].as_f64();
    let mut lines = Vec::new();
    let (leader, text) = match &learned.service {
        _ if is_over => (None, managed(learned)),
        Service::Led { leader, job, settings } => {
            lines = of_leader(learned, job, settings);
            // The job manager may not know yet.
            since = job["failure"]["since"].as_f64().filter(|_| state == "RUN").or(since);
            (Some(*leader), led(job))
        }
        Service::Away { leader, why } => {
            lines.push(format!("  unknown: what it does: {}", plain(why)));
            lines.push(
                "  next: its shells run on, and rank 0 asks for its leader again".to_string(),
            );
            (Some(*leader), "its leader does not answer".to_string())
        }
        Service::Silent(why) => {
            lines.push(format!("  unknown: the service does not answer: {}", plain(why)));
            (None, managed(learned))
        }
        Service::Unled => (None, "nobody leads it yet".to_string()),
        Service::Unknown => {
            if !learned.sees_all {
                let line = "  unknown: more: the service tells users of their own jobs that it has";
                lines.push(line.to_string());
            }
            (None, managed(learned))
        }
    };
    let led = leader.map(|rank| format!(", led by {}", place(learned, &BrokerRank(rank).into())));
    let past = since.map(|since| format!(", for {}", span(learned.now - since)));
    let user = plain(learned.listed["username"].as_str().unwrap_or("?"));
    let (led, past) = (led.unwrap_or_default(), past.unwrap_or_default());
    lines.insert(0, format!("{} of {user}{led}: {text}{past}", learned.job));
    lines.extend(launched(learned).map(|text| format!("  launch: {text}")));
    lines.extend(noted(learned).filter(|_| !is_over).map(|text| format!("  noted: {text}")));
    lines
}

/// Description of the `epilog-start` with which the service holds a job's resources.
const HOLD: &str = "job-exec-rs";
/// Of a job whose end is not safe yet.
const ENDED: &str = "has ended, and waits for a checkpoint that holds its end";

/// What the job waits for before and after the service has it.
fn managed(learned: &Learned) -> String {
    let listed = &learned.listed;
    let all = listed["dependencies"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let dependencies = plain(&all.collect::<Vec<_>>().join(", "));
    let [prologs, epilogs] = ["prolog", "epilog"].map(|what| open_scripts(learned, what));
    match listed["state"].as_str().unwrap_or_default() {
        "DEPEND" if !dependencies.is_empty() => {
            format!("waits for its dependencies: {dependencies}")
        }
        "DEPEND" | "PRIORITY" => "waits for a priority".to_string(),
        "SCHED" if listed["priority"] == 0 => "is held (see flux-job-urgency)".to_string(),
        "SCHED" => "waits for resources: the scheduler decides".to_string(),
        "RUN" if !prologs.is_empty() => format!("waits for the job manager's prolog: {prologs}"),
        "RUN" if learned.sees_all => "has resources, and the service does not have it".to_string(),
        "RUN" => "has resources".to_string(),
        "CLEANUP" if epilogs == HOLD => ENDED.to_string(),
        "CLEANUP" if !epilogs.is_empty() => {
            format!("has ended, and waits for the job manager's epilog: {epilogs}")
        }
        "CLEANUP" => "has ended, and its resources are being freed".to_string(),
        "INACTIVE" => {
            let exception = listed["exception"]["type"].as_str();
            let exception = exception.map(|kind| format!(" (exception {})", plain(kind)));
            let code = listed["returncode"].as_i64().map(|code| format!(", return code {code}"));
            let result = plain(listed["result"].as_str().unwrap_or_default());
            format!(
                "is over: {result}{}{}",
                code.unwrap_or_default(),
                exception.unwrap_or_default()
            )
        }
        other => format!("is new ({})", plain(other)),
    }
}

/// Scripts of the job manager that have begun and not ended.
fn open_scripts(learned: &Learned, what: &str) -> String {
    let mut open: Vec<String> = Vec::new();
    for event in &learned.events {
        let name = plain(event["context"]["description"].as_str().unwrap_or_default());
        match event["name"].as_str().and_then(|event| event.strip_prefix(what)) {
            Some("-start") => open.push(name),
            Some("-finish") => open.retain(|other| *other != name),
            _ => (),
        }
    }
    open.join(", ")
}

/// How far the leader is.
fn led(job: &Value) -> String {
    let (barrier, total, state) = (&job["barrier"], &job["total_shells"], &job["state"]);
    let waits = |what: &str| !job[what].is_null();
    let is_open = ["opening", "launching", "running", "exited"].iter().any(|open| state == *open);
    match state.as_str().unwrap_or_default() {
        _ if is_open && waits("failure") => {
            format!("is being ended ({})", plain(job["failure"]["type"].as_str().unwrap_or("?")))
        }
        "opening" => "waits for the KVS to open its namespace".to_string(),
        "launching" if waits("prolog_ranks") => "waits for prologs".to_string(),
        "launching" => {
            let missing = job["starting"]["count"].as_u64().unwrap_or_default();
            format!("starts: all but {missing} of {total} shells run")
        }
        "running" if waits("barrier") => {
            let (number, entered) = (&barrier["number"], &barrier["entered"]);
            format!("waits in start barrier {number}: {entered} of {total} shells")
        }
        "running" => format!("runs, {} of {total} shells", job["active_shells"]),
        "exited" if waits("epilog_ranks") => "has ended, and waits for epilogs".to_string(),
        "exited" if waits("leftover") => "has ended, but for what is left of shells".to_string(),
        "exited" => "has ended, and is about to be released".to_string(),
        "moving" => "has ended, and its output is being kept".to_string(),
        "ended" => ENDED.to_string(),
        other => format!("has a leader that does nothing more ({})", plain(other)),
    }
}

/// Whom the job waits for, what was done, and what comes next.
fn of_leader(learned: &Learned, job: &Value, settings: &Value) -> Vec<String> {
    let all = awaited(job);
    let named = named(&all);
    let mut lines: Vec<String> = frozen(learned).into_iter().collect();
    for Awaited { what, ranks, count } in &all {
        let more = count - ranks.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!("  awaited: {what}, on {}{more}", place(learned, ranks)));
    }
    // The others were asked whether the job is frozen.
    let shown = |(rank, told): &(&u32, &Result<_, _>)| told.is_err() || named.contains(**rank);
    for (rank, told) in learned.ranks.iter().filter(shown) {
        of_rank(&place(learned, &BrokerRank(*rank).into()), told, &mut lines);
    }
    if !learned.sees_all && !all.is_empty() {
        lines.push("  unknown: its processes there: the instance owner can see them".to_string());
    }
    for (rank, processes) in job["left_over"].as_object().into_iter().flatten() {
        let place = rank.parse().map_or(rank.clone(), |rank: Idset| place(learned, &rank));
        let processes = plain(processes.as_str().unwrap_or_default());
        lines.push(format!("  {place}: signals have not ended {processes}"));
    }
    lines.extend(done(job, settings).map(|text| format!("  done: {text}")));
    let steps = next(job, settings);
    let steps: Vec<String> =
        steps.iter().map(|(left, text)| format!("in {} {text}", span(*left))).collect();
    if !steps.is_empty() {
        lines.push(format!("  next: {}", steps.join("; ")));
    }
    if !job["away_ranks"].is_null() {
        let patience = settings["config"]["peer_timeout"].as_f64().map(span);
        let patience = patience.unwrap_or_else(|| "exec.peer-timeout".to_string());
        lines.push(format!("  next: who is away for {patience} is given up, and the job fails"));
    }
    lines
}

/// Where the job is frozen, if it is.
fn frozen(learned: &Learned) -> Option<String> {
    let is_frozen = |told: &Value| {
        told["units"].as_array().into_iter().flatten().any(|unit| unit["frozen"] == true)
    };
    let told = learned.ranks.iter().filter(|(_, told)| told.as_ref().is_ok_and(is_frozen));
    let frozen: Idset = told.map(|(rank, _)| *rank).collect();
    let (place, job) = (place(learned, &frozen), &learned.job);
    let until = format!("until job-exec-rs thaw {job} its processes there handle no signals");
    (!frozen.is_empty()).then(|| format!("  frozen: on {place}: {until}"))
}

/// What a rank that is waited for has of the job.
fn of_rank(place: &str, told: &Result<Value, String>, lines: &mut Vec<String>) {
    let told = match told {
        Ok(told) => told,
        Err(why) => return lines.push(format!("  {place} does not answer: {}", plain(why))),
    };
    if let Some(what) = told["waits-for"].as_str() {
        lines.push(format!("  {place}: systemd does not answer: {}", plain(what)));
    }
    let units = told["units"].as_array().map_or(&[][..], Vec::as_slice);
    for unit in units {
        let text = |key: &str| plain(unit[key].as_str().unwrap_or_default());
        let script = &unit["script"];
        let how = script["state"].as_str().map(|how| format!(", {how}")).unwrap_or_default();
        let left = script["time_left"].as_f64().map(|left| format!(", time left {}", span(left)));
        let named = unit["processes"].as_array().map_or(&[][..], Vec::as_slice);
        let count = unit["count"].as_u64().unwrap_or_default() as usize;
        let plural = if count == 1 { "" } else { "es" };
        let (stage, left) = (text("stage"), left.unwrap_or_default());
        let unit = text("unit");
        lines.push(format!("  {place}: {stage}{how}{left}: {count} process{plural} in {unit}"));
        for process in named {
            let name: String =
                process[3].as_str().unwrap_or_default().chars().take(NAME_MAX).collect();
            let (pid, state) = (&process[0], process[1].as_str().unwrap_or("?"));
            let age = span(process[2].as_f64().unwrap_or_default());
            lines.push(format!("    {pid} {} {age} {}", plain(state), plain(&name)));
        }
        if count > named.len() {
            lines.push(format!("    and {} more", count - named.len()));
        }
    }
    if units.is_empty() {
        lines.push(format!("  {place}: nothing runs there for it"));
    }
}

/// The signals of the kill escalation so far.
fn done(job: &Value, settings: &Value) -> Option<String> {
    let is_armed = |timer: &&str| !job["timers"][*timer].is_null();
    let mut steps = Vec::new();
    if ["kill-tasks", "kill-shells", "last-kill"].iter().any(is_armed) {
        steps.push(format!("{} to shells", signal(settings, "term-signal")));
    }
    for (key, signal, whom) in [
        ("kill_count", signal(settings, "kill-signal"), "tasks"),
        ("kill_shell_count", signal_of_shells(job, settings), "shells"),
    ] {
        match job[key].as_u64().unwrap_or_default() {
            0 => (),
            1 => steps.push(format!("{signal} to {whom}")),
            times => steps.push(format!("{times} times {signal} to {whom}")),
        }
    }
    if is_armed(&"last-kill") {
        steps.push("what is left was killed by the kernel".to_string());
    }
    (!steps.is_empty()).then(|| steps.join(", "))
}

/// A user does not see which it is.
fn signal<'a>(settings: &'a Value, key: &'a str) -> &'a str {
    settings[key].as_str().unwrap_or(key)
}

fn signal_of_shells<'a>(job: &Value, settings: &'a Value) -> &'a str {
    if job["multiuser"] == 1 {
        "SIGUSR1, for which the IMP kills,"
    } else {
        signal(settings, "kill-signal")
    }
}

/// What timers of the leader do (`rfc/0003-machines.md`, 3.4), but for those that take a moment.
const TIMERS: [(&str, &str); 12] = [
    ("barrier", "who has not entered the barrier is drained, and the job fails"),
    ("commit", "a commit to its exec eventlog that has failed is tried again"),
    ("ended", "rank 0 is asked whether the job is still known"),
    ("expiration", "its time limit is over"),
    ("last-kill", "what is left is given up: its nodes are drained, and the job ends"),
    ("leftover", "what is left is killed by the kernel"),
    ("max-kill", "what is left is killed by the kernel"),
    ("open", "its namespace is asked for again"),
    ("retry", "who is away is asked again"),
    ("shell-exit", "the job fails if a shell still runs"),
    ("tell", "the job manager is told of degraded nodes again"),
    ("test", "the mocked job ends"),
];

/// In how many seconds the leader does what, the next first.
fn next(job: &Value, settings: &Value) -> Vec<(f64, String)> {
    let due = |timer: &str| job["timers"][timer].as_f64();
    let known = TIMERS.iter().filter_map(|(timer, text)| Some((due(timer)?, text.to_string())));
    let mut next: Vec<(f64, String)> = known.collect();
    let tasks = || format!("{} to tasks", signal(settings, "kill-signal"));
    next.extend(due("kill-tasks").map(|left| (left, tasks())));
    if let Some(left) = due("kill-shells").filter(|_| due("last-kill").is_none()) {
        let is_spared = !job["away_ranks"].is_null() && job["kill_shell_count"] == 0;
        let spared = if is_spared { ", unless a rank is away" } else { "" };
        next.push((left, format!("{} to shells{spared}", signal_of_shells(job, settings))));
        next.extend(last_steps(left, job, settings).into_iter().flatten());
    }
    next.sort_by(|a, b| a.0.total_cmp(&b.0));
    next
}

/// How the kill escalation goes on to its end, if nothing holds it up (`rfc/0003-machines.md`, 3.5). Only
/// the owner sees how it is configured.
fn last_steps(next: f64, job: &Value, settings: &Value) -> Option<[(f64, String); 2]> {
    let (mut at, mut pause) = (next, job["kill_timeout"].as_f64()?);
    if !job["timers"]["max-kill"].is_null() {
        return None;
    }
    for _ in job["kill_shell_count"].as_u64()? + 1..settings["max-kill-count"].as_u64()? {
        pause = (pause * 2.0).min(PAUSE_MAX);
        at += pause;
    }
    let kills = settings["config"]["cgroup_kill"] == true && settings["kill-signal"] == "SIGKILL";
    let later = if kills { settings["kill-timeout"].as_f64()? } else { 0.0 };
    let last = if kills { "the kernel kills what is left" } else { "the last signal" };
    let end = "nodes with what is left are drained, and the job ends";
    Some([(at, last.to_string()), (at + later, end.to_string())])
}

/// When the last rank had reached each stage of the launch, and where: of a leader that has launched the job,
/// or of an exec eventlog that says it.
fn launched(learned: &Learned) -> Option<String> {
    let logged = learned.exec.iter().rfind(|event| event["name"] == "debug.timeline");
    let live = match &learned.service {
        Service::Led { job, .. } if !job["launch"].is_null() => Some(&job["launch"]),
        _ => None,
    };
    let stages = live.or(logged.map(|event| &event["context"]))?;
    let names = [
        ("prepared", "prologs"),
        ("running", "shells"),
        ("barrier-1", "start barrier 1"),
        ("barrier-2", "start barrier 2"),
    ];
    let shown = names.iter().filter_map(|(key, name)| {
        let (seconds, host) = (stages[*key][0].as_f64()?, stages[*key][1].as_str()?);
        Some(format!("{name} {seconds:.2}s (last: {})", plain(host)))
    });
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// The last that the service itself has written into the job's exec eventlog.
fn noted(learned: &Learned) -> Option<String> {
    let keys = ["silent", "barrier", "missing"];
    let is_ours = |event: &&Value| keys.iter().any(|key| !event["context"][key].is_null());
    let event = learned.exec.iter().rev().find(is_ours)?;
    let ago = span(learned.now - event["timestamp"].as_f64()?);
    Some(format!("{ago} ago: {}", plain(event["context"]["data"].as_str()?.trim_end())))
}

/// `n[3-4] (ranks 3-4)`.
fn place(learned: &Learned, ranks: &Idset) -> String {
    let plural = if ranks.len() == 1 { "" } else { "s" };
    let host = |rank| learned.hosts.as_ref()?.get(rank as usize);
    match ranks.iter().map(host).collect::<Option<Vec<&str>>>() {
        Some(hosts) => format!("{} (rank{plural} {ranks})", Hostlist::from_iter(hosts)),
        None => format!("rank{plural} {ranks}"),
    }
}

/// In whole seconds.
fn span(seconds: f64) -> String {
    format_duration(Duration::from_secs(seconds.max(0.0).round() as u64)).to_string()
}

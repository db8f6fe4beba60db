//! Values of each input, for one rank of a world.

use std::sync::Arc;

use serde_json::json;

use super::super::{Credential, JOB, OWNER, Topic, World, record, recovery, start, start_event};
use super::worlds::ASKED;
use crate::config::Config;
use crate::machine::{
    Creation, Event, Fault, Input, KvsResult, Listing, Opened, RequestId, Role, StreamId,
};
use crate::port::supervisor::{Method, StartFailure, SupervisorEvent, UnitEvent, UnitSpec};
use crate::proto::peer::{
    CoveredRequest, KnownRequest, LeadNote, LeadReply, Mode, Order, OrderRequest, Question,
    RankReport, Report, Reports, StreamEnd, StreamName, VERSION, Version,
};
use crate::proto::{
    BarrierEntry, Bequest, BrokerRank, Cleaning, DegradedNode, DegradedNodes, EndReason, Exception,
    ExecEvent, Idset, JobDigest, JobEventlog, JobException, Mute, NodeChange, PerilogRelease,
    Place, ReleasedRanks, ResourceNews, Response, ScriptFailure, ScriptStop, Scripts, Stage,
    StartRequest, Stream, UnitName, Usage, WaitStatus, WallTime,
};

/// Streams of one rank of these worlds that can be open.
const STREAMS: std::ops::Range<u64> = 1..7;

/// The request that an input brings. Its sender is no rank of the world.
pub(super) const SENT: RequestId = RequestId::Remote(1);

const OWNERS: Credential = Credential { userid: OWNER, owner: true, local: true };
const STRANGERS: Credential = Credential { userid: 99, owner: false, local: true };

/// Values of an input. Each waits so many seconds first.
pub(super) fn values(input: Input, world: &World, rank: usize) -> Vec<(f64, Event)> {
    let waits = [0.0, 0.05, 0.15, 1.5, 3.0, 40.0, 400.0];
    if input == Input::Timeout {
        return waits.into_iter().map(|wait| (wait, Event::Timeout)).collect();
    }
    events(input, world, rank).into_iter().map(|event| (0.0, event)).collect()
}

fn events(input: Input, world: &World, rank: usize) -> Vec<Event> {
    let request = SENT;
    match input {
        Input::Appended
        | Input::Created
        | Input::Linked
        | Input::Moved
        | Input::Opened
        | Input::Recommitted
        | Input::Released => {
            kvs(input).into_iter().map(|result| Event::Kvs { id: JOB, result }).collect()
        }
        Input::CheckpointAsked => [OWNERS, STRANGERS]
            .map(|credential| Event::CheckpointAsked { request, credential, id: JOB })
            .to_vec(),
        Input::CheckpointBegun => vec![Event::CheckpointBegun],
        // It comes with a timeout.
        Input::CheckpointDue => Vec::new(),
        Input::Timeout => vec![Event::Timeout],
        Input::Checkpointed => [Ok(()), Err(fault())].map(Event::Checkpointed).to_vec(),
        Input::Cleaning => cleaning(),
        Input::Config => vec![Event::Config(Box::default()), Event::Config(Box::new(config()))],
        Input::Covered => covered(),
        Input::CriticalRanks => critical_ranks(request),
        Input::Disconnected => {
            let held = world.requests.keys().filter(|(at, _)| *at == rank);
            let held = held.map(|(_, number)| RequestId::Remote(*number));
            held.chain([request, ASKED]).map(|request| Event::Disconnected { request }).collect()
        }
        Input::Exception => exceptions(),
        Input::Expiration => expirations(request),
        Input::Degraded => degraded(request),
        Input::Held => {
            [Ok(()), Err(fault())].map(|result| Event::Held { id: JOB, result }).to_vec()
        }
        Input::ReleaseKept => vec![Event::ReleaseKept { id: JOB }],
        Input::KeepCommits => keep_commits(request),
        Input::KvsChanged => vec![Event::KvsChanged],
        Input::Drained => vec![Event::Drained { id: JOB, ranks: Idset::from_range(0..3) }],
        Input::KillAnswered => vec![Event::KillAnswered { id: JOB }],
        Input::Known => known(world),
        Input::KnownAnswered => known_answered(),
        Input::Lead => [(false, false), (true, false), (true, true)]
            .map(|(reattach, has_failed)| lead(request, reattach, has_failed))
            .to_vec(),
        Input::NotCleaning => vec![Event::NotCleaning { id: JOB }],
        Input::Order => orders(),
        Input::Override => overrides(request),
        Input::PerilogRelease => releases(request),
        Input::Replied => replies(),
        Input::Reported => reported(),
        Input::RunningAsked => vec![Event::RunningAsked(listing())],
        Input::ShellBarrier => barriers(request, rank),
        Input::ShellRuns => [(OWNERS, None), (OWNERS, Some(BrokerRank(1))), (STRANGERS, None)]
            .map(|(credential, rank)| Event::ShellRuns { request, credential, id: JOB, rank })
            .to_vec(),
        Input::Shells => shells(request),
        Input::Start => starts(request),
        Input::ParentDegraded => parent_degraded(),
        Input::Resources => resources(),
        Input::Told => told(),
        of_unit => {
            let units = [Stage::Shell, Stage::Prolog, Stage::Epilog];
            let units = units.map(|stage| world.unit_of_stage(rank, stage));
            let all = units.iter().flat_map(unit_events).map(Event::Supervisor);
            all.filter(|event| event.input() == of_unit).collect()
        }
    }
}

fn expirations(request: RequestId) -> Vec<Event> {
    let times = [f64::NAN, -1.0, 0.0, 1.0, 2e9].map(WallTime);
    times.map(|expiration| Event::Expiration { request, id: JOB, expiration }).to_vec()
}

fn parent_degraded() -> Vec<Event> {
    vec![Event::ParentDegraded { at: WallTime(1e9), nodes: vec![(ranks("1"), "hot".to_string())] }]
}

fn listing() -> Listing {
    Listing { run: vec![JOB], cleanup: Vec::new() }
}

fn ranks(text: &str) -> Idset {
    text.parse().expect("ranks")
}

fn resources() -> Vec<Event> {
    let at = WallTime(2e9);
    let drain = NodeChange { at, ranks: ranks("0-7"), drained: Some("hot".to_string()) };
    let undrain = NodeChange { at, ranks: ranks("1"), drained: None };
    let news = |changes, is_up_to_date| Event::Resources(ResourceNews { changes, is_up_to_date });
    vec![news(vec![drain, undrain], false), news(Vec::new(), true)]
}

fn told() -> Vec<Event> {
    let nodes = Box::new(DegradedNodes {
        ranks: ranks("1"),
        shell_ranks: ranks("1"),
        nodelist: "n1".to_string(),
        reasons: vec!["hot".to_string()],
    });
    let of = |asker| {
        let told = |result| Event::Told { asker, id: JOB, nodes: nodes.clone(), result };
        [Ok(true), Ok(false), Err(fault())].map(told)
    };
    [of(Role::Coordinator), of(Role::Leader)].concat()
}

fn releases(request: RequestId) -> Vec<Event> {
    let all = PerilogRelease { id: JOB, ranks: None, drain: true, kill: true };
    let some = PerilogRelease { ranks: Some(Idset::from_range(2..9)), drain: false, ..all.clone() };
    [all, some].map(|release| Event::PerilogRelease { request, release }).to_vec()
}

fn degraded(request: RequestId) -> Vec<Event> {
    let of = |credential, reason: &str| {
        let degraded = DegradedNode { id: JOB, reason: reason.to_string() };
        Event::Degraded { request, credential, degraded }
    };
    vec![of(OWNERS, "no scratch"), of(OWNERS, "\n"), of(STRANGERS, "no scratch")]
}

fn overrides(request: RequestId) -> Vec<Event> {
    let (credential, id, status) = (OWNERS, JOB, WaitStatus(0));
    ["start", "finish"]
        .map(|event| Event::Override { request, credential, id, event: event.to_string(), status })
        .to_vec()
}

fn critical_ranks(request: RequestId) -> Vec<Event> {
    let of = |ranks: &str| {
        let (credential, ranks) = (OWNERS, ranks.to_string());
        Event::CriticalRanks { request, credential, id: JOB, ranks }
    };
    ["0-1", "9", "no ranks"].map(of).to_vec()
}

fn fault() -> Fault {
    Fault::new(libc::EIO, "broken")
}

fn config() -> Config {
    Config { starts_in_flight: 1, peer_timeout: 1.0, ..Config::default() }
}

fn kvs(input: Input) -> Vec<KvsResult> {
    let event = |name| ExecEvent::bare(WallTime(1e9), name);
    let found = Opened { events: vec![event("init"), event("starting")], moved: false, leaders: 3 };
    let moved = Opened { moved: true, ..Opened::default() };
    let all = vec![
        KvsResult::Appended(Ok(())),
        KvsResult::Appended(Err(fault())),
        KvsResult::Created(Ok(Creation::Existed)),
        KvsResult::Created(Ok(Creation::Made)),
        KvsResult::Created(Err(fault())),
        KvsResult::Linked(Ok(())),
        KvsResult::Linked(Err(fault())),
        KvsResult::Moved(Ok(())),
        KvsResult::Moved(Err(fault())),
        KvsResult::Opened(Ok(found)),
        KvsResult::Opened(Ok(moved)),
        KvsResult::Opened(Err(fault())),
        KvsResult::Recommitted { client: "0011223344556677".to_string(), result: Ok(()) },
        KvsResult::Recommitted { client: String::new(), result: Err(fault()) },
        KvsResult::Released(Ok(Idset::from_range(2..3))),
        KvsResult::Released(Ok(Idset::from_range(0..9))),
        KvsResult::Released(Err(fault())),
    ];
    let is_it =
        |result: &KvsResult| Event::Kvs { id: JOB, result: result.clone() }.input() == input;
    all.into_iter().filter(is_it).collect()
}

/// The job's digest, and another one.
fn digests() -> [JobDigest; 2] {
    let payload = start("1-2", false).to_string();
    let start = StartRequest::read(payload.as_bytes()).expect("a start request");
    [JobDigest::new(JOB, start.userid, &start.r), "other".into()]
}

fn covered() -> Vec<Event> {
    let mut events = Vec::new();
    for digest in digests() {
        for (mark, ended) in [(0, false), ((1 << 32) + 1, false), (0, true)] {
            let (version, digest) = (Version, digest.clone());
            let covered = CoveredRequest { version, id: JOB, digest, mark, ended };
            events.push(Event::Covered(covered));
        }
    }
    events
}

fn exceptions() -> Vec<Event> {
    let exception = |severity, wait_status| {
        let kind = "cancel".to_string();
        Event::Exception(JobException { id: JOB, kind, severity, wait_status })
    };
    vec![exception(0, None), exception(0, Some(WaitStatus(9))), exception(2, None)]
}

fn questions() -> Vec<Question> {
    let of_leader = [0, 1, 9].map(|generation| Question::Leader { generation });
    let request = Question::Request { from: BrokerRank(0), stream: StreamName::default() };
    of_leader.into_iter().chain([Question::Manager, Question::Parent, request]).collect()
}

fn known(world: &World) -> Vec<Event> {
    let request = RequestId::Remote(1_000_000 + world.questions.len() as u64);
    let mut events = Vec::new();
    for digest in digests() {
        for question in questions() {
            let (version, digest) = (Version, digest.clone());
            let asked = KnownRequest { version, id: JOB, digest, question };
            events.push(Event::Known { request, asked });
        }
    }
    events
}

fn of_each_job(question: Question) -> Vec<(Question, JobDigest)> {
    digests().into_iter().map(|digest| (question, digest)).collect()
}

fn known_answered() -> Vec<Event> {
    let mut events = Vec::new();
    for asker in [Role::Agent, Role::Leader] {
        for (question, digest) in questions().into_iter().flat_map(of_each_job) {
            for result in [Ok(true), Ok(false), Err(fault())] {
                let (id, to, digest) = (JOB, BrokerRank(0), digest.clone());
                events.push(Event::KnownAnswered { id, asker, to, digest, question, result });
            }
        }
    }
    events
}

/// A coordinator asks this rank to lead.
fn lead(request: RequestId, reattach: bool, has_failed: bool) -> Event {
    let exception = json!({"id": JOB, "type": "cancel", "severity": 0});
    let mut payload = json!({"version": VERSION, "stream": 7, "start": {
        "id": JOB, "userid": OWNER, "reattach": reattach, "R": start("1-2", true)["R"],
        "jobspec": {"read": {}},
    }});
    if has_failed {
        payload["exception"] = exception;
        payload["lost"] = json!("2");
    }
    Topic::Lead.read(request, OWNERS, payload.to_string().as_bytes()).expect("a lead request")
}

fn orders() -> Vec<Event> {
    let of_each_job = |(generation, order): (u64, Order)| {
        digests().map(|digest| {
            let (version, ranks, order) = (Version, Idset::from_range(0..9), order.clone());
            Event::Order(OrderRequest { version, id: JOB, digest, generation, ranks, order })
        })
    };
    let stream = Stream::Stderr;
    [
        (0, Order::Forget),
        (0, Order::Conclude { reason: None }),
        (0, Order::Launch),
        (0, Order::KillScripts),
        (1, Order::Signal { signal: 9, all: true, reason: None }),
        (
            0,
            Order::Signal {
                signal: 15,
                all: false,
                reason: Some(EndReason::new("cancel", "", None)),
            },
        ),
        (0, Order::Barrier { count: 3, failed: false }),
        (0, Order::Barrier { count: 0, failed: true }),
        (0, Order::Acknowledge { stream, offset: u64::MAX, checkpointed: 0 }),
    ]
    .map(of_each_job)
    .concat()
}

/// Every way in which a stream can end.
fn ends() -> Vec<StreamEnd> {
    let text = || "x".to_string();
    vec![
        StreamEnd::AskedAgain,
        StreamEnd::BrokerGone,
        StreamEnd::Failed { errnum: libc::EIO, message: text() },
        StreamEnd::Forgotten,
        StreamEnd::Incompatible { reason: text() },
        StreamEnd::NotLoaded { reason: text() },
        StreamEnd::ParentGone,
        StreamEnd::superseded("x"),
        StreamEnd::Unloaded,
    ]
}

fn replies() -> Vec<Event> {
    let some = ReleasedRanks::These(Idset::from_range(2..3));
    let responses = [
        Response::Exception(Exception::fatal("broken")),
        Response::Finish { status: WaitStatus(9) },
        Response::Reattached {},
        Response::Release { ranks: some, is_final: false },
        Response::Release { ranks: ReleasedRanks::All, is_final: true },
        Response::Start {},
    ];
    let notes = [LeadNote::Changed { mark: 9 }, LeadNote::Progress { status: WaitStatus(9) }];
    let replies: Vec<Result<LeadReply, StreamEnd>> = responses
        .map(LeadReply::Response)
        .into_iter()
        .chain(notes.map(LeadReply::Note))
        .map(Ok)
        .chain(ends().into_iter().map(Err))
        .collect();
    let of_stream = |stream: u64| {
        let stream = StreamId(stream);
        replies.clone().into_iter().map(move |result| Event::Replied { stream, result })
    };
    STREAMS.flat_map(of_stream).collect()
}

fn reports() -> Vec<Report> {
    let (text, stream) = (|| "x".to_string(), Stream::Stdout);
    let mut reports = vec![
        Report::Barrier { entered: 7, found: 9, passed: 7 },
        Report::CriticalRanks { ranks: Idset::new() },
        Report::EndReason(EndReason::new("cancel", "", Some(WaitStatus(9)))),
        Report::Epilog,
        Report::Exited { status: WaitStatus(9) },
        Report::Failed { errnum: libc::EACCES, message: text() },
        Report::Gone,
        Report::Left,
        Report::LeftOver { processes: text() },
        Report::Lost { message: text() },
        Report::NeverStarted,
        Report::Output { stream, offset: 7, data: vec![0xff] },
        Report::OutputLost { message: text() },
        Report::OutputOverflow { allocated: 9 },
        Report::OutputTruncated { stream, kept: 7, dropped: u64::MAX },
        Report::Orphaned,
        Report::Pending,
        Report::Prepared,
        Report::ScriptFailed {
            stage: Stage::Prolog,
            failure: ScriptFailure::Stuck(ScriptStop::Canceled),
        },
        Report::ScriptFailed {
            stage: Stage::Epilog,
            failure: ScriptFailure::Exited(WaitStatus(256)),
        },
        Report::ScriptFailed { stage: Stage::Shell, failure: ScriptFailure::NotRun(text()) },
        Report::RecordLost { output: true },
        Report::Running,
        Report::Silent { who: Mute::Disk, since: 7, message: text() },
        Report::Unkillable,
        Report::Usage(usage()),
    ];
    reports.extend(ends().into_iter().map(|end| Report::Unreachable { end }));
    reports
}

fn reported() -> Vec<Event> {
    let mut results: Vec<Result<Reports, StreamEnd>> = ends().into_iter().map(Err).collect();
    for report in reports() {
        let ranks = Idset::from_range(0..9);
        results.push(Ok(Reports { reports: vec![RankReport { ranks, report }] }));
    }
    let of_stream = |stream: u64| {
        let stream = StreamId(stream);
        results.clone().into_iter().map(move |result| Event::Reported { stream, result })
    };
    STREAMS.flat_map(of_stream).collect()
}

fn barriers(request: RequestId, rank: usize) -> Vec<Event> {
    let here = BrokerRank(rank as u32);
    [
        (OWNERS, here, None),
        (OWNERS, here, Some(BarrierEntry::of_shell(2))),
        (OWNERS, BrokerRank(9), None),
        (STRANGERS, here, None),
    ]
    .map(|(credential, rank, entry)| Event::ShellBarrier {
        request,
        credential,
        id: JOB,
        rank,
        entry,
    })
    .to_vec()
}

fn shells(request: RequestId) -> Vec<Event> {
    let mut events = Vec::new();
    for digest in digests() {
        for (generation, mode) in [
            (0, Mode::Start),
            (0, Mode::Adopt),
            (0, Mode::Conclude),
            (0, Mode::Prepare),
            (9, Mode::Start),
        ] {
            let shells = recovery::shells(generation, digest.as_str(), mode);
            let mut with_scripts = shells.clone();
            with_scripts.command.scripts = Some(scripts());
            for shells in [shells, with_scripts] {
                events.push(Event::Shells { request, shells: Box::new(shells) });
            }
        }
    }
    events
}

fn scripts() -> Scripts {
    Scripts {
        ranks: Idset::from_range(0..9),
        prolog: Some(Place::EachRank),
        epilog: Some(Place::EachRank),
        epilogs_together: false,
    }
}

fn starts(request: RequestId) -> Vec<Event> {
    let bad = [json!({ "id": JOB }), json!(null)].map(|payload| start_event(request, &payload));
    let again = [false, true].map(|reattach| start_event(request, &start("1-2", reattach)));
    bad.into_iter().chain(again).collect()
}

/// With and without a hold, before and after its end.
fn cleaning() -> Vec<Event> {
    let log = JobEventlog {
        userid: Some(OWNER),
        has_resources: true,
        is_started: true,
        exception: Some("cancel".to_string()),
        ..JobEventlog::default()
    };
    let held = JobEventlog { is_held: true, ..log.clone() };
    let over = JobEventlog { is_released: true, ..held.clone() };
    let r = start("1-2", true)["R"].to_string();
    let read = |log| Cleaning::read(JOB, log, "{}", &r).expect("readable").expect("to be led");
    [log, held, over].map(|log| Event::Cleaning(Box::new(read(log)))).to_vec()
}

fn unit_events(unit: &UnitName) -> Vec<SupervisorEvent> {
    let (text, stream) = (|| "x".to_string(), Stream::Stdout);
    vec![
        UnitEvent::Exited { status: WaitStatus(9) }.of(unit),
        UnitEvent::Failed(StartFailure { errnum: 5, message: text() }).of(unit),
        SupervisorEvent::Found(Box::new(record(&spec(unit.clone())))),
        UnitEvent::Gone.of(unit),
        UnitEvent::Kept { client: text(), is_written: true }.of(unit),
        UnitEvent::Kept { client: text(), is_written: false }.of(unit),
        UnitEvent::Left.of(unit),
        UnitEvent::LeftOver { processes: text() }.of(unit),
        UnitEvent::Lost { message: text() }.of(unit),
        UnitEvent::Marked { is_written: true }.of(unit),
        UnitEvent::Marked { is_written: false }.of(unit),
        UnitEvent::NeverStarted.of(unit),
        UnitEvent::Output { stream, offset: 0, data: b"x\n".to_vec() }.of(unit),
        UnitEvent::Output { stream, offset: u64::MAX, data: b"x\n".to_vec() }.of(unit),
        UnitEvent::OutputLost { message: text() }.of(unit),
        UnitEvent::OutputOverflow { allocated: 9 }.of(unit),
        UnitEvent::OutputTruncated { stream, kept: 7, dropped: 9 }.of(unit),
        SupervisorEvent::Ready { method: Method::Fork, notice: Some(text()) },
        SupervisorEvent::Ready { method: Method::Systemd, notice: None },
        SupervisorEvent::Silent { who: Mute::Disk, what: text() },
        SupervisorEvent::Answers { who: Mute::Disk },
        SupervisorEvent::DiskFails { message: text() },
        UnitEvent::Started { pid: 1 }.of(unit),
        UnitEvent::Stopping.of(unit),
        UnitEvent::Usage(usage()).of(unit),
        SupervisorEvent::Unreadable { unit: unit.clone(), message: text() },
        SupervisorEvent::Unusable { message: text() },
    ]
}

fn usage() -> Box<Usage> {
    let (memory, oom_kills) = (Some(u64::MAX), Some(u64::MAX));
    Box::new(Usage { memory, oom_kills, ..Usage::default() })
}

/// The intent of an earlier life.
fn spec(unit: UnitName) -> UnitSpec {
    UnitSpec {
        userid: OWNER,
        size: 2,
        argv: vec!["/bin/shell".to_string()],
        ..UnitSpec::bare(unit, digests()[0].clone())
    }
}

fn keep_commits(request: RequestId) -> Vec<Event> {
    let bequest = |client: &str| {
        let (client, commits) = (client.to_string(), Vec::new());
        Arc::new(Bequest { client, shell: false, again: false, commits })
    };
    let (good, bad) = (bequest("0011223344556677"), bequest("x"));
    let of = |credential, bequest: &Arc<Bequest>| {
        let bequest = Arc::clone(bequest);
        Event::KeepCommits { request, credential, id: JOB, bequest }
    };
    vec![of(OWNERS, &good), of(OWNERS, &bad), of(STRANGERS, &good)]
}

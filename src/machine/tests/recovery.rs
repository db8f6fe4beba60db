//! What a crash of rank 0, a late message or a leader that nobody heard must not undo.

use serde_json::{Value, json};

use super::{JOB, World, facts, moment, start, start_event};
use crate::config::Config;
use crate::machine::event::StreamId;
use crate::machine::mono_time::MonoTime;
use crate::machine::peer_request::known_answer;
use crate::machine::{
    Answer, Effect, Effects, Event, Fault, KvsOp, KvsResult, Listing, Node, Now, PeerRequest,
    RequestId, Role, StreamItem,
};
use crate::port::supervisor::{Method, StartFailure, SupervisorEvent, UnitCommand, UnitEvent};
use crate::proto::peer::{
    KnownRequest, LeadNote, LeadReply, LeadRequest, Mode, Order, OrderRequest, Question,
    ShellCommand, ShellsRequest, StreamEnd, StreamName, Version,
};
use crate::proto::{BrokerRank, ExecMethod, Idset, Response, UnitName, WaitStatus, WallTime};

/// A world whose shells outlive their brokers.
pub(super) fn lasting(size: usize) -> World {
    let mut world = World::new(size);
    for rank in 0..size {
        let ready = SupervisorEvent::Ready { method: Method::Systemd, notice: None };
        world.happen(rank, Event::Supervisor(ready));
    }
    world
}

/// One rank's node, and what it wants done for each event.
pub(super) struct Alone {
    pub(super) node: Node,
    effects: Effects,
    pub(super) now: f64,
}

impl Alone {
    pub(super) fn new(rank: u32) -> Self {
        Self::with(super::ready(Node::new(Config::default(), facts(rank))))
    }

    pub(super) fn with(node: Node) -> Self {
        Self { node, effects: Effects::default(), now: 0.0 }
    }

    pub(super) fn hear(&mut self, event: Event) -> Vec<Effect> {
        self.now += 0.001;
        let now = moment(self.now);
        self.node.handle(now, event, &mut self.effects);
        std::mem::take(&mut self.effects.list)
    }

    pub(super) fn shells(
        &mut self,
        number: u64,
        generation: u64,
        digest: &str,
        mode: Mode,
    ) -> Vec<Effect> {
        let request = RequestId::Remote(number);
        let shells = Box::new(shells(generation, digest, mode));
        self.hear(Event::Shells { request, shells })
    }

    pub(super) fn order(&mut self, digest: &str, generation: u64, order: Order) -> Vec<Effect> {
        let (ranks, digest) = (Idset::from_range(1..2), digest.into());
        let order = OrderRequest { version: Version, id: JOB, digest, generation, ranks, order };
        self.hear(Event::Order(order))
    }

    pub(super) fn unit(&mut self, event: UnitEvent) -> Vec<Effect> {
        let unit = UnitName::new(false, BrokerRank(1), JOB, facts(1).instance);
        self.hear(Event::Supervisor(event.of(&unit)))
    }
}

pub(super) fn shells(generation: u64, digest: &str, mode: Mode) -> ShellsRequest {
    ShellsRequest {
        version: Version,
        stream: StreamName::default(),
        id: JOB,
        parent: BrokerRank(0),
        leader: BrokerRank(0),
        issued: WallTime(1e9),
        generation,
        ranks: Idset::from_range(1..2),
        arity: 2,
        mode,
        command: ShellCommand {
            userid: 500,
            size: 2,
            multiuser: false,
            digest: digest.into(),
            method: ExecMethod::Auto,
            argv: vec!["/bin/shell".to_string()],
            environment: std::collections::BTreeMap::new(),
            properties: std::collections::BTreeMap::new(),
            resources: None,
            allocated: None,
            scripts: None,
            stop_timeout: None,
        },
        output: Vec::new(),
    }
}

pub(super) const STARTED: UnitEvent = UnitEvent::Started { pid: 9 };

fn count(effects: &[Effect], wanted: fn(&UnitCommand) -> bool) -> usize {
    effects.iter().filter(|e| matches!(e, Effect::Unit(_, command) if wanted(command))).count()
}

pub(super) fn launches(effects: &[Effect]) -> usize {
    count(effects, |command| matches!(command, UnitCommand::Launch(_)))
}

fn collects(effects: &[Effect]) -> usize {
    count(effects, |command| matches!(command, UnitCommand::Collect))
}

pub(super) fn ends_with(effects: &[Effect], wanted: &StreamEnd) -> bool {
    let is_wanted = |end: &StreamEnd| match (end, wanted) {
        (StreamEnd::Superseded { .. }, StreamEnd::Superseded { .. }) => true,
        (end, wanted) => end == wanted,
    };
    effects.iter().any(|effect| match effect {
        Effect::Answer { answer: Answer::End(end), .. } => is_wanted(end),
        _ => false,
    })
}

#[test]
fn nobody_forgets_an_ended_job_before_a_checkpoint_holds_its_end() {
    let mut world = lasting(2);
    world.checkpoint = Err(Fault::new(libc::ENOSPC, "No space left on device"));
    world.start("0-1", false);
    world.all_started(0..2);
    for rank in 0..2 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(20.0);
    assert!(world.released().last().is_some_and(|(_, is_final)| *is_final));
    assert_eq!(world.records(), 2, "the KVS may go back to before the job's end");
    assert!(world.checkpoints > 5, "and is tried to be made durable");
    world.checkpoint = Ok(());
    world.assert_ended();
}

#[test]
fn one_checkpoint_serves_all_that_has_changed_in_its_interval() {
    let mut world = lasting(4);
    world.start("0-3", false);
    world.all_started(0..4);
    for _ in 0..20 {
        for rank in 0..4 {
            world.output(rank, 0, "more\n");
        }
        world.pass(0.02);
    }
    assert!(world.checkpoints <= 1, "{} in 0.4 s", world.checkpoints);
    world.pass(3.0);
    let made = world.checkpoints;
    world.pass(100.0);
    let swept = world.checkpoints - made;
    assert!((9..=11).contains(&swept), "{swept} in 100 s: shells write, and tell nobody");
    for rank in 0..4 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(20.0);
    let made = world.checkpoints;
    world.pass(100.0);
    assert_eq!(world.checkpoints, made, "nothing can have changed since");
}

#[test]
fn without_shells_that_last_nothing_is_checkpointed() {
    let mut world = World::new(2);
    world.start("0-1", false);
    world.all_started(0..2);
    for rank in 0..2 {
        world.exited(rank, WaitStatus(0));
    }
    world.assert_ended();
    assert_eq!(world.checkpoints, 0);
}

#[test]
fn a_job_that_ended_unheard_is_told_again() {
    let mut world = World::new(2);
    world.start("1", false);
    world.started(1);
    world.pass(0.1);
    world.unload(0);
    world.exited(1, WaitStatus::exited(3));
    world.pass(1.0);
    assert_eq!(world.records(), 1, "nobody has heard of the end");
    world.load(0);
    world.start("1", true);
    assert_eq!(world.status(), Some(WaitStatus::exited(3)));
    assert_eq!(world.launched, [1]);
    world.assert_ended();
}

#[test]
fn an_exception_that_nobody_heard_is_said_again() {
    let mut world = World::new(2);
    world.start("1", false);
    let unit = world.unit_of(1);
    // The leader says it to a coordinator that is gone before it can tell the job manager.
    world.hold_replies = true;
    let message = "no such program".to_string();
    let failed = UnitEvent::Failed(StartFailure { errnum: libc::ENOENT, message }).of(&unit);
    world.happen(1, Event::Supervisor(failed));
    world.pass(1.0);
    world.unload(1);
    world.unload(0);
    world.hold_replies = false;
    world.load(0);
    world.load(1);
    world.start("1", false);
    world.pass(1.0);
    assert!(world.notes()[0].contains("no such program"), "{:?}", world.notes());
}

/// Nobody has heard of its start, and the coordinator's clock says that it cannot have run.
#[test]
fn a_job_that_has_ended_on_this_rank_is_not_begun_again() {
    let mut world = lasting(2);
    world.hold_replies = true;
    world.start("1", false);
    world.started(1);
    world.exited(1, WaitStatus(0));
    world.pass(1.0);
    assert_eq!(world.event_names().last(), Some(&"done"));
    world.unload(1);
    world.unload(0);
    world.hold_replies = false;
    world.load(0);
    world.load(1);
    world.start("1", false);
    world.pass(1.0);
    let names = world.event_names();
    assert_eq!(names.iter().filter(|name| **name == "init").count(), 1, "{names:?}");
    assert_eq!(world.status(), Some(WaitStatus(0)));
}

/// The coordinator lives on, and has heard nothing of the job's end. Its node says nothing either.
#[test]
fn a_job_that_was_asked_for_before_is_not_begun_again() {
    let mut world = lasting(2);
    world.hold_replies = true;
    world.start("1", false);
    world.started(1);
    world.exited(1, WaitStatus(0));
    world.pass(1.0);
    assert_eq!(world.event_names().last(), Some(&"done"));
    world.lose(1);
    world.disks[1].records.clear();
    world.hold_replies = false;
    world.load(1);
    world.pass(20.0);
    let names = world.event_names();
    assert_eq!(names.iter().filter(|name| **name == "init").count(), 1, "{names:?}");
    assert_eq!(world.status(), Some(WaitStatus(0)));
}

fn lead_replies(effects: &[Effect]) -> Vec<&LeadReply> {
    let reply = |effect| match effect {
        &Effect::Stream { item: StreamItem::Reply(ref reply), .. } => Some(reply),
        _ => None,
    };
    effects.iter().filter_map(reply).collect()
}

/// A request to lead, as another rank's coordinator sends it.
fn lead_event(number: u64, start: &Value) -> Event {
    let mut start = start.clone();
    start["jobspec"] = json!({"read": {}});
    let payload =
        json!({"version": crate::proto::peer::VERSION, "stream": 7, "start": start}).to_string();
    let owner = super::Credential { userid: super::OWNER, owner: true, local: true };
    let request = RequestId::Remote(number);
    super::Topic::Lead.read(request, owner, payload.as_bytes()).expect("an event")
}

/// [lead-again]
#[test]
fn a_new_coordinator_hears_the_status_of_ranks_that_were_released() {
    let mut world = World::running(4, "1-3");
    world.exited(3, WaitStatus::exited(7));
    world.pass(1.0);
    assert_eq!(world.released(), [("3".to_string(), false)]);
    let node = world.nodes[1].as_mut().expect("a node");
    let mut out = Effects::default();
    node.handle(moment(world.now), lead_event(5000, &start("1-3", true)), &mut out);
    let progress = LeadNote::Progress { status: WaitStatus::exited(7) };
    let replies = lead_replies(&out.list);
    assert!(replies.contains(&&LeadReply::Note(progress)), "{replies:?}");
}

/// [lead-again]
#[test]
fn a_leader_whose_id_is_issued_again_says_so_and_is_no_parent_any_more() {
    let mut node = Alone::new(1);
    node.hear(lead_event(1, &start("1", false)));
    let mut other = start("1", false);
    other["userid"] = json!(42);
    let effects = node.hear(lead_event(2, &other));
    let ended = effects.iter().any(|effect| match effect {
        Effect::Answer { to, answer: Answer::End(StreamEnd::Superseded { .. }) } => {
            *to == RequestId::Remote(1)
        }
        _ => false,
    });
    assert!(ended, "{effects:?}");
    let asked = |digest: &str| KnownRequest {
        version: Version,
        id: JOB,
        digest: digest.into(),
        question: Question::Parent,
    };
    let request = RequestId::Remote(3);
    let answer = node.hear(Event::Known { request, asked: asked("of the first job") });
    let no = Answer::Done(known_answer(Ok(false)).map(Some));
    assert_eq!(answer, [Effect::Answer { to: request, answer: no }]);
}

/// What is on the node is known only when the supervisor has looked.
#[test]
fn a_leader_waits_for_its_supervisor() {
    let (mut node, mut out) = (Node::new(Config::default(), facts(0)), Effects::default());
    let mut hear = |event| {
        node.handle(Now { mono: MonoTime(1.0), wall: WallTime(1e9) }, event, &mut out);
        std::mem::take(&mut out.list)
    };
    hear(Event::RunningAsked(Listing::default()));
    let asked = hear(super::start_event(RequestId::Remote(1), &start("0", false)));
    assert_eq!(asked, [], "it leads itself");
    let ready = SupervisorEvent::Ready { method: Method::Systemd, notice: None };
    let begun = hear(Event::Supervisor(ready));
    assert!(matches!(begun[..], [Effect::Kvs { .. }]), "{begun:?}");
}

#[test]
fn start_is_not_said_after_finish() {
    let mut node = Alone::new(0);
    let request = RequestId::Remote(1);
    let effects = node.hear(super::start_event(request, &start("1-2", false)));
    let [effect] = &effects[..] else { panic!("{effects:?}") };
    let (stream, _) = lead_of(effect).expect("a request to lead");
    let mut reply = |stream: StreamId, response| {
        let effects = node.hear(Event::Replied { stream, result: Ok(response) });
        effects
            .iter()
            .filter(|e| matches!(e, Effect::Stream { item: StreamItem::Response { .. }, .. }))
            .count()
    };
    assert_eq!(reply(stream, LeadReply::Response(Response::Finish { status: WaitStatus(256) })), 1);
    assert_eq!(
        reply(stream, LeadReply::Response(Response::Start {})),
        0,
        "a later leader found them started"
    );
}

#[test]
fn an_older_leader_is_refused() {
    let mut node = Alone::new(1);
    assert_eq!(launches(&node.shells(1, 1, "job", Mode::Start)), 1);
    node.unit(STARTED);
    assert!(
        ends_with(&node.shells(2, 3, "job", Mode::Adopt), &StreamEnd::superseded("")),
        "the first hears it"
    );
    let late = node.shells(3, 2, "job", Mode::Start);
    assert!(ends_with(&late, &StreamEnd::superseded("")) && late.len() == 1, "{late:?}");
    assert_eq!(node.order("job", 2, Order::Signal { signal: 9, all: true, reason: None }), []);
    assert_eq!(node.order("job", 3, Order::Signal { signal: 9, all: true, reason: None }).len(), 1);
}

#[test]
fn an_ended_job_is_not_started_by_a_late_request() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Adopt);
    node.order("job", 1, Order::Forget);
    let late = node.shells(2, 1, "job", Mode::Start);
    assert!(ends_with(&late, &StreamEnd::superseded("")) && launches(&late) == 0, "{late:?}");
    assert_eq!(launches(&node.shells(3, 1, "another job", Mode::Start)), 1, "with the same id");
}

#[test]
fn what_was_said_not_to_be_here_is_not_started_for_the_same_leader() {
    let mut node = Alone::new(1);
    node.shells(1, 2, "job", Mode::Adopt);
    assert_eq!(launches(&node.shells(2, 2, "job", Mode::Start)), 0, "it was asked before");
    assert_eq!(launches(&node.shells(3, 3, "job", Mode::Start)), 1, "by the next leader");
}

#[test]
fn a_job_that_nobody_knows_is_not_started_by_a_late_request() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    node.hear(Event::Disconnected { request: RequestId::Remote(1) });
    let stop = node.hear(answered(0, "job", Question::Manager, Ok(false)));
    assert_eq!(collects(&stop), 1);
    node.unit(UnitEvent::Gone);
    assert_eq!(launches(&node.shells(2, 1, "job", Mode::Start)), 0);
}

#[test]
fn a_leader_that_asks_again_is_told_of_its_first_request() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    assert!(ends_with(&node.shells(2, 1, "job", Mode::Adopt), &StreamEnd::AskedAgain));
}

/// [digest-differs] Simulator seed 39816: the shell was a guest's, and SIGKILL had ended its IMP.
#[test]
fn an_order_is_not_for_the_shell_of_another_job_with_the_same_id() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    node.hear(Event::Disconnected { request: RequestId::Remote(1) });
    let kill = || Order::Signal { signal: 9, all: true, reason: None };
    assert_eq!(node.order("another job", 1, kill()), [], "its request was lost");
    // Its next one was long on its way, and its leader is asked.
    node.now += 1000.0;
    assert_eq!(launches(&node.shells(2, 1, "another job", Mode::Start)), 0);
    for order in [kill(), Order::Forget] {
        assert_eq!(node.order("another job", 1, order), []);
    }
    assert_eq!(node.order("job", 1, kill()).len(), 1);
}

#[test]
fn another_jobs_shell_is_ended_before_its_name_is_used_again() {
    let mut node = Alone::new(1);
    node.shells(1, 7, "before the rollback", Mode::Start);
    node.unit(STARTED);
    let fenced = node.shells(2, 1, "after it", Mode::Start);
    assert_eq!((launches(&fenced), collects(&fenced)), (0, 1));
    let status = WaitStatus::signaled(15);
    let exited = node.unit(UnitEvent::Exited { status });
    assert_eq!((launches(&exited), collects(&exited)), (0, 0), "it was asked for once");
    assert_eq!(launches(&node.unit(UnitEvent::Gone)), 1);
}

#[test]
fn what_a_lost_shell_wrote_comes_before_it_is_gone() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    let message = "node was rebooted".to_string();
    let lost = node.unit(UnitEvent::Lost { message });
    assert_eq!(collects(&lost), 1, "answered when all is told");
    let told: Vec<Value> = lost.iter().filter_map(report).collect();
    assert!(told.iter().any(|r| r.to_string().contains("lost")), "{told:?}");
    assert!(!told.iter().any(|r| r.to_string().contains("gone")), "{told:?}");
    let gone = node.unit(UnitEvent::Gone);
    assert!(gone.iter().filter_map(report).any(|r| r.to_string().contains("gone")));
}

/// An agent is answered.
fn answered(to: u32, digest: &str, question: Question, result: Result<bool, Fault>) -> Event {
    let (id, asker, to, digest) = (JOB, Role::Agent, BrokerRank(to), digest.into());
    Event::KnownAnswered { id, asker, to, digest, question, result }
}

pub(super) fn report(effect: &Effect) -> Option<Value> {
    match effect {
        Effect::Stream { item: StreamItem::Reports(reports), .. } => Some(json!(reports)),
        _ => None,
    }
}

#[test]
fn a_request_that_was_long_on_its_way_is_confirmed_before_anything_is_started() {
    for (answer, starts) in [(Ok(true), 1), (Ok(false), 0), (Err(Fault::new(113, "gone")), 0)] {
        let mut node = Alone::new(1);
        node.now = 100.0;
        let effects = node.shells(1, 2, "job", Mode::Start);
        let question = Question::Leader { generation: 2 };
        let [effect] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!(question_of(effect), Some(question));
        let leader = shells(2, "job", Mode::Start).leader.0;
        let of_another = answered(leader, "another", question, answer.clone());
        assert_eq!(node.hear(of_another), [], "which had the same id");
        let of_another = answered(leader + 1, "job", question, answer.clone());
        assert_eq!(node.hear(of_another), [], "it does not lead");
        let effects = node.hear(answered(leader, "job", question, answer));
        assert_eq!(launches(&effects), starts);
        assert_eq!(ends_with(&effects, &StreamEnd::superseded("")), starts == 0);
    }
}

/// An earlier life of the module may have met a later leader, and said that nothing is here.
#[test]
fn a_request_that_is_older_than_the_agents_memory_is_confirmed() {
    for (issued, asks) in [(1e9, false), (1e9 - 20.0, true)] {
        let mut node = Alone::new(1);
        let request = RequestId::Remote(1);
        let shells =
            Box::new(ShellsRequest { issued: WallTime(issued), ..shells(2, "job", Mode::Start) });
        let effects = node.hear(Event::Shells { request, shells });
        let asked = effects.iter().any(|effect| question_of(effect).is_some());
        assert_eq!((asked, launches(&effects)), (asks, usize::from(!asks)), "{effects:?}");
    }
}

#[test]
fn a_newer_request_takes_the_place_of_one_that_waits_to_be_confirmed() {
    let mut node = Alone::new(1);
    node.now = 100.0;
    node.shells(1, 2, "job", Mode::Start);
    assert!(ends_with(&node.shells(2, 2, "job", Mode::Adopt), &StreamEnd::AskedAgain));
    let leader = shells(2, "job", Mode::Start).leader.0;
    let answer = answered(leader, "job", Question::Leader { generation: 2 }, Ok(true));
    assert_eq!(node.hear(answer), []);
}

#[test]
fn an_answer_to_an_earlier_question_says_nothing_of_the_parent() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    let result = Err(Fault::new(libc::EAGAIN, "the coordinator was loaded a moment ago"));
    let answer = answered(0, "job", Question::Manager, result);
    assert_eq!(node.hear(answer), [], "it was asked of rank 0, before there was a parent");
    let parent = shells(1, "job", Mode::Start).parent.0;
    let question = Question::Leader { generation: 1 };
    let answer = answered(parent + 1, "job", question, Ok(false));
    assert_eq!(node.hear(answer), [], "it was the parent before");
    let answer = answered(parent, "another", question, Ok(false));
    assert_eq!(node.hear(answer), [], "it had the same id");
    let answer = answered(parent, "job", question, Ok(false));
    assert!(ends_with(&node.hear(answer), &StreamEnd::ParentGone));
}

/// Rank 1 was given up on, and rank 2 leads. Then rank 1 is back, and another coordinator asks it.
/// With `released`, rank 1 had been released before.
fn led_twice(released: bool) -> World {
    let mut world = lasting(4);
    world.start("1-3", false);
    world.all_started(1..4);
    for _ in 0..2 {
        for rank in 1..4 {
            world.enter_barrier(rank);
        }
        world.pass(0.1);
    }
    if released {
        world.exited(1, WaitStatus(0));
        world.pass(1.0);
        assert_eq!(world.released(), [("1".to_string(), false)]);
    }
    world.unload(1);
    world.pass(world.config.peer_timeout + 11.0);
    let leaders =
        |world: &World| world.nodes.iter().flatten().map(|n| n.leaders.len()).sum::<usize>();
    assert_eq!(leaders(&world), 1, "rank 2 leads");
    world.load(1);
    world.unload(0);
    world.load(0);
    world.start("1-3", true);
    world.pass(1.0);
    assert_eq!(leaders(&world), 1, "rank 1 leads, and rank 2 has stepped down");
    world
}

/// [replaced-told]
#[test]
fn a_leader_that_was_replaced_steps_down() {
    let mut world = led_twice(true);
    for rank in 2..4 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(4000.0);
    let names = world.event_names();
    assert_eq!(names.iter().filter(|name| **name == "done").count(), 1, "{names:?}");
    let lost = "1 lost contact: processes of job";
    assert!(world.drained.iter().all(|drain| drain.starts_with(lost)), "{:?}", world.drained);
    world.assert_ended();
}

/// [replaced-told]
#[test]
fn a_leader_that_was_replaced_kills_nothing_more() {
    let mut world = led_twice(false);
    for rank in 1..4 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(4000.0);
    let lost = "1 lost contact: processes of job";
    assert!(world.drained.iter().all(|drain| drain.starts_with(lost)), "{:?}", world.drained);
    world.assert_ended();
}

/// [again-opens]
#[test]
fn a_job_that_the_job_manager_asks_for_at_once_may_have_run() {
    let mut node = Alone::with(Node::new(Config::default(), facts(0)));
    let asked = || start_event(RequestId::Remote(1), &start("1", false));
    assert_eq!(node.hear(asked()), [Effect::Kvs { id: JOB, op: KvsOp::Released }]);
    let is_again = |effects: Vec<Effect>| {
        let [effect] = &effects[..] else { panic!("{effects:?}") };
        lead_of(effect).expect("a request to lead").1.again
    };
    let released = Event::Kvs { id: JOB, result: KvsResult::Released(Ok(Idset::new())) };
    assert!(is_again(node.hear(released)));
    let mut later = Alone::with(Node::new(Config::default(), facts(0)));
    later.hear(Event::RunningAsked(Listing::default()));
    assert!(!is_again(later.hear(asked())));
}

/// The request to lead that an effect sends, and its stream.
pub(super) fn lead_of(effect: &Effect) -> Option<(StreamId, &LeadRequest)> {
    let Effect::Send { request: PeerRequest::Lead { stream, lead }, .. } = effect else {
        return None;
    };
    Some((*stream, lead))
}

/// What an effect asks another rank.
pub(super) fn question_of(effect: &Effect) -> Option<Question> {
    let Effect::Send { request: PeerRequest::Known { asked, .. }, .. } = effect else {
        return None;
    };
    Some(asked.question)
}

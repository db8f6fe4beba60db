//! What the instance has forgotten ends soon, and what the job manager may ask for yet does not.

use super::recovery::{Alone, STARTED};
use super::recovery::{lead_of, question_of};
use super::{JOB, start, start_event};
use crate::config::Config;
use crate::machine::mono_time::MonoTime;
use crate::machine::{
    Answer, Effect, Event, Fault, KvsOp, KvsResult, Listing, Node, RequestId, Role,
};
use crate::port::supervisor::{Method, SupervisorEvent};
use crate::proto::peer::{KnownRequest, Mode, Order, OrderRequest, Question, Version};
use crate::proto::{BrokerRank, Idset, JobException};

/// A coordinator whose next checkpoint would be far away, and that knows nothing of any job.
fn coordinator() -> Alone {
    let checkpoint_interval = 1e6;
    let config = Config { checkpoint_interval, ..Config::default() };
    let mut node = Alone::with(Node::new(config, super::facts(0)));
    node.hear(Event::Supervisor(SupervisorEvent::Ready { method: Method::Systemd, notice: None }));
    node
}

/// Rank 0 is asked whether the job manager has the job.
fn has(node: &mut Alone) -> Result<bool, i32> {
    let question = Question::Manager;
    let asked = KnownRequest { version: Version, id: JOB, digest: "old".into(), question };
    let effects = node.hear(Event::Known { request: RequestId::Remote(7), asked });
    match effects.as_slice() {
        [Effect::Answer { answer: Answer::Done(answer), .. }] => {
            let is_true =
                |text: &Option<String>| text.as_ref().is_some_and(|it| it.contains("true"));
            answer.as_ref().map(is_true).map_err(|fault| fault.errnum)
        }
        other => panic!("no answer: {other:?}"),
    }
}

/// Its first checkpoint begins at once, because a rank waits for it, and is made.
fn make_checkpoint(node: &mut Alone) {
    let effects = node.hear(Event::Timeout);
    assert!(matches!(effects[..], [Effect::Checkpoint { .. }]), "{effects:?}");
    node.hear(Event::CheckpointBegun);
    node.hear(Event::Checkpointed(Ok(())));
}

fn cancel(node: &mut Alone) {
    let kind = "cancel".to_string();
    node.hear(Event::Exception(JobException { id: JOB, kind, severity: 0, wait_status: None }));
}

const NOT_YET: Result<bool, i32> = Err(libc::EAGAIN);

/// [may-be-asked-for] [ended-known]
#[test]
fn rank_0_is_sure_when_it_has_heard_of_all_jobs_and_made_a_checkpoint() {
    let mut node = coordinator();
    assert_eq!(has(&mut node), NOT_YET);
    make_checkpoint(&mut node);
    assert_eq!(has(&mut node), NOT_YET);
    node.hear(Event::RunningAsked(Listing::default()));
    assert_eq!(has(&mut node), Ok(false));
}

/// [may-be-asked-for]
#[test]
fn a_job_that_waits_for_its_prolog_is_not_denied() {
    let mut node = coordinator();
    node.hear(Event::RunningAsked(Listing { run: vec![JOB], cleanup: Vec::new() }));
    assert_eq!(has(&mut node), NOT_YET);
    make_checkpoint(&mut node);
    assert_eq!(has(&mut node), NOT_YET);
    // The job manager does not start a job that was cancelled.
    cancel(&mut node);
    assert_eq!(has(&mut node), Ok(false));
}

/// [again-opens]
#[test]
fn a_job_that_was_listed_before_it_is_asked_for_may_have_run() {
    let is_again = |listing| {
        let mut node = coordinator();
        node.hear(Event::RunningAsked(listing));
        let mut effects = node.hear(start_event(RequestId::Remote(1), &start("1", false)));
        if effects == [Effect::Kvs { id: JOB, op: KvsOp::Released }] {
            let released = KvsResult::Released(Ok(Idset::new()));
            effects = node.hear(Event::Kvs { id: JOB, result: released });
        }
        assert_eq!(effects.len(), 1, "{effects:?}");
        lead_of(&effects[0]).expect("a request to lead").1.again
    };
    assert!(is_again(Listing { run: vec![JOB], cleanup: Vec::new() }));
    assert!(!is_again(Listing::default()));
}

/// [may-be-asked-for]
#[test]
fn a_job_in_cleanup_is_not_denied_before_it_is_read() {
    let mut node = coordinator();
    node.hear(Event::RunningAsked(Listing { run: Vec::new(), cleanup: vec![JOB] }));
    assert_eq!(has(&mut node), NOT_YET);
    make_checkpoint(&mut node);
    // It was cancelled before.
    cancel(&mut node);
    assert_eq!(has(&mut node), NOT_YET);
    node.hear(Event::NotCleaning { id: JOB });
    assert_eq!(has(&mut node), Ok(false));
}

/// [known-or-ended]
#[test]
fn a_rank_that_has_lost_its_leader_asks_soon_and_again() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    node.hear(Event::Disconnected { request: RequestId::Remote(1) });
    let mut pauses = Vec::new();
    let not_yet = Err(Fault::new(libc::EAGAIN, "not yet"));
    for result in [not_yet, Ok(true), Ok(true)] {
        let at = node.node.next_timeout().expect("it asks");
        pauses.push((at - MonoTime(node.now)).round());
        node.now = at.0;
        let asks = |effect: &Effect| question_of(effect) == Some(Question::Manager);
        assert!(node.hear(Event::Timeout).iter().any(asks));
        let (id, asker, question) = (JOB, Role::Agent, Question::Manager);
        let (to, digest) = (BrokerRank(0), "job".into());
        node.hear(Event::KnownAnswered { id, asker, to, digest, question, result });
    }
    assert_eq!(pauses, [3.0, 3.0, 7.0]);
}

/// [known-or-ended]. Its leader has given up on the rank, and rank 0 still had the job when it was asked.
#[test]
fn a_rank_whose_job_is_over_asks_soon_about_what_is_left_on_it() {
    let mut node = Alone::new(1);
    node.shells(1, 1, "job", Mode::Start);
    node.unit(STARTED);
    node.hear(Event::Disconnected { request: RequestId::Remote(1) });
    node.now = node.node.next_timeout().expect("it asks").0;
    node.hear(Event::Timeout);
    let (asker, question, to) = (Role::Agent, Question::Manager, BrokerRank(0));
    let digest = "job".into();
    let result = Ok(true);
    node.hear(Event::KnownAnswered { id: JOB, asker, to, digest, question, result });
    let order = OrderRequest {
        version: Version,
        id: JOB,
        digest: "job".into(),
        generation: 1,
        ranks: "1".parse().expect("ranks"),
        order: Order::Forget,
    };
    node.hear(Event::Order(order));
    let pause = node.node.next_timeout().expect("it asks again") - MonoTime(node.now);
    assert_eq!(pause.round(), 3.0);
}

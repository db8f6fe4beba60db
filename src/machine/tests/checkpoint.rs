//! What a checkpoint writes, and what the next one takes back.

use super::recovery::Alone;
use super::recovery::lead_of;
use super::{JOB, moment, start, start_event};
use crate::machine::mono_time::MonoTime;
use crate::machine::peer_request::known_answer;
use crate::machine::{Answer, Effect, Event, Fault, RequestId, StreamId, StreamItem};
use crate::port::supervisor::{Method, SupervisorEvent};
use crate::proto::peer::{KnownRequest, LeadNote, LeadReply, Question, StreamEnd, Version};
use crate::proto::{Exception, JobException, JobId, ReleasedRanks, Response, WaitStatus};

/// The coordinator of a job that another rank leads, and the leader's stream.
fn coordinator() -> (Alone, StreamId) {
    let mut node = Alone::new(0);
    node.hear(Event::Supervisor(SupervisorEvent::Ready { method: Method::Systemd, notice: None }));
    let effects = node.hear(start_event(RequestId::Remote(1), &start("1", false)));
    let lead = effects.last().and_then(lead_of);
    (node, lead.expect("a request to lead").0)
}

/// Lets a checkpoint begin. Returns whose references it writes, and whose it removes.
fn begin(node: &mut Alone) -> (Vec<JobId>, Vec<JobId>) {
    let mut kept = Vec::new();
    for _ in 0..20_000 {
        let event = kept.pop().map_or(Event::Timeout, |id| Event::ReleaseKept { id });
        for effect in node.hear(event) {
            match effect {
                Effect::Checkpoint { jobs, ended } => return (jobs, ended),
                Effect::AwaitRelease { id } => kept.push(id),
                _ => (),
            }
        }
    }
    panic!("no checkpoint was begun");
}

fn made(node: &mut Alone) {
    node.hear(Event::CheckpointBegun);
    node.hear(Event::Checkpointed(Ok(())));
}

fn reply(node: &mut Alone, stream: StreamId, reply: LeadReply) {
    node.hear(Event::Replied { stream, result: Ok(reply) });
}

fn end(node: &mut Alone, stream: StreamId) {
    let release = Response::Release { ranks: ReleasedRanks::All, is_final: true };
    for response in [Response::Finish { status: WaitStatus(0) }, release] {
        reply(node, stream, LeadReply::Response(response));
    }
}

/// When the next checkpoint begins, in seconds from now.
fn pause(node: &Alone) -> f64 {
    node.node.next_timeout().expect("a checkpoint is due") - MonoTime(node.now)
}

fn cancel(node: &mut Alone, id: JobId) -> Vec<Effect> {
    let kind = "cancel".to_string();
    node.hear(Event::Exception(JobException { id, kind, severity: 0, wait_status: None }))
}

/// [cleanup-held]
#[test]
fn a_job_that_is_cancelled_while_a_checkpoint_waits_for_holds_is_held_by_it() {
    let (mut node, _) = coordinator();
    let second = JobId(JOB.0 + 1);
    let mut payload = start("1", false);
    payload["id"] = serde_json::json!(second);
    node.hear(start_event(RequestId::Remote(2), &payload));
    cancel(&mut node, JOB);
    let held = |id| Effect::Hold { id };
    let waits = (0..20_000).any(|_| node.hear(Event::Timeout).contains(&held(JOB)));
    assert!(waits, "the checkpoint waits for the first hold");
    assert!(cancel(&mut node, second).contains(&held(second)));
}

/// [cleanup-held]
#[test]
fn a_job_that_is_cancelled_during_a_checkpoint_is_held_by_the_next_one_at_once() {
    let (mut node, stream) = coordinator();
    reply(&mut node, stream, LeadReply::Note(LeadNote::Changed { mark: 1 }));
    begin(&mut node);
    cancel(&mut node, JOB);
    made(&mut node);
    assert!(pause(&node) <= 0.0, "{}", pause(&node));
    assert!(node.hear(Event::Timeout).contains(&Effect::Hold { id: JOB }));
}

/// [reference-taken-back]
#[test]
fn a_reference_that_may_come_too_late_is_taken_back() {
    let (mut node, stream) = coordinator();
    reply(&mut node, stream, LeadReply::Note(LeadNote::Changed { mark: 1 }));
    assert_eq!(begin(&mut node), (vec![JOB], vec![]));
    end(&mut node, stream);
    made(&mut node);
    assert_eq!(begin(&mut node), (vec![], vec![JOB]));
    node.hear(Event::Checkpointed(Err(Fault::new(libc::ENOSPC, "full"))));
    assert_eq!(begin(&mut node), (vec![], vec![JOB]), "it is tried again");
}

#[test]
fn a_reference_that_was_written_in_time_is_left_to_the_leader() {
    let (mut node, stream) = coordinator();
    reply(&mut node, stream, LeadReply::Note(LeadNote::Changed { mark: 1 }));
    assert_eq!(begin(&mut node), (vec![JOB], vec![]));
    made(&mut node);
    end(&mut node, stream);
    assert_eq!(begin(&mut node), (vec![], vec![]));
}

/// [last-checkpoint]
#[test]
fn an_unload_waits_for_a_checkpoint_of_all_that_runs() {
    for is_under_way in [false, true] {
        let (mut node, stream) = coordinator();
        reply(&mut node, stream, LeadReply::Response(Response::Start {}));
        begin(&mut node);
        if !is_under_way {
            made(&mut node);
        }
        let now = moment(node.now);
        node.node.finish(now);
        assert!(!node.node.is_finished());
        if is_under_way {
            let due = node.node.next_timeout();
            assert!(due.is_none_or(|at| at > now.mono), "{due:?}: it cannot begin yet");
            made(&mut node);
            assert!(!node.node.is_finished(), "the one under way may lack something");
        }
        let due = node.node.next_timeout();
        assert!(due.is_some_and(|at| at <= now.mono + 0.01), "{due:?}: at once");
        assert_eq!(begin(&mut node), (vec![JOB], vec![]));
        assert!(!node.node.is_finished());
        made(&mut node);
        assert!(node.node.is_finished());
    }
}

/// [reference-taken-back]
#[test]
fn an_unload_waits_until_a_reference_is_taken_back() {
    for failed in [false, true] {
        let (mut node, stream) = coordinator();
        reply(&mut node, stream, LeadReply::Response(Response::Start {}));
        node.node.finish(moment(node.now));
        assert_eq!(begin(&mut node), (vec![JOB], vec![]));
        end(&mut node, stream);
        made(&mut node);
        assert!(!node.node.is_finished());
        assert_eq!(begin(&mut node), (vec![], vec![JOB]));
        if failed {
            node.hear(Event::Checkpointed(Err(Fault::new(libc::ENOSPC, "full"))));
            assert!(!node.node.is_finished());
            assert_eq!(begin(&mut node), (vec![], vec![JOB]), "it is tried again");
        }
        made(&mut node);
        assert!(node.node.is_finished());
    }
}

/// [reference-taken-back]
#[test]
fn a_reference_is_taken_back_when_a_rank_asks_for_a_job_that_nobody_runs() {
    let (mut node, stream) = coordinator();
    reply(&mut node, stream, LeadReply::Note(LeadNote::Changed { mark: 1 }));
    begin(&mut node);
    made(&mut node);
    node.now += 1000.0;
    let (id, digest, question) = (JobId(5), "other".into(), Question::Manager);
    let asked = KnownRequest { version: Version, id, digest, question };
    let answer = node.hear(Event::Known { request: RequestId::Remote(9), asked });
    let no = Answer::Done(known_answer(Ok(false)).map(Some));
    assert_eq!(answer, [Effect::Answer { to: RequestId::Remote(9), answer: no }]);
    assert_eq!(begin(&mut node).1, [id]);
    node.hear(Event::Checkpointed(Err(Fault::new(libc::ENOSPC, "full"))));
    assert_eq!(begin(&mut node).1, [id], "it is tried again");
    made(&mut node);
    reply(&mut node, stream, LeadReply::Note(LeadNote::Changed { mark: 2 }));
    assert_eq!(begin(&mut node), (vec![JOB], vec![]));
}

/// [reference-taken-back]
#[test]
fn an_unload_waits_until_a_reference_is_taken_back_where_nothing_runs() {
    let mut node = Alone::new(0);
    node.hear(Event::Supervisor(SupervisorEvent::Ready { method: Method::Systemd, notice: None }));
    node.now += 1000.0;
    let (id, question) = (JobId(5), Question::Manager);
    let asked = KnownRequest { version: Version, id, digest: "other".into(), question };
    let ask = || Event::Known { request: RequestId::Remote(9), asked: asked.clone() };
    node.hear(ask());
    begin(&mut node);
    made(&mut node);
    node.hear(ask());
    node.node.finish(moment(node.now));
    assert!(!node.node.is_finished());
    assert_eq!(begin(&mut node), (vec![], vec![id]));
    made(&mut node);
    assert!(node.node.is_finished());
}

#[test]
fn an_unload_waits_for_nothing_where_nothing_runs() {
    let mut node = Alone::new(0);
    node.hear(Event::Supervisor(SupervisorEvent::Ready { method: Method::Systemd, notice: None }));
    node.node.finish(moment(node.now));
    assert!(node.node.is_finished());
}

/// [cleanup-held]
#[test]
fn a_job_that_ends_while_a_checkpoint_is_prepared_ends_after_it_has_begun() {
    let end = |node: &mut Alone, stream| {
        let status = WaitStatus(0);
        let responses = node.hear(Event::Replied {
            stream,
            result: Ok(LeadReply::Response(Response::Finish { status })),
        });
        assert_eq!(responses, [], "the checkpoint would have it in CLEANUP");
        let release = Response::Release { ranks: ReleasedRanks::All, is_final: true };
        let after =
            node.hear(Event::Replied { stream, result: Ok(LeadReply::Response(release.clone())) });
        assert_eq!(after, [], "it stays behind");
        node.hear(Event::Replied { stream, result: Err(StreamEnd::Forgotten) });
        [Response::Finish { status }, release]
    };
    let said = |effects: Vec<Effect>| -> Vec<Response> {
        let response = |effect| match effect {
            Effect::Stream { item: StreamItem::Response { response, .. }, .. } => Some(response),
            _ => None,
        };
        effects.into_iter().filter_map(response).collect()
    };
    for opened_by in [Event::CheckpointBegun, Event::Checkpointed(Ok(())), Event::Timeout] {
        let (mut node, stream) = coordinator();
        reply(&mut node, stream, LeadReply::Response(Response::Start {}));
        begin(&mut node);
        let expected = end(&mut node, stream);
        if opened_by == Event::Timeout {
            assert!(node.node.next_timeout().is_some_and(|at| at < MonoTime(node.now + 60.1)));
            node.now += 60.0;
        }
        assert_eq!(said(node.hear(opened_by)), expected);
    }
}

/// The running job's turn has come. While the checkpoint waits for its hold, the job ends.
#[test]
fn a_checkpoint_that_is_not_due_any_more_waits_for_nothing() {
    let (mut node, stream) = coordinator();
    reply(&mut node, stream, LeadReply::Response(Response::Start {}));
    begin(&mut node);
    made(&mut node);
    node.now = 9.5;
    let exception = Response::Exception(Exception::fatal("x"));
    reply(&mut node, stream, LeadReply::Response(exception));
    node.now = 10.1;
    assert_eq!(node.hear(Event::Timeout), [Effect::Hold { id: JOB }]);
    end(&mut node, stream);
    node.hear(Event::Held { id: JOB, result: Ok(()) });
    let due = node.node.next_timeout();
    assert!(due.is_some_and(|at| at < MonoTime(11.0)), "{due:?}: as the change before wants it");
}

/// [waiting-kept]
#[test]
fn a_change_that_no_running_job_makes_is_saved_soon() {
    let mut node = Alone::new(0);
    node.hear(Event::Supervisor(SupervisorEvent::Ready { method: Method::Systemd, notice: None }));
    assert_eq!(node.node.next_timeout(), None, "an idle instance costs nothing");
    node.hear(Event::KvsChanged);
    assert_eq!(pause(&node).round(), node.node.config().checkpoint_interval);
    assert_eq!(begin(&mut node), (vec![], vec![]));
    made(&mut node);
    assert_eq!(node.node.next_timeout().filter(|at| *at < MonoTime(node.now + 5.0)), None);
}

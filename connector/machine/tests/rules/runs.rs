//! Commits of clients whose run of a job the KVS has forgotten.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use resume_machine::{Limits, Phase, RUN_KEY, Run};
use serde_json::json;

use super::client::Client;
use super::kvs::append;
use super::support::Message;

/// A client of a job's first run. It has committed once, and waits for the answer to a second commit
/// when the broker is lost. Then a broker is back, and has a namespace of the job's. Returns the
/// question whose it is.
fn asked_whose() -> (Client, Message) {
    asked_whose_after(&[])
}

/// The same. The client waits for the answers to these requests as well.
fn asked_whose_after(requests: &[Message]) -> (Client, Message) {
    let mut client = Client::new(Limits::default());
    let run = Run { job: 1, digest: "first".to_string() };
    client.connector = client.connector.of_run(Some(run));
    for number in 1..3 {
        client.send(Message::ask("kvs.commit", number, &append("job-1", number.into())));
    }
    let commit = client.sent().remove(0);
    client.answer(&commit, &json!({}));
    assert_eq!(client.heard(), [(1, 0)]);
    requests.iter().for_each(|request| client.send(request.clone()));
    client.sent();
    client.lose();
    client.greet();
    let whose = fenced(&mut client);
    assert_eq!(whose.json()["key"], RUN_KEY);
    (client, whose)
}

/// The namespace answers a commit without operations. Returns what is asked next.
fn fenced(client: &mut Client) -> Message {
    let fence = client.sent().remove(0);
    assert_eq!(fence.json()["ops"], json!([]));
    client.answer(&fence, &json!({}));
    client.sent().remove(0)
}

fn tell_whose(client: &mut Client, whose: &Message, digest: &str) {
    let val = json!({ "data": BASE64_STANDARD.encode(digest), "type": "val", "ver": 1 });
    client.answer(whose, &json!({ "val": val, "rootref": "r", "rootseq": 1 }));
}

#[test]
fn commits_to_the_namespace_of_another_run_are_not_done() {
    let (mut client, whose) = asked_whose();
    tell_whose(&mut client, &whose, "second");
    assert_eq!(client.heard(), [(2, 0)], "an error could be raised as an exception");
    client.send(Message::ask("kvs.commit", 3, &append("job-1", 3)));
    assert_eq!((client.heard(), client.sent()), (vec![(3, 0)], vec![]));
    assert!(matches!(client.connector.phase(), Phase::Live));
    client.send(Message::ask("kvs.commit", 4, &append("job-2", 1)));
    assert_eq!(client.sent().len(), 1, "another job's");
    client.connector.closing(client.now);
    assert!(client.topics().iter().all(|topic| topic != "job-exec.keep-commits"), "not of job 1");
}

/// Seen by `tests/chaos`, seed 3307: a shell of the first run raised the exception that ended the second.
#[test]
fn another_run_gets_no_exception() {
    let raise = |tag, id: u64| Message::ask("job-manager.raise", tag, &json!({ "id": id }));
    let (mut client, whose) = asked_whose_after(&[raise(8, 1), raise(9, 2)]);
    tell_whose(&mut client, &whose, "second");
    assert_eq!(client.heard(), [(2, 0), (8, 0)], "an error could have the shell try again");
    assert_eq!(client.topics(), ["job-manager.raise"], "of another job");
    client.send(raise(10, 1));
    assert_eq!((client.heard(), client.sent()), (vec![(10, 0)], vec![]));
    client.send(Message::ask("job-manager.wait", 11, &json!({ "id": 1 })));
    assert_eq!(client.topics(), ["job-manager.wait"], "changes nothing");
}

#[test]
fn the_own_run_gets_its_exception() {
    let raise = Message::ask("job-manager.raise", 8, &json!({ "id": 1 }));
    let (mut client, whose) = asked_whose_after(&[raise]);
    tell_whose(&mut client, &whose, "first");
    let look = client.sent().remove(0);
    client.answer(&look, &json!({ "rootref": "r", "rootseq": 1 }));
    let lacking: Vec<Message> = client.sent();
    lacking.iter().for_each(|commit| client.answer(commit, &json!({})));
    assert!(client.topics().iter().any(|topic| topic == "job-manager.raise"));
}

#[test]
fn commits_to_the_namespace_of_the_own_run_are_done_again() {
    let (mut client, whose) = asked_whose();
    tell_whose(&mut client, &whose, "first");
    let look = client.sent().remove(0);
    client.answer(&look, &json!({ "rootref": "r", "rootseq": 1 }));
    let again: Vec<u32> = client.sent().iter().map(|message| message.tag % 8).collect();
    assert_eq!(again.len(), 2, "{again:?}");
}

/// The shell was executed when the broker that had it started was dead, and another one was up.
#[test]
fn a_client_that_has_not_met_its_broker_asks_whose_the_namespace_is_before_it_commits() {
    let mut client = Client::new(Limits::default());
    let run = Run { job: 1, digest: "first".to_string() };
    client.connector = client.connector.of_run(Some(run)).met_its_broker(false);
    client.send(Message::ask("kvs.commit", 1, &append("job-2", 1)));
    assert_eq!(client.sent().len(), 1, "another job's");
    client.send(Message::ask("kvs.commit", 2, &append("job-1", 1)));
    let whose = fenced(&mut client);
    tell_whose(&mut client, &whose, "second");
    assert_eq!((client.heard(), client.sent()), (vec![(2, 0)], vec![]));
}

#[test]
fn a_namespace_whose_leader_has_not_said_whose_it_is_is_asked_again_for_a_while() {
    let (mut client, mut whose) = asked_whose();
    let begin = client.now;
    loop {
        client.answer(&whose, &json!({ "rootref": "r", "rootseq": 1 }));
        if let Some(look) = client.sent().pop() {
            assert!(look.json()["key"] != whose.json()["key"], "it is taken for the own");
            break;
        }
        let at = client.connector.next_timeout().expect("it asks again");
        client.pass(at - client.now);
        whose = fenced(&mut client);
    }
    let (waited, patience) = (client.now - begin, Limits::default().patience);
    assert!((patience - 10.0..patience).contains(&waited), "{waited}");
}

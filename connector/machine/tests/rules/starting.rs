//! A broker that is only just starting.

use resume_machine::{Kind, Limits, Packet};
use serde_json::json;

use super::client::Client;
use super::kvs::append;
use super::support::Message;

const TRY_AGAIN: i32 = 11;
const TIMED_OUT: i32 = 110;

/// How a broker answers that is not in INIT yet (flux-core `broker/modhash.c`).
fn offline(request: &Message) -> Message {
    request.refusal(TRY_AGAIN, "Upstream Flux broker is offline. Try again later.")
}

#[test]
fn a_broker_that_is_only_just_starting_is_waited_for() {
    let mut client = Client::new(Limits::default());
    let submit = Message::ask("job-ingest.submit", 3, &json!({}));
    client.send(Message::ask("kvs.commit", 2, &append("job-1", 1)));
    client.send(submit.clone());
    let sent = client.sent();
    client.receive(offline(&sent[0]));
    // It waits behind the one before it: the broker could take this one.
    client.send(Message::ask("kvs.commit", 4, &append("job-1", 2)));
    assert_eq!(client.topics(), ["state-machine.wait"]);
    client.receive(offline(&sent[1]));
    assert_eq!(client.heard(), [], "nothing was done, and nothing has failed");
    let wait = Message::ask("state-machine.wait", 1 << 31 | 1, &json!({}));
    client.answer(&wait, &json!({}));
    assert_eq!(client.topics(), ["kvs.commit", "job-ingest.submit", "kvs.commit"]);
}

#[test]
fn what_a_broker_has_refused_that_was_only_just_starting_goes_to_the_next_one() {
    let mut client = Client::new(Limits::default());
    client.send(Message::ask("job-ingest.submit", 2, &json!({})));
    let sent = client.sent();
    client.receive(offline(&sent[0]));
    client.lose();
    let sent = client.come_back();
    assert_eq!(sent[0].topic, "job-ingest.submit");
    assert_eq!(client.heard(), []);
    let again = Message { errnum: TRY_AGAIN, kind: Kind::Response, ..sent[0].clone() };
    client.receive(again);
    assert_eq!(client.heard(), [(2, TRY_AGAIN)], "a service that says so means something else");
}

#[test]
fn a_broker_that_never_comes_to_run_is_given_up_as_one_that_is_away() {
    for dies in [false, true] {
        let mut client = Client::new(Limits { give_up_after: 10.0, ..Limits::default() });
        client.send(Message::ask("job-ingest.submit", 2, &json!({})));
        let sent = client.sent();
        client.receive(offline(&sent[0]));
        client.pass(6.0);
        if dies {
            client.lose();
        }
        client.pass(3.0);
        assert_eq!(client.heard(), []);
        client.pass(2.0);
        assert_eq!(client.heard(), [(2, TIMED_OUT)]);
    }
}

#[test]
fn the_connectors_own_requests_wait_for_a_broker_that_is_only_just_starting() {
    let mut client = Client::new(Limits::default());
    client.send(Message::one_way("job-exec.shell-barrier", &json!({ "id": 1, "rank": 0 })));
    let entry = client.sent();
    client.receive(offline(&entry[0]));
    assert_eq!(client.heard(), []);
    client.pass(2.0);
    assert_eq!(client.topics(), ["job-exec.shell-barrier"]);

    let mut client = Client::new(Limits::default());
    client.send(Message::ask("kvs.commit", 2, &append("job-1", 1)));
    let commit = client.sent();
    client.answer(&commit[0], &json!({}));
    client.connector.closing(client.now);
    let bequest = client.sent();
    client.receive(offline(&bequest[0]));
    assert!(client.connector.is_lingering());
    client.pass(2.0);
    assert_eq!(client.topics(), ["job-exec.keep-commits"]);
}

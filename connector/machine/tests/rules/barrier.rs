//! The shell barrier.

use resume_machine::Limits;
use serde_json::json;

use super::NO_SERVICE;
use super::client::Client;
use super::support::Message;

fn barrier() -> Message {
    Message::one_way("job-exec.shell-barrier", &json!({ "id": 1, "rank": 0 }))
}

/// A shell that has entered the barrier, and its request.
fn entered() -> (Client, Message) {
    let mut client = Client::new(Limits::default());
    client.send(barrier());
    let first = client.sent().remove(0);
    (client, first)
}

#[test]
fn a_barrier_is_entered_again_under_its_number() {
    let (mut client, first) = entered();
    // The module is just being loaded.
    client.refuse(&first, NO_SERVICE);
    client.pass(0.1);
    let first = client.sent().remove(0);
    client.answer(&first, &json!({}));
    assert_eq!(client.heard(), [(0, 0)], "without a matchtag, as the shell has asked");
    client.send(barrier());
    assert_eq!(client.sent().remove(0).json()["entry"], 2);
    client.lose();
    client.greet();
    let again = client.sent().remove(0);
    assert_eq!(
        again.json(),
        json!({ "id": 1, "rank": 0, "entry": 2, "client": "0000000000000007" })
    );
    client.refuse(&again, 5);
    assert_eq!(client.heard(), [(0, 5)]);
}

/// The module can have lost how often the shell has entered, while another shell waits for it.
#[test]
fn an_entry_that_was_answered_is_said_again_to_a_broker_that_is_back() {
    let (mut client, first) = entered();
    client.answer(&first, &json!({}));
    assert_eq!(client.heard(), [(0, 0)]);
    client.lose();
    client.greet();
    let again = client.sent().remove(0);
    assert_eq!(
        again.json(),
        json!({ "id": 1, "rank": 0, "entry": 1, "client": "0000000000000007" })
    );
    // The next entry is not answered by the answer to the first.
    client.send(barrier());
    let second = client.sent().remove(0);
    client.answer(&again, &json!({}));
    assert_eq!(client.heard(), [], "nobody waits for it");
    client.answer(&second, &json!({}));
    assert_eq!(client.heard(), [(0, 0)]);
    // A service that does not come back is not asked for ever.
    client.lose();
    client.greet();
    for _ in 0..1000 {
        let Some(again) = client.sent().pop() else { break };
        client.refuse(&again, NO_SERVICE);
        client.pass(2.0);
    }
    assert_eq!(client.sent(), [], "the service has gone for good");
    assert_eq!(client.heard(), []);
}

//! Watches of jobs' logs after a restart.

use resume_machine::{Limits, Run};
use serde_json::json;

use super::client::Client;
use super::kvs::stream;
use super::support::Message;
use super::{NO_DATA, NO_NAMESPACE, watch};

/// job-info can take a namespace for gone that is just being restored.
#[test]
fn the_end_of_a_log_after_a_restart_is_believed_when_it_is_said_again() {
    let mut client = Client::new(Limits::default());
    let entry = |text: &str| json!({ "event": text });
    client.send(stream("job-info.eventlog-watch", 1, &json!({ "path": "guest.output" })));
    let watch = client.sent().remove(0);
    client.answer(&watch, &entry("a"));
    client.lose();
    client.greet();
    let watch = client.sent().remove(0);
    client.answer(&watch, &entry("a"));
    client.refuse(&watch, NO_DATA);
    client.pass(0.2);
    let watch = client.sent().remove(0);
    client.answer(&watch, &entry("a"));
    client.answer(&watch, &entry("b"));
    assert_eq!(client.heard(), [(1, 0), (1, 0)], "each entry once, and no end");
    client.refuse(&watch, NO_DATA);
    assert_eq!(client.heard(), [(1, NO_DATA)]);
}

/// A shell that watches a log of its own job, and whose broker is back. Returns what it asks the KVS.
fn watches_its_job() -> (Client, Message) {
    let mut shell = Client::new(Limits::default());
    let run = Run { job: 7, digest: "run".to_string() };
    shell.connector = shell.connector.of_run(Some(run)).on_rank(Some(3));
    for (tag, id) in [(1, 7), (2, 8)] {
        let watch = json!({ "id": id, "path": "guest.input" });
        shell.send(stream("job-info.eventlog-watch", tag, &watch));
    }
    shell.sent();
    shell.lose();
    shell.greet();
    let [asked, other] = shell.sent().try_into().expect("two messages");
    assert_eq!(other.topic, "job-info.eventlog-watch", "it is not asked for another job");
    assert_eq!((asked.topic.as_str(), asked.rank), ("kvs.getroot", 3));
    assert_eq!(asked.json(), json!({ "namespace": "job-7" }));
    (shell, asked)
}

/// [namespace-awaited]
#[test]
fn a_watch_of_the_own_job_waits_until_its_namespace_is_there() {
    let (mut shell, asked) = watches_its_job();
    shell.refuse(&asked, NO_NAMESPACE);
    assert_eq!(shell.sent(), []);
    let at = shell.connector.next_timeout().expect("it asks again");
    shell.pass(at - shell.now);
    let asked = shell.sent().remove(0);
    assert_eq!(asked.topic, "kvs.getroot");
    shell.answer(&asked, &json!({ "rootref": "r" }));
    let watch = shell.sent().remove(0);
    assert_eq!(
        (watch.topic.as_str(), watch.json()["id"].as_u64()),
        ("job-info.eventlog-watch", Some(7))
    );
    shell.answer(&watch, &json!({ "event": "a" }));
    assert_eq!(shell.heard(), [(1, 0)]);
}

/// [namespace-awaited]
#[test]
fn a_watch_that_waits_for_its_namespace_can_be_cancelled() {
    let (mut shell, asked) = watches_its_job();
    assert_eq!(shell.connector.next_timeout(), None);
    shell.send(Message::one_way("job-info.eventlog-watch-cancel", &json!({ "matchtag": 1 })));
    assert_eq!(shell.heard(), [(1, NO_DATA)]);
    shell.sent();
    // The matchtag is in use again.
    shell.send(stream("job-info.eventlog-watch", 1, &json!({ "id": 7, "path": "guest.input" })));
    assert_eq!(shell.sent().len(), 1);
    shell.answer(&asked, &json!({ "rootref": "r" }));
    assert_eq!(shell.sent(), []);
}

#[test]
fn a_watch_that_is_cancelled_between_two_tries_ends() {
    for errnum in [NO_DATA, NO_NAMESPACE] {
        let mut client = Client::new(Limits::default());
        client.send(watch(1));
        client.sent();
        client.lose();
        client.greet();
        let again = client.sent().remove(0);
        client.refuse(&again, errnum);
        assert_eq!(client.heard(), []);
        client.send(Message::one_way("job-info.eventlog-watch-cancel", &json!({ "matchtag": 1 })));
        assert_eq!(client.heard(), [(1, NO_DATA)], "after errno {errnum}");
        client.sent();
        client.pass(5.0);
        assert_eq!(client.sent(), []);
    }
}

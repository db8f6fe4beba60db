//! What a shell asks about its own job goes to the rank above it in the job's tree. [info-above]

use resume_machine::{ANY_RANK, Limits, Run};
use serde_json::json;

use super::client::Client;
use super::kvs::stream;
use super::support::Message;
use super::{NO_DATA, NO_ENTRY, NO_HOST, NO_SERVICE};

const TOPICS: [&str; 3] = ["job-info.lookup", "job-info.update-watch", "job-info.eventlog-watch"];

/// A shell of job 7 on rank 3. Rank `above` is above it.
fn shell(above: Option<u32>) -> Client {
    let mut shell = Client::new(Limits::default());
    let run = Run { job: 7, digest: "run".to_string() };
    let connector = shell.connector.of_run(Some(run)).on_rank(Some(3));
    shell.connector = connector.asks_about_its_job(above);
    shell
}

fn watch(tag: u32, job: u64) -> Message {
    stream("job-info.eventlog-watch", tag, &json!({ "id": job, "path": "guest.input" }))
}

fn ranks(sent: &[Message]) -> Vec<u32> {
    sent.iter().map(|message| message.rank).collect()
}

#[test]
fn what_a_shell_asks_about_its_own_job_goes_to_the_rank_above_it() {
    for (above, asked) in [(Some(1), 1), (Some(3), ANY_RANK), (None, ANY_RANK)] {
        let mut shell = shell(above);
        for (tag, topic) in (1..).zip(TOPICS) {
            shell.send(stream(topic, tag, &json!({ "id": 7 })));
        }
        assert_eq!(ranks(&shell.sent()), [asked; 3]);
        // The watch of R is cancelled where it is.
        let cancel = |tag: u32| json!({ "matchtag": tag });
        shell.send(Message::one_way("job-info.update-watch-cancel", &cancel(2)));
        shell.send(Message::one_way("job-info.update-watch-cancel", &cancel(99)));
        assert_eq!(ranks(&shell.sent()), [asked, ANY_RANK]);
    }
}

#[test]
fn what_it_asks_about_others_or_asks_others_goes_where_it_says() {
    let mut shell = shell(Some(1));
    shell.send(watch(1, 8));
    shell.send(Message::ask("job-info.lookup", 2, &json!({ "keys": ["J"] })));
    shell.send(Message::ask("kvs.lookup", 3, &json!({ "id": 7 })));
    shell.send(Message { rank: 5, ..watch(4, 7) });
    let sent = shell.sent();
    assert_eq!(ranks(&sent), [ANY_RANK, ANY_RANK, ANY_RANK, 5]);
    shell.refuse(&sent[3], NO_ENTRY);
    assert_eq!(shell.heard(), [(4, NO_ENTRY)]);
    assert_eq!(shell.sent(), []);
}

#[test]
fn what_the_rank_above_fails_is_asked_of_the_own_rank() {
    for errnum in [NO_ENTRY, NO_HOST, NO_SERVICE] {
        let mut shell = shell(Some(1));
        shell.send(watch(1, 7));
        let asked = shell.sent().remove(0);
        shell.answer(&asked, &json!({ "event": "a" }));
        shell.refuse(&asked, errnum);
        let again = shell.sent().remove(0);
        assert_eq!((again.topic.as_str(), again.rank), (asked.topic.as_str(), ANY_RANK));
        shell.answer(&again, &json!({ "event": "a" }));
        shell.answer(&again, &json!({ "event": "b" }));
        assert_eq!(shell.heard(), [(1, 0), (1, 0)], "each entry once, and no error");
        shell.refuse(&again, NO_ENTRY);
        assert_eq!(shell.heard(), []);
        assert_eq!(ranks(&shell.sent()), [0]);
    }
}

/// The KVS of a rank can be behind rank 0's: a shell of a burst of starts after the restart of all
/// nodes did not find its R.
#[test]
fn rank_0_has_the_last_word_on_what_the_own_rank_does_not_find() {
    for (tag, topic) in (1..).zip(&TOPICS) {
        let mut shell = shell(None);
        shell.send(stream(topic, tag, &json!({ "id": 7 })));
        let own = shell.sent().remove(0);
        shell.refuse(&own, NO_ENTRY);
        let root = shell.sent().remove(0);
        assert_eq!((root.topic.as_str(), root.rank), (*topic, 0));
        assert_eq!(shell.heard(), []);
        shell.refuse(&root, NO_ENTRY);
        assert_eq!(shell.heard(), [(tag, NO_ENTRY)]);
        assert_eq!(shell.sent(), []);
    }
}

#[test]
fn rank_0_is_asked_of_nothing_else() {
    let lookup = |job: u64| stream(TOPICS[0], 1, &json!({ "id": job }));
    let on_rank_0 = Run { job: 7, digest: "run".to_string() };
    let mut root = Client::new(Limits::default());
    root.connector = root.connector.of_run(Some(on_rank_0)).on_rank(Some(0));
    for (mut client, request, errnum) in [
        (shell(None), lookup(8), NO_ENTRY),
        (shell(None), lookup(7), NO_DATA),
        (root, lookup(7), NO_ENTRY),
    ] {
        client.send(request);
        let asked = client.sent().remove(0);
        client.refuse(&asked, errnum);
        assert_eq!(client.heard(), [(1, errnum)]);
        assert_eq!(client.sent(), []);
    }
}

#[test]
fn a_watch_at_the_rank_above_ends_as_any_other() {
    let mut shell = shell(Some(1));
    shell.send(watch(1, 7));
    shell.send(watch(2, 7));
    let asked = shell.sent();
    shell.refuse(&asked[0], NO_DATA);
    assert_eq!(shell.heard(), [(1, NO_DATA)]);
    shell.send(Message::one_way("job-info.eventlog-watch-cancel", &json!({ "matchtag": 2 })));
    shell.sent();
    shell.refuse(&asked[1], NO_HOST);
    assert_eq!(shell.heard(), [(2, NO_DATA)], "it was cancelled");
    assert_eq!(shell.sent(), []);
}

#[test]
fn after_a_loss_the_own_rank_is_asked() {
    let mut shell = shell(Some(1));
    shell.send(Message::ask("job-info.lookup", 1, &json!({ "id": 7, "keys": ["J"] })));
    shell.sent();
    shell.lose();
    shell.greet();
    assert_eq!(ranks(&shell.sent()), [ANY_RANK]);
}

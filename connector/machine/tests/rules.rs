//! One test for each rule of the connector.

#[path = "rules/barrier.rs"]
mod barrier;
#[path = "rules/bequest.rs"]
mod bequest;
#[path = "support/client.rs"]
mod client;
#[path = "rules/home.rs"]
mod home;
#[path = "rules/informed.rs"]
mod informed;
#[path = "support/kvs.rs"]
mod kvs;
#[path = "rules/runs.rs"]
mod runs;
#[path = "rules/starting.rs"]
mod starting;
mod support;
#[path = "rules/watches.rs"]
mod watches;

use resume_machine::{ANY_RANK, Kind, Limits, Packet, Phase, Run, SendError};
use serde_json::{Value, json};

use client::Client;
use kvs::{append, stream};
use support::Message;

const NO_ENTRY: i32 = 2;
const NO_SPACE: i32 = 28;
const NO_SERVICE: i32 = 38;
const NO_DATA: i32 = 61;
const NO_NAMESPACE: i32 = 95;
const RESET: i32 = 104;
const NO_HOST: i32 = 113;

impl Client {
    fn answer(&mut self, request: &Message, payload: &Value) {
        let answer =
            Message { kind: Kind::Response, payload: payload.to_string(), ..request.clone() };
        self.receive(answer);
    }

    fn refuse(&mut self, request: &Message, errnum: i32) {
        let answer = Message { kind: Kind::Response, errnum, ..request.clone() };
        self.receive(answer);
    }

    /// Answers the connector's own requests with empty successes until only the client's requests
    /// are left, and returns these.
    fn settle(&mut self) -> Vec<Message> {
        let mut others = Vec::new();
        loop {
            let sent = self.sent();
            if sent.is_empty() {
                return others;
            }
            for request in sent {
                if request.tag >= 1 << 31 {
                    self.answer(&request, &json!({ "rootref": "r", "rootseq": 1 }));
                } else {
                    others.push(request);
                }
            }
        }
    }

    fn lose(&mut self) {
        self.connector.lost(self.now);
    }

    /// The broker is back, and in RUN.
    fn greet(&mut self) {
        self.connector.connecting();
        self.connector.connected();
        let greeting = self.sent().remove(0);
        self.answer(&greeting, &json!({}));
    }

    /// The broker is back. Returns the requests of the client that are sent.
    fn come_back(&mut self) -> Vec<Message> {
        self.connector.connecting();
        self.connector.connected();
        self.settle()
    }
}

fn lookup(tag: u32) -> Message {
    Message::ask("kvs.lookup", tag, &json!({}))
}

fn watch(tag: u32) -> Message {
    stream("job-info.eventlog-watch", tag, &json!({}))
}

#[test]
fn past_the_limit_nothing_is_taken_until_there_is_room() {
    let mut client = Client::new(Limits { retained_max: 100, ..Limits::default() });
    client.send(lookup(1));
    let sent = client.sent();
    for tag in 2..4 {
        client.send(lookup(tag));
    }
    assert!(!client.connector.is_writable());
    assert_eq!(client.connector.send(0.0, lookup(9)), Err(SendError::Full));
    client.sent();
    client.answer(&sent[0], &json!({}));
    assert!(client.connector.is_writable());
}

#[test]
fn what_is_sent_while_the_broker_is_away_is_bounded_and_goes_out_in_order() {
    let mut client = Client::new(Limits { retained_max: 200, ..Limits::default() });
    client.lose();
    let mut taken = Vec::new();
    for tag in 1.. {
        match client.connector.send(0.0, lookup(tag)) {
            Ok(()) => taken.push(tag),
            Err(error) => {
                assert_eq!(error, SendError::Full);
                break;
            }
        }
    }
    let tags: Vec<u32> = client.come_back().iter().map(|message| message.tag).collect();
    assert_eq!(tags, taken);
}

#[test]
fn when_the_broker_stays_away_everybody_hears_of_it() {
    let mut client = Client::new(Limits { give_up_after: 10.0, ..Limits::default() });
    client.send(lookup(1));
    client.sent();
    client.lose();
    client.send(lookup(2));
    client.pass(9.0);
    assert_eq!(client.heard(), []);
    client.pass(1.0);
    assert_eq!(client.heard(), [(1, 110), (2, 110)]);
    assert!(matches!(client.connector.phase(), Phase::Ended(110, _)));
    assert_eq!(client.connector.send(11.0, lookup(3)), Err(SendError::Ended(110)));
    assert_eq!(client.connector.next_timeout(), None);
}

#[test]
fn tries_to_connect_become_rarer() {
    let mut client = Client::new(Limits::default());
    client.lose();
    let mut times = Vec::new();
    for _ in 0..10 {
        let at = client.connector.next_timeout().expect("another try");
        times.push(at - client.now);
        client.now = at;
        assert!(client.connector.wants_link(at));
        client.connector.connecting();
        assert!(!client.connector.wants_link(at), "one at a time");
        client.connector.refused(at, 111);
    }
    assert!(times.is_sorted() && times[0] < 0.1 && times[9] > 1.0 && times[9] < 3.0, "{times:?}");
}

#[test]
fn a_refusal_is_final() {
    let mut client = Client::new(Limits::default());
    client.send(lookup(1));
    client.lose();
    client.connector.refused(0.0, 1);
    assert_eq!(client.heard(), [(1, 1)]);
}

#[test]
fn what_cannot_be_repeated_is_refused_at_once_unless_it_was_never_sent() {
    let mut client = Client::new(Limits::default());
    client.send(Message::ask("job-ingest.submit", 1, &json!({})));
    client.sent();
    client.send(Message::ask("job-ingest.submit", 2, &json!({})));
    client.send(Message::ask("any.thing", 3, &json!({})));
    let unwritten = client.connector.for_broker().expect("the second");
    client.connector.unwritten(unwritten);
    client.lose();
    assert_eq!(client.heard(), [(1, RESET)]);
    let again: Vec<u32> = client.come_back().iter().map(|message| message.tag).collect();
    assert_eq!(again, [2, 3]);
}

#[test]
fn an_answer_for_a_broker_that_is_gone_goes_nowhere() {
    let mut client = Client::new(Limits::default());
    let serve = |client: &mut Client| {
        let request = Message::ask("my.service", 5, &json!({}));
        client.connector.receive(client.now, request);
        client.connector.for_client().expect("the request")
    };
    let answer = |request: &Message| Message { kind: Kind::Response, ..request.clone() };
    let (old, answered) = (serve(&mut client), serve(&mut client));
    client.send(answer(&answered));
    let sent = client.sent();
    assert!(
        sent.len() == 1 && sent[0].hops().is_empty(),
        "the same message as without a connector"
    );
    client.lose();
    client.send(answer(&old));
    client.come_back();
    client.send(answer(&old));
    let new = serve(&mut client);
    client.send(answer(&new));
    assert_eq!(client.topics(), ["my.service"]);
}

#[test]
fn a_watch_that_was_cancelled_meanwhile_ends() {
    let mut client = Client::new(Limits::default());
    for tag in [1, 2] {
        client.send(watch(tag));
    }
    client.sent();
    // The first cancel is in flight, the second is sent while the broker is away.
    client.send(Message::one_way("job-info.eventlog-watch-cancel", &json!({ "matchtag": 1 })));
    client.sent();
    client.lose();
    client.send(Message::one_way("job-info.eventlog-watch-cancel", &json!({ "matchtag": 2 })));
    let again = client.come_back();
    assert_eq!(client.heard(), [(1, NO_DATA)]);
    let topics: Vec<&str> = again.iter().map(|message| message.topic.as_str()).collect();
    assert_eq!(topics, ["job-info.eventlog-watch", "job-info.eventlog-watch-cancel"]);
}

#[test]
fn an_error_that_may_come_of_the_brokers_end_is_believed_when_it_is_in_run() {
    for (errnum, pause) in [(NO_SERVICE, 0.0), (NO_HOST, 1.0)] {
        let mut client = Client::new(Limits::default());
        client.send(lookup(1));
        let request = client.sent().remove(0);
        client.refuse(&request, errnum);
        client.pass(pause);
        assert_eq!(client.heard(), [], "held back");
        let asked = client.sent().remove(0);
        assert_eq!(asked.topic, "state-machine.wait");
        client.answer(&asked, &json!({}));
        assert_eq!(client.heard(), [(1, errnum)]);
    }
}

#[test]
fn what_cannot_be_asked_now_does_not_wake_anybody() {
    let mut client = Client::new(Limits::default());
    client.lose();
    client.come_back();
    client.send(lookup(1));
    let request = client.sent().remove(0);
    client.refuse(&request, NO_HOST);
    client.send(Message::ask("kvs.commit", 2, &append("job-1", 1)));
    assert_eq!(*client.connector.phase(), Phase::Settling);
    client.pass(2.0);
    let next = client.connector.next_timeout();
    assert!(next.is_none_or(|at| at > client.now), "the driver would spin: {next:?}");
}

#[test]
fn an_error_of_a_broker_that_ends_is_never_heard() {
    let mut client = Client::new(Limits::default());
    client.send(lookup(1));
    client.send(Message::ask("any.thing", 2, &json!({})));
    for request in client.sent() {
        client.refuse(&request, NO_SERVICE);
    }
    let asked = client.sent().remove(0);
    client.refuse(&asked, 2);
    client.lose();
    assert_eq!(
        client.heard(),
        [],
        "not even for a request that must not be repeated: it was not done"
    );
    assert_eq!(client.come_back().len(), 2);
}

#[test]
fn what_the_broker_kept_is_made_again_before_all_else() {
    let mut client = Client::new(Limits::default());
    let topic = json!({ "topic": "a" });
    let asks = [
        Message::ask("event.subscribe", 1, &topic),
        Message::ask("event.subscribe", 2, &topic),
        Message::ask("event.subscribe", 3, &json!({ "topic": "b" })),
        Message::ask("event.unsubscribe", 4, &json!({ "topic": "b" })),
        Message::ask("service.add", 5, &json!({ "service": "mine" })),
        Message::ask("groups.join", 6, &json!({ "name": "g" })),
    ];
    for ask in asks {
        client.send(ask);
    }
    for request in client.sent() {
        client.answer(&request, &json!({}));
    }
    client.send(lookup(7));
    client.lose();
    client.greet();
    let restored = client.sent();
    let topics: Vec<&str> = restored.iter().map(|message| message.topic.as_str()).collect();
    assert_eq!(topics, ["event.subscribe", "event.subscribe", "groups.join", "service.add"]);
    for request in &restored {
        client.answer(request, &json!({}));
    }
    assert_eq!(client.topics(), ["kvs.lookup"]);
}

/// A client with a service, whose broker is back: returns the request for the service.
fn client_with_a_service() -> (Client, Message) {
    let mut client = Client::new(Limits { patience: 10.0, ..Limits::default() });
    client.send(Message::ask("service.add", 1, &json!({ "service": "mine" })));
    let add = client.sent().remove(0);
    client.answer(&add, &json!({}));
    client.heard();
    client.send(lookup(2));
    client.lose();
    client.greet();
    let again = client.sent().remove(0);
    (client, again)
}

#[test]
fn what_is_not_granted_again_at_once_is_asked_for_once_more() {
    let (mut client, add) = client_with_a_service();
    client.refuse(&add, 17);
    assert_eq!(client.sent(), [], "other requests wait for the service");
    client.pass(2.0);
    let add = client.sent().remove(0);
    assert_eq!(add.topic, "service.add");
    client.answer(&add, &json!({}));
    assert_eq!(client.topics(), ["kvs.lookup"]);
}

#[test]
fn what_is_never_granted_again_ends_the_connection_by_name() {
    let (mut client, mut add) = client_with_a_service();
    loop {
        client.refuse(&add, 17);
        client.pass(2.0);
        match client.sent().pop() {
            Some(next) => add = next,
            None => break,
        }
    }
    assert_eq!(client.heard(), [(2, 17)]);
    let Phase::Ended(17, why) = client.connector.phase() else { panic!("it goes on") };
    assert!(why.contains("service.add") && why.contains("mine"), "{why}");
}

#[test]
fn done_commits_are_kept_until_a_checkpoint_has_them() {
    let mut client = Client::new(Limits { commits_max: 2000, ..Limits::default() });
    let mut number = 0;
    let asked = loop {
        number += 1;
        client.send(Message::ask("kvs.commit", number, &append("job-77", number.into())));
        let commit = client.sent().remove(0);
        client.answer(&commit, &json!({}));
        if let Some(asked) = client.sent().pop() {
            break asked;
        }
    };
    assert_eq!((asked.topic.as_str(), asked.rank), ("job-exec.checkpoint", 0));
    assert_eq!(asked.json(), json!({ "id": 77 }));
    let kept = client.connector.retained();
    assert!(kept > 500, "a quarter of the limit");
    client.answer(&asked, &json!({}));
    assert_eq!(client.connector.retained(), 0);
    client.lose();
    assert_eq!(client.come_back().len(), 0, "no commit is repeated");
}

/// It may begin before that, and be taken for one that has them (simulator seed 193001086).
#[test]
fn a_checkpoint_is_asked_for_when_lost_commits_were_done_again() {
    let mut client = Client::new(Limits { commits_max: 2000, ..Limits::default() });
    let mut number = 0;
    let asked = |client: &mut Client| client.sent().into_iter().find(|m| m.rank == 0);
    while asked(&mut client).is_none() {
        number += 1;
        client.send(Message::ask("kvs.commit", number, &append("job-77", number.into())));
        let commit = client.sent().remove(0);
        client.answer(&commit, &json!({}));
    }
    client.lose();
    client.greet();
    let fence = client.sent().remove(0);
    client.answer(&fence, &json!({}));
    let look = client.sent().remove(0);
    assert_eq!(look.topic, "kvs.lookup-plus");
    client.answer(&look, &json!({ "errno": 2, "rootref": "root", "rootseq": 1 }));
    // The client goes on meanwhile.
    client.send(Message::ask("kvs.commit", 1000, &append("job-77", 1000)));
    let mut again = client.sent();
    assert!(again.iter().all(|message| message.topic == "kvs.commit"), "{again:?}");
    let last = again.remove(number as usize - 1);
    for commit in &again {
        client.answer(commit, &json!({}));
    }
    assert!(asked(&mut client).is_none(), "the last one is not done yet");
    client.answer(&last, &json!({}));
    assert_eq!(asked(&mut client).expect("a request").topic, "job-exec.checkpoint");
}

#[test]
fn where_nobody_makes_checkpoints_the_last_commits_are_kept() {
    let mut client = Client::new(Limits { commits_max: 2000, ..Limits::default() });
    for number in 1..100 {
        client.send(Message::ask("kvs.commit", number, &append("job-77", number.into())));
        for request in client.sent() {
            match request.topic.as_str() {
                "kvs.commit" => client.answer(&request, &json!({})),
                _ => client.refuse(&request, NO_SERVICE),
            }
        }
    }
    let kept = client.connector.retained();
    assert!((1000..2500).contains(&kept), "{kept}");
}

#[test]
fn where_checkpoints_are_made_nothing_is_dropped_while_their_maker_is_away() {
    let limits = Limits { commits_max: 1000, retained_max: 4000, ..Limits::default() };
    let mut client = Client::new(limits);
    let mut number = 0;
    let mut is_away = false;
    while client.connector.is_writable() {
        number += 1;
        client.send(Message::ask("kvs.commit", number, &append("job-77", number.into())));
        for request in client.sent() {
            match request.topic.as_str() {
                "kvs.commit" => client.answer(&request, &json!({})),
                _ if is_away => client.refuse(&request, NO_SERVICE),
                _ => {
                    client.answer(&request, &json!({}));
                    is_away = true;
                }
            }
        }
    }
    assert!(client.connector.retained() >= 4000, "up to the limit of all requests");
    client.pass(2.0);
    let asked = client.sent().remove(0);
    client.answer(&asked, &json!({}));
    assert!(client.connector.is_writable() && client.connector.retained() == 0);
}

#[test]
fn the_primary_namespace_is_left_without_marks() {
    let mut client = Client::new(Limits::default());
    client.send(Message::ask("kvs.commit", 1, &append("primary", 1)));
    let put = json!({ "namespace": "primary", "flags": 0, "ops": [{ "key": "a", "flags": 0 }] });
    client.send(Message::ask("kvs.commit", 2, &put));
    let sent = client.sent();
    assert!(sent.iter().all(|message| !message.payload.contains("resume")));
    client.lose();
    assert_eq!(client.heard(), [(1, RESET)], "the line would be appended twice");
    assert_eq!(client.come_back().len(), 1, "a value can be set twice");
}

#[test]
fn who_closes_removes_its_keys_from_a_namespace_that_is_no_jobs() {
    let mut client = Client::new(Limits::default());
    client.send(Message::ask("kvs.commit", 1, &append("other", 1)));
    let commit = client.sent().remove(0);
    client.answer(&commit, &json!({}));
    client.connector.farewell();
    let farewell = client.sent().remove(0);
    assert_eq!(farewell.json()["ops"][0]["key"], commit.json()["ops"][1]["key"]);
    assert_eq!(farewell.json()["ops"][0]["dirent"], Value::Null);
}

/// A client with one commit that is done and one that is not, whose broker is back and has
/// answered the commit without operations. Returns the lookup of the client's key.
fn client_that_settles() -> (Client, Message) {
    let mut client = Client::new(Limits::default());
    client.send(Message::ask("kvs.commit", 1, &append("other", 1)));
    let commit = client.sent().remove(0);
    client.answer(&commit, &json!({}));
    client.send(Message::ask("kvs.commit", 2, &append("other", 2)));
    client.sent();
    client.lose();
    client.heard();
    client.connector.connecting();
    client.connector.connected();
    for _ in ["greeting", "fence"] {
        let request = client.sent().remove(0);
        client.answer(&request, &json!({}));
    }
    let look = client.sent().remove(0);
    (client, look)
}

/// A client that has made one commit, and closes its connection.
fn closes_after_a_commit() -> (Client, Message) {
    closes_after_a_commit_on(None)
}

fn closes_after_a_commit_on(rank: Option<u32>) -> (Client, Message) {
    let mut client = Client::new(Limits::default());
    client.connector = client.connector.on_rank(rank);
    client.send(Message::ask("kvs.commit", 1, &append("job-5", 1)));
    let commit = client.sent().remove(0);
    client.answer(&commit, &json!({ "rootref": "r", "rootseq": 1 }));
    client.connector.closing(client.now);
    (client, commit)
}

#[test]
fn who_closes_hands_commits_over_that_no_checkpoint_has() {
    let (mut client, commit) = closes_after_a_commit();
    let bequest = client.sent().remove(0);
    assert_eq!(bequest.topic, "job-exec.keep-commits");
    let commits = json!([{ "number": 1, "commit": commit.json() }]);
    assert_eq!(
        bequest.json(),
        json!({ "id": 5, "client": "0000000000000007", "shell": false, "commits": commits })
    );
    assert!(client.connector.is_lingering());
    client.answer(&bequest, &json!({}));
    assert!(!client.connector.is_lingering());
    client.connector.farewell();
    assert!(client.sent().is_empty(), "the end of the job removes the key");
}

#[test]
fn commits_are_handed_over_when_the_broker_is_back() {
    let (mut client, _) = closes_after_a_commit();
    client.lose();
    assert!(client.connector.is_lingering());
    client.come_back();
    assert!(!client.connector.is_lingering());
}

#[test]
fn a_commit_that_was_sent_while_the_broker_was_away_is_handed_over_too() {
    let (mut client, _) = closes_after_a_commit();
    client.lose();
    client.send(Message::ask("kvs.commit", 2, &append("job-5", 2)));
    client.connector.connecting();
    client.connector.connected();
    let mut handed_over = Vec::new();
    loop {
        let sent = client.sent();
        if sent.is_empty() {
            break;
        }
        for request in sent {
            let commits = request.json()["commits"].as_array().map(Vec::len);
            handed_over.extend(commits.filter(|_| request.topic == "job-exec.keep-commits"));
            client.answer(&request, &json!({ "rootref": "r", "rootseq": 1 }));
        }
    }
    assert_eq!(handed_over, [2]);
}

#[test]
fn commits_are_offered_again_to_a_module_that_is_being_reloaded() {
    for errnum in [NO_SERVICE, NO_HOST] {
        let (mut client, _) = closes_after_a_commit();
        let bequest = client.sent().remove(0);
        client.refuse(&bequest, errnum);
        assert!(client.connector.is_lingering() && client.sent().is_empty(), "errno {errnum}");
        client.pass(0.1);
        assert_eq!(client.topics(), ["job-exec.keep-commits"], "errno {errnum}");
    }
}

/// Its broker is stopping, and may have passed the commits on to another rank, which has no such job.
#[test]
fn commits_of_a_clients_own_job_are_offered_again_to_its_own_rank() {
    for (job, rank, is_early) in [(5, None, true), (5, Some(3), false), (6, None, false)] {
        let (mut client, _) = closes_after_a_commit_on(rank);
        client.connector = client.connector.of_run(Some(Run { job, digest: "d".to_string() }));
        let bequest = client.sent().remove(0);
        client.refuse(&bequest, NO_ENTRY);
        assert_eq!(client.connector.is_lingering(), is_early, "job {job} on {rank:?}");
    }
}

#[test]
fn commits_are_handed_to_the_rank_of_the_clients_own_broker() {
    for (rank, asked) in [(None, ANY_RANK), (Some(3), 3)] {
        let (mut client, _) = closes_after_a_commit_on(rank);
        assert_eq!(client.sent().remove(0).rank, asked);
    }
}

#[test]
fn what_the_module_has_no_room_for_waits_for_a_checkpoint() {
    let (mut client, _) = closes_after_a_commit();
    let bequest = client.sent().remove(0);
    client.refuse(&bequest, NO_SPACE);
    assert!(client.connector.is_lingering());
    let checkpoint = client.sent().remove(0);
    assert_eq!((checkpoint.topic.as_str(), checkpoint.rank), ("job-exec.checkpoint", 0));
    client.answer(&checkpoint, &json!({}));
    assert!(!client.connector.is_lingering());
}

#[test]
fn who_is_no_client_of_a_job_on_this_rank_hands_nothing_over() {
    let (mut client, _) = closes_after_a_commit();
    let bequest = client.sent().remove(0);
    client.refuse(&bequest, NO_ENTRY);
    assert!(!client.connector.is_lingering());
}
#[test]
fn what_the_kvs_says_and_nobody_can_read_is_no_success() {
    let (mut client, look) = client_that_settles();
    client.answer(&look, &json!({ "val": { "data": "?" }, "rootref": "r", "rootseq": 1 }));
    assert_eq!(client.heard(), [(2, 71)]);
}

#[test]
fn a_commit_that_could_not_be_done_again_is_tried_again() {
    let (mut client, look) = client_that_settles();
    client.answer(&look, &json!({ "rootref": "r", "rootseq": 1 }));
    let again = client.sent();
    assert_eq!(again.len(), 2, "the namespace lacks both");
    client.refuse(&again[0], NO_SERVICE);
    assert_eq!(*client.connector.phase(), Phase::Settling);
    client.pass(0.2);
    assert!(client.topics().contains(&"kvs.commit".to_string()), "the fence");
}

#[test]
fn a_commit_to_a_namespace_that_is_gone_is_refused_at_once() {
    let mut client = Client::new(Limits::default());
    client.lose();
    client.come_back();
    client.send(Message::ask("kvs.commit", 1, &append("job-1", 1)));
    let commit = client.settle().remove(0);
    client.refuse(&commit, 95);
    assert_eq!(client.heard(), [(1, 95)], "repeated, it would be applied after later ones");
}

#[test]
fn the_first_commit_after_a_restart_waits_for_its_namespace() {
    let mut client = Client::new(Limits::default());
    client.lose();
    assert_eq!(client.come_back(), []);
    client.send(Message::ask("kvs.commit", 1, &append("job-1", 1)));
    client.send(lookup(2));
    let fence = client.sent().remove(0);
    assert_eq!(fence.json()["ops"], json!([]));
    client.refuse(&fence, 95);
    client.pass(0.2);
    let tags: Vec<u32> = client.settle().iter().map(|message| message.tag).collect();
    assert_eq!(tags, [1, 2], "the commit, then the lookup");
}

#[test]
fn a_checkpoint_that_fails_while_closing_is_no_reason_to_drop_commits() {
    let (mut client, _) = closes_after_a_commit();
    let bequest = client.sent().remove(0);
    client.refuse(&bequest, NO_SPACE);
    let checkpoint = client.sent().remove(0);
    client.refuse(&checkpoint, NO_SERVICE);
    assert!(client.connector.is_lingering());
    client.pass(2.0);
    assert_eq!(client.topics(), ["job-exec.keep-commits"]);
}

#[test]
fn a_key_that_another_shell_has_to_write_again_is_waited_for() {
    let mut client = Client::new(Limits::default());
    client.send(watch(1));
    client.sent();
    client.lose();
    let again = client.come_back();
    client.refuse(&again[0], NO_ENTRY);
    assert_eq!(client.heard(), [], "the key was there before");
    client.send(watch(2));
    let request = client.sent().remove(0);
    client.refuse(&request, NO_ENTRY);
    assert_eq!(client.heard(), [(2, NO_ENTRY)], "who is no shell may ask for what never was");
    client.send(Message::ask("service.add", 3, &json!({ "service": "1000-shell-fA" })));
    let request = client.sent().remove(0);
    client.answer(&request, &json!({}));
    client.heard();
    client.send(watch(4));
    let request = client.sent().remove(0);
    client.refuse(&request, NO_ENTRY);
    assert_eq!(client.heard(), [], "a shell's leader may just be coming back");
}

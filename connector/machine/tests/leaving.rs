//! One test for each rule of a shell that closes its connection and has answered requests of others.

#[path = "support/client.rs"]
mod client;
mod support;

use resume_machine::{Kind, Limits, Packet, Run};
use serde_json::json;

use client::Client;
use support::Message;

const SERVICE: &str = "1000-shell-fA";
/// Its job.
const JOB: u64 = 9;
/// The service of another job's shells.
const OTHER: &str = "1000-shell-fB";
const NEEDED: &str = "1000-shell-fA.resume-needed";
const NO_PROCESS: i32 = 3;
const NO_SERVICE: i32 = 38;
const NO_HOST: i32 = 113;
/// The rank of the other shell.
const RANK: u32 = 4;

fn exchange(tag: u32) -> Message {
    Message { rank: RANK, ..Message::ask(&format!("{SERVICE}.pmi-exchange"), tag, &json!({})) }
}

/// A shell that has answered the first request of a channel, and closes its connection.
fn closing(sender_hops: &[&str]) -> Client {
    let mut shell = Client::new(Limits::default());
    let mut hops = vec!["resume:07.1", "ask:1.1"];
    hops.extend(sender_hops);
    let hops: Vec<String> = hops.into_iter().map(str::to_string).collect();
    shell.receive(exchange(2).with_hops(&hops));
    let request = shell.connector.for_client().expect("a request");
    shell.send(request.answer("{}"));
    assert_eq!(shell.sent().len(), 1, "the answer");
    shell.connector.closing(shell.now);
    shell
}

/// It was asked by a shell, whose rank it asks whether it has the answer. Returns the question.
fn closing_and_asking() -> (Client, Message) {
    let mut shell = closing(&["home:4", "client"]);
    let mut asked = shell.sent();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!((asked[0].topic.as_str(), asked[0].rank), (NEEDED, RANK));
    assert_eq!(asked[0].json(), json!({ "from": "resume:07.1" }));
    assert!(shell.connector.is_lingering());
    (shell, asked.remove(0))
}

fn done(question: &Message, number: u64) -> Message {
    question.answer(&json!({ "done": number }).to_string())
}

/// The answer of a broker that is in RUN for so long.
fn runs(question: &Message, duration: f64) -> Message {
    assert_eq!((question.topic.as_str(), question.rank), ("state-machine.get", RANK));
    question.answer(&json!({ "state": "run", "duration": duration }).to_string())
}

#[test]
fn it_waits_until_the_sender_has_the_answer() {
    let (mut shell, question) = closing_and_asking();
    shell.receive(done(&question, 1));
    let again = shell.sent();
    assert_eq!(again.len(), 1, "it is sent again: {again:?}");
    assert_eq!(
        (again[0].kind, again[0].topic.as_str()),
        (Kind::Response, "1000-shell-fA.pmi-exchange")
    );
    assert!(shell.connector.is_lingering());
    shell.pass(0.1);
    let question = shell.sent().remove(0);
    shell.receive(done(&question, 2));
    assert!(!shell.connector.is_lingering());
    assert!(shell.topics().is_empty());
}

#[test]
fn it_does_not_ask_who_has_asked_for_no_answer() {
    let mut shell = Client::new(Limits::default());
    let hops = ["resume:07.1", "ask:1.1", "home:4"].map(str::to_string);
    shell.receive(Message::one_way(&format!("{SERVICE}.write"), &json!({})).with_hops(&hops));
    shell.connector.for_client().expect("a request");
    shell.connector.closing(shell.now);
    assert!(shell.topics().is_empty());
    assert!(!shell.connector.is_lingering());
}

#[test]
fn it_waits_while_the_sender_cannot_be_reached() {
    let (mut shell, mut question) = closing_and_asking();
    for _ in 0..20 {
        shell.receive(question.refusal(NO_HOST, "no host"));
        shell.pass(2.0);
        question = shell.sent().remove(0);
        assert!(shell.connector.is_lingering());
    }
    shell.receive(done(&question, 2));
    assert!(!shell.connector.is_lingering());
}

#[test]
fn a_question_that_is_lost_is_asked_again() {
    let (mut shell, first) = closing_and_asking();
    shell.pass(2.0);
    let second = shell.sent().remove(0);
    shell.receive(done(&first, 2));
    assert!(shell.connector.is_lingering(), "only the answer to the last question counts");
    shell.receive(done(&second, 2));
    assert!(!shell.connector.is_lingering());
}

#[test]
fn it_does_not_wait_for_a_sender_that_has_ended() {
    let (mut shell, question) = closing_and_asking();
    shell.receive(question.refusal(NO_SERVICE, "No service"));
    let asked = shell.sent();
    shell.receive(runs(&asked[0], 1000.0));
    assert!(!shell.connector.is_lingering());
}

/// On a busy node it can take long to be back.
#[test]
fn it_waits_for_a_sender_that_is_not_back_if_the_module_says_that_it_runs() {
    for (duration, errnum, waits) in
        [(1.0, NO_SERVICE, true), (30.0, NO_SERVICE, false), (30.0, 0, true)]
    {
        let (mut shell, question) = closing_and_asking();
        shell.receive(question.refusal(NO_SERVICE, "No service"));
        let asked = shell.sent();
        shell.receive(runs(&asked[0], duration));
        let [asked] = shell.sent().try_into().expect("one question");
        shell.receive(match errnum {
            0 => asked.answer("{}"),
            errnum => asked.refusal(errnum, "no"),
        });
        let what = format!("in RUN for {duration} s, errno {errnum}");
        assert_eq!(shell.connector.is_lingering(), waits, "{what}");
    }
}

#[test]
fn it_does_not_wait_for_a_sender_that_the_module_says_has_ended() {
    let (mut shell, question) = closing_and_asking();
    shell.receive(question.refusal(NO_SERVICE, "No service"));
    let asked = shell.sent();
    shell.receive(runs(&asked[0], 1.0));
    let asked = shell.sent();
    shell.receive(asked[0].refusal(NO_PROCESS, "it has ended"));
    assert!(!shell.connector.is_lingering());
}

#[test]
fn it_waits_for_a_sender_that_connects_again() {
    let (mut shell, question) = closing_and_asking();
    shell.receive(question.refusal(NO_SERVICE, "No service"));
    let asked = shell.sent();
    shell.receive(runs(&asked[0], 1.0));
    let asked = shell.sent();
    assert_eq!((asked[0].topic.as_str(), asked[0].rank), ("job-exec.shell-runs", RANK));
    shell.receive(asked[0].answer("{}"));
    assert!(shell.connector.is_lingering());
    shell.pass(2.0);
    let question = shell.sent().remove(0);
    shell.receive(done(&question, 2));
    assert!(!shell.connector.is_lingering());
}

#[test]
fn it_does_not_wait_for_one_that_cannot_say_what_it_needs() {
    let (mut shell, question) = closing_and_asking();
    shell.receive(question.refusal(NO_SERVICE, "Unknown service method 'x'"));
    assert!(!shell.connector.is_lingering(), "one that does not know the question");
    assert!(!closing(&["client"]).connector.is_lingering(), "a client that is no shell");
}

#[test]
fn it_waits_as_long_as_job_exec_waits_for_a_rank() {
    let (mut shell, question) = closing_and_asking();
    shell.receive(question.refusal(NO_HOST, "no host"));
    shell.pass(119.0);
    assert!(shell.connector.is_lingering());
    shell.pass(2.0);
    assert!(!shell.connector.is_lingering());
    assert_eq!(shell.connector.next_timeout(), None);
}

/// A client of the job on this rank.
fn on_rank(rank: u32) -> Client {
    let mut client = Client::new(Limits::default());
    let run = Run { job: JOB, digest: "first".to_string() };
    client.connector = client.connector.on_rank(Some(rank)).of_run(Some(run));
    client
}

/// The shell on rank 4 asks, and is answered.
fn answer_rank_4(shell: &mut Client) {
    let hops = ["resume:07.1", "ask:1.1", "home:4"].map(str::to_string);
    shell.receive(exchange(2).with_hops(&hops));
    let request = shell.connector.for_client().expect("a request");
    shell.send(request.answer("{}"));
}

/// A shell on rank 3, which has sent a line to the leader shell on rank 1, and one to a shell of
/// another job on rank 0, and has answered rank 4.
fn follower() -> Client {
    let mut shell = on_rank(3);
    shell.send(Message::ask("service.add", 1, &json!({ "service": SERVICE })));
    let asked = shell.sent();
    shell.receive(asked[0].answer("{}"));
    shell.heard();
    for (rank, service) in [(1, SERVICE), (0, OTHER)] {
        shell.send(Message { rank, ..Message::one_way(&format!("{service}.write"), &json!({})) });
    }
    answer_rank_4(&mut shell);
    shell.sent();
    shell
}

/// The sender is asked, and cannot be. Returns the question to the leader's module.
fn sender_is_out_of_reach(shell: &mut Client) -> Message {
    let needed = |asked: &Message| asked.topic == NEEDED && asked.rank == RANK;
    let question = shell.sent().into_iter().find(needed).expect("it asks");
    shell.receive(question.refusal(NO_HOST, "no host"));
    let asked = shell.sent().remove(0);
    assert_eq!((asked.topic.as_str(), asked.rank), ("job-exec.shell-runs", 1));
    asked
}

#[test]
fn it_waits_for_nobody_when_the_leader_shell_has_ended() {
    let mut shell = follower();
    shell.connector.closing(shell.now);
    let asked = sender_is_out_of_reach(&mut shell);
    shell.receive(asked.answer("{}"));
    shell.pass(0.1);
    let asked = sender_is_out_of_reach(&mut shell);
    shell.receive(asked.refusal(NO_PROCESS, "it has ended"));
    shell.pass(10.0);
    assert!(shell.sent().iter().all(|asked| asked.topic != NEEDED));
}

#[test]
fn the_leader_shell_does_not_wait_for_a_rank_that_was_given_up() {
    // It sends nothing to lower ranks.
    let mut shell = on_rank(1);
    answer_rank_4(&mut shell);
    shell.sent();
    shell.connector.closing(shell.now);
    for (answer, pause) in [(0, 0.1), (NO_SERVICE, 0.2), (NO_PROCESS, 0.4)] {
        let asked = sender_is_out_of_reach(&mut shell);
        assert_eq!(asked.json(), json!({ "id": JOB, "rank": RANK }));
        assert!(shell.connector.is_lingering());
        shell.receive(match answer {
            0 => asked.answer("{}"),
            errnum => asked.refusal(errnum, "no"),
        });
        shell.pass(pause);
    }
    assert!(!shell.connector.is_lingering());
    assert_eq!(shell.topics(), [""; 0]);
}

/// Until its end it has sent something to another shell only, which has ended (simulator seed
/// 5005106).
#[test]
fn a_shell_that_is_not_the_leader_shell_may_end_first() {
    let mut shell = on_rank(3);
    shell.send(Message {
        rank: 2,
        ..Message::ask(&format!("{SERVICE}.pmi-exchange"), 1, &json!({}))
    });
    let request = shell.sent().remove(0);
    shell.receive(request.refusal(NO_SERVICE, "no such service"));
    let question = shell.sent().into_iter().find(|sent| sent.topic == "state-machine.get");
    let answer = json!({ "state": "run", "duration": 1000.0 }).to_string();
    shell.receive(question.expect("whether its broker runs").answer(&answer));
    assert_eq!(shell.heard(), [(1, NO_SERVICE)]);
    answer_rank_4(&mut shell);
    shell.send(Message {
        rank: 1,
        ..Message::one_way(&format!("{SERVICE}.tasks-complete"), &json!({}))
    });
    shell.sent();
    shell.connector.closing(shell.now);
    assert!(shell.sent().iter().any(|asked| asked.topic == NEEDED));
}

#[test]
fn it_asks_again_when_its_own_broker_is_back() {
    let (mut shell, _) = closing_and_asking();
    shell.connector.lost(shell.now);
    assert!(shell.connector.is_lingering());
    shell.connector.connecting();
    shell.connector.connected();
    let mut asked = Vec::new();
    while let Some(message) = shell.connector.for_broker() {
        match message.topic.as_str() {
            "state-machine.wait" => shell.receive(message.answer("{}")),
            NEEDED => asked.push(message),
            _ => assert_eq!(message.kind, Kind::Response, "the answer, again: {message:?}"),
        }
    }
    shell.receive(done(&asked[0], 2));
    assert!(!shell.connector.is_lingering());
}

/// A shell on rank 3, which has sent a request through a channel, and that request.
fn sender() -> (Client, Message) {
    let mut shell = Client::new(Limits::default());
    shell.connector = shell.connector.on_rank(Some(3));
    shell.send(Message::ask("service.add", 1, &json!({ "service": SERVICE })));
    let asked = shell.sent();
    shell.receive(asked[0].answer("{}"));
    shell.send(exchange(2));
    shell.heard();
    let request = shell.sent().remove(0);
    (shell, request)
}

/// What it answers when it is asked which answers it needs.
fn needs(shell: &mut Client, from: &str) -> u64 {
    shell.receive(Message::ask(NEEDED, 9, &json!({ "from": from })));
    shell.sent()[0].json()["done"].as_u64().expect("a number")
}

#[test]
fn a_sender_says_where_it_is_and_which_answers_it_needs() {
    let (mut shell, request) = sender();
    let hops = request.hops();
    assert_eq!(hops[2..], ["home:3"]);
    assert_eq!(needs(&mut shell, &hops[0]), 1);
    let got = [hops[0].clone(), "got:1".to_string(), hops[2].clone()];
    shell.receive(request.with_hops(&got).answer("{}"));
    assert_eq!(shell.heard(), [(2, 0)]);
    assert_eq!(needs(&mut shell, &hops[0]), 2);
    assert!(needs(&mut shell, "resume:07.99") > 1 << 60, "there is no such channel: none");
}

#[test]
fn a_stranger_is_not_told() {
    let (mut shell, request) = sender();
    let from = json!({ "from": request.hops()[0] });
    shell.receive(Message { is_stranger: true, ..Message::ask(NEEDED, 9, &from) });
    assert_eq!(shell.sent(), []);
}

#[test]
fn an_answer_that_comes_twice_is_not_taken_for_that_of_a_later_request() {
    let (mut shell, request) = sender();
    let hops = request.hops();
    let answer = request.with_hops(&[hops[0].clone(), "got:1".to_string()]).answer("{}");
    shell.receive(answer.clone());
    assert_eq!(shell.heard(), [(2, 0)]);
    shell.send(Message::ask("kvs.lookup", 2, &json!({ "key": "a" })));
    let lookup = shell.sent().remove(0);
    shell.receive(answer);
    assert_eq!(shell.heard(), []);
    shell.receive(lookup.answer("{}"));
    assert_eq!(shell.heard(), [(2, 0)]);
}

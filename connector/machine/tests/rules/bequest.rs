//! One test for each rule of a shell that hands its commits over when it gives its service up, and of
//! another client that hands its own over when it closes its connection.

use resume_machine::{Limits, Packet};
use serde_json::json;

use super::client::Client;
use super::kvs::append;
use super::support::Message;

const SERVICE: &str = "1000-shell-fA";
const KEEP: &str = "job-exec.keep-commits";
const NO_ENTRY: i32 = 2;
const NO_PROCESS: i32 = 3;
const NO_SPACE: i32 = 28;
const BUSY: i32 = 16;
const NO_SERVICE: i32 = 38;

/// A shell that has committed, and has given its service up. Returns what it hands over.
fn at_its_end() -> (Client, Message) {
    at_its_end_with(Limits::default())
}

fn at_its_end_with(limits: Limits) -> (Client, Message) {
    let mut shell = Client::new(limits);
    shell.connector = shell.connector.on_rank(Some(3));
    shell.send(Message::ask("service.add", 3, &json!({ "service": SERVICE })));
    let add = shell.sent().remove(0);
    shell.receive(add.answer("{}"));
    shell.send(Message::ask("kvs.commit", 1, &append("job-9", 1)));
    shell.sent();
    shell.send(Message::ask("service.remove", 2, &json!({ "service": SERVICE })));
    let [remove, bequest] = shell.sent().try_into().expect("two messages");
    assert_eq!((remove.topic.as_str(), bequest.topic.as_str()), ("service.remove", KEEP));
    (shell, bequest)
}

/// How many commits it hands over now.
fn handed_over(shell: &mut Client) -> Vec<usize> {
    let sent = shell.sent();
    let bequests = sent.iter().filter(|message| message.topic == KEEP);
    bequests.filter_map(|message| Some(message.json()["commits"].as_array()?.len())).collect()
}

#[test]
fn what_a_shell_hands_over_at_its_end_it_does_not_hand_over_again() {
    for is_answered_before in [true, false] {
        let (mut shell, bequest) = at_its_end();
        if is_answered_before {
            shell.receive(bequest.answer("{}"));
        }
        shell.connector.closing(shell.now);
        assert_eq!(handed_over(&mut shell), [0; 0]);
        assert_eq!(shell.connector.is_lingering(), !is_answered_before);
        if !is_answered_before {
            shell.receive(bequest.answer("{}"));
        }
        assert!(!shell.connector.is_lingering());
    }
}

#[test]
fn it_says_that_it_is_the_shell_also_when_it_has_no_service_any_more() {
    let (mut shell, bequest) = at_its_end();
    assert_eq!(bequest.json()["shell"], true);
    let remove = Message::ask("service.remove", 2, &json!({ "service": SERVICE }));
    shell.answer(&remove, &json!({}));
    shell.receive(bequest.refusal(NO_SERVICE, "No service"));
    shell.connector.closing(shell.now);
    assert_eq!(shell.sent()[0].json()["shell"], true);
    let mut other = Client::new(Limits::default());
    other.send(Message::ask("kvs.commit", 1, &append("job-9", 1)));
    other.sent();
    other.connector.closing(other.now);
    assert_eq!(other.sent()[0].json()["shell"], false);
}

#[test]
fn what_it_has_committed_since_is_handed_over_with_the_rest() {
    for is_answered_before in [true, false] {
        let (mut shell, bequest) = at_its_end();
        if is_answered_before {
            shell.receive(bequest.answer("{}"));
        }
        shell.send(Message::ask("kvs.commit", 3, &append("job-9", 2)));
        shell.sent();
        shell.connector.closing(shell.now);
        let sent = shell.sent();
        assert_eq!(sent[0].json()["commits"].as_array().map(Vec::len), Some(2));
        if !is_answered_before {
            shell.receive(bequest.answer("{}"));
        }
        assert!(shell.connector.is_lingering(), "the newer one is not answered");
        shell.receive(sent[0].answer("{}"));
        assert!(!shell.connector.is_lingering());
    }
}

/// It waits for a checkpoint, so it cannot hand over the newer one yet (simulator seed 5023796).
#[test]
fn the_answer_to_an_earlier_bequest_is_not_for_what_it_has_committed_since() {
    let (mut shell, bequest) = at_its_end_with(Limits { commits_max: 1, ..Limits::default() });
    let commit = Message::ask("kvs.commit", 1, &append("job-9", 1));
    shell.answer(&commit, &json!({ "rootref": "r", "rootseq": 1 }));
    let checkpoint = shell.sent().remove(0);
    assert_eq!(checkpoint.topic, "job-exec.checkpoint");
    shell.send(Message::ask("kvs.commit", 3, &append("job-9", 2)));
    shell.sent();
    shell.connector.closing(shell.now);
    shell.receive(bequest.answer("{}"));
    assert!(shell.connector.is_lingering(), "the newer one is not handed over");
    shell.receive(checkpoint.answer("{}"));
    assert_eq!(handed_over(&mut shell), [1]);
}

#[test]
fn a_commit_that_was_refused_is_not_left_among_them() {
    let (mut shell, bequest) = at_its_end();
    shell.send(Message::ask("kvs.commit", 3, &append("job-9", 2)));
    let commit = shell.sent().remove(0);
    shell.receive(bequest.answer("{}"));
    shell.receive(commit.refusal(NO_PROCESS, "refused"));
    shell.connector.closing(shell.now);
    assert_eq!(handed_over(&mut shell), [1]);
}

#[test]
fn it_offers_them_again_when_it_closes_if_they_were_refused_or_lost() {
    let (mut shell, bequest) = at_its_end();
    shell.receive(bequest.refusal(NO_SERVICE, "No service"));
    assert_eq!(handed_over(&mut shell), [0; 0], "it has not closed its connection yet");
    shell.connector.closing(shell.now);
    assert_eq!(handed_over(&mut shell), [1]);
    let (mut shell, _) = at_its_end();
    shell.connector.lost(shell.now);
    shell.connector.closing(shell.now);
    shell.connector.connecting();
    shell.connector.connected();
    let mut handed = Vec::new();
    while let Some(message) = shell.connector.for_broker() {
        handed.extend(message.json()["commits"].as_array().map(Vec::len));
        shell.receive(message.answer(r#"{"rootref":"r","rootseq":1}"#));
    }
    assert_eq!(handed, [1]);
    assert!(!shell.connector.is_lingering());
}

#[test]
fn while_its_last_commits_are_written_it_offers_them_again() {
    let (mut shell, bequest) = at_its_end();
    shell.connector.closing(shell.now);
    shell.receive(bequest.refusal(BUSY, "its last commits are not written yet"));
    assert!(shell.connector.is_lingering());
    shell.pass(2.0);
    let again = shell.sent().remove(0);
    assert_eq!(
        (again.topic.as_str(), &again.json()["commits"]),
        (KEEP, &bequest.json()["commits"])
    );
    shell.receive(again.answer("{}"));
    assert!(!shell.connector.is_lingering());
}

/// A shell that closes its connection while the module of its rank is away for as long as the shell
/// offers its commits. Returns what it asks after that.
fn closes_while_its_module_stays_away() -> (Client, Message) {
    let (mut shell, bequest) = at_its_end();
    let commit = Message::ask("kvs.commit", 1, &append("job-9", 1));
    shell.answer(&commit, &json!({ "rootref": "r", "rootseq": 1 }));
    shell.connector.closing(shell.now);
    let mut asked = bequest;
    while asked.topic == KEEP {
        shell.receive(asked.refusal(NO_SERVICE, "No service"));
        shell.pass(2.0);
        asked = shell.sent().remove(0);
    }
    (shell, asked)
}

/// A module that is loaded while its systemd hangs is away for longer (simulator seed 20036248).
#[test]
fn if_the_module_of_its_rank_stays_away_it_waits_for_a_checkpoint() {
    let (mut shell, asked) = closes_while_its_module_stays_away();
    assert_eq!((asked.topic.as_str(), &asked.json()["id"]), ("job-exec.checkpoint", &json!(9)));
    assert!(shell.connector.is_lingering());
    shell.receive(asked.answer("{}"));
    assert!(!shell.connector.is_lingering());
}

#[test]
fn if_rank_0_has_no_module_either_it_asks_both_for_a_while() {
    let (mut shell, mut asked) = closes_while_its_module_stays_away();
    let mut seconds = 0;
    while shell.connector.is_lingering() {
        shell.receive(asked.refusal(NO_SERVICE, "No service"));
        shell.pass(2.0);
        seconds += 2;
        if let Some(next) = shell.sent().pop() {
            asked = next;
        }
    }
    assert!((20..120).contains(&seconds), "{seconds} s");
}

/// A command that closes its connection. Its broker is lost before it has answered the bequest, and is
/// back. Returns what it asks after the steps that each client takes.
fn closes_when_its_broker_is_lost() -> (Client, Message) {
    let mut command = Client::new(Limits::default());
    command.connector = command.connector.on_rank(Some(3));
    command.send(Message::ask("kvs.commit", 1, &append("job-9", 1)));
    let commit = command.sent().remove(0);
    command.receive(commit.answer(r#"{"rootref":"r","rootseq":1}"#));
    command.connector.closing(command.now);
    let bequest = command.sent().remove(0);
    assert!(bequest.json()["again"].is_null(), "{bequest:?}");
    command.connector.lost(command.now);
    command.connector.connecting();
    command.connector.connected();
    let question = settle(&mut command);
    (command, question)
}

/// Answers until the client asks something else than whether its broker runs, and than a commit
/// without operations.
fn settle(command: &mut Client) -> Message {
    loop {
        let [asked] = command.sent().try_into().expect("one message");
        let is_fence = asked.json()["ops"].as_array().is_some_and(Vec::is_empty);
        if asked.topic != "state-machine.wait" && !is_fence {
            return asked;
        }
        command.receive(asked.answer(r#"{"rootref":"r","rootseq":1}"#));
    }
}

/// Its rank may have them, and do them again: the client must not do the same.
#[test]
fn what_a_command_has_offered_before_it_leaves_to_its_rank() {
    let (mut command, bequest) = closes_when_its_broker_is_lost();
    assert_eq!((bequest.topic.as_str(), &bequest.json()["again"]), (KEEP, &json!(true)));
    assert_eq!(bequest.json()["commits"].as_array().map(Vec::len), Some(1));
    assert!(command.connector.is_lingering());
    command.receive(bequest.answer("{}"));
    assert!(!command.connector.is_lingering());
    assert_eq!(command.topics(), [""; 0]);
}

#[test]
fn it_asks_again_while_the_module_of_its_rank_is_not_there() {
    let (mut command, bequest) = closes_when_its_broker_is_lost();
    command.receive(bequest.refusal(NO_SERVICE, "No service"));
    assert_eq!(command.topics(), [""; 0], "a pause");
    command.pass(0.1);
    let bequest = settle(&mut command);
    assert_eq!(bequest.json()["again"], true);
    command.connector.lost(command.now);
    command.connector.connecting();
    command.connector.connected();
    let bequest = settle(&mut command);
    assert_eq!(bequest.json()["again"], true, "its broker was lost again");
    command.receive(bequest.answer("{}"));
    assert!(!command.connector.is_lingering());
}

#[test]
fn if_its_rank_does_not_take_them_it_does_them_itself() {
    for errnum in [NO_ENTRY, NO_SPACE] {
        let (mut command, bequest) = closes_when_its_broker_is_lost();
        command.receive(bequest.refusal(errnum, "no"));
        let look = settle(&mut command);
        assert_eq!(look.topic, "kvs.lookup-plus", "errno {errnum}");
        command.receive(look.answer(r#"{"val":null,"rootref":"r","rootseq":0}"#));
        let commit = command.sent().remove(0);
        assert_eq!(commit.topic, "kvs.commit", "errno {errnum}");
        command.receive(commit.answer(r#"{"rootref":"r","rootseq":1}"#));
        let bequest = command.sent().remove(0);
        assert_eq!(bequest.topic, KEEP, "it is still nobody's: errno {errnum}");
        assert!(bequest.json()["again"].is_null(), "it has done them: {bequest:?}");
        command.receive(bequest.answer("{}"));
        assert!(!command.connector.is_lingering());
    }
}

/// It goes on, and its rank may give the commits up.
#[test]
fn who_does_not_close_does_them_itself() {
    let mut client = Client::new(Limits::default());
    client.send(Message::ask("kvs.commit", 1, &append("job-9", 1)));
    client.send(Message::ask("service.remove", 2, &json!({ "service": SERVICE })));
    assert_eq!(handed_over(&mut client), [1], "it looks like a shell that ends");
    client.connector.lost(client.now);
    client.connector.connecting();
    client.connector.connected();
    let wait = client.sent().remove(0);
    client.receive(wait.answer("{}"));
    assert_eq!(settle(&mut client).topic, "kvs.lookup-plus");
}

/// Its rank waits until it has ended.
#[test]
fn a_shell_does_them_itself() {
    let (mut shell, _) = at_its_end();
    shell.connector.closing(shell.now);
    shell.connector.lost(shell.now);
    shell.connector.connecting();
    shell.connector.connected();
    let [add] = {
        let wait = shell.sent().remove(0);
        shell.receive(wait.answer("{}"));
        shell.sent().try_into().expect("one message")
    };
    shell.receive(add.answer("{}"));
    assert_eq!(settle(&mut shell).topic, "kvs.lookup-plus");
}

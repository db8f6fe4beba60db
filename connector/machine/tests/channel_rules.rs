//! One test for each rule of channels between shells.

#[path = "support/client.rs"]
mod client;
mod support;

use resume_machine::{Connector, Kind, Limits, Packet, Run, SendError, ends_shell};
use serde_json::{Value, json};

use client::Client;
use support::Message;

const SERVICE: &str = "1000-shell-fA";
const NO_ENTRY: i32 = 2;
const NO_PROCESS: i32 = 3;
const TRY_AGAIN: i32 = 11;
const NO_SERVICE: i32 = 38;
const NO_HOST: i32 = 113;
/// The rank of the receiver.
const RANK: u32 = 4;

impl Client {
    /// A shell: it has registered its service.
    fn shell() -> Self {
        let mut shell = Self::new(Limits::default());
        shell.send(Message::ask("service.add", 1, &json!({ "service": SERVICE })));
        let asked = shell.sent();
        shell.receive(asked[0].answer("{}"));
        shell.heard();
        shell
    }

    /// A shell that closes after it has sent a message, and its question what has arrived.
    fn closing() -> (Self, Message) {
        let mut shell = Self::shell();
        shell.send(write(0));
        shell.sent();
        shell.connector.closing(shell.now);
        let mut questions = shell.sent();
        assert_eq!(questions.len(), 1, "{questions:?}");
        assert!(shell.connector.is_lingering());
        (shell, questions.remove(0))
    }

    /// Answers each question with this error until none is asked any more, for at most a minute.
    fn refuse_questions(&mut self, errnum: i32) {
        for _ in 0..120 {
            for request in self.sent() {
                if request.topic == "state-machine.get" {
                    self.receive(runs(&request, self.now));
                } else {
                    self.receive(request.refusal(errnum, "No service matching x is registered"));
                }
            }
            self.pass(0.5);
        }
    }
}

fn write(number: u64) -> Message {
    let message = Message::one_way(&format!("{SERVICE}.write"), &json!({ "n": number }));
    Message { rank: RANK, ..message }
}

fn exchange(tag: u32) -> Message {
    Message { rank: RANK, ..Message::ask(&format!("{SERVICE}.pmi-exchange"), tag, &json!({})) }
}

/// The answer of a broker that is in RUN for so long.
fn runs(question: &Message, duration: f64) -> Message {
    question.answer(&json!({ "state": "run", "duration": duration }).to_string())
}

fn received(question: &Message, number: u64) -> Message {
    question.answer(&json!({ "received": number }).to_string())
}

/// The answer of a receiver to a request.
fn answered(request: &Message, payload: &Value) -> Message {
    let mut hops = request.hops();
    let number = hops[1].trim_start_matches("ask:").split('.').next().map(str::to_string);
    hops[1] = format!("got:{}", number.expect("a number"));
    request.with_hops(&hops).answer(&payload.to_string())
}

#[test]
fn what_is_no_request_to_a_shell_goes_as_it_came() {
    let mut sender = Client::shell();
    let stream = Message { streaming: true, ..exchange(2) };
    let tool = Message { topic: format!("{SERVICE}.rexec.exec"), ..exchange(3) };
    let any = Message { rank: u32::MAX, ..exchange(4) };
    let passed_on = exchange(5).with_hops(&["proxy".to_string()]);
    for message in [stream, tool, any, passed_on] {
        sender.send(message.clone());
        assert_eq!(sender.sent(), [message]);
    }
}

#[test]
fn the_receiver_is_asked_after_a_while_and_what_it_lacks_is_sent_again() {
    let mut sender = Client::shell();
    for number in 0..3 {
        sender.send(write(number));
    }
    assert_eq!(sender.sent().len(), 3);
    sender.pass(2.0);
    let questions = sender.sent();
    assert_eq!(questions.len(), 1, "{questions:?}");
    sender.receive(received(&questions[0], 1));
    let again: Vec<Value> =
        sender.sent().iter().map(|message| message.json()["n"].clone()).collect();
    assert_eq!(again, [1, 2]);
    assert!(sender.connector.is_lingering());
    sender.pass(2.0);
    let questions = sender.sent();
    sender.receive(received(&questions[0], 3));
    assert!(!sender.connector.is_lingering());
    assert_eq!(sender.connector.retained(), 0);
}

#[test]
fn an_answer_says_that_all_before_it_has_arrived() {
    let mut sender = Client::shell();
    sender.send(write(0));
    sender.send(exchange(2));
    let sent = sender.sent();
    sender.receive(answered(&sent[1], &json!({})));
    assert_eq!(sender.heard(), [(2, 0)]);
    assert!(!sender.connector.is_lingering());
}

#[test]
fn while_the_receiver_cannot_be_reached_nothing_is_sent_or_refused() {
    let mut sender = Client::shell();
    sender.send(exchange(2));
    let sent = sender.sent();
    sender.receive(sent[0].refusal(NO_HOST, "no host"));
    sender.send(write(0));
    sender.refuse_questions(NO_HOST);
    assert_eq!(sender.heard(), []);
    sender.pass(2.0);
    let questions = sender.sent();
    assert_eq!(questions.len(), 1, "{questions:?}");
    sender.receive(received(&questions[0], 0));
    assert_eq!(sender.topics(), [format!("{SERVICE}.pmi-exchange"), format!("{SERVICE}.write")]);
}

#[test]
fn a_shell_that_has_ended_is_told_of_after_its_broker_ran_without_it_for_a_while() {
    let mut sender = Client::shell();
    sender.send(exchange(2));
    sender.send(write(0));
    let sent = sender.sent();
    sender.receive(sent[0].refusal(NO_SERVICE, "No service"));
    assert_eq!(sender.heard(), [], "it may be back soon");
    sender.refuse_questions(NO_SERVICE);
    assert_eq!(sender.heard(), [(2, NO_SERVICE)]);
    assert_eq!(sender.connector.retained(), 0);
}

/// A client that is no shell sends to one, whose broker has been in RUN for so long, and lacks the
/// service.
fn refused_by_a_broker(duration: f64) -> Client {
    let mut sender = Client::new(Limits::default());
    sender.send(exchange(2));
    let sent = sender.sent();
    sender.receive(sent[0].refusal(NO_SERVICE, "No service"));
    let question = sender.sent();
    sender.receive(runs(&question[0], duration));
    sender
}

#[test]
fn a_service_that_a_broker_lacks_which_has_run_for_long_is_told_of_at_once() {
    let mut sender = refused_by_a_broker(3600.0);
    assert_eq!(sender.heard(), [(2, NO_SERVICE)]);
}

/// On a busy node a shell can take long to be back.
#[test]
fn a_service_that_is_not_back_has_ended_if_its_module_does_not_say_that_it_runs() {
    for (duration, errnum, has_ended) in [
        (30.0, NO_PROCESS, true),
        (30.0, NO_SERVICE, true),
        (30.0, NO_ENTRY, true),
        (30.0, 0, false),
        (30.0, NO_HOST, false),
        (30.0, TRY_AGAIN, false),
        (1.0, NO_PROCESS, true),
        (1.0, NO_SERVICE, false),
    ] {
        let mut sender = refused_by_a_broker(duration);
        let [asked] = sender.sent().try_into().expect("one question");
        assert_eq!((asked.topic.as_str(), asked.rank), ("job-exec.shell-runs", RANK));
        sender.receive(match errnum {
            0 => asked.answer("{}"),
            errnum => asked.refusal(errnum, "no"),
        });
        let told = if has_ended { vec![(2, NO_SERVICE)] } else { vec![] };
        assert_eq!(sender.heard(), told, "in RUN for {duration} s, errno {errnum}");
    }
}

fn input(tag: u32) -> Message {
    let payload = json!({ "stream": "stdin", "rank": "all", "eof": true });
    Message { rank: RANK, ..Message::ask(&format!("{SERVICE}.stdin"), tag, &payload) }
}

/// The shell may have had the input, and have ended because of it, while the answer was lost. Then
/// `flux job attach` would end with an error before it has shown the rest of the output (chaos seed
/// 6909).
#[test]
fn input_that_a_shell_may_have_had_before_a_loss_counts_as_taken_when_it_has_ended() {
    let mut sender = Client::new(Limits::default());
    sender.send(input(2));
    sender.send(exchange(3));
    sender.sent();
    sender.connector.lost(sender.now);
    sender.send(input(4));
    sender.connector.connected();
    let asked = sender.sent();
    sender.receive(asked[0].answer("{}"));
    sender.refuse_questions(NO_SERVICE);
    assert_eq!(sender.heard(), [(2, 0), (3, NO_SERVICE), (4, NO_SERVICE)]);
    assert_eq!(sender.connector.retained(), 0);
}

#[test]
fn input_that_a_shell_does_not_take_before_it_ends_is_refused_if_nothing_was_lost() {
    let mut sender = Client::new(Limits::default());
    sender.send(input(2));
    let sent = sender.sent();
    sender.receive(sent[0].refusal(NO_SERVICE, "No service"));
    sender.refuse_questions(NO_SERVICE);
    assert_eq!(sender.heard(), [(2, NO_SERVICE)]);
}

/// `flux job attach` by a user who could not know that a broker was away.
#[test]
fn a_client_of_a_shell_waits_until_that_is_connected_again() {
    let mut sender = refused_by_a_broker(1.5);
    let asked = sender.sent();
    sender.receive(asked[0].answer("{}"));
    sender.pass(2.0);
    let questions = sender.sent();
    assert_eq!(questions.len(), 1, "{questions:?}");
    sender.receive(received(&questions[0], 0));
    assert_eq!(sender.topics(), [format!("{SERVICE}.pmi-exchange")]);
    assert_eq!(sender.heard(), []);
}

#[test]
fn a_receiver_that_does_not_know_channels_gets_everything_as_without_them() {
    let mut sender = Client::shell();
    sender.send(write(0));
    sender.send(exchange(2));
    sender.sent();
    sender.pass(2.0);
    let questions = sender.sent();
    sender.receive(questions[0].refusal(NO_SERVICE, "Unknown service method 'x'"));
    assert!(!sender.connector.is_lingering());
    sender.send(write(1));
    assert_eq!(sender.sent(), [write(1)]);
    assert_eq!(sender.heard(), [], "the exchange goes on");
}

#[test]
fn a_method_that_a_receiver_without_channels_does_not_know_is_refused_at_once() {
    let mut sender = Client::shell();
    sender.send(exchange(2));
    let sent = sender.sent();
    sender.receive(sent[0].refusal(NO_SERVICE, "Unknown service method 'x'"));
    assert_eq!(sender.heard(), [(2, NO_SERVICE)]);
}

#[test]
fn a_receiver_that_never_says_what_it_has_stops_the_sender_at_the_limit() {
    let mut sender = Client::new(Limits { retained_max: 2000, ..Limits::default() });
    let mut taken = 0;
    while sender.connector.send(0.0, write(taken)) == Ok(()) {
        taken += 1;
        sender.sent();
        assert!(taken < 100, "there is a limit");
    }
    assert_eq!(sender.connector.send(0.0, write(taken)), Err(SendError::Full));
    sender.pass(2.0);
    let questions = sender.sent();
    sender.receive(received(&questions[0], taken));
    assert!(sender.connector.is_writable());
}

#[test]
fn a_shell_ends_when_it_gives_its_own_service_up() {
    let ends = |topic, service| ends_shell(&Message::ask(topic, 2, &json!({ "service": service })));
    assert!(ends("service.remove", SERVICE));
    // A plugin of the shell has had this one.
    assert!(!ends("service.remove", "tool"));
    assert!(!ends("service.add", SERVICE));
}

#[test]
fn who_closes_asks_at_once_and_waits_until_all_has_arrived() {
    let (mut sender, question) = Client::closing();
    sender.receive(received(&question, 1));
    assert!(!sender.connector.is_lingering());
}

#[test]
fn who_closes_does_not_wait_for_a_shell_that_has_ended_before() {
    let (mut sender, question) = Client::closing();
    sender.receive(question.refusal(NO_SERVICE, "No service"));
    let asked = sender.sent();
    sender.receive(runs(&asked[0], 1000.0));
    assert!(!sender.connector.is_lingering());
}

#[test]
fn who_closes_waits_for_a_receiver_that_connects_again() {
    let (mut sender, question) = Client::closing();
    sender.receive(question.refusal(NO_SERVICE, "No service"));
    let asked = sender.sent();
    assert_eq!(asked[0].topic, "state-machine.get");
    sender.receive(runs(&asked[0], 1.0));
    // The rank's module says that the receiver runs.
    let asked = sender.sent();
    assert_eq!((asked[0].topic.as_str(), asked[0].rank), ("job-exec.shell-runs", RANK));
    assert_eq!(asked[0].json(), json!({ "id": 9 }));
    sender.receive(asked[0].answer("{}"));
    sender.pass(2.0);
    assert!(sender.connector.is_lingering());
    let questions = sender.sent();
    sender.receive(received(&questions[0], 0));
    assert_eq!(sender.topics(), [format!("{SERVICE}.write")]);
    assert!(sender.connector.is_lingering());
}

/// The leader's shell gives its service up some milliseconds before it ends.
#[test]
fn who_closes_waits_only_for_a_moment_for_a_shell_that_is_ending() {
    let (mut sender, question) = Client::closing();
    sender.receive(question.refusal(NO_SERVICE, "No service"));
    for pause in [0.01, 0.02, 0.04] {
        let asked = sender.sent();
        sender.receive(runs(&asked[0], 1.0));
        let asked = sender.sent();
        sender.receive(asked[0].answer("{}"));
        assert_eq!(sender.sent(), []);
        sender.pass(pause);
        let [asked] = sender.sent().try_into().expect("one question");
        assert_eq!(asked.topic, format!("{SERVICE}.resume-received"));
        sender.receive(asked.refusal(NO_SERVICE, "No service"));
    }
}

#[test]
fn nothing_is_sent_to_a_shell_that_may_come_back_before_it_has_said_what_it_has() {
    let mut sender = Client::shell();
    sender.send(write(0));
    sender.sent();
    sender.pass(2.0);
    let asked = sender.sent();
    sender.receive(asked[0].refusal(NO_SERVICE, "No service"));
    let asked = sender.sent();
    sender.send(write(1));
    sender.receive(runs(&asked[0], 1.0));
    let asked = sender.sent();
    sender.receive(asked[0].answer("{}"));
    assert_eq!(sender.sent(), []);
    sender.pass(0.01);
    let [asked] = sender.sent().try_into().expect("one question");
    sender.receive(received(&asked, 0));
    assert_eq!(sender.topics(), [format!("{SERVICE}.write"), format!("{SERVICE}.write")]);
}

/// No job id has a zero. No module can say whether it runs.
#[test]
fn a_service_of_no_known_job_is_asked_again_until_its_broker_has_run_for_a_while() {
    let mut sender = Client::new(Limits::default());
    sender.send(Message { topic: "1000-shell-f0.pmi-exchange".to_string(), ..exchange(2) });
    let sent = sender.sent();
    sender.receive(sent[0].refusal(NO_SERVICE, "No service"));
    let asked = sender.sent();
    sender.receive(runs(&asked[0], 1.0));
    assert_eq!(sender.sent(), []);
    sender.pass(0.1);
    let [asked] = sender.sent().try_into().expect("one question");
    sender.receive(asked.refusal(NO_SERVICE, "No service"));
    let asked = sender.sent();
    sender.receive(runs(&asked[0], 11.0));
    assert_eq!(sender.heard(), [(2, NO_SERVICE)]);
}

/// In a new instance every broker is back for only a short time.
#[test]
fn who_closes_does_not_wait_for_a_shell_that_the_module_says_has_ended() {
    let (mut sender, question) = Client::closing();
    sender.receive(question.refusal(NO_SERVICE, "No service"));
    let asked = sender.sent();
    sender.receive(runs(&asked[0], 1.0));
    let asked = sender.sent();
    assert!(sender.connector.is_lingering());
    sender.receive(asked[0].refusal(NO_PROCESS, "it has ended"));
    assert!(!sender.connector.is_lingering());
}

#[test]
fn a_module_that_does_not_know_is_no_help() {
    let (mut sender, question) = Client::closing();
    for errnum in [NO_SERVICE, TRY_AGAIN, NO_ENTRY] {
        let question = if errnum == NO_SERVICE {
            question.clone()
        } else {
            sender.pass(2.0);
            sender.sent().remove(0)
        };
        sender.receive(question.refusal(NO_SERVICE, "No service"));
        let asked = sender.sent();
        sender.receive(runs(&asked[0], 1.0));
        let asked = sender.sent();
        sender.receive(asked[0].refusal(errnum, "no"));
        assert!(sender.connector.is_lingering());
    }
}

#[test]
fn a_receiver_that_ends_before_it_reads_the_question_is_asked_again() {
    let (mut sender, first) = Client::closing();
    sender.pass(2.0);
    let second = sender.sent();
    assert_eq!(second.len(), 1, "{second:?}");
    sender.pass(2.0);
    assert_eq!(sender.sent(), [], "the pauses grow");
    sender.receive(received(&first, 1));
    assert!(sender.connector.is_lingering(), "only the answer to the last question counts");
    sender.receive(received(&second[0], 1));
    assert!(!sender.connector.is_lingering());
}

#[test]
fn a_receivers_broker_that_does_not_say_whether_it_runs_is_asked_again() {
    let (mut sender, question) = Client::closing();
    sender.receive(question.refusal(NO_SERVICE, "No service"));
    assert_eq!(sender.topics(), ["state-machine.get"]);
    sender.pass(2.0);
    let again = sender.sent();
    assert_eq!(again.len(), 1, "{again:?}");
    sender.receive(again[0].refusal(NO_SERVICE, "No service"));
    let asked = sender.sent();
    sender.receive(runs(&asked[0], 1000.0));
    assert!(!sender.connector.is_lingering());
}

#[test]
fn a_question_is_asked_again_also_if_a_request_has_found_no_service_meanwhile() {
    let mut sender = Client::shell();
    sender.send(exchange(2));
    let exchange = sender.sent().remove(0);
    sender.send(write(0));
    sender.connector.closing(sender.now);
    sender.sent();
    // The receiver has ended before it has read the question.
    sender.receive(exchange.refusal(NO_SERVICE, "No service"));
    assert_eq!(sender.sent(), []);
    sender.pass(2.0);
    let again = sender.sent();
    assert_eq!(again.len(), 1, "{again:?}");
}

#[test]
fn how_often_a_receiver_was_out_of_reach_does_not_delay_a_question_that_is_lost() {
    let (mut sender, question) = Client::closing();
    sender.receive(question.refusal(NO_HOST, "no host"));
    sender.refuse_questions(NO_HOST);
    // Lost.
    sender.pass(2.0);
    assert_eq!(sender.sent().len(), 1);
    sender.pass(2.0);
    assert_eq!(sender.sent().len(), 1);
}

#[test]
fn a_broker_that_is_only_just_starting_has_nothing_to_say_of_a_receiver() {
    let (mut sender, question) = Client::closing();
    sender.receive(question.refusal(11, "Upstream Flux broker is offline. Try again later."));
    assert!(sender.connector.is_lingering());
    sender.pass(2.0);
    let again = sender.sent();
    sender.receive(received(&again[0], 1));
    assert!(!sender.connector.is_lingering());

    let mut sender = Client::shell();
    sender.send(exchange(2));
    let sent = sender.sent();
    sender.receive(sent[0].refusal(11, "Upstream Flux broker is offline. Try again later."));
    assert_eq!(sender.heard(), []);
}

#[test]
fn what_was_sent_while_the_broker_is_away_is_waited_for_when_closing() {
    let mut sender = Client::shell();
    sender.connector.lost(sender.now);
    sender.send(write(0));
    sender.connector.closing(sender.now);
    assert!(sender.connector.is_lingering());
}

#[test]
fn another_process_of_the_service_gets_what_is_kept_as_new() {
    let mut sender = Client::shell();
    sender.send(exchange(2));
    let sent = sender.sent();
    sender.receive(answered(&sent[0], &json!({})));
    sender.send(write(0));
    let before = sender.sent();
    sender.pass(2.0);
    let questions = sender.sent();
    sender.receive(received(&questions[0], 0));
    let again = sender.sent();
    assert_ne!(again[0].hops(), before[0].hops());
    assert!(again[0].hops()[1].starts_with("ask:1."), "{again:?}");
}

/// A request as it arrives at the receiver.
fn arrives(connector: &mut Connector<Message>, message: &Message, number: u64) {
    let hops = ["resume:07.1".to_string(), format!("ask:{number}.1"), "client".to_string()];
    connector.receive(0.0, message.with_hops(&hops));
}

#[test]
fn the_receiver_takes_each_once_and_answers_again_who_asks_again() {
    let mut connector = Connector::new(9, Limits::default(), true, 0.0);
    arrives(&mut connector, &exchange(2), 1);
    arrives(&mut connector, &exchange(2), 1);
    let delivered = connector.for_client().expect("a request");
    assert!(connector.for_client().is_none());
    connector.send(0.0, delivered.answer("{}")).expect("there is room");
    let answer = connector.for_broker().expect("the answer");
    assert_eq!((answer.kind, answer.hops()[1].as_str()), (Kind::Response, "got:1"));
    assert_eq!(answer.hops().last().map(String::as_str), Some("client"));
    arrives(&mut connector, &exchange(2), 1);
    assert_eq!(connector.for_broker(), Some(answer));
    arrives(&mut connector, &write(9), 3);
    assert!(connector.for_client().is_none(), "2 is not here yet");
}

#[test]
fn an_answer_that_is_given_without_a_connection_is_sent_later() {
    let mut connector = Connector::new(9, Limits::default(), true, 0.0);
    arrives(&mut connector, &exchange(2), 1);
    let delivered = connector.for_client().expect("a request");
    connector.lost(0.0);
    connector.send(0.0, delivered.answer("{}")).expect("answers are taken");
    connector.connecting();
    connector.connected();
    let mut answers = Vec::new();
    while let Some(message) = connector.for_broker() {
        match message.kind {
            Kind::Request => connector.receive(0.0, message.answer("{}")),
            _ => answers.push(message.topic),
        }
    }
    assert_eq!(answers, [format!("{SERVICE}.pmi-exchange")]);
}

#[test]
fn that_a_sender_is_gone_is_no_request_of_its_channel() {
    let mut connector = Connector::new(9, Limits::default(), true, 0.0);
    arrives(&mut connector, &exchange(2), 1);
    let delivered = connector.for_client().expect("a request");
    connector.send(0.0, delivered.answer("{}")).expect("there is room");
    connector.for_broker().expect("the answer");
    let gone = Message { topic: format!("{SERVICE}.disconnect"), noresponse: true, ..exchange(2) };
    for number in [1, 2] {
        arrives(&mut connector, &gone, number);
        assert_eq!(connector.for_client().map(|message| message.topic), Some(gone.topic.clone()));
        assert!(connector.for_broker().is_none(), "it gets no answer");
    }
    arrives(&mut connector, &write(9), 2);
    assert!(connector.for_client().is_some(), "its number is still free");
}

/// A client of this run of job 9, whose shells' service is [`SERVICE`].
fn of_run(digest: &str) -> Client {
    let mut client = Client::new(Limits::default());
    let run = Run { job: 9, digest: digest.to_string() };
    client.connector = client.connector.of_run(Some(run)).on_rank(Some(3));
    client
}

#[test]
fn a_sender_says_of_which_run_of_the_receivers_job_it_is() {
    let mut client = of_run("0123456789abcdef0123");
    client.send(write(0));
    let hops = client.sent().remove(0).hops();
    assert_eq!(hops[2..], ["run:0123456789abcdef"], "it is no shell");
    client.pass(2.0);
    assert_eq!(client.sent().remove(0).json()["run"], "0123456789abcdef");
    let topic = "1000-shell-fB.write";
    client.send(Message { rank: RANK, ..Message::one_way(topic, &json!({})) });
    assert_eq!(client.sent().remove(0).hops().len(), 2, "of another job");
}

/// Seen by `tests/chaos`, seed 5102: the output of a run that the KVS had forgotten was in that of the
/// next one.
#[test]
fn a_receiver_takes_nothing_from_another_run_of_its_job() {
    let mut receiver = of_run("second");
    let question = |run: &str| {
        let question = json!({ "from": "resume:08.1", "done": 1, "run": run });
        Message::ask(&format!("{SERVICE}.resume-received"), 5, &question)
    };
    for (run, taken) in [("first", 0), ("second", 1)] {
        let hops = ["resume:08.1", "ask:1.1", "home:4", &format!("run:{run}")].map(str::to_string);
        receiver.receive(write(0).with_hops(&hops));
        receiver.receive(question(run));
        assert_eq!(receiver.heard().len(), taken, "{run}");
        let answer = receiver.sent().remove(0);
        let expected = if taken == 0 { (NO_HOST, json!(null)) } else { (0, json!(taken)) };
        let said = serde_json::from_slice::<Value>(answer.payload()).unwrap_or_default();
        assert_eq!((answer.errnum, said["received"].clone()), expected, "{run}");
    }
}

#[test]
fn a_stranger_cannot_use_a_channel() {
    let mut connector = Connector::new(9, Limits::default(), true, 0.0);
    let stranger = Message { is_stranger: true, ..exchange(2) };
    arrives(&mut connector, &stranger, 1);
    arrives(&mut connector, &stranger, 1);
    let delivered: Vec<Message> = std::iter::from_fn(|| connector.for_client()).collect();
    assert_eq!(delivered.len(), 2, "as without channels: the shell refuses them itself");
    arrives(&mut connector, &exchange(2), 1);
    assert!(connector.for_client().is_some(), "the number is still free");
}

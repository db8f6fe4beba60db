//! One rank that hears the messages of `rfc/0002-messages.md`.

use job_exec_rs::config::Config;
use job_exec_rs::machine::{
    Answer, Creation, Credential, Effect, Effects, Event, Facts, KvsOp, KvsResult, MonoTime, Node,
    Now, RequestId, Topic,
};
use job_exec_rs::port::supervisor::{Method, SupervisorEvent, UnitCommand, UnitEvent};
use job_exec_rs::proto::peer::StreamEnd;
use job_exec_rs::proto::{BrokerRank, Idset, InstanceId, JobId, Stream, UnitName, WallTime};
use serde_json::{Value, json};

use super::examples;

/// The job of the examples.
const JOB: JobId = JobId(6_731_191_091_200);

/// A rank, at the time of the examples.
struct Rank {
    node: Node,
    effects: Effects,
    unit: UnitName,
    now: Now,
}

impl Rank {
    /// A rank without jobs, whose supervisor is ready.
    fn new(rank: u32) -> Self {
        let rank = BrokerRank(rank);
        let instance = InstanceId::new("/var/lib/flux/job-exec", 1000);
        let facts = Facts {
            rank,
            hostname: "node".to_string(),
            owner: 1000,
            directory: String::new(),
            instance: instance.clone(),
            size: 100,
            uptime: f64::INFINITY,
            shell_uri: "resume:///run/flux/local".to_string(),
            no_connector: None,
            job_shell: "/usr/libexec/flux/flux-shell".to_string(),
            nested: false,
            brokers_return: true,
            confines: false,
            working_directory: Some("/var/lib/flux".to_string()),
        };
        let node = Node::new(Config::default(), facts);
        let unit = UnitName::new(false, rank, JOB, instance);
        let now = Now { mono: MonoTime(1.0), wall: WallTime(1_731_331_101.0) };
        let mut rank = Self { node, effects: Effects::default(), unit, now };
        rank.hear(Event::Supervisor(SupervisorEvent::Ready {
            method: Method::Systemd,
            notice: None,
        }));
        rank
    }

    /// Rank 0, which leads the job alone. Its shell runs.
    fn leading() -> Self {
        let mut rank = Self::new(0);
        let mut start = examples().remove("start").expect("a start request");
        start["R"]["execution"]["R_lite"][0]["rank"] = json!("0");
        start["R"]["execution"]["nodelist"] = json!(["node0"]);
        rank.receive(Topic::Start, 1, &start);
        // It was allocated before this coordinator came up.
        rank.hear_kvs(KvsResult::Released(Ok(Idset::new())));
        rank.hear_kvs(KvsResult::Created(Ok(Creation::Made)));
        rank.hear_kvs(KvsResult::Linked(Ok(())));
        rank.hear(Event::Supervisor(UnitEvent::Started { pid: 4711 }.of(&rank.unit)));
        rank
    }

    fn hear(&mut self, event: Event) -> Vec<Effect> {
        self.node.handle(self.now, event, &mut self.effects);
        std::mem::take(&mut self.effects.list)
    }

    fn hear_kvs(&mut self, result: KvsResult) -> Vec<Effect> {
        self.hear(Event::Kvs { id: JOB, result })
    }

    fn receive(&mut self, topic: Topic, number: u64, payload: &Value) -> Vec<Effect> {
        let owner = Credential { userid: 1000, owner: true, local: true };
        let (request, payload) = (RequestId::Remote(number), payload.to_string());
        let event = topic.read(request, owner, payload.as_bytes());
        self.hear(event.expect("a request of the document can be read"))
    }
}

/// What rank 0 answers to `stats-get` while it leads the job.
pub(super) fn stats(example: &Value) -> Result<Value, String> {
    let mut stats = Rank::leading().node.stats(Now { mono: MonoTime(0.0), wall: WallTime(0.0) });
    if stats["release"] == job_exec_rs::BUILD {
        stats["release"] = example["release"].clone();
    }
    Ok(stats)
}

/// [over-refused]
#[test]
fn a_request_is_refused_while_the_shell_of_its_forgotten_job_is_being_ended() {
    let ends = |effects: &[Effect], number| -> Vec<StreamEnd> {
        let end = |effect: &Effect| match effect {
            Effect::Answer { to, answer: Answer::End(end) } if *to == RequestId::Remote(number) => {
                Some(end.clone())
            }
            _ => None,
        };
        effects.iter().filter_map(end).collect()
    };
    let mut rank = Rank::new(5);
    // The request is younger than the rank.
    rank.now.mono = rank.now.mono + 10.0;
    let examples = examples();
    let mut shells = examples["shells"].clone();
    shells["ranks"] = json!("5");
    // Without a prolog it is launched at once.
    shells["command"]["scripts"] = json!(null);
    let mut forget = examples["order"].clone();
    forget["order"] = json!("forget");
    let asked = rank.receive(Topic::Shells, 1, &shells);
    assert!(matches!(asked[..], [Effect::Unit(_, UnitCommand::Launch(_))]), "{asked:?}");
    rank.hear(Event::Supervisor(UnitEvent::Started { pid: 4711 }.of(&rank.unit)));
    assert_eq!(ends(&rank.receive(Topic::Order, 2, &forget), 1), [StreamEnd::Forgotten]);
    let late = rank.receive(Topic::Shells, 3, &shells);
    assert_eq!(ends(&late, 3), [StreamEnd::superseded("the job has ended")], "{late:?}");
    assert_eq!(late.len(), 1, "{late:?}");
}

/// [acknowledge-durable]
#[test]
fn output_is_acknowledged_when_its_commit_has_ended_and_not_before() {
    let acknowledged = |effects: &[Effect]| -> Vec<u64> {
        let offset = |effect: &Effect| match effect {
            Effect::Unit(_, UnitCommand::OutputAck { offset, .. }) => Some(*offset),
            _ => None,
        };
        effects.iter().filter_map(offset).collect()
    };
    let mut rank = Rank::leading();
    rank.hear_kvs(KvsResult::Appended(Ok(())));
    let (unit, data) = (rank.unit.clone(), b"one\n".to_vec());
    let output = UnitEvent::Output { stream: Stream::Stdout, offset: 0, data }.of(&unit);
    let logged = rank.hear(Event::Supervisor(output));
    assert!(matches!(logged[..], [Effect::Kvs { op: KvsOp::Append { .. }, .. }]), "{logged:?}");
    assert_eq!(acknowledged(&rank.hear_kvs(KvsResult::Appended(Ok(())))), [4]);
}

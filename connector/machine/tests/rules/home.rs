//! Commits go to the KVS of the client's own rank.

use resume_machine::{ANY_RANK, Limits};
use serde_json::json;

use super::client::Client;
use super::kvs::append;
use super::support::Message;

const NO_SERVICE: i32 = 38;

/// Else a broker that unloads its KVS could refuse a commit, and pass the next one on: then the
/// client's key says that both were done (chaos seed 8300).
#[test]
fn commits_go_to_the_kvs_of_the_clients_own_rank() {
    for (rank, asked) in [(None, ANY_RANK), (Some(3), 3)] {
        let mut client = Client::new(Limits::default());
        client.connector = client.connector.on_rank(rank);
        client.send(Message::ask("kvs.commit", 1, &append("job-5", 1)));
        client.send(Message::ask("kvs.commit", 2, &append("job-5", 2)));
        let sent = client.sent();
        assert_eq!(sent.iter().map(|commit| commit.rank).collect::<Vec<_>>(), [asked; 2]);
        client.answer(&sent[0], &json!({ "rootref": "r", "rootseq": 1 }));
        client.refuse(&sent[1], NO_SERVICE);
        client.lose();
        client.connector.connecting();
        client.connector.connected();
        let mut again = Vec::new();
        while let Some(request) = client.connector.for_broker() {
            if request.topic.starts_with("kvs.") {
                again.push((request.topic.clone(), request.rank));
            }
            client.answer(&request, &json!({ "val": null, "rootref": "r", "rootseq": 1 }));
        }
        let topics = ["kvs.commit", "kvs.lookup-plus", "kvs.commit", "kvs.commit"];
        assert_eq!(again, topics.map(|topic| (topic.to_string(), asked)));
    }
}

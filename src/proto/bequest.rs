//! Commits to a guest namespace that a client has made and no checkpoint has, as far as the client
//! knows (`rfc/0010-connector.md`, 10.4).

use serde::{Deserialize, Serialize};

use super::Json;

/// Encoded size of a commit without its operations, in bytes.
const COMMIT_BYTES: usize = 64;

/// What a client leaves when it closes its connection.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Bequest {
    /// Identifies the client: 16 hex digits. It sets the key `resume-CLIENT` with each commit.
    pub client: String,
    /// The client is the job shell. As long as that lives, it does its commits again itself.
    pub shell: bool,
    /// The client has offered them before its broker was lost. The namespace may lack them, and the
    /// client does not do them itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// Its commits, in the order of their numbers.
    pub commits: Vec<BequeathedCommit>,
}

/// One commit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct BequeathedCommit {
    /// The number that it sets the client's key to.
    pub number: u64,
    /// The commit.
    pub commit: Commit,
}

/// The payload of `kvs.commit` (flux-core `modules/kvs/kvs.c`, `commit_request_cb`), without the
/// namespace: whoever does the commit again says which it is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Commit {
    /// `FLUX_KVS_TXN_*`.
    pub flags: i64,
    /// RFC 11 operations.
    pub ops: Json,
}

impl Commit {
    /// The payload of `kvs.commit`.
    pub fn payload(&self, namespace: &str) -> String {
        let Self { flags, ops } = self;
        let payload = Payload { namespace, flags: *flags, ops };
        serde_json::to_string(&payload).expect("only maps with other keys than text have no JSON")
    }
}

/// As text, because a user can nest operations more deeply than a parser takes.
#[derive(Serialize)]
struct Payload<'a> {
    namespace: &'a str,
    flags: i64,
    ops: &'a Json,
}

impl Bequest {
    /// Whether it can be a client's: else its key could name anything.
    pub fn is_valid(&self) -> bool {
        self.client.len() == 16 && self.client.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Encoded size of the commits, in bytes: about what it takes to keep them.
    pub fn size(&self) -> usize {
        self.commits.iter().map(|kept| COMMIT_BYTES + kept.commit.ops.text().len()).sum()
    }

    /// The commits that a namespace lacks in which the client's key has this value, or none.
    pub fn lacking(&self, held: Option<u64>) -> impl Iterator<Item = &Commit> {
        let held = held.unwrap_or(0);
        self.commits.iter().filter(move |kept| kept.number > held).map(|kept| &kept.commit)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bequest(client: &str) -> Bequest {
        let commit = |number| json!({ "number": number, "commit": { "namespace": "job-1", "flags": 0, "ops": [] } });
        serde_json::from_value(
            json!({ "client": client, "shell": false, "commits": [commit(4), commit(5)] }),
        )
        .expect("a bequest")
    }

    #[test]
    fn only_what_the_namespace_lacks_is_done_again() {
        let bequest = bequest("00112233445566ff");
        let lacking = |held| bequest.lacking(held).count();
        assert_eq!([lacking(None), lacking(Some(4)), lacking(Some(5))], [2, 1, 0]);
    }

    #[test]
    fn operations_that_are_nested_deeply_are_passed_on() {
        let deep = format!("{}{}", "[".repeat(400), "]".repeat(400));
        let text = format!(r#"{{"namespace":"job-1","flags":0,"ops":{deep}}}"#);
        let commit: Commit = serde_json::from_str(&text).expect("a commit");
        assert_eq!(commit.payload("job-1"), text);
    }

    #[test]
    fn a_client_has_a_number() {
        assert!(bequest("00112233445566ff").is_valid());
        for client in ["", "0011", "00112233445566f.", "00112233445566ff.x"] {
            assert!(!bequest(client).is_valid(), "{client}");
        }
    }
}

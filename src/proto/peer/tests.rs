use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::proto::{Idset, JobDigest, JobId, Stream};

#[test]
fn output_bytes_round_trip() {
    let report = Report::Output { stream: Stream::Stdout, offset: 3, data: (0..=255).collect() };
    let text = json!(report).to_string();
    assert_eq!(serde_json::from_str::<Report>(&text).ok(), Some(report));
}

#[test]
fn a_stop_timeout_is_a_duration() {
    let command = |stop_timeout: Value| {
        let command = json!({
            "userid": 1, "size": 1, "multiuser": false, "digest": "d", "argv": [], "environment": {},
            "stop_timeout": stop_timeout,
        });
        ShellCommand::deserialize(command).map(|command| command.stop_timeout)
    };
    assert_eq!(command(json!(5)).ok(), Some(Some(5.0)));
    assert_eq!(command(json!(null)).ok(), Some(None));
    for bad in [json!(-1), json!(1e300), json!("5s")] {
        assert!(command(bad).is_err());
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let order = OrderRequest {
        version: Version,
        id: JobId(1),
        digest: JobDigest::default(),
        generation: 1,
        ranks: Idset::from_range(0..2),
        order: Order::Forget,
    };
    assert_eq!(decode(json!(order).to_string().as_bytes()), Ok(order.clone()));
    let mut other = json!(order);
    other["version"] = json!(VERSION + 1);
    let error = decode::<OrderRequest>(other.to_string().as_bytes()).expect_err("refused");
    assert_eq!(error, PeerError::Version { met: u64::from(VERSION) + 1 });
    assert!(error.to_string().contains("this one speaks 7"), "{error}");
    assert_eq!(decode::<OrderRequest>(b"{}"), Err(PeerError::NoVersion));
    let torn = decode::<OrderRequest>(b"{\"version\": 7, \"id\": 7}").expect_err("refused");
    assert!(matches!(torn, PeerError::Malformed(_)), "{torn}");
}

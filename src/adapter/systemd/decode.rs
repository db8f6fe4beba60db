//! Decodes D-Bus messages for the tracker.

use std::collections::HashMap;

use zbus::message::Message;
use zbus::wire::LE;
use zbus::wire::serialized::{Context, Data};
use zbus::{OwnedObjectPath, Variant};

use crate::proto::UnitName;
use crate::supervisor::tracker::{Active, Answer, Call, Changes, News, Refusal};

use super::bus::{SYSTEMD, UNIT};
use super::start::{DIGEST_FIELD, SIZE_FIELD, USERID_FIELD};

/// `ListUnitsByPatterns`: name, description, load, active and sub state, followed unit, path,
/// job id, type and path.
type Listed =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// Decode an answer to the tracker. An answer that cannot be decoded counts as an error.
pub(super) fn decode_answer(
    call: &Call,
    reply: Result<Message, Refusal>,
) -> Result<Answer, Refusal> {
    let message = reply?;
    let body = message.body();
    let answer = match call {
        Call::ControlGroup(_) => body.deserialize::<Variant<'_>>().map(|group| match group {
            Variant::Str(group) => Answer::ControlGroup(group.to_string()),
            _ => Answer::Done,
        }),
        Call::List => body
            .deserialize::<Vec<Listed>>()
            .map(|units| Answer::Listed(units.into_iter().map(|(name, ..)| name).collect())),
        Call::Main { .. } | Call::Service(_) | Call::Unit(_) => body
            .deserialize::<HashMap<&str, Variant<'_>>>()
            .map(|properties| Answer::Properties(decode_changes(&properties))),
        _ => Ok(Answer::Done),
    };
    answer.map_err(|e| Refusal { name: "unreadable".to_string(), text: e.to_string() })
}

/// Decode a signal. `paths` has the watched units by object path.
pub(super) fn decode_signal(
    signal: &Message,
    paths: &HashMap<String, UnitName>,
) -> zbus::Result<Option<News>> {
    let header = signal.header();
    let (Some(path), Some(member)) = (header.path(), header.member()) else { return Ok(None) };
    let body = signal.body();
    Ok(match member.as_str() {
        "PropertiesChanged" => {
            let Some(unit) = paths.get(path.as_str()).cloned() else { return Ok(None) };
            let (interface, changed, _): (&str, HashMap<&str, Variant<'_>>, Vec<&str>) =
                body.deserialize()?;
            // systemd sends a change as two signals, the one of this interface last.
            let whole = interface == UNIT;
            Some(News::Changed { unit, changes: decode_changes(&changed), whole })
        }
        "NameOwnerChanged" => match body.deserialize::<(&str, &str, &str)>()? {
            (SYSTEMD, _, "") => Some(News::ManagerAway),
            (SYSTEMD, _, _) => Some(News::ManagerBack),
            _ => None,
        },
        "Reloading" => Some(News::Reloading(body.deserialize()?)),
        _ => None,
    })
}

/// Decode properties of any interface.
fn decode_changes(properties: &HashMap<&str, Variant<'_>>) -> Changes {
    let unsigned = |name: &str| match properties.get(name) {
        Some(Variant::U32(n)) => Some(*n),
        _ => None,
    };
    let signed = |name: &str| match properties.get(name) {
        Some(Variant::I32(n)) => Some(*n),
        _ => None,
    };
    let text = |name: &str| match properties.get(name) {
        Some(Variant::Str(s)) => Some(s.as_str()),
        _ => None,
    };
    let marks = match properties.get("LogExtraFields") {
        Some(Variant::Array(fields)) => Some(fields),
        _ => None,
    };
    Changes {
        active: text("ActiveState").map(parse_active),
        was_active: match properties.get("ActiveEnterTimestampMonotonic") {
            Some(Variant::U64(at)) => Some(*at != 0),
            _ => None,
        },
        job: match properties.get("Job") {
            Some(Variant::Structure(job)) => {
                Some(!matches!(job.fields().first(), Some(Variant::U32(0)) | None))
            }
            _ => None,
        },
        invocation_id: match properties.get("InvocationID") {
            Some(Variant::Array(id)) => Some(hex(id)),
            _ => None,
        },
        main_pid: unsigned("ExecMainPID"),
        main_code: signed("ExecMainCode"),
        main_status: signed("ExecMainStatus"),
        result: text("Result").map(str::to_string),
        digest: marks.map(|marks| mark(marks, DIGEST_FIELD).unwrap_or_default()),
        userid: marks.and_then(|marks| mark(marks, USERID_FIELD)?.parse().ok()),
        size: marks.and_then(|marks| mark(marks, SIZE_FIELD)?.parse().ok()),
        control_group: text("ControlGroup").map(str::to_string),
    }
}

/// For the fuzz target: decode properties from D-Bus's encoding; `None` if the bytes are not
/// properties.
#[doc(hidden)]
pub fn decode_properties(bytes: &[u8]) -> Option<Changes> {
    let data = Data::new(bytes, Context::new(LE, 0));
    let (properties, _) = data.deserialize::<HashMap<&str, Variant<'_>>>().ok()?;
    Some(decode_changes(&properties))
}

fn parse_active(state: &str) -> Active {
    match state {
        "activating" => Active::Activating,
        // Units of ours do not reload. One that did would not be down.
        "active" | "reloading" | "refreshing" => Active::Active,
        "deactivating" => Active::Deactivating,
        "failed" => Active::Failed,
        "inactive" => Active::Inactive,
        _ => Active::Unknown,
    }
}

/// The value of this journal field.
fn mark(fields: &zbus::Array<'_>, name: &str) -> Option<String> {
    fields.inner().iter().find_map(|field| {
        let Variant::Array(bytes) = field else { return None };
        let bytes = bytes.inner().iter().map(|byte| match byte {
            Variant::U8(byte) => Some(*byte),
            _ => None,
        });
        let field = String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()?;
        field.strip_prefix(name).map(str::to_string)
    })
}

fn hex(bytes: &zbus::Array<'_>) -> String {
    bytes
        .inner()
        .iter()
        .filter_map(|byte| match byte {
            Variant::U8(byte) => Some(format!("{byte:02x}")),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_changes() {
        use zbus::wire::to_bytes;
        let context = Context::new(LE, 0);
        let told: HashMap<&str, Variant<'_>> = HashMap::from([("ExecMainPID", 7u32.into())]);
        let bytes = to_bytes(context, &told).expect("encoded");
        let changes = decode_properties(&bytes).expect("decoded");
        assert_eq!(changes.main_pid, Some(7));
        assert_eq!(decode_properties(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn properties_become_changes() {
        let told = decode_changes(&HashMap::from([
            ("ActiveState", "failed".into()),
            ("ActiveEnterTimestampMonotonic", 0u64.into()),
            ("ExecMainPID", 7u32.into()),
            ("ExecMainCode", 1i32.into()),
            ("ExecMainStatus", 203i32.into()),
            ("InvocationID", vec![0x0au8, 0xff].into()),
            (
                "LogExtraFields",
                vec![b"JOB_EXEC_DIGEST=abc".to_vec(), b"JOB_EXEC_USERID=7".to_vec()].into(),
            ),
            ("Result", "exit-code".into()),
        ]));
        let expected = Changes {
            active: Some(Active::Failed),
            was_active: Some(false),
            main_pid: Some(7),
            main_code: Some(1),
            main_status: Some(203),
            invocation_id: Some("0aff".to_string()),
            digest: Some("abc".to_string()),
            userid: Some(7),
            result: Some("exit-code".to_string()),
            ..Changes::default()
        };
        assert_eq!(told, expected);
        assert_eq!(decode_changes(&HashMap::new()), Changes::default());
    }
}

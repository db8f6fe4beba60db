//! Decodes D-Bus messages for the tracker.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use zbus::message::Message;
use zbus::wire::LE;
use zbus::wire::serialized::{Context, Data};
use zbus::{OwnedObjectPath, Signature, Type, Variant};

use crate::port::supervisor::ManagerId;
use crate::supervisor::tracker::{Active, Call, CallAnswer, Changes, News, Refusal};

use super::bus::{SYSTEMD, UNIT, unit_of_path};
use super::start::{DIGEST_FIELD, SIZE_FIELD, USERID_FIELD};

/// `ListUnitsByPatterns`: name, description, load, active and sub state, followed unit, path,
/// job id, type and path.
type Listed =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// Decode an answer to the tracker. An answer that cannot be decoded counts as an error.
pub(super) fn decode_answer(
    call: &Call,
    reply: Result<Message, Refusal>,
) -> Result<CallAnswer, Refusal> {
    let message = reply?;
    let body = message.body();
    let answer = match call {
        Call::ControlGroup(_) => body.deserialize::<Variant<'_>>().map(|group| match group {
            Variant::Str(group) => CallAnswer::ControlGroup(group.to_string()),
            _ => CallAnswer::Done,
        }),
        Call::List => body
            .deserialize::<Vec<Listed>>()
            .map(|units| CallAnswer::Listed(units.into_iter().map(|(name, ..)| name).collect())),
        Call::Manager => body.deserialize::<Variant<'_>>().map(|began| match began {
            Variant::U64(began) => CallAnswer::Manager(ManagerId(began)),
            _ => CallAnswer::Done,
        }),
        Call::Main { .. } | Call::Service(_) | Call::Unit(_) => {
            body.deserialize::<Properties>().map(|Properties(told)| CallAnswer::Properties(told))
        }
        _ => Ok(CallAnswer::Done),
    };
    answer.map_err(unreadable)
}

/// Decode a property that is a list of strings.
pub(super) fn decode_strings(message: &Message) -> Result<Vec<String>, Refusal> {
    let body = message.body();
    let value = body.deserialize::<Variant<'_>>().map_err(unreadable)?;
    Vec::try_from(value).map_err(unreadable)
}

fn unreadable(why: impl std::fmt::Display) -> Refusal {
    Refusal { name: "unreadable".to_string(), text: why.to_string() }
}

/// Decode a signal. With one rule for all units of the user there are some about strangers.
pub(super) fn decode_signal(signal: &Message) -> zbus::Result<Option<News>> {
    let header = signal.header();
    let (Some(path), Some(member)) = (header.path(), header.member()) else { return Ok(None) };
    let body = signal.body();
    Ok(match member.as_str() {
        "PropertiesChanged" => {
            let Some(unit) = unit_of_path(path.as_str()) else { return Ok(None) };
            let (interface, Properties(changes), _): (&str, Properties, Vec<&str>) =
                body.deserialize()?;
            // systemd sends a change as two signals, the one of this interface last.
            let whole = interface == UNIT;
            Some(News::Changed { unit, changes, whole })
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

/// Properties of any interface, `a{sv}`. The values of those that the tracker does not know are passed
/// over: systemd tells a hundred for one that is of use.
struct Properties(Changes);

impl Type for Properties {
    const SIGNATURE: &'static Signature = <HashMap<&str, Variant<'_>>>::SIGNATURE;
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PropertiesVisitor)
    }
}

struct PropertiesVisitor;

impl<'de> Visitor<'de> for PropertiesVisitor {
    type Value = Properties;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("properties by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut told: A) -> Result<Properties, A::Error> {
        let mut changes = Changes::default();
        while let Some(name) = told.next_key::<&str>()? {
            match name {
                "ActiveState" => changes.active = text(&told.next_value()?).map(parse_active),
                "ActiveEnterTimestampMonotonic" => {
                    changes.was_active = match told.next_value()? {
                        Variant::U64(at) => Some(at != 0),
                        _ => None,
                    };
                }
                "ControlGroup" => {
                    changes.control_group = text(&told.next_value()?).map(str::to_string);
                }
                "ExecMainCode" => changes.main_code = signed(&told.next_value()?),
                "ExecMainPID" => {
                    changes.main_pid = match told.next_value()? {
                        Variant::U32(pid) => Some(pid),
                        _ => None,
                    };
                }
                "ExecMainStatus" => changes.main_status = signed(&told.next_value()?),
                "InvocationID" => {
                    changes.invocation_id = match told.next_value()? {
                        Variant::Array(id) => Some(hex(&id)),
                        _ => None,
                    };
                }
                "Job" => changes.job = has_job(&told.next_value()?),
                "LogExtraFields" => read_marks(&told.next_value()?, &mut changes),
                "Result" => changes.result = text(&told.next_value()?).map(str::to_string),
                _ => {
                    told.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Properties(changes))
    }
}

fn text<'a>(value: &'a Variant<'_>) -> Option<&'a str> {
    match value {
        Variant::Str(text) => Some(text.as_str()),
        _ => None,
    }
}

fn signed(value: &Variant<'_>) -> Option<i32> {
    match value {
        Variant::I32(n) => Some(*n),
        _ => None,
    }
}

/// Whether systemd has a job for the unit: the job's id, 0 for none, and its path.
fn has_job(value: &Variant<'_>) -> Option<bool> {
    match value {
        Variant::Structure(job) => {
            Some(!matches!(job.fields().first(), Some(Variant::U32(0)) | None))
        }
        _ => None,
    }
}

fn read_marks(value: &Variant<'_>, changes: &mut Changes) {
    let Variant::Array(fields) = value else { return };
    changes.digest = Some(mark(fields, DIGEST_FIELD).unwrap_or_default());
    changes.userid = mark(fields, USERID_FIELD).and_then(|id| id.parse().ok());
    changes.size = mark(fields, SIZE_FIELD).and_then(|size| size.parse().ok());
}

/// For the fuzz target: decode properties from D-Bus's encoding; `None` if the bytes are not
/// properties.
#[doc(hidden)]
pub fn decode_properties(bytes: &[u8]) -> Option<Changes> {
    let data = Data::new(bytes, Context::new(LE, 0));
    let (Properties(changes), _) = data.deserialize().ok()?;
    Some(changes)
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

    fn encoded(told: &HashMap<&str, Variant<'_>>) -> Data<'static, 'static> {
        zbus::wire::to_bytes(Context::new(LE, 0), told).expect("encoded")
    }

    fn decoded(told: &HashMap<&str, Variant<'_>>) -> Changes {
        decode_properties(&encoded(told)).expect("decoded")
    }

    #[test]
    fn properties_that_are_cut_off_are_none() {
        let bytes = encoded(&HashMap::from([("ExecMainPID", 7u32.into())]));
        assert_eq!(decode_properties(&bytes[..bytes.len() - 1]), None);
        let bytes = encoded(&HashMap::from([("Other", 7u32.into())]));
        assert_eq!(decode_properties(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn properties_become_changes() {
        let marks = ["JOB_EXEC_DIGEST=abc", "JOB_EXEC_USERID=7", "JOB_EXEC_SIZE=2", "OTHER=1"];
        let marks = marks.map(|mark| mark.as_bytes().to_vec()).to_vec();
        let path = zbus::ObjectPath::try_from("/a").unwrap();
        let told = decoded(&HashMap::from([
            ("ActiveState", "failed".into()),
            ("ActiveEnterTimestampMonotonic", 0u64.into()),
            ("ControlGroup", "/x".into()),
            ("ExecMainPID", 7u32.into()),
            ("ExecMainCode", 1i32.into()),
            ("ExecMainStatus", 203i32.into()),
            ("InvocationID", vec![0x0au8, 0xff].into()),
            ("Job", (4u32, path).into()),
            ("LogExtraFields", marks.into()),
            ("Result", "exit-code".into()),
        ]));
        let expected = Changes {
            active: Some(Active::Failed),
            was_active: Some(false),
            control_group: Some("/x".to_string()),
            main_pid: Some(7),
            main_code: Some(1),
            main_status: Some(203),
            invocation_id: Some("0aff".to_string()),
            job: Some(true),
            digest: Some("abc".to_string()),
            userid: Some(7),
            size: Some(2),
            result: Some("exit-code".to_string()),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn unknown_properties_are_passed_over() {
        let nested: HashMap<&str, Variant<'_>> =
            HashMap::from([("a", vec!["b", ""].into()), ("c", (1u8, true, 0.5f64).into())]);
        let command = vec![("/bin/true", vec!["true", "x y"], false, 1u64, 2i16)];
        let mut told = HashMap::from([
            ("Environment", Variant::from(vec!["A=1", "B="])),
            ("ExecStart", command.into()),
            ("Nested", nested.into()),
            ("Nothing", Vec::<u64>::new().into()),
            ("Within", Variant::Variant(Box::new(3i64.into()))),
        ]);
        assert_eq!(decoded(&told), Changes::default());
        told.insert("ExecMainPID", 7u32.into());
        told.insert("Result", "success".into());
        let result = Some("success".to_string());
        assert_eq!(decoded(&told), Changes { main_pid: Some(7), result, ..Changes::default() });
    }

    #[test]
    fn values_of_other_types_are_passed_over() {
        let names = ["ActiveState", "ExecMainPID", "InvocationID", "Job", "LogExtraFields"];
        let told = names.map(|name| (name, Variant::from(1u16)));
        assert_eq!(decoded(&HashMap::from(told)), Changes::default());
        let told = HashMap::from([("Job", (0u32, "/").into())]);
        assert_eq!(decoded(&told), Changes { job: Some(false), ..Changes::default() });
    }
}

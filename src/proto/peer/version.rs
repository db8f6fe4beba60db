//! The version in messages.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::VERSION;

/// The member `version` of every request. If it is not [`VERSION`], the request cannot be read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u32(VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match u64::deserialize(input)? {
            met if met == u64::from(VERSION) => Ok(Self),
            met => Err(D::Error::custom(format!("protocol {met} instead of {VERSION}"))),
        }
    }
}

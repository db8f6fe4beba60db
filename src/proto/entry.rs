//! The names of a shell's entries into the shell barrier (`rfc/0010-connector.md`, 10.3).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which entry of a shell a barrier request is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct BarrierEntry {
    /// Counted from 1: from the client's first entry, or from the shell's if the client has no name.
    #[serde(rename = "entry")]
    pub number: u32,
    /// The client that counts. A shell is mostly one client, but not if it starts a process for
    /// each barrier.
    #[serde(default)]
    pub client: Option<ClientId>,
}

impl BarrierEntry {
    /// The shell's entry of this number.
    pub fn of_shell(number: u32) -> Self {
        Self { number, client: None }
    }
}

/// How often a shell can enter the barrier; flux-shell does it twice. Each entry that waits is a
/// request that is kept.
pub const ENTRIES_MAX: u32 = 64;

/// The clients of a shell that have entered the barrier.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct BarrierClients {
    /// The one that was heard first. Its entries are the shell's, until another enters.
    first: Option<ClientId>,
    /// All that came since another client has entered.
    others: Vec<Placed>,
}

/// An entry of a client, and which of the shell's it is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Placed {
    #[serde(flatten)]
    entry: BarrierEntry,
    place: u32,
}

impl BarrierClients {
    /// Whether a client with a name has entered. It says its last entry again when its broker is back
    /// (`rfc/0010-connector.md`, [barrier-said-again]).
    pub fn has_name(&self) -> bool {
        self.first.is_some()
    }

    /// Which of the shell's entries this is, counted from 1, after `entered` earlier ones; the next
    /// one if it has no name. It can be past [`ENTRIES_MAX`].
    pub fn place(&mut self, entered: u32, entry: Option<BarrierEntry>) -> u32 {
        let next = entered.saturating_add(1);
        let Some(entry) = entry else { return next };
        let Some(client) = entry.client else { return entry.number };
        let first = *self.first.get_or_insert(client);
        if let Some(known) = self.others.iter().find(|other| other.entry == entry) {
            return known.place;
        }
        let until = self.others.first().map_or(u32::MAX, |other| other.place);
        if first == client && entry.number < until {
            return entry.number;
        }
        if next <= ENTRIES_MAX {
            self.others.push(Placed { entry, place: next });
        }
        next
    }
}

/// A client's random number, 16 hex digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClientId(pub u64);

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for ClientId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        number.map(Self).ok_or_else(|| serde::de::Error::custom("client: expected 16 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// A shell's entries.
    #[derive(Default)]
    struct Shell {
        clients: BarrierClients,
        entered: u32,
    }

    impl Shell {
        fn enter(&mut self, client: u64, number: u32) -> u32 {
            let entry = BarrierEntry { number, client: Some(ClientId(client)) };
            let place = self.clients.place(self.entered, Some(entry));
            self.entered = self.entered.max(place);
            place
        }
    }

    #[test]
    fn the_numbers_of_the_only_client_are_the_shells() {
        let mut shell = Shell::default();
        // What it had entered before is forgotten.
        assert_eq!([2, 2, 3, 1].map(|number| shell.enter(7, number)), [2, 2, 3, 1]);
    }

    #[test]
    fn each_client_that_enters_counts_for_itself() {
        let mut shell = Shell::default();
        let said = [(7, 1), (8, 1), (8, 1), (7, 1), (7, 2), (9, 1), (8, 2), (7, 2)];
        let places = said.map(|(client, number)| shell.enter(client, number));
        assert_eq!(places, [1, 2, 2, 1, 3, 4, 5, 3]);
        let kept: BarrierClients = from_value(json!(shell.clients)).expect("what was written");
        assert_eq!(kept, shell.clients);
    }

    #[test]
    fn entries_without_a_name_are_counted_as_before() {
        let mut shell = Shell { entered: 1, ..Shell::default() };
        assert_eq!(shell.clients.place(1, None), 2);
        assert_eq!(shell.clients.place(1, Some(BarrierEntry::of_shell(1))), 1);
        assert_eq!([(7, 1), (7, 2), (8, 1)].map(|(client, n)| shell.enter(client, n)), [1, 2, 3]);
    }

    #[test]
    fn many_clients_take_no_room() {
        let mut shell = Shell::default();
        for client in 0..1000 {
            shell.enter(client, 1);
            shell.entered = shell.entered.min(ENTRIES_MAX);
        }
        assert!(json!(shell.clients).to_string().len() < 8192);
    }

    #[test]
    fn a_client_is_16_hex_digits() {
        let entry = |client| from_value::<BarrierEntry>(json!({ "entry": 2, "client": client }));
        let read = entry("00ab000000000001").expect("an entry");
        assert_eq!(read.client, Some(ClientId(0x00ab_0000_0000_0001)));
        assert_eq!(json!(read)["client"], "00ab000000000001");
        for bad in ["", "1", "+123456789abcdef", "00ab0000000000001"] {
            assert!(entry(bad).is_err(), "{bad}");
        }
    }
}

//! Resource sets (RFC 20, version 1).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::idset::IDSET_MAX_MEMBERS;
use super::{BrokerRank, Hostlist, Idset, ShellRank, WallTime, shortened};

/// How deep objects and arrays in R may be nested. RFC 20 has five levels; `scheduling` can have
/// any number.
const DEPTH_MAX: usize = 64;

/// Used in place of a host name that is not known.
const UNKNOWN: &str = "(unknown)";

/// R: the resources of one job. Keeps the document that it was parsed from.
///
/// It is serialised as that document.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct ResourceSet {
    raw: Value,
    ranks: Idset,
    /// As many as there are ranks, in ascending order of the ranks, or none.
    hosts: Hostlist,
    starttime: WallTime,
    expiration: WallTime,
}

/// The document is not a version 1 resource set. Names the key, the value, and the reason.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct ResourceSetError {
    key: String,
    reason: String,
}

impl TryFrom<Value> for ResourceSet {
    type Error = ResourceSetError;

    fn try_from(value: Value) -> Result<Self, ResourceSetError> {
        Self::from_json(&value)
    }
}

impl From<ResourceSet> for Value {
    fn from(r: ResourceSet) -> Self {
        r.raw
    }
}

impl ResourceSet {
    /// Reads R from its text.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json), and for a text that nests deeper than any R.
    pub fn read(text: &str) -> Result<Self, ResourceSetError> {
        let refuse = |reason: String| ResourceSetError { key: "R".to_string(), reason };
        let value: Value = serde_json::from_str(text).map_err(|e| refuse(e.to_string()))?;
        // Messages that carry it are read with serde_json's limit of 128 levels, too.
        if !is_shallow(&value, DEPTH_MAX) {
            return Err(refuse(format!("it nests deeper than {DEPTH_MAX} levels")));
        }
        Self::from_json(&value)
    }

    /// Parses R.
    ///
    /// The entries of `R_lite` may come in any order, and a rank may be in several; it is
    /// one rank still. `nodelist` has one host for each rank, and its order is that of the
    /// ascending ranks, whatever the order of `R_lite` (flux-core `rlist_from_json`).
    pub fn from_json(value: &Value) -> Result<Self, ResourceSetError> {
        let version = member(value, "R", "version")?;
        if version.as_i64() != Some(1) {
            return Err(bad("R.version", version, "unsupported version (expected 1)"));
        }
        let execution = member(value, "R", "execution")?;
        let ranks = parse_ranks(member(execution, "R.execution", "R_lite")?)?;
        let hosts = parse_hosts(execution.get("nodelist"), ranks.len())?;
        Ok(Self {
            ranks,
            hosts,
            starttime: parse_time(execution, "starttime")?,
            expiration: parse_time(execution, "expiration")?,
            raw: value.clone(),
        })
    }

    /// The broker ranks, at least one.
    pub fn ranks(&self) -> &Idset {
        &self.ranks
    }

    /// The number of ranks: the size of the job in shells.
    #[allow(clippy::len_without_is_empty)] // There is always a rank.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// The lowest rank, where the leader shell runs.
    pub fn first_rank(&self) -> BrokerRank {
        BrokerRank(self.ranks.first().unwrap_or_default())
    }

    /// The shell rank of a broker rank: its index in the ascending ranks.
    pub fn shell_rank(&self, rank: BrokerRank) -> Option<ShellRank> {
        let index = self.ranks.index_of(rank.0)?;
        u32::try_from(index).ok().map(ShellRank)
    }

    /// The host of `rank`; `(unknown)` if R does not tell.
    pub fn hostname(&self, rank: BrokerRank) -> &str {
        self.host(rank.0).unwrap_or(UNKNOWN)
    }

    /// The hosts of `ranks`, as flux-core `flux_hostmap_lookup` answers for an idset: the
    /// host of each rank, in ascending order of the ranks, as a compressed hostlist. It is
    /// not sorted by name, and a host of several ranks is there as often (`vm,vm`,
    /// `foo[1,1]`).
    ///
    /// Without a host for each rank the lookup fails, and its callers print `(unknown)`,
    /// which is what this returns then.
    pub fn hosts(&self, ranks: &Idset) -> String {
        let hosts: Option<Vec<&str>> = ranks.iter().map(|rank| self.host(rank)).collect();
        match hosts {
            Some(hosts) => Hostlist::from_iter(hosts).to_string(),
            None => UNKNOWN.to_string(),
        }
    }

    /// When the resources were allocated, or [`WallTime::UNSET`].
    pub fn starttime(&self) -> WallTime {
        self.starttime
    }

    /// When the allocation ends; never, if it is [`WallTime::UNSET`]. A negative value is passed on.
    pub fn expiration(&self) -> WallTime {
        self.expiration
    }

    /// Sets the expiration, here and in the document. JSON has no infinity: what is not
    /// finite becomes [`WallTime::UNSET`].
    pub fn set_expiration(&mut self, expiration: WallTime) {
        self.expiration = if expiration.0.is_finite() { expiration } else { WallTime::UNSET };
        if let Some(Value::Object(execution)) = self.raw.get_mut("execution") {
            execution.insert("expiration".to_string(), json!(self.expiration));
        }
    }

    /// The document.
    pub fn raw(&self) -> &Value {
        &self.raw
    }

    /// R of `rank` alone, for containment (flux-core `resource_set_R_local`): one entry in
    /// `R_lite`, its host, its properties, the times, and `scheduling` as it was. `nslots`
    /// is of the whole job and is left out. There is no entry for a rank that is not in R.
    pub fn local(&self, rank: BrokerRank) -> Value {
        let mut execution = Map::new();
        let entry = self
            .ranks
            .contains_rank(rank)
            .then(|| json!({"rank": rank.to_string(), "children": self.children(rank)}));
        execution.insert("R_lite".to_string(), entry.into_iter().collect());
        execution.insert("starttime".to_string(), json!(self.starttime));
        execution.insert("expiration".to_string(), json!(self.expiration));
        if let Some(host) = self.host(rank.0) {
            execution.insert("nodelist".to_string(), json!([host]));
        }
        let properties = self.properties(rank);
        if !properties.is_empty() {
            execution.insert("properties".to_string(), Value::Object(properties));
        }
        let mut local = json!({"version": 1, "execution": execution});
        if let Some(scheduling) = self.raw.get("scheduling") {
            local["scheduling"] = scheduling.clone();
        }
        local
    }

    fn host(&self, rank: u32) -> Option<&str> {
        self.hosts.get(self.ranks.index_of(rank)?)
    }

    /// The children of `rank`, of all its entries together.
    fn children(&self, rank: BrokerRank) -> Map<String, Value> {
        let mut children: Map<String, Value> = Map::new();
        let entries = self.raw["execution"]["R_lite"].as_array().into_iter().flatten();
        for entry in entries.filter(|entry| has_rank(&entry["rank"], rank)) {
            for (name, ids) in entry["children"].as_object().into_iter().flatten() {
                match children.get_mut(name) {
                    Some(known) => unite(known, ids),
                    None => {
                        children.insert(name.clone(), ids.clone());
                    }
                }
            }
        }
        children
    }

    /// The properties of `rank`, each with `rank` as its only rank.
    fn properties(&self, rank: BrokerRank) -> Map<String, Value> {
        let properties = self.raw["execution"]["properties"].as_object().into_iter().flatten();
        properties
            .filter(|(_, ranks)| has_rank(ranks, rank))
            .map(|(name, _)| (name.clone(), json!(rank.to_string())))
            .collect()
    }
}

fn parse_ranks(r_lite: &Value) -> Result<Idset, ResourceSetError> {
    let key = "R.execution.R_lite";
    let entries = r_lite.as_array().ok_or_else(|| bad(key, r_lite, "expected an array"))?;
    let mut ranks = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let key = format!("{key}[{index}]");
        let rank = member(entry, &key, "rank")?;
        let key = format!("{key}.rank");
        let text = rank.as_str().ok_or_else(|| bad(&key, rank, "expected an idset"))?;
        let ids: Idset = text.parse().map_err(|error| bad(&key, rank, error))?;
        ranks.push(ids);
    }
    let ranks = Idset::union_of(&ranks);
    if ranks.is_empty() {
        return Err(bad(key, r_lite, "there are no ranks"));
    }
    if ranks.len() > IDSET_MAX_MEMBERS {
        return Err(bad(key, r_lite, "there are too many ranks"));
    }
    Ok(ranks)
}

fn parse_hosts(nodelist: Option<&Value>, ranks: usize) -> Result<Hostlist, ResourceSetError> {
    let key = "R.execution.nodelist";
    let nodelist = match nodelist {
        None | Some(Value::Null) => return Ok(Hostlist::default()),
        Some(nodelist) => nodelist,
    };
    let texts = nodelist.as_array().ok_or_else(|| bad(key, nodelist, "expected an array"))?;
    let key_of = |index: usize| format!("{key}[{index}]");
    let mut hostlists = Vec::new();
    for (index, value) in texts.iter().enumerate() {
        let text = value.as_str();
        hostlists.push(text.ok_or_else(|| bad(&key_of(index), value, "expected a hostlist"))?);
    }
    let hosts = Hostlist::from_texts(&hostlists)
        .map_err(|(index, error)| bad(&key_of(index), &texts[index], error))?;
    if hosts.len() != ranks {
        let reason = format!("{} hosts for {ranks} ranks", hosts.len());
        return Err(bad(key, nodelist, reason));
    }
    Ok(hosts)
}

fn parse_time(execution: &Value, name: &str) -> Result<WallTime, ResourceSetError> {
    let Some(value) = execution.get(name) else { return Ok(WallTime::UNSET) };
    value
        .as_f64()
        .map(WallTime)
        .ok_or_else(|| bad(&format!("R.execution.{name}"), value, "expected a number"))
}

/// The member `name` of `object`, whose key is `key`.
fn member<'a>(object: &'a Value, key: &str, name: &str) -> Result<&'a Value, ResourceSetError> {
    let members = object.as_object().ok_or_else(|| bad(key, object, "expected an object"))?;
    members.get(name).ok_or_else(|| ResourceSetError {
        key: format!("{key}.{name}"),
        reason: "missing".to_string(),
    })
}

fn bad(key: &str, value: &Value, reason: impl ToString) -> ResourceSetError {
    let reason = format!("{}: {}", shortened(&value.to_string()), reason.to_string());
    ResourceSetError { key: key.to_string(), reason }
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|v| is_shallow(v, levels - 1)),
        Value::Object(members) => levels > 0 && members.values().all(|v| is_shallow(v, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn parse_ids(value: &Value) -> Option<Idset> {
    value.as_str()?.parse().ok()
}

fn has_rank(ranks: &Value, rank: BrokerRank) -> bool {
    parse_ids(ranks).is_some_and(|ranks| ranks.contains_rank(rank))
}

/// Adds `ids` to `known`, if both are idsets.
fn unite(known: &mut Value, ids: &Value) {
    if let (Some(a), Some(b)) = (parse_ids(known), parse_ids(ids)) {
        *known = json!(a.union(&b).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rset(value: Value) -> ResourceSet {
        ResourceSet::from_json(&value).unwrap()
    }

    fn simple() -> ResourceSet {
        rset(json!({
            "version": 1,
            "execution": {
                "R_lite": [
                    {"rank": "7", "children": {"core": "0-1"}},
                    {"rank": "2-3", "children": {"core": "0-3", "gpu": "0"}},
                    {"rank": "3", "children": {"core": "6"}},
                ],
                "nslots": 3,
                "nodelist": ["host[2-3]", "other"],
                "properties": {"fast": "3,7", "big": "2"},
                "starttime": 1,
                "expiration": 2.5,
            },
            "scheduling": {"graph": []},
        }))
    }

    #[test]
    fn ranks_ascend() {
        let r = simple();
        assert_eq!((r.ranks().to_string().as_str(), r.len()), ("2-3,7", 3));
        assert_eq!(r.first_rank(), BrokerRank(2));
        for (broker, shell) in [(2, Some(0)), (3, Some(1)), (7, Some(2)), (0, None), (8, None)] {
            assert_eq!(r.shell_rank(BrokerRank(broker)), shell.map(ShellRank));
        }
    }

    #[test]
    fn hosts_go_with_ascending_ranks() {
        let r = simple();
        for (rank, host) in [(2, "host2"), (3, "host3"), (7, "other"), (9, "(unknown)")] {
            assert_eq!(r.hostname(BrokerRank(rank)), host);
        }
        for (ranks, hosts) in
            [("2-3", "host[2-3]"), ("2-7", "(unknown)"), ("3,7", "host3,other"), ("", "")]
        {
            assert_eq!(r.hosts(&ranks.parse().unwrap()), hosts);
        }
        let r = rset(json!({"version": 1, "execution": {
            "R_lite": [{"rank": "0-3"}], "nodelist": ["vm,vm", "b1,a1"],
        }}));
        assert_eq!(r.hosts(r.ranks()), "vm,vm,b1,a1");
        let r = rset(json!({"version": 1, "execution": {"R_lite": [{"rank": "0"}]}}));
        assert_eq!(r.hostname(BrokerRank(0)), "(unknown)");
        assert_eq!(r.hosts(r.ranks()), "(unknown)");
    }

    #[test]
    fn times() {
        let mut r = simple();
        assert_eq!((r.starttime().0, r.expiration().0), (1., 2.5));
        r.set_expiration(WallTime(10.));
        assert_eq!((r.expiration().0, &r.raw()["execution"]["expiration"]), (10., &json!(10.0)));
        assert_eq!(ResourceSet::from_json(r.raw()), Ok(r.clone()));
        r.set_expiration(WallTime(f64::INFINITY));
        assert_eq!((r.expiration().0, &r.raw()["execution"]["expiration"]), (0., &json!(0.0)));
        let r = rset(json!({"version": 1, "execution": {"R_lite": [{"rank": "0"}]}}));
        assert_eq!((r.starttime().0, r.expiration().0), (0., 0.));
        let r =
            rset(json!({"version": 1, "execution": {"R_lite": [{"rank": "0"}], "expiration": -1}}));
        assert_eq!(r.expiration(), WallTime(-1.));
    }

    #[test]
    fn local_is_of_one_rank() {
        let r = simple();
        let expected = |lite: Value, host: &str, properties: Value| {
            json!({
                "version": 1,
                "execution": {
                    "R_lite": [lite],
                    "starttime": 1.0,
                    "expiration": 2.5,
                    "nodelist": [host],
                    "properties": properties,
                },
                "scheduling": {"graph": []},
            })
        };
        for (rank, lite, host, properties) in [
            (
                2,
                json!({"rank": "2", "children": {"core": "0-3", "gpu": "0"}}),
                "host2",
                json!({"big": "2"}),
            ),
            (
                3,
                json!({"rank": "3", "children": {"core": "0-3,6", "gpu": "0"}}),
                "host3",
                json!({"fast": "3"}),
            ),
            (7, json!({"rank": "7", "children": {"core": "0-1"}}), "other", json!({"fast": "7"})),
        ] {
            let local = r.local(BrokerRank(rank));
            assert_eq!(local, expected(lite, host, properties));
            assert_eq!(rset(local).first_rank(), BrokerRank(rank));
        }
        assert_eq!(r.local(BrokerRank(0))["execution"]["R_lite"], json!([]));
    }

    #[test]
    fn little_text_needs_little_memory() {
        let ranks = json!([{"rank": "0-16777215"}]);
        let lite = |n: usize| json!({"version": 1, "execution": {"R_lite": vec![&ranks[0]; n]}});
        assert_eq!(rset(lite(10_000)).len(), 16_777_216);
        let mut large = lite(1);
        large["execution"]["R_lite"] = json!([ranks[0], {"rank": "20000000"}]);
        let error = ResourceSet::from_json(&large).unwrap_err().to_string();
        assert!(error.ends_with("there are too many ranks"), "{error}");
        let mut hosts = lite(1);
        hosts["execution"]["nodelist"] = json!(vec!["n[0-999999]"; 10_000]);
        let error = ResourceSet::from_json(&hosts).unwrap_err().to_string();
        assert!(error.contains("nodelist[1]") && error.ends_with("too many hosts"), "{error}");
    }

    #[test]
    fn errors_name_key_and_value() {
        let r_lite = |lite: Value| json!({"version": 1, "execution": {"R_lite": lite}});
        let with = |key: &str, value: Value| {
            let mut r = r_lite(json!([{"rank": "0-1"}]));
            r["execution"][key] = value;
            r
        };
        for (value, message) in [
            (json!([]), "R: []: expected an object"),
            (json!({}), "R.version: missing"),
            (json!({"version": 2}), "R.version: 2: unsupported version (expected 1)"),
            (json!({"version": "1"}), "R.version: \"1\": unsupported version (expected 1)"),
            (json!({"version": 1}), "R.execution: missing"),
            (json!({"version": 1, "execution": 3}), "R.execution: 3: expected an object"),
            (json!({"version": 1, "execution": {}}), "R.execution.R_lite: missing"),
            (r_lite(json!({})), "R.execution.R_lite: {}: expected an array"),
            (r_lite(json!([])), "R.execution.R_lite: []: there are no ranks"),
            (r_lite(json!([7])), "R.execution.R_lite[0]: 7: expected an object"),
            (r_lite(json!([{}])), "R.execution.R_lite[0].rank: missing"),
            (r_lite(json!([{"rank": 0}])), "R.execution.R_lite[0].rank: 0: expected an idset"),
            (
                r_lite(json!([{"rank": ""}])),
                "R.execution.R_lite: [{\"rank\":\"\"}]: there are no ranks",
            ),
            (with("nodelist", json!("a,b")), "R.execution.nodelist: \"a,b\": expected an array"),
            (with("nodelist", json!(["a"])), "R.execution.nodelist: [\"a\"]: 1 hosts for 2 ranks"),
            (with("nodelist", json!([1])), "R.execution.nodelist[0]: 1: expected a hostlist"),
            (
                with("nodelist", json!(["a", "b["])),
                "R.execution.nodelist[1]: \"b[\": \"b[\": brackets are mismatched",
            ),
            (with("starttime", json!("x")), "R.execution.starttime: \"x\": expected a number"),
            (with("expiration", json!(null)), "R.execution.expiration: null: expected a number"),
        ] {
            assert_eq!(ResourceSet::from_json(&value).unwrap_err().to_string(), message);
        }
        let error = ResourceSet::from_json(&r_lite(json!([{"rank": "0"}, {"rank": "3-1"}])));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("R.execution.R_lite[1].rank: \"3-1\": "), "{error}");
        let long = ResourceSet::from_json(&r_lite(json!("x".repeat(10_000)))).unwrap_err();
        assert!(long.to_string().len() < 200);
    }
}

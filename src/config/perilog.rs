//! `[exec.perilog]`: prologs and epilogs that this service runs, and the tables of flux-core's
//! `perilog.so` that say what they are (flux-core `job-manager/plugins/perilog.c`,
//! `flux-config-job-manager(5)`).

use std::path::Path;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::error::{ConfigError, invalid};
use super::given::limit_of;
use crate::proto::{PERILOG_PLUGIN, parse_fsd};

/// How long a prolog may take if nothing is configured, in seconds (`perilog.c`).
const PROLOG_TIMEOUT: f64 = 1800.0;
/// How long a script that was told to end may go on, in seconds (`perilog.c`).
const KILL_TIMEOUT: f64 = 60.0;

/// The scripts of all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerilogConfig {
    /// `job-manager.prolog`.
    pub prolog: Option<ScriptConfig>,
    /// `job-manager.epilog`.
    pub epilog: Option<ScriptConfig>,
    /// `exec.perilog.epilog-start = "job"`: epilogs begin when all shells of the job have ended, and
    /// not rank by rank.
    pub epilogs_together: bool,
    /// `exec.perilog.epilog-limit`: after this time the job does not wait for an epilog any more, and
    /// its rank is drained.
    pub epilog_limit: Option<f64>,
    /// `exec.perilog.max-tolerance`: how many degraded nodes a job may say that it bears.
    pub max_tolerance: u32,
    /// `job-manager.perilog.log-ignore`.
    pub log_ignore: LogIgnore,
}

/// One of the two. Times are seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptConfig {
    /// `command`, or `IMP run NAME`.
    pub command: Vec<String>,
    /// The command is run through the IMP.
    pub under_imp: bool,
    /// `timeout`; none is for ever.
    pub timeout: Option<f64>,
    /// `kill-timeout`: after SIGTERM.
    pub kill_timeout: f64,
    /// `per-rank`: on each of the job's ranks, and not on its first one alone.
    pub per_rank: bool,
    /// `cancel-on-exception`.
    pub cancel_on_exception: bool,
}

/// Lines of scripts that are not logged.
#[derive(Clone, Debug, Default)]
pub struct LogIgnore(Vec<Regex>);

impl PartialEq for LogIgnore {
    fn eq(&self, other: &Self) -> bool {
        let texts = |ignore: &Self| ignore.0.iter().map(Regex::to_string).collect::<Vec<_>>();
        texts(self) == texts(other)
    }
}

impl LogIgnore {
    /// Whether a line is not to be logged. Empty ones never are.
    pub fn matches(&self, line: &str) -> bool {
        line.trim().is_empty() || self.0.iter().any(|pattern| pattern.is_match(line))
    }
}

impl PerilogConfig {
    /// For `stats-get`: the scripts as `flux jobtap query perilog.so` shows them, and our own keys.
    pub(super) fn stats(&self) -> Value {
        let script =
            |script: &Option<ScriptConfig>| script.as_ref().map_or(json!({}), ScriptConfig::stats);
        json!({
            "prolog": script(&self.prolog),
            "epilog": script(&self.epilog),
            "epilog-start": if self.epilogs_together { "job" } else { "rank" },
            "epilog-limit": self.epilog_limit.unwrap_or(0.0),
            "max-tolerance": self.max_tolerance,
        })
    }

    /// Reads `exec.perilog`, and what it refers to. None if it is not enabled.
    ///
    /// # Errors
    /// Names the key and the value.
    pub(super) fn read(
        conf: &Value,
        perilog: &Value,
        imp: Option<&str>,
    ) -> Result<Option<Self>, ConfigError> {
        let own = Table::new("exec.perilog", perilog, OWN_KEYS)?;
        if !own.flag("enable")?.unwrap_or(false) {
            return Ok(None);
        }
        let manager = conf.get("job-manager").unwrap_or(&Value::Null);
        let plugins = manager["plugins"].as_array().into_iter().flatten();
        let mut loaded = plugins.filter_map(|plugin| plugin["load"].as_str());
        if loaded.any(|path| Path::new(path).file_name().is_some_and(|name| name == PERILOG_PLUGIN))
        {
            return Err(ConfigError::PerilogTwice);
        }
        let script = |name: &'static str| match manager.get(name) {
            None => Ok(None),
            Some(table) => ScriptConfig::read(name, table, imp).map(Some),
        };
        let epilogs_together = match own.text("epilog-start")? {
            None | Some("rank") => false,
            Some("job") => true,
            Some(other) => return Err(invalid("exec.perilog.epilog-start", other)),
        };
        let shared = manager.get("perilog").unwrap_or(&Value::Null);
        let shared = Table::new("job-manager.perilog", shared, &["log-ignore"])?;
        Ok(Some(Self {
            prolog: script("prolog")?,
            epilog: script("epilog")?,
            epilogs_together,
            epilog_limit: own.duration("epilog-limit")?.flatten(),
            max_tolerance: own.count("max-tolerance")?.unwrap_or(0),
            log_ignore: LogIgnore(shared.patterns("log-ignore")?),
        }))
    }
}

const OWN_KEYS: &[&str] = &["enable", "epilog-start", "epilog-limit", "max-tolerance"];
const SCRIPT_KEYS: &[&str] = &[
    "command",
    "timeout",
    "kill-timeout",
    "per-rank",
    "cancel-on-exception",
    // Read by flux-core's flux-run-system-scripts.
    "exit-on-first-error",
];

impl ScriptConfig {
    fn stats(&self) -> Value {
        json!({
            "command": self.command,
            "per_rank": self.per_rank,
            "cancel_on_exception": self.cancel_on_exception,
            "timeout": self.timeout.unwrap_or(0.0),
            "kill-timeout": self.kill_timeout,
        })
    }

    fn read(name: &'static str, table: &Value, imp: Option<&str>) -> Result<Self, ConfigError> {
        let is_prolog = name == "prolog";
        let table = Table::new(
            if is_prolog { "job-manager.prolog" } else { "job-manager.epilog" },
            table,
            SCRIPT_KEYS,
        )?;
        table.flag("exit-on-first-error")?;
        let command = match (table.words("command")?, imp) {
            (Some(command), _) => command,
            (None, Some(imp)) => [imp, "run", name].map(str::to_string).to_vec(),
            (None, None) => return Err(table.missing("command")),
        };
        if command.is_empty() {
            return Err(table.missing("command"));
        }
        let kill_timeout = table.number("kill-timeout")?.and_then(limit_of);
        let default = is_prolog.then_some(PROLOG_TIMEOUT);
        Ok(Self {
            under_imp: imp == Some(command[0].as_str()),
            command,
            timeout: table.duration("timeout")?.unwrap_or(default),
            kill_timeout: kill_timeout.unwrap_or(KILL_TIMEOUT),
            per_rank: table.flag("per-rank")?.unwrap_or(false),
            cancel_on_exception: table.flag("cancel-on-exception")?.unwrap_or(is_prolog),
        })
    }
}

/// A table whose keys are all known.
struct Table<'a> {
    name: &'static str,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> Table<'a> {
    fn new(name: &'static str, value: &'a Value, known: &[&str]) -> Result<Self, ConfigError> {
        let members = match value {
            Value::Null => None,
            Value::Object(members) => Some(members),
            other => {
                let (key, value) = (name.to_string(), other.clone());
                return Err(ConfigError::KeyType { key, expected: "a table", value });
            }
        };
        let unknown =
            members.and_then(|table| table.keys().find(|key| !known.contains(&key.as_str())));
        match unknown {
            Some(key) => Err(ConfigError::UnknownKey { key: format!("{name}.{key}") }),
            None => Ok(Self { name, members }),
        }
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.members.and_then(|table| table.get(key)) else { return Ok(None) };
        let wrong = || {
            let (key, value) = (self.key(key), value.clone());
            ConfigError::KeyType { key, expected, value }
        };
        convert(value).map(Some).ok_or_else(wrong)
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn missing(&self, key: &str) -> ConfigError {
        ConfigError::NoCommand { key: self.key(key) }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.read(key, "true or false", Value::as_bool)
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.read(key, "a number", Value::as_f64)
    }

    fn count(&self, key: &str) -> Result<Option<u32>, ConfigError> {
        self.read(key, "a number of nodes, 0 or more", |value| {
            value.as_u64().and_then(|count| u32::try_from(count).ok())
        })
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        self.read(key, "a string", Value::as_str)
    }

    fn words(&self, key: &str) -> Result<Option<Vec<String>>, ConfigError> {
        self.read(key, "an array of strings", |value| {
            let words = value.as_array()?.iter();
            words.map(|word| word.as_str().map(str::to_string)).collect()
        })
    }

    /// Seconds; none is for ever.
    fn duration(&self, key: &str) -> Result<Option<Option<f64>>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let seconds = parse_fsd(text).map_err(|_| invalid(&self.key(key), text))?;
        Ok(Some(limit_of(seconds)))
    }

    fn patterns(&self, key: &str) -> Result<Vec<Regex>, ConfigError> {
        let patterns = self.words(key)?.unwrap_or_default().into_iter();
        patterns.map(|text| Regex::new(&text).map_err(|_| invalid(&self.key(key), &text))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(conf: Value) -> Result<Option<PerilogConfig>, String> {
        let imp = conf["exec"]["imp"].as_str();
        PerilogConfig::read(&conf, &conf["exec"]["perilog"], imp).map_err(|e| e.to_string())
    }

    fn enabled(manager: Value) -> Value {
        json!({ "exec": { "perilog": { "enable": true } }, "job-manager": manager })
    }

    #[test]
    fn scripts_are_read_as_perilog_reads_them() {
        let conf = enabled(json!({
            "prolog": { "command": ["/p", "x"], "per-rank": true },
            "epilog": { "command": ["/e"], "timeout": "1m", "kill-timeout": 0.5,
                        "cancel-on-exception": true, "exit-on-first-error": true },
            "perilog": { "log-ignore": ["^debug"] },
        }));
        let perilog = read(conf).expect("good").expect("enabled");
        let PerilogConfig {
            prolog,
            epilog,
            log_ignore,
            epilogs_together,
            epilog_limit,
            max_tolerance,
        } = perilog;
        let (prolog, epilog) = (prolog.expect("a prolog"), epilog.expect("an epilog"));
        assert_eq!(prolog.command, ["/p", "x"]);
        assert_eq!((prolog.timeout, prolog.kill_timeout), (Some(1800.0), 60.0));
        assert_eq!((prolog.per_rank, prolog.cancel_on_exception), (true, true));
        assert_eq!((epilog.timeout, epilog.kill_timeout), (Some(60.0), 0.5));
        assert_eq!((epilog.per_rank, epilog.cancel_on_exception), (false, true));
        assert!(
            log_ignore.matches("debug: x") && log_ignore.matches(" \t") && !log_ignore.matches("x")
        );
        assert_eq!((epilogs_together, epilog_limit, max_tolerance), (false, None, 0));
    }

    #[test]
    fn what_is_too_long_is_for_ever_or_the_default() {
        let table = json!({ "command": ["/x"], "timeout": "1e300", "kill-timeout": 1e300 });
        let read = ScriptConfig::read("epilog", &table, None).expect("good");
        assert_eq!((read.timeout, read.kill_timeout), (None, KILL_TIMEOUT));
    }

    #[test]
    fn no_script_is_run_twice() {
        let plugins = |load: &str| json!([{ "load": "other.so" }, { "load": load }]);
        for load in ["perilog.so", "/usr/lib/flux/perilog.so"] {
            let conf = enabled(json!({ "plugins": plugins(load) }));
            assert!(read(conf).is_err_and(|text| text.contains("perilog.so")), "{load}");
        }
        assert!(read(enabled(json!({ "plugins": plugins("my-perilog.so") }))).is_ok());
    }

    #[test]
    fn without_a_command_the_imp_runs_the_script() {
        let mut conf = enabled(json!({ "epilog": {} }));
        conf["exec"]["imp"] = json!("/imp");
        conf["exec"]["perilog"]["epilog-start"] = json!("job");
        conf["exec"]["perilog"]["epilog-limit"] = json!("2h");
        conf["exec"]["perilog"]["max-tolerance"] = json!(10);
        let perilog = read(conf).expect("good").expect("enabled");
        let epilog = perilog.epilog.expect("an epilog");
        assert_eq!(epilog.command, ["/imp", "run", "epilog"]);
        assert!(epilog.under_imp && perilog.prolog.is_none());
        assert_eq!((epilog.timeout, epilog.cancel_on_exception), (None, false));
        assert_eq!((perilog.epilogs_together, perilog.epilog_limit), (true, Some(7200.0)));
        assert_eq!(perilog.max_tolerance, 10);
    }

    #[test]
    fn it_is_off_by_default() {
        let manager = json!({ "prolog": { "command": 1 } });
        assert_eq!(read(json!({ "job-manager": manager })), Ok(None), "perilog.so reads that");
        assert_eq!(read(json!({ "exec": { "perilog": { "enable": false } } })), Ok(None));
    }

    #[test]
    fn errors_name_key_and_value() {
        for (conf, expect) in [
            (json!({ "exec": { "perilog": 1 } }), "exec.perilog: expected a table, got 1"),
            (json!({ "exec": { "perilog": { "on": 1 } } }), "unknown key exec.perilog.on"),
            (
                json!({ "exec": { "perilog": { "enable": 1 } } }),
                "exec.perilog.enable: expected true or false, got 1",
            ),
            (
                json!({ "exec": { "perilog": { "enable": true, "epilog-start": "x" } } }),
                "invalid exec.perilog.epilog-start: x",
            ),
            (
                json!({ "exec": { "perilog": { "enable": true, "max-tolerance": -1 } } }),
                "exec.perilog.max-tolerance: expected a number of nodes, 0 or more, got -1",
            ),
            (enabled(json!({ "prolog": {} })), "no job-manager.prolog.command, and no exec.imp"),
            (enabled(json!({ "epilog": { "command": [] } })), "no job-manager.epilog.command"),
            (
                enabled(json!({ "prolog": { "command": ["/p", 1] } })),
                "job-manager.prolog.command: expected an array of strings, got [\"/p\",1]",
            ),
            (
                enabled(json!({ "prolog": { "command": ["/p"], "timeout": "x" } })),
                "invalid job-manager.prolog.timeout: x",
            ),
            (
                enabled(json!({ "prolog": { "command": ["/p"], "time-out": "x" } })),
                "unknown key job-manager.prolog.time-out",
            ),
            (
                enabled(json!({ "perilog": { "log-ignore": ["("] } })),
                "invalid job-manager.perilog.log-ignore: (",
            ),
        ] {
            let error = read(conf).expect_err(expect);
            assert!(error.contains(expect), "{error}");
        }
    }
}

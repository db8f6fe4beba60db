//! The `[exec]` table and the module's arguments.
//!
//! Keys, defaults and the beginnings of error texts are those of flux-core's job-exec
//! (`flux-config-exec(5)`), so that a site's configuration works unchanged. Arguments override the
//! table. This module adds the values `auto`, `systemd` and `fork` of `method`, and the keys
//! `fanout`, `starts-in-flight`, `peer-timeout`, `checkpoint-interval`, `output-limit`,
//! `output-disk-limit`, `state-directory` and `keep-jobs`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::port::supervisor::OutputLimits;
use crate::proto::{ExecMethod, Signal, parse_fsd, parse_size};
pub use error::ConfigError;
use error::invalid;
pub use perilog::{LogIgnore, Perilog, Script};

mod error;
mod perilog;

/// Configuration of one module. Durations are seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `exec.method`.
    pub method: ExecMethod,
    /// The setting that has chosen the method, as `exec.KEY=VALUE`. Empty: nothing has.
    pub method_setting: String,
    /// What flux-core calls the way in which jobs are run that are not mocked: its own value of
    /// `exec.method`, else its default. Tools look for it in `stats-get`.
    pub implementation: &'static str,
    /// `exec.service`: flux-core's choice of a launcher.
    pub service: Option<String>,
    /// `exec.job-shell`; `None`: flux-core's own.
    pub job_shell: Option<String>,
    /// `exec.imp`: path of the IMP, needed for guests' jobs.
    pub imp: Option<String>,
    /// `exec.kill-timeout`: time between steps of the kill escalation.
    pub kill_timeout: f64,
    /// `exec.max-kill-count`: signals to the shell before its rank is drained.
    pub max_kill_count: u32,
    /// `exec.max-kill-timeout`: replaces `max-kill-count` when set.
    pub max_kill_timeout: Option<f64>,
    /// `exec.term-signal`.
    pub term_signal: Signal,
    /// `exec.kill-signal`.
    pub kill_signal: Signal,
    /// `exec.barrier-timeout`; `None`: no timeout.
    pub barrier_timeout: Option<f64>,
    /// `exec.shell-exit-timeout`; `None`: no timeout.
    pub shell_exit_timeout: Option<f64>,
    /// `exec.max-start-delay-percent`: a job whose start was delayed by more than this part
    /// of its duration gets the delay back.
    pub max_start_delay_percent: f64,
    /// `exec.sdexec-properties`: properties for every unit.
    pub properties: BTreeMap<String, String>,
    /// `exec.sdexec-stop-timer-sec`; `None`: as long as the kill escalation takes.
    pub stop_timer: Option<u32>,
    /// `exec.sdexec-stop-timer-signal`.
    pub stop_timer_signal: i32,
    /// `exec.sdexec-constrain-resources`.
    pub constrain_resources: bool,
    /// `exec.testexec.allow-guests`: guests' jobs may be mocked, too.
    pub testexec_allow_guests: bool,
    /// `exec.fanout`: most children of one rank in the tree over a job's ranks.
    pub fanout: u32,
    /// `exec.starts-in-flight`: units that one rank starts at the same time. More would only make
    /// systemd's queue longer.
    pub starts_in_flight: usize,
    /// `exec.peer-timeout`: how long others wait for a rank whose module, or broker, is away. The
    /// default fits a service that systemd restarts after 30 s (flux-core `etc/flux.service.in`).
    pub peer_timeout: f64,
    /// `exec.checkpoint-interval`: how long after a change a checkpoint of the KVS has it.
    pub checkpoint_interval: f64,
    /// `exec.output-limit` and `exec.output-disk-limit`: bounds of a shell's own output.
    pub output: OutputLimits,
    /// `exec.state-directory`: where each rank keeps records and output, an absolute path.
    pub state_directory: Option<String>,
    /// `exec.keep-jobs`: a stop of an instance that comes back leaves its jobs running.
    pub keep_jobs: bool,
    /// `exec.perilog`: this service runs prologs and epilogs.
    pub perilog: Option<Perilog>,
}

/// flux-core's default of `exec.method`.
const BULK_EXEC: &str = "bulk-exec";
/// Its other one, of later releases.
const BGEXEC: &str = "bgexec";

/// Keys whose values are strings in the table, too.
const TEXTS: &[&str] = &[
    "method",
    "service",
    "job-shell",
    "imp",
    "kill-timeout",
    "max-kill-timeout",
    "term-signal",
    "kill-signal",
    "barrier-timeout",
    "shell-exit-timeout",
    "peer-timeout",
    "checkpoint-interval",
    "state-directory",
];

/// [`Config::peer_timeout`] of an instance that has not found its peers by configuration:
/// nobody starts its brokers again.
const PEER_TIMEOUT_WITHOUT_RESTART: f64 = 30.0;

impl Default for Config {
    fn default() -> Self {
        Self {
            method: ExecMethod::Auto,
            method_setting: String::new(),
            implementation: BULK_EXEC,
            service: None,
            job_shell: None,
            imp: None,
            kill_timeout: 5.0,
            max_kill_count: 8,
            max_kill_timeout: None,
            term_signal: Signal::TERM,
            kill_signal: Signal::KILL,
            barrier_timeout: Some(1800.0),
            shell_exit_timeout: Some(30.0),
            max_start_delay_percent: 25.0,
            properties: BTreeMap::new(),
            stop_timer: None,
            stop_timer_signal: 10,
            constrain_resources: false,
            testexec_allow_guests: false,
            fanout: 64,
            starts_in_flight: 16,
            // The stock unit restarts a broker after 30 s (flux-core `etc/flux.service.in`).
            peer_timeout: 120.0,
            checkpoint_interval: 1.0,
            output: OutputLimits::default(),
            state_directory: None,
            keep_jobs: true,
            perilog: None,
        }
    }
}

/// Longest duration that is accepted, in seconds: about 30 years.
const DURATION_MAX: f64 = 1e9;

/// Longest pause between two signals of the kill escalation, in seconds.
pub const KILL_PAUSE_MAX: f64 = 300.0;

impl Config {
    /// Reads the instance's configuration object and the module's arguments.
    ///
    /// # Errors
    /// Names the key (or argument) and the value.
    pub fn new(conf: &Value, arguments: &[String]) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if conf.get("bootstrap").is_none() {
            config.peer_timeout = PEER_TIMEOUT_WITHOUT_RESTART;
        }
        let empty = Map::new();
        let exec = match conf.get("exec") {
            None => &empty,
            Some(Value::Object(exec)) => exec,
            Some(other) => {
                return Err(ConfigError::Table { value: other.clone() });
            }
        };
        for (key, value) in exec {
            config.read_key(key, value)?;
        }
        for argument in arguments {
            let (key, value) = argument
                .split_once('=')
                .ok_or_else(|| ConfigError::ArgumentForm { argument: argument.clone() })?;
            config.read_argument(key, value)?;
        }
        if let Some(perilog) = exec.get("perilog") {
            config.perilog = Perilog::read(conf, perilog, config.imp.as_deref())?;
        }
        // In flux-core `service` chooses the launcher. Here it only counts if no method is
        // configured.
        let launcher = config.service.as_deref().filter(|_| config.method.is_auto());
        if let Some((service, method)) = launcher.and_then(|name| Some((name, of_service(name)?))) {
            config.method_setting = format!("exec.service={service}");
            config.method = method;
        }
        Ok(config)
    }

    fn read_key(&mut self, key: &str, value: &Value) -> Result<(), ConfigError> {
        match key {
            key if TEXTS.contains(&key) => self.read_text(key, string(key, value)?),
            "max-kill-count" => self.set_max_kill_count(integer(key, value)?),
            "max-start-delay-percent" => {
                self.max_start_delay_percent =
                    value.as_f64().ok_or_else(|| wrong_type(key, "a number", value))?;
                Ok(())
            }
            "sdexec-properties" => self.read_properties(value),
            "sdexec-stop-timer-sec" => {
                self.stop_timer = u32::try_from(integer(key, value)?).ok();
                Ok(())
            }
            "sdexec-stop-timer-signal" => {
                self.stop_timer_signal = i32::try_from(integer(key, value)?)
                    .map_err(|_| wrong_type(key, "a signal number", value))?;
                Ok(())
            }
            "sdexec-constrain-resources" => {
                self.constrain_resources =
                    value.as_bool().ok_or_else(|| wrong_type(key, "true or false", value))?;
                Ok(())
            }
            "keep-jobs" => {
                self.keep_jobs =
                    value.as_bool().ok_or_else(|| wrong_type(key, "true or false", value))?;
                Ok(())
            }
            "testexec" => self.read_testexec(value),
            "fanout" => self.set_fanout(integer(key, value)?),
            "starts-in-flight" => self.set_starts_in_flight(integer(key, value)?),
            "output-limit" | "output-disk-limit" => match value {
                Value::Number(number) => self.read_text(key, &number.to_string()),
                other => self.read_text(key, string(key, other)?),
            },
            // Other keys of the table belong to others, such as plugins.
            _ => Ok(()),
        }
    }

    fn read_argument(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let number = || value.parse::<i64>().map_err(|_| invalid(key, value));
        match key {
            "max-kill-count" => self.set_max_kill_count(number()?),
            "fanout" => self.set_fanout(number()?),
            "starts-in-flight" => self.set_starts_in_flight(number()?),
            "output-limit" | "output-disk-limit" => self.read_text(key, value),
            key if TEXTS.contains(&key) => self.read_text(key, value),
            _ => {
                let (key, value) = (key.to_string(), value.to_string());
                Err(ConfigError::UnknownArgument { key, value })
            }
        }
    }

    /// Reads keys that are text both in the table and as arguments.
    fn read_text(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let bad = || invalid(key, value);
        let duration = || parse_fsd(value).map_err(|_| bad());
        let positive = || match duration()? {
            seconds if seconds > 0.0 && seconds <= DURATION_MAX => Ok(seconds),
            _ => Err(bad()),
        };
        let signal = || value.parse().map_err(|_| bad());
        let bytes = || parse_size(value).filter(|bytes| *bytes > 0).ok_or_else(bad);
        match key {
            "method" => {
                let unknown = |_| ConfigError::Method { value: value.to_string() };
                self.method = value.parse().map_err(unknown)?;
                self.method_setting = format!("exec.method={value}");
                self.implementation = if value == BGEXEC { BGEXEC } else { BULK_EXEC };
            }
            "service" => self.service = Some(value.to_string()),
            "job-shell" => self.job_shell = Some(value.to_string()),
            "imp" => self.imp = Some(value.to_string()),
            "kill-timeout" => self.kill_timeout = positive()?,
            "max-kill-timeout" => self.max_kill_timeout = Some(positive()?),
            "term-signal" => self.term_signal = signal()?,
            "kill-signal" => self.kill_signal = signal()?,
            "barrier-timeout" => {
                let seconds = parse_fsd(value)
                    .map_err(|_| ConfigError::BarrierTimeout { value: value.to_string() })?;
                self.barrier_timeout = (seconds > 0.0).then_some(seconds);
            }
            "shell-exit-timeout" if value == "none" => self.shell_exit_timeout = None,
            "shell-exit-timeout" => {
                let seconds = duration()?;
                self.shell_exit_timeout = (seconds > 0.0).then_some(seconds);
            }
            "peer-timeout" => self.peer_timeout = positive()?,
            "checkpoint-interval" => self.checkpoint_interval = positive()?,
            "output-limit" => self.output.stream = bytes()?,
            "output-disk-limit" => self.output.disk = bytes()?,
            "state-directory" if value.starts_with('/') && !value.contains('\0') => {
                self.state_directory = Some(value.to_string());
            }
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn read_properties(&mut self, value: &Value) -> Result<(), ConfigError> {
        let Value::Object(table) = value else {
            return Err(ConfigError::Properties);
        };
        for (name, value) in table {
            let Value::String(text) = value else {
                return Err(ConfigError::Property { name: name.clone() });
            };
            self.properties.insert(name.clone(), text.clone());
        }
        Ok(())
    }

    fn read_testexec(&mut self, value: &Value) -> Result<(), ConfigError> {
        let Value::Object(table) = value else {
            return Err(wrong_type("testexec", "a table", value));
        };
        if let Some(value) = table.get("allow-guests") {
            let allowed = value.as_bool();
            let wrong = || wrong_type("testexec.allow-guests", "true or false", value);
            self.testexec_allow_guests = allowed.ok_or_else(wrong)?;
        }
        Ok(())
    }

    fn set_max_kill_count(&mut self, value: i64) -> Result<(), ConfigError> {
        self.max_kill_count = bounded("max-kill-count", value)?;
        Ok(())
    }

    fn set_fanout(&mut self, value: i64) -> Result<(), ConfigError> {
        self.fanout = bounded("fanout", value)?;
        Ok(())
    }

    fn set_starts_in_flight(&mut self, value: i64) -> Result<(), ConfigError> {
        self.starts_in_flight = bounded("starts-in-flight", value)? as usize;
        Ok(())
    }

    /// The configured service, if there is no such launcher. flux-core takes any name, too, and cannot
    /// run jobs then.
    pub fn unknown_service(&self) -> Option<&str> {
        self.service.as_deref().filter(|service| !["rexec", "sdexec"].contains(service))
    }

    /// What an administrator should know about this configuration.
    pub fn warning(&self) -> Option<String> {
        let service = self.unknown_service()?;
        Some(format!(
            "exec.service '{service}' cannot start job shells (expected rexec or sdexec): all jobs will fail"
        ))
    }

    /// The key that bounds what shells use, if one does. Only a unit can be bounded so.
    pub fn needs_units(&self) -> Option<&'static str> {
        match (self.constrain_resources, self.properties.is_empty()) {
            (true, _) => Some("sdexec-constrain-resources"),
            (false, false) => Some("sdexec-properties"),
            (false, true) => None,
        }
    }

    /// Estimate of the time that the kill escalation takes before ranks are drained, in
    /// seconds (flux-core `job_exec_max_kill_timeout`).
    pub fn effective_max_kill_timeout(&self) -> f64 {
        if let Some(timeout) = self.max_kill_timeout {
            return timeout;
        }
        let mut total = self.kill_timeout * 5.0;
        let mut pause = self.kill_timeout;
        let mut left = self.max_kill_count.saturating_sub(1);
        while left > 0 && pause != KILL_PAUSE_MAX {
            total += pause;
            pause = (pause * 2.0).min(KILL_PAUSE_MAX);
            left -= 1;
        }
        // The count can be in the billions, so the rest is not added one by one.
        total + f64::from(left) * KILL_PAUSE_MAX
    }

    /// The configuration as `stats-get` shows it, under flux-core's names.
    pub fn stats(&self, builtin_shell: &str) -> Value {
        let stop_timer =
            self.stop_timer.map_or_else(|| self.effective_max_kill_timeout().ceil(), f64::from);
        let mut stats = json!({
            "default_cwd": "/tmp",
            "default_job_shell": self.job_shell.as_deref().unwrap_or(builtin_shell),
            "exec_service": self.service.as_deref().unwrap_or(match self.method {
                ExecMethod::Systemd => "sdexec",
                ExecMethod::Auto | ExecMethod::Fork => "rexec",
            }),
            "default_barrier_timeout": self.barrier_timeout.unwrap_or(0.0),
            "shell_exit_timeout": self.shell_exit_timeout.unwrap_or(0.0),
            "sdexec_stop_timer_sec": stop_timer as i64,
            "sdexec_stop_timer_signal": self.stop_timer_signal,
            "sdexec_constrain_resources": i32::from(self.constrain_resources),
            "fanout": self.fanout,
            "starts_in_flight": self.starts_in_flight,
            "peer_timeout": self.peer_timeout,
            "checkpoint_interval": self.checkpoint_interval,
            "output_limit": self.output.stream,
            "output_disk_limit": self.output.disk,
            "state_directory": self.state_directory,
        });
        if let Some(imp) = &self.imp {
            stats["flux_imp_path"] = json!(imp);
        }
        if !self.properties.is_empty() {
            stats["sdexec_properties"] = json!(self.properties);
        }
        if let Some(perilog) = &self.perilog {
            stats["perilog"] = perilog.stats();
        }
        stats
    }
}

/// What flux-core's launcher of this name does.
fn of_service(name: &str) -> Option<ExecMethod> {
    match name {
        "sdexec" => Some(ExecMethod::Systemd),
        "rexec" => Some(ExecMethod::Fork),
        _ => None,
    }
}

fn bounded(key: &str, value: i64) -> Result<u32, ConfigError> {
    let bounded = u32::try_from(value).ok().filter(|value| *value > 0);
    bounded.ok_or_else(|| ConfigError::OutOfRange { key: key.to_string(), value })
}

fn wrong_type(key: &str, expected: &'static str, value: &Value) -> ConfigError {
    ConfigError::Type { key: key.to_string(), expected, value: value.clone() }
}

fn string<'a>(key: &str, value: &'a Value) -> Result<&'a str, ConfigError> {
    value.as_str().ok_or_else(|| wrong_type(key, "a string", value))
}

fn integer(key: &str, value: &Value) -> Result<i64, ConfigError> {
    value.as_i64().ok_or_else(|| wrong_type(key, "an integer", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(exec: Value, arguments: &[&str]) -> Result<Config, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Config::new(&json!({ "exec": exec }), &arguments).map_err(|e| e.to_string())
    }

    #[test]
    fn arguments_override_the_table() {
        let config = parse(
            json!({"kill-timeout": "1s", "max-kill-count": 3, "shell-exit-timeout": "none",
                   "barrier-timeout": "0", "testexec": {"allow-guests": true}}),
            &["kill-timeout=0.5", "term-signal=INT"],
        )
        .expect("good");
        assert_eq!(config.kill_timeout, 0.5);
        assert_eq!(config.max_kill_count, 3);
        assert_eq!(config.term_signal, Signal::INT);
        assert_eq!(config.shell_exit_timeout, None);
        assert_eq!(config.barrier_timeout, None);
    }

    #[test]
    fn brokers_that_nobody_starts_again_are_waited_for_less_long() {
        let system = json!({ "bootstrap": {} });
        assert_eq!(Config::new(&system, &[]), Ok(Config::default()));
        let timeout = |conf| Config::new(&conf, &[]).map(|config| config.peer_timeout);
        assert_eq!(timeout(json!({})), Ok(PEER_TIMEOUT_WITHOUT_RESTART));
        assert_eq!(timeout(json!({ "exec": { "peer-timeout": "5m" } })), Ok(300.0));
    }

    #[test]
    fn upstreams_service_narrows_the_method() {
        let method = |exec, arguments: &[&str]| parse(exec, arguments).map(|c| c.method);
        assert_eq!(method(json!({"service": "sdexec"}), &[]), Ok(ExecMethod::Systemd));
        assert_eq!(method(json!({}), &["service=rexec"]), Ok(ExecMethod::Fork));
        assert_eq!(
            method(json!({"service": "sdexec", "method": "fork"}), &[]),
            Ok(ExecMethod::Fork)
        );
        assert_eq!(method(json!({"method": "sdexec"}), &[]), Ok(ExecMethod::Systemd));
    }

    #[test]
    fn the_setting_that_has_chosen_the_method_is_known() {
        let setting =
            |exec, arguments: &[&str]| parse(exec, arguments).expect("good").method_setting;
        assert_eq!(setting(json!({}), &[]), "");
        assert_eq!(setting(json!({"method": "sdexec"}), &[]), "exec.method=sdexec");
        assert_eq!(setting(json!({"service": "sdexec"}), &[]), "exec.service=sdexec");
        let narrowed = setting(json!({"method": "auto", "service": "sdexec"}), &[]);
        assert_eq!(narrowed, "exec.service=sdexec");
        let overridden = setting(json!({"service": "sdexec"}), &["method=systemd"]);
        assert_eq!(overridden, "exec.method=systemd");
    }

    #[test]
    fn upstreams_method_is_told_by_its_name() {
        let read = |exec, arguments: &[&str]| {
            parse(exec, arguments).map(|config| (config.method, config.implementation))
        };
        assert_eq!(read(json!({}), &[]), Ok((ExecMethod::Auto, "bulk-exec")));
        assert_eq!(read(json!({"method": "bgexec"}), &[]), Ok((ExecMethod::Auto, "bgexec")));
        let overridden = read(json!({"method": "bgexec"}), &["method=bulk-exec"]);
        assert_eq!(overridden, Ok((ExecMethod::Auto, "bulk-exec")));
        let narrowed = read(json!({"method": "bgexec", "service": "sdexec"}), &[]);
        assert_eq!(narrowed, Ok((ExecMethod::Systemd, "bgexec")));
    }

    #[test]
    fn a_service_that_there_is_not_is_told() {
        let service = |exec, arguments: &[&str]| {
            let config = parse(exec, arguments).expect("as in flux-core");
            (config.unknown_service().map(str::to_string), config.stats("")["exec_service"].clone())
        };
        assert_eq!(service(json!({}), &[]), (None, json!("rexec")));
        assert_eq!(service(json!({"service": "x"}), &["service=sdexec"]), (None, json!("sdexec")));
        assert_eq!(service(json!({"service": "x"}), &[]), (Some("x".to_string()), json!("x")));
    }

    #[test]
    fn errors_name_key_and_value() {
        for (exec, arguments, expect) in [
            (json!({"kill-timeout": "0"}), vec![], "invalid kill-timeout: 0"),
            (json!({"kill-timeout": 5}), vec![], "exec.kill-timeout: expected a string, got 5"),
            (json!({"kill-signal": "FOO"}), vec![], "invalid kill-signal: FOO"),
            (json!({"job-shell": 1}), vec![], "error reading config value exec.job-shell"),
            (json!({"method": "x"}), vec![], "unknown exec.method 'x'"),
            (json!({"keep-jobs": "no"}), vec![], "exec.keep-jobs: expected true or false, got"),
            (json!({"testexec": 1}), vec![], "exec.testexec: expected a table, got 1"),
            (
                json!({"testexec": {"allow-guests": 1}}),
                vec![],
                "exec.testexec.allow-guests: expected true or false, got 1",
            ),
            (json!({"max-kill-count": 0}), vec![], "invalid max-kill-count=0"),
            (json!({"sdexec-properties": 1}), vec![], "exec.sdexec-properties is not a table"),
            (json!({"sdexec-properties": {"A": 1}}), vec![], "properties.A is not a string"),
            (json!({"barrier-timeout": "x"}), vec![], "invalid duration 'x' specified for"),
            (json!({"fanout": 0}), vec![], "invalid fanout=0"),
            (json!({"output-limit": 0}), vec![], "invalid output-limit: 0"),
            (json!({"output-limit": -1.5}), vec![], "invalid output-limit: -1.5"),
            (json!({"output-disk-limit": "1X"}), vec![], "invalid output-disk-limit: 1X"),
            (json!({"output-limit": []}), vec![], "exec.output-limit: expected a string, got []"),
            (json!({"state-directory": "var"}), vec![], "invalid state-directory: var"),
            (json!({}), vec!["state-directory="], "invalid state-directory: "),
            (json!(3), vec![], "Error reading [exec] table: got 3"),
            (json!({}), vec!["foo=1"], "unknown module argument 'foo=1'"),
            (json!({}), vec!["foo"], "unknown module argument 'foo'"),
            (json!({}), vec!["kill-timeout=foo"], "invalid kill-timeout: foo"),
            (json!({}), vec!["max-kill-count=x"], "invalid max-kill-count: x"),
        ] {
            let error = parse(exec, &arguments).expect_err(expect);
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn the_kill_escalation_is_estimated_as_upstream_does() {
        let config = Config { kill_timeout: 1.0, max_kill_count: 4, ..Config::default() };
        assert_eq!(config.effective_max_kill_timeout(), 12.0);
        let many = Config { max_kill_count: u32::MAX, ..config };
        // At once, although it is added up signal by signal.
        assert_eq!(many.effective_max_kill_timeout(), 1_288_490_186_016.0);
    }
}

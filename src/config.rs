//! The `[exec]` table and the module's arguments.
//!
//! Keys, defaults and the beginnings of error texts are those of flux-core's job-exec
//! (`flux-config-exec(5)`), so that a site's configuration works unchanged. Arguments override the
//! table. This module adds the values `auto`, `systemd` and `fork` of `method`, and keys of its own
//! ([`Trait::Ours`]).

use serde_json::{Map, Value, json};

use crate::port::supervisor::Limits;
use crate::proto::ExecMethod;
pub use error::ConfigError;
use given::{Given, Source};
pub use keys::{Config, KEYS, Key, Trait};
pub use method::ConfiguredMethod;
use method::launcher;
pub use perilog::{LogIgnore, PerilogConfig, ScriptConfig};

mod error;
mod given;
mod keys;
mod method;
mod perilog;

/// [`Config::peer_timeout`] of an instance that has not found its peers by configuration:
/// nobody starts its brokers again.
const PEER_TIMEOUT_WITHOUT_RESTART: f64 = 30.0;

/// Longest pause between two signals of the kill escalation, in seconds.
pub const KILL_PAUSE_MAX: f64 = 300.0;

impl Default for Limits {
    fn default() -> Self {
        Config::default().limits()
    }
}

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
        for (name, value) in exec {
            // Other keys of the table belong to others, such as plugins.
            if let Some(key) = Key::find(name) {
                (key.read)(&mut config, &Given { key: key.name, value: Source::Table(value) })?;
            }
        }
        for argument in arguments {
            let (name, value) = argument
                .split_once('=')
                .ok_or_else(|| ConfigError::ArgumentForm { argument: argument.clone() })?;
            let Some(key) = Key::find(name).filter(|key| key.is(Trait::Argument)) else {
                let (key, value) = (name.to_string(), value.to_string());
                return Err(ConfigError::UnknownArgument { key, value });
            };
            (key.read)(&mut config, &Given { key: key.name, value: Source::Argument(value) })?;
        }
        if let Some(perilog) = exec.get("perilog") {
            config.perilog = PerilogConfig::read(conf, perilog, config.imp.as_deref())?;
        }
        Ok(config)
    }

    /// How shells are started. In flux-core `service` chooses the launcher. Here it only counts if no
    /// method is configured.
    pub fn method(&self) -> ExecMethod {
        self.of_service().unwrap_or(self.method.chosen())
    }

    /// The setting that has chosen the method, as `exec.KEY=VALUE`. Empty: nothing has.
    pub fn method_setting(&self) -> String {
        match &self.service {
            Some(service) if self.of_service().is_some() => format!("exec.service={service}"),
            _ => self.method.setting(),
        }
    }

    /// What flux-core calls the way in which jobs are run that are not mocked: its own value of
    /// `exec.method`, else its default. Tools look for it in `stats-get`.
    pub fn implementation(&self) -> &'static str {
        self.method.of_flux_core()
    }

    /// The configured service, if there is no such launcher. flux-core takes any name, too, and cannot
    /// run jobs then.
    pub fn unknown_service(&self) -> Option<&str> {
        self.service.as_deref().filter(|name| launcher(name).is_none())
    }

    fn of_service(&self) -> Option<ExecMethod> {
        self.service.as_deref().filter(|_| self.method.chosen().is_auto()).and_then(launcher)
    }

    /// Bounds of what the supervisor of a rank does.
    pub fn limits(&self) -> Limits {
        Limits {
            starts_in_flight: self.starts_in_flight as usize,
            stream: self.output_limit,
            disk: self.output_disk_limit,
        }
    }

    /// Keys with another value in this configuration that take effect when the module is loaded again.
    pub fn changed_at_load(&self, new: &Self) -> Vec<&'static str> {
        let changed = KEYS.iter().filter(|key| key.is(Trait::AtLoad) && !(key.is_same)(self, new));
        changed.map(|key| key.name).collect()
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

    /// Whether the kernel kills what is left of a job. Where another signal than SIGKILL is to kill,
    /// nothing else does.
    pub fn kernel_kills(&self) -> bool {
        self.cgroup_kill && self.kill_signal == crate::proto::Signal::KILL
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
        let mut stats = json!({ "default_cwd": "/tmp" });
        for (name, show) in KEYS.iter().filter_map(|key| key.shown) {
            if let Some(value) = show(self) {
                stats[name] = value;
            }
        }
        if self.job_shell.is_none() {
            stats["default_job_shell"] = json!(builtin_shell);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Signal;

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
        let method = |exec, arguments: &[&str]| parse(exec, arguments).map(|c| c.method());
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
            |exec, arguments: &[&str]| parse(exec, arguments).expect("good").method_setting();
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
            parse(exec, arguments).map(|config| (config.method(), config.implementation()))
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

    /// No timer can be set to what is too long.
    #[test]
    fn a_duration_has_bounds() {
        for (key, text) in KEYS.iter().flat_map(|key| [(key, "inf"), (key, "1e10")]) {
            let Ok(config) = parse(json!({ key.name: text }), &[]) else { continue };
            let config = format!("{config:?}");
            let is_too_long =
                ["(inf)", ": inf", "10000000000.0"].iter().any(|it| config.contains(it));
            assert!(!is_too_long, "{}={text}: {config}", key.name);
        }
        for key in ["kill-timeout", "max-kill-timeout", "peer-timeout", "checkpoint-interval"] {
            assert_eq!(parse(json!({ key: "inf" }), &[]), Err(format!("invalid {key}: inf")));
        }
        let limits = json!({ "barrier-timeout": "inf", "shell-exit-timeout": "infinity" });
        let config = parse(limits, &[]).expect("as in flux-core");
        assert_eq!((config.barrier_timeout, config.shell_exit_timeout), (None, None));
    }

    #[test]
    fn what_is_read_at_load_is_named_when_it_changes() {
        let of = |exec| parse(exec, &[]).expect("good");
        let new = of(json!({ "method": "fork", "output-limit": "1M", "fanout": 2 }));
        assert_eq!(of(json!({})).changed_at_load(&new), ["method", "output-limit"]);
        assert_eq!(new.changed_at_load(&new), [""; 0]);
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
            (
                json!({"sdexec-stop-timer-sec": 5_000_000_000_i64}),
                vec![],
                "invalid sdexec-stop-timer-sec=5000000000",
            ),
            (json!({"sdexec-stop-timer-signal": 0}), vec![], "invalid sdexec-stop-timer-signal=0"),
            (
                json!({"max-start-delay-percent": -1}),
                vec![],
                "exec.max-start-delay-percent: expected a number that is not below 0, got -1",
            ),
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

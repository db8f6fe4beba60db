//! The keys of `[exec]`. Each is declared once: what is read into the configuration, how and when, and
//! what `stats-get` shows of it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::error::ConfigError;
use super::given::{
    Given, absolute_path, allow_guests, barrier_limit, bytes, count, duration, end_limit, flag,
    method, percentage, properties, seconds, signal, signal_number, text,
};
use super::{ConfiguredMethod, PerilogConfig};
use crate::proto::{ExecMethod, Signal};

/// What else there is to know of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trait {
    /// It can be an argument of the module as well.
    Argument,
    /// A change takes effect when the module is loaded again.
    AtLoad,
    /// It is not flux-core's.
    Ours,
}

/// None: it is left out.
type Show = fn(&Config) -> Option<Value>;

/// A key of the table.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What else there is to know of it.
    pub traits: &'static [Trait],
    /// Its name in `config` of `stats-get`, and what it has there.
    pub shown: Option<(&'static str, Show)>,
    pub(super) read: fn(&mut Config, &Given) -> Result<(), ConfigError>,
    pub(super) is_same: fn(&Config, &Config) -> bool,
}

impl Key {
    /// The key of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Whether it has this trait.
    pub fn is(&self, what: Trait) -> bool {
        self.traits.contains(&what)
    }
}

/// Of each key: `NAME FIELD: TYPE = DEFAULT, READER, [TRAITS], NAME IN STATS-GET SHOWER;`. What has no
/// name in `stats-get` is not shown among the settings.
macro_rules! keys {
    ($($(#[$doc:meta])* $name:literal $field:ident: $type:ty = $default:expr,
       $read:expr, [$($trait:ident),*] $(, $shown:literal $show:path)?;)*) => {
        /// Configuration of one module. Durations are seconds.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config { $($(#[$doc])* pub $field: $type,)* }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// All keys of the table that are read.
        pub const KEYS: &[Key] = &[$(Key {
            name: $name,
            traits: &[$(Trait::$trait),*],
            shown: shown!($($shown, $field, $show)?),
            read: |config, given| {
                config.$field = $read(given)?;
                Ok(())
            },
            is_same: |old, new| old.$field == new.$field,
        },)*];
    };
}

macro_rules! shown {
    () => {
        None
    };
    ($name:literal, $field:ident, $show:path) => {
        Some(($name, |config: &Config| $show(&config.$field, config)))
    };
}

keys! {
    /// `exec.method`.
    "method" method: ConfiguredMethod = ConfiguredMethod::default(), method, [Argument, AtLoad];
    /// `exec.service`: flux-core's choice of a launcher.
    "service" service: Option<String> = None, some(text), [Argument, AtLoad],
        "exec_service" service;
    /// `exec.job-shell`; `None`: flux-core's own.
    "job-shell" job_shell: Option<String> = None, some(text), [Argument], "default_job_shell" plain;
    /// `exec.imp`: path of the IMP, needed for guests' jobs.
    "imp" imp: Option<String> = None, some(text), [Argument], "flux_imp_path" if_set;
    /// `exec.kill-timeout`: time between steps of the kill escalation.
    "kill-timeout" kill_timeout: f64 = 5.0, duration, [Argument];
    /// `exec.max-kill-count`: signals to the shell before its rank is drained.
    "max-kill-count" max_kill_count: u32 = 8, count, [Argument];
    /// `exec.max-kill-timeout`: replaces `max-kill-count` when set.
    "max-kill-timeout" max_kill_timeout: Option<f64> = None, some(duration), [Argument];
    /// `exec.cgroup-kill`: the kernel kills what is left of a job before its rank is drained.
    "cgroup-kill" cgroup_kill: bool = true, flag, [Ours], "cgroup_kill" plain;
    /// `exec.term-signal`.
    "term-signal" term_signal: Signal = Signal::TERM, signal, [Argument];
    /// `exec.kill-signal`.
    "kill-signal" kill_signal: Signal = Signal::KILL, signal, [Argument];
    /// `exec.barrier-timeout`; `None`: no timeout.
    "barrier-timeout" barrier_timeout: Option<f64> = Some(1800.0), barrier_limit, [Argument],
        "default_barrier_timeout" or_zero;
    /// `exec.shell-exit-timeout`; `None`: no timeout.
    "shell-exit-timeout" shell_exit_timeout: Option<f64> = Some(30.0), end_limit, [Argument],
        "shell_exit_timeout" or_zero;
    /// `exec.max-start-delay-percent`: a job whose start was delayed by more than this part
    /// of its duration gets the delay back.
    "max-start-delay-percent" max_start_delay_percent: f64 = 25.0, percentage, [];
    /// `exec.sdexec-properties`: properties for every unit.
    "sdexec-properties" properties: BTreeMap<String, String> = BTreeMap::new(), properties, [],
        "sdexec_properties" if_any;
    /// `exec.sdexec-stop-timer-sec`; `None`: as long as the kill escalation takes.
    "sdexec-stop-timer-sec" stop_timer: Option<u32> = None, seconds, [],
        "sdexec_stop_timer_sec" stop_timer;
    /// `exec.sdexec-stop-timer-signal`.
    "sdexec-stop-timer-signal" stop_timer_signal: i32 = libc::SIGUSR1, signal_number, [],
        "sdexec_stop_timer_signal" plain;
    /// `exec.sdexec-constrain-resources`.
    "sdexec-constrain-resources" constrain_resources: bool = false, flag, [AtLoad],
        "sdexec_constrain_resources" as_number;
    /// `exec.testexec.allow-guests`: guests' jobs may be mocked, too.
    "testexec" testexec_allow_guests: bool = false, allow_guests, [];
    /// `exec.fanout`: most children of one rank in the tree over a job's ranks.
    "fanout" fanout: u32 = 64, count, [Argument, Ours], "fanout" plain;
    /// `exec.starts-in-flight`: units that one rank starts at the same time. More would only make
    /// systemd's queue longer.
    "starts-in-flight" starts_in_flight: u32 = 16, count, [Argument, AtLoad, Ours],
        "starts_in_flight" plain;
    /// `exec.peer-timeout`: how long others wait for a rank whose module, or broker, is away. The
    /// default fits a service that systemd restarts after 30 s (flux-core `etc/flux.service.in`).
    "peer-timeout" peer_timeout: f64 = 120.0, duration, [Argument, Ours], "peer_timeout" plain;
    /// `exec.checkpoint-interval`: how long after a change a checkpoint of the KVS has it.
    "checkpoint-interval" checkpoint_interval: f64 = 1.0, duration, [Argument, Ours],
        "checkpoint_interval" plain;
    /// `exec.output-limit`: bytes of one stream of a shell's own output that are reported.
    "output-limit" output_limit: u64 = 64 << 20, bytes, [Argument, AtLoad, Ours],
        "output_limit" plain;
    /// `exec.output-disk-limit`: bytes on the disk that one stream's file may take.
    "output-disk-limit" output_disk_limit: u64 = 1 << 30, bytes, [Argument, AtLoad, Ours],
        "output_disk_limit" plain;
    /// `exec.state-directory`: where each rank keeps records and output, an absolute path.
    "state-directory" state_directory: Option<String> = None, some(absolute_path),
        [Argument, AtLoad, Ours], "state_directory" plain;
    /// `exec.usage`: what jobs use is measured.
    "usage" usage: bool = true, flag, [Ours], "usage" plain;
    /// `exec.keep-jobs`: a stop of an instance that comes back leaves its jobs running.
    "keep-jobs" keep_jobs: bool = true, flag, [Ours];
    /// `exec.perilog`: this service runs prologs and epilogs. Read last, because `imp` is part of it.
    "perilog" perilog: Option<PerilogConfig> = None, |_| Ok(None), [Ours], "perilog" perilog;
}

/// A key that has no value by default.
fn some<T>(
    read: fn(&Given) -> Result<T, ConfigError>,
) -> impl Fn(&Given) -> Result<Option<T>, ConfigError> {
    move |given| read(given).map(Some)
}

fn plain(value: &impl Serialize, _: &Config) -> Option<Value> {
    Some(json!(value))
}

fn if_set(value: &Option<String>, _: &Config) -> Option<Value> {
    value.as_ref().map(|value| json!(value))
}

fn if_any(values: &BTreeMap<String, String>, _: &Config) -> Option<Value> {
    (!values.is_empty()).then(|| json!(values))
}

fn or_zero(limit: &Option<f64>, _: &Config) -> Option<Value> {
    Some(json!(limit.unwrap_or(0.0)))
}

fn as_number(value: &bool, _: &Config) -> Option<Value> {
    Some(json!(i32::from(*value)))
}

fn service(service: &Option<String>, config: &Config) -> Option<Value> {
    let default = match config.method() {
        ExecMethod::Systemd => "sdexec",
        ExecMethod::Auto | ExecMethod::Fork => "rexec",
    };
    Some(json!(service.as_deref().unwrap_or(default)))
}

fn stop_timer(seconds: &Option<u32>, config: &Config) -> Option<Value> {
    let default = || config.effective_max_kill_timeout().ceil() as i64;
    Some(json!(seconds.map_or_else(default, i64::from)))
}

fn perilog(perilog: &Option<PerilogConfig>, _: &Config) -> Option<Value> {
    perilog.as_ref().map(PerilogConfig::stats)
}

//! The option `--method`.

use clap::ValueEnum;
use job_exec_rs::config;
use job_exec_rs::proto::ExecMethod;

/// How commands are started.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Method {
    /// systemd where the user bus answers, else fork
    #[default]
    Auto,
    /// Child processes of this one
    Fork,
    /// Transient units of `systemd --user`, or an error
    Systemd,
}

impl From<Method> for config::ConfiguredMethod {
    fn from(method: Method) -> Self {
        let method = match method {
            Method::Auto => ExecMethod::Auto,
            Method::Fork => ExecMethod::Fork,
            Method::Systemd => ExecMethod::Systemd,
        };
        method.into()
    }
}

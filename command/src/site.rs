//! A small site for `demo --crash --flux`: brokers of a real Flux, each a process of its own, that
//! find each other by configuration as those of a system instance do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::failure::Failure;
use super::install;

/// How long a client waits for the instance to be up.
const PATIENCE: &str = "60s";

/// The brokers, and the directory in which all is.
pub(super) struct Site {
    path: PathBuf,
    ranks: u32,
    brokers: Vec<Child>,
}

impl Site {
    /// Writes what the brokers need: the module, their configuration, a certificate.
    pub(super) fn make(path: PathBuf, ranks: u32) -> Result<Self, Failure> {
        let site = Self { path, ranks, brokers: Vec::new() };
        let (dir, last) = (site.path.display(), ranks - 1);
        install::into_prefix(&site.path)?;
        fs::create_dir(site.path.join("conf.d")).map_err(Failure::new)?;
        let (hosts, all) = (format!("fake[0-{last}]"), format!("0-{last}"));
        site.run(&["keygen", "--name", "demo", &format!("{dir}/cert")])?;
        let r = site.run(&["R", "encode", &format!("--hosts={hosts}"), "-r", &all, "-c0-1"])?;
        fs::write(site.path.join("R"), r).map_err(Failure::new)?;
        let configuration = format!(
            "[bootstrap]\ncurve_cert = \"{dir}/cert\"\ndefault_bind = \"ipc://{dir}/tbon-%h\"\n\
             default_connect = \"ipc://{dir}/tbon-%h\"\nhosts = [ {{ host = \"{hosts}\" }} ]\n\
             [resource]\npath = \"{dir}/R\"\nnoverify = true\n"
        );
        fs::write(site.path.join("conf.d/demo.toml"), configuration).map_err(Failure::new)?;
        Ok(site)
    }

    /// Starts all brokers, and waits until the instance is up.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        for rank in 0..self.ranks {
            let (run, state) = (self.of_rank("run", rank), self.of_rank("state", rank));
            for directory in [&run, &state] {
                fs::create_dir_all(directory).map_err(Failure::new)?;
            }
            let log = fs::File::options().create(true).append(true).open(self.log(rank));
            let log = log.map_err(Failure::new)?;
            let attributes = [
                format!("rundir={}", run.display()),
                format!("statedir={}", state.display()),
                format!("local-uri=local://{}", self.socket(rank).display()),
                format!("broker.quorum={}", self.ranks),
                format!("hostname=fake{rank}"),
                "broker.rc2_none=1".to_string(),
            ];
            let mut broker = self.flux();
            broker.arg("broker").arg(format!("-c{}", self.path.join("conf.d").display()));
            broker.args(attributes.iter().map(|attribute| format!("-S{attribute}")));
            broker.env_remove("FLUX_URI").env("STATE_DIRECTORY", &state);
            broker.stdin(Stdio::null()).stdout(log.try_clone().map_err(Failure::new)?).stderr(log);
            self.brokers.push(broker.spawn().map_err(Failure::new)?);
        }
        let wait = "import flux; flux.Flux().rpc('state-machine.wait').get()";
        self.run(&["python", "-c", wait]).map(drop)
    }

    /// Kills all brokers, as a lack of memory might. Their run directories go, as systemd removes
    /// that of a stopped service.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        for broker in &mut self.brokers {
            broker.kill().map_err(Failure::new)?;
        }
        for mut broker in self.brokers.drain(..) {
            broker.wait().map_err(Failure::new)?;
        }
        (0..self.ranks)
            .try_for_each(|rank| fs::remove_dir_all(self.of_rank("run", rank)))
            .map_err(Failure::new)
    }

    /// Ends the instance in order.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.run(&["shutdown", "--quiet"])?;
        for mut broker in self.brokers.drain(..) {
            broker.wait().map_err(Failure::new)?;
        }
        Ok(())
    }

    pub(super) fn pids(&self) -> String {
        let pids: Vec<String> = self.brokers.iter().map(|broker| broker.id().to_string()).collect();
        pids.join(" ")
    }

    /// A flux command that connects to rank 0, and waits while its broker is away.
    pub(super) fn flux(&self) -> Command {
        let mut flux = Command::new("flux");
        let below = |path: &str| self.path.join(path);
        flux.env("FLUX_URI", format!("resume://{}", self.socket(0).display()))
            .env("FLUX_RESUME_TIMEOUT", PATIENCE)
            .env("FLUX_MODULE_PATH_PREPEND", below("lib/flux/modules"))
            .env("FLUX_CONNECTOR_PATH_PREPEND", below("lib/flux/connectors"))
            .env(
                "FLUX_MODPROBE_PATH_APPEND",
                format!("{0}/share/flux/modprobe:{0}/libexec/flux/modprobe", self.path.display()),
            )
            .env_remove("NOTIFY_SOCKET");
        flux
    }

    /// What a flux command prints.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<String, Failure> {
        let line = || format!("flux {}", arguments.join(" "));
        let output = self.flux().args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| Failure(format!("{}: {error}", line())))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(Failure(format!("{}: {}: {}", line(), output.status, stderr.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn of_rank(&self, name: &str, rank: u32) -> PathBuf {
        self.path.join(format!("{name}-{rank}"))
    }

    fn log(&self, rank: u32) -> PathBuf {
        self.path.join(format!("log-{rank}"))
    }

    fn socket(&self, rank: u32) -> PathBuf {
        self.of_rank("run", rank).join("local")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for broker in &mut self.brokers {
            // It may have ended.
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}

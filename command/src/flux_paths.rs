//! Where this host's Flux looks for modules and for its configuration.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::failure::Failure;

/// Directories of an installed flux-core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FluxPaths {
    /// Broker modules are found here by name.
    pub(super) modules: PathBuf,
    /// Connectors are found here by their scheme.
    pub(super) connectors: PathBuf,
    /// What a site may change, and what flux-shell reads.
    pub(super) configuration: PathBuf,
    /// Vendors' data: `modprobe/modprobe.d` and `help.d` are below it.
    pub(super) data: PathBuf,
    /// Vendors' programs: `modprobe/rc1.d` and `rc3.d` are below it.
    pub(super) scripts: PathBuf,
    /// Where `flux` itself is.
    pub(super) programs: PathBuf,
    /// `flux NAME` runs `flux-NAME` here.
    pub(super) commands: PathBuf,
    /// `flux help NAME` shows `man1/flux-NAME.1` below it. Beside it is what belongs to shells.
    pub(super) manual: PathBuf,
    /// flux-core's own `flux.service` is here. systemd reads it if the prefix is `/usr` or `/usr/local`.
    pub(super) units: PathBuf,
    /// `flux uri` finds resolvers here by the scheme of a URI. `None`: Flux is not there yet, and its
    /// directory has Python's version in its name.
    pub(super) resolvers: Option<PathBuf>,
}

/// Below Flux's prefix.
const UNITS: &str = "lib/systemd/system";
/// Below Flux's Python modules.
const RESOLVERS: &str = "flux/uri/resolvers";

impl FluxPaths {
    /// The directories below a prefix, or else those that the flux command, or pkg-config, names.
    pub(super) fn find(prefix: Option<&Path>) -> Result<Self, Failure> {
        if let Some(prefix) = prefix {
            return Ok(Self::below_prefix(prefix));
        }
        let asked = [
            ("module_path", "fluxmoddir"),
            ("confdir", "fluxconfdir"),
            ("exec_path", "fluxcmddir"),
            ("man_path", "mandir"),
            ("datadir", "fluxdatadir"),
            ("libexecdir", "fluxlibexecdir"),
        ];
        let mut told = Vec::new();
        for (builtin, variable) in asked {
            let answer = match ask("flux", &["config", "builtin", builtin])? {
                Some(answer) => Some(answer),
                None => ask("pkg-config", &[&format!("--variable={variable}"), "flux-core"])?,
            };
            told.push(first_of(&answer.ok_or_else(|| {
                Failure::new(
                    "no Flux found: neither the command flux nor pkg-config is there \
                     (--prefix says where Flux is installed)",
                )
            })?));
        }
        let [modules, configuration, commands, manual, data, scripts] =
            <[PathBuf; 6]>::try_from(told).expect("one answer for each");
        let connectors = match ask("flux", &["config", "builtin", "connector_path"])? {
            Some(answer) => first_of(&answer),
            // pkg-config does not have it. flux-core uses this directory.
            None => modules.with_file_name("connectors"),
        };
        let resolvers = match ask("flux", &["config", "builtin", "python_path"])? {
            Some(answer) => Some(first_of(&answer)),
            None => modules.parent().and_then(python_below),
        };
        let resolvers = resolvers.map(resolvers_in);
        // Neither Flux nor pkg-config has them: they are where `make install` puts programs and units.
        let prefix = manual.ancestors().nth(2).unwrap_or(Path::new("/usr"));
        let (programs, units) = (prefix.join("bin"), prefix.join(UNITS));
        let paths = Self {
            modules,
            connectors,
            configuration,
            data,
            scripts,
            programs,
            commands,
            manual,
            units,
            resolvers,
        };
        for path in paths.all() {
            if !path.is_absolute() {
                let path = path.display();
                return Err(Failure(format!("Flux says that a directory of its own is '{path}'")));
            }
        }
        Ok(paths)
    }

    fn below_prefix(prefix: &Path) -> Self {
        let below = |directory| prefix.join(directory);
        // A distribution's.
        let is_usr = prefix == Path::new("/usr");
        Self {
            modules: below("lib/flux/modules"),
            connectors: below("lib/flux/connectors"),
            configuration: if is_usr { "/etc/flux".into() } else { below("etc/flux") },
            data: below("share/flux"),
            scripts: below("libexec/flux"),
            programs: below("bin"),
            commands: below("libexec/flux/cmd"),
            manual: below("share/man"),
            units: below(UNITS),
            resolvers: python_below(&below("lib/flux")).map(resolvers_in),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Path> {
        let all = [
            &self.modules,
            &self.connectors,
            &self.configuration,
            &self.data,
            &self.scripts,
            &self.commands,
            &self.manual,
        ];
        all.into_iter().chain(&self.resolvers).map(PathBuf::as_path)
    }

    /// The same directories below the root of a package that is being built.
    pub(super) fn below(self, destdir: Option<&Path>) -> Self {
        let Some(destdir) = destdir else { return self };
        let below = |path: PathBuf| destdir.join(path.strip_prefix("/").unwrap_or(&path));
        Self {
            modules: below(self.modules),
            connectors: below(self.connectors),
            configuration: below(self.configuration),
            data: below(self.data),
            scripts: below(self.scripts),
            programs: below(self.programs),
            commands: below(self.commands),
            manual: below(self.manual),
            units: below(self.units),
            resolvers: self.resolvers.map(below),
        }
    }
}

/// Loads the libflux-core of the Flux that this program is beside, or else of that in PATH. What is wrong
/// is said when it is needed.
pub(super) fn load_libflux() {
    let _ = libflux().map(|library| flux_sys::load_from(&library).map(drop));
}

fn libflux() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("flux");
    let flux = if beside.exists() { beside } else { PathBuf::from("flux") };
    let modules = ask(flux.to_str()?, &["config", "builtin", "module_path"]).ok()??;
    // LIBDIR/flux/modules
    Some(first_of(&modules).ancestors().nth(2)?.join(flux_sys::LIBRARY))
}

/// The directory of Flux's Python modules: `python3.11`, for one.
fn python_below(directory: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.join("flux/uri").is_dir()).max()
}

/// Where Flux looks for resolvers. Its Python modules can be links, which would lead out of a destdir
/// that has them, too.
fn resolvers_in(python: PathBuf) -> PathBuf {
    let path = python.join(RESOLVERS);
    path.canonicalize().unwrap_or(path)
}

/// A search path is a list; its first directory is flux-core's own.
fn first_of(list: &str) -> PathBuf {
    PathBuf::from(list.split(':').find(|directory| !directory.is_empty()).unwrap_or_default())
}

/// The output of a program; `None` if there is no such program.
fn ask(program: &str, arguments: &[&str]) -> Result<Option<String>, Failure> {
    let line = || format!("{program} {}", arguments.join(" "));
    let output = match Command::new(program).args(arguments).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| Failure(format!("{}: {error}", line())))?,
    };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("{}: {}: {}", line(), output.status, stderr.trim())));
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_needs_no_flux() {
        let paths = FluxPaths::find(Some(Path::new("/opt/flux"))).expect("paths");
        assert_eq!(paths.modules, Path::new("/opt/flux/lib/flux/modules"));
        assert_eq!(paths.connectors, Path::new("/opt/flux/lib/flux/connectors"));
        assert_eq!(paths.units, Path::new("/opt/flux/lib/systemd/system"));
        let below = paths.below(Some(Path::new("/tmp/root")));
        assert_eq!(below.configuration, Path::new("/tmp/root/opt/flux/etc/flux"));
        assert_eq!(below.programs, Path::new("/tmp/root/opt/flux/bin"));
    }

    #[test]
    fn a_distribution_has_its_configuration_in_etc() {
        let paths = FluxPaths::find(Some(Path::new("/usr"))).expect("paths");
        assert_eq!(paths.configuration, Path::new("/etc/flux"));
        assert_eq!(paths.data, Path::new("/usr/share/flux"));
    }
}

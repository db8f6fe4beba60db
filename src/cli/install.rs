//! `job-exec-rs install` and `uninstall`
//!
//! There are seven files: the connector that job shells use, what `flux uri` says for its URIs, the
//! time that job shells wait for each other's ends, the module, what has to be done when an instance
//! starts and when it stops, and the drop-in that makes `flux modprobe` load the module in place of
//! job-exec. The order matters: no broker starts while a drop-in names a module that is missing.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::failure::Failure;
use super::flux_paths::FluxPaths;

/// Beside the executable, as cargo builds it and packages ship it.
const LIBRARY: &str = "libjob_exec_rs.so";
const MODULE: &str = "job-exec-rs.so";
/// Beside the module as it was built.
const CONNECTOR_LIBRARY: &str = "libresume.so";
const CONNECTOR: &str = "resume.so";
const DROP_IN: &str = "modprobe/modprobe.d/50-job-exec-rs.toml";
const START_TASKS: &str = "modprobe/rc1.d/50-job-exec-rs.py";
const START_TASKS_TEXT: &str = include_str!("rc1.py");
const STOP_TASKS: &str = "modprobe/rc3.d/50-job-exec-rs.py";
const STOP_TASKS_TEXT: &str = include_str!("rc3.py");
/// Read by flux-shell.
const SHELL: &str = "shell/lua.d/50-job-exec-rs.lua";
const SHELL_TEXT: &str = include_str!("shell.lua");
/// Named after the scheme that it is for.
const RESOLVER: &str = "resume.py";
const RESOLVER_TEXT: &str = include_str!("resume.py");

/// Read by `flux modprobe rc1` and `rc3` on every rank. A module of its own name, not a new
/// file behind job-exec's: `flux module reload job-exec` would quietly put flux-core's back.
const DROP_IN_TEXT: &str = "\
# Written by `job-exec-rs install`; `job-exec-rs uninstall` removes it. Makes Flux load
# job-exec-rs in place of its own job-exec, on every rank. Settings belong into the [exec]
# table, or into [modules.job-exec-rs], of the broker's configuration.
[[modules]]
name = \"job-exec-rs\"
provides = [\"job-exec\"]
after = [\"job-manager\"]
requires = [\"kvs\", \"job-manager\"]
# flux-core's job-exec has 100
priority = 200

# With systemd.enable, sdmon keeps a node offline after a restart of its broker while units named
# *shell-* run there. Here they are running jobs, and the node's other cores are free.
[[modules]]
name = \"sdmon\"
args = [\"usr_glob=flux-*\"]
";

const NEXT: &str = "\
Next, when this is done on every node of the instance: restart it (running jobs end this once).
    systemctl restart flux";

/// Put the module where Flux finds it, and have it loaded in place of job-exec
///
/// Writes seven files: resume.so in Flux's connector directory, job-exec-rs.so in its module
/// directory, flux/uri/resolvers/resume.py below that of its Python modules, and
/// shell/lua.d/50-job-exec-rs.lua, modprobe/rc1.d/50-job-exec-rs.py, modprobe/rc3.d/50-job-exec-rs.py
/// and modprobe/modprobe.d/50-job-exec-rs.toml in its configuration directory. Flux itself says where
/// those are. Running instances are not touched; the next start loads the module.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo job-exec-rs install
  job-exec-rs install --prefix /usr --destdir debian/job-exec-rs    in a package's build
  sudo job-exec-rs install --module target/release/libjob_exec_rs.so")]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// The module, if it is not libjob_exec_rs.so beside this program; the connector,
    /// libresume.so, is beside the module
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

/// Remove what install has written, and nothing else
///
/// From its next start on, Flux loads its own job-exec again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo job-exec-rs uninstall
  job-exec-rs uninstall --prefix $HOME/flux")]
pub(super) struct UninstallArguments {
    #[command(flatten)]
    place: Place,
}

/// Where Flux is.
#[derive(Args, Debug)]
struct Place {
    /// Flux's prefix, instead of asking flux: PREFIX/lib/flux/modules, PREFIX/etc/flux
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<PathBuf>,
    /// Put this directory before every path, to build a package
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

/// The files of an installation.
struct Files {
    connector: PathBuf,
    resolver: Option<PathBuf>,
    shell: PathBuf,
    module: PathBuf,
    start_tasks: PathBuf,
    stop_tasks: PathBuf,
    drop_in: PathBuf,
}

impl Place {
    fn files(&self) -> Result<Files, Failure> {
        let paths = FluxPaths::find(self.prefix.as_deref())?.below(self.destdir.as_deref());
        Ok(Files {
            connector: paths.connectors.join(CONNECTOR),
            resolver: paths.resolvers.map(|path| path.join(RESOLVER)),
            shell: paths.configuration.join(SHELL),
            module: paths.modules.join(MODULE),
            start_tasks: paths.configuration.join(START_TASKS),
            stop_tasks: paths.configuration.join(STOP_TASKS),
            drop_in: paths.configuration.join(DROP_IN),
        })
    }
}

impl Files {
    /// Writes them, from the module as it was built, and tells of each.
    fn write(
        &self,
        source: &Path,
        wrote: impl Fn(&Path) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let module = read_library(source, "--module names the module", MODULE_ENTRY)?;
        let connector = source.with_file_name(CONNECTOR_LIBRARY);
        let hint = "cargo build --release builds it";
        let connector = read_library(&connector, hint, CONNECTOR_ENTRY)?;
        put(&self.connector, &connector, 0o755)?;
        wrote(&self.connector)?;
        if let Some(resolver) = &self.resolver {
            put(resolver, RESOLVER_TEXT.as_bytes(), 0o644)?;
            wrote(resolver)?;
        }
        put(&self.shell, SHELL_TEXT.as_bytes(), 0o644)?;
        wrote(&self.shell)?;
        put(&self.module, &module, 0o755)?;
        wrote(&self.module)?;
        put(&self.start_tasks, START_TASKS_TEXT.as_bytes(), 0o644)?;
        wrote(&self.start_tasks)?;
        put(&self.stop_tasks, STOP_TASKS_TEXT.as_bytes(), 0o644)?;
        wrote(&self.stop_tasks)?;
        put(&self.drop_in, DROP_IN_TEXT.as_bytes(), 0o644)?;
        wrote(&self.drop_in)
    }
}

/// Copies the connector and the module, then writes what `flux modprobe` reads.
pub(super) fn install(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let source = match &arguments.module {
        Some(path) => path.clone(),
        None => beside_the_program()?,
    };
    let wrote = |path: &Path| say(&format!("wrote {}", path.display()));
    arguments.place.files()?.write(&source, wrote)?;
    say(&format!("\n{NEXT}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Installs below a prefix of its own what is beside the program, and says nothing.
pub(super) fn into_prefix(prefix: &Path) -> Result<(), Failure> {
    let place = Place { prefix: Some(prefix.to_path_buf()), destdir: None };
    place.files()?.write(&beside_the_program()?, |_| Ok(()))
}

/// Removes what `flux modprobe` reads, then the module, then what belongs to the connector. Shells that
/// run have that open.
pub(super) fn uninstall(arguments: &UninstallArguments) -> Result<ExitCode, Failure> {
    let files = arguments.place.files()?;
    let first = [&files.drop_in, &files.start_tasks, &files.stop_tasks, &files.module];
    let last = [&files.shell, &files.connector];
    for path in first.into_iter().chain(&files.resolver).chain(last) {
        let shown = path.display();
        match fs::remove_file(path) {
            Ok(()) => say(&format!("removed {shown}"))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                say(&format!("{shown} was not there"))?;
            }
            Err(error) => return Err(at(path, &error)),
        }
    }
    say("\nRestart the instance: Flux then loads its own job-exec again.")?;
    Ok(ExitCode::SUCCESS)
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|error| Failure(format!("stdout: {error}")))
}

fn at(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

fn beside_the_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(Failure::new)?;
    Ok(program.with_file_name(LIBRARY))
}

/// A symbol that the broker, or libflux, needs, as it stands in an ELF string table, and which
/// library has it.
struct Entry {
    symbol: &'static str,
    of: &'static str,
}

const MODULE_ENTRY: Entry = Entry { symbol: "mod_main", of: "broker module" };
const CONNECTOR_ENTRY: Entry = Entry { symbol: "connector_init", of: "connector" };

/// The bytes of a library, if it is the right one.
fn read_library(path: &Path, hint: &str, entry: Entry) -> Result<Vec<u8>, Failure> {
    let bytes = fs::read(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => format!(" ({hint})"),
            _ => String::new(),
        };
        Failure(format!("{}: {error}{hint}", path.display()))
    })?;
    if has_symbol(&bytes, entry.symbol) {
        return Ok(bytes);
    }
    let (path, Entry { symbol, of }) = (path.display(), entry);
    Err(Failure(format!(
        "{path}: not a {of}: it has no symbol {symbol} \
         (was it built where flux-core's headers are not installed?)"
    )))
}

/// Whether the file is an ELF file with this name in a string table. Flux itself reports a missing
/// symbol, but only at its next start. This finds the common mistake, a library that was built
/// without flux-core, at once, and without an ELF parser.
fn has_symbol(bytes: &[u8], symbol: &str) -> bool {
    let name = format!("\0{symbol}\0").into_bytes();
    bytes.starts_with(b"\x7fELF") && bytes.windows(name.len()).any(|window| window == name)
}

/// Writes a file completely or not at all, because a broker may start at any moment.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).map_err(|error| at(directory, &error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let written = write_new(&temporary, content, mode)
        .map_err(|error| at(&temporary, &error))
        .and_then(|()| fs::rename(&temporary, path).map_err(|error| at(path, &error)));
    if written.is_err() {
        // The first error is reported. The file may not even exist.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // Whatever the umask is, the broker's user has to read it.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_broker_modules_are_taken() {
        assert!(has_symbol(b"\x7fELF....\0mod_main\0...", "mod_main"));
        assert!(!has_symbol(b"\x7fELF....\0mod_mainly\0", "mod_main"));
        assert!(!has_symbol(b"text with \0mod_main\0 in it", "mod_main"));
    }
}

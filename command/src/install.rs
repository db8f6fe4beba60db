//! `job-exec-rs install` and `uninstall`
//!
//! The files are written in the order of [`File::all`], and removed in the reverse one: so no broker
//! starts while a drop-in names a module that is missing.
//!
//! What Flux reads at its start is where it looks for files of vendors. There no package manager keeps a
//! file when its package is removed, as it does with changed files of a site's configuration.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};

use super::failure::Failure;
use super::flux_paths::FluxPaths;
use super::manual;
use super::programs::run;
use super::running;

/// Beside the executable, as cargo builds it and packages ship it.
const LIBRARY: &str = "libjob_exec_rs.so";
const MODULE: &str = "job-exec-rs.so";
/// Beside the module as it was built.
const CONNECTOR_LIBRARY: &str = "libresume.so";
const CONNECTOR: &str = "resume.so";
/// Beside `flux`.
const PROGRAM: &str = "job-exec-rs";
/// What `flux job-exec-rs` runs: a link to that.
const COMMAND: &str = "flux-job-exec-rs";
const DROP_IN: &str = "modprobe/modprobe.d/50-job-exec-rs.toml";
const START_TASKS: &str = "modprobe/rc1.d/50-job-exec-rs.py";
const START_TASKS_TEXT: &str = include_str!("rc1.py");
const STOP_TASKS: &str = "modprobe/rc3.d/50-job-exec-rs.py";
const STOP_TASKS_TEXT: &str = include_str!("rc3.py");
/// Read by `flux help`.
const HELP: &str = "help.d/job-exec-rs.json";
const HELP_TEXT: &str = r#"[{
  "name": "job-exec-rs",
  "description": "Commands of job-exec-rs:",
  "commands": [{ "name": "job-exec-rs", "description": "look at nodes, and at shells of jobs" }]
}]
"#;
/// Read by systemd.
const UNIT: &str = "flux.service.d/50-job-exec-rs.conf";
const UNIT_TEXT: &str = include_str!("flux.service.conf");
/// Also read by systemd, which starts neither until the timer is enabled.
const METRICS: [(&str, &str); 2] = [
    (
        "job-exec-rs-metrics.service",
        include_str!("../../packaging/systemd/job-exec-rs-metrics.service"),
    ),
    (
        "job-exec-rs-metrics.timer",
        include_str!("../../packaging/systemd/job-exec-rs-metrics.timer"),
    ),
];
/// Where systemd reads units that are not made while it runs.
const READ_BY_SYSTEMD: [&str; 2] = ["/usr/lib/systemd/system", "/usr/local/lib/systemd/system"];
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
/// The module, job-exec-rs.so, goes to Flux's module directory; the connector of job shells, resume.so,
/// to its connector directory, and what `flux uri` has to know of it below its Python modules. What
/// Flux reads when it starts and stops goes where it looks for files of vendors (modprobe/ below its data
/// and libexec directories), what it reads when a shell starts to its configuration (shell/lua.d/), and a
/// drop-in for flux.service beside that. This program goes beside `flux`, with manual pages and
/// completions, and is also `flux job-exec-rs`. Flux itself says where its directories are. Running
/// instances are not touched; the next start loads the module.
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
/// From its next start on, Flux loads its own job-exec again. While jobs run on this node nothing is
/// removed: nobody would own their processes.
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
    /// Say which files, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// A file of an installation.
struct File {
    path: PathBuf,
    content: Content,
}

enum Content {
    Text(String),
    /// A library that cargo has built, with what it has to export.
    Library(Entry),
    /// This program.
    Program,
    /// Of another file, relative to the directory of the link.
    Link(PathBuf),
}

/// What is written.
enum Written {
    File { bytes: Vec<u8>, mode: u32 },
    Link(PathBuf),
}

impl Place {
    fn paths(&self) -> Result<FluxPaths, Failure> {
        Ok(FluxPaths::find(self.prefix.as_deref())?.below(self.destdir.as_deref()))
    }
}

impl File {
    /// What is installed, in the order in which it is written. Manual pages and completions are those
    /// of `command`.
    fn all(paths: &FluxPaths, command: Option<&Command>) -> Vec<Self> {
        let text = |path: PathBuf, text: &str| File { path, content: Content::Text(text.into()) };
        let library = |path: PathBuf, entry| File { path, content: Content::Library(entry) };
        let mut files = vec![library(paths.connectors.join(CONNECTOR), CONNECTOR_ENTRY)];
        let resolver = paths.resolvers.as_ref().map(|path| path.join(RESOLVER));
        files.extend(resolver.map(|path| text(path, RESOLVER_TEXT)));
        files.push(text(paths.configuration.join(SHELL), SHELL_TEXT));
        files.push(text(paths.units.join(UNIT), UNIT_TEXT));
        files.extend(METRICS.map(|(name, unit)| text(paths.units.join(name), unit)));
        let program = paths.programs.join(PROGRAM);
        let link = Content::Link(relative(&paths.commands, &program));
        files.push(File { path: program, content: Content::Program });
        files.push(File { path: paths.commands.join(COMMAND), content: link });
        files.push(text(paths.data.join(HELP), HELP_TEXT));
        let pages = command.map(|command| manual::pages(command, &paths.manual));
        files.extend(pages.into_iter().flatten().map(|(path, page)| text(path, &page)));
        files.push(library(paths.modules.join(MODULE), MODULE_ENTRY));
        files.push(text(paths.scripts.join(START_TASKS), START_TASKS_TEXT));
        files.push(text(paths.scripts.join(STOP_TASKS), STOP_TASKS_TEXT));
        files.push(text(paths.data.join(DROP_IN), DROP_IN_TEXT));
        files
    }
}

/// Where earlier releases wrote what `flux modprobe` reads, and pages of commands that are not here any more.
fn former(paths: &FluxPaths) -> impl Iterator<Item = PathBuf> {
    let read = [DROP_IN, START_TASKS, STOP_TASKS].map(|name| paths.configuration.join(name));
    let pages = ["man1/job-exec-rs-run.1", "man1/job-exec-rs-sim.1"];
    read.into_iter().chain(pages.map(|name| paths.manual.join(name)))
}

/// The path from a directory to a file. Both are absolute.
fn relative(directory: &Path, file: &Path) -> PathBuf {
    let shared = directory.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = directory.components().skip(shared).map(|_| Path::new(".."));
    up.chain(file.components().skip(shared).map(|part| Path::new(part.as_os_str()))).collect()
}

/// Where everything is that Flux needs, if it is installed.
pub(super) fn paths(paths: &FluxPaths) -> Vec<PathBuf> {
    File::all(paths, None).into_iter().map(|file| file.path).collect()
}

/// What each file is to be. `module` is as cargo has built it, and the connector beside it.
fn contents(files: &[File], module: &Path) -> Result<Vec<Written>, Failure> {
    // Somebody may have named it: that is what an error is about first.
    read_library(module, &MODULE_ENTRY)?;
    let read = |file: &File| match &file.content {
        Content::Text(text) => Ok(Written::File { bytes: text.clone().into_bytes(), mode: 0o644 }),
        Content::Library(entry) => {
            let beside = entry.file.map(|name| module.with_file_name(name));
            let bytes = read_library(beside.as_deref().unwrap_or(module), entry)?;
            Ok(Written::File { bytes, mode: 0o755 })
        }
        Content::Program => {
            let program = std::env::current_exe().map_err(Failure::new)?;
            let bytes = fs::read(&program).map_err(|error| at(&program, &error))?;
            Ok(Written::File { bytes, mode: 0o755 })
        }
        Content::Link(to) => Ok(Written::Link(to.clone())),
    };
    files.iter().map(read).collect()
}

/// Writes everything, once everything could be read.
fn write(
    files: &[File],
    module: &Path,
    wrote: impl Fn(&Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let contents = contents(files, module)?;
    for (file, content) in files.iter().zip(contents) {
        put(&file.path, &content)?;
        wrote(&file.path)?;
    }
    Ok(())
}

/// Copies the libraries and this program, then writes what `flux modprobe` reads.
pub(super) fn install(arguments: &Arguments, command: &Command) -> Result<ExitCode, Failure> {
    let module = match &arguments.module {
        Some(path) => path.clone(),
        None => beside_the_program()?,
    };
    let paths = arguments.place.paths()?;
    let files = File::all(&paths, Some(command));
    if arguments.place.dry_run {
        contents(&files, &module)?;
        for file in files {
            say(&format!("would write {}", file.path.display()))?;
        }
        return remove_former(&paths, true).map(|()| ExitCode::SUCCESS);
    }
    write(&files, &module, |path| say(&format!("wrote {}", path.display())))?;
    remove_former(&paths, false)?;
    reload_systemd(&files)?;
    say(&format!("\n{NEXT}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Installs below a prefix of its own what is beside the program, and says nothing.
pub(super) fn into_prefix(prefix: &Path) -> Result<(), Failure> {
    let prefix = Some(prefix.to_path_buf());
    let paths = FluxPaths::find(prefix.as_deref())?;
    write(&File::all(&paths, None), &beside_the_program()?, |_| Ok(()))
}

/// Removes what `install` writes, what `flux modprobe` reads first. Shells that run have the connector
/// open.
pub(super) fn uninstall(
    arguments: &UninstallArguments,
    command: &Command,
) -> Result<ExitCode, Failure> {
    let paths = arguments.place.paths()?;
    if arguments.place.destdir.is_none() {
        refuse_while_jobs_run()?;
    }
    let files = File::all(&paths, Some(command));
    remove_former(&paths, arguments.place.dry_run)?;
    for File { path, .. } in files.iter().rev() {
        let shown = path.display();
        if arguments.place.dry_run {
            say(&format!("would remove {shown}"))?;
        } else if !remove(path)? {
            say(&format!("{shown} was not there"))?;
        }
    }
    if !arguments.place.dry_run {
        reload_systemd(&files)?;
        say("\nRestart the instance: that cancels jobs that run, and loads Flux's own job-exec.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Without the module nobody owns the processes of jobs that run. A stop of Flux cancels these jobs, but a
/// broker that dies before it does not.
fn refuse_while_jobs_run() -> Result<(), Failure> {
    let jobs: Vec<String> = running::jobs().iter().map(ToString::to_string).collect();
    if jobs.is_empty() {
        return Ok(());
    }
    let jobs = jobs.join(" ");
    Err(Failure(format!(
        "shells of jobs run on this node, and nobody would own them: {jobs}\n\
         Drain the node and wait for them, or cancel them, as the instance owner:\n\
         \x20   flux resource drain $(hostname) 'job-exec-rs is removed'\n\
         \x20   flux cancel {jobs}"
    )))
}

/// Whether it was there, which is said.
fn remove(path: &Path) -> Result<bool, Failure> {
    match fs::remove_file(path) {
        Ok(()) => say(&format!("removed {}", path.display())).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(at(path, &error)),
    }
}

/// What an earlier release left would load the module still when this release is removed.
fn remove_former(paths: &FluxPaths, dry_run: bool) -> Result<(), Failure> {
    for path in former(paths) {
        if !dry_run {
            remove(&path)?;
        } else if path.exists() {
            say(&format!("would remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Has systemd read what it reads of these files, if it runs here.
fn reload_systemd(files: &[File]) -> Result<(), Failure> {
    let is_read = |file: &File| READ_BY_SYSTEMD.iter().any(|place| file.path.starts_with(place));
    if !Path::new("/run/systemd/system").exists() || !files.iter().any(is_read) {
        return Ok(());
    }
    match run("systemctl", &["daemon-reload"]) {
        Ok(_) => Ok(()),
        // The rest is done.
        Err(Failure(why)) => say(&format!("systemd has to read its units again: {why}")),
    }
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

/// A library, by the symbol that the broker, or libflux, needs, as it stands in an ELF string table.
struct Entry {
    symbol: &'static str,
    of: &'static str,
    /// Its name beside the module, if it is another library.
    file: Option<&'static str>,
    /// What to do if it is not there.
    hint: &'static str,
}

const MODULE_ENTRY: Entry = Entry {
    symbol: "mod_main",
    of: "broker module",
    file: None,
    hint: "--module names the module",
};
const CONNECTOR_ENTRY: Entry = Entry {
    symbol: "connector_init",
    of: "connector",
    file: Some(CONNECTOR_LIBRARY),
    hint: "cargo build --release builds it",
};

/// The bytes of a library, if it is the right one.
fn read_library(path: &Path, entry: &Entry) -> Result<Vec<u8>, Failure> {
    let bytes = fs::read(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => format!(" ({})", entry.hint),
            _ => String::new(),
        };
        Failure(format!("{}: {error}{hint}", path.display()))
    })?;
    if has_symbol(&bytes, entry.symbol) {
        return Ok(bytes);
    }
    let (path, Entry { symbol, of, .. }) = (path.display(), entry);
    Err(Failure(format!("{path}: not a {of}: it has no symbol {symbol}")))
}

/// Whether the file is an ELF file with this name in a string table. Flux itself reports a missing
/// symbol, but only at its next start. This finds the common mistake, another library, at once, and
/// without an ELF parser.
fn has_symbol(bytes: &[u8], symbol: &str) -> bool {
    let name = format!("\0{symbol}\0").into_bytes();
    bytes.starts_with(b"\x7fELF") && bytes.windows(name.len()).any(|window| window == name)
}

/// Writes a file completely or not at all, because a broker may start at any moment.
fn put(path: &Path, content: &Written) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).map_err(|error| at(directory, &error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let new = match content {
        Written::File { bytes, mode } => write_new(&temporary, bytes, *mode),
        Written::Link(to) => symlink(to, &temporary),
    };
    let written = new
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
    fn a_link_leads_to_the_program() {
        let commands = Path::new("/dest/opt/flux/libexec/flux/cmd");
        let link = relative(commands, Path::new("/dest/opt/flux/bin/job-exec-rs"));
        assert_eq!(link, Path::new("../../../bin/job-exec-rs"));
    }

    #[test]
    fn only_broker_modules_are_taken() {
        assert!(has_symbol(b"\x7fELF....\0mod_main\0...", "mod_main"));
        assert!(!has_symbol(b"\x7fELF....\0mod_mainly\0", "mod_main"));
        assert!(!has_symbol(b"text with \0mod_main\0 in it", "mod_main"));
    }
}

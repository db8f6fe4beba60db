//! What the libraries that Flux loads show to others, and what they want from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library that cargo has built beside this test.
fn library(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("the path of this test");
    this.with_file_name(name)
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Symbols as nm(1) shows them with this option, without their versions.
fn symbols(library: &Path, option: &str) -> Vec<String> {
    let nm = output(Command::new("nm").args(["-D", "-P", option]).arg(library));
    assert!(nm.status.success(), "{nm:?}");
    let text = String::from_utf8(nm.stdout).expect("ASCII");
    let name = |line: &str| line.split(['@', ' ']).next().unwrap_or_default().to_string();
    text.lines().map(name).collect()
}

#[test]
fn the_module_shows_its_entry_point_alone_and_is_not_bound_to_a_libflux() {
    let module = library("libjob_exec_rs.so");
    assert_eq!(symbols(&module, "--defined-only"), ["mod_main"]);
    let wanted = symbols(&module, "--undefined-only");
    let of_flux = wanted.iter().filter(|name| name.starts_with("flux_")).collect::<Vec<_>>();
    assert!(of_flux.is_empty(), "{of_flux:?}");
}

/// A libflux-core that has `flux_open()` and nothing else.
const OLD_LIBFLUX: &str = "void *flux_open (const char *uri, int flags) { return 0; }\n";
/// What a broker does with a module. There need not be anything but what Rust itself needs, a compiler.
const BROKER: &str = r#"
#include <dlfcn.h>
int main (int argc, char **argv)
{
    int (*mod_main) (void *, int, char **) = dlsym (dlopen (argv[1], RTLD_NOW), "mod_main");
    return mod_main ? -mod_main (0, 0, 0) : 2;
}
"#;

fn compile(source: &str, made: &Path, options: &[&str]) {
    let file = made.with_extension("c");
    fs::write(&file, source).expect("a temporary file");
    let cc = output(Command::new("cc").arg(file).args(options).arg("-o").arg(made));
    assert!(cc.status.success(), "{cc:?}");
}

/// What a program says that finds the old libflux.
fn says(command: &mut Command, directory: &Path) -> String {
    let output = output(command.env("LD_LIBRARY_PATH", directory));
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn a_flux_that_is_too_old_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let in_it = |name: &str| directory.path().join(name);
    compile(OLD_LIBFLUX, &in_it("libflux-core.so.2"), &["-shared", "-fPIC"]);
    compile(BROKER, &in_it("broker"), &["-ldl"]);
    let tool = Path::new(env!("CARGO_BIN_EXE_job-exec-rs"));
    let mut tool = Command::new(tool);
    tool.args(["perilog", "list"]).env("PATH", directory.path());
    let text = says(&mut tool, directory.path());
    assert!(text.starts_with("job-exec-rs: cannot use Flux: "), "{text}");
    assert!(text.contains("undefined symbol: flux_"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");

    let mut broker = Command::new(in_it("broker"));
    let text = says(broker.arg(library("libjob_exec_rs.so")), directory.path());
    assert!(text.starts_with("job-exec-rs: this release does not fit this Flux: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

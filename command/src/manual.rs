//! Manual pages and completions: from the definition of the command line, and for the keys of the
//! configuration from the table that specifies them.

use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Inline, Roff, bold, italic, roman};

const NAME: &str = "job-exec-rs";
const KEYS: &str = include_str!("../../rfc/0005-configuration.md");
const OVERVIEW: &str = include_str!("job-exec-rs.7");

/// Manual pages below the directory `manual`, and completions in the directories beside it where
/// shells look for them.
pub(super) fn pages(command: &Command, manual: &Path) -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    add_pages(command, NAME, &mut pages);
    pages.push((format!("man1/flux-{NAME}.1"), format!(".so man1/{NAME}.1\n")));
    pages.push(("man5/flux-config-exec-rs.5".to_string(), keys()));
    pages.push((format!("man7/{NAME}.7"), OVERVIEW.to_string()));
    let mut files: Vec<_> =
        pages.into_iter().map(|(name, text)| (manual.join(name), text)).collect();
    let completions = [
        (Shell::Bash, format!("bash-completion/completions/{NAME}")),
        (Shell::Zsh, format!("zsh/site-functions/_{NAME}")),
        (Shell::Fish, format!("fish/vendor_completions.d/{NAME}.fish")),
    ];
    let shared = manual.parent().unwrap_or(manual);
    files.extend(completions.map(|(shell, name)| (shared.join(name), completion(command, shell))));
    files
}

/// The page of a command, and those of its subcommands. `words` is what one types.
fn add_pages(command: &Command, words: &str, pages: &mut Vec<(String, String)>) {
    let name = words.replace(' ', "-");
    let page = command.clone().name(name.clone()).display_name(name.clone()).bin_name(words);
    // An own page for `help`, which shows the others, would say nothing.
    let page = page.disable_help_subcommand(true);
    pages.push((format!("man1/{name}.1"), text(|out| Man::new(page).render(out))));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        add_pages(sub, &format!("{words} {}", sub.get_name()), pages);
    }
}

fn completion(command: &Command, shell: Shell) -> String {
    text(|out| {
        clap_complete::generate(shell, &mut command.clone(), NAME, out);
        Ok(())
    })
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).expect("a Vec takes everything");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// flux-config-exec-rs(5): the tables of keys of rfc/0005.
fn keys() -> String {
    let mut roff = Roff::new();
    let title = ["FLUX-CONFIG-EXEC-RS", "5"];
    roff.control("TH", title);
    roff.control("SH", ["NAME"]);
    roff.text([roman("flux-config-exec-rs - configure the job-exec-rs service")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text(words(
        "The keys of the tables `exec`, `exec.perilog`, `job-manager.prolog` and \
         `job-manager.epilog` of the broker's configuration that job-exec-rs reads, and of \
         `attributes.system.exec` of a jobspec. Keys of `exec` marked as such can also be arguments \
         of the module: `flux module load job-exec-rs KEY=VALUE`. A bad value keeps the module from \
         loading, and the error names the key.",
    ));
    let (mut columns, mut is_shown) = (Vec::new(), false);
    for line in KEYS.lines() {
        if let Some(section) = line.strip_prefix("## ") {
            let (_, heading) = section.split_once(' ').unwrap_or(("", section));
            columns.clear();
            is_shown = ["Keys", "Jobspec", "Prologs and epilogs"].contains(&heading);
            if is_shown {
                roff.control("SH", [heading.to_uppercase().as_str()]);
            }
        } else if let Some(row) = line.strip_prefix('|') {
            let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
            if cells[0] == "Key" && is_shown {
                columns = cells;
            } else if !columns.is_empty() && !cells[0].starts_with("---") {
                add_key(&mut roff, &columns, &cells);
            }
        } else if !columns.is_empty() && line.starts_with("The tables ") {
            let (tables, _) = line.split_once(" are ").unwrap_or((line, ""));
            roff.control("PP", []);
            roff.text(words(&format!("{tables}:")));
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("job-exec-rs"), roman("(7), "), bold("flux-config-exec"), roman("(5)")]);
    roff.render()
}

fn add_key(roff: &mut Roff, columns: &[&str], cells: &[&str]) {
    roff.control("TP", []);
    let mut head = words(cells[0]);
    for (column, cell) in columns.iter().zip(cells).skip(1) {
        match *column {
            "Type, default" => head.extend([roman(" ("), italic(plain(cell)), roman(")")]),
            "Argument" if *cell == "yes" => head.push(roman(", also an argument")),
            _ => (),
        }
    }
    roff.text(head);
    roff.text(words(cells[cells.len() - 1]));
}

/// Markdown's code is bold here; a link is its text.
fn words(markdown: &str) -> Vec<Inline> {
    let parts = markdown.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 0 { roman(plain(part)) } else { bold(part) }).collect()
}

fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let (inside, after) = after.split_once(']').unwrap_or((after, ""));
        text.push_str(inside);
        rest = match after.strip_prefix('(').and_then(|link| link.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    (text + rest).replace('`', "")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn page(name: &str) -> String {
        let pages = pages(&Cli::command(), Path::new("/share/man"));
        let found = pages.into_iter().find(|(path, _)| path.ends_with(name));
        found.unwrap_or_else(|| panic!("{name}")).1
    }

    #[test]
    fn every_command_and_every_option_has_its_place() {
        let command = Cli::command();
        let mut all = vec![("job-exec-rs".to_string(), &command)];
        while let Some((name, command)) = all.pop() {
            let page = page(&format!("man1/{name}.1"));
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let Some(long) = argument.get_long() else { continue };
                // roff writes a hyphen that is none as `\-`.
                assert!(page.replace("\\-", "-").contains(&format!("--{long}")), "{name} {long}");
            }
            let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
            all.extend(visible.map(|sub| (format!("{name}-{}", sub.get_name()), sub)));
        }
        for completions in ["completions/job-exec-rs", "_job-exec-rs", "job-exec-rs.fish"] {
            assert!(page(completions).contains("uninstall"), "{completions}");
        }
    }

    #[test]
    fn every_key_of_the_specification_is_in_the_manual() {
        let page = page("man5/flux-config-exec-rs.5").replace("\\-", "-");
        let keys: Vec<&str> = KEYS
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .filter(|(_, rest)| rest.matches(" | ").count() >= 2)
            .map(|(key, _)| key)
            .collect();
        assert!(keys.len() > 35, "{keys:?}");
        for key in keys {
            assert!(page.contains(&format!("\\fB{key}\\fR")), "{key} in {page}");
        }
        assert!(!page.contains("](") && !page.contains('`'), "{page}");
    }

    #[test]
    fn a_link_is_its_text() {
        assert_eq!(plain("see [a-rule](0004-units.md), or [b-rule]."), "see a-rule, or b-rule.");
    }
}

//! Completions for shells, and manual pages.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::base::failure::Failure;
use crate::base::output;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  bash:  headstart completions bash > ~/.local/share/bash-completion/completions/headstart
  zsh:   headstart completions zsh > \"${fpath[1]}/_headstart\"
  fish:  headstart completions fish > ~/.config/fish/completions/headstart.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  Read one page:   headstart man keys rotate | man -l -
  Install all:     headstart man --dir ~/.local/share/man/man1";

/// Has no page: it shows what they say.
const HELP: &str = "help";

const SYNOPSIS: &str = ".SH SYNOPSIS\n";

/// Print the completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsOptions {
    /// The shell to print it for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Print a manual page, or write all of them
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManOptions {
    /// The command to print the page of [default: that of the program]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write the pages of all commands to this directory, which must exist
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

/// Prints the completion script of `program`.
pub fn completions(options: &CompletionsOptions, program: &Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let mut program = program.clone();
    let name = program.get_name().to_owned();
    clap_complete::generate(options.shell, &mut program, name, &mut script);
    output::print(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints or writes manual pages of `program` and its commands.
pub fn man(options: &ManOptions, program: &Command) -> Result<ExitCode, Failure> {
    match &options.dir {
        Some(dir) => pages(program).iter().try_for_each(|page| write_page(dir, page))?,
        None => output::print(&page(program, &options.command.join(" "))?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn page(program: &Command, command: &str) -> Result<Vec<u8>, Failure> {
    let page = pages(program).into_iter().find(|page| page.command == command);
    page.map(|page| page.text).ok_or_else(|| {
        Failure::usage(format!("no command '{command}'"))
            .hint(format!("`{} --help` lists the commands", program.get_name()))
    })
}

/// A manual page of section 1.
struct Page {
    /// Words behind the program's name.
    command: String,
    file: String,
    text: Vec<u8>,
}

/// Returns the page of `program`, which has been built, and those of all commands below it.
fn pages(program: &Command) -> Vec<Page> {
    let mut pages = Vec::new();
    add_pages(program, program.get_name(), "", &mut pages);
    pages
}

fn add_pages(command: &Command, title: &str, words: &str, pages: &mut Vec<Page>) {
    pages.push(rendered(command, title, words));
    for below in command.get_subcommands().filter(|below| below.get_name() != HELP) {
        let name = below.get_name();
        let words = format!("{words} {name}");
        add_pages(below, &format!("{title}-{name}"), words.trim_start(), pages);
    }
}

fn rendered(command: &Command, title: &str, words: &str) -> Page {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let named = command.clone().display_name(title.to_owned());
    let named = match command.find_subcommand(HELP) {
        Some(_) => named.mut_subcommand(HELP, |help| help.hide(true)),
        None => named,
    };
    let _ = Man::new(named)
        .title(title)
        .source(concat!("headstart ", env!("CARGO_PKG_VERSION")))
        .render(&mut text);
    let text = with_usage(&String::from_utf8_lossy(&text), command);
    Page { command: words.to_owned(), file: format!("{title}.1"), text: text.into() }
}

/// Puts the usage of --help in the place of the library's synopsis, which has no values.
fn with_usage(page: &str, command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('\\', "\\\\").replace('-', "\\-");
    let Some((before, rest)) = page.split_once(SYNOPSIS) else { return page.to_owned() };
    let after = rest.find("\n.SH ").and_then(|end| rest.get(end..)).unwrap_or_default();
    format!("{before}{SYNOPSIS}{usage}{after}")
}

fn write_page(dir: &Path, page: &Page) -> Result<(), Failure> {
    let path = dir.join(&page.file);
    fs::File::create(&path)
        .and_then(|mut file| file.write_all(&page.text))
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}

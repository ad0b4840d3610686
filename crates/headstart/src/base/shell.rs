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
  Read one page:   headstart man edge | man -l -
  Install all:     headstart man --dir ~/.local/share/man/man1";

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
    /// The command to print the page of [default: headstart itself]
    #[arg(value_name = "COMMAND")]
    command: Option<String>,

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
        Some(dir) => pages(program).try_for_each(|page| write_page(dir, &page))?,
        None => output::print(&page(program, options.command.as_deref())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn page(program: &Command, name: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut pages = pages(program);
    let page = match name {
        None => pages.next(),
        Some(name) => pages.find(|page| page.command == name),
    };
    page.map(|page| page.text).ok_or_else(|| {
        Failure::usage(format!("no command '{}'", name.unwrap_or_default()))
            .hint(format!("`{} --help` lists the commands", program.get_name()))
    })
}

/// A manual page of section 1.
struct Page {
    command: String,
    file: String,
    text: Vec<u8>,
}

/// The page of `program`, which has been built, then those of its commands.
fn pages(program: &Command) -> impl Iterator<Item = Page> {
    let commands: Vec<_> = program.get_subcommands().cloned().collect();
    let commands = commands.into_iter().map(|command| {
        let title = command.get_bin_name().unwrap_or_default().replace(' ', "-");
        rendered(command.get_name().to_owned(), command, &title)
    });
    std::iter::once(rendered(String::new(), program.clone(), program.get_name())).chain(commands)
}

fn rendered(name: String, command: Command, title: &str) -> Page {
    let file = format!("{title}.1");
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = Man::new(command.display_name(title.to_owned())).title(title).render(&mut text);
    Page { command: name, file, text }
}

fn write_page(dir: &Path, page: &Page) -> Result<(), Failure> {
    let path = dir.join(&page.file);
    fs::File::create(&path)
        .and_then(|mut file| file.write_all(&page.text))
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}
